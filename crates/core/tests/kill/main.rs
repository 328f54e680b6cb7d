//! Kill tests of regions: a member dies at every fault point. After that the other members must go on, all memory
//! must become free again, and all names must be usable again. The same must be true if the member that heals the
//! region is killed as well.
#![cfg(feature = "fault-points")]

#[path = "../common/mod.rs"]
mod common;
mod work;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::World;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::fault;
use crossdock_core::heap::POINTS;
use crossdock_core::region::Region;
use work::{Ledger, vector, work};

const SIZE: u64 = 6 << 20;
const SIGKILL: i32 = -9;
/// Indices of the words that the processes share. Word 0 has the number of the block that is just being freed. The
/// words after it have the blocks that were allocated.
const FREEING: usize = 0;
/// The number of blocks that the surviving member (the peer) has allocated. They come first in the list of allocated
/// blocks.
const PEERS: usize = 1100;

/// Makes a world with a second member, the peer, which owns a slice without a free block.
fn setup() -> (Arc<World>, Arc<Region>) {
    let world = World::new(SIZE);
    let peer = world.attach(1);
    let mut ledger = Ledger { world: &world, next: 1 };
    for _ in 0..PEERS {
        ledger.allocate(&peer, 64);
    }
    (world, peer)
}

fn die_at(world: &Arc<World>, point: &str, nth: u32) -> i32 {
    let pid = world.spawn(2, |region| {
        fault::arm(point, nth);
        work(world, region);
        0
    });
    let end = world.wait(2, pid);
    world.liveness().set_dead(common::member(3));
    end
}

/// Checks that the peer, the member that survived, can allocate at once, heal the region and free all allocated
/// blocks, and that nothing is left in use after that.
fn check_whole(world: &Arc<World>, peer: &Arc<Region>, what: &str) {
    let start = Instant::now();
    let block = peer.allocate(64, 16).unwrap();
    let large = peer.allocate(100_000, 64).unwrap();
    peer.deallocate(block).unwrap();
    peer.deallocate(large).unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{what}: the peer waited for {:?}", start.elapsed());
    peer.heal().unwrap();
    let freeing = world.word(FREEING).load(Ordering::SeqCst) as usize;
    for index in 1..8000 {
        let block = world.word(index).load(Ordering::SeqCst);
        if block != 0 {
            let freed = peer.deallocate(block);
            assert!(freed.is_ok() || index == freeing, "{what}: block {index}: {}", freed.unwrap_err());
        }
    }
    for object in peer.objects().unwrap() {
        peer.remove(&object.name).unwrap();
    }
    let s = peer.statistics();
    assert_eq!((s.used, s.blocks, s.objects), (0, 0, 0), "{what}: {s:?}");
    for name in ["plain", "plain-2", "gone", "grown", "array", "nested"] {
        let again = peer.claim(name, &vector(), ObjectMode::CreateOnly, Some(Duration::ZERO));
        peer.abandon(again.unwrap_or_else(|e| panic!("{what}: {e}")).offset).unwrap();
    }
}

/// Checks that a new member can allocate all slices after all other members are gone.
fn check_slices(world: &Arc<World>, what: &str) {
    let last = world.attach(10);
    last.heal().unwrap();
    assert_eq!(last.statistics().slices, 0, "{what}: {:?}", last.statistics());
    static ALL: OnceLock<usize> = OnceLock::new();
    let all = *ALL.get_or_init(|| fill(&World::new(SIZE).attach(1)));
    assert_eq!(fill(&last), all, "{what}: slices are lost");
}

