//! Tests of the default policy for a full pool. If observers hold so many versions that the pool is full, the publisher
//! continues and loses no changes.

use std::time::{Duration, Instant};

use crossdock_core::series::{Detect, FullPolicy, Spec, Value, Version};
use crossdock_layout::Status;
use crossdock_os::testing::Random;

use crate::WAYS;
use crate::series_world::{World, as_numbers, numbers, pages, spec};

const WORDS: usize = 64 * 512;

/// The spec of a series with room for three versions and with the default policy.
fn small(detect: Detect) -> Spec {
    Spec { chunk: Some(4096), capacity: Some(3 * 64 * 4096), detect, pages: pages(detect), ..spec(WORDS as u64) }
}

fn seen(version: &Version) -> &[u64] {
    as_numbers(version.bytes("u").unwrap())
}

#[test]
fn the_default_is_to_withhold() {
    assert_eq!(Spec::default().full, FullPolicy::Withhold);
}

#[test]
fn a_publisher_whose_observers_hold_everything_goes_on_and_the_next_version_has_all_of_it() {
    for detect in WAYS {
        let world = World::new();
        let (mut publisher, series) = world.publisher(small(detect));
        let mut observer = series.observe(0);
        let mut model = vec![0u64; WORDS];
        let (mut held, mut random, mut withheld) = (Vec::new(), Random(3), 0);
        for step in 1..=200u64 {
            for _ in 0..1 << (step % 8) {
                let at = random.below(WORDS);
                model[at] = random.number();
                numbers(&mut publisher, "u")[at] = model[at];
                if detect == Detect::Hints || (detect == Detect::Auto && step % 3 == 0) {
                    publisher.touched("u", at as u64 * 8..at as u64 * 8 + 8).unwrap();
                }
            }
            match publisher.publish(&[]).unwrap() {
                0 => withheld += 1,
                sequence => {
                    let version = observer.latest().unwrap();
                    assert_eq!(version.sequence(), sequence);
                    assert!(seen(&version) == model, "{detect:?}, step {step}: version {sequence}");
                    held.push((version, model.clone()));
                }
            }
            for (version, model) in &held {
                assert!(seen(version) == *model, "{detect:?}, step {step}: version {} changed", version.sequence());
            }
            if step % 40 == 0 {
                held.clear();
            }
        }
        let statistics = publisher.statistics();
        assert!(withheld > 20, "{detect:?}: {withheld}");
        assert_eq!((statistics.withheld, statistics.no_space), (withheld, 0));
        assert_eq!(statistics.published + withheld, 200, "{detect:?}");
    }
}

#[test]
fn a_step_with_hints_that_is_withheld_does_not_hide_the_next_one_without() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { detect: Detect::Auto, ..small(Detect::Auto) });
    let mut observer = series.observe(0);
    let mut held = Vec::new();
    for step in 1..=3 {
        numbers(&mut publisher, "u").fill(step);
        publisher.publish(&[]).unwrap();
        held.push(observer.latest().unwrap());
    }
    numbers(&mut publisher, "u").fill(4);
    publisher.touched("u", 0..WORDS as u64 * 8).unwrap();
    assert_eq!(publisher.publish(&[]).unwrap(), 0);
    drop(held);
    numbers(&mut publisher, "u")[WORDS - 1] = 5;
    assert_eq!(publisher.publish(&[]).unwrap(), 4);
    let version = observer.latest().unwrap();
    assert_eq!((seen(&version)[0], seen(&version)[WORDS - 1]), (4, 5));
}

