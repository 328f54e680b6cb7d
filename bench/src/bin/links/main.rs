//! Measures how fast bytes are pulled from another node through a link (row P15). The same run measures raw TCP with
//! one stream and with four, links over gRPC and over UCX, a plain call of gRPC by another program, and UCX by
//! ucx_perftest.
//!
//! The command line is `links [--address IP] [--peer COMMAND…] [--grpc PROGRAM] [--quick] [--json]`. `--grpc` names the
//! program of `bench/peers/grpc`; without it, gRPC is measured by a link only.
//!
//! The serving side is a separate process that listens at `--address`. It is started through `--peer`, for example in
//! another network namespace. All ways transfer the same bytes into the same memory, which both sides have touched
//! before. Rounds of all ways alternate, so that other programs slow all of them down alike. The figures are medians.
//! The floor is [`raw`] TCP.

mod perftest;
mod served;
mod unary;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_bench::{Record, median, print, raw};
use crossdock_layout::wire::SegmentKind;
use crossdock_link::{
    Authority, Certificates, Grpc, Link, LinkOptions, Node, NodeCredentials, SourceId, Tcp, Transport, Trust, Ucx,
};
use crossdock_os::Deadline;

const SIZES: [(&str, usize); 5] =
    [("10 KB", 10_000), ("1 MB", 1_000_000), ("10 MB", 10_000_000), ("100 MB", 100_000_000), HUGE];
/// A size that only full runs measure, and only in one round.
const HUGE: (&str, usize) = ("1 GB", 1_000_000_000);
const WAYS: [&str; 10] = [
    "raw TCP",
    "raw TCP, 4 streams",
    "link",
    "link, 4 streams",
    "link, TLS",
    "link, TLS, 4 streams",
    "link over gRPC",
    "link over gRPC, TLS",
    "link over UCX",
    "link over UCX, 4 streams",
];
const OBJECT: SourceId = SourceId { kind: SegmentKind::Item, object: 7, epoch: 1 };

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// The range of [`WAYS`] that has the links of crossdock.
const LINKS: std::ops::Range<usize> = 2..WAYS.len();
/// The range of [`WAYS`] for which the project has an aim, which is a limit for the time.
const OURS: std::ops::Range<usize> = 2..6;
/// The name, in the results, of a unary gRPC call between two programs that do not use crossdock.
const UNARY: &str = "gRPC";
/// The name of a peer: a get of UCX, measured by the program of UCX's authors.
const PERFTEST: &str = "ucx_perftest, ucp_get";

/// The serving process. It is killed when this program ends.
struct Peer {
    child: Child,
    raw: String,
    plain: String,
    tls: String,
}

impl Peer {
    /// Starts the serving process. The object that it serves has `most` bytes.
    fn start(before: &[String], address: &str, papers: &std::path::Path, most: usize) -> Self {
        let own = std::env::current_exe().expect("this program's path").display().to_string();
        let words: Vec<&str> = before.iter().map(String::as_str).chain([own.as_str()]).collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["--serve", address])
            .arg(papers)
            .arg(most.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the serving process starts");
        let mut lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut next = || lines.next().expect("an address").expect("text");
        let (raw, plain, tls) = (next(), next(), next());
        Self { child, raw, plain, tls }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "--serve") {
        let most = arguments[3].parse().expect("a size");
        return served::serve(&arguments[1], std::path::Path::new(&arguments[2]), most);
    }
    let mut flag = |name: &str| {
        let at = arguments.iter().position(|word| word == name);
        at.map(|at| arguments.remove(at)).is_some()
    };
    let quick = flag("--quick");
    let mut value = |name: &str| {
        let at = arguments.iter().position(|word| word == name)?;
        arguments.remove(at);
        (at < arguments.len()).then(|| arguments.remove(at))
    };
    let address = value("--address").unwrap_or_else(|| "127.0.0.1".to_owned());
    let before: Vec<String> =
        value("--peer").map(|words| words.split(' ').map(str::to_owned).collect()).unwrap_or_default();
    let program = value("--grpc");
    let rounds = if quick { 5 } else { 11 };
    let sizes = if quick { &SIZES[..SIZES.len() - 1] } else { &SIZES[..] };
    let (_, most) = sizes[sizes.len() - 1];

