//! A daemon with its own folder, and a client through which a test can send any message, also a wrong message.
#![allow(dead_code)]

pub mod net;
pub mod series;
pub mod sites;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Session};
use crossdock_layout::wire::{Answer, FINGERPRINT, MAX_MESSAGE, OpenMode, PROTOCOL_VERSION, Request, SegmentKind};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Rights};
use crossdock_os::socket::{self, Received};
pub use crossdock_os::testing::until;
use crossdock_os::{Deadline, event, process};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A running daemon. `stop` ends it, and checks that it leaves nothing behind.
pub struct Daemon {
    pub folder: tempfile::TempDir,
    pub keeper: Child,
}

impl Daemon {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// Starts a daemon with these variables in its environment.
    pub fn start_in(arguments: &[&str], environment: &[(&str, &Path)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keeper = spawn_in(&folder.path().join("endpoint.sock"), arguments, environment);
        let daemon = Self { folder, keeper };
        daemon.wait_until_up();
        daemon
    }

    pub fn wait_until_up(&self) {
        until("the daemon listens", || socket::connect(&self.socket()).is_ok());
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("endpoint.sock")
    }

    pub fn options(&self) -> ConnectOptions {
        ConnectOptions { socket: Some(self.socket()), ..ConnectOptions::default() }
    }

    pub fn session(&self) -> Session {
        Session::connect(&self.options()).unwrap()
    }

    /// Connects a new session as soon as a broker serves.
    pub fn newcomer(&self) -> Session {
        connect_to_next_daemon(&self.options())
    }

    /// Gives the process id of the broker.
    pub fn broker(&self) -> u32 {
        let mut found = 0;
        until("there is a broker", || {
            found = children(self.keeper.id()).first().copied().unwrap_or(0);
            found != 0
        });
        found
    }

    pub fn kill_broker(&self) {
        kill(self.broker(), "KILL");
    }

    /// Kills the broker and the keeper, so that the daemon is gone with everything that it has in memory. The keeper is
    /// killed first, because it would start another broker. When this returns, both are dead, so no connection reaches
    /// them.
    pub fn kill_node(&self) {
        let both = [self.keeper.id(), self.broker()];
        let pidfds = both.map(|pid| process::open_pidfd(pid as i32).unwrap());
        for pid in both {
            kill(pid, "KILL");
        }
        until("keeper and broker are dead", || pidfds.iter().flatten().all(process::is_dead));
    }

    /// Ends the daemon, and checks that it has left nothing behind.
    pub fn stop(mut self) {
        let broker = self.broker();
        self.end();
        assert!(!Path::new(&format!("/proc/{broker}")).exists(), "the broker is gone");
    }

    /// Ends the daemon, which may have no broker at the moment, and checks that it has left no file behind.
    pub fn end(&mut self) {
        kill(self.keeper.id(), "TERM");
        let mut status = None;
        until("the keeper ends", || {
            status = self.keeper.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
        let left: Vec<_> = std::fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

pub fn spawn(socket: &Path, arguments: &[&str]) -> Child {
    spawn_in(socket, arguments, &[])
}

pub fn spawn_in(socket: &Path, arguments: &[&str], environment: &[(&str, &Path)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossdock-node"));
    command.envs(environment.iter().copied());
    command.arg("--socket").arg(socket).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Starts a daemon in the network namespace `namespace`. The tests use such a namespace as another host.
pub fn spawn_on_host(namespace: &str, socket: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_crossdock-node"), "--socket"]).arg(socket);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

pub fn kill(pid: u32, signal: &str) {
    Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status().unwrap();
}

/// Connects a new session as soon as a broker serves. A new keeper listens before its broker serves, and the broker of a
/// killed keeper may still listen for a moment.
pub fn connect_to_next_daemon(options: &ConnectOptions) -> Session {
    let mut found = None;
    until("the new daemon serves", || {
        found = Session::connect(options).ok();
        found.is_some()
    });
    found.unwrap()
}

/// Limits the descriptors of a process so that it can open only `free` more. Returns the limit that the process had
/// before.
pub fn starve(process: u32, free: usize) -> Rlimit {
    let names = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let open: Vec<u64> = names.map(|name| name.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let limit = (0..).filter(|number| !open.contains(number)).nth(free);
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    set_limit(process, Rlimit { current: limit, maximum })
}

/// Sets the limit of a process's descriptors. Returns the limit that the process had before.
pub fn set_limit(process: u32, limit: Rlimit) -> Rlimit {
    prlimit(Pid::from_raw(process as i32), Resource::Nofile, limit).unwrap()
}

/// Sets this process's limit of descriptors. Returns the limit that it had before.
pub fn limit_descriptors(limit: Option<u64>) -> Option<u64> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    set_limit(std::process::id(), Rlimit { current: limit, maximum }).current
}

/// A client through which a test can send any message, also a wrong message.
pub struct Raw {
    pub socket: OwnedFd,
    next: u64,
    /// The descriptors that came with the welcome. One of them holds the client's lock on the roll. If the client
    /// closes these descriptors and its connection, it counts as dead.
    papers: std::cell::RefCell<Vec<OwnedFd>>,
}

impl Raw {
    pub fn connect(path: &Path) -> Self {
        let deadline = Deadline::after(Duration::from_secs(5));
        loop {
            match socket::connect(path) {
                Ok(socket) => return Self { socket, next: 1, papers: Vec::new().into() },
                Err(error) => assert!(!deadline.passed(), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn hello_message(token: u8) -> Request {
        Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token: [token; 16],
            member: MemberId::NONE,
            rank: 0,
            task: None,
            workflow: None,
            visitor: false,
        }
    }

    /// Makes the hello by which a client connects again as the member that it was before.
    pub fn hello_again(token: u8, member: MemberId) -> Request {
        match Self::hello_message(token) {
            Request::Hello { protocol, layout, fingerprint, token, rank, visitor, task, workflow, .. } => {
                Request::Hello { protocol, layout, fingerprint, token, member, rank, visitor, task, workflow }
            }
            other => other,
        }
    }

    /// Connects and sends this hello, and tries again until a broker answers. Returns the client and the answer.
    pub fn greet(path: &Path, hello: &Request) -> (Self, Answer) {
        let deadline = Deadline::after(Duration::from_secs(5));
        loop {
            let mut raw = Self::connect(path);
            if let Some((answer, _)) = raw.ask(hello) {
                return (raw, answer);
            }
            assert!(!deadline.passed(), "no answer comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sets the number of the next request. A member that connects again needs this, because it must not use a number
    /// twice.
    pub fn number_from(mut self, next: u64) -> Self {
        self.next = next;
        self
    }

    /// Gives a copy of the liveness table's descriptor, which came with the welcome.
    pub fn table(&self) -> OwnedFd {
        self.papers.borrow().first().expect("welcomed").try_clone().unwrap()
    }

    /// Sends a hello and receives the welcome.
    pub fn join(path: &Path) -> (Self, MemberId) {
        let mut raw = Self::connect(path);
        let Request::Hello { protocol, layout, fingerprint, member, rank, task, workflow, visitor, .. } =
            Self::hello_message(0)
        else {
            unreachable!()
        };
        let token = crossdock_os::child::random().unwrap();
        let hello = Request::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow, visitor };
        match raw.ask(&hello) {
            Some((Answer::Welcome { member, .. }, _)) => (raw, member),
            other => panic!("no welcome but {other:?}"),
        }
    }

    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let deadline = Deadline::after(Duration::from_secs(5));
        loop {
            match socket::send(&self.socket, bytes, fds) {
                Ok(true) => return true,
                Ok(false) => {
                    drop(event::wait_writable(self.socket.as_fd(), deadline.at_most(Duration::from_millis(50))))
                }
                Err(_) => return false,
            }
            if deadline.passed() {
                return false;
            }
        }
    }

    /// Receives the next answer. `None` if the connection has ended, or after five seconds without an answer.
    pub fn receive(&self) -> Option<(u64, Answer, Vec<OwnedFd>)> {
        let deadline = Deadline::after(Duration::from_secs(5));
        let mut buffer = [0; MAX_MESSAGE + 1];
        loop {
            match socket::receive(&self.socket, &mut buffer).ok()? {
                Some(Received::Message(length, fds)) => {
                    let (number, answer) =
                        Answer::decode(&buffer[..length], fds.len()).expect("the daemon's own words");
                    if matches!(answer, Answer::Welcome { .. }) {
                        self.papers.borrow_mut().extend(fds.iter().map(|fd| fd.try_clone().unwrap()));
                    }
                    return Some((number, answer, fds));
                }
                Some(_) => return None,
                None if event::wait_readable(&self.socket, deadline).ok()? => {}
                None => return None,
            }
        }
    }

    pub fn ask(&mut self, request: &Request) -> Option<(Answer, Vec<OwnedFd>)> {
        self.ask_with(request, &[])
    }

    pub fn ask_with(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Option<(Answer, Vec<OwnedFd>)> {
        let number = self.next;
        self.next += 1;
        if !self.send(&request.encode(number, number), fds) {
            return None;
        }
        loop {
            let (answered, answer, fds) = self.receive()?;
            if answered == number {
                return Some((answer, fds));
            }
        }
    }

    /// Tells whether the daemon closes the connection within five seconds.
    pub fn was_dropped(&self) -> bool {
        let deadline = Deadline::after(Duration::from_secs(5));
        let mut buffer = [0; MAX_MESSAGE + 1];
        while !deadline.passed() {
            match socket::receive(&self.socket, &mut buffer) {
                Ok(None) => drop(event::wait_readable(&self.socket, deadline)),
                Ok(Some(Received::End)) | Err(_) => return true,
                Ok(Some(_)) => {}
            }
        }
        false
    }
}

pub fn open(name: &str, mode: OpenMode, size: u64, wait_ms: u64) -> Request {
    Request::Open {
        kind: SegmentKind::Region,
        mode,
        access: Rights::WRITE,
        size,
        reserve: 0,
        attribute: 0,
        wait_ms,
        persistent: false,
        name: name.to_owned(),
    }
}
