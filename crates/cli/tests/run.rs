//! Tests of `crossdock run` for which the engine does not matter: the workflow file, exit codes, the summary, stray
//! processes.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Place, finish, signal, until};
use rustix::process::Signal;

#[test]
fn a_bad_file_is_told_in_full_and_starts_nothing() {
    let place = Place::new("workflow: w\ntasks:\n  a: {comand: [touch, x]}\n  b: {command: [touch, x], ranks: many}\n");
    let run = place.run("process", &[]);
    assert_eq!(run.code, 65);
    assert!(
        run.err.contains("workflow.yaml:3:7: tasks.a.comand: unknown key") && run.err.contains("workflow.yaml:4:"),
        "{}",
        run.err
    );
    let check = finish(place.command(&["run", "--check", "--json", "workflow.yaml"]).spawn().unwrap());
    let json: serde_json::Value = serde_json::from_str(&check.out).unwrap();
    assert_eq!((check.code, json["problems"].as_array().unwrap().len()), (65, 3));
    assert!(!place.path().join("x").exists() && !place.path().join("build").exists());
}

#[test]
fn a_workflow_file_that_never_ends_is_refused_without_reading_all_of_it() {
    let place = Place::new("");
    let run = finish(place.command(&["run", "--check", "/dev/zero"]).spawn().unwrap());
    assert!(run.code == 65 && run.err.contains("has more than"), "{} {}", run.code, run.err);
}

#[test]
fn a_runner_killed_at_any_moment_of_its_start_leaves_nothing() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: [sleep, MARK], items: {x: own}}\n");
    for round in 0..60u64 {
        let mut front = place.start("process", &[]);
        std::thread::sleep(std::time::Duration::from_micros(round * 200));
        front.kill().unwrap();
        front.wait().unwrap();
    }
    until("all runs to have cleaned up", || place.processes().is_empty());
    place.assert_nothing_left("process");
}

/// The task makes a file as MPICH does, and is killed before it removes the file's name.
#[test]
fn files_that_killed_mpi_ranks_left_in_shared_memory_go_at_the_end_of_the_run() {
    let place = Place::new("workflow: w\ntasks:\n  rank: {command: 'echo > /dev/shm/mpich_shm_MARK_0; kill -9 $$'}\n");
    let run = place.run("process", &[]);
    assert_eq!(run.code, 137, "{}\n{}", run.err, run.out);
    assert!(!Path::new(&format!("/dev/shm/mpich_shm_{}_0", place.mark)).exists());
    place.assert_nothing_left("process");
}

#[test]
fn files_that_killed_mpi_ranks_left_in_shared_memory_go_with_the_next_run_if_the_runner_was_killed() {
    let text =
        "workflow: w\ntasks:\n  rank: {command: 'exec 3> /dev/shm/ucx_shm_posix_MARK; echo ready; sleep MARK'}\n";
    let place = Place::new(text);
    let path = |name: &str| PathBuf::from(format!("/dev/shm/{name}_{}", place.mark));
    let front = place.start("process", &[]);
    place.await_log("rank", "ready");
    let of_living = fs::File::create(path("mpich_shm")).unwrap();
    // The rank has the file open. After its death, any run of this user that ends may remove the file.
    assert!(path("ucx_shm_posix").exists(), "the file of a living rank is gone");
    place.kill_front_and_supervisor(front);
    fs::write(place.path().join("workflow.yaml"), "workflow: w\ntasks:\n  a: {command: echo}\n").unwrap();
    let run = place.run("process", &[]);
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    assert!(!path("ucx_shm_posix").exists(), "the killed rank's file is left");
    assert!(path("mpich_shm").exists(), "the file of a living program is gone");
    drop(of_living);
    fs::remove_file(path("mpich_shm")).unwrap();
    place.assert_nothing_left("process");
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: [/no/such/program]}\n  b: {command: [sleep, MARK]}\n");
    let run = place.run("process", &[]);
    assert_eq!(run.code, 127, "{}", run.err);
    assert!(run.out.contains("task `a` could not be started: `/no/such/program`: No such file"), "{}", run.out);
    place.assert_nothing_left("process");
}

