//! Measures how long it takes to hand an item over between two processes (rows P12 and P13). The same run measures
//! floors (the least times that this machine needs). For verified items the floor is two hops over SOCK_SEQPACKET
//! through a third process, and the mapping of a file of that size. For cooperative items it is a futex.
//!
//! The command line is `items CROSSDOCK [--quick] [--json]`.
//!
//! Only the hand-over is measured: the receiver reads and writes just one word. All processes sleep while they wait.
//! Each hand-over is measured in two ways ([`trips`]). *One way* goes to a receiver that has waited for a while; the
//! aims are for this figure. *Back to back* is half of a round trip, in which the former owner's next request comes
//! while the item is on its way back. Rounds of all kinds alternate, so that other programs slow all of them down
//! alike. The figures are medians.

mod floors;
mod handing;
mod trips;

use std::collections::BTreeMap;
use std::path::Path;

use crossdock_bench::{Daemon, Record, median, print};
use crossdock_client::ItemLevel;
use crossdock_os::tmpfs::Folder;
use crossdock_os::{child, socket};

use handing::Hand;
use trips::{Pace, Side, Words};

const SIZES: [(&str, u64); 6] = [
    ("10 KB", 10_000),
    ("100 KB", 100_000),
    ("1 MB", 1_000_000),
    ("10 MB", 10_000_000),
    ("100 MB", 100_000_000),
    ("1 GB", 1_000_000_000),
];
const COOPERATIVE: &str = "cooperative";
/// The last rounds hand the smallest item over while the daemon has so many other items.
const OTHERS: usize = 2_000;
const AMONG: &str = "10 KB, the daemon has 2000 other items";

/// For each pace and each kind of object: the times of all rounds.
type Times = BTreeMap<(Pace, &'static str), Vec<f64>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(command) = arguments.first().filter(|word| !word.starts_with("--")) else {
        eprintln!("usage: items CROSSDOCK [--quick] [--json]");
        std::process::exit(2);
    };
    let rounds = if arguments.iter().any(|word| word == "--quick") { 5 } else { 9 };
    let daemon = Daemon::start(Path::new(command));
    let endpoint = daemon.socket();
    // The processes for the other side of all measurements are forked before this process has a second thread. A session
    // has a thread.
    let words = Words::new();
    let (ours, relay_a) = socket::pair().expect("a pair");
    let (relay_b, theirs) = socket::pair().expect("a pair");
    let relay = child::fork(|| floors::relay(&relay_a, &relay_b)).expect("a relay");
    let peer = child::fork(|| {
        drop(daemon.connect());
        let session = handing::join(&endpoint, "pong");
        for _ in 0..rounds {
            for pace in Pace::BOTH {
                floors::Futex::new(&words, false).answer(pace, &words);
                floors::Messages(&theirs).answer(pace, &words);
                for key in keys() {
                    Hand::new(&session, key, "ping").answer(pace, &words);
                }
            }
        }
        for _ in 0..rounds {
            for pace in Pace::BOTH {
                Hand::new(&session, SIZES[0].0, "ping").answer(pace, &words);
            }
        }
        0
    });
    let peer = peer.expect("a peer");
    // The first connection waits until the daemon answers.
    drop(daemon.connect());
    let session = handing::join(&endpoint, "ping");
    let folder = Folder::mount(2 << 30).or_else(|_| Folder::shared_memory()).expect("a memory file system");
    handing::create(&session, COOPERATIVE, 10_000, ItemLevel::Cooperative);
    for (name, size) in SIZES {
        handing::create(&session, name, size, ItemLevel::Verified);
    }
    let (mut times, mut maps) = (Times::new(), BTreeMap::<&str, Vec<f64>>::new());
    for _ in 0..rounds {
        for pace in Pace::BOTH {
            let mut took = |what, time| times.entry((pace, what)).or_default().push(time);
            took("futex", floors::Futex::new(&words, true).ask(pace, &words));
            took("messages", floors::Messages(&ours).ask(pace, &words));
            for key in keys() {
                took(key, Hand::new(&session, key, "pong").ask(pace, &words));
            }
        }
        for (name, size) in SIZES {
            maps.entry(name).or_default().push(floors::map(&folder, size));
        }
    }
    for number in 0..OTHERS {
        handing::create(&session, &format!("other {number}"), 1, ItemLevel::Verified);
    }
    for _ in 0..rounds {
        for pace in Pace::BOTH {
            let time = Hand::new(&session, SIZES[0].0, "pong").ask(pace, &words);
            times.entry((pace, AMONG)).or_default().push(time);
        }
    }
    child::ended(peer, true).expect("the peer ends");
    drop(ours);
    let _ = child::signal(relay, child::Signal::KILL);
    let _ = child::ended(relay, true);
    let copies: u64 = session.list().map(|l| l.items.iter().map(|i| i.copies).sum()).unwrap_or(0);
    assert_eq!(copies, 0, "an honest owner's item was copied");
    print(&Pace::BOTH.into_iter().flat_map(|pace| records(pace, &times, &maps)).collect::<Vec<_>>());
}

fn keys() -> impl Iterator<Item = &'static str> {
    std::iter::once(COOPERATIVE).chain(SIZES.iter().map(|(name, _)| *name))
}

fn records(pace: Pace, times: &Times, maps: &BTreeMap<&str, Vec<f64>>) -> Vec<Record> {
    let times = |what| &times[&(pace, what)];
    let record = |id, case: String, runs: &[f64], floor: f64, limit: f64, aim| {
        let mut record = Record::below(id, format!("{case}, {}", pace.name()), "µs", runs.to_vec(), limit, aim);
        record.floor = Some(floor);
        record
    };
    let (messages, futex) = (median(times("messages")), median(times("futex")));
    let mut records = Vec::new();
    for (name, size) in SIZES.iter().map(|(name, _)| (*name, *name)).chain([(AMONG, SIZES[0].0)]) {
        let floor = messages + median(&maps[size]);
        let aim = "≤ 1.2 × (two SOCK_SEQPACKET hops + map)";
        records.push(record("P12", format!("verified, {name}"), times(name), floor, 1.2 * floor, aim));
    }
    // The smallest and the largest size are measured in turn, so that changes of the machine's speed affect both alike.
    let ends = [times(SIZES[0].0), times(SIZES[SIZES.len() - 1].0)];
    let over: Vec<f64> = ends[0].iter().zip(ends[1]).map(|(least, most)| most / least).collect();
    let case = format!("verified, 1 GB over 10 KB, {}", pace.name());
    records.push(Record::below("P12", case, "x", over, 1.1, "flat within 10 %"));
    let aim = "≤ 1 × the futex floor";
    records.push(record("P13", COOPERATIVE.into(), times(COOPERATIVE), futex, futex, aim));
    records
}
