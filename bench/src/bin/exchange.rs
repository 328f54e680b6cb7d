//! Measures table I of the CDI paper: how long a payload takes from one process to another on the same node, for sizes
//! from 10 KB to 1 GB. The payload goes over TCP, over gRPC (`--grpc PROGRAM`, bench/peers/grpc), or as an item that is
//! transferred (cooperative, verified and strict).
//!
//! The command line is `exchange CROSSDOCK [--grpc PROGRAM] [--quick] [--json]`.
//!
//! Each case has two figures. The *whole* lasts from before the sender writes the first word until the receiver has
//! read the last word. The *hand-over* lasts from the end of the writing until the beginning of the reading. Both
//! processes read the same monotonic clock. The sender writes the number of the round into every word, and checks the
//! sum that the receiver read.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossdock_bench::{Daemon, Point, Record, median, print};
use crossdock_client::{ConnectOptions, ItemLevel, ItemOptions, Session};
use crossdock_os::clock::now_ns;

const SIZES: [(usize, u64); 6] =
    [(10_000, 400), (100_000, 300), (1_000_000, 100), (10_000_000, 20), (100_000_000, 7), (1_000_000_000, 3)];
const LEVELS: [(&str, ItemLevel); 3] =
    [("cooperative", ItemLevel::Cooperative), ("verified", ItemLevel::Verified), ("strict", ItemLevel::Strict)];
const WAIT: Duration = Duration::from_secs(60);
/// How long both processes sleep before the rounds of each size. A kernel may choose a CPU for a process by how busy the
/// CPUs have been in the last tenth of a second. The start of the processes must not decide this for the first rounds.
const REST: Duration = Duration::from_millis(300);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "--receive") {
        return receive(&arguments[1..]);
    }
    let value = |name: &str| arguments.iter().position(|word| word == name).and_then(|n| arguments.get(n + 1));
    let Some(command) = arguments.first().filter(|word| !word.starts_with("--")) else {
        eprintln!("usage: exchange CROSSDOCK [--grpc PROGRAM] [--quick] [--json]");
        std::process::exit(2);
    };
    let cases: Vec<(usize, u64)> = match arguments.iter().any(|word| word == "--quick") {
        true => SIZES[..4].iter().map(|&(size, rounds)| (size, rounds.div_ceil(4))).collect(),
        false => SIZES.to_vec(),
    };
    let mut ways = BTreeMap::from([("tcp", tcp(&cases))]);
    if let Some(program) = value("--grpc") {
        ways.insert("grpc", grpc(Path::new(program), &cases));
    }
    for (name, _) in LEVELS {
        ways.insert(name, items(Path::new(command), name, &cases));
    }
    let floors = floors(&cases);
    let (mut records, mut points) = (Vec::new(), Vec::new());
    for (index, &(size, _)) in cases.iter().enumerate() {
        for (panel, pick) in [("whole", whole as fn(&Times) -> Vec<f64>), ("hand-over only", handover)] {
            let floor = (panel == "whole").then_some(floors[index]);
            let peers = ["tcp", "grpc"]
                .into_iter()
                .filter_map(|peer| ways.get(peer).map(|times| (peer.to_owned(), median(&pick(&times[index])))));
            let peers: BTreeMap<String, f64> = peers.collect();
            for (way, times) in &ways {
                let runs = pick(&times[index]);
                let case = format!("{}, {panel}, {way}", size_text(size));
                let point = |record| Point::new(record, "CDI, table I", size, *way).in_panel(panel);
                if peers.contains_key(*way) {
                    points.push(point(figure_only(case, runs)));
                } else {
                    let record = record(case, runs, floor, peers.clone());
                    points.push(point(record.clone()));
                    records.push(record);
                }
            }
        }
    }
    if arguments.iter().any(|word| word == "--json") {
        println!("{}", serde_json::to_string(&points).expect("numbers and texts"));
    } else {
        table(&ways, &floors, &cases);
        print(&records);
    }
}