#[test]
fn a_begun_version_is_withheld_in_the_same_way() {
    for detect in WAYS {
        let world = World::new();
        let (mut publisher, series) = world.publisher(small(detect));
        let mut observer = series.observe(0);
        let mut held = Vec::new();
        for step in 1..=3 {
            publisher.begin().unwrap();
            numbers(&mut publisher, "u").fill(step);
            assert_eq!(publisher.publish(&[]).unwrap(), step);
            held.push(observer.latest().unwrap());
        }
        let own = publisher.memory("u").unwrap();
        // The pool is full. So the version that begins here is withheld. The program abandons the next version that it
        // begins.
        publisher.begin().unwrap();
        assert_ne!(publisher.memory("u").unwrap(), own);
        numbers(&mut publisher, "u").fill(4);
        assert_eq!(publisher.publish(&[]).unwrap(), 0);
        assert_eq!(publisher.memory("u").unwrap(), own);
        assert!(numbers(&mut publisher, "u").iter().all(|n| *n == 4), "{detect:?}: the variable holds it");
        publisher.begin().unwrap();
        numbers(&mut publisher, "u").fill(99);
        publisher.abandon().unwrap();
        assert!(numbers(&mut publisher, "u").iter().all(|n| *n == 4));
        publisher.begin().unwrap();
        numbers(&mut publisher, "u").fill(5);
        // This version was begun while the pool had no room. Now an old version is released, so there is room when this
        // version is published.
        held.remove(0);
        assert_eq!(publisher.publish(&[]).unwrap(), 4);
        assert!(seen(&observer.latest().unwrap()).iter().all(|n| *n == 5), "{detect:?}");
        for (version, step) in held.iter().zip(2..) {
            assert!(seen(version).iter().all(|n| *n == step));
        }
        // The version that begins here is withheld. Then the program changes the variable in place, without `begin`.
        held.push(observer.latest().unwrap());
        publisher.begin().unwrap();
        numbers(&mut publisher, "u").fill(6);
        assert_eq!(publisher.publish(&[]).unwrap(), 0);
        numbers(&mut publisher, "u")[7] = 7;
        if detect == Detect::Hints {
            publisher.touched("u", 56..64).unwrap();
        }
        held.clear();
        assert_eq!(publisher.publish(&[]).unwrap(), 5);
        let version = observer.latest().unwrap();
        assert_eq!((seen(&version)[6], seen(&version)[7], seen(&version)[8]), (6, 7, 6), "{detect:?}");
    }
}

#[test]
fn what_is_to_be_kept_is_kept_and_laggards_are_given_memory() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { keep: 9, ..spec(64 * 512) });
    let mut laggards: Vec<_> = (0..20).map(|index| series.observe(index)).collect();
    let mut held = Vec::new();
    for step in 1..=100u64 {
        numbers(&mut publisher, "u").fill(step);
        assert_eq!(publisher.publish(&[]).unwrap(), step);
        if step % 5 == 0 {
            held.push((laggards[step as usize / 5 - 1].latest().unwrap(), step));
        }
    }
    for sequence in 91..=100 {
        let version = laggards[0].at(sequence, Duration::ZERO).unwrap();
        assert!(seen(&version).iter().all(|n| *n == sequence));
    }
    for (version, step) in &held {
        assert!(seen(version).iter().all(|n| n == step));
    }
    assert_eq!(publisher.statistics().withheld, 0);
}

#[test]
fn versions_that_are_kept_go_before_one_is_withheld() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { keep: 9, ..small(Detect::CopyAll) });
    let mut observer = series.observe(0);
    for step in 1..=20u64 {
        numbers(&mut publisher, "u").fill(step);
        assert_eq!(publisher.publish(&[]).unwrap(), step);
    }
    let version = observer.latest().unwrap();
    assert!(seen(&version).iter().all(|n| *n == 20));
}

#[test]
fn a_full_table_withholds_too() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { max_observers: 4, ..spec(512) });
    // The four observers together may hold 60 versions, but the version table has room for only 27 versions.
    let mut observers: Vec<_> = (0..4).map(|index| series.observe(index)).collect();
    let (mut held, mut withheld) = (Vec::new(), 0);
    for step in 1..=60usize {
        numbers(&mut publisher, "u").fill(step as u64);
        match publisher.publish(&[]).unwrap() {
            0 => withheld += 1,
            _ => held.push(observers[step % 4].latest().unwrap()),
        }
    }
    assert!(withheld > 30 && held.len() >= 27, "{withheld} {}", held.len());
    for version in &held {
        assert!(seen(version).iter().all(|n| *n == version.sequence()), "version {}", version.sequence());
    }
    held.clear();
    assert_ne!(publisher.publish(&[]).unwrap(), 0);
    assert!(seen(&observers[0].latest().unwrap()).iter().all(|n| *n == 60));
}

