//! Tests that a daemon continues to serve after a socket was shut down, with a limit on file sizes, and during a flood
//! of log lines.

mod support;

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Grant, Mode, Rights, SegmentKind, Session, Status};
use crossdock_os::socket;
use support::{Daemon, kill, until};

/// Gives the CPU time that a process has used so far, in clock ticks of 10 ms.
fn spent(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat[stat.rfind(')').unwrap()..].split_whitespace().collect();
    fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
}

#[test]
fn a_listening_socket_that_its_maker_shuts_down_costs_the_broker_nothing() {
    let daemon = Daemon::start();
    let session = daemon.session();
    session.make_workflow("w", 0).unwrap();
    let path = daemon.folder.path().join("task.sock");
    let listener = socket::listen(&path).unwrap();
    let copy = std::os::unix::net::UnixStream::from(listener.try_clone().unwrap());
    let grants = [Grant { pattern: "*".into(), kind: SegmentKind::Region, rights: Rights::READ }];
    session.make_endpoint("w", "task", listener, &grants).unwrap();
    copy.shutdown(Shutdown::Both).unwrap();
    let broker = daemon.broker();
    std::thread::sleep(Duration::from_millis(100));
    let before = spent(broker);
    std::thread::sleep(Duration::from_millis(500));
    let ticks = spent(broker) - before;
    assert!(ticks < 10, "the broker spent {ticks} of 50 ticks on it");
    drop(session);
    std::fs::remove_file(path).unwrap();
    daemon.stop();
}

#[test]
fn no_task_connects_to_an_endpoint_that_was_made_for_a_call_that_gave_up() {
    let daemon = Daemon::start();
    let session = Session::connect(&ConnectOptions { timeout: Duration::from_secs(2), ..daemon.options() }).unwrap();
    session.make_workflow("w", 0).unwrap();
    let path = daemon.folder.path().join("task.sock");
    let grants = [Grant { pattern: "*".into(), kind: SegmentKind::Region, rights: Rights::READ }];
    let broker = daemon.broker();
    kill(broker, "STOP");
    let made = session.make_endpoint("w", "task", socket::listen(&path).unwrap(), &grants);
    assert_eq!(made.unwrap_err().status, Status::TimedOut);
    kill(broker, "CONT");
    // The broker carries out the request that `session` has given up, and only then serves this new session.
    drop(daemon.session());
    until("no process can connect", || socket::connect(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    session.make_endpoint("w", "task", socket::listen(&path).unwrap(), &grants).unwrap();
    let options = ConnectOptions { socket: Some(path.clone()), ..daemon.options() };
    drop(Session::connect(&options).unwrap());
    drop(session);
    std::fs::remove_file(&path).unwrap();
    daemon.stop();
}

/// Starts a daemon through a shell, which first runs the command in `words`.
fn start_after(words: &str, errors: Stdio) -> Daemon {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "{words} exec {} --socket {}/endpoint.sock",
        env!("CARGO_BIN_EXE_crossdock-node"),
        folder.path().display()
    );
    let keeper = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
    let daemon = Daemon { folder, keeper };
    daemon.wait_until_up();
    daemon
}

#[test]
fn a_limit_on_file_sizes_is_an_error_of_the_call_and_ends_no_daemon() {
    // `ulimit` counts blocks of 512 bytes, so this sets the soft limit and the hard limit to one mebibyte.
    let daemon = start_after("ulimit -f 2048;", Stdio::null());
    let session = daemon.session();
    let broker = daemon.broker();
    let error = session.region("large", Mode::CreateOnly, 8 << 20, None).unwrap_err();
    assert!(error.status == Status::NoSpace && error.to_string().contains("ulimit -f"), "{error:?}");
    let error = session.create_item("large", &crossdock_client::ItemOptions::bytes(8 << 20)).unwrap_err();
    assert!(error.status == Status::NoSpace && error.to_string().contains("ulimit -f"), "{error:?}");
    drop(session.region("small", Mode::CreateOnly, 256 << 10, None).unwrap());
    assert_eq!(daemon.broker(), broker, "the same broker serves on");
    session.remove_region("small").unwrap();
    drop(session);
    daemon.stop();
}

#[test]
fn a_flood_of_malformed_connections_writes_a_bounded_log_that_counts_what_it_left_out() {
    let errors = tempfile::NamedTempFile::new().unwrap();
    let daemon = start_after("", Stdio::from(errors.reopen().unwrap()));
    for _ in 0..2000 {
        let liar = socket::connect(&daemon.socket()).unwrap();
        let _ = socket::send(&liar, &[0xff; 64], &[]);
        let _ = crossdock_os::event::wait_readable(liar.as_fd(), crossdock_os::Deadline::after(Duration::from_secs(5)));
    }
    until("the broker has dropped them", || std::fs::read_to_string(errors.path()).unwrap().lines().count() >= 64);
    let lines = std::fs::read_to_string(errors.path()).unwrap().lines().count();
    assert!(lines <= 80, "{lines} lines");
    daemon.stop();
}
