//! Kill tests of regions: a member dies at every fault point. After that the other members must be able to continue,
//! all memory must become free, and all names must be usable. The same must be true if the member that heals the region
//! is killed as well.
#![cfg(feature = "fault-points")]

#[path = "../common/mod.rs"]
mod common;
mod ports;
mod work;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::World;
use crossdock_core::containers::Order;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::fault;
use crossdock_core::heap::{self, POINTS};
use crossdock_core::region::Region;
use crossdock_layout::Status;
use crossdock_layout::region::{Geometry, HeapSlot, RegionHeader, SLICE};
use work::{Ledger, vector, work};

const SIZE: u64 = 6 << 20;
const SIGKILL: i32 = -9;
/// Indices of the words of memory that the processes share. Word 0 has the index of the word whose block is just being
/// freed. The following words are the list of allocated blocks.
const FREEING: usize = 0;
/// The number of blocks that the surviving member (the peer) has allocated. These blocks come first in the list of
/// allocated blocks.
const PEERS: usize = 1100;

/// Makes a world with one member, the peer, which survives and which owns a slice without a free block.
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

/// Checks that the peer can allocate blocks without a long wait, heal the region and free all allocated blocks. After
/// that, no block and no object may be left.
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

/// Fills the region with blocks that are as large as a slice, and returns how many fitted.
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
        // Tests every pair whose second fault point lies in the healing code, and one in three of the other pairs.
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

/// A member frees another member's block and dies before it tells the owner. The member that heals it dies, too. The
/// owner must find the free block.
#[test]
fn a_block_that_a_dead_member_freed_is_found_although_the_healer_died_too() {
    let allocates_until_a_new_slice = |peer: &Arc<Region>| {
        let slices = peer.statistics().slices;
        let mut count = 0;
        while peer.statistics().slices == slices {
            peer.allocate(64, 64).unwrap();
            count += 1;
        }
        count
    };
    let expected = allocates_until_a_new_slice(&setup().1) + 1;
    let (world, peer) = setup();
    let block = world.word(1).load(Ordering::SeqCst);
    let pid = world.spawn(2, |region| {
        fault::arm("heap.free.remote", 1);
        region.deallocate(block).unwrap();
        0
    });
    assert_eq!(world.wait(2, pid), SIGKILL);
    let pid = world.spawn_bare(4, || {
        fault::arm("heal.vacated", 1);
        world.attach(4).heal().unwrap();
        0
    });
    assert_eq!(world.wait(4, pid), SIGKILL);
    assert_eq!(allocates_until_a_new_slice(&peer), expected, "the block that was freed is used again");
}

#[test]
fn healing_reports_what_it_did() {
    for holds_the_lock in [false, true] {
        let world = World::new(SIZE);
        let peer = world.attach(1);
        let vector = ten_numbers(&peer);
        let pid = world.spawn(2, |region| {
            region.prepare(100, 16).unwrap();
            if holds_the_lock {
                fault::arm("lock.taken", 1);
                region.heal().unwrap();
            }
            fault::arm("replace.begun", 1);
            region.vector_resize(vector, 8, 1000).unwrap();
            0
        });
        assert_eq!(world.wait(2, pid), SIGKILL);
        let report = peer.heal().unwrap();
        let operations = if holds_the_lock { 1 } else { 2 };
        assert_eq!(report, heap::HealReport { slots: 1, operations, objects: 0 }, "{holds_the_lock}");
        assert_eq!(peer.heal().unwrap(), heap::HealReport::default());
    }
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
            let vector_at = ten_numbers(&peer);
            let pid = world.spawn(2, |region| {
                fault::arm(point, 1);
                region.vector_resize(vector_at, 8, 1000).unwrap();
                0
            });
            assert_eq!(world.wait(2, pid), SIGKILL, "{point}");
            if opens {
                peer.claim("v", &vector(), ObjectMode::OpenOnly, None).unwrap();
            } else {
                peer.load(peer.save(vector_at).unwrap(), None).unwrap();
            }
            let seen = header_of(&peer, vector_at);
            assert!(seen[2] == if point == "replace.noted" { 10 } else { 1000 }, "{point}: {seen:?}");
            peer.heal().unwrap();
            assert_eq!(header_of(&peer, vector_at), seen, "{point}: healing changed it behind the successor's back");
            peer.remove("v").unwrap();
            assert_eq!(peer.statistics().used, 0);
        }
    }
}

