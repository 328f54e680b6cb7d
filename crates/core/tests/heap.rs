//! Tests of the heap in one process: sizes, alignment, detection of misuse, growth, reuse.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{World, member};
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::host::StandaloneHost;
use crossdock_core::region::{MappedRegionParts, Region};
use crossdock_layout::region::{Geometry, RegionHeader};
use crossdock_layout::{Handle, SegmentId, Status};
use crossdock_os::testing::Random;
use crossdock_os::{Access, Mapping, file, tmpfs};

#[test]
fn blocks_are_aligned_apart_and_counted() {
    let world = World::new(64 << 20);
    let region = world.attach(1);
    let mut live = BTreeMap::new();
    for (size, align) in
        [(1, 1), (16, 16), (33, 8), (100, 64), (4096, 4096), (5000, 64), (32768, 16), (40_000, 64), (3 << 20, 64)]
    {
        let offset = region.allocate(size, align).unwrap();
        assert_eq!(offset % align, 0);
        let block = region.block_size(offset).unwrap();
        assert!(block >= size);
        live.insert(offset, block);
    }
    let mut end = 0;
    for (offset, size) in &live {
        assert!(*offset >= end);
        end = offset + size;
    }
    let s = region.statistics();
    assert_eq!((s.blocks, s.used), (live.len() as u64, live.values().sum()));
    for offset in live.keys() {
        region.deallocate(*offset).unwrap();
    }
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn a_block_is_freed_once_and_only_by_its_start() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    for size in [48, 20_000, 200_000] {
        let offset = region.allocate(size, 16).unwrap();
        for wrong in [offset + 16, offset - 8, 0, u64::MAX, 1 << 40] {
            assert_eq!(region.deallocate(wrong).unwrap_err().status, Status::BadHandle, "{wrong:#x}");
        }
        region.deallocate(offset).unwrap();
        assert_eq!(region.deallocate(offset).unwrap_err().status, Status::BadHandle);
    }
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn steps_of_growth_end_at_huge_pages() {
    const HUGE: u64 = 2 << 20;
    let world = World::new(64 << 20);
    let region = world.attach(1);
    assert_eq!(region.base() as u64 % HUGE, 0);
    let before = world.resident();
    let first = region.allocate(64, 16).unwrap();
    // The region also uses some pages for slice heads and state bytes. The result is rounded down to whole slices, so
    // that it does not count these pages.
    let in_slices = |resident: u64| (resident - before) & !0xffff;
    assert_eq!(in_slices(world.resident()), HUGE);
    // This block does not fit into the rest of the first huge page, so the region grows by a second huge page. The rest
    // of the second huge page stays free for other blocks.
    let second = region.allocate((3 << 20) + 1, 16).unwrap();
    assert_eq!(in_slices(world.resident()), 2 * HUGE);
    let third = region.allocate(HUGE / 4, 16).unwrap();
    assert_eq!(in_slices(world.resident()), 2 * HUGE, "no step for what is there");
    // The quota has no room for a whole huge page, but it has room for this block.
    world.quota().store(world.resident() + (1 << 20) + 65536, Ordering::Relaxed);
    let fourth = region.allocate(1 << 20, 16).unwrap();
    assert_eq!(in_slices(world.resident()), 2 * HUGE + (10 << 16), "what lacks, in slices");
    for block in [first, second, third, fourth] {
        region.deallocate(block).unwrap();
    }
}

#[test]
fn bad_requests_are_refused() {
    let world = World::new(1 << 20);
    let region = world.attach(1);
    assert_eq!(region.allocate(0, 8).unwrap_err().status, Status::Invalid);
    assert_eq!(region.allocate(8, 3).unwrap_err().status, Status::Invalid);
    assert_eq!(region.allocate(8, 8192).unwrap_err().status, Status::Invalid);
    assert_eq!(region.allocate(u64::MAX, 8).unwrap_err().status, Status::NoSpace);
    assert_eq!(region.allocate(1 << 20, 8).unwrap_err().status, Status::NoSpace);
}

#[test]
fn a_full_region_is_an_error_and_all_of_it_comes_back() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    for size in [64, 1000, 30_000, 100_000] {
        let mut blocks = Vec::new();
        let error = loop {
            match region.allocate(size, 16) {
                Ok(offset) => blocks.push(offset),
                Err(error) => break error,
            }
        };
        assert_eq!(error.status, Status::NoSpace, "{error}");
        assert!(blocks.len() as u64 * size > 2 << 20, "{size}: {}", blocks.len());
        for offset in blocks {
            region.deallocate(offset).unwrap();
        }
        assert_eq!(region.statistics().used, 0);
    }
}