/// Checks that every directory entry can be used, found by name and by offset, and removed.
fn check_directory(region: &Arc<Region>, what: &str) {
    const ENTRIES: usize = 256;
    let number = TypeRef::new("i64").unwrap();
    let names: Vec<String> = (0..ENTRIES).map(|i| format!("o{i}")).collect();
    for name in &names {
        let claim = region.claim(name, &number, ObjectMode::CreateOnly, None);
        region.commit(claim.unwrap_or_else(|e| panic!("{what}: {e}")).offset).unwrap();
    }
    for name in &names {
        let info = region.find(name).unwrap_or_else(|e| panic!("{what}: {e}"));
        region.load(region.save(info.offset).unwrap(), Some(&number)).unwrap();
    }
    for name in &names {
        region.remove(name).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Fills the region with blocks of a slice's size, and gives their number.
fn fill(region: &Arc<Region>) -> usize {
    let mut count = 0;
    while region.allocate(65536, 16).is_ok() {
        count += 1;
    }
    count
}

#[test]
fn the_work_leaves_nothing_when_no_process_dies() {
    let (world, peer) = setup();
    assert_eq!(die_at(&world, "no such point", 1), 0);
    check_whole(&world, &peer, "no death");
    drop(peer);
    check_slices(&world, "no death");
}

#[test]
fn a_death_at_every_point_is_healed() {
    for point in POINTS.iter().filter(|p| !p.starts_with("heal.") && !p.starts_with("region.format")) {
        for nth in [1, 2, 3, 7, 30] {
            let (world, peer) = setup();
            let end = die_at(&world, point, nth);
            assert!(end == SIGKILL || (nth > 1 && end == 0), "{point} was not reached: ended with {end}");
            let what = format!("{point}, {nth}. time");
            check_whole(&world, &peer, &what);
            check_directory(&peer, &what);
            drop(peer);
            check_slices(&world, &what);
        }
    }
}

#[test]
fn a_death_of_the_healer_is_healed() {
    let in_healing = |p: &&&str| {
        let parts = ["heal.", "retire.", "replace.", "heap.notify.", "heap.large.freed", "heap.slice.released"];
        let more = ["heap.collect", "directory.changed", "directory.remove.", "directory.abandon.", "lock."];
        parts.iter().chain(&more).any(|start| p.starts_with(start))
    };
    let seconds: Vec<&str> = POINTS.iter().filter(in_healing).copied().collect();
    let mut reached = BTreeSet::new();
    let firsts = POINTS.iter().filter(|p| !p.starts_with("heal.") && !p.starts_with("region.format"));
    for (i, first) in firsts.enumerate() {
        // Tests all pairs of fault points of which the second lies in the healing code, and a third of the other
        // pairs.
        for (_, second) in seconds.iter().enumerate().filter(|(j, p)| p.starts_with("heal.") || (i + j) % 3 == 0) {
            let (world, peer) = setup();
            assert_eq!(die_at(&world, first, 1), SIGKILL, "{first}");
            let pid = world.spawn_bare(4, || {
                fault::arm(second, 1);
                world.attach(4).heal().unwrap();
                0
            });
            match world.wait(4, pid) {
                SIGKILL => {
                    reached.insert(*second);
                }
                end => assert_eq!(end, 0, "{first}, then {second}"),
            }
            let what = format!("{first}, then {second}");
            check_whole(&world, &peer, &what);
            drop(peer);
            check_slices(&world, &what);
        }
    }
    let missed: Vec<_> = seconds.iter().filter(|p| p.starts_with("heal.") && !reached.contains(*p)).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

#[test]
fn a_dead_formatter_is_taken_over() {
    for point in POINTS.iter().filter(|p| p.starts_with("region.format")) {
        let world = World::new(SIZE);
        let pid = world.spawn_bare(2, || {
            fault::arm(point, 1);
            world.attach(2);
            0
        });
        assert_eq!(world.wait(2, pid), SIGKILL, "{point}");
        let region = world.attach(1);
        let block = region.allocate(100, 16).unwrap();
        region.deallocate(block).unwrap();
        assert_eq!(region.statistics().used, 0);
    }
}

#[test]
fn who_opens_a_container_after_a_death_finds_the_change_finished() {
    for point in ["replace.noted", "replace.begun", "replace.writing", "replace.written", "retire.marked"] {
        for opens in [true, false] {
            let world = World::new(SIZE);
            let peer = world.attach(1);
            let claim = peer.claim("v", &vector(), ObjectMode::CreateOnly, None).unwrap();
            peer.vector_resize(claim.offset, 8, 10).unwrap();
            peer.commit(claim.offset).unwrap();
            let pid = world.spawn(2, |region| {
                fault::arm(point, 1);
                region.vector_resize(claim.offset, 8, 1000).unwrap();
                0
            });
            assert_eq!(world.wait(2, pid), SIGKILL, "{point}");
            if opens {
                peer.claim("v", &vector(), ObjectMode::OpenOnly, None).unwrap();
            } else {
                peer.load(peer.save(claim.offset).unwrap(), None).unwrap();
            }
            let header = || {
                // SAFETY: reads the vector's header in this test's own region.
                unsafe { peer.base().add(claim.offset as usize).cast::<[u64; 4]>().read_volatile() }
            };
            let seen = header();
            assert!(seen[2] == if point == "replace.noted" { 10 } else { 1000 }, "{point}: {seen:?}");
            peer.heal().unwrap();
            assert_eq!(header(), seen, "{point}: healing changed it behind the successor's back");
            peer.remove("v").unwrap();
            assert_eq!(peer.statistics().used, 0);
        }
    }
}
