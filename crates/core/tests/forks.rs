//! Tests that a forked child can make regions of its own even if a thread of the parent held a lock at the moment of
//! the fork. The child must not wait for this lock, because no thread of the child would ever release it.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::World;

const CHILDREN: usize = 400;
/// The counter in the member id of the parent's first thread. The parent's other threads have the counters after it,
/// because each thread acts as a member of its own.
const FIRST_MEMBER: u64 = 10;

#[test]
fn children_of_a_process_whose_threads_attach_and_detach_do_not_hang() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let region = World::new(1 << 20).attach(FIRST_MEMBER + thread);
                    region.deallocate(region.allocate(64, 16).unwrap()).unwrap();
                }
            });
        }
        let ends: Vec<i32> = (0..CHILDREN)
            .map(|_| {
                let world = World::new(1 << 20);
                let pid = world.spawn(2, |region| i32::from(region.allocate(64, 16).is_err()));
                world.wait(2, pid)
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        let bad = ends.iter().filter(|end| **end != 0).count();
        assert_eq!(
            bad,
            0,
            "{bad} of {CHILDREN} children failed or hung; the first ended with {:?}",
            ends.iter().find(|end| **end != 0)
        );
    });
}