#[test]
fn a_process_that_leaves_its_session_and_parent_is_ended_with_the_run() {
    let place = Place::new(
        "workflow: w\ntasks:\n  a: {command: 'setsid -f sleep MARK; setsid -f env -i sleep MARK; sleep 0.2; echo gone'}\n",
    );
    let run = place.run("process", &[]);
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    place.assert_nothing_left("process");
}

#[test]
fn an_open_output_of_a_stray_process_does_not_hold_the_run_up() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'setsid -f sleep MARK; echo end'}\n");
    let run = place.run("process", &[]);
    assert!(run.code == 0 && run.took.as_secs() < 10, "{:?}", run.took);
    assert_eq!(place.log("a"), "end\n");
    place.assert_nothing_left("process");
}

#[test]
fn the_deadline_ends_a_run_and_says_who_was_still_at_work() {
    let place = Place::new("workflow: w\ntasks:\n  quick: {command: 'true'}\n  slow: {command: [sleep, MARK]}\n");
    let run = place.run("process", &["--deadline", "1"]);
    assert_eq!(run.code, 124, "{}", run.err);
    assert!(run.out.contains("the deadline of 1 s has passed; still running: slow"), "{}", run.out);
    place.assert_nothing_left("process");
}

#[test]
fn the_summary_as_json_is_all_of_standard_output() {
    let place = Place::new(
        "workflow: w\ntasks:\n  a: {command: 'echo hello', ranks: 2}\n  b: {command: 'kill -SEGV $$', after: a}\n",
    );
    let run = place.run("process", &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {}", run.out));
    assert_eq!(run.code, 139);
    assert_eq!((&json["result"], &json["engine"], &json["code"]), (&"failed".into(), &"process".into(), &139.into()));
    assert_eq!(json["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(json["tasks"][1]["rank"], 1);
    assert!(json["reason"].as_str().unwrap().contains("SIGSEGV"), "{json}");
    assert!(run.err.contains("a.0       | hello"), "{}", run.err);
}

#[test]
fn quiet_says_nothing_when_all_is_well_and_the_reason_when_not() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'echo hello'}\n");
    let run = place.run("process", &["--show", "quiet"]);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, "", ""));
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'echo hello; exit 3'}\n");
    let run = place.run("process", &["--show", "quiet"]);
    assert!(run.code == 3 && run.out.contains("exit code 3"), "{}", run.out);
}

#[test]
fn auto_says_which_engine_and_why() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'true'}\n");
    let mut command = place.command(&["run", "workflow.yaml"]);
    // PATH leads to an empty folder, so no container engine is found.
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let run = finish(command.env("PATH", &bin).spawn().unwrap());
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.err.contains("engine process Linux") && run.err.contains("bubblewrap: there is no program `bwrap` on PATH"),
        "{}",
        run.err
    );
    let run = finish(place.command(&["run", "workflow.yaml", "--engine", "podman"]).env("PATH", &bin).spawn().unwrap());
    assert_eq!(run.code, 69, "{}", run.err);
    assert!(
        run.err.contains("no engine can run this workflow") && run.err.contains("apt-get install podman"),
        "{}",
        run.err
    );
    place.assert_nothing_left("process");
}

#[test]
fn resources_that_are_not_there_are_told_before_anything_starts() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: [touch, x], processors: [4000]}\n");
    let run = place.run("process", &[]);
    assert_eq!(run.code, 65);
    assert!(run.err.contains("processor 4000 is not there; this machine gives 0"), "{}", run.err);
    assert!(!place.path().join("x").exists());
    let place = Place::new("workflow: w\ntasks:\n  a: {command: [touch, x]}\n");
    fs::write(place.path().join("file"), "").unwrap();
    let run = place.run("process", &["--logs", "file/logs"]);
    assert_eq!(run.code, 71);
    assert!(run.err.contains("cannot write logs to file/logs") && run.err.contains("--logs"), "{}", run.err);
    place.assert_nothing_left("process");
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_grace() {
    let place = Place::new(
        "workflow: w\ngrace: 600\ntasks:\n  deaf: {command: \"trap '' TERM INT; echo ready; while :; do sleep MARK; done\"}\n",
    );
    let mut child = place.start("process", &[]);
    place.await_log("deaf", "ready");
    // Signals that come close together count as one, so the test sends them until the run ends.
    common::until("the run to end", || {
        signal(child.id(), Signal::INT);
        std::thread::sleep(std::time::Duration::from_millis(200));
        child.try_wait().unwrap().is_some()
    });
    let run = finish(child);
    // The exit code is 137 if a third signal arrives before the run has handled the second one, as on a busy machine:
    // the third signal kills the supervisor.
    assert!(matches!(run.code, 130 | 137) && run.took.as_secs() < 60, "{} {:?}", run.code, run.took);
    place.assert_nothing_left("process");
}

