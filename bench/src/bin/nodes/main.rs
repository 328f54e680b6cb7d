//! Measures how long an item, a message with an object, a version of a series and a managed file take from a task on one
//! node to a task on another node (row P15). Each is measured without TLS and with TLS. The same run measures raw TCP,
//! gRPC (`--grpc PROGRAM`, bench/peers/grpc) and the transactions of the embedded catalog.
//!
//! The command line is `nodes CROSSDOCK [--own IP --address IP --peer COMMAND] [--grpc PROGRAM] [--quick] [--json]`.
//!
//! This process is the sender on node `a`. Node `b`, its receiver and the catalog are at `--address`. They are started
//! through `--peer`, for example in another network namespace. A transfer begins before the sender's call, when the
//! data is written and the receiver waits. The transfer ends when the receiver has the object open. Both processes read
//! the same clock. Afterwards the receiver checks a word of each page. Rounds of all kinds alternate, so that other
//! programs slow all of them down alike. The first round is not measured, because in it connections are opened.
//! Transfers of 1 GB are made afterwards, one kind after another ([`huge`]).

mod catalog;
mod content;
mod grpc;
mod huge;
mod peer;
mod receive;
mod rows;
mod send;
mod site;
mod tcp;

use std::path::Path;

use crossdock_bench::print_points;

use rows::{SITES, Times};

/// A size of the objects that are transferred.
struct Size {
    name: &'static str,
    bytes: usize,
    /// The number of transfers in a round.
    times: usize,
    /// Whether a quick run measures this size.
    quick: bool,
}

const SIZES: [Size; 5] = [
    Size { name: "10 KB", bytes: 10_000, times: 20, quick: true },
    Size { name: "100 KB", bytes: 100_000, times: 20, quick: true },
    Size { name: "1 MB", bytes: 1_000_000, times: 10, quick: true },
    Size { name: "10 MB", bytes: 10_000_000, times: 4, quick: true },
    Size { name: "100 MB", bytes: 100_000_000, times: 1, quick: false },
];
const MOST: usize = SIZES[SIZES.len() - 1].bytes;

/// The path of `crossdock`, how to run a command on node `b`, and the addresses of both nodes.
struct Place<'a> {
    command: &'a Path,
    /// The words that start a command on node `b`.
    before: Vec<String>,
    /// The address of node `a`.
    own: &'a str,
    /// The address of node `b`.
    other: &'a str,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [role, setting] = &words[..] {
        if role == "--receive" {
            return receive::receive(setting);
        }
    }
    let value = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let Some(command) = words.first().filter(|word| !word.starts_with("--")) else {
        eprintln!("usage: nodes CROSSDOCK [--own IP --address IP --peer COMMAND] [--grpc PROGRAM] [--quick] [--json]");
        std::process::exit(2);
    };
    let address = |name: &str| value(name).map_or("127.0.0.1", String::as_str);
    let before: Vec<String> = value("--peer").iter().flat_map(|text| text.split(' ')).map(str::to_owned).collect();
    let quick = words.iter().any(|word| word == "--quick");
    let mut sizes: Vec<&Size> = SIZES.iter().filter(|size| size.quick || !quick).collect();
    let rounds = if quick { 4 } else { 11 };

    let place = Place { command: Path::new(command), before, own: address("--own"), other: address("--address") };
    let mut times = Times::default();
    let sites = site::Sites::start(&place, &SITES);
    if let Some(program) = value("--grpc") {
        grpc::measure(&mut times, program, &place, &sizes, rounds);
    }
    let mut senders: Vec<send::Senders> = sites.all.iter().map(|site| send::Senders::new(site, MOST)).collect();
    let mut peer = peer::Peer::start(&place, &sites.setting(&senders, MOST));
    let mut tcp = tcp::Floors::new(&peer.raw, MOST);
    let catalog = catalog::Client::new(&sites.all[0].catalog);
    let mut number = 0;
    for round in 0..=rounds {
        times.is_counted = round > 0;
        tcp.round_trip(&mut times);
        catalog.measure(&mut times, round);
        for size in &sizes {
            tcp.measure(&mut times, size);
            for (site, senders) in sites.all.iter().zip(&mut senders) {
                for (noun, sender) in senders.all() {
                    let mut took = Vec::new();
                    for _ in 0..size.times {
                        number += 1;
                        took.push(peer.transfer(site.name, noun, sender, size.bytes, number));
                    }
                    times.add_each(&[noun, site.name, size.name], &took);
                }
            }
        }
    }
    drop((tcp, peer, senders, sites));
    if !quick {
        sizes.extend(huge::measure(&mut times, &place, value("--grpc").map(String::as_str)));
    }
    print_points(&rows::points(&times, &sizes));
}