#[test]
fn a_quota_is_an_error_and_memory_is_taken_in_steps() {
    let world = World::new(1 << 30);
    let region = world.attach(1);
    assert!(world.resident() <= 65536, "an empty region takes {}", world.resident());
    world.quota().store(8 << 20, Ordering::Relaxed);
    let first = region.allocate(1 << 20, 64).unwrap();
    assert!(world.resident() <= 3 << 20);
    assert_eq!(region.allocate(16 << 20, 64).unwrap_err().status, Status::NoSpace);
    assert!(world.resident() <= 8 << 20);
    // The request for 16 MiB failed, but a block that fits into the rest of the quota can still be allocated.
    region.allocate(5 << 20, 64).unwrap();
    region.deallocate(first).unwrap();
    region.allocate(1 << 20, 64).unwrap();
}

#[test]
fn no_member_has_the_lock_while_it_asks_the_daemon() {
    let world = World::new(256 << 20);
    let region = world.attach(1);
    let other = world.attach(2);
    for size in [64, 5_000, 100_000, 3 << 20, 90 << 20] {
        region.allocate(size, 16).unwrap();
    }
    let ty = TypeRef::new("i64").unwrap();
    for i in 0..200 {
        let claim = region.claim(&format!("o{i}"), &ty, ObjectMode::CreateOnly, None).unwrap();
        region.commit(claim.offset).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| region.allocate(64, 16).unwrap());
        }
    });
    assert_eq!(world.held(), 0, "a member asked for quota");
    region.claim("half", &ty, ObjectMode::CreateOnly, None).unwrap();
    let error = other.claim("half", &ty, ObjectMode::OpenOrCreate, Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.status, Status::NotYet, "{error}");
    assert_eq!(other.remove("half").unwrap_err().status, Status::Busy);
    assert_eq!(world.held(), 0, "a member asked who constructs an object");
}

#[test]
fn other_members_can_have_the_lock_while_a_region_grows_by_much() {
    const SIZE: u64 = 400 << 20;
    // The thread that watches the lock may get no CPU for a moment, so the test repeats the measurement.
    let seen = (0..5).any(|_| {
        let world = World::new(1 << 30);
        let region = world.attach(1);
        region.allocate(64, 16).unwrap();
        let mut block = 0;
        let unlocks = world.unlocks_during(&region, || block = region.allocate(SIZE, 64).unwrap());
        assert!(region.block_size(block).unwrap() >= SIZE);
        unlocks >= 4
    });
    assert!(seen, "one member had the lock all the time");
}

#[test]
fn other_members_can_have_the_lock_while_a_large_region_is_searched_for_unused_slices() {
    let world = World::new(32 << 30);
    let region = world.attach(1);
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let header = unsafe { &*region.base().cast::<RegionHeader>() };
    // The store makes the region look as if it had grown to its full size. Its slices have no memory, but the search
    // does not read them.
    header.committed.store(Geometry::of(32 << 30).unwrap().slices, Ordering::Release);
    // The thread that watches the lock may get no CPU for a moment, so the test repeats the measurement.
    let heal = || drop(region.heal());
    let seen = (0..50).any(|_| world.unlocks_during(&region, heal) >= 4);
    assert!(seen, "one member had the lock all the time");
}

#[test]
fn a_region_that_cannot_grow_by_enough_gives_the_memory_of_its_first_steps_back() {
    const SIZE: u64 = 1 << 30;
    let folder = tmpfs::Folder::mount(300 << 20).unwrap();
    let file = folder.create("region", SIZE).unwrap();
    let mapping = Mapping::for_huge_pages(&file, SIZE as usize, Access::ReadWrite).unwrap();
    let parts = MappedRegionParts {
        name: "test".into(),
        segment: SegmentId(7),
        file: SegmentId(7),
        writable: true,
        member: StandaloneHost::MEMBER,
        host: Arc::new(StandaloneHost::default()),
    };
    let descriptor = file.try_clone().unwrap();
    let region = Region::over(mapping, Some(descriptor.into()), parts).unwrap();
    region.allocate(64, 16).unwrap();
    let (before, (_, taken)) = (region.statistics(), file::sizes(&file).unwrap());
    assert_eq!(region.allocate(400 << 20, 64).unwrap_err().status, Status::NoSpace);
    assert_eq!(region.statistics(), before);
    let (_, left) = file::sizes(&file).unwrap();
    assert!(left < taken + (1 << 20), "{left} bytes are taken, {taken} were");
    let block = region.allocate(200 << 20, 64).unwrap();
    // SAFETY: the block has these bytes, and only this test uses it.
    unsafe { region.base().add(block as usize).write_bytes(7, 200 << 20) };
}

