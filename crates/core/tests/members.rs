//! Tests with several processes on one region, of which some are killed at random moments.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::World;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::region::Region;
use crossdock_os::testing::Random;

/// The number of cells. A cell is a word of memory that all processes share; it holds the offset of a block, or 0. A
/// process that takes a block out of a cell frees the block.
const CELLS: u64 = 3000;

/// Changes random cells: if a cell has a block, frees the block; otherwise stores a new block in the cell. Each block
/// contains its own offset. So the test notices if the heap gives the same block out twice.
fn churn(world: &World, region: &Arc<Region>, random: &mut Random) {
    let cell = world.word(1 + random.below(CELLS) as usize);
    let block = cell.swap(0, Ordering::AcqRel);
    if block != 0 {
        // SAFETY: this process took the block out of the cell, so no other process uses it. It has at least 16 bytes.
        let mark = unsafe { region.base().add(block as usize).cast::<u64>() };
        // SAFETY: this process took the block out of the cell, so no other process uses it.
        let seen = unsafe { mark.replace(0) };
        assert_eq!(seen, block, "another process has this block, too");
        region.deallocate(block).unwrap();
        return;
    }
    let most = if random.below(40) == 0 { 300_000 } else { 2000 };
    let Ok(block) = region.allocate(16 + random.below(most), 16) else { return };
    // SAFETY: the address is that of a fresh block of at least 16 bytes, which no other process knows yet.
    unsafe { region.base().add(block as usize).cast::<u64>().write(block) };
    if cell.compare_exchange(0, block, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        region.deallocate(block).unwrap();
    }
}

/// Makes, grows or removes a named object. All members use the same few names.
fn name(region: &Arc<Region>, random: &mut Random) {
    let name = format!("object-{}", random.below(8));
    let vector = TypeRef::new("vector<u64>").unwrap();
    if random.below(2) == 0 {
        let claim = region.claim(&name, &vector, ObjectMode::CreateOnly, Some(Duration::ZERO));
        if let Ok(claim) = claim {
            region.vector_resize(claim.offset, 8, random.below(20_000)).unwrap();
            region.commit(claim.offset).unwrap();
        }
    } else {
        let _ = region.remove(&name);
    }
}

fn work(world: &World, region: &Arc<Region>, seed: u64) {
    let mut random = Random(seed | 1);
    loop {
        for _ in 0..200 {
            churn(world, region, &mut random);
        }
        name(region, &mut random);
        if world.word(0).load(Ordering::Relaxed) != 0 {
            return;
        }
    }
}

fn check_rest(world: &Arc<World>, kills: u64) {
    let region = world.attach(4000);
    region.heal().unwrap();
    for cell in 1..=CELLS {
        let block = world.word(cell as usize).swap(0, Ordering::AcqRel);
        if block != 0 {
            region.deallocate(block).unwrap();
        }
    }
    for object in region.objects().unwrap() {
        region.remove(&object.name).unwrap();
    }
    let s = region.statistics();
    // Each killed process may have left one block that it had allocated but not stored in a cell yet.
    assert!(s.blocks <= kills, "{kills} were killed, {} blocks are lost: {s:?}", s.blocks);
    assert_eq!(s.objects, 0);
}

#[test]
fn processes_share_a_heap_without_getting_in_each_others_way() {
    let world = World::new(64 << 20);
    let children: Vec<_> = (1..=3)
        .map(|counter| {
            let world = world.clone();
            let pid = world.spawn(counter, |region| {
                work(&world, &region, counter * 7919);
                0
            });
            (counter, pid)
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1500));
    world.word(0).store(1, Ordering::Relaxed);
    for (counter, pid) in children {
        assert_eq!(world.wait(counter, pid), 0);
    }
    check_rest(&world, 0);
}

#[test]
fn killed_processes_leave_nothing_but_what_was_in_their_hands() {
    let world = World::new(64 << 20);
    let (mut counter, mut kills, mut random) = (0, 0, Random(42));
    let start = Instant::now();
    let mut spawn = || {
        counter += 1;
        let (world, counter) = (world.clone(), counter);
        let pid = world.spawn(counter, |region| {
            work(&world, &region, counter * 104_729);
            0
        });
        (counter, pid)
    };
    let mut children: Vec<_> = (0..3).map(|_| spawn()).collect();
    while start.elapsed() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(1 + random.below(30)));
        let at = random.below(3);
        let (counter, pid) = children[at];
        // SAFETY: the signal goes to a child of this process that has not been waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(world.wait(counter, pid), -libc::SIGKILL, "it had failed before it was killed");
        kills += 1;
        children[at] = spawn();
    }
    world.word(0).store(1, Ordering::Relaxed);
    for (counter, pid) in children {
        assert_eq!(world.wait(counter, pid), 0);
    }
    assert!(kills > 20);
    check_rest(&world, kills);
}
