//! Tests of a daemon that gets its listening socket from the service manager (systemd's socket activation).

mod support;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crossdock_client::{ConnectOptions, Session};
use crossdock_os::socket;
use support::{kill, until};

/// Starts a daemon as systemd does: the socket is descriptor 3, and two environment variables tell this to the process.
fn activate(listener: &OwnedFd, more: &str) -> Child {
    let program = format!("exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve {more}");
    let mut command = Command::new("bash");
    command.args(["-c", &program, env!("CARGO_BIN_EXE_crossdock-node")]);
    command.stdin(Stdio::from(listener.try_clone().unwrap())).stderr(Stdio::piped()).spawn().unwrap()
}

fn connects(path: &Path) {
    let options = ConnectOptions { socket: Some(path.to_owned()), ..ConnectOptions::default() };
    Session::connect(&options).unwrap();
}

#[test]
fn a_passed_socket_is_served_and_left_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoint.sock");
    let listener = socket::listen(&path).unwrap();
    for _ in 0..2 {
        // A client may connect before the daemon exists. Under systemd, this connection would start the daemon.
        let mut daemon = activate(&listener, "");
        connects(&path);
        kill(daemon.id(), "TERM");
        until("the daemon ends", || daemon.try_wait().unwrap().is_some_and(|status| status.success()));
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["endpoint.sock"], "the socket is the service manager's, the rest is gone");
    }
}

#[test]
fn a_passed_socket_of_the_wrong_kind_or_another_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoint.sock");
    let stream = std::os::unix::net::UnixListener::bind(folder.path().join("stream.sock")).unwrap();
    let listener = socket::listen(&path).unwrap();
    for (passed, more, why) in [
        (OwnedFd::from(stream), "", "SOCK_SEQPACKET"),
        (listener, "--socket /tmp/elsewhere.sock", "leave --socket out"),
    ] {
        let output = activate(&passed, more).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}