/// Prints table I of the CDI paper with the measured times, in milliseconds.
fn table(ways: &BTreeMap<&str, Vec<Times>>, floors: &[f64], cases: &[(usize, u64)]) {
    let head: Vec<String> = cases.iter().map(|(size, _)| size_text(*size)).collect();
    for (panel, pick) in [("whole", whole as fn(&Times) -> Vec<f64>), ("hand-over only", handover)] {
        println!("\n| {panel}, ms | {} |\n|---|{}", head.join(" | "), "---|".repeat(cases.len()));
        let row = |name: &str, values: Vec<f64>| {
            let cells: Vec<String> = values.iter().map(|us| format!("{:.4}", us / 1e3)).collect();
            println!("| {name} | {} |", cells.join(" | "));
        };
        if panel == "whole" {
            row("floor: written and read by one process", floors.to_vec());
        }
        for (way, times) in ways {
            row(way, times.iter().map(|times| median(&pick(times))).collect());
        }
    }
    println!();
}

/// For one way and one size: the whole time and the hand-over time of each round, in microseconds.
type Times = Vec<(f64, f64)>;

fn whole(times: &Times) -> Vec<f64> {
    times.iter().map(|time| time.0).collect()
}

fn handover(times: &Times) -> Vec<f64> {
    times.iter().map(|time| time.1).collect()
}

/// Makes a record of a result. Its aim is to be no slower than the fastest peer.
fn record(case: String, runs: Vec<f64>, floor: Option<f64>, peers: BTreeMap<String, f64>) -> Record {
    let value = median(&runs);
    let ratio = value / peers.values().copied().fold(f64::INFINITY, f64::min);
    let aim = if peers.len() > 1 { "faster than TCP and gRPC" } else { "faster than TCP" };
    Record { id: "C3", case, value, unit: "µs", floor, peers, aim, ratio, met: ratio <= 1.0, runs }
}

/// Makes a record of a peer's result, which has no aim.
fn figure_only(case: String, runs: Vec<f64>) -> Record {
    let (value, peers) = (median(&runs), BTreeMap::new());
    Record { id: "C3", case, value, unit: "µs", floor: None, peers, aim: "", ratio: 0.0, met: true, runs }
}

fn size_text(size: usize) -> String {
    match size {
        1_000_000_000.. => format!("{} GB", size / 1_000_000_000),
        1_000_000.. => format!("{} MB", size / 1_000_000),
        _ => format!("{} KB", size / 1000),
    }
}

fn write_words(memory: &mut [u8], round: u64) {
    for word in memory.chunks_exact_mut(8) {
        word.copy_from_slice(&round.to_ne_bytes());
    }
}

fn read_words(memory: &[u8]) -> u64 {
    memory
        .chunks_exact(8)
        .fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap_or_default())))
}

/// Measures the floor of the whole time: one process writes and reads the data in its own memory.
fn floors(cases: &[(usize, u64)]) -> Vec<f64> {
    let one = |&(size, rounds): &(usize, u64)| {
        let mut memory = vec![1u8; size];
        let mut runs = Vec::new();
        for round in 0..rounds + 2 {
            let begun = now_ns();
            write_words(&mut memory, round);
            let sum = read_words(std::hint::black_box(&memory));
            runs.push((now_ns() - begun) as f64 / 1e3);
            assert_eq!(sum, round.wrapping_mul(size as u64 / 8));
        }
        median(&runs[2..])
    };
    cases.iter().map(one).collect()
}

/// The receiving process. Through a pipe it reports when it got a payload, when it had read it, and the sum of the
/// words.
struct Other {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(arguments: &[String]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(program)
            .arg("--receive")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let said = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        Self { child, said }
    }

    fn taken(&mut self, begun: u64, written: u64, expected: u64) -> (f64, f64) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("the other process answers");
        let words: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [got, read, sum] = words[..] else { panic!("the other process said: {line}") };
        assert_eq!(sum, expected, "the receiver read something else than was written");
        ((read - begun) as f64 / 1e3, (got - written) as f64 / 1e3)
    }

    fn ends(mut self) {
        assert!(self.child.wait().expect("it is our child").success(), "the other process failed");
    }
}

fn cases_text(cases: &[(usize, u64)]) -> Vec<String> {
    cases.iter().map(|(size, rounds)| format!("{size}:{rounds}")).collect()
}