/// Gives the header of a vector: the distance to the region's first byte, the pointer, the size and the capacity.
fn header_of(region: &Region, at: u64) -> [u64; 4] {
    // SAFETY: the call reads the vector's header in this test's own region.
    unsafe { region.base().add(at as usize).cast::<[u64; 4]>().read_volatile() }
}

/// Makes the vector 'v' with ten numbers.
fn ten_numbers(region: &Arc<Region>) -> u64 {
    let claim = region.claim("v", &vector(), ObjectMode::CreateOnly, None).unwrap();
    region.vector_resize(claim.offset, 8, 10).unwrap();
    region.commit(claim.offset).unwrap();
    claim.offset
}

#[test]
fn who_changes_a_container_after_the_roll_proved_a_death_finds_the_dead_members_change_finished() {
    for point in ["replace.begun", "replace.writing", "replace.written", "retire.marked", "retire.freed"] {
        let world = World::new(SIZE);
        let peer = world.attach(1);
        let vector = ten_numbers(&peer);
        let pid = world.spawn(2, |region| {
            fault::arm(point, 1);
            region.vector_resize(vector, 8, 1000).unwrap();
            0
        });
        assert_eq!(world.wait_unseen(pid), SIGKILL, "{point}");
        world.leave_roll(2);
        assert!(world.is_dead(2), "{point}: a port reports the death now");
        peer.vector_resize(vector, 8, 2000).unwrap();
        let blocks: Vec<_> = (0..200).map(|_| peer.allocate(80, 16).unwrap()).collect();
        let seen = header_of(&peer, vector);
        world.liveness().set_dead(common::member(2));
        peer.heal().unwrap();
        assert_eq!(header_of(&peer, vector), seen, "{point}: healing undid the successor's change");
        for block in blocks {
            peer.deallocate(block).unwrap_or_else(|error| panic!("{point}: a block in use was freed: {error}"));
        }
        peer.remove("v").unwrap();
        assert_eq!(peer.statistics().used, 0, "{point}");
    }
}

/// If a member dies while it removes elements of a vector, each of these elements must still be valid afterwards: it
/// has its old contents, or it is empty.
#[test]
fn a_death_while_a_vector_loses_elements_leaves_no_damaged_ones() {
    for point in ["replace.noted", "replace.begun", "replace.written", "retire.freed", "lock.leaving"] {
        let world = World::new(SIZE);
        let peer = world.attach(1);
        let ty = TypeRef::new("vector<ndarray<f64>>").unwrap();
        let list = peer.claim("list", &ty, ObjectMode::CreateOnly, None).unwrap().offset;
        peer.commit(list).unwrap();
        peer.vector_resize(list, 128, 2).unwrap();
        let first = list + 8 + header_of(&peer, list)[1];
        for i in 0..2 {
            peer.ndarray_reshape(first + 128 * i, 8, Order::C, &[3, 5]).unwrap();
        }
        let pid = world.spawn(2, |region| {
            // With these calls the member gets its heap slot, for which it needs the lock. The fault point is armed
            // only after them, so that the member dies in `vector_resize`.
            region.deallocate(region.allocate(64, 64).unwrap()).unwrap();
            fault::arm(point, 1);
            region.vector_resize(list, 128, 0).unwrap();
            0
        });
        assert_eq!(world.wait(2, pid), SIGKILL, "{point}");
        peer.heal().unwrap();
        assert_eq!(peer.vector_at(list, 128).unwrap().size, 2, "{point}");
        for i in 0..2 {
            let bytes = peer.ndarray_at(first + 128 * i, 8).unwrap().bytes;
            assert!([0, 120].contains(&bytes), "{point}: {bytes}");
        }
        peer.remove("list").unwrap();
        assert_eq!(peer.statistics().used, 0, "{point}");
    }
}

