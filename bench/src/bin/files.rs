//! Measures files in managed directories (P14 and Y5). They are compared with plain tmpfs, with polling, with direct
//! calls of inotify, and with running the producer and the consumer one after the other.
//!
//! The command line is `files PRELOAD SHIM [--quick] [--json]`, with the preload library and the static shim program.
//! It makes directories in /dev/shm and removes them before it ends. `files part …` runs one process of a measurement.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_bench::{Record, median, print};
use crossdock_core::files::{VARIABLE, Views};
use crossdock_files::{Keep, Publish, Service};
use crossdock_layout::files::Phase;
use crossdock_os::clock::now_ns;
use crossdock_os::inotify::{Change, Watch};

/// The time that a producer computes before it writes each file.
const STEP: Duration = Duration::from_millis(2);
const FILES: usize = 64;
const MOVED: u64 = 64 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    match &words[..] {
        ["part", rest @ ..] => part(rest),
        [preload, shim, rest @ ..] => measure(&Doors { preload, shim }, rest.contains(&"--quick")),
        _ => {
            eprintln!("usage: files PRELOAD SHIM [--quick] [--json]");
            std::process::exit(2);
        }
    }
}

/// Runs one process of a measurement. It prints the time of the monotonic clock for each of its steps.
fn part(words: &[&str]) {
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match *words {
        ["open", path, times] => {
            let once = || drop(File::open(path).expect("a published file"));
            (0..200).for_each(|_| once());
            let begun = Instant::now();
            (0..number(times)).for_each(|_| once());
            println!("{}", begun.elapsed().as_nanos() as f64 / number(times) as f64);
        }
        ["await", folder, files] => {
            for file in 0..number(files) {
                let opened = File::open(format!("{folder}/{file}")).expect("a file that comes");
                println!("{}", now_ns());
                drop(opened);
            }
        }
        ["read", path, times] => {
            let mut buffer = vec![0; 1 << 20];
            for _ in 0..number(times) {
                let begun = Instant::now();
                read_all(Path::new(path), &mut buffer);
                println!("{}", begun.elapsed().as_nanos());
            }
        }
        ["produce", method, folder, files, bytes] => {
            let content = vec![7u8; number(bytes)];
            for file in 0..number(files) {
                std::thread::sleep(STEP);
                println!("{}", now_ns());
                fs::write(format!("{folder}/{file}"), &content).expect("room in memory");
                if matches!(method, "polling" | "markers") {
                    fs::write(format!("{folder}/{file}.done"), "").expect("room in memory");
                }
            }
        }
        ["consume", method, folder, files, bytes] => {
            let mut buffer = vec![0; 1 << 20];
            let watch = Watch::new().expect("inotify");
            watch.add(Path::new(folder)).expect("the folder");
            for file in 0..number(files) {
                let path = PathBuf::from(format!("{folder}/{file}"));
                match method {
                    "polling" => poll(&path, Duration::from_millis(10)),
                    "markers" => poll(&path, Duration::from_micros(100)),
                    "inotify" => by_hand(&watch, file, folder),
                    "library" => crossdock_client::await_file(&path).expect("a file that comes"),
                    _ => {}
                }
                let read = read_all(&path, &mut buffer);
                assert_eq!(read, number(bytes), "{method}: a file is read in part");
                println!("{}", now_ns());
            }
        }
        _ => panic!("no part {words:?}"),
    }
}

fn read_all(path: &Path, buffer: &mut [u8]) -> usize {
    let mut file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut read = 0;
    loop {
        match file.read(buffer).expect("a file that is there") {
            0 => return read,
            more => read += more,
        }
    }
}

fn poll(path: &Path, every: Duration) {
    while !path.with_extension("done").exists() {
        std::thread::sleep(every);
    }
}