#[test]
fn a_log_stays_within_its_limit() {
    let place = Place::new(
        "workflow: w\ntasks:\n  a: {command: 'i=0; while [ $i -lt 3000 ]; do echo \"line $i of many\"; i=$((i+1)); done'}\n",
    );
    let run = place.run("process", &["--log-limit", "10 KiB", "--show", "quiet"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let sizes: u64 = fs::read_dir(place.path().join("crossdock-logs/w"))
        .unwrap()
        .flatten()
        .map(|e| e.metadata().unwrap().len())
        .sum();
    assert!(sizes <= 10 << 10, "{sizes}");
    assert!(place.log("a").ends_with("line 2999 of many\n"));
}

#[test]
fn a_task_that_puts_links_and_pipes_in_the_place_of_its_log_changes_no_other_file_and_stops_no_run() {
    let place = Place::new(
        "workflow: w\ntasks:\n  a: {command: 'ln -s ../../victim crossdock-logs/w/a.log.new; i=0; while [ $i -lt 3000 ]; do echo \"line $i of many\"; i=$((i+1)); done'}\n",
    );
    fs::write(place.path().join("victim"), "untouched").unwrap();
    for _ in 0..2 {
        let run = place.run("process", &["--log-limit", "10 KiB", "--show", "quiet"]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert_eq!(fs::read_to_string(place.path().join("victim")).unwrap(), "untouched");
        let log = place.path().join("crossdock-logs/w/a.log");
        fs::remove_file(&log).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&log).status().unwrap().success());
    }
}

#[test]
fn on_a_terminal_the_view_has_colours_and_rates_and_without_colours_none() {
    let task = env!("CARGO_BIN_EXE_crossdock-test-task");
    let workflow = format!(
        "workflow: w\ntasks:\n  solve: {{command: '{task} publish 150 # MARK', series: {{field: publish}}}}\n  slow: {{command: 'sleep 4; : MARK'}}\n"
    );
    let command = env!("CARGO_BIN_EXE_crossdock");
    let on_terminal = |place: &Place, more: &str| {
        let line = format!("{more} {command} run workflow.yaml --engine process");
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .current_dir(place.path())
            .env("CROSSDOCK_RUNS", place.path().join("r"));
        script.env_remove("CROSSDOCK_SOCKET").env_remove("NO_COLOR").env("TERM", "xterm-256color");
        fs::create_dir_all(place.path().join("r")).unwrap();
        script.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        finish(script.spawn().unwrap())
    };
    let place = Place::new(&workflow);
    let live = on_terminal(&place, "");
    assert_eq!(live.code, 0, "{}", live.out);
    assert!(live.out.contains("\x1b[32mended well\x1b[0m"), "{:?}", live.out);
    assert!(live.out.contains("versions/s"), "{:?}", live.out);
    place.assert_nothing_left("process");
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'echo hello'}\n");
    let plain = on_terminal(&place, "NO_COLOR=1");
    assert!(plain.out.contains("ended well") && !plain.out.contains("\x1b[32m"), "{:?}", plain.out);
    place.assert_nothing_left("process");
}

#[test]
fn a_caller_that_ignores_sigchld_gets_the_exit_code_of_the_task() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'exit 3'}\n");
    let run = finish(place.start_by(&["env", "--ignore-signal=CHLD"], "process", &[]));
    assert_eq!(run.code, 3, "{}\n{}", run.err, run.out);
    place.assert_nothing_left("process");
}