#[test]
fn a_region_whose_daemon_is_lost_while_it_grows_gives_the_memory_of_its_first_steps_back() {
    const SIZE: u64 = 200 << 20;
    let world = World::new(1 << 30);
    let region = world.attach(1);
    region.allocate(64, 16).unwrap();
    let (before, taken) = (region.statistics(), world.resident());
    // The region grows in steps. The first request asks the daemon for as many bytes as the block needs, and succeeds.
    // The last step takes more memory than the block still needs. So the member has to send a second request, for more
    // bytes in total. The daemon is lost during the second request.
    world.lost_above().store(taken + SIZE + (4 << 20), Ordering::Relaxed);
    assert_eq!(region.allocate(SIZE, 64).unwrap_err().status, Status::Disconnected);
    assert_eq!(region.statistics(), before);
    let left = world.resident();
    assert!(left < taken + (1 << 20), "{left} bytes are taken, {taken} were");
    world.lost_above().store(0, Ordering::Relaxed);
    let block = region.allocate(SIZE, 64).unwrap();
    // SAFETY: the block has these bytes, and only this test uses it.
    unsafe { region.base().add(block as usize).write_bytes(7, SIZE as usize) };
}

#[test]
fn who_loses_the_daemon_does_not_wait_for_the_lock_if_nothing_has_grown() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    world.liveness().set_alive(member(3));
    world.taker().store(member(3).0, Ordering::Relaxed);
    world.lost_above().store(1, Ordering::Relaxed);
    let began = Instant::now();
    assert_eq!(region.allocate(64, 16).unwrap_err().status, Status::Disconnected);
    assert!(began.elapsed() < Duration::from_secs(9), "it waited for {:?}", began.elapsed());
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let lock = unsafe { &(*region.base().cast::<RegionHeader>()).lock };
    assert_eq!(lock.holder.swap(0, Ordering::SeqCst), member(3).0);
}

#[test]
fn a_member_waits_for_the_lock_while_other_members_take_turns_with_it() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let lock = unsafe { &(*region.base().cast::<RegionHeader>()).lock };
    let turns = [member(2), member(3)];
    for counter in [2, 3] {
        world.liveness().set_alive(member(counter));
    }
    lock.holder.store(turns[0].0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=5 {
                std::thread::sleep(Duration::from_millis(2500));
                lock.holder.store(turns[turn % 2].0, Ordering::SeqCst);
            }
            lock.holder.store(0, Ordering::SeqCst);
        });
        region.allocate(64, 16).unwrap();
    });
}

/// If a member is stopped while it has the lock, another member waits for the lock once, and not once for each block
/// that it frees.
#[test]
fn a_member_waits_once_for_a_stopped_member_that_has_the_lock() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let blocks: Vec<u64> = (0..5).map(|_| region.allocate(64, 16).unwrap()).collect();
    let dead = member(4);
    world.liveness().set_alive(dead);
    world.liveness().set_alive(member(3));
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let lock = unsafe { &(*region.base().cast::<RegionHeader>()).lock };
    lock.holder.store(member(3).0, Ordering::SeqCst);
    world.liveness().set_dead(dead);
    let began = Instant::now();
    for block in &blocks {
        assert_eq!(region.deallocate(*block).unwrap_err().status, Status::Busy);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for {:?}", began.elapsed());
    // From here on, the test acts for the stopped member, which runs again. That member releases the lock and
    // increments `gate`, because another member waits. Then another thread of the same member takes the lock, so
    // `holder` names this member again. That thread releases the lock after a second.
    assert_eq!(lock.waiting.swap(0, Ordering::SeqCst), 1);
    lock.gate.fetch_add(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            lock.holder.store(0, Ordering::SeqCst);
        });
        blocks.iter().for_each(|block| region.deallocate(*block).unwrap());
    });
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn what_one_member_leaves_another_uses() {
    let world = World::new(4 << 20);
    let first = world.attach(1);
    let blocks: Vec<u64> = (0..20_000).map(|_| first.allocate(100, 8).unwrap()).collect();
    drop(first);
    let second = world.attach(2);
    assert_eq!(second.statistics().blocks, 20_000);
    for offset in blocks {
        second.deallocate(offset).unwrap();
    }
    assert_eq!(second.statistics().used, 0);
    let large = second.allocate(3 << 20, 64).unwrap();
    second.deallocate(large).unwrap();
    assert_eq!(second.statistics().slices, 0);
}

