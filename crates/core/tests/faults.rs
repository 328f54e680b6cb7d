//! Each system call that a region makes fails once. What the region counts against the quota must stay right.
#![cfg(feature = "faults")]

mod common;

use common::World;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_os::faults;

/// Does work for which the region takes memory of every kind: for blocks, for the states of blocks, for heap slots and
/// for directory entries. Each call that fails is repeated. Gives by how many bytes the number that counts in the end is
/// larger than the memory that the region has, and how many calls have failed.
fn work(begin: impl FnOnce()) -> (i64, u32) {
    let world = World::new(64 << 20);
    let regions: Vec<_> = (1..40).map(|member| world.attach(member)).collect();
    let mut failed = 0;
    let mut until_it_works = |call: &mut dyn FnMut() -> bool| {
        for _ in 0..3 {
            if call() {
                return;
            }
            failed += 1;
        }
        panic!("a call failed more than once");
    };
    begin();
    for region in &regions {
        until_it_works(&mut || region.allocate(60_000, 16).is_ok());
    }
    let ty = TypeRef::new("i64").unwrap();
    for n in 0..100 {
        let name = format!("o{n}");
        until_it_works(&mut || regions[0].claim(&name, &ty, ObjectMode::CreateOnly, None).is_ok());
    }
    (regions[0].counted() as i64 - world.resident() as i64, failed)
}

#[test]
fn memory_whose_allocation_fails_does_not_count() {
    let (expected, failed) = work(|| {});
    assert_eq!(failed, 0);
    let mut failures = 0;
    let seen = faults::each_call_fails(|attempt| {
        let (more, failed) = work(|| attempt.arm());
        assert!(more <= expected, "{more} bytes count and are not there, and {expected} if no call fails");
        failures += failed;
    });
    assert!(seen.contains("fallocate") && failures > 5, "{failures} failures of {seen:?}");
}
