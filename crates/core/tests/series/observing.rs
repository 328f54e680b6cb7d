//! Tests of observers: the waits, the versions that they hold, and the errors that they get.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossdock_core::series::{PublisherState, Spec};
use crossdock_layout::Status;
use crossdock_layout::series::PAGE_SLOTS;

use crate::series_world::{self, LONG, World, as_numbers, numbers, spec};

#[test]
fn next_waits_for_what_is_new_and_says_when_nothing_will_come() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1000));
    let mut observer = series.observe(0);
    assert_eq!(observer.latest().unwrap_err().status, Status::NotYet);
    assert_eq!(observer.next(Duration::ZERO).unwrap_err().status, Status::NotYet);
    let error = observer.next(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.to_string().contains("member 1.1"), "{error}");
    let waiting = std::thread::spawn(move || {
        let sequence = observer.next(LONG).unwrap().sequence();
        (observer, sequence)
    });
    std::thread::sleep(Duration::from_millis(20));
    publisher.publish(&[]).unwrap();
    let (mut observer, sequence) = waiting.join().unwrap();
    assert_eq!(sequence, 1);
    assert_eq!(observer.next(Duration::ZERO).unwrap_err().status, Status::NotYet);
    publisher.publish(&[]).unwrap();
    publisher.publish(&[]).unwrap();
    assert_eq!(observer.next(LONG).unwrap().sequence(), 3, "those in between are passed over");
    publisher.publish(&[]).unwrap();
    publisher.end().unwrap();
    assert_eq!(observer.state(), PublisherState::Ended);
    assert_eq!(observer.next(LONG).unwrap().sequence(), 4, "the last one is given first");
    assert_eq!(observer.next(LONG).unwrap_err().status, Status::Closed);
    assert_eq!(observer.latest().unwrap().sequence(), 4);
    assert_eq!(series.observe(1).latest().unwrap().sequence(), 4, "also to those that come later");
}

/// An observer that no wake reaches looks at the words of the series again after 50 ms. So each version must come
/// much earlier. The threads sleep in two observers, and two threads sleep in the first one.
#[test]
fn each_thread_that_sleeps_is_woken_by_the_next_version() {
    const VERSIONS: u64 = 40;
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1000));
    let (one, other) = (series.observe(0), series.observe(PAGE_SLOTS + 1));
    let seen: [AtomicU64; 3] = std::array::from_fn(|_| AtomicU64::new(0));
    let mut late = 0;
    std::thread::scope(|scope| {
        for (observer, seen) in [&one, &one, &other].into_iter().zip(&seen) {
            scope.spawn(move || {
                for sequence in 0..VERSIONS {
                    observer.waiter(Some(sequence)).wait(LONG).unwrap();
                    seen.store(sequence + 1, Ordering::SeqCst);
                }
            });
        }
        for sequence in 1..=VERSIONS {
            // Meanwhile the threads fall asleep.
            std::thread::sleep(Duration::from_millis(3));
            publisher.publish(&[]).unwrap();
            let started = Instant::now();
            while seen.iter().any(|seen| seen.load(Ordering::SeqCst) < sequence) {
                assert!(started.elapsed() < LONG, "version {sequence}");
                std::thread::yield_now();
            }
            late += u64::from(started.elapsed() > Duration::from_millis(30));
        }
    });
    assert!(late < VERSIONS / 2, "{late} of {VERSIONS} versions were seen late");
}

#[test]
fn a_dead_publishers_last_version_stays_and_who_waits_is_told() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1000));
    publisher.publish(&[]).unwrap();
    let mut observer = series.observe(0);
    assert_eq!(observer.next(LONG).unwrap().sequence(), 1);
    let waiting = std::thread::spawn(move || {
        let status = observer.next(LONG).unwrap_err().status;
        (observer, status)
    });
    std::thread::sleep(Duration::from_millis(20));
    let table = crossdock_core::liveness::LivenessSource::table(&*world);
    table.set_dead(series_world::PUBLISHER);
    crossdock_os::futex::wake_all(&table.epoch);
    let (mut observer, status) = waiting.join().unwrap();
    assert_eq!((status, observer.state()), (Status::PeerDied, PublisherState::Died));
    assert_eq!(observer.latest().unwrap().sequence(), 1);
    drop(publisher);
}

#[test]
fn versions_that_are_kept_can_be_asked_for_and_others_are_gone() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { keep: 3, ..spec(1000) });
    let mut observer = series.observe(0);
    for step in 1..=10u64 {
        numbers(&mut publisher, "u").fill(step);
        publisher.publish(&[]).unwrap();
    }
    for sequence in 7..=10 {
        let version = observer.at(sequence, Duration::ZERO).unwrap();
        assert!(as_numbers(version.bytes("u").unwrap()).iter().all(|n| *n == sequence));
    }
    let error = observer.at(6, Duration::ZERO).unwrap_err();
    assert_eq!(error.status, Status::NotFound);
    assert!(error.to_string().contains("from 7 to 10"), "{error}");
    assert_eq!(observer.at(11, Duration::ZERO).unwrap_err().status, Status::NotYet);
    assert_eq!(observer.at(0, Duration::ZERO).unwrap_err().status, Status::NotFound);
}

#[test]
fn an_observer_holds_fifteen_versions_and_no_more() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { capacity: Some(1 << 20), ..spec(8) });
    let mut observer = series.observe(0);
    let mut held = Vec::new();
    for _ in 0..15 {
        publisher.publish(&[]).unwrap();
        held.push(observer.latest().unwrap());
    }
    assert_eq!(observer.latest().unwrap_err().status, Status::Busy);
    held.remove(3);
    held.push(observer.latest().unwrap());
    assert_eq!(publisher.statistics().versions, 15);
}

#[test]
fn a_forked_child_neither_publishes_nor_observes_nor_ends_anything() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1000));
    publisher.publish(&[]).unwrap();
    let mut observer = series.observe(0);
    let held = observer.latest().unwrap();
    let mut all = Some((publisher, observer, held));
    let pid = world.fork(|| {
        let (mut publisher, mut observer, held) = all.take().unwrap();
        let cannot = publisher.publish(&[]).unwrap_err().status == Status::Disconnected
            && observer.latest().unwrap_err().status == Status::Disconnected;
        drop(held);
        drop(observer);
        drop(publisher);
        i32::from(!cannot)
    });
    assert_eq!(world.wait(pid), 0);
    let (mut publisher, observer, held) = all.unwrap();
    assert_eq!(observer.state(), PublisherState::Live);
    publisher.publish(&[]).unwrap();
    assert!(held.is_valid(), "the child did not clear its parent's pins");
    assert_eq!(publisher.statistics().versions, 2);
}

#[test]
fn an_observer_of_each_version_finds_no_fault_with_a_publisher_that_recycles_faster_than_it_looks() {
    const ENOUGH: Duration = Duration::from_secs(1);
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { max_observers: 1024, ..spec(16) });
    let mut observer = series.observe(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                publisher.publish(&[]).unwrap();
            }
        });
        let (began, mut given) = (Instant::now(), 0);
        let mut errors = 0;
        while began.elapsed() < ENOUGH {
            match observer.each(LONG) {
                Ok(version) => {
                    let missed = if given == 0 { 0 } else { version.sequence() - given - 1 };
                    assert_eq!(version.missed(), missed);
                    given = version.sequence();
                }
                Err(error) => {
                    println!("after version {given}: {error}");
                    errors += 1;
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(errors, 0);
    });
}