#[test]
fn the_supervisor_and_the_tasks_are_not_in_the_session_of_the_terminal() {
    let place = Place::new(
        "workflow: w\ntasks:\n  a: {command: 'cut -d\" \" -f1,6 /proc/$PPID/stat; (: < /dev/tty) || echo no terminal'}\n",
    );
    let on_terminal = ["sh", "-c", "script -qec \"$*\" /dev/null", "sh"];
    let run = finish(place.start_by(&on_terminal, "process", &[]));
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    let log = place.log("a");
    let (process, session) = log.lines().next().and_then(|line| line.split_once(' ')).expect("two numbers");
    assert!(process == session && log.contains("no terminal"), "{log}");
    place.assert_nothing_left("process");
}

/// Gives the set of signals that `/proc/PID/status` lists under `name`.
fn signals_of(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).unwrap_or(0)
}

#[test]
fn a_signal_that_the_caller_ignores_stays_ignored_except_sigterm() {
    const HANG_UP: u64 = 1;
    const TERMINATION: u64 = 1 << 14;
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'echo ready; until [ -e go ]; do sleep 0.05; done'}\n");
    let nohup = ["env", "--ignore-signal=HUP", "--ignore-signal=TERM"];
    let child = place.start_by(&nohup, "process", &[]);
    place.await_log("a", "ready");
    signal(child.id(), Signal::HUP);
    assert_eq!(signals_of(child.id(), "SigIgn:") & HANG_UP, HANG_UP, "run");
    fs::write(place.path().join("go"), "").unwrap();
    let run = finish(child);
    assert_eq!(run.code, 0, "{}\n{}", run.err, run.out);
    let child = place.command_by(&nohup, &["ps", "-w"]).spawn().unwrap();
    until("`ps -w` to catch SIGTERM", || signals_of(child.id(), "SigCgt:") & TERMINATION != 0);
    let ignored = signals_of(child.id(), "SigIgn:") & HANG_UP;
    signal(child.id(), Signal::TERM);
    assert_eq!((finish(child).code, ignored), (0, HANG_UP), "ps -w");
    let socket = place.path().join("d/endpoint.sock").display().to_string();
    let mut daemon = place.command_by(&nohup, &["serve", "--ready", "--socket", &socket]).spawn().unwrap();
    use std::io::Read;
    daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let blocked = signals_of(daemon.id(), "SigBlk:") & (HANG_UP | TERMINATION);
    signal(daemon.id(), Signal::TERM);
    assert_eq!((finish(daemon).code, blocked), (0, TERMINATION), "serve");
    place.assert_nothing_left("process");
}

#[test]
fn a_part_on_another_host_sends_pulses_while_it_cleans_up_after_a_dead_run() {
    use std::io::{BufRead, BufReader, Write};
    let place = Place::new("");
    let dead = place.path().join("r/crossdock/runs/dead");
    fs::create_dir_all(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    fs::write(dead.join("engine"), "docker").unwrap();
    // The docker engine does not answer before the test allows it.
    script(&place, "docker", "touch begun; until [ -e go ]; do sleep 0.02; done");
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
    let order = serde_json::json!({ "Part": {
        "id": "w-1-1", "hosts": ["n1", "n2"], "number": 1, "file": "w.yaml", "engine": "process", "environment": [],
        "text": "workflow: w\ntasks:\n  a: {command: ['true'], node: n2}\n", "site": null,
    }});
    let mut command = place.command(&["run-part"]);
    let mut part = command.env("PATH", path).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = part.stdin.take().unwrap();
    writeln!(input, "{order}").unwrap();
    let output = BufReader::new(part.stdout.take().unwrap());
    let mut said = output.lines().map(Result::unwrap).skip_while(|line| line != "crossdock-run 1").skip(1);
    crossdock_os::testing::until("the question to docker", || place.path().join("begun").exists());
    // The part may have sent some pulses before docker was asked. The next ones come while docker does not answer.
    for _ in 0..3 {
        assert_eq!(said.next().unwrap(), "\"Pulse\"");
    }
    fs::write(place.path().join("go"), "").unwrap();
    assert!(said.any(|line| line.starts_with("{\"Ready\"")), "the part is ready");
    drop(input);
    said.for_each(drop);
    finish(part);
    place.assert_nothing_left("process");
}

/// Writes a shell script that the test's run finds as `name`.
fn script(place: &Place, name: &str, text: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = place.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_run_that_cannot_be_prepared_holds_its_lock_until_it_is_removed() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: ['true'], image: x}\n");
    // The docker engine makes nothing. It is asked for containers and images when the run is removed, and has none.
    let asked = "ps) flock -n r/crossdock/runs/*/lock touch free || touch held;;";
    script(&place, "docker", &format!("case $1 in version) echo 1;; {asked} images) ;; *) exit 1;; esac"));
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
    let run = finish(place.start_by(&["env", &format!("PATH={path}")], "docker", &[]));
    assert_eq!(run.code, 69, "{}", run.err);
    let is_there = |name: &str| place.path().join(name).exists();
    assert!(is_there("held") && !is_there("free"), "a run that starts meanwhile takes this one for dead: {}", run.err);
    place.assert_nothing_left("process");
}

