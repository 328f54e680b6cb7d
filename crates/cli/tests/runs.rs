//! Tests `ps`, `logs`, `stop`, `attach` and `run --graph`: commands accept names in the form in which they are printed.

mod common;

use std::fs;
use std::io::Read;
use std::process::Command;

use common::{Ended, Place, finish, until};
use serde_json::Value;

fn ask(place: &Place, words: &[&str]) -> Ended {
    finish(place.command(words).spawn().unwrap())
}

fn ps(place: &Place) -> Value {
    let ended = ask(place, &["ps", "-o", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// Waits until the task `task` of the first run is in this state; returns the run.
fn await_state(place: &Place, task: usize, state: &str) -> Value {
    let mut last = Value::Null;
    until(&format!("task {task} to be `{state}`"), || {
        last = ps(place);
        last["runs"][0]["tasks"][task]["state"] == state
    });
    last["runs"][0].clone()
}

#[test]
fn a_run_is_listed_with_its_tasks_and_stopped_by_the_names_that_are_printed() {
    let place = Place::new(
        "workflow: Waves\ntasks:\n  first: {command: 'exit 0'}\n  solve: {command: 'echo begins; exec sleep MARK', ranks: 2, after: first}\n  \
         last: {command: 'true', after: solve}\n",
    );
    assert!(ask(&place, &["ps"]).out.contains("no run of yours lives"));
    for name in ["id", "beginning"] {
        let child = place.start("process", &[]);
        let run = await_state(&place, 2, "runs");
        let id = run["id"].as_str().unwrap().to_owned();
        assert_eq!(
            (&run["workflow"], &run["engine"], &run["pid"]),
            (&"Waves".into(), &"process".into(), &child.id().into())
        );
        assert_eq!((&run["tasks"][0]["state"], &run["tasks"][3]["state"]), (&"ended".into(), &"waits".into()), "{run}");
        let solve = &run["tasks"][2];
        assert_eq!((&solve["name"], &solve["rank"]), (&"solve.1".into(), &1.into()));
        let pid = solve["pid"].as_u64().unwrap();
        assert!(fs::exists(format!("/proc/{pid}")).unwrap());
        until("the task's memory", || {
            let solve = &ps(&place)["runs"][0]["tasks"][2];
            solve["memory"].as_u64() > Some(0) && solve["processes"][0] == pid
        });
        let text = ask(&place, &["ps"]).out;
        let line = text.lines().find(|l| l.contains("solve.1")).expect("a line for the rank").to_owned();
        assert!(line.starts_with(&id) && line.contains("runs") && line.contains(&pid.to_string()), "{text}");
        assert!(text.lines().next().is_some_and(|l| l.starts_with("RUN")), "{text}");
        let wide = ask(&place, &["ps", &id, "-o", "wide"]).out;
        assert!(wide.contains("solve.1.log"), "{wide}");
        let yaml = ask(&place, &["ps", "-o", "yaml"]).out;
        assert!(yaml.contains("runs:") && yaml.contains(&format!("id: \"{id}\"")), "{yaml}");
        let followed = ask(&place, &["ps", "-w", "--times", "2", "--every", "10ms", "-o", "json"]).out;
        assert_eq!(followed.lines().filter(|l| serde_json::from_str::<Value>(l).is_ok()).count(), 2, "{followed}");

        let given = if name == "id" { id.clone() } else { id[..7].to_owned() };
        let stopped = ask(&place, &["stop", &given]);
        assert_eq!((stopped.code, stopped.out.trim()), (0, format!("stopped {id}").as_str()), "{}", stopped.err);
        let run = finish(child);
        assert!(run.code == 143 && run.out.contains("stopped by SIGTERM"), "{} {}", run.code, run.out);
        let unknown = ask(&place, &["stop", &id]);
        assert!(unknown.code == 69 && unknown.err.contains("there is no run"), "{}", unknown.err);
    }
    place.assert_nothing_left("process");
}

#[test]
fn a_run_that_does_not_end_in_order_is_stopped_with_force() {
    let place = Place::new(
        "workflow: w\ngrace: 600\ntasks:\n  deaf: {command: \"trap '' TERM; echo ready; while :; do sleep MARK; done\"}\n",
    );
    let child = place.start("process", &[]);
    place.await_log("deaf", "ready");
    let stopped = ask(&place, &["stop", "w", "--deadline", "300ms"]);
    assert!(stopped.code == 0 && stopped.out.contains("had to be killed"), "{}{}", stopped.out, stopped.err);
    finish(child);
    place.assert_nothing_left("process");
}

#[test]
fn logs_are_followed_until_the_run_ends() {
    let place = Place::new(
        "workflow: w\ntasks:\n  a: {command: 'echo one; echo two; until [ -e go ]; do sleep 0.05; done; echo three; printf four'}\n  \
         b: {command: 'echo other; : MARK'}\n",
    );
    let child = place.start("process", &[]);
    await_state(&place, 1, "ended");
    place.await_log("a", "two");
    assert_eq!(ask(&place, &["logs", "w", "a"]).out, "one\ntwo\n");
    assert_eq!(ask(&place, &["logs", "w", "a", "-n", "1"]).out, "two\n");
    let both = ask(&place, &["logs", "w"]).out;
    assert!(both.contains("a | one") && both.contains("b | other"), "{both}");
    let wrong = ask(&place, &["logs", "w", "aa"]);
    assert!(wrong.code == 69 && wrong.err.contains("did you mean `a`?"), "{}", wrong.err);
    let mut follower = place.command(&["logs", "-f", "w", "a"]).spawn().unwrap();
    let mut first = [0; 8];
    follower.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, *b"one\ntwo\n");
    // The command follows the log now, so the run may end.
    fs::write(place.path().join("go"), "").unwrap();
    let followed = finish(follower);
    assert_eq!((followed.code, followed.out.as_str()), (0, "three\nfour\n"), "{}", followed.err);
    assert_eq!(finish(child).code, 0);
    let ended = ask(&place, &["logs", "w"]);
    assert!(ended.code == 69 && ended.err.contains("are in crossdock-logs/w"), "{}", ended.err);
    place.assert_nothing_left("process");
}

#[test]
fn a_command_gets_into_a_run_from_anywhere_by_the_workflows_name() {
    let task = env!("CARGO_BIN_EXE_crossdock-test-task");
    let place = Place::new(&format!(
        "workflow: w\ntasks:\n  solve: {{command: '{task} publish 0 # MARK', series: {{field: publish}}}}\n"
    ));
    let child = place.start("process", &[]);
    await_state(&place, 0, "runs");
    place.await_log("solve", "connected as w/solve");
    let mut observed = String::new();
    until("the run's series to be exported by a command that is attached", || {
        let crossdock = env!("CARGO_BIN_EXE_crossdock");
        let words = ["attach", "w", "--", crossdock, "watch", "field", "--versions", "1"];
        let ended = finish(place.command(&words).current_dir("/").spawn().unwrap());
        observed = ended.out;
        ended.code == 0
    });
    assert!(observed.contains("version"), "{observed}");
    let attached = ask(&place, &["attach", "w", "--", "sh", "-c", "echo $CROSSDOCK_WORKFLOW; exit 7"]);
    assert_eq!((attached.code, attached.out.as_str()), (7, "w\n"));
    let plain = ask(&place, &["attach", "w", "sh", "-c", "echo $CROSSDOCK_WORKFLOW"]);
    assert_eq!((plain.code, plain.out.as_str()), (0, "w\n"), "{}", plain.err);
    assert_eq!(ask(&place, &["attach", "w", "--", "/no/such/program"]).code, 127);
    let other = ask(&place, &["attach", "x", "--", "true"]);
    assert!(other.code == 69 && other.err.contains("there are: w-"), "{}", other.err);
    assert_eq!(ask(&place, &["stop", "w"]).code, 0);
    finish(child);
    place.assert_nothing_left("process");
}

#[test]
fn completions_offer_the_names_that_are_there() {
    let task = env!("CARGO_BIN_EXE_crossdock-test-task");
    let place = Place::new(&format!(
        "workflow: w\nregions: {{frames: {{size: 1 MiB}}}}\ntasks:\n  \
         solve: {{command: '{task} publish 0 # MARK', series: {{field: publish}}, regions: {{frames: read}}}}\n"
    ));
    let child = place.start("process", &[]);
    let id = await_state(&place, 0, "runs")["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&place, &["names", "runs"]).out.trim(), id);
    until("the series among the names", || ask(&place, &["names", "series"]).out.trim() == "w/field");
    assert!(ask(&place, &["names", "objects"]).out.contains("w/field"));
    let listed: Value = serde_json::from_str(&ask(&place, &["ls", "-o", "json"]).out).unwrap();
    let daemons = listed["daemons"].as_array().unwrap();
    let field = daemons.iter().flat_map(|d| d["segments"].as_array().unwrap()).find(|s| s["name"] == "field").unwrap();
    assert_eq!((&field["state"], &field["variables"][0]["shape"]), (&"live".into(), &serde_json::json!([300, 100])));
    let text = ask(&place, &["ls"]).out;
    assert!(text.contains("WORKFLOW  RUN") && text.contains("u 300×100"), "{text}");
    // Completes `crossdock stop w<Tab>` and an option in the same way as bash.
    let script = ask(&place, &["completions", "bash"]).out;
    fs::write(place.path().join("completion"), script).unwrap();
    let press = |words: &str, at: u32| {
        let ask = format!(
            "crossdock() {{ {} \"$@\"; }}; . ./completion; COMP_WORDS=({words}); COMP_CWORD={at}; \
             _crossdock_with_names crossdock \"${{COMP_WORDS[{at}]}}\" x; echo \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_crossdock")
        );
        let mut bash = place.command(&[]);
        let environment: Vec<_> = bash.get_envs().map(|(n, v)| (n.to_owned(), v.map(ToOwned::to_owned))).collect();
        bash = Command::new("bash");
        bash.args(["-c", &ask]).current_dir(place.path());
        for (name, value) in environment {
            match value {
                Some(value) => bash.env(name, value),
                None => bash.env_remove(name),
            };
        }
        let output = bash.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(press("crossdock stop w", 2), id);
    assert_eq!(press("crossdock watch w/", 2), "w/field");
    assert_eq!(press("crossdock region copy w/", 3), "w/frames");
    assert!(press("crossdock region m", 2).contains("move"));
    assert!(press("crossdock stop --dead", 2).contains("--deadline"));
    let fish = ask(&place, &["completions", "fish"]).out;
    assert!(fish.contains("(crossdock names runs 2>/dev/null)"), "{fish}");
    assert!(fish.contains("seen_subcommand_from copy move\" -f -a \"(crossdock names regions"), "{fish}");
    let zsh = ask(&place, &["completions", "zsh"]).out;
    assert_eq!(zsh.matches(":_crossdock_names_regions'").count(), 2, "{zsh}");
    assert!(zsh.contains(":_crossdock_names_runs'") && zsh.starts_with("#compdef crossdock"), "{zsh}");
    assert_eq!(ask(&place, &["stop", "w"]).code, 0);
    finish(child);
    place.assert_nothing_left("process");
}

#[test]
fn a_workflow_file_is_drawn_with_its_tasks_and_everything_that_they_share() {
    let place = Place::new(
        "workflow: w\ntasks:\n  make: {command: 'true', regions: {frames: create}, ports: {positions: produce}, series: {field: publish}}\n  \
         use: {command: 'true', regions: {frames: read}, ports: {positions: consume}, items: {x: own}}\n  \
         see: {command: 'true', series: {field: observe}, items: {x: read}, after: make}\nregions: {frames: {size: 1 MiB}}\n",
    );
    let drawn = ask(&place, &["run", "workflow.yaml", "--graph", "w.svg"]);
    assert_eq!((drawn.code, drawn.out.trim()), (0, "w.svg: 3 tasks and 4 objects"), "{}", drawn.err);
    let svg = fs::read_to_string(place.path().join("w.svg")).unwrap();
    for words in [
        "<svg",
        "class=\"node task\"",
        ">make<",
        ">positions<",
        ">region, 1 MiB<",
        "edge after",
        "class=\"node series\"",
    ] {
        assert!(svg.contains(words), "no {words}: {svg}");
    }
    assert_eq!(svg.matches("data-edge=").count(), 9, "{svg}");
    assert_eq!(ask(&place, &["run", "workflow.yaml", "--graph", "w.dot"]).code, 0);
    let dot = fs::read_to_string(place.path().join("w.dot")).unwrap();
    assert!(dot.starts_with("digraph \"w\" {") && dot.matches(" -> ").count() == 9, "{dot}");
    if Command::new("dot").arg("-V").output().is_ok() {
        let checked = Command::new("dot").args(["-Tplain", "w.dot"]).current_dir(place.path()).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
    let wrong = ask(&place, &["run", "workflow.yaml", "--graph", "w.png"]);
    assert!(wrong.code == 2 && wrong.err.contains(".svg or .dot"), "{}", wrong.err);
    place.assert_nothing_left("process");
}
