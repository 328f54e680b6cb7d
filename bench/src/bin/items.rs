//! Items handed over between two processes (P12, P13), beside floors of the same run: two hops over SOCK_SEQPACKET
//! through a third process and the mapping of a file of that size (verified), and a futex (cooperative).
//!
//! `items CROSSDOCK [--quick] [--json]`
//!
//! Hand-over only: the receiver reads and writes one word. One way is half of a round trip; both processes sleep while they
//! wait. Rounds of all kinds take turns, so that a busy machine hurts all alike; medians are shown.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, Record, median, print};
use crossdock_client::{ConnectOptions, ItemLevel, ItemOptions, Session};
use crossdock_os::socket::{self, Received};
use crossdock_os::tmpfs::Folder;
use crossdock_os::{Access, Deadline, Mapping, child, event, futex, memfd};

const SIZES: [(&str, u64); 6] = [
    ("10 KB", 10_000),
    ("100 KB", 100_000),
    ("1 MB", 1_000_000),
    ("10 MB", 10_000_000),
    ("100 MB", 100_000_000),
    ("1 GB", 1_000_000_000),
];
const WAIT: Duration = Duration::from_secs(60);
const TRIPS: u32 = 200;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(command) = arguments.first().filter(|word| !word.starts_with("--")) else {
        eprintln!("usage: items CROSSDOCK [--quick] [--json]");
        std::process::exit(2);
    };
    let quick = arguments.iter().any(|word| word == "--quick");
    let (rounds, sizes) = if quick { (3, &SIZES[..4]) } else { (9, &SIZES[..]) };
    let daemon = Daemon::start(Path::new(command));
    let socket = daemon.socket();
    drop(daemon.connect());
    // The other side of everything, before this process has any thread.
    let words =
        Mapping::new(memfd::create("bench", 4096).expect("memory"), 4096, Access::ReadWrite).expect("a mapping");
    let (ours, relay_a) = socket::pair().expect("a pair");
    let (relay_b, theirs) = socket::pair().expect("a pair");
    let relay = child::fork(|| relay(&relay_a, &relay_b)).expect("a relay");
    let peer = child::fork(|| {
        let session = join(&socket, "pong");
        for _ in 0..rounds {
            answer_futex(&words);
            answer_messages(&theirs);
            answer_items(&session, "cooperative", ItemLevel::Cooperative);
            for (name, _) in sizes {
                answer_items(&session, name, ItemLevel::Verified);
            }
        }
        0
    });
    let peer = peer.expect("a peer");
    let session = join(&socket, "ping");
    let folder = Folder::mount(2 << 30).or_else(|_| Folder::shared_memory()).expect("a memory file system");
    let (mut times, mut maps) = (BTreeMap::<&str, Vec<f64>>::new(), BTreeMap::<&str, Vec<f64>>::new());
    create(&session, "cooperative", 10_000, ItemLevel::Cooperative);
    for (name, size) in sizes {
        create(&session, name, *size, ItemLevel::Verified);
    }
    for _ in 0..rounds {
        times.entry("futex").or_default().push(ask_futex(&words));
        times.entry("messages").or_default().push(ask_messages(&ours));
        times.entry("cooperative").or_default().push(ask_items(&session, "cooperative"));
        for (name, size) in sizes {
            times.entry(name).or_default().push(ask_items(&session, name));
            maps.entry(name).or_default().push(map(&folder, *size));
        }
    }
    child::ended(peer, true).expect("the peer ends");
    drop(ours);
    let _ = child::signal(relay, child::Signal::KILL);
    let _ = child::ended(relay, true);
    let copies: u64 = session.list().map(|l| l.items.iter().map(|i| i.copies).sum()).unwrap_or(0);
    assert_eq!(copies, 0, "an honest owner's item was copied");
    print(&records(&times, &maps));
}

fn records(times: &BTreeMap<&str, Vec<f64>>, maps: &BTreeMap<&str, Vec<f64>>) -> Vec<Record> {
    let record = |id, case: String, runs: &[f64], floor: f64, limit: f64, aim| {
        let mut record = Record::below(id, case, "µs", runs.to_vec(), limit, aim);
        record.floor = Some(floor);
        record
    };
    let (messages, futex) = (median(&times["messages"]), median(&times["futex"]));
    let mut records = Vec::new();
    for (name, _) in SIZES.iter().filter(|(name, _)| maps.contains_key(name)) {
        let floor = messages + median(&maps[name]);
        let aim = "≤ 1.5 × (two SOCK_SEQPACKET hops + map)";
        records.push(record("P12", format!("verified, {name}"), &times[name], floor, 1.5 * floor, aim));
    }
    let largest = records.last().map_or(0.0, |r| r.value);
    let flat = record(
        "P12",
        "verified, largest over 10 KB".into(),
        &[largest],
        records[0].value,
        1.1 * records[0].value,
        "flat within 10 %",
    );
    records.push(flat);
    records.push(record(
        "P13",
        "cooperative".into(),
        &times["cooperative"],
        futex,
        2.0 * futex,
        "≤ 2 × the futex floor",
    ));
    records
}

