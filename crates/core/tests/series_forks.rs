//! Tests of forked children of a publisher's process. These tests are a separate test program and run one after
//! another. Otherwise, children that other tests fork would inherit the publisher, too.

mod series_world;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossdock_core::series::{Detect, Pages, Publisher, Spec};

use series_world::{LONG, World, as_numbers, numbers, spec};

const NUMBERS: usize = 65536;

static ALONE: Mutex<()> = Mutex::new(());

fn publish(publisher: &mut Publisher, begins: bool, number: u64) {
    if begins {
        publisher.begin().unwrap();
    }
    numbers(publisher, "u").fill(number);
    publisher.publish(&[]).unwrap();
}

/// Forks a child, publishes several versions, and lets the child read the variable. Then checks that the publisher
/// frees the slots which it kept for the child. If `closes` is true, the child first closes all its descriptors.
fn check(detect: Detect, pages: Pages, begins: bool, closes: bool) {
    const READ: usize = 10;
    const READY: usize = 12;
    let world = World::new();
    let spec = Spec { detect, pages, chunk: Some(65536), ..spec(NUMBERS as u64) };
    let (mut publisher, _series) = world.publisher(spec);
    // With the method of private copies, these twenty publishes are enough to turn all chunks of the variable's memory
    // into mappings of slots.
    (0..20).for_each(|_| publish(&mut publisher, begins, 1));
    let used = publisher.statistics().slots.0;
    let start = publisher.memory("u").unwrap().cast::<u64>();
    let pid = world.fork(|| {
        if closes {
            // SAFETY: from now on, the child uses no descriptors except the standard streams.
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        }
        world.word(READY).store(1, Ordering::SeqCst);
        while world.word(READ).load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: the range is the variable's memory, which the child has inherited. No thread of the child writes to
        // it.
        let seen = unsafe { std::slice::from_raw_parts(start, NUMBERS) };
        let differing = seen.iter().filter(|number| **number != 1).count();
        println!("the child sees {differing} other numbers");
        i32::from(differing > 0)
    });
    let started = Instant::now();
    while world.word(READY).load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < LONG, "the child does not run");
        std::thread::sleep(Duration::from_micros(200));
    }
    (2..10).for_each(|number| publish(&mut publisher, begins, number));
    let kept = publisher.statistics().slots.0;
    assert!(kept <= 2 * used, "{kept} slots are used, {used} without the child");
    world.word(READ).store(1, Ordering::SeqCst);
    assert_eq!(world.wait(pid), 0, "{detect:?}, begins: {begins}, closes: {closes}");
    let started = Instant::now();
    while publisher.statistics().slots.0 > used {
        assert!(
            started.elapsed() < LONG,
            "{} slots are used, {used} without the child",
            publisher.statistics().slots.0
        );
        publish(&mut publisher, begins, 10);
    }
}

#[test]
fn a_forked_child_sees_the_variables_as_they_were_at_the_fork() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for begins in [false, true] {
        check(Detect::PrivateCopies, Pages::MayMove, begins, false);
        check(Detect::Auto, Pages::Stay, begins, false);
    }
}

#[test]
fn a_forked_child_that_closes_its_descriptors_sees_the_variables_as_they_were_at_the_fork() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for begins in [false, true] {
        check(Detect::PrivateCopies, Pages::MayMove, begins, true);
    }
}

#[test]
fn a_child_that_writes_a_begun_version_after_it_was_given_up_changes_no_other_version() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const PASSES: usize = 10;
    const STOP: usize = 11;
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(65536), ..spec(NUMBERS as u64) });
    let mut observer = series.observe(0);
    publish(&mut publisher, false, 1);
    publisher.begin().unwrap();
    let start = publisher.memory("u").unwrap().cast::<u64>();
    let pid = world.fork(|| {
        while world.word(STOP).load(Ordering::SeqCst) == 0 {
            // SAFETY: the word is one of the `NUMBERS` numbers of the begun version, which the child has inherited.
            (0..NUMBERS).for_each(|n| unsafe { start.add(n).write_volatile(666) });
            world.word(PASSES).fetch_add(1, Ordering::SeqCst);
        }
        0
    });
    publisher.abandon().unwrap();
    for number in 2..8 {
        publish(&mut publisher, false, number);
        let version = observer.latest().unwrap();
        let (passes, started) = (world.word(PASSES).load(Ordering::SeqCst), Instant::now());
        while world.word(PASSES).load(Ordering::SeqCst) < passes + 2 {
            assert!(started.elapsed() < LONG, "the child does not write");
            std::thread::sleep(Duration::from_micros(200));
        }
        let seen = as_numbers(version.bytes("u").unwrap());
        assert!(seen.iter().all(|seen| *seen == number), "version {}", version.sequence());
    }
    world.word(STOP).store(1, Ordering::SeqCst);
    assert_eq!(world.wait(pid), 0);
}
