//! Three real nodes: daemons with sockets and folders of their own. Tasks on each node make items, and each item
//! registers its name in the catalog.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossdock_bench::Daemon;
use crossdock_catalog::Catalog;
use crossdock_client::{ConnectOptions, Item, ItemOptions, Session};

use crate::board::Board;
use crate::watch::{self, SITE, name};
use crate::{Nodes, soon};

pub const NODES: [&str; 3] = ["a", "b", "c"];
/// The number of tasks on each node. Each task makes one item at a time.
pub const TASKS: usize = 4;
/// The size of an item.
const BYTES: u64 = 4096;

struct Task {
    session: Session,
    items: Mutex<Vec<Item>>,
}

/// Three real nodes. They end when this value is dropped.
pub struct Real {
    // The order of fields matters: sessions end before daemons.
    tasks: Vec<Task>,
    catalog: Arc<dyn Catalog>,
    stop: Arc<AtomicBool>,
    watches: Vec<JoinHandle<()>>,
    _daemons: Vec<Daemon>,
}

impl Real {
    /// Starts the daemons. `catalog` gives the option `--catalog` of the daemon with this index, and `client` makes a
    /// client of the catalog.
    pub fn start(
        command: &Path,
        catalog: impl Fn(usize) -> String,
        client: impl Fn() -> Arc<dyn Catalog>,
        board: &Arc<Board>,
    ) -> Self {
        let daemon = |(index, node): (usize, &&str)| {
            let catalog = catalog(index);
            Daemon::start_with(&[], command, &["--site", "bench", "--node", node, "--catalog", &catalog])
        };
        let daemons: Vec<Daemon> = NODES.iter().enumerate().map(daemon).collect();
        daemons.iter().for_each(|daemon| daemon.await_joined(NODES.len() - 1));
        let task = |number: usize| {
            let options = ConnectOptions {
                socket: Some(daemons[number % NODES.len()].socket()),
                task: Some(format!("task-{number}")),
                private_daemon: false,
                ..ConnectOptions::default()
            };
            Task { session: Session::connect(&options).expect("the daemon answers"), items: Mutex::default() }
        };
        let tasks = (0..NODES.len() * TASKS).map(task).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let one = client();
        let from = one.list(SITE, soon()).expect("the catalog answers").revision + 1;
        let watches = NODES.iter().map(|_| watch::start(&client(), from, board.watcher(), &stop)).collect();
        Self { tasks, catalog: one, stop, watches, _daemons: daemons }
    }
}

impl Nodes for Real {
    fn lanes(&self) -> usize {
        self.tasks.len()
    }

    fn register(&self, lane: usize, number: usize) {
        let task = &self.tasks[lane];
        let item = task.session.create_item(&name(number), &ItemOptions::bytes(BYTES)).expect("a new item");
        task.items.lock().expect("no task panics").push(item);
    }

    /// Destroys the items, and waits until the daemons have released the names.
    fn clear(&self) {
        for task in &self.tasks {
            for item in task.items.lock().expect("no task panics").drain(..) {
                item.destroy().expect("the task owns it");
            }
        }
        let until = Instant::now() + Duration::from_secs(60);
        while !self.catalog.list(&format!("{SITE}name/"), soon()).expect("the catalog answers").entries.is_empty() {
            assert!(Instant::now() < until, "names of destroyed items stay in the catalog");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for watch in self.watches.drain(..) {
            // If the thread has failed, it has printed the reason already.
            let _ = watch.join();
        }
    }
}