/// A member died while it changed a block. Another member frees this block, and then allocates it for another purpose.
/// Healing after that must not write to the block.
#[test]
fn who_frees_an_object_after_a_death_finds_the_dead_members_change_finished() {
    for point in ["replace.begun", "replace.writing", "replace.written", "retire.marked", "retire.freed"] {
        for by_base in [false, true] {
            let what = format!("{point}, {by_base}");
            let world = World::new(SIZE);
            let peer = world.attach(1);
            let [header, old] = [64, 64].map(|size| peer.allocate(size, 64).unwrap());
            let pid = world.spawn(2, |region| {
                let new = region.prepare(64, 64).unwrap();
                fault::arm(point, 1);
                region.replace(header, &[1; 3], new, old).unwrap();
                0
            });
            assert_eq!(world.wait(2, pid), SIGKILL, "{what}");
            peer.cache_region();
            let address = peer.base().wrapping_add(header as usize);
            if !by_base || !heap::deallocate_at(peer.base(), address) {
                peer.deallocate(header).unwrap();
            }
            let block = peer.allocate(64, 64).unwrap();
            let bytes = peer.base().wrapping_add(block as usize).cast::<[u8; 64]>();
            // SAFETY: the block is this test's own.
            unsafe { bytes.write_volatile([0x55; 64]) };
            peer.heal().unwrap();
            // SAFETY: the block is this test's own.
            let found = unsafe { bytes.read_volatile() };
            assert_eq!(found, [0x55; 64], "{what}: healing wrote to a block of another owner");
        }
    }
}

#[test]
fn a_small_block_that_a_dead_member_freed_stays_freed_if_a_large_block_lies_there_now() {
    let world = World::new(SIZE);
    let (owner, peer) = (world.attach(1), world.attach(4));
    let vector = ten_numbers(&peer);
    // `first` is a small block at an offset in its slice at which a large block could also begin. It is the only block
    // of its slice that is in use. So when `first` is freed, a large block can begin in this slice.
    let large = owner.allocate(100_000, 64).unwrap();
    let mut small = std::iter::repeat_with(|| owner.allocate(20_000, 64).unwrap());
    let first = small.find(|block| block % SLICE == large % SLICE).unwrap();
    let words = header_of(&peer, vector);
    let pid = world.spawn(2, |region| {
        fault::arm("retire.freed", 1);
        region.replace(vector, &words, 0, first).unwrap();
        0
    });
    assert_eq!(world.wait_unseen(pid), SIGKILL);
    drop(owner);
    let large = std::iter::repeat_with(|| peer.allocate(60_000, 64).unwrap()).take(40).find(|block| *block == first);
    let large = large.expect("the slice of the freed block is used again");
    world.liveness().set_dead(common::member(2));
    peer.heal().unwrap();
    assert!(peer.block_size(large).is_ok(), "healing freed a block of another member");
}

#[test]
fn a_container_stays_as_it_is_if_the_lock_cannot_be_had_to_free_its_large_block() {
    let world = World::new(SIZE);
    let peer = world.attach(1);
    let vector = ten_numbers(&peer);
    peer.vector_resize(vector, 8, 20_000).unwrap();
    let seen = header_of(&peer, vector);
    let block = peer.prepare(400_000, 64).unwrap();
    world.liveness().set_alive(common::member(3));
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let header = unsafe { &*peer.base().cast::<RegionHeader>() };
    header.lock.holder.store(common::member(3).0, Ordering::SeqCst);
    let old = vector + 8 + seen[1];
    let words = [seen[0], block - vector - 8, 20_000, 50_000];
    let error = peer.replace(vector, &words, block, old).unwrap_err();
    assert_eq!(error.status, Status::Busy, "{error}");
    assert_eq!(header_of(&peer, vector), seen, "the call failed, and the vector changed");
    header.lock.holder.store(0, Ordering::SeqCst);
    peer.replace(vector, &words, block, old).unwrap();
    assert_eq!(header_of(&peer, vector)[1], words[1]);
    assert!(peer.block_size(old).is_err(), "the old block is free");
    peer.remove("v").unwrap();
    assert_eq!(peer.statistics().used, 0);
}

