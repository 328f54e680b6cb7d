//! Private daemons: how a program starts a daemon if none runs, how long this takes, and how much memory an idle daemon
//! needs.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, End, PortOptions, Session, Status};
use support::{Daemon, Raw, open, until};

use crossdock_layout::wire::OpenMode;

/// Runs one of the helper tests of this file in another process, with its own runtime folder.
fn helper(name: &str, runtime: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"]);
    command.env("XDG_RUNTIME_DIR", runtime).env("CROSSDOCK_COMMAND", env!("CARGO_BIN_EXE_crossdock-node"));
    command.env_remove("CROSSDOCK_SOCKET").env_remove("CROSSDOCK_TASK").stdout(Stdio::piped());
    command
}

fn daemons(runtime: &std::path::Path) -> Vec<PathBuf> {
    let wanted = runtime.join("crossdock").display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|e| e.path());
    let ours = processes.filter(|p| {
        let line = std::fs::read(p.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&wanted)
    });
    ours.collect()
}

/// Tells whether a daemon that serves all users of this node is running. The helper programs would use this daemon and
/// start no private daemon, so tests of private daemons are skipped.
fn serves_all_users() -> bool {
    PathBuf::from("/run/crossdock/endpoint.sock").exists()
}

/// A private daemon would end after ten idle seconds. To save time, a test ends it by this function.
fn end_daemons(runtime: &Path) {
    for daemon in daemons(runtime) {
        let pid = daemon.file_name().unwrap().to_string_lossy().parse().unwrap();
        support::kill(pid, "TERM");
    }
    until("nothing is left", || !runtime.join("crossdock").exists());
}

