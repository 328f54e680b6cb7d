//! Measures the catalog of a site (row P15): how many registrations it takes in a second, and how soon a watch reports
//! a registration. The nodes are three real daemons whose tasks make items, or 1 000 simulated nodes. The catalog is
//! the embedded one or, if this program and the command are built with the feature `etcd`, three members of etcd.
//!
//! The command line is `catalog CROSSDOCK [--disk FOLDER] [--quick] [--json]`.
//!
//! Each round has three parts. In the first part, one node registers one name after another. In the second part, all
//! nodes register at the same time. In the third part, one node registers a name, and the next registration begins only
//! after all watches have reported this name. Every node watches the whole site, as a daemon does. A delay lasts from
//! the call that registers a name until a watch reports the name; the watch is that of the same node or of another
//! node. All processes read the same clock.
//!
//! The rounds of the floors alternate with those of the catalog. The floor of the embedded catalog is a program that
//! does the least that is necessary ([`floor`]); the floor of etcd is plain puts. All files are in the temporary folder;
//! with `--disk`, the floor is also measured with a file in that folder.

mod board;
#[cfg(feature = "etcd")]
mod cluster;
mod floor;
mod parts;
mod real;
mod rows;
mod simulated;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossdock_bench::{Daemon, free_port, print_points};
use crossdock_catalog::Catalog;
use crossdock_catalog::embedded::{Client as Embedded, TcpDial};
use crossdock_os::Deadline;

use board::Board;
use floor::Floor;
use parts::Plan;
use real::Real;
use rows::{DISK, EMBEDDED, FLOOR, Rows};
use simulated::Simulated;

/// What registers names in the measured catalog: real nodes, simulated nodes, or plain clients without crossdock.
trait Nodes: Sync {
    /// How many registrations these nodes can make at the same time.
    fn lanes(&self) -> usize;
    /// Makes the registration with this number. Returns when the catalog has answered.
    fn register(&self, lane: usize, number: usize);
    /// Removes the registrations, if they would fill the nodes' memory.
    fn clear(&self) {}
}

/// The two kinds of sites that are measured: with real daemons, and with simulated nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Real,
    Simulated,
}

impl Kind {
    fn nodes(self) -> usize {
        match self {
            Self::Real => real::NODES.len(),
            Self::Simulated => 1000,
        }
    }

    fn lanes(self) -> usize {
        match self {
            Self::Real => real::NODES.len() * real::TASKS,
            Self::Simulated => self.nodes(),
        }
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder] = &words[..] {
        if role == "--floor" {
            return floor::serve(folder);
        }
    }
    let Some(command) = words.first().filter(|word| !word.starts_with("--")) else {
        eprintln!("usage: catalog CROSSDOCK [--disk FOLDER] [--quick] [--json]");
        std::process::exit(2);
    };
    crossdock_os::child::raise_descriptor_limit();
    let disk = words.iter().position(|word| word == "--disk").and_then(|at| words.get(at + 1)).map(PathBuf::from);
    let quick = words.iter().any(|word| word == "--quick");
    let mut rows = Rows::default();
    for kind in [Kind::Real, Kind::Simulated] {
        let mut plan = if quick { Plan::QUICK } else { Plan::FULL };
        if kind == Kind::Simulated {
            plan.rounds = plan.rounds.min(2);
        }
        let floors = Floors::start(kind, disk.as_deref());
        embedded(kind, Path::new(command), plan, &floors, &mut rows);
        // With 1 000 nodes, a round of etcd takes too long for a quick run.
        #[cfg(feature = "etcd")]
        if kind == Kind::Real || !quick {
            etcd(kind, Path::new(command), plan, &floors, &mut rows);
        }
    }
    print_points(&rows.points());
}

/// The servers that do the least that a catalog must do: one with its file in memory and, with `--disk`, one with its
/// file on the disk. Each has the board that collects its delays.
struct Floors {
    memory: (Floor, Arc<Board>),
    disk: Option<(Floor, Arc<Board>)>,
}

impl Floors {
    fn start(kind: Kind, disk: Option<&Path>) -> Self {
        let start = |folder: &Path, watchers| {
            let board = Board::new();
            (Floor::start(folder, kind.lanes(), watchers, &board), board)
        };
        Self { memory: start(&std::env::temp_dir(), kind.nodes()), disk: disk.map(|folder| start(folder, 0)) }
    }

    fn measure(&self, kind: Kind, plan: Plan, rows: &mut Rows) {
        let (floor, board) = &self.memory;
        parts::all(floor, board, plan, |panel, value| rows.add(kind, FLOOR, panel, value));
        if let Some((floor, board)) = &self.disk {
            rows.add(kind, DISK, rows::ONE, parts::one_by_one(floor, board, plan));
        }
    }
}

/// Measures the embedded catalog, which a daemon keeps.
fn embedded(kind: Kind, command: &Path, plan: Plan, floors: &Floors, rows: &mut Rows) {
    let address = format!("127.0.0.1:{}", free_port());
    let client = || Arc::new(Embedded::new(TcpDial(address.clone()))) as Arc<dyn Catalog>;
    let board = Board::new();
    let option = |node| format!("{}:{address}", if node == 0 { "keep" } else { "embedded" });
    let _keeper = (kind == Kind::Simulated).then(|| {
        let options = ["--site", "bench", "--node", "keeper", "--catalog", &option(0)];
        let keeper = Daemon::start_with(&[], command, &options);
        keeper.await_joined(0);
        keeper
    });
    let nodes: Box<dyn Nodes> = match kind {
        Kind::Real => Box::new(Real::start(command, option, client, &board)),
        Kind::Simulated => Box::new(Simulated::start(kind.nodes(), client, &board)),
    };
    rounds(&*nodes, &board, plan, || {
        floors.measure(kind, plan, rows);
        parts::all(&*nodes, &board, plan, |panel, value| rows.add(kind, EMBEDDED, panel, value));
    });
}

/// Measures the catalog in etcd.
#[cfg(feature = "etcd")]
fn etcd(kind: Kind, command: &Path, plan: Plan, floors: &Floors, rows: &mut Rows) {
    let cluster = cluster::Cluster::start();
    let client = || cluster.client();
    let board = Board::new();
    let nodes: Box<dyn Nodes> = match kind {
        Kind::Real => Box::new(Real::start(command, |_| cluster.option(), client, &board)),
        Kind::Simulated => Box::new(Simulated::start(kind.nodes(), client, &board)),
    };
    let (puts, puts_board) = (cluster::Puts::new(&cluster, kind.lanes()), Board::new());
    rounds(&*nodes, &board, plan, || {
        floors.measure(kind, plan, rows);
        parts::all(&puts, &puts_board, plan, |panel, value| rows.add(kind, rows::PUTS, panel, value));
        parts::all(&*nodes, &board, plan, |panel, value| rows.add(kind, rows::ETCD, panel, value));
    });
}

/// First makes as many registrations at the same time as the nodes can, so that all connections are open. Then measures
/// the rounds.
fn rounds(nodes: &dyn Nodes, board: &Board, plan: Plan, mut round: impl FnMut()) {
    parts::together(nodes, board, 1);
    (0..plan.rounds).for_each(|_| round());
}
