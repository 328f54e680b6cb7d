//! Simulated nodes. Each one is a client of the catalog with connections of its own. It has a lease that it keeps alive,
//! an entry that belongs to the lease, and a watch of all changes of the site, as a daemon has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossdock_catalog::{Catalog, LeaseId};
use crossdock_os::Deadline;

use crate::board::Board;
use crate::watch::{self, SITE, name};
use crate::{Nodes, soon};

/// The pause between two calls that keep a lease alive, as in a daemon.
const KEEP: Duration = Duration::from_millis(2500);
/// The time of a lease. It is longer than a daemon's, so that no lease ends on a slow machine.
const LEASE: Duration = Duration::from_secs(60);
/// The number of threads that keep all leases alive.
const KEEPERS: usize = 4;

struct Node {
    catalog: Arc<dyn Catalog>,
    lease: LeaseId,
    /// The value that the node writes into the catalog for each name that it registers.
    owner: Vec<u8>,
}

/// All simulated nodes of a site.
pub struct Simulated {
    nodes: Arc<Vec<Node>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Simulated {
    /// Makes `count` nodes join the site. `client` makes a client of the catalog.
    pub fn start(count: usize, client: impl Fn() -> Arc<dyn Catalog>, board: &Arc<Board>) -> Self {
        let mut revision = 0;
        let mut join = |number| {
            let catalog = client();
            let lease = catalog.grant(LEASE, soon()).expect("a lease");
            let (key, value) = (format!("{SITE}node/sim{number}"), format!("1 {} 7 127.0.0.1:1", number + 1000));
            let joined = catalog.create(&key, value.as_bytes(), Some(lease), soon());
            revision = joined.expect("the catalog answers").expect("a free name");
            Node { catalog, lease, owner: format!("1 sim{number}").into_bytes() }
        };
        let nodes: Arc<Vec<Node>> = Arc::new((0..count).map(&mut join).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let watches = nodes.iter().map(|node| watch::start(&node.catalog, revision + 1, board.watcher(), &stop));
        let keepers = (0..KEEPERS).map(|first| keep_alive(&nodes, first, &stop));
        let threads = watches.chain(keepers).collect();
        Self { nodes, stop, threads }
    }
}

/// Keeps the leases of every fourth node alive, beginning with the node `first`.
fn keep_alive(nodes: &Arc<Vec<Node>>, first: usize, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (nodes, stop) = (Arc::clone(nodes), Arc::clone(stop));
    thread::spawn(move || {
        let pause = KEEP * KEEPERS as u32 / nodes.len() as u32;
        let mut next = Instant::now();
        for node in nodes[first..].iter().step_by(KEEPERS).cycle() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
            next += pause;
            node.catalog.keep_alive(node.lease, Deadline::after(LEASE)).expect("the lease is kept alive");
        }
    })
}

impl Nodes for Simulated {
    fn lanes(&self) -> usize {
        self.nodes.len()
    }

    fn register(&self, lane: usize, number: usize) {
        let node = &self.nodes[lane];
        let key = format!("{SITE}name/item/1/w/{}", name(number));
        let made = node.catalog.create(&key, &node.owner, Some(node.lease), soon());
        made.expect("the catalog answers").expect("a free name");
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // If the thread has failed, it has printed the reason already.
            let _ = thread.join();
        }
    }
}