#[test]
fn who_opens_an_object_whose_constructor_died_does_not_wait_without_a_timeout() {
    let world = World::new(SIZE);
    let pid = world.spawn(2, |region| {
        fault::arm("directory.claim.zeroed", 1);
        region.claim("v", &vector(), ObjectMode::CreateOnly, None).unwrap();
        0
    });
    assert_eq!(world.wait(2, pid), SIGKILL);
    let reader = world.try_attach(1, false).unwrap();
    for timeout in [None, Some(Duration::ZERO)] {
        let began = Instant::now();
        let error = reader.claim("v", &vector(), ObjectMode::OpenOnly, timeout).unwrap_err();
        assert_eq!(error.status, Status::NotFound, "{error}");
        assert!(began.elapsed() < Duration::from_secs(5), "it waited for {:?}", began.elapsed());
    }
}

/// Gives the holders of the first eight heap slots of a region; 0 for a slot without a holder.
fn holders(region: &Region) -> Vec<u64> {
    let at = Geometry::of(SIZE).unwrap().slots_at as usize;
    // SAFETY: the table of slots begins at this offset, has at least eight slots here, and consists of atomics.
    let slots = unsafe { std::slice::from_raw_parts(region.base().add(at).cast::<HeapSlot>(), 8) };
    slots.iter().map(|slot| slot.holder.load(Ordering::SeqCst)).collect()
}

/// If a stopped member holds the lock, a member that leaves the region waits for the lock once, and not once for each
/// of its threads. The leaving member's heap slots stay taken, because one of them records the object that the member
/// was constructing.
#[test]
fn who_leaves_without_the_lock_keeps_the_slots_until_its_death_is_healed() {
    let world = World::new(SIZE);
    let (peer, other) = (world.attach(1), world.attach(4));
    peer.claim("v", &vector(), ObjectMode::CreateOnly, None).unwrap();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let allocate = || peer.allocate(80, 16).and_then(|block| peer.deallocate(block)).unwrap();
            scope.spawn(allocate);
            scope.spawn(allocate);
        });
    }
    let held = holders(&other);
    assert!(held.iter().filter(|holder| **holder == common::member(1).0).count() >= 2, "{held:?}");
    world.liveness().set_alive(common::member(3));
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let header = unsafe { &*other.base().cast::<RegionHeader>() };
    header.lock.holder.store(common::member(3).0, Ordering::SeqCst);
    let began = Instant::now();
    drop(peer);
    assert!(began.elapsed() < Duration::from_secs(15), "it waited for {:?}", began.elapsed());
    header.lock.holder.store(0, Ordering::SeqCst);
    assert_eq!(holders(&other), held);
    world.liveness().set_dead(common::member(1));
    other.heal().unwrap();
    assert_eq!(holders(&other), [0; 8]);
    assert_eq!(other.statistics().used, 0);
}

/// A member died while it was constructing an object. The object's directory entry names a heap slot, which a living
/// member holds now. The records in this slot belong to the living member, so healing cannot record the removal of the
/// object there. So healing leaves the entry as it is while the living member holds the slot.
#[test]
fn an_object_of_a_dead_member_is_not_removed_in_the_slot_of_a_living_one() {
    let world = World::new(SIZE);
    let pid = world.spawn(2, |region| {
        region.claim("v", &vector(), ObjectMode::CreateOnly, None).unwrap();
        std::mem::forget(region);
        0
    });
    assert_eq!(world.wait_unseen(pid), 0);
    let peer = world.attach(1);
    let slots = Geometry::of(SIZE).unwrap().slots_at as usize;
    // SAFETY: the table of slots begins at this offset, and consists of atomics.
    let slot = unsafe { &*peer.base().add(slots).cast::<HeapSlot>() };
    assert_eq!(slot.holder.swap(common::member(3).0, Ordering::SeqCst), common::member(2).0);
    world.liveness().set_alive(common::member(3));
    world.liveness().set_dead(common::member(2));
    peer.heal().unwrap();
    assert_ne!(peer.statistics().used, 0, "the object was removed");
    world.liveness().set_dead(common::member(3));
    peer.heal().unwrap();
    assert_eq!(peer.statistics().used, 0);
}
