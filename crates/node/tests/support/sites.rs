//! Daemons of one site on this machine.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::Session;

use super::{Daemon, spawn};

/// Below those that the kernel gives to outgoing connections, so that it is still free a moment later.
pub fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap().to_string();
        }
    }
}

/// Sites take a moment: leases end, keepers come back.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub struct Site {
    pub catalog: String,
}

impl Site {
    pub fn new() -> Self {
        Self { catalog: free_port() }
    }

    pub fn arguments<'a>(&self, node: &'a str, catalog: &'a str) -> Vec<&'a str> {
        vec!["--site", "here", "--node", node, "--lease-ms", "6000", "--catalog", catalog]
    }

    pub fn keeper(&self) -> Daemon {
        self.start(Daemon::folder(), "a", &format!("keep:{}", self.catalog))
    }

    pub fn node(&self, node: &str) -> Daemon {
        self.start(Daemon::folder(), node, &format!("embedded:{}", self.catalog))
    }

    /// A daemon that has joined when this returns.
    pub fn start(&self, folder: tempfile::TempDir, node: &str, catalog: &str) -> Daemon {
        let keeper = spawn(&folder.path().join("endpoint.sock"), &self.arguments(node, catalog));
        let daemon = Daemon { folder, keeper };
        until("the daemon listens", || Session::connect(&daemon.options()).is_ok());
        daemon
    }
}
