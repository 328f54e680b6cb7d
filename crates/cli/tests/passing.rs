//! Tests that data passes between tasks in every engine, and that `ls`, `inspect` and `audit` describe the objects
//! through which it passes.

mod common;

use std::fs;

use common::{Place, engines, finish, signal};
use rustix::process::Signal;
use serde_json::Value;

/// Writes a workflow file. Each line `NAME: WORDS | KEY: VALUE…` of `tasks` is one task: it runs the test program with the
/// arguments WORDS, and KEY: VALUE are further keys of the task in the file.
fn place(tasks: &str) -> Place {
    let place = Place::new("");
    fs::create_dir(place.path().join("bin")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_crossdock-test-task"), place.path().join("bin/pass")).unwrap();
    let mut text = String::from("workflow: w\nmemory: 64 MiB\ntasks:\n");
    for line in tasks.lines().filter(|l| !l.trim().is_empty()) {
        let (name, rest) = line.trim().split_once(": ").unwrap();
        let (words, rest) = rest.split_once(" | ").unwrap();
        text += &format!(
            "  {name}:\n    command: [/program/pass, {words}]\n    mounts: [{{host: bin, task: /program}}]\n    process: {{command: [bin/pass, {words}]}}\n    {}\n",
            rest.replace(" | ", "\n    ")
        );
    }
    fs::write(place.path().join("workflow.yaml"), text).unwrap();
    place
}

fn json(place: &Place, arguments: &[&str]) -> Value {
    let ended = finish(place.command(arguments).spawn().unwrap());
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.err);
    serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", ended.out))
}