fn join(socket: &Path, task: &str) -> Session {
    let options = ConnectOptions {
        socket: Some(socket.into()),
        task: Some(task.into()),
        private_daemon: false,
        ..ConnectOptions::default()
    };
    Session::connect(&options).expect("the daemon answers")
}

fn create(session: &Session, key: &str, size: u64, level: ItemLevel) {
    let options = ItemOptions { level, ..ItemOptions::bytes(size) };
    let mut item = session.create_item(&key.replace(' ', "-"), &options).expect("room for it");
    // All of its pages are there and in use.
    item.bytes_mut().fill(1);
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS) / 2.0
}

fn ask_items(session: &Session, key: &str) -> f64 {
    let key = key.replace(' ', "-");
    let mut item = session.access_item(&key, Some(WAIT)).expect("it comes back");
    let mut began = Instant::now();
    for trip in 0..=TRIPS {
        // The first trip is for warming up, and for the other to have arrived.
        if trip == 1 {
            began = Instant::now();
        }
        item.bytes_mut()[0] = trip as u8;
        item.transfer("pong").expect("transferred");
        item = session.access_item(&key, Some(WAIT)).expect("it comes back");
    }
    micros(began)
}

fn answer_items(session: &Session, key: &str, _: ItemLevel) {
    let key = key.replace(' ', "-");
    for _ in 0..=TRIPS {
        let mut item = session.access_item(&key, Some(WAIT)).expect("it comes");
        item.bytes_mut()[1] = item.bytes()[0];
        item.transfer("ping").expect("transferred");
    }
}

/// Waits until the word is `until`.
fn await_word(word: &AtomicU32, until: u32) {
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == until {
            return;
        }
        futex::wait(word, seen, Deadline::after(WAIT));
    }
}

fn ask_futex(words: &Mapping) -> f64 {
    let (there, back) = (words.word32(0).expect("within"), words.word32(64).expect("within"));
    await_word(back, 7);
    back.store(0, Ordering::Release);
    let began = Instant::now();
    for trip in 1..=TRIPS {
        there.store(trip, Ordering::Release);
        futex::wake(there, 1);
        await_word(back, trip + 1000);
    }
    micros(began)
}

fn answer_futex(words: &Mapping) {
    let (there, back) = (words.word32(0).expect("within"), words.word32(64).expect("within"));
    there.store(0, Ordering::Release);
    back.store(7, Ordering::Release);
    futex::wake(back, 1);
    for trip in 1..=TRIPS {
        await_word(there, trip);
        back.store(trip + 1000, Ordering::Release);
        futex::wake(back, 1);
    }
}

fn take(socket: &std::os::fd::OwnedFd) -> bool {
    let mut buffer = [0; 256];
    loop {
        match socket::receive(socket, &mut buffer) {
            Ok(Some(Received::Message(..))) => return true,
            Ok(Some(_)) | Err(_) => return false,
            Ok(None) => drop(event::wait_readable(socket, Deadline::after(WAIT))),
        }
    }
}

fn ask_messages(socket: &std::os::fd::OwnedFd) -> f64 {
    let mut began = Instant::now();
    for trip in 0..=TRIPS {
        if trip == 1 {
            began = Instant::now();
        }
        socket::send(socket, &[0; 168], &[]).expect("sent");
        assert!(take(socket), "the peer is there");
    }
    micros(began)
}

fn answer_messages(socket: &std::os::fd::OwnedFd) {
    for _ in 0..=TRIPS {
        assert!(take(socket), "the other is there");
        socket::send(socket, &[0; 168], &[]).expect("sent");
    }
}

/// Passes on what comes from either side: a daemon that does nothing.
fn relay(one: &std::os::fd::OwnedFd, other: &std::os::fd::OwnedFd) -> i32 {
    loop {
        for (from, to) in [(one, other), (other, one)] {
            if !take(from) || socket::send(to, &[0; 168], &[]).is_err() {
                return 0;
            }
        }
    }
}

/// Opens, maps, touches and unmaps a file of this size; all of its pages are there.
fn map(folder: &Folder, size: u64) -> f64 {
    let file = folder.create("map", size).expect("room for it");
    memfd::reserve(&file, 0, size).expect("room for it");
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let again = if folder.has_read_only_door() {
            folder.open_writer("map").expect("it is there")
        } else {
            crossdock_os::tmpfs::open_anew(&file, Access::ReadWrite).expect("it is there")
        };
        let mapping = Mapping::new(&again, size as usize, Access::ReadWrite).expect("a mapping");
        drop(again);
        mapping.word64(0).expect("within").store(1, Ordering::Relaxed);
        drop(mapping);
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let _ = folder.remove("map");
    median(&took)
}
