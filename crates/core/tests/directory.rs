//! Tests of named objects: claiming an object, types, waiting for an object, the death of the constructing member, and
//! removing an object together with the blocks of its containers.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::World;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::region::Region;
use crossdock_layout::Status;
use crossdock_layout::region::RegionHeader;

const POLL: Option<Duration> = Some(Duration::ZERO);

fn ty(name: &str) -> TypeRef {
    TypeRef::new(name).unwrap()
}

fn make(region: &Arc<Region>, name: &str, of: &str) -> u64 {
    let claim = region.claim(name, &ty(of), ObjectMode::CreateOnly, POLL).unwrap();
    assert!(claim.created);
    region.commit(claim.offset).unwrap();
    claim.offset
}

#[test]
fn a_committed_object_is_found_by_all_and_by_its_handle() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    let offset = make(&first, "frames/0", "{i32,f64[3]}");
    let info = second.find("frames/0").unwrap();
    assert_eq!((info.offset, info.ty.clone()), (offset, ty("{i32,f64[3]}")));
    let again = second.claim("frames/0", &ty("{i32,f64[3]}"), ObjectMode::OpenOrCreate, POLL).unwrap();
    assert_eq!((again.offset, again.created), (offset, false));
    let loaded = second.load(first.save(offset).unwrap(), Some(&ty("{i32,f64[3]}"))).unwrap();
    assert_eq!((loaded.offset, loaded.size, loaded.ty), (offset, 32, Some(ty("{i32,f64[3]}"))));
    assert_eq!(second.objects().unwrap().len(), 1);
}

#[test]
fn an_object_is_told_from_the_next_one_at_the_same_place() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    let offset = make(&first, "x", "f64[400]");
    let handle = first.save(offset).unwrap();
    let found = second.load(handle, None).unwrap().incarnation.unwrap();
    assert!(second.is_still(offset, found) && first.is_still(offset, found));
    assert!(!second.is_still(offset + 64, found));
    first.remove("x").unwrap();
    assert!(!second.is_still(offset, found), "removed");
    let again = (0..10_000).any(|_| {
        let same = make(&first, "x", "f64[400]") == offset;
        if !same {
            first.remove("x").unwrap();
        }
        same
    });
    assert!(again, "the same block serves again");
    assert!(!second.is_still(offset, found), "another object of the same name, type and place");
    let next = second.load(handle, None).unwrap().incarnation.unwrap();
    assert!(second.is_still(offset, next) && next != found);
    // After the death of any member, `is_still` gives `false` to another member until that member has healed the region
    // and has loaded the object again.
    let pid = world.spawn(3, |_| 0);
    assert_eq!(world.wait(3, pid), 0);
    assert!(!second.is_still(offset, next));
    assert_eq!(second.load(handle, None).unwrap().incarnation, Some(next));
    assert!(second.is_still(offset, next));
    // A block without a name has no directory entry. So the block has no incarnation (a number that tells apart the
    // objects that used the same entry at different times).
    let block = first.allocate(64, 8).unwrap();
    assert_eq!(second.load(first.save(block).unwrap(), None).unwrap().incarnation, None);
}

#[test]
fn claimed_memory_is_zeroed_whatever_lay_there() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    for size in [100usize, 100_000] {
        let offset = region.allocate(size as u64, 64).unwrap();
        // SAFETY: the range is a block that this test allocated.
        unsafe { region.base().add(offset as usize).write_bytes(0xff, size) };
        region.deallocate(offset).unwrap();
        let of = ty(&format!("u8[{size}]"));
        let claim = region.claim("x", &of, ObjectMode::CreateOnly, POLL).unwrap();
        // SAFETY: the bytes are those of the claimed object, which has this size.
        let bytes = unsafe { std::slice::from_raw_parts(region.base().add(claim.offset as usize), size) };
        assert!(bytes.iter().all(|b| *b == 0));
        region.abandon(claim.offset).unwrap();
    }
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn another_type_is_refused_and_both_are_named() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let offset = make(&region, "x", "vector<f64>");
    let error = region.claim("x", &ty("vector<f32>"), ObjectMode::OpenOrCreate, POLL).unwrap_err();
    assert_eq!(error.status, Status::WrongType);
    assert!(error.to_string().contains("vector<f64>") && error.to_string().contains("vector<f32>"), "{error}");
    let handle = region.save(offset).unwrap();
    assert_eq!(region.load(handle, Some(&ty("i32"))).unwrap_err().status, Status::WrongType);
    let lie = TypeRef { name: "f64".into(), size: 4, align: 4 };
    assert_eq!(region.claim("y", &lie, ObjectMode::CreateOnly, POLL).unwrap_err().status, Status::Invalid);
}