#[test]
fn blocks_that_another_member_freed_are_used_again() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    for _ in 0..20 {
        let blocks: Vec<u64> = (0..20_000).map(|_| first.allocate(100, 8).unwrap()).collect();
        for offset in blocks {
            second.deallocate(offset).unwrap();
        }
    }
    assert_eq!(first.statistics().used, 0);
    assert!(first.statistics().slices <= 40, "{:?}", first.statistics());
}

#[test]
fn threads_of_a_process_allocate_at_once() {
    let world = World::new(64 << 20);
    let region = world.attach(1);
    std::thread::scope(|scope| {
        for seed in 1..=8u64 {
            let region = &region;
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut live = Vec::new();
                for _ in 0..20_000 {
                    if live.len() < 100 || random.below(2) == 0 {
                        let most = if random.below(50) == 0 { 200_000 } else { 600 };
                        let size = 1 + random.below(most);
                        live.push(region.allocate(size, 16).unwrap());
                    } else {
                        let at = random.below(live.len());
                        region.deallocate(live.swap_remove(at)).unwrap();
                    }
                }
                for offset in live {
                    region.deallocate(offset).unwrap();
                }
            });
        }
    });
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn more_threads_than_slots_share_one() {
    let world = World::new(1 << 20); // 16 slots
    let region = world.attach(1);
    let blocks: Vec<u64> = (0..24).map(|_| region.allocate(64, 16).unwrap()).collect();
    let barrier = std::sync::Barrier::new(24);
    std::thread::scope(|scope| {
        for &block in &blocks {
            let (region, barrier) = (&region, &barrier);
            scope.spawn(move || {
                let freed = region.deallocate(block);
                barrier.wait();
                freed.unwrap();
            });
        }
    });
    assert_eq!(region.statistics().used, 0);
    assert_eq!(region.statistics().slots, 16);
}

#[test]
fn handles_are_checked() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let offset = region.allocate(100, 16).unwrap();
    let handle = region.save(offset).unwrap();
    assert_eq!(region.load(handle, None).unwrap().offset, offset);
    let status = |handle| region.load(handle, None).unwrap_err().status;
    assert_eq!(status(Handle { segment: 8, ..handle }), Status::BadHandle);
    assert_eq!(status(Handle { offset: offset + 16, ..handle }), Status::BadHandle);
    assert_eq!(status(Handle { offset: u64::MAX - 3, ..handle }), Status::BadHandle);
    assert_eq!(status(Handle::NONE), Status::BadHandle);
    region.deallocate(offset).unwrap();
    assert_eq!(status(handle), Status::BadHandle);
    assert_eq!(region.save(offset).unwrap_err().status, Status::BadHandle);
}

#[test]
fn a_forked_child_is_refused() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let offset = region.allocate(100, 16).unwrap();
    // SAFETY: the child calls two functions and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let denied = |status: Status| status == Status::Disconnected;
        let ok = region.allocate(8, 8).is_err_and(|e| denied(e.status))
            && region.deallocate(offset).is_err_and(|e| denied(e.status));
        drop(region);
        // SAFETY: `_exit` ends the child process at once.
        unsafe { libc::_exit(i32::from(!ok)) }
    }
    let mut status = 0;
    // SAFETY: the call waits for the child that this test has forked.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    region.deallocate(offset).unwrap();
    assert_eq!(region.statistics().slots, 1);
}

#[test]
fn what_is_no_region_is_refused() {
    assert_eq!(World::new(4096).try_attach(1, true).unwrap_err().status, Status::Invalid);
    let world = World::new(1 << 20);
    let region = world.attach(1);
    // SAFETY: the write goes to the version in the header of this test's own region.
    unsafe { region.base().add(8).write_volatile(99) };
    assert_eq!(world.try_attach(2, true).unwrap_err().status, Status::Incompatible);
    // SAFETY: the write goes to the magic number in the header of this test's own region.
    unsafe { region.base().write_volatile(1) };
    assert_eq!(world.try_attach(3, true).unwrap_err().status, Status::Corrupt);
}