#[test]
fn a_thousand_blocks_pass_without_a_copy_and_the_summary_counts_them() {
    for engine in engines() {
        let place = place(
            "make: produce, 1000 | regions: {blocks: create} | ports: {numbers: produce}\n\
             take: consume, 1000 | regions: {blocks: read} | ports: {numbers: consume}",
        );
        let run = place.run(engine, &["--json"]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        let summary: Value = serde_json::from_str(&run.out).unwrap();
        let port = &summary["ports"][0];
        assert_eq!(
            (&port["port"], &port["messages"], &port["received"]),
            (&"numbers".into(), &1000.into(), &1000.into()),
            "{engine}"
        );
        assert_eq!((&port["bytes_handed_over"], &port["bytes_copied"]), (&(4096 * 1000).into(), &0.into()), "{engine}");
        assert!(port["consumer_wait_seconds"].as_f64().unwrap() >= 0.0);
        assert_eq!(summary["regions"][0]["region"], "blocks");
        assert!(place.log("take").contains("connected as w/take rank 0\nreceived 1000 in order"), "{engine}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn the_summary_counts_versions_of_series_and_the_bytes_copied_for_them() {
    let place = place("make: publish, 12 | series: {field: publish}");
    let run = place.run("process", &["--json"]);
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    let summary: Value = serde_json::from_str(&run.out).unwrap();
    let series = &summary["series"][0];
    assert_eq!((&series["series"], &series["versions"]), (&"field".into(), &12.into()), "{summary}");
    // Every step changes all 30 000 numbers of 8 bytes, so at least these 240 000 bytes are copied. The count may be
    // greater, because whole chunks are copied.
    let copied = series["bytes_copied"].as_u64().unwrap();
    assert!((12 * 240_000..12 * 400_000).contains(&copied), "{series}");
    assert_eq!((&series["no_space"], &series["taken_back"]), (&0.into(), &0.into()));
    place.assert_nothing_left("process");
}

#[test]
fn the_files_settings_of_a_port_hold_for_tasks_that_say_nothing() {
    let place = place(
        "make: produce, 10 | regions: {blocks: create} | ports: {numbers: produce}\n\
         take: consume, 10 | regions: {blocks: read} | ports: {numbers: consume}",
    );
    let file = place.path().join("workflow.yaml");
    let text = fs::read_to_string(&file).unwrap() + "ports:\n  numbers: {pattern: work-queue, capacity: 2}\n";
    fs::write(&file, text).unwrap();
    let run = place.run("process", &[]);
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    let log = place.log("make");
    assert!(log.contains("sends through Shape { pattern: WorkQueue, capacity: 2 }"), "{log}");
    place.assert_nothing_left("process");
}

#[test]
fn a_task_gets_what_it_was_granted_and_nothing_else() {
    for engine in engines() {
        let place = place(
            "make: hold, 0 | regions: {blocks: create} | ports: {numbers: produce}\n\
             take: hold, 1 | regions: {blocks: read} | ports: {numbers: consume}\n\
             intruder: intrude, 0 | regions: {other: create}",
        );
        let child = place.start(engine, &[]);
        place.await_log("make", "holds");
        place.await_log("take", "holds");
        place.await_log("intruder", "workflow: ");
        let log = place.log("intruder");
        assert!(!log.contains("LET IN"), "{engine}: {log}");
        assert_eq!(log.matches("Denied").count(), 3, "{engine}: {log}");
        looks(&place, engine);
        signal(child.id(), Signal::INT);
        assert_eq!(finish(child).code, 130);
        place.assert_nothing_left(engine);
    }
}

/// Checks `ls`, `inspect` and `audit` while `make` and `take` hold the region `blocks` and the port `numbers`.
fn looks(place: &Place, engine: &str) {
    let list = json(place, &["ls", "--json"]);
    let names: Vec<String> = list["daemons"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|d| d["segments"].as_array().unwrap())
        .map(|s| {
            format!(
                "{} {}/{}",
                s["kind"].as_str().unwrap(),
                s["workflow"].as_str().unwrap(),
                s["name"].as_str().unwrap()
            )
        })
        .collect();
    assert!(
        names.contains(&"region w/blocks".into()) && names.contains(&"port w/numbers".into()),
        "{engine}: {names:?}"
    );

    let region = &json(place, &["inspect", "--json", "w/blocks"])["segments"][0];
    assert_eq!(
        (&region["kind"], &region["objects"][0]["name"]),
        (&"region".into(), &"positions".into()),
        "{engine}: {region}"
    );
    assert_eq!(region["objects"][0]["type"], "vector<f64>");
    let port = &json(place, &["inspect", "--json", "numbers"])["segments"][0];
    let ends: Vec<&str> = port["ends"].as_array().unwrap().iter().map(|e| e["task"].as_str().unwrap()).collect();
    assert!(ends.contains(&"make") && ends.contains(&"take"), "{engine}: {port}");
    let wrong = finish(place.command(&["inspect", "numbrs"]).spawn().unwrap());
    assert!(wrong.code == 69 && wrong.err.contains("did you mean `numbers`?"), "{}", wrong.err);

    let audit = json(place, &["audit", "--json", "w"]);
    let access = |task: &str| -> Vec<(String, String)> {
        let ours =
            audit["processes"].as_array().unwrap().iter().filter(|p| p["task"] == task && p["program"] == "pass");
        ours.flat_map(|p| p["access"].as_array().unwrap())
            .map(|a| {
                (
                    a["segment"].as_str().unwrap().to_owned(),
                    format!("{}{}", a["mapped"].as_str().unwrap(), a["descriptor"].as_str().unwrap()),
                )
            })
            .collect()
    };
    let (make, take, intruder) = (access("make"), access("take"), access("intruder"));
    let how = |list: &[(String, String)], name: &str| {
        list.iter().find(|(n, _)| n.contains(name)).map(|(_, how)| how.clone()).unwrap_or_default()
    };
    assert!(how(&make, "w/blocks").contains('w'), "{engine}: {audit}");
    assert!(
        how(&take, "w/blocks").contains('r') && !how(&take, "w/blocks").contains('w'),
        "{engine}: a reader cannot write: {audit}"
    );
    assert!(how(&take, "w/numbers").contains('w'), "{engine}: {audit}");
    assert!(intruder.is_empty(), "{engine}: {audit}");
    let text = finish(place.command(&["audit"]).spawn().unwrap()).out;
    assert!(text.contains("w/blocks") && text.contains("map r"), "{engine}: {text}");
}

#[test]
fn a_quota_that_is_full_is_an_error_of_the_task_and_the_reason_of_the_run() {
    let place = place(
        "make: produce, 3 | regions: {blocks: create} | ports: {numbers: produce}\ntake: consume, 3 | regions: {blocks: read} | ports: {numbers: consume}",
    );
    let path = place.path().join("workflow.yaml");
    let text = fs::read_to_string(&path).unwrap().replace("64 MiB", "64 KiB");
    fs::write(&path, text).unwrap();
    let run = place.run("process", &[]);
    assert_eq!(run.code, 1, "{}\n{}", run.err, run.out);
    assert!(run.out.contains("NoSpace") || run.out.to_lowercase().contains("quota"), "{}", run.out);
    place.assert_nothing_left("process");
}

#[test]
fn a_socket_that_is_no_daemon_is_told_and_nothing_starts() {
    let place = place("make: hold, 0 | regions: {blocks: create}");
    let run = place.run("process", &["--daemon", "/no/such/socket"]);
    assert_eq!(run.code, 69, "{}", run.err);
    assert!(run.err.contains("/no/such/socket"), "{}", run.err);
    assert!(!place.path().join("crossdock-logs/w/make.log").exists() || place.log("make").is_empty());
    place.assert_nothing_left("process");
}

#[test]
fn a_run_meets_a_daemon_that_is_there_and_leaves_it_as_it_was() {
    let place = place(
        "make: produce, 10 | regions: {blocks: create} | ports: {numbers: produce}\n\
         take: consume, 10 | regions: {blocks: read} | ports: {numbers: consume}",
    );
    let socket = place.path().join("d/endpoint.sock").display().to_string();
    let mut daemon = place.command(&["serve", "--ready", "--socket", &socket]).spawn().unwrap();
    use std::io::Read;
    daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let run = finish(
        place
            .command(&["run", "workflow.yaml", "--engine", "process"])
            .env("CROSSDOCK_SOCKET", &socket)
            .spawn()
            .unwrap(),
    );
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    assert!(run.err.contains("in the daemon at "), "{}", run.err);
    let list = json(&place, &["ls", "--json", "--socket", &socket]);
    assert_eq!(list["daemons"][0]["segments"].as_array().unwrap().len(), 0, "{list}");
    signal(daemon.id(), Signal::TERM);
    assert_eq!(finish(daemon).code, 0);
    place.assert_nothing_left("process");
}

/// Finds the processes of the run's own daemon: keeper first, then broker.
fn daemon(place: &Place, front: u32) -> (u32, u32) {
    let children = |pid: u32| -> Vec<u32> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().map(|p| p.parse().unwrap()).collect()
    };
    let serves = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.split(|b| *b == 0).nth(1) == Some(b"serve"))
    };
    let supervisor = children(front)[0];
    let keeper = children(supervisor).into_iter().find(serves).expect("a run has its daemon");
    let broker = children(keeper).into_iter().find(serves).expect("a keeper has its broker");
    assert!(place.processes().contains(&keeper));
    (keeper, broker)
}

