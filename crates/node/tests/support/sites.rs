//! Daemons of one site, all on this machine.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Session};
pub use crossdock_os::testing::until;

use super::{Daemon, spawn};

/// Finds a free TCP port below those that the kernel gives to outgoing connections. So the kernel does not give it to a
/// connection before the test uses it.
pub fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that start one after another have neighbouring process ids. The factor makes them begin their
    // search at ports that are far apart.
    let first = (std::process::id() as u16).wrapping_mul(251);
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap().to_string();
        }
    }
}

pub struct Site {
    pub catalog: String,
    /// The name of the site, which is different for each site. So two sites do not mix if another test takes the TCP
    /// port of this site's catalog.
    pub name: String,
    /// The length of a lease in milliseconds: how long the catalog keeps the names of a node that does not renew its
    /// lease.
    pub lease_ms: String,
}

impl Site {
    pub fn new() -> Self {
        let catalog = free_port();
        let name = format!("here-{}-{}", std::process::id(), catalog.rsplit(':').next().unwrap());
        Self { catalog, name, lease_ms: "6000".into() }
    }

    pub fn arguments<'a>(&'a self, node: &'a str, catalog: &'a str) -> Vec<&'a str> {
        vec!["--site", &self.name, "--node", node, "--lease-ms", &self.lease_ms, "--catalog", catalog]
    }

    pub fn keeper(&self) -> Daemon {
        self.start(Daemon::folder(), "a", &format!("keep:{}", self.catalog))
    }

    pub fn node(&self, node: &str) -> Daemon {
        self.start(Daemon::folder(), node, &format!("embedded:{}", self.catalog))
    }

    /// Starts a daemon, and waits until it has joined the site.
    pub fn start(&self, folder: tempfile::TempDir, node: &str, catalog: &str) -> Daemon {
        self.start_with(folder, node, catalog, &[])
    }

    /// Works like [`Self::start`]; the daemon gets the additional arguments `more`.
    pub fn start_with(&self, folder: tempfile::TempDir, node: &str, catalog: &str, more: &[&str]) -> Daemon {
        let arguments = [&self.arguments(node, catalog), more].concat();
        let keeper = spawn(&folder.path().join("endpoint.sock"), &arguments);
        let mut daemon = Daemon { folder, keeper };
        until("the daemon listens", || {
            let ended = daemon.keeper.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon of node {node}, catalog {catalog}, ended at its start: {ended:?}");
            Session::connect(&daemon.options()).is_ok()
        });
        daemon
    }

    /// Starts daemons for the first `count` of the nodes a, b and c. Node a keeps the catalog.
    pub fn daemons(&self, count: usize) -> Vec<Daemon> {
        let others = ["b", "c"].iter().take(count - 1).map(|node| self.node(node));
        std::iter::once(self.keeper()).chain(others).collect()
    }
}

/// Connects a task to a daemon.
pub fn connect(daemon: &Daemon, task: &str) -> Session {
    let timeout = Duration::from_secs(30);
    Session::connect(&ConnectOptions { task: Some(task.into()), timeout, ..daemon.options() }).unwrap()
}

/// The running daemons of a site.
pub struct World {
    pub daemons: Vec<Daemon>,
}

impl World {
    pub fn new(count: usize) -> Self {
        Self { daemons: Site::new().daemons(count) }
    }

    pub fn session(&self, node: usize, task: &str) -> Session {
        connect(&self.daemons[node], task)
    }
}
