//! The region's heap against Boost.Interprocess's managed_shared_memory and mimalloc (performance.md, P6).
//!
//! Three mixes, the same in all three programs. Figures are nanoseconds per call of allocate or free, the median of
//! several rounds. Two processes are two processes, each pinned to a processor of its own where there are two.

mod heaps;
mod mixes;
mod world;

use std::process::Command;

use heaps::{Crossdock, Heap, Mimalloc};
use mixes::{MIXES, Random};
use world::World;

/// Short rounds and many of them: on a busy machine most are not interrupted.
const ROUNDS: usize = 101;

fn main() {
    let steps: u64 = if std::env::args().any(|a| a == "--quick") { 10_000 } else { 50_000 };
    let alone = std::env::args().any(|a| a == "--alone");
    println!(
        "ns per call, median of {ROUNDS} rounds of {steps} steps; {} processors",
        crossdock_os::process::processors()
    );
    if std::env::args().any(|a| a == "--hand-over") {
        return println!("{:.1}", mixes::hand_over(&World::new(1 << 30), steps * 10));
    }
    let boost = if alone { Vec::new() } else { boost(steps) };
    println!(
        "{:<28}{:>10}{:>10}{:>10}{:>12}{:>12}",
        "mix", "crossdock", "mimalloc", "boost", "boost / us", "us / mim."
    );
    for (name, mix) in MIXES {
        let world = World::new(1 << 30);
        let ours = one_process(&mut Crossdock(world.attach(1)), *mix, steps);
        let mim = one_process(&mut Mimalloc, *mix, steps);
        row(&format!("{name}, alone"), ours, Some(mim), find(&boost, name, 1));
        if alone {
            continue;
        }
        let ours = two_processes(&World::new(1 << 30), *mix, steps);
        row(&format!("{name}, two processes"), ours, None, find(&boost, name, 2));
    }
    if alone {
        return;
    }
    let ours = mixes::hand_over(&World::new(1 << 30), steps * 10);
    row("one allocates, other frees", ours, None, find(&boost, "hand-over", 2));
}

fn row(name: &str, ours: f64, mim: Option<f64>, boost: Option<f64>) {
    let text = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.1}"));
    println!(
        "{name:<28}{ours:>10.1}{:>10}{:>10}{:>12}{:>12}",
        text(mim),
        text(boost),
        text(boost.map(|b| b / ours)),
        mim.map_or("-".into(), |m| format!("{:.2}", ours / m)),
    );
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn one_process(heap: &mut dyn Heap, mix: mixes::Mix, steps: u64) -> f64 {
    world::pin(0);
    median((0..ROUNDS).map(|round| mix(heap, &mut Random(round as u64 + 1), steps)).collect())
}

fn two_processes(world: &std::sync::Arc<World>, mix: mixes::Mix, steps: u64) -> f64 {
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

/// What the C++ program printed: mix, processes, nanoseconds.
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