#[test]
fn modes_do_what_they_say() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let status = |name: &str, mode| region.claim(name, &ty("i32"), mode, POLL).unwrap_err().status;
    assert_eq!(status("x", ObjectMode::OpenOnly), Status::NotFound);
    make(&region, "x", "i32");
    assert_eq!(status("x", ObjectMode::CreateOnly), Status::Exists);
    for bad in ["", "a b", "/x", "x/", "a/../b", &"n".repeat(128)] {
        assert_eq!(status(bad, ObjectMode::OpenOrCreate), Status::Invalid, "{bad}");
    }
    make(&region, &"n".repeat(127), "i32");
    assert_eq!(region.remove("y").unwrap_err().status, Status::NotFound);
}

#[test]
fn no_task_sees_an_object_under_construction() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    let claim = first.claim("x", &ty("i64"), ObjectMode::OpenOrCreate, POLL).unwrap();
    assert_eq!(second.find("x").unwrap_err().status, Status::NotFound);
    let poll = second.claim("x", &ty("i64"), ObjectMode::OpenOrCreate, POLL).unwrap_err();
    assert_eq!(poll.status, Status::NotYet);
    assert_eq!(second.remove("x").unwrap_err().status, Status::Busy);
    assert_eq!(second.deallocate(claim.offset).unwrap_err().status, Status::Busy);
    assert_eq!(second.load(first.save(claim.offset).unwrap(), None).unwrap_err().status, Status::BadHandle);
    assert_eq!(second.commit(claim.offset).unwrap_err().status, Status::BadHandle, "not his to commit");
    first.abandon(claim.offset).unwrap();
    assert!(second.claim("x", &ty("i64"), ObjectMode::OpenOrCreate, POLL).unwrap().created);
}

#[test]
fn who_waits_gets_the_object_when_it_is_committed() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    let waits = |mode| {
        let second = second.clone();
        std::thread::spawn(move || second.claim("late", &ty("i64"), mode, Some(Duration::from_secs(20))))
    };
    let opener = waits(ObjectMode::OpenOnly);
    let claim = first.claim("late", &ty("i64"), ObjectMode::CreateOnly, POLL).unwrap();
    let creator = waits(ObjectMode::OpenOrCreate);
    std::thread::sleep(Duration::from_millis(50));
    first.commit(claim.offset).unwrap();
    for waiter in [opener, creator] {
        let got = waiter.join().unwrap().unwrap();
        assert_eq!((got.offset, got.created), (claim.offset, false));
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_says_for_whom() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    let wait = Some(Duration::from_millis(60));
    let start = Instant::now();
    let absent = second.claim("none", &ty("i64"), ObjectMode::OpenOnly, wait).unwrap_err();
    assert_eq!(absent.status, Status::TimedOut);
    first.claim("x", &ty("i64"), ObjectMode::CreateOnly, POLL).unwrap();
    let busy = second.claim("x", &ty("i64"), ObjectMode::OpenOrCreate, wait).unwrap_err();
    assert_eq!(busy.status, Status::NotYet);
    assert!(busy.to_string().contains("member 1.1"), "{busy}");
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[test]
fn the_death_of_a_constructor_ends_the_wait_and_frees_the_name() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let pid = world.spawn(2, |region| {
        let claim = region.claim("x", &ty("vector<f64>"), ObjectMode::CreateOnly, POLL).unwrap();
        region.vector_resize(claim.offset, 8, 100_000).unwrap();
        std::mem::forget(region); // the member dies without leaving the region
        0
    });
    let waiter = std::thread::spawn({
        let region = region.clone();
        move || {
            while region.find("x").is_err() && region.statistics().blocks < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            region.claim("x", &ty("vector<f64>"), ObjectMode::OpenOrCreate, Some(Duration::from_secs(30)))
        }
    });
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(world.wait(2, pid), 0);
    let start = Instant::now();
    let claim = waiter.join().unwrap().unwrap();
    assert!(claim.created);
    assert!(start.elapsed() < Duration::from_secs(1));
    region.abandon(claim.offset).unwrap();
    assert_eq!(region.statistics().used, 0, "the vector's data went, too");
}