#[test]
fn programs_that_start_at_once_share_one_private_daemon_which_ends_after_them() {
    if serves_all_users() {
        return crossdock_os::testing::skip("no-node-daemon");
    }
    let runtime = tempfile::tempdir().unwrap();
    let children: Vec<_> =
        (0..6).map(|_| helper("helper_uses_whatever_daemon_there_is", runtime.path()).spawn().unwrap()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert!(daemons(runtime.path()).len() <= 2, "one keeper, one broker: {:?}", daemons(runtime.path()));
    end_daemons(runtime.path());
}

#[test]
#[ignore = "run by the test above, in processes of their own"]
fn helper_uses_whatever_daemon_there_is() {
    let session = Session::connect(&ConnectOptions::default()).unwrap();
    session.port("shared", End::Producer, &PortOptions::default(), Some(Duration::from_secs(5))).map(drop).unwrap();
    until("all six have been here", || {
        let name = format!("was/here/{}", std::process::id());
        session.port(&name, End::Producer, &PortOptions::default(), None).unwrap();
        session.list().unwrap().segments.iter().filter(|s| s.name.starts_with("was/here")).count() >= 6
    });
    session.close().unwrap();
}

#[test]
fn without_leave_to_start_one_no_daemon_is_a_clear_error() {
    let runtime = tempfile::tempdir().unwrap();
    let output = helper("helper_is_not_to_start_a_daemon", runtime.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_is_not_to_start_a_daemon() {
    let options = ConnectOptions { private_daemon: false, ..ConnectOptions::default() };
    if let Err(error) = Session::connect(&options) {
        assert_eq!(error.status, Status::NotFound);
        assert!(error.to_string().contains("crossdock serve"), "{}", error.to_string());
    }
}

/// Runs `helper_does_what_it_is_told` with this order. In place of the daemon's command, the helper runs the shell
/// script `script`, which finds the command in `$node` and a path for its own use in `$scratch`.
fn helper_with_script(order: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    if serves_all_users() {
        return crossdock_os::testing::skip("no-node-daemon");
    }
    let (runtime, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let command = scratch.path().join("command");
    let node = env!("CARGO_BIN_EXE_crossdock-node");
    let text = format!("#!/bin/sh\nnode='{node}'\nscratch='{}/scratch'\n{script}\n", scratch.path().display());
    std::fs::write(&command, text).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    let told = helper("helper_does_what_it_is_told", runtime.path());
    let mut helper = Command::new("env");
    if order == "ignore SIGCHLD" {
        helper.arg("--ignore-signal=CHLD");
    }
    for (name, value) in told.get_envs() {
        match value {
            Some(value) => helper.env(name, value),
            None => helper.env_remove(name),
        };
    }
    helper.arg(told.get_program()).args(told.get_args());
    let output = helper.env("CROSSDOCK_COMMAND", command).env("CROSSDOCK_TEST_ORDER", order).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    end_daemons(runtime.path());
}

#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn helper_does_what_it_is_told() {
    let Ok(order) = std::env::var("CROSSDOCK_TEST_ORDER") else { return };
    let timeout = Duration::from_secs(20);
    let session = Session::connect(&ConnectOptions { timeout, ..ConnectOptions::default() }).unwrap();
    if order == "lose the daemon" {
        let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap());
        let socket = runtime.join("crossdock/endpoint.sock");
        until("the daemon is gone", || {
            for process in daemons(&runtime) {
                support::kill(process.file_name().unwrap().to_string_lossy().parse().unwrap(), "KILL");
            }
            crossdock_os::socket::connect(&socket).is_err()
        });
    }
    session.list().unwrap();
    session.close().unwrap();
}

#[test]
fn a_private_daemon_that_answers_slowly_is_awaited_until_the_deadline() {
    // The broker stops as soon as it serves, and continues a second later.
    let script = r#"
        "$node" "$@" || exit 1
        keeper=$(cat "$5.lock")
        broker=
        until [ "$broker" ]; do broker=$(cat /proc/$keeper/task/$keeper/children); done
        kill -STOP $broker
        (sleep 1; kill -CONT $broker) >/dev/null 2>&1 &"#;
    helper_with_script("connect", script);
}

#[test]
fn a_process_starts_a_private_daemon_again_after_a_start_that_failed() {
    // The second start fails.
    let script = r#"
        echo >> "$scratch"
        [ $(wc -l < "$scratch") = 2 ] && exit 1
        exec "$node" "$@""#;
    helper_with_script("lose the daemon", script);
}

#[test]
fn a_program_that_ignores_sigchld_starts_a_private_daemon() {
    // The daemon inherits the ignored signals. `crossdock serve` sets SIGCHLD to its default itself, and the program
    // `crossdock-node` of these tests does not.
    helper_with_script("ignore SIGCHLD", r#"exec env --default-signal=CHLD "$node" "$@""#);
}

#[test]
fn a_daemon_that_cannot_start_prints_its_reason_before_its_starter_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for _ in 0..20 {
        let mut starter = Command::new(env!("CARGO_BIN_EXE_crossdock-node"));
        let output = starter.args(["--detach", "--socket"]).arg(file.join("endpoint.sock")).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("crossdock serve: ") && lines[0].contains("folder"), "{text}");
        assert!(lines[1].ends_with("the daemon in the background did not start; its reason is above"), "{text}");
    }
}

#[test]
fn what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("endpoint.sock");
    let mut times = Vec::new();
    for _ in 0..10 {
        let began = Instant::now();
        let mut starter = Command::new(env!("CARGO_BIN_EXE_crossdock-node"));
        let status = starter.args(["--detach", "--socket"]).arg(&socket).status().unwrap();
        times.push(began.elapsed());
        assert!(status.success());
        let lock = std::fs::read_to_string(folder.path().join("endpoint.sock.lock")).unwrap();
        support::kill(lock.trim().parse().unwrap(), "TERM");
        until("it left nothing", || std::fs::read_dir(folder.path()).unwrap().count() == 0);
    }
    times.sort();
    println!("daemon up: median {:?} of {times:?}", times[5]);

    let daemon = Daemon::start();
    let mut connects: Vec<_> = (0..50)
        .map(|_| {
            let began = Instant::now();
            let session = daemon.session();
            let took = began.elapsed();
            drop(session);
            took
        })
        .collect();
    connects.sort();
    println!("session connect: median {:?}", connects[25]);
    let (mut raw, _) = Raw::join(&daemon.socket());
    raw.ask(&open("x", OpenMode::CreateOnly, 1 << 20, 0));
    let mut attaches: Vec<_> = (0..200)
        .map(|_| {
            let began = Instant::now();
            raw.ask(&open("x", OpenMode::OpenOnly, 0, 0)).unwrap();
            began.elapsed()
        })
        .collect();
    attaches.sort();
    println!("segment attach: median {:?}", attaches[100]);
    // The keeper and the broker share memory, such as the program's code. Pss counts for each process its share of this
    // memory, so the sum of the two counts the memory once.
    let memory = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let field = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (field("Pss:"), field("Anonymous:"))
    };
    let (keeper, broker) = (memory(daemon.keeper.id()), memory(daemon.broker()));
    let (all, own) = (keeper.0 + broker.0, keeper.1 + broker.1);
    println!("idle daemon: {all} KiB, of which {own} KiB belong to no file (keeper {}, broker {})", keeper.1, broker.1);
    // The limit for all memory is high, because the amount of program code in memory depends on the build and on the
    // state of the page cache.
    assert!(own < 4_000 && all < 30_000, "an idle daemon needs {all} KiB, of which {own} KiB belong to no file");
    daemon.stop();
}
