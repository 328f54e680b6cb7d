//! Measures row P14, the costs of one file: its open, the wait for it, reading and writing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crossdock_bench::{Record, median};
use crossdock_os::clock::now_ns;

use crate::place::{Doors, Place, printed_numbers};

const MOVED: u64 = 64 << 20;

/// Measures how much longer it takes to open a published file with each door (the means by which a call waits for a
/// file). Opens without a door are measured in the same rounds.
pub fn open(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
    let place = Place::new("open");
    fs::write(place.root.join("stage/file"), "x").expect("room");
    let path = place.folder("published/file");
    while !Path::new(&path).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let times = call_times(doors, &place, &["none", "preload", "notification"], &["open", &path, "5000"], quick);
    let record = |door: &str, limit, aim| {
        let case = format!("open of a published file, {door}, more than plain");
        more_than_plain(&times, door, case, limit, aim)
    };
    vec![record("preload", 2.0, "≤ 2 µs more"), record("notification", 15.0, "≤ 15 µs more")]
}

/// For each door, the times of one call through this door, in microseconds: one for each round.
type CallTimes<'a> = BTreeMap<&'a str, Vec<f64>>;

/// Measures one call through each door in turn. `words` are the arguments of the measured process (part.rs). They say
/// which call the process makes.
fn call_times<'a>(doors: &Doors<'_>, place: &Place, behind: &[&'a str], words: &[&str], quick: bool) -> CallTimes<'a> {
    let mut times = CallTimes::new();
    for _ in 0..if quick { 5 } else { 15 } {
        for door in behind {
            times.entry(*door).or_default().push(printed_numbers(place.start(doors, door, words))[0] / 1000.0);
        }
    }
    times
}

/// Computes how much longer the call takes through this door than without a door.
fn more_than_plain(
    times: &CallTimes<'_>,
    door: &str,
    case: impl Into<String>,
    limit: f64,
    aim: &'static str,
) -> Record {
    let more = times[door].iter().zip(&times["none"]).map(|(with, plain)| with - plain).collect();
    let mut record = Record::below("P14", case, "µs", more, limit, aim);
    record.floor = Some(median(&times["none"]));
    record
}

/// Measures the cost of a producer's open for writing while the file is not published yet. With the option `watch`, the
/// kernel stops such an open, so that the task's log can say why it fails.
pub fn open_for_writing(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
    let place = Place::new("writing");
    fs::write(place.root.join("stage/.file"), "x").expect("room");
    let path = place.folder("stage/.file");
    let times = call_times(doors, &place, &["none", "watch"], &["write", &path, "5000"], quick);
    let case = "open for writing by a producer, stopped, more than plain";
    vec![more_than_plain(&times, "watch", case, 15.0, "≤ 15 µs more")]
}

/// Measures the time from the producer's close of a file until the consumer's open, which waits for this file, returns.
pub fn close_to_open(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
    let files = if quick { 100 } else { 500 };
    let latency = |door: &str| {
        let place = Place::new("latency");
        let consumer = place.start(doors, door, &["await", &place.folder("published"), &files.to_string()]);
        let mut closed = Vec::new();
        for file in 0..files {
            std::thread::sleep(Duration::from_millis(3));
            let mut written = File::create(place.root.join("stage").join(file.to_string())).expect("room");
            written.write_all(&[1; 185]).expect("room");
            closed.push(now_ns() as f64);
        }
        let opened = printed_numbers(consumer);
        // The first 20 times are left out, because the consumer was still starting.
        opened.iter().zip(&closed).skip(20).map(|(opened, closed)| (opened - closed) / 1000.0).collect::<Vec<f64>>()
    };
    let record = |door: &str| {
        Record::below("P14", format!("close to open, {door}"), "µs", latency(door), 100.0, "≤ 100 µs on one node")
    };
    ["preload", "notification"].map(record).into()
}

/// Measures reading and writing of a published file, compared with plain tmpfs.
pub fn throughput(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
    let place = Place::new("throughput");
    let content = vec![3u8; MOVED as usize];
    fs::write(place.root.join("stage/file"), &content).expect("room");
    fs::write(place.root.join("plain/file"), &content).expect("room");
    while !place.root.join("published/file").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut read, mut written) = (BTreeMap::<&str, Vec<f64>>::new(), [Vec::new(), Vec::new()]);
    for round in 0..if quick { 5 } else { 15 } {
        for (door, path) in [("none", "plain/file"), ("preload", "published/file"), ("notification", "published/file")]
        {
            let times = printed_numbers(place.start(doors, door, &["read", &place.folder(path), "3"]));
            read.entry(door).or_default().push(times.iter().copied().fold(f64::INFINITY, f64::min));
        }
        for (side, folder) in ["plain", "stage"].into_iter().enumerate() {
            let begun = Instant::now();
            let path = place.root.join(folder).join(format!("written-{round}"));
            fs::write(&path, &content).expect("room");
            written[side].push(begun.elapsed().as_nanos() as f64);
            let _ = fs::remove_file(&path);
        }
    }
    let aim = "≥ 0.98 × plain tmpfs";
    let over = |with: &[f64], plain: &[f64]| with.iter().zip(plain).map(|(with, plain)| with / plain).collect();
    let record = |case: String, runs| Record::below("P14", case, "x time", runs, 1.0 / 0.98, aim);
    let mut records: Vec<Record> = ["preload", "notification"]
        .iter()
        .map(|door| record(format!("read 64 MiB, {door}, over plain"), over(&read[door], &read["none"])))
        .collect();
    records.push(record("write 64 MiB into a managed directory, over plain".into(), over(&written[1], &written[0])));
    records
}