#[test]
fn a_directory_takes_many_objects_and_uses_entries_again() {
    let world = World::new(4 << 20); // 128 entries
    let region = world.attach(1);
    for _ in 0..3 {
        let names: Vec<String> = (0..128).map(|i| format!("object-{i}")).collect();
        for name in &names {
            make(&region, name, "i32");
        }
        let full = region.claim("one-more", &ty("i32"), ObjectMode::CreateOnly, POLL).unwrap_err();
        assert_eq!(full.status, Status::NoSpace);
        assert_eq!(region.objects().unwrap().len(), 128);
        for name in &names {
            region.find(name).unwrap();
            region.remove(name).unwrap();
            assert_eq!(region.find(name).unwrap_err().status, Status::NotFound);
        }
    }
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn a_reader_finds_and_loads_but_changes_nothing() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let offset = make(&region, "x", "i64");
    let reader = world.try_attach(2, false).unwrap();
    assert_eq!(reader.find("x").unwrap().offset, offset);
    assert_eq!(reader.load(region.save(offset).unwrap(), Some(&ty("i64"))).unwrap().offset, offset);
    assert!(!reader.claim("x", &ty("i64"), ObjectMode::OpenOrCreate, POLL).unwrap().created);
    assert_eq!(reader.statistics().blocks, 1);
    let denied = |e: crossdock_core::Error| assert_eq!(e.status, Status::Denied, "{e}");
    denied(reader.allocate(8, 8).unwrap_err());
    denied(reader.deallocate(offset).unwrap_err());
    denied(reader.claim("y", &ty("i64"), ObjectMode::OpenOrCreate, POLL).unwrap_err());
    denied(reader.remove("x").unwrap_err());
    denied(reader.heal().unwrap_err());
}

#[test]
fn claims_that_were_never_committed_go_when_the_region_is_left() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    let claim = first.claim("x", &ty("vector<f64>"), ObjectMode::CreateOnly, POLL).unwrap();
    first.vector_resize(claim.offset, 8, 10).unwrap();
    first.prepare(1000, 64).unwrap();
    drop(first);
    assert_eq!(second.statistics().used, 0);
    make(&second, "x", "i32");
}

#[test]
fn a_member_that_cannot_abandon_its_objects_keeps_the_slot_in_which_their_removal_is_recorded() {
    let world = World::new(4 << 20);
    let (leaving, other) = (world.attach(1), world.attach(2));
    leaving.claim("a", &ty("i64[100]"), ObjectMode::CreateOnly, POLL).unwrap();
    world.liveness().set_alive(common::member(3));
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let holder = unsafe { &(*other.base().cast::<RegionHeader>()).lock.holder };
    holder.store(common::member(3).0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The leaving member tries for some time to abandon the object. The lock becomes free only after that time.
            std::thread::sleep(Duration::from_secs(13));
            holder.store(0, Ordering::SeqCst);
        });
        drop(leaving);
    });
    assert_eq!(other.statistics().slots, 1, "a thread of another member could take the slot");
    world.liveness().set_dead(common::member(1));
    other.heal().unwrap();
    assert_eq!((other.statistics().slots, other.statistics().used), (0, 0));
}