    let authority = Authority::make("bench", Duration::from_secs(3600)).expect("an authority");
    let folder = std::env::temp_dir().join(format!("crossdock-links-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder for the peer's certificates");
    authority.issue("b").and_then(|papers| papers.save(&folder)).expect("papers");
    let peer = Peer::start(&before, &address, &folder, most);
    std::fs::remove_dir_all(&folder).expect("the folder is removed");

    let trust =
        |papers: &NodeCredentials| Trust::Certificates(Arc::new(Certificates::new(papers).expect("certificates")));
    let certificates = trust(&authority.issue("a").expect("papers"));
    let of = |trust: &Trust| -> [Arc<dyn Transport>; 2] {
        [Arc::new(Tcp::new(trust.clone())), Arc::new(Grpc::new(trust.clone()).expect("a thread"))]
    };
    let ([plain, grpc], [tls, grpc_tls]) = (of(&Trust::Network), of(&certificates));
    let link = |transport: &Arc<dyn Transport>, address: &str, streams: usize| {
        let options = LinkOptions { streams, ..LinkOptions::default() };
        let own = Node { name: "a".into(), incarnation: 1 };
        Link::open(transport.clone(), own, "b", address, options).expect("a link")
    };
    let mut links = vec![
        link(&plain, &peer.plain, 1),
        link(&plain, &peer.plain, 4),
        link(&tls, &peer.tls, 1),
        link(&tls, &peer.tls, 4),
        link(&grpc, &peer.plain, 1),
        link(&grpc_tls, &peer.tls, 1),
    ];
    // If this machine has no UCX, the rows have no peers that use it.
    match Ucx::load(&Trust::Network) {
        Ok(ucx) => {
            let ucx: Arc<dyn Transport> = Arc::new(ucx);
            links.extend([1, 4].map(|streams| link(&ucx, &peer.plain, streams)));
        }
        Err(why) => eprintln!("links: not over UCX: {why}"),
    }
    let ways = &WAYS[..LINKS.start + links.len()];
    let mut one = raw::Streams::connect(&peer.raw, 1);
    let mut four = raw::Streams::connect(&peer.raw, 4);
    let mut unary = program.map(|program| unary::Unary::start(&before, &program, &address, most));
    let mut memory = vec![1u8; most];
    let mut took: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..=rounds {
        for &(name, size) in sizes.iter().filter(|size| **size != HUGE || round == 1) {
            let times = (2_000_000 / size).clamp(1, 200);
            for (number, &way) in ways.iter().enumerate() {
                let memory = &mut memory[..size];
                memory.fill(0);
                let begun = Instant::now();
                for _ in 0..times {
                    match number {
                        0 => one.pull(memory),
                        1 => four.pull(memory),
                        _ => drop(links[number - LINKS.start].pull(&OBJECT, 0, memory, soon()).expect("pulled")),
                    }
                }
                let time = begun.elapsed().as_secs_f64() * 1e6 / times as f64;
                served::check(memory);
                // The first round is not measured, because the connections are opened and TCP's windows still grow in
                // this round.
                if round > 0 {
                    took.entry((name, way)).or_default().push(time);
                }
            }
            if let Some(time) = unary.as_mut().map(|unary| unary.pull(size, times)).filter(|_| round > 0) {
                took.entry((name, UNARY)).or_default().push(time);
            }
        }
    }
    if ways.len() == WAYS.len() {
        for &(name, size) in sizes {
            let times = perftest::get(&before, &address, size);
            took.extend(times.map(|time| ((name, PERFTEST), vec![time])));
        }
    }
    print(&records(&took, sizes));
}

fn records(took: &BTreeMap<(&'static str, &'static str), Vec<f64>>, sizes: &[(&'static str, usize)]) -> Vec<Record> {
    let mut records = Vec::new();
    for &(name, size) in sizes {
        let of = |way| &took[&(name, way)];
        let floor = median(of(WAYS[0])).min(median(of(WAYS[1])));
        let (limit, aim) = if size < 1_000_000 {
            (2.0 * floor, "≤ 2 × a raw TCP round trip, without the catalog's transaction")
        } else {
            (floor / 0.9, "≥ 0.9 × the best raw TCP")
        };
        let peer = |way: &&'static str| Some(((*way).to_owned(), median(took.get(&(name, *way))?)));
        let peers: BTreeMap<String, f64> = (0..WAYS.len())
            .filter(|number| !OURS.contains(number))
            .map(|number| WAYS[number])
            .chain([UNARY, PERFTEST])
            .filter_map(|way| peer(&way))
            .collect();
        for way in &WAYS[OURS] {
            if size < 1_000_000 && way.contains('4') {
                continue;
            }
            let mut record = Record::below("P15", format!("{way}, {name}"), "µs", of(way).clone(), limit, aim);
            record.floor = Some(floor);
            record.peers.clone_from(&peers);
            records.push(record);
        }
        if let Some(grpc) = peers.get(UNARY).filter(|_| size == 10_000_000) {
            let way = if median(of(WAYS[2])) < median(of(WAYS[3])) { WAYS[2] } else { WAYS[3] };
            let case = format!("{way}, {name}, against gRPC");
            let mut record = Record::below("P15", case, "µs", of(way).clone(), grpc / 5.0, "≥ 5 × gRPC at 10 MB");
            record.floor = Some(floor);
            record.peers.clone_from(&peers);
            records.push(record);
        }
    }
    records
}