#[test]
fn the_first_signal_ends_a_run_that_is_still_being_prepared() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: ['true'], image: x}\n");
    // The docker engine never says whether it has the image.
    script(
        &place,
        "docker",
        "case $1 in version) echo 1;; ps|images) ;; image) touch asked; exec sleep 300;; *) exit 1;; esac",
    );
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
    for how in [Signal::INT, Signal::TERM] {
        let child = place.start_by(&["env", &format!("PATH={path}")], "docker", &[]);
        until("the question about the image", || place.path().join("asked").exists());
        let begun = std::time::Instant::now();
        signal(child.id(), how);
        let run = finish(child);
        assert_eq!(run.code, if how == Signal::INT { 130 } else { 143 }, "{}", run.err);
        assert!(run.err.contains("before the first task began"), "{}", run.err);
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        place.assert_nothing_left("process");
        fs::remove_file(place.path().join("asked")).unwrap();
    }
}

#[test]
fn processes_that_a_task_leaves_are_reaped_when_they_end() {
    let task = "for i in $(seq 50); do (sleep 0.01 & echo pid $!); done; echo made; exec sleep MARK";
    let place = Place::new(&format!("workflow: w\ntasks:\n  a: {{command: '{task}'}}\n"));
    let child = place.start("process", &[]);
    place.await_log("a", "made");
    let log = fs::read_to_string(place.path().join("crossdock-logs/w/a.log")).unwrap();
    let left: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("pid ")).collect();
    assert_eq!(left.len(), 50, "{log}");
    // A process that has ended and was not reaped is still in `/proc`.
    let are_reaped = || left.iter().all(|pid| !std::path::Path::new("/proc").join(pid).exists());
    crossdock_os::testing::until_within(std::time::Duration::from_secs(30), "they are reaped", are_reaped);
    signal(child.id(), Signal::TERM);
    assert_eq!(finish(child).code, 143);
    place.assert_nothing_left("process");
}

#[test]
fn a_run_goes_on_while_nobody_reads_standard_error() {
    let tasks = "  loud: {command: [seq, '40000']}\n  late: {command: [echo, done], after: [loud]}\n";
    let place = Place::new(&format!("workflow: w\ntasks:\n{tasks}"));
    let summary = place.path().join("summary");
    let mut command = place.command(&["run", "workflow.yaml", "--engine", "process", "--show", "lines"]);
    let mut child = command.stdout(fs::File::create(&summary).unwrap()).spawn().unwrap();
    until("the run has ended", || fs::read_to_string(&summary).is_ok_and(|text| text.contains("late")));
    assert!(place.log("loud").ends_with("40000\n") && place.log("late") == "done\n");
    until("the run has cleaned up", || place.runs().is_empty());
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "it still has lines to show");
    let run = finish(child);
    assert_eq!(run.code, 0, "{}", run.err);
    let shown = run.err.lines().filter(|line| line.contains(" | ")).count();
    let counts = run.err.lines().filter_map(|line| line.split_once(" lines of tasks are not shown here"));
    let dropped: usize = counts.map(|(count, _)| count.parse::<usize>().unwrap()).sum();
    assert!(shown > 10_000 && dropped > 10_000 && shown + dropped == 40_001, "{shown} shown, {dropped} dropped");
    place.assert_nothing_left("process");
}

