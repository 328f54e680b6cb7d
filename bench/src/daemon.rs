//! Starts a daemon for a program that measures.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, NodeState, Session};
use crossdock_os::process;

/// A daemon with its folder. The daemon ends, and the folder is removed, when this value is dropped.
pub struct Daemon {
    child: Child,
    folder: PathBuf,
}

impl Daemon {
    /// Starts a daemon with the command `crossdock`.
    ///
    /// # Panics
    /// Panics if the daemon cannot be started.
    #[must_use]
    pub fn start(command: &Path) -> Self {
        Self::start_with(&[], command, &[])
    }

    /// Starts a daemon with more options of `crossdock serve`. `before` are the words before the command, for example
    /// those that start it in another network namespace.
    ///
    /// # Panics
    /// Panics if the daemon cannot be started.
    #[must_use]
    pub fn start_with(before: &[String], command: &Path, options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("crossdock-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder can be made");
        let words: Vec<&OsStr> = before.iter().map(OsStr::new).chain([command.as_os_str()]).collect();
        let mut serve = Command::new(words[0]);
        serve.args(&words[1..]).args(["serve", "--socket"]).arg(folder.join("endpoint.sock")).args(options);
        serve.stdout(Stdio::null());
        let child = serve.spawn().expect("the command can be started");
        Self { child, folder }
    }

    /// Gives the process id of the daemon.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives the path of the daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("endpoint.sock")
    }

    /// Waits until the daemon knows that `others` other nodes have joined its site.
    ///
    /// # Panics
    /// Panics if they have not joined within thirty seconds.
    pub fn await_joined(&self, others: usize) {
        let session = self.connect();
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let nodes = session.nodes().expect("the nodes");
            if nodes.iter().filter(|node| node.state == NodeState::Joined).count() == others {
                return;
            }
            assert!(Instant::now() < until, "the nodes do not join");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connects a session to the daemon.
    #[must_use]
    pub fn connect(&self) -> Session {
        connect(&self.socket())
    }
}

/// Connects a session to the daemon at a socket that exists or will soon exist.
///
/// # Panics
/// Panics if the daemon does not answer within ten seconds.
#[must_use]
pub fn connect(socket: &Path) -> Session {
    let options = ConnectOptions { socket: Some(socket.into()), private_daemon: false, ..ConnectOptions::default() };
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match Session::connect(&options) {
            Ok(session) => return session,
            Err(error) if Instant::now() > until => panic!("the daemon does not answer: {error}"),
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Gives a port of the loopback address on which no program listens.
///
/// # Panics
/// Panics if no port is free.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(Some(pidfd)) = process::open_pidfd(self.child.id() as i32) {
            let _ = process::send_signal(&pidfd, process::Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