/// Waits until the file with this number was closed, or a later file exists. The producer writes the files in order.
fn by_hand(watch: &Watch, file: usize, folder: &str) {
    let later = || Path::new(&format!("{folder}/{}", file + 1)).exists();
    let mut closed = false;
    while !closed && !later() {
        let _ = crossdock_os::event::wait_readable(watch, crossdock_os::Deadline::after(Duration::from_millis(100)));
        let events = watch.read().expect("inotify");
        closed = events.iter().any(|e| e.change == Change::Closed && e.name.to_str() == Some(&file.to_string()));
    }
}

struct Doors<'a> {
    preload: &'a str,
    shim: &'a str,
}

/// A managed directory, and a plain folder in the same memory.
struct Place {
    root: PathBuf,
    service: Option<Service>,
}

impl Place {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(format!("/dev/shm/crossdock-bench-{name}-{}", std::process::id()));
        let service = Service::start(&root, &root.with_extension("notice"), "bench", Publish::Close, Keep::All);
        let service = service.expect("a managed directory");
        service.producers(Phase::Producing);
        fs::create_dir(root.join("plain")).expect("a folder");
        Self { root, service: Some(service) }
    }

    fn folder(&self, name: &str) -> String {
        self.root.join(name).to_str().expect("plain letters").to_owned()
    }

    /// Starts this program in another role. `door` names the means by which the program's calls wait for a file:
    /// `preload`, `notification` or `none`.
    fn start(&self, doors: &Doors<'_>, door: &str, words: &[&str]) -> Child {
        let own = std::env::current_exe().expect("this program");
        let mut command = match door {
            "notification" => {
                let mut command = Command::new(doors.shim);
                command.args(["door", "notification", "-", "--"]).arg(own);
                command
            }
            _ => Command::new(own),
        };
        if door == "preload" {
            command.env("LD_PRELOAD", doors.preload);
        }
        let notice = self.root.with_extension("notice");
        let line =
            Views::line(&self.folder("published"), notice.to_str().expect("letters"), Duration::from_secs(60), &[]);
        command.arg("part").args(words).env(VARIABLE, line).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("this program again")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.service = None;
        let _ = fs::remove_dir_all(&self.root);
        let _ = fs::remove_file(self.root.with_extension("notice"));
    }
}

fn told(child: Child) -> Vec<f64> {
    let output = child.wait_with_output().expect("a part");
    assert!(output.status.success(), "a part failed");
    let text = String::from_utf8(output.stdout).expect("numbers");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

fn measure(doors: &Doors<'_>, quick: bool) {
    let mut records = open(doors, quick);
    records.extend(close_to_open(doors, quick));
    records.extend(throughput(doors, quick));
    let sizes: &[(&str, usize, usize)] = if quick {
        &[("185 B", 185, FILES), ("1 MB", 1_000_000, FILES)]
    } else {
        &[
            ("185 B", 185, FILES),
            ("1 MB", 1_000_000, FILES),
            ("10 MB", 10_000_000, FILES),
            ("100 MB, 8 files", 100_000_000, 8),
        ]
    };
    for (size, bytes, files) in sizes {
        for pairs in if quick || *bytes > 10_000_000 { 1..=1 } else { 1..=2 } {
            records.extend(workflow(doors, size, *bytes, *files, pairs));
        }
    }
    print(&records);
}

/// Measures how much longer it takes to open a published file with each door (the means by which a call waits for a
/// file). Opens without a door are measured in the same rounds.
fn open(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
    let place = Place::new("open");
    fs::write(place.root.join("stage/file"), "x").expect("room");
    let path = place.folder("published/file");
    while !Path::new(&path).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..if quick { 5 } else { 15 } {
        for door in ["none", "preload", "notification"] {
            times.entry(door).or_default().push(told(place.start(doors, door, &["open", &path, "5000"]))[0] / 1000.0);
        }
    }
    let more = |door: &str| times[door].iter().zip(&times["none"]).map(|(with, plain)| with - plain).collect();
    let record = |door: &str, limit, aim| {
        let mut record = Record::below(
            "P14",
            format!("open of a published file, {door}, more than plain"),
            "µs",
            more(door),
            limit,
            aim,
        );
        record.floor = Some(median(&times["none"]));
        record
    };
    vec![record("preload", 2.0, "≤ 2 µs more"), record("notification", 15.0, "≤ 15 µs more")]
}

/// Measures the time from the producer's close of a file until the consumer's open, which waits for this file, returns.
fn close_to_open(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
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
        let opened = told(consumer);
        // The first 20 times are left out, because they include the start of the consumer.
        opened.iter().zip(&closed).skip(20).map(|(opened, closed)| (opened - closed) / 1000.0).collect::<Vec<f64>>()
    };
    let record = |door: &str| {
        Record::below("P14", format!("close to open, {door}"), "µs", latency(door), 100.0, "≤ 100 µs on one node")
    };
    ["preload", "notification"].map(record).into()
}