#[test]
fn an_observer_that_waits_while_versions_are_withheld_is_told_so() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(small(Detect::CopyAll));
    let mut observer = series.observe(0);
    let mut held = Vec::new();
    for step in 1..=9 {
        numbers(&mut publisher, "u").fill(step);
        if publisher.publish(&[]).unwrap() > 0 {
            held.push(observer.next(Duration::ZERO).unwrap());
        }
    }
    let started = Instant::now();
    let error = observer.next(Duration::from_millis(50)).unwrap_err();
    assert!(error.status == Status::TimedOut && started.elapsed() < Duration::from_secs(5));
    assert!(error.to_string().contains("withheld 6 versions") && error.to_string().contains("holds 3"), "{error}");
    let why = publisher.statistics().withheld_why.unwrap();
    assert!(why.contains("observer 0 holds 2 old version(s), the oldest is 1"), "{why}");
    held.clear();
    assert_eq!(publisher.publish(&[]).unwrap(), 4);
    assert!(seen(&observer.next(Duration::ZERO).unwrap()).iter().all(|n| *n == 9));
    assert_eq!(publisher.statistics().withheld_why, None);
}

#[test]
fn each_gives_every_version_in_order_and_counts_those_it_missed() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { keep: 4, ..spec(512) });
    let mut observer = series.observe(0);
    let mut publish = |step: u64| {
        numbers(&mut publisher, "u").fill(step);
        assert_eq!(publisher.publish(&[]).unwrap(), step);
    };
    (1..=3).for_each(&mut publish);
    for step in 1..=3 {
        let version = observer.each(Duration::ZERO).unwrap();
        assert_eq!((version.sequence(), version.missed(), seen(&version)[0]), (step, 0, step));
    }
    assert_eq!(observer.each(Duration::ZERO).unwrap_err().status, Status::NotYet);
    (4..=20).for_each(&mut publish);
    let mut given = Vec::new();
    while let Ok(version) = observer.each(Duration::ZERO) {
        given.push((version.sequence(), version.missed()));
    }
    assert_eq!(given, [(16, 12), (17, 0), (18, 0), (19, 0), (20, 0)]);
}

#[test]
fn a_version_can_be_waited_for_by_its_number() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(512));
    let mut observer = series.observe(0);
    assert_eq!(observer.at(1, Duration::ZERO).unwrap_err().status, Status::NotYet);
    assert_eq!(observer.at(1, Duration::from_millis(20)).unwrap_err().status, Status::TimedOut);
    let waiting = std::thread::spawn(move || observer.at(3, Duration::from_secs(30)).unwrap().sequence());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        publisher.publish(&[]).unwrap();
    }
    assert_eq!(waiting.join().unwrap(), 3);
}

#[test]
fn a_last_version_that_the_daemon_left_without_an_answer_comes_before_the_end() {
    for detect in WAYS {
        let world = World::new();
        let (mut publisher, series) = world.publisher(small(detect));
        let mut observer = series.observe(0);
        numbers(&mut publisher, "u").fill(1);
        assert_eq!(publisher.publish(&[("t", Value::F64(1.0))]).unwrap(), 1);
        let held = observer.latest().unwrap();
        numbers(&mut publisher, "u").fill(2);
        publisher.touched("u", 0..WORDS as u64 * 8).unwrap();
        world.lose_answers(3);
        assert_eq!(publisher.publish(&[("t", Value::F64(2.0))]).unwrap(), 0, "{detect:?}");
        publisher.end().unwrap();
        let version = observer.next(Duration::ZERO).unwrap();
        assert_eq!((version.sequence(), version.attribute("t").unwrap()), (2, &Value::F64(2.0)), "{detect:?}");
        assert!(seen(&version).iter().all(|number| *number == 2) && seen(&held)[0] == 1, "{detect:?}");
    }
}

#[test]
fn a_step_that_was_not_published_does_not_come_with_the_end() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(small(Detect::CopyAll));
    let mut observer = series.observe(0);
    publisher.publish(&[]).unwrap();
    numbers(&mut publisher, "u").fill(2);
    world.lose_answers(1);
    assert_eq!(publisher.publish(&[]).unwrap(), 0);
    // The program has begun its next step.
    numbers(&mut publisher, "u")[WORDS - 1] = 3;
    publisher.end().unwrap();
    assert_eq!(observer.next(Duration::ZERO).unwrap().sequence(), 1);
    let error = observer.next(Duration::ZERO).unwrap_err();
    assert_eq!(error.status, Status::Closed);
    assert!(error.to_string().contains("1 later version(s) were withheld"), "{error}");
}
