//! Tests of allocation by a region's address. A caller without a reference to the region finds the region by this
//! address. After the region is dropped, no caller can find it.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use common::World;
use crossdock_core::heap::{allocate_at, deallocate_at};

/// Lets the tests run one at a time, because dropping a region invalidates the caches of all threads of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_near_region_gives_and_takes_blocks_by_its_address() {
    let _alone = alone();
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let base: *const u8 = region.base();
    region.cache_region();
    assert_eq!(allocate_at(base, 64, 8), None, "this thread has no slot yet");
    let first = region.allocate(64, 8).unwrap();
    assert_eq!(allocate_at(base, 64, 8), None, "no keep_near was called");
    region.cache_region();
    let blocks: Vec<_> = (0..20).map(|_| allocate_at(base, 64, 8).unwrap()).collect();
    assert_eq!(region.statistics().blocks, 21);
    for (size, align) in [(0, 8), (64, 3), (64, 64), (u64::MAX, 8), (1 << 20, 8)] {
        assert_eq!(allocate_at(base, size, align), None, "{size}, {align}");
    }
    for block in blocks {
        assert!(!deallocate_at(base, block.wrapping_add(1)));
        assert!(deallocate_at(base, block));
        assert!(!deallocate_at(base, block), "a second time");
    }
    let wild = [base, base.wrapping_add(8), base.wrapping_add(4 << 20), base.wrapping_sub(64), std::ptr::null()];
    assert!(!wild.iter().any(|&address| deallocate_at(base, address)));
    for other in [std::ptr::null(), base.wrapping_add(64), base.wrapping_add(4096)] {
        assert_eq!(allocate_at(other, 64, 8), None);
    }
    region.deallocate(first).unwrap();
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn more_regions_than_places_are_all_found_after_keep_near() {
    let _alone = alone();
    let worlds: Vec<_> = (0..20).map(|_| World::new(1 << 20)).collect();
    let regions: Vec<_> = worlds.iter().map(|world| world.attach(1)).collect();
    for _ in 0..3 {
        for region in &regions {
            let offset = region.allocate(100, 8).unwrap();
            region.cache_region();
            let address = allocate_at(region.base(), 100, 8).unwrap();
            assert!(deallocate_at(region.base(), address));
            region.deallocate(offset).unwrap();
        }
    }
    assert!(regions.iter().all(|region| region.statistics().used == 0));
}

#[test]
fn a_region_that_has_gone_is_near_to_no_thread_and_its_address_may_be_anothers() {
    let _alone = alone();
    let (old, new) = (World::new(2 << 20), World::new(2 << 20));
    let (warm, gone, mapped) = (Barrier::new(5), Barrier::new(5), Barrier::new(5));
    let (at, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (mut region, mut keeper) = (Some(old.attach(1)), None);
        at.store(region.as_ref().unwrap().base() as usize, Ordering::Relaxed);
        for _ in 0..4 {
            let region = region.clone().unwrap();
            let (warm, gone, mapped, at, next) = (&warm, &gone, &mapped, &at, &next);
            scope.spawn(move || {
                let base = at.load(Ordering::Relaxed) as *const u8;
                region.allocate(64, 8).unwrap();
                region.cache_region();
                drop(region);
                assert!(allocate_at(base, 64, 8).is_some(), "an entry needs no reference");
                warm.wait();
                gone.wait();
                assert_eq!(allocate_at(base, 64, 8), None);
                assert!(!deallocate_at(base, base.wrapping_add(1 << 16)));
                mapped.wait();
                assert_eq!(allocate_at(base, 64, 8), None, "whatever is mapped there now");
                assert_eq!(allocate_at(next.load(Ordering::Relaxed) as *const u8, 64, 8), None);
            });
        }
        warm.wait();
        let last = region.take().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&last), 1, "no thread's entry holds it");
        drop(last);
        gone.wait();
        let region = keeper.insert(new.attach(1));
        region.allocate(64, 8).unwrap();
        next.store(region.base() as usize, Ordering::Relaxed);
        mapped.wait();
    });
    // The blocks that the threads did not free still exist, so the heap's counts are right.
    assert_eq!(old.attach(2).statistics().blocks, 8);
    assert_eq!(new.attach(2).statistics().blocks, 1);
}

#[test]
fn a_slot_of_a_thread_that_ended_is_another_threads() {
    let _alone = alone();
    let world = World::new(4 << 20);
    let region = world.attach(1);
    region.allocate(64, 8).unwrap();
    for _ in 0..20 {
        let thread = std::thread::spawn({
            let (region, base) = (region.clone(), region.base() as usize);
            move || {
                region.allocate(64, 8).unwrap();
                region.cache_region();
                assert!(allocate_at(base as *const u8, 64, 8).is_some());
            }
        });
        thread.join().unwrap();
    }
    assert_eq!((region.statistics().blocks, region.statistics().slots), (41, 3), "with the one that threads share");
}

#[test]
fn a_forked_child_has_no_region_near() {
    let _alone = alone();
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let offset = region.allocate(64, 16).unwrap();
    region.cache_region();
    let base: *const u8 = region.base();
    let block = allocate_at(base, 64, 8).unwrap();
    // SAFETY: the child calls two functions and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let ok = allocate_at(base, 64, 8).is_none() && !deallocate_at(base, block);
        region.cache_region();
        let ok = ok && allocate_at(base, 64, 8).is_none();
        // SAFETY: `_exit` ends the child process at once.
        unsafe { libc::_exit(i32::from(!ok)) }
    }
    let mut status = 0;
    // SAFETY: the call waits for the child that this test has forked.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(deallocate_at(base, block));
    region.deallocate(offset).unwrap();
    assert_eq!(region.statistics().used, 0);
}