fn tcp(cases: &[(usize, u64)]) -> Vec<Times> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be listened at");
    let address = listener.local_addr().expect("it has an address").to_string();
    let mut other = Other::start(&[vec!["tcp".to_owned(), address], cases_text(cases)].concat());
    let (mut stream, _) = listener.accept().expect("the other process connects");
    stream.set_nodelay(true).expect("it can be set");
    let mut all = Vec::new();
    for &(size, rounds) in cases {
        let (mut memory, mut times) = (vec![0u8; size], Times::new());
        std::thread::sleep(REST);
        for round in 0..rounds + 2 {
            let begun = now_ns();
            write_words(&mut memory, round);
            let written = now_ns();
            stream.write_all(&memory).expect("it can be sent");
            times.push(other.taken(begun, written, round.wrapping_mul(size as u64 / 8)));
        }
        all.push(times.split_off(2));
    }
    other.ends();
    all
}

/// Starts a daemon, and sends one item through it to the other process and back.
fn items(command: &Path, way: &str, cases: &[(usize, u64)]) -> Vec<Times> {
    let daemon = Daemon::start(command);
    // The first request to a daemon takes longer. So one request is made before the measurement.
    drop(daemon.connect());
    let session = connect_as(&daemon.socket(), "sender");
    let level = LEVELS.iter().find(|(name, _)| *name == way).expect("one of the levels").1;
    let socket = daemon.socket().to_string_lossy().into_owned();
    let mut other = Other::start(&[vec!["items".to_owned(), socket], cases_text(cases)].concat());
    let mut all = Vec::new();
    for &(size, rounds) in cases {
        let (key, mut times) = (format!("payload.{size}"), Times::new());
        let options = ItemOptions { level, ..ItemOptions::bytes(size as u64) };
        let mut item = session.create_item(&key, &options).expect("the item can be made");
        std::thread::sleep(REST);
        for round in 0..rounds + 2 {
            let begun = now_ns();
            write_words(&mut item.bytes_mut()[..size], round);
            let written = now_ns();
            item.transfer("receiver").expect("it can be handed over");
            times.push(other.taken(begun, written, round.wrapping_mul(size as u64 / 8)));
            item = session.access_item(&key, Some(WAIT)).expect("it comes back");
        }
        item.destroy().expect("it is ours");
        all.push(times.split_off(2));
    }
    other.ends();
    all
}

fn receive(arguments: &[String]) {
    let [way, place, cases @ ..] = arguments else { panic!("WAY PLACE SIZE:ROUNDS… are needed") };
    let cases = cases.iter().map(|case| {
        let (size, rounds) = case.split_once(':').expect("SIZE:ROUNDS");
        (size.parse::<usize>().expect("a number"), rounds.parse::<u64>().expect("a number"))
    });
    let say = |got: u64, sum: u64| println!("{got} {} {sum}", now_ns());
    if way == "tcp" {
        let mut stream = TcpStream::connect(place).expect("the sender listens");
        for (size, rounds) in cases {
            let mut memory = vec![0u8; size];
            for _ in 0..rounds + 2 {
                stream.read_exact(&mut memory).expect("the sender sends");
                let got = now_ns();
                say(got, read_words(&memory));
            }
        }
        return;
    }
    let session = connect_as(Path::new(place), "receiver");
    for (size, rounds) in cases {
        let key = format!("payload.{size}");
        for _ in 0..rounds + 2 {
            let item = session.access_item(&key, Some(WAIT)).expect("it is handed over");
            let got = now_ns();
            say(got, read_words(&item.bytes()[..size]));
            item.transfer("sender").expect("it can be handed back");
        }
    }
}

fn connect_as(socket: &Path, task: &str) -> Session {
    let options = ConnectOptions {
        socket: Some(PathBuf::from(socket)),
        task: Some(task.to_owned()),
        private_daemon: false,
        ..ConnectOptions::default()
    };
    Session::connect(&options).expect("the daemon runs")
}

fn grpc(program: &Path, cases: &[(usize, u64)]) -> Vec<Times> {
    let output = Command::new(program).args(cases_text(cases)).output().expect("the peer can be started");
    assert!(output.status.success(), "gRPC: {}", String::from_utf8_lossy(&output.stderr));
    let numbers = |word: &str| word.split(',').filter_map(|n| n.parse().ok()).collect::<Vec<f64>>();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let times = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        numbers(words[2]).into_iter().zip(numbers(words[3])).collect()
    };
    lines.lines().map(times).collect()
}
