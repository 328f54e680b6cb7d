//! Measures the costs of observers, for figure 2 of the TCASM paper (docs/papers.md) and for two rows of
//! docs/benchmarks.md: P10 (how much the publisher slows down) and P11 (how long an observer takes to attach and to
//! follow a new version).
//!
//! The command line is `observers CROSSDOCK [--quick] [--json]`. Producer and observers are separate processes. If
//! there are two CPUs, the producer has the first one for itself. The program starts a daemon and ends it.

mod attach;
mod figure;
mod point;
mod queue;
mod series;
mod shared;
mod slowdown;

use std::path::Path;

use crossdock_bench::{Daemon, Point, print_points};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("observe") => return figure::observer(&arguments[1..]),
        Some("watch") => return slowdown::watcher(&arguments[1..]),
        Some("publish") => return attach::publisher(&arguments[1..]),
        _ => {}
    }
    let given = |flag: &str| arguments.iter().any(|a| a == flag);
    let Some(command) = arguments.iter().find(|a| !a.starts_with("--")) else {
        eprintln!("usage: observers CROSSDOCK [--quick] [--json]");
        std::process::exit(2);
    };
    let sizes: Vec<usize> = if given("--quick") {
        vec![64 << 10, 1 << 20, 16 << 20]
    } else {
        (12..=27).step_by(3).map(|b| 1 << b).collect()
    };
    let (runs, seconds) = if given("--quick") { (3, 0.08) } else { (7, 0.4) };
    let daemon = Daemon::start(Path::new(command));
    let mut points: Vec<Point> = attach::attach(&daemon, runs).into_iter().map(Point::from).collect();
    points.extend(slowdown::slowdown(&daemon, runs.max(5), seconds * 3.0).into_iter().map(Point::from));
    points.extend(figure::figure(&daemon, &sizes, runs, seconds));
    drop(daemon);
    print_points(&points);
}
