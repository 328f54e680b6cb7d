//! A simulator whose random choices follow from a seed. It runs the real state machine of the broker under random
//! schedules: clients send requests and break the rules, and clients, brokers and whole daemons are killed and started
//! again. After every step a model checks the guarantees. The model shares no code with the broker.
//!
//! `CROSSDOCK_SCHEDULES=1000000 cargo test --profile simulation -p crossdock-node --features schedules --test simulation`
//! runs more schedules.
//! `CROSSDOCK_FIRST=n` begins at schedule n, so that a long run can be divided. `CROSSDOCK_SEED=n` runs the one
//! schedule that a failure has named.

mod checks;
mod client;
mod daemon;
mod delivery;
mod items;
mod lives;
mod model;
mod offers;
mod people;
mod sabotage;
mod series;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use sabotage::Sabotage;
use world::World;

const STEPS: usize = 500;

fn run(seed: u64, sabotage: Sabotage) {
    let mut world = World::new(seed, sabotage);
    for _ in 0..STEPS {
        world.step();
    }
    world.wind_down();
    if sabotage == Sabotage::None && std::env::var_os("CROSSDOCK_COUNT").is_some() {
        world.model.counts.iter().for_each(|(what, n)| eprintln!("count {what} {n}"));
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn the_guarantees_hold_in_every_schedule() {
    if let Some(seed) = number("CROSSDOCK_SEED") {
        return run(seed, Sabotage::None);
    }
    let schedules = number("CROSSDOCK_SCHEDULES").unwrap_or(10_000);
    let first = number("CROSSDOCK_FIRST").unwrap_or(0);
    for seed in first..first + schedules {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, Sabotage::None)));
        assert!(outcome.is_ok(), "schedule {seed} broke a guarantee; run it again with CROSSDOCK_SEED={seed}");
    }
}

/// Tests the checks themselves: the simulator plants each of these bugs between the broker and its environment, and the
/// checks must find it.
#[test]
fn every_planted_bug_is_found() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let finds = |bug| move |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, bug))).is_err();
    let found = Sabotage::ALL.map(|bug| {
        let seed = (0..3000).find(finds(bug));
        if std::env::var_os("CROSSDOCK_COUNT").is_some() {
            eprintln!("{bug:?}: found by schedule {seed:?}");
        }
        (bug, seed)
    });
    let missed: Vec<_> = found.into_iter().filter(|(_, seed)| seed.is_none()).map(|(bug, _)| bug).collect();
    std::panic::set_hook(quiet);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