/// Measures reading and writing of a published file, compared with plain tmpfs.
fn throughput(doors: &Doors<'_>, quick: bool) -> Vec<Record> {
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
            let times = told(place.start(doors, door, &["read", &place.folder(path), "3"]));
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

/// Runs pairs of a producer and a consumer, by each method. The time of a file lasts from the producer's first byte
/// until the consumer has read the last byte.
fn workflow(doors: &Doors<'_>, size: &str, bytes: usize, files: usize, pairs: usize) -> Vec<Record> {
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for method in ["preload", "notification", "library", "sequential", "polling", "inotify", "markers"] {
        let is_ours = matches!(method, "preload" | "notification" | "library");
        let places: Vec<Place> = (0..pairs).map(|pair| Place::new(&format!("pair-{pair}"))).collect();
        let (count, length) = (files.to_string(), bytes.to_string());
        let consume = |place: &Place| {
            let folder = place.folder(if is_ours { "published" } else { "plain" });
            place.start(doors, method, &["consume", method, &folder, &count, &length])
        };
        let produce = |place: &Place| {
            let folder = place.folder(if is_ours { "stage" } else { "plain" });
            place.start(doors, "none", &["produce", method, &folder, &count, &length])
        };
        let (begun, ended): (Vec<Vec<f64>>, Vec<Vec<f64>>) = if method == "sequential" {
            let producers: Vec<Child> = places.iter().map(produce).collect();
            let begun = producers.into_iter().map(told).collect();
            let consumers: Vec<Child> = places.iter().map(consume).collect();
            (begun, consumers.into_iter().map(told).collect())
        } else {
            let consumers: Vec<Child> = places.iter().map(consume).collect();
            let producers: Vec<Child> = places.iter().map(produce).collect();
            (producers.into_iter().map(told).collect(), consumers.into_iter().map(told).collect())
        };
        let of_pair = |(begun, ended): (&Vec<f64>, &Vec<f64>)| {
            begun.iter().zip(ended).map(|(begun, ended)| (ended - begun) / 1e6).collect::<Vec<f64>>()
        };
        times.insert(method, begun.iter().zip(&ended).flat_map(of_pair).collect());
    }
    let peers: BTreeMap<String, f64> = ["sequential", "polling", "inotify", "markers"]
        .iter()
        .map(|method| ((*method).to_owned(), median(&times[method])))
        .collect();
    let sequential = peers["sequential"];
    let record = |door: &str| {
        let (limit, aim) = if bytes < 100_000_000 {
            (sequential / 6.0, "≥ 6 × the sequential approach")
        } else {
            (sequential, "ahead of the sequential approach")
        };
        let case = format!("{size}, {pairs} pairs, {door}, one file");
        let mut record = Record::below("Y5", case, "ms", times[door].clone(), limit, aim);
        record.floor = Some(peers["markers"]);
        record.peers = peers.clone();
        record
    };
    ["preload", "notification", "library"].map(record).into()
}