/// Docker is installed, but its service does not run. Podman is installed, but can do nothing.
#[test]
fn engines_that_refuse_everything_leave_nothing() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: ['/bin/true']}\n");
    script(&place, "docker", "exit 1");
    script(&place, "podman", "[ \"$1\" = --version ] && echo podman version 4");
    let path = format!("PATH={}", place.path().display());
    let doctor = finish(place.command_by(&["env", &path], &["doctor"]).spawn().unwrap());
    assert!(doctor.out.contains("docker") && doctor.out.contains("podman"), "{}", doctor.out);
    assert_eq!(doctor.err, "");
    place.assert_nothing_left("process");
    let run = finish(place.start_by(&["env", &path], "auto", &[]));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("podman: a container cannot be started"), "podman was not tried: {}", run.err);
    assert!(!run.err.contains("may be left"), "{}", run.err);
    let run = finish(place.start_by(&["env", &path], "docker", &[]));
    assert_eq!(run.code, 69, "{}", run.err);
    assert!(!run.err.contains("may be left"), "{}", run.err);
    place.assert_nothing_left("process");
}

#[test]
fn what_a_host_that_was_lost_by_silence_leaves_is_removed() {
    let place = Place::new("workflow: w\ntasks:\n  a: {command: 'echo ready; exec sleep MARK'}\n");
    script(&place, "ssh", "for last; do :; done; exec sh -c \"$last\"");
    let child = place.start("process", &["--hosts", "n2.invalid", "--ssh", "./ssh"]);
    place.await_log("a", "ready");
    let is_part = |pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with("\0run-part\0") || line.ends_with("\0supervise-part\0")
    };
    let parts: Vec<u32> = place.processes().into_iter().filter(is_part).collect();
    assert_eq!(parts.len(), 2, "the two processes of the part");
    parts.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let states = || place.runs().into_iter().filter_map(|run| fs::read_to_string(run.join("state.json")).ok());
    until("the loss of the host", || states().any(|state| state.contains("it was last heard of")));
    parts.iter().for_each(|pid| signal(*pid, Signal::KILL));
    let run = finish(child);
    assert_eq!(run.code, 69, "{}", run.err);
    place.assert_nothing_left("process");
}

#[test]
fn completions_and_help_are_there_for_every_command() {
    let place = Place::new("");
    for shell in ["bash", "zsh", "fish"] {
        let script = finish(place.command(&["completions", shell]).spawn().unwrap());
        assert!(script.code == 0 && script.out.contains("inspect") && !script.out.is_empty());
    }
    let help = finish(place.command(&["--help"]).spawn().unwrap()).out;
    let list = help.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next()).unwrap();
    let commands: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(commands.contains(&"run") && commands.contains(&"region"), "{help}");
    for command in commands.into_iter().filter(|word| !word.is_empty() && *word != "help") {
        let help = finish(place.command(&[command, "--help"]).spawn().unwrap());
        assert!(help.code == 0 && help.out.contains("Examples:"), "{command}: {}", help.out);
    }
}

/// The supervisor is killed, and the front cannot write to its standard error, because the reader of the pipe has
/// closed it. The front must clean up nevertheless.
#[test]
fn a_front_whose_errors_nobody_reads_cleans_up_after_its_supervisor() {
    let place = Place::new("workflow: w\ngrace: 1\ntasks:\n  a: {command: 'echo ready; exec sleep MARK'}\n");
    let mut child = place.start("process", &[]);
    place.await_log("a", "ready");
    let supervisor = place.supervisor(&child);
    drop(child.stderr.take());
    signal(supervisor, Signal::KILL);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(137));
    place.assert_nothing_left("process");
}

/// `crossdock doctor` starts a container with each engine. Another user has put links where a predictable folder of
/// this process would lie.
#[test]
fn doctor_follows_no_link_of_another_user_in_the_folder_for_temporary_files() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("");
    let (shared, target) = (place.path().join("shared"), place.path().join("target"));
    fs::create_dir(&shared).unwrap();
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
    let script = "for n in 0 1 2 3 4 5; do mkdir -p $TMPDIR/crossdock-trial$$-$n/roots && \
                  ln -s $TARGET $TMPDIR/crossdock-trial$$-$n/roots/example; done; exec \"$@\"";
    let program = env!("CARGO_BIN_EXE_crossdock");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh", program, "doctor"]).env("TMPDIR", &shared).env("TARGET", &target);
    let output = command.env("CROSSDOCK_RUNS", place.path().join("runs")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("process"), "{output:?}");
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    assert!(!place.path().join("runs").exists(), "a trial left something");
}