/// Two threads of one process end the construction of the same object at the same time. Only one of the two calls may
/// change the directory; the other call must fail.
#[test]
fn of_two_threads_that_commit_or_abandon_an_object_only_one_does_it() {
    type End = fn(&Arc<Region>, u64) -> crossdock_core::Result<()>;
    let (commit, abandon): (End, End) =
        (|region, offset| region.commit(offset), |region, offset| region.abandon(offset));
    let world = World::new(4 << 20);
    let region = world.attach(1);
    let bystanders: Vec<u64> = (0..100).map(|i| make(&region, &format!("by{i}"), "f64")).collect();
    world.liveness().set_alive(common::member(3));
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let holder = unsafe { &(*region.base().cast::<RegionHeader>()).lock.holder };
    for ends in [[commit, commit], [abandon, commit], [abandon, abandon]] {
        let offset = region.claim("x", &ty("f64"), ObjectMode::CreateOnly, POLL).unwrap().offset;
        // Each thread allocates a block first, so that it has a heap slot before another member gets the lock.
        let ready = std::sync::Barrier::new(3);
        let ended = std::thread::scope(|scope| {
            let threads = ends.map(|end| {
                let (region, ready) = (&region, &ready);
                scope.spawn(move || {
                    region.deallocate(region.allocate(16, 16).unwrap()).unwrap();
                    ready.wait();
                    ready.wait();
                    end(region, offset)
                })
            });
            ready.wait();
            holder.store(common::member(3).0, Ordering::SeqCst);
            ready.wait();
            // Now both calls wait for the lock. On a busy machine, one thread may get no CPU during the pause; then the
            // calls run one after the other, and the test still holds.
            std::thread::sleep(Duration::from_millis(100));
            holder.store(0, Ordering::SeqCst);
            threads.map(|thread| thread.join().unwrap())
        });
        let failed = ended.iter().filter_map(|ended| ended.as_ref().err()).map(|error| error.status);
        assert_eq!(failed.collect::<Vec<_>>(), [Status::BadHandle], "{ended:?}");
        for &offset in &bystanders {
            region.load(region.save(offset).unwrap(), Some(&ty("f64"))).unwrap();
        }
        assert_eq!(region.find("x").is_ok(), region.remove("x").is_ok());
    }
    assert_eq!(region.statistics().objects, 100);
}

#[test]
fn an_object_that_can_be_neither_committed_nor_abandoned_leaves_its_name_free() {
    let world = World::new(4 << 20);
    let (first, second) = (world.attach(1), world.attach(2));
    make(&first, "kept", "i64");
    let (blocks, of) = (first.statistics().blocks, ty("vector<f64>"));
    let claims = ["opened", "removed"].map(|name| first.claim(name, &of, ObjectMode::CreateOnly, POLL).unwrap());
    for claim in &claims {
        first.vector_resize(claim.offset, 8, 10).unwrap();
    }
    world.liveness().set_alive(common::member(3));
    // SAFETY: the header is at the region's beginning, and consists of atomics.
    let holder = unsafe { &(*second.base().cast::<RegionHeader>()).lock.holder };
    holder.store(common::member(3).0, Ordering::SeqCst);
    let fails = |offset| assert_eq!(first.commit_or_abandon(offset).unwrap_err().status, Status::Busy);
    std::thread::scope(|scope| {
        for claim in &claims {
            scope.spawn(|| fails(claim.offset));
        }
    });
    assert_eq!(holder.swap(0, Ordering::SeqCst), common::member(3).0);
    // The entry that is left counts neither as an object nor as under construction.
    let began = Instant::now();
    let error = first.claim("opened", &of, ObjectMode::OpenOnly, None).unwrap_err();
    assert_eq!(error.status, Status::NotFound, "{error}");
    let wait = Some(Duration::from_millis(10));
    let error = first.claim("opened", &of, ObjectMode::OpenOnly, wait).unwrap_err();
    assert_eq!(error.status, Status::TimedOut, "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "it waited for {:?}", began.elapsed());
    assert_eq!(first.remove("removed").unwrap_err().status, Status::NotFound);
    assert_eq!(first.vector::<f64>("opened", ObjectMode::OpenOrCreate, POLL).unwrap().len().unwrap(), 0);
    first.remove("opened").unwrap();
    assert_eq!(first.statistics().blocks, blocks);
}
