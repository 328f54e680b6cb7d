//! Kill tests of series: a publisher or an observer dies by SIGKILL at every fault point, and the other processes
//! continue.
//!
//! After a publisher's death, the versions that it has published are complete, both for observers that hold them and
//! for observers that come later. Observers that wait learn of the death immediately. An observer's death does not
//! delay the publisher. When the daemon has cleared the dead observer's pins, the memory of the versions that it held
//! becomes free again.
#![cfg(feature = "fault-points")]

mod series_world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crossdock_core::fault;
use crossdock_core::series::{Detect, FAULT_POINTS, FullPolicy, Publisher, PublisherState, Report, Spec, Version};
use crossdock_layout::Status;
use series_world::{LONG, Series, World, as_numbers, numbers, pages, pattern, spec};

const SIGKILL: i32 = -9;
const WORDS: u64 = 40 * 512;
/// A wait must end within this time after a death. The time is much shorter than the timeouts of the waits, but long
/// enough for a busy machine.
const SOON: Duration = Duration::from_secs(2);
/// Indices of words of memory that the processes share. `RETURNED`: the last version whose publish has returned. `GO`:
/// a number that the parent increases to let the child continue.
const RETURNED: usize = 3000;
const GO: usize = 3001;
const STEPS: u64 = 40;

fn small(detect: Detect) -> Spec {
    Spec {
        chunk: Some(4096),
        capacity: Some(4 * WORDS * 8),
        max_observers: 4,
        keep: 1,
        full: FullPolicy::TakeBack,
        pages: pages(detect),
        detect,
        ..spec(WORDS)
    }
}

fn whole(version: &Version) {
    pattern::check(as_numbers(version.bytes("u").unwrap()), version.sequence(), 1).unwrap();
}

