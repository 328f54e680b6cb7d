//! Measures the heap of a region, compared with Boost.Interprocess's managed_shared_memory and with mimalloc (row P6).
//!
//! Three patterns of allocation (*mixes*) are measured, and all three heaps run the same mixes. A figure is nanoseconds
//! per call of allocate or free, as the median of several rounds. If the machine has two CPUs, a run with two processes
//! pins each process to one of them.

mod heaps;
mod mixes;
mod world;

use std::process::Command;

use heaps::{Crossdock, Heap, Mimalloc};
use mixes::{MIXES, Random};
use world::World;

/// The number of rounds. There are many short rounds, because even on a busy machine most short rounds are not
/// interrupted.
const ROUNDS: usize = 101;

fn main() {
    let has = |word: &str| std::env::args().any(|a| a == word);
    let steps: u64 = if has("--quick") { 10_000 } else { 50_000 };
    let alone = has("--alone");
    let mut table = Table { json: has("--json"), records: Vec::new() };
    table.head(steps);
    if has("--hand-over") {
        return println!("{:.1}", mixes::hand_over(&World::new(1 << 30), steps * 10));
    }
    let boost = if alone { Vec::new() } else { boost(steps) };
    for (name, mix) in MIXES {
        let world = World::new(1 << 30);
        let ours = one_process(&mut Crossdock(world.attach(1)), *mix, steps);
        let mim = median(one_process(&mut Mimalloc, *mix, steps));
        table.row(&format!("{name}, alone"), ours, Some(mim), find(&boost, name, 1));
        if alone {
            continue;
        }
        let ours = two_processes(&World::new(1 << 30), *mix, steps);
        table.row(&format!("{name}, two processes"), ours, None, find(&boost, name, 2));
    }
    if !alone {
        let ours = (0..5).map(|_| mixes::hand_over(&World::new(1 << 30), steps * 2)).collect();
        table.row("one allocates, other frees", ours, None, find(&boost, "hand-over", 2));
    }
    if table.json {
        println!("[{}]", table.records.join(","));
    }
}

/// Prints a table for people, or the records of `bench/src/lib.rs`. This project does not belong to the workspace, so
/// it writes the records itself.
struct Table {
    json: bool,
    records: Vec<String>,
}

impl Table {
    fn head(&self, steps: u64) {
        if !self.json {
            let processors = crossdock_os::process::processors();
            println!("ns per call, median of {ROUNDS} rounds of {steps} steps; {processors} processors");
            println!(
                "{:<28}{:>10}{:>10}{:>10}{:>12}{:>12}",
                "mix", "crossdock", "mimalloc", "boost", "boost / us", "us / mim."
            );
        }
    }

    fn row(&mut self, name: &str, runs: Vec<f64>, mim: Option<f64>, boost: Option<f64>) {
        let ours = median(runs.clone());
        if self.json {
            return self.records.push(record(name, ours, &runs, mim, boost));
        }
        let text = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.1}"));
        println!(
            "{name:<28}{ours:>10.1}{:>10}{:>10}{:>12}{:>12}",
            text(mim),
            text(boost),
            text(boost.map(|b| b / ours)),
            mim.map_or("-".into(), |m| format!("{:.2}", ours / m)),
        );
    }
}

/// Makes the record of a figure. The aim is at most a twentieth of the time of Boost.Interprocess, and with one process at
/// most 1.3 times the time of mimalloc.
fn record(name: &str, ours: f64, runs: &[f64], mim: Option<f64>, boost: Option<f64>) -> String {
    let to_boost = boost.map_or(0.0, |b| ours * 20.0 / b);
    let ratio = mim.map_or(to_boost, |m| to_boost.max(ours / m / 1.3));
    let peers = [("mimalloc", mim), ("Boost.Interprocess", boost)];
    let peers: Vec<String> = peers.iter().filter_map(|(n, v)| v.map(|v| format!("\"{n}\":{v:.2}"))).collect();
    let runs: Vec<String> = runs.iter().map(|r| format!("{r:.2}")).collect();
    format!(
        "{{\"id\":\"P6\",\"case\":\"heap: {name}\",\"value\":{ours:.2},\"unit\":\"ns\",\"floor\":null,\"peers\":{{{}}},\
         \"aim\":\"at least 20 times Boost.Interprocess; within 1.3 times mimalloc in one process\",\
         \"ratio\":{ratio:.3},\"met\":{},\"runs\":[{}]}}",
        peers.join(","),
        ratio <= 1.0,
        runs.join(",")
    )
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn one_process(heap: &mut dyn Heap, mix: mixes::Mix, steps: u64) -> Vec<f64> {
    world::pin(0);
    (0..ROUNDS).map(|round| mix(heap, &mut Random(round as u64 + 1), steps)).collect()
}

fn two_processes(world: &std::sync::Arc<World>, mix: mixes::Mix, steps: u64) -> Vec<f64> {
    let other = world.spawn(2, |region| {
        world::pin(1);
        let mut heap = Crossdock(region);
        world.meet(0, 2);
        while world.word(1).load(std::sync::atomic::Ordering::Relaxed) == 0 {
            mix(&mut heap, &mut Random(77), steps / 10);
        }
    });
    let mut heap = Crossdock(world.attach(1));
    world.meet(0, 2);
    let time = one_process(&mut heap, mix, steps);
    world.word(1).store(1, std::sync::atomic::Ordering::Relaxed);
    world.wait(other);
    time
}

/// Runs the C++ program for Boost and reads its output: mix, number of processes, nanoseconds.
fn boost(steps: u64) -> Vec<(String, u32, f64)> {
    let program = std::env::var("BOOST_BENCH").unwrap_or_default();
    let Ok(output) = Command::new(&program).arg(steps.to_string()).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |l: &str| {
        let parts: Vec<&str> = l.split(';').collect();
        Some((parts.first()?.to_string(), parts.get(1)?.parse().ok()?, parts.get(2)?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn find(all: &[(String, u32, f64)], name: &str, processes: u32) -> Option<f64> {
    all.iter().find(|b| b.0 == name && b.1 == processes).map(|b| b.2)
}
