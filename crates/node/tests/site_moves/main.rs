//! A simulation of regions that are moved and copied between nodes. It runs brokers, the gateways' real logic, one
//! catalog in memory, and a model of each daemon's host. As in `crossdock_relay`, the hosts freeze regions, pull their
//! bytes part by part, and give the copies their names. Links between the nodes lose, repeat and reorder messages, are
//! cut, and become slow. Tasks, brokers and whole daemons are killed; nodes are stopped and cut off from the catalog;
//! the catalog loses its leader.
//!
//! Tasks make regions, write them part by part, move them to their own node, copy them and remove them. The simulation
//! checks a region when it gets its name on a node, and when a task opens it: its bytes are those that tasks wrote
//! last, and no task of another node has it open. A copy has the bytes of one moment. At the end all faults are
//! removed. Then every request is answered, every region that was not lost with a daemon or with a lease is on exactly
//! one node and can be opened, and no unfinished copy is left.

#[path = "../site_world/catalog.rs"]
mod catalog;
mod host;
mod network;
mod scripted;
mod tasks;
mod world;

use world::{Planted, Totals, run};

/// How many schedules a usual run has. A run of this many schedules must contain faults of every kind.
const USUAL: u64 = 400;

/// The seed of a schedule beyond a usual run that once found a defect of the broker. Every run includes this schedule.
const FOUND_DEFECT: u64 = 72_713;

/// Each planted defect must be found by at least this many schedules of a usual run.
const FEWEST: usize = 3;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Prints the seed of the schedule in which an assertion of a broker failed.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the schedule of seed {}", self.0);
        }
    }
}

#[test]
fn a_region_that_moves_is_on_one_node_and_a_copy_has_the_bytes_of_one_moment() {
    let mut totals = Totals::default();
    let (first, count) = (number("CROSSDOCK_SEED", 0), number("CROSSDOCK_SCHEDULES", USUAL));
    for seed in std::iter::once(FOUND_DEFECT).chain(first..first + count) {
        let _named = Named(seed);
        totals.add(run(seed, Planted::Nothing).unwrap_or_else(|why| panic!("{why}")));
    }
    println!("{count} schedules: {totals:?}");
    let tame = totals.moved < count || totals.copied < count / 2 || totals.refused < count || totals.ended < count / 4;
    let tame = tame || totals.slow_parts == 0 || totals.asked_again == 0 || totals.came_back == 0 || totals.lost == 0;
    let tame = tame || totals.removals_asked == 0;
    let tame = tame || totals.leaders_lost < count / 4 || totals.checked < 2 * count;
    assert!(!tame || count < USUAL, "the schedules are too tame: {totals:?}");
}

#[test]
fn planted_defects_are_found() {
    use Planted::{
        FreezeSkipped, HandOverSkipped, NameMeansRegion, RecordForgotten, RemovedEarly, UnknownIsNotMoved,
        UnnamedIsNotMoved,
    };
    let all = [
        UnknownIsNotMoved,
        UnnamedIsNotMoved,
        NameMeansRegion,
        RecordForgotten,
        RemovedEarly,
        HandOverSkipped,
        FreezeSkipped,
    ];
    for planted in all {
        let found = (0..USUAL).filter_map(|seed| run(seed, planted).err()).take(FEWEST);
        let found: Vec<_> = found.collect();
        println!("{planted:?}: found by {found:?}");
        assert!(found.len() >= FEWEST, "{planted:?} is found by too few schedules: {found:?}");
    }
}