/// Publishes three versions and then does everything that a publisher can do. The process dies when it arrives at the
/// fault point `point` for the `nth` time.
fn work(world: &World, publisher: &mut Publisher, detect: Detect, point: &str, nth: u32) -> i32 {
    let step = |publisher: &mut Publisher| {
        let step = publisher.sequence() + 1;
        if step % 5 == 0 {
            publisher.begin().unwrap();
            if step % 10 == 0 {
                numbers(publisher, "u").fill(0);
                publisher.abandon().unwrap();
                publisher.begin().unwrap();
            }
            pattern::write(numbers(publisher, "u"), step, true);
        } else {
            pattern::write(numbers(publisher, "u"), step, false);
            if detect == Detect::Hints {
                publisher.touched("u", 0..WORDS * 8).unwrap();
            }
        }
        if publisher.publish(&[]).unwrap() > 0 {
            world.word(RETURNED).store(step, SeqCst);
        }
    };
    while publisher.sequence() < 3 {
        step(publisher);
        let started = Instant::now();
        while world.word(GO).load(SeqCst) < publisher.sequence() {
            assert!(started.elapsed() < LONG);
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    fault::arm(point, nth);
    for _ in publisher.sequence()..STEPS {
        step(publisher);
    }
    publisher.resize("u", &[512]).unwrap();
    world.word(GO).store(1000, SeqCst);
    0
}

/// Starts a publisher in another process. Gives the process id, the series, and the publisher's first three versions,
/// which the returned values hold.
fn start(world: &Arc<World>, spec: Spec, point: &str, nth: u32) -> (i32, Series, Vec<Version>) {
    world.word(RETURNED).store(0, SeqCst);
    world.word(GO).store(0, SeqCst);
    let theirs = world.clone();
    let detect = spec.detect;
    let (pid, series) = world.publish_apart(spec, |publisher| work(&theirs, publisher, detect, point, nth));
    let mut observer = series.observe(0);
    let mut held = Vec::new();
    for sequence in 1..=3 {
        let version = observer.next(LONG).unwrap();
        assert_eq!(version.sequence(), sequence);
        whole(&version);
        held.push(version);
        world.word(GO).store(sequence, SeqCst);
    }
    (pid, series, held)
}

fn check_after(world: &World, series: &Series, held: &mut [Version], what: &str) {
    let returned = world.word(RETURNED).load(SeqCst);
    for version in held.iter() {
        if version.is_valid() {
            whole(version);
        }
    }
    let mut late = series.observe(1);
    assert_eq!(late.state(), PublisherState::Died);
    let newest = late.next(LONG).unwrap();
    assert!((returned..=returned + 1).contains(&newest.sequence()), "{what}: {} after {returned}", newest.sequence());
    whole(&newest);
    let started = Instant::now();
    assert_eq!(late.next(LONG).unwrap_err().status, Status::PeerDied, "{what}");
    assert!(started.elapsed() < SOON, "{what}");
    let report = Report::read("field", &series.offer.pool, series.offer.size).unwrap();
    for (sequence, _) in report.versions {
        let version = late.at(sequence, Duration::ZERO).unwrap_or_else(|e| panic!("{what}: {e}"));
        whole(&version);
    }
    for version in held.iter_mut() {
        version.refresh().unwrap();
        whole(version);
    }
    let (mut next, _) = world_publisher(&series.world);
    next.publish(&[]).unwrap();
}

fn world_publisher(world: &Arc<World>) -> (Publisher, Series) {
    world.publisher(small(Detect::Auto))
}

#[test]
fn a_publisher_that_dies_at_any_point_leaves_what_it_had_shown_whole() {
    let points: Vec<&str> = FAULT_POINTS
        .iter()
        .copied()
        .filter(|p| ["begin", "grow", "publish", "retire"].iter().any(|part| p.starts_with(&format!("series.{part}"))))
        .collect();
    let mut reached = BTreeSet::new();
    for detect in [Detect::PrivateCopies, Detect::CopyAll, Detect::WriteProtect, Detect::Compare, Detect::Hints] {
        for point in &points {
            for nth in [1, 2, 7] {
                let what = format!("{detect:?}, {point}, {nth}. time");
                let world = World::new();
                // A publisher reaches the fault points `series.begin.aside` and `series.publish.withheld` only under
                // the policy that withholds versions.
                let withholds = ["series.begin.aside", "series.publish.withheld"].contains(point);
                let full = if withholds { FullPolicy::Withhold } else { FullPolicy::TakeBack };
                let (pid, series, mut held) = start(&world, Spec { full, ..small(detect) }, point, nth);
                let end = world.wait(pid);
                assert!(end == SIGKILL || end == 0, "{what}: ended with {end}");
                if end == SIGKILL {
                    reached.insert(*point);
                    world.publisher_died();
                    check_after(&world, &series, &mut held, &what);
                }
            }
        }
    }
    let missed: Vec<_> = points.iter().filter(|p| !reached.contains(*p)).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

#[test]
fn a_publisher_that_dies_while_it_ends_has_ended_or_died() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(small(Detect::Auto));
    publisher.publish(&[]).unwrap();
    let pid = {
        let (pid, other) = world.publish_apart(small(Detect::Auto), |publisher| {
            pattern::write(numbers(publisher, "u"), 1, false);
            publisher.publish(&[]).unwrap();
            fault::arm("series.end.noted", 1);
            // SAFETY: `end` takes the publisher by value, so this is a bitwise copy. This child dies in `end` or leaves
            // by _exit, so the original is never dropped.
            unsafe { std::ptr::read(publisher) }.end().unwrap();
            0
        });
        assert_eq!(world.wait(pid), SIGKILL);
        world.publisher_died();
        let mut observer = other.observe(0);
        assert_eq!(observer.state(), PublisherState::Ended);
        whole(&observer.next(LONG).unwrap());
        assert_eq!(observer.next(LONG).unwrap_err().status, Status::Closed);
        pid
    };
    assert!(pid > 0);
    drop(series);
}

#[test]
fn an_observer_that_dies_at_any_point_holds_no_member_up_and_leaves_no_memory_behind() {
    let points: Vec<&str> = FAULT_POINTS
        .iter()
        .copied()
        .filter(|p| ["pin", "refresh", "sleep", "view"].iter().any(|part| p.starts_with(&format!("series.{part}"))))
        .collect();
    let mut reached = BTreeSet::new();
    for (point, full) in points.iter().flat_map(|p| [(p, FullPolicy::TakeBack), (p, FullPolicy::Withhold)]) {
        for nth in [1, 2, 5] {
            let what = format!("{point}, {full:?}, {nth}. time");
            let world = World::new();
            let (mut publisher, series) = world.publisher(Spec { full, capacity: None, ..small(Detect::CopyAll) });
            let mut publish = || {
                let step = publisher.sequence() + 1;
                pattern::write(numbers(&mut publisher, "u"), step, false);
                let started = Instant::now();
                publisher.publish(&[]).unwrap();
                assert!(started.elapsed() < SOON, "{what}: {:?}", started.elapsed());
                publisher.statistics()
            };
            (0..4).for_each(|_| drop(publish()));
            let baseline = publish();
            let pid = world.fork(|| {
                fault::arm(point, nth);
                let mut observer = series.observe(2);
                let mut version = observer.latest().unwrap();
                whole(&version);
                let other = observer.at(4, Duration::ZERO).unwrap();
                whole(&other);
                for turn in 0..8 {
                    whole(&version);
                    if turn % 2 == 0 {
                        version.replace_by(observer.at(4, Duration::ZERO).unwrap())
                    } else {
                        version.refresh()
                    }
                    .unwrap();
                }
                assert_eq!(observer.next(Duration::from_millis(1)).unwrap_err().status, Status::TimedOut);
                0
            });
            let end = world.wait(pid);
            assert!(end == SIGKILL || end == 0, "{what}: ended with {end}");
            if end == SIGKILL {
                reached.insert(*point);
            }
            (0..3).for_each(|_| drop(publish()));
            series.clear_pins(2);
            publish();
            let after = publish();
            assert_eq!((after.versions, after.slots.1), (baseline.versions, baseline.slots.1), "{what}");
            let mut observer = series.observe(2);
            whole(&observer.latest().unwrap());
        }
    }
    assert_eq!(reached.len(), points.len(), "never reached: {points:?} but {reached:?}");
}