const HOLDERS: &str = "make: hold, 0 | regions: {blocks: create} | ports: {numbers: produce}\n\
                       take: hold, 1 | regions: {blocks: read} | ports: {numbers: consume}";

#[test]
fn a_killed_broker_is_started_again_and_the_run_does_not_notice() {
    let place = place(HOLDERS);
    let child = place.start("process", &["--json"]);
    place.await_log("make", "holds");
    place.await_log("take", "holds");
    let (_, broker) = daemon(&place, child.id());
    signal(broker, Signal::KILL);
    common::until("another broker", || {
        let list = finish(place.command(&["ls", "--json"]).spawn().unwrap());
        list.code == 0 && list.out.contains("\"name\": \"numbers\"")
    });
    signal(child.id(), Signal::INT);
    let run = finish(child);
    assert_eq!(run.code, 130, "{}", run.err);
    let summary: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(
        (&summary["ports"][0]["port"], &summary["regions"][0]["region"]),
        (&"numbers".into(), &"blocks".into()),
        "{}",
        run.err
    );
    place.assert_nothing_left("process");
}

#[test]
fn a_daemon_that_is_killed_whole_leaves_nothing_either() {
    let place = place(HOLDERS);
    let child = place.start("process", &[]);
    place.await_log("make", "holds");
    place.await_log("take", "holds");
    let (keeper, broker) = daemon(&place, child.id());
    signal(keeper, Signal::KILL);
    signal(broker, Signal::KILL);
    std::thread::sleep(std::time::Duration::from_millis(200));
    signal(child.id(), Signal::INT);
    let run = finish(child);
    assert_eq!(run.code, 130, "{}", run.err);
    assert!(run.took.as_secs() < 30, "{:?}", run.took);
    place.assert_nothing_left("process");
}
