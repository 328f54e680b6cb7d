//! Measures how long an item, a message with an object, a version of a series and a managed file take from a task on one
//! node to a task on another node (P15). Each is measured without TLS and with TLS. The same run measures raw TCP, gRPC
//! (`--grpc PROGRAM`, bench/peers/grpc) and the transactions of the embedded catalog.
//!
//! The command line is `nodes CROSSDOCK [--own IP --address IP --peer COMMAND] [--grpc PROGRAM] [--quick] [--json]`.
//!
//! This process is the sender on node `a`. Node `b`, its receiver and the catalog are at `--address`. They are started
//! through `--peer`, for example in another network namespace. A transfer begins before the sender's call, when the data
//! is written and the receiver waits. It ends when the receiver has the object open. Both processes read the same clock.
//! Afterwards the receiver checks a word of each page. Rounds of all kinds alternate, so that other programs slow all of
//! them down alike. The first round is not measured, because in it connections are opened.

mod catalog;
mod content;
mod grpc;
mod peer;
mod receive;
mod rows;
mod send;
mod site;
mod tcp;

use std::path::Path;

use crossdock_bench::{median, print_points};

use rows::Times;

/// A size of an object.
struct Size {
    name: &'static str,
    bytes: usize,
    /// The number of transfers in a round.
    times: usize,
    /// Whether a quick run measures this size.
    quick: bool,
}

const SIZES: [Size; 4] = [
    Size { name: "10 KB", bytes: 10_000, times: 20, quick: true },
    Size { name: "1 MB", bytes: 1_000_000, times: 10, quick: true },
    Size { name: "10 MB", bytes: 10_000_000, times: 4, quick: true },
    Size { name: "100 MB", bytes: 100_000_000, times: 1, quick: false },
];
const MOST: usize = SIZES[SIZES.len() - 1].bytes;

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
    let address = |name| value(name).map_or("127.0.0.1", String::as_str);
    let before: Vec<String> = value("--peer").iter().flat_map(|text| text.split(' ')).map(str::to_owned).collect();
    let quick = words.iter().any(|word| word == "--quick");
    let sizes: Vec<&Size> = SIZES.iter().filter(|size| size.quick || !quick).collect();
    let rounds = if quick { 4 } else { 11 };

    let sites = site::Sites::start(Path::new(command), &before, [address("--own"), address("--address")]);
    let mut times = Times::default();
    if let Some(program) = value("--grpc") {
        grpc::measure(&mut times, program, &before, address("--address"), &sizes, rounds);
    }
    let mut senders: Vec<send::Senders> = sites.all.iter().map(send::Senders::new).collect();
    let mut peer = peer::Peer::start(&before, &sites.setting(address("--address"), &senders));
    let mut tcp = tcp::Floors::new(&peer.raw);
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
                    times.add(&[noun, site.name, size.name], median(&took));
                }
            }
        }
    }
    drop((peer, senders, sites));
    print_points(&rows::points(&times, &sizes));
}
