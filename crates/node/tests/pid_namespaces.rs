//! Members and daemons in PID namespaces of their own, as containers have them. A process id means another process there,
//! or none at all.

mod support;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Mode, Session};
use support::{Daemon, children, kill, spawn, until};

const LONG: Option<Duration> = Some(Duration::from_secs(10));
/// Starts a program as process 1 of a PID namespace. The program dies with `unshare`.
const IN_NAMESPACE: [&str; 6] = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--"];

fn has_namespaces() -> bool {
    Command::new("unshare").args(IN_NAMESPACE).arg("true").stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A process that runs `helper_has_a_region`. It is killed when this value is dropped.
struct Helper {
    started: Child,
    /// The process id of the helper, as this process sees it.
    pid: u32,
}

impl Helper {
    /// Starts the helper, in a PID namespace of its own if `apart` is true.
    fn start(daemon: &Daemon, apart: bool) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut program = Command::new(if apart { "unshare".as_ref() } else { own.as_os_str() });
        if apart {
            program.args(IN_NAMESPACE).arg(&own);
        }
        program.args(["--exact", "helper_has_a_region", "--ignored", "--nocapture"]);
        // `unshare` itself prints a warning in some versions.
        program.env("CROSSDOCK_TEST_SOCKET", daemon.socket()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = program.spawn().unwrap();
        let mut helper = Self { pid: started.id(), started };
        if apart {
            until("the helper runs", || {
                let child = children(helper.started.id()).first().copied();
                helper.pid = child.unwrap_or(helper.pid);
                child.is_some()
            });
        }
        helper
    }

    fn kill(&self) {
        kill(self.pid, "KILL");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // `unshare` kills the helper when it is killed itself.
        let _ = self.started.kill();
        let _ = self.started.wait();
    }
}

#[test]
#[ignore = "run by the tests of this file, in a process of its own"]
fn helper_has_a_region() {
    let Some(socket) = std::env::var_os("CROSSDOCK_TEST_SOCKET") else { return };
    let options = ConnectOptions { socket: Some(socket.into()), task: Some("apart".into()), ..Default::default() };
    let session = Session::connect(&options).unwrap();
    let _region = session.region("r", Mode::CreateOnly, 1 << 18, None).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// The process id of the helper, as the daemon shows it; `None` if the helper is not a member.
fn listed(session: &Session) -> Option<u32> {
    session.list().unwrap().members.into_iter().find(|member| member.task == "apart").map(|member| member.pid)
}

fn has_region(session: &Session) -> bool {
    session.list().unwrap().segments.iter().any(|segment| segment.name == "r")
}

#[test]
fn a_member_in_a_namespace_of_its_own_outlives_the_daemon_and_its_death_is_noticed() {
    if !has_namespaces() {
        return crossdock_os::testing::skip("pid-namespaces");
    }
    let mut daemon = Daemon::start();
    let helper = Helper::start(&daemon, true);
    let before = daemon.session();
    until("the helper has the region", || has_region(&before));
    assert_eq!(listed(&before), Some(helper.pid), "the daemon shows the process id of its own namespace");
    let id = before.region("r", Mode::OpenOnly, 0, None).unwrap().id();
    drop(before);

    daemon.kill_node();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    let after = daemon.newcomer();
    assert_eq!(after.region("r", Mode::OpenOnly, 0, LONG).unwrap().id(), id, "the helper offers its region again");
    until("the next daemon knows the helper", || listed(&after) == Some(helper.pid));

    helper.kill();
    until("the helper is no member", || listed(&after).is_none());
    after.region("r", Mode::OpenOnly, 0, LONG).unwrap();
    drop((after, helper));
    daemon.stop();
}

/// The daemon sees no process id of the members, because they are in no namespace that it sees.
#[test]
fn a_daemon_in_a_namespace_of_its_own_notices_the_deaths_of_members_that_it_does_not_see() {
    if !has_namespaces() {
        return crossdock_os::testing::skip("pid-namespaces");
    }
    let folder = Daemon::folder();
    let mut program = Command::new("unshare");
    program.args(IN_NAMESPACE).arg(env!("CARGO_BIN_EXE_crossdock-node"));
    program.arg("--socket").arg(folder.path().join("endpoint.sock"));
    let keeper = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut daemon = Daemon { folder, keeper };
    let session = daemon.newcomer();
    let helper = Helper::start(&daemon, false);
    until("the helper has the region", || has_region(&session));
    assert_eq!(listed(&session), Some(0), "the daemon does not see the helper");
    helper.kill();
    until("the helper is no member", || listed(&session).is_none());
    session.region("r", Mode::OpenOnly, 0, LONG).unwrap();
    drop((session, helper));
    let inner = children(daemon.keeper.id())[0];
    kill(inner, "TERM");
    assert!(daemon.keeper.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(daemon.folder.path()).unwrap().count(), 0, "the daemon leaves no file");
}
