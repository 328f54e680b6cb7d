//! A stress test: one publisher publishes at full speed, while eight observers attach, detach, stall and are killed at
//! random. The publisher and each observer are processes. No observer may see a mixture of two versions. No observer
//! may stop the publisher. All memory becomes free again.
//!
//! The test takes half a minute. With `CROSSDOCK_STRESS_SECONDS=600` it runs for ten minutes.

#![cfg(not(feature = "fault-points"))] // the test takes half a minute, so it runs in one build only

mod series_world;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crossdock_core::series::{Detect, FullPolicy, Observer, Publisher, Spec, Version};
use crossdock_layout::Status;
use crossdock_os::testing::Random;
use series_world::{Series, World, as_numbers, numbers, pages, pattern, spec};

const WORDS: u64 = 256 * 512;
const OBSERVERS: usize = 8;
/// Indices of words of memory that the processes share.
const STOP: usize = 3000;
const PUBLISHED: usize = 3001;
const LONGEST_US: usize = 3002;
const NO_SPACE: usize = 3003;
const LEFT: usize = 3004;
const SEEN: usize = 3005;
const REFUSED: usize = 3006;

fn seconds() -> u64 {
    std::env::var("CROSSDOCK_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn publish(world: &World, publisher: &mut Publisher) -> i32 {
    let mut random = Random(99);
    let mut longest = Duration::ZERO;
    let mut go_on = |publisher: &mut Publisher, longest: &mut Duration| {
        let step = publisher.sequence() + 1;
        let in_place = random.below(8) != 0 || publisher.begin().is_err();
        pattern::write(numbers(publisher, "u"), step, !in_place);
        let started = Instant::now();
        match publisher.publish(&[]) {
            Ok(0) => drop(world.word(NO_SPACE).fetch_add(1, SeqCst)),
            Ok(sequence) => {
                assert_eq!(sequence, step);
                world.word(PUBLISHED).store(step, SeqCst);
            }
            Err(error) => {
                assert_eq!(error.status, Status::NoSpace, "{error}");
                world.word(NO_SPACE).fetch_add(1, SeqCst);
                if !in_place {
                    publisher.abandon().unwrap();
                }
            }
        }
        *longest = (*longest).max(started.elapsed());
    };
    while world.word(STOP).load(SeqCst) == 0 {
        go_on(publisher, &mut longest);
    }
    world.word(LONGEST_US).store(longest.as_micros() as u64, SeqCst);
    // All observers are gone by now, and all of their pins are cleared. During the next publishes the publisher frees
    // the versions that the observers held.
    (0..3).for_each(|_| go_on(publisher, &mut longest));
    let statistics = publisher.statistics();
    world.word(REFUSED).store(statistics.taken_back, SeqCst);
    let chunks = WORDS * 8 / u64::from(statistics.chunk);
    world.word(LEFT).store(u64::from(statistics.slots.1) - chunks, SeqCst);
    println!("publisher: {statistics:?}");
    0
}

fn whole(version: &Version, full: FullPolicy) -> Result<(), String> {
    let seen = version.bytes("u").map_err(|e| e.to_string());
    let checked = seen.clone().and_then(|bytes| pattern::check(as_numbers(bytes), version.sequence(), 61));
    // Under the policy `take_back`, the publisher may take a version back before an observer asks for the version's
    // bytes. In this case the observer gets an error. Bytes that an observer has got never change.
    match (&seen, full) {
        (Err(_), FullPolicy::TakeBack) if !version.is_valid() => Ok(()),
        _ if full != FullPolicy::TakeBack && !version.is_valid() => {
            Err(format!("version {} is gone though it is held", version.sequence()))
        }
        _ => checked,
    }
}

fn observe(world: &World, observer: &mut Observer, full: FullPolicy, seed: u64) -> i32 {
    let mut random = Random(seed);
    let mut held: Vec<Version> = Vec::new();
    let ends = Instant::now() + Duration::from_millis(random.below(1500));
    while Instant::now() < ends && world.word(STOP).load(SeqCst) == 0 {
        match random.below(10) {
            0..4 => match observer.next(Duration::from_millis(200)) {
                Ok(version) => held.push(version),
                Err(error) => assert!(matches!(error.status, Status::TimedOut | Status::Busy), "{error}"),
            },
            4..7 if !held.is_empty() => {
                let index = random.below(held.len());
                match held[index].refresh() {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.status, Status::Busy, "{error}"),
                }
            }
            7 => std::thread::sleep(Duration::from_millis(random.below(20))),
            8 => held.clear(),
            _ => held.truncate(2),
        }
        for version in &held {
            if let Err(torn) = whole(version, full) {
                eprintln!("torn: {torn}");
                return 1;
            }
            world.word(SEEN).fetch_add(1, SeqCst);
        }
        held.truncate(6);
    }
    // Some observers exit without releasing their versions; the other observers release them first.
    if random.below(2) == 0 {
        std::mem::forget(held);
    }
    0
}

fn signal(pid: i32, number: i32) {
    // SAFETY: the signal goes to a child of this process that was not waited for yet.
    unsafe { libc::kill(pid, number) };
}

fn stress(detect: Detect, full: FullPolicy, time: Duration) {
    let world = World::new();
    let spec = Spec {
        max_observers: OBSERVERS as u32,
        keep: 1,
        // Under `TakeBack` the capacity is so small that the publisher must take some versions back.
        capacity: Some(if full == FullPolicy::TakeBack { 4 } else { 12 } * WORDS * 8),
        chunk: Some(4096),
        detect,
        full,
        pages: pages(detect),
        ..spec(WORDS)
    };
    let theirs = world.clone();
    let (publisher, series) = world.publish_apart(spec, |publisher| publish(&theirs, publisher));
    let mut random = Random(4711);
    let started = Instant::now();
    let mut children: Vec<Option<i32>> = vec![None; OBSERVERS];
    let (mut came, mut killed, mut stalled) = (0u64, 0u64, 0u64);
    while started.elapsed() < time {
        for (index, child) in children.iter_mut().enumerate() {
            match *child {
                None => {
                    came += 1;
                    *child = Some(spawn(&world, &series, index, full, came));
                }
                Some(pid) => match random.below(40) {
                    0 => {
                        signal(pid, libc::SIGKILL);
                        killed += 1;
                    }
                    1 => {
                        signal(pid, libc::SIGSTOP);
                        let before = world.word(PUBLISHED).load(SeqCst) + world.word(NO_SPACE).load(SeqCst);
                        let asked = Instant::now();
                        while world.word(PUBLISHED).load(SeqCst) + world.word(NO_SPACE).load(SeqCst) < before + 2 {
                            assert!(
                                asked.elapsed() < Duration::from_secs(20),
                                "a stopped observer stopped the publisher"
                            );
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        signal(pid, if random.below(2) == 0 { libc::SIGCONT } else { libc::SIGKILL });
                        stalled += 1;
                    }
                    _ => {}
                },
            }
            if child.is_some_and(|pid| ended(pid, "an observer")) {
                series.clear_pins(index);
                *child = None;
            }
        }
        assert!(!ended(publisher, "the publisher"), "the publisher is gone");
        std::thread::sleep(Duration::from_millis(10));
    }
    for (index, child) in children.into_iter().enumerate() {
        if let Some(pid) = child {
            signal(pid, libc::SIGKILL);
            world.wait(pid);
        }
        series.clear_pins(index);
    }
    world.word(STOP).store(1, SeqCst);
    assert_eq!(world.wait(publisher), 0);
    let word = |index: usize| world.word(index).load(SeqCst);
    println!(
        "{detect:?}, {full:?}: {} versions, {} looks at one, {came} observers, {killed} killed, {stalled} stopped, {} times \
         no room, {} taken back, longest publish {} µs",
        word(PUBLISHED),
        word(SEEN),
        word(NO_SPACE),
        word(REFUSED),
        word(LONGEST_US),
    );
    assert!(word(SEEN) > 0 && word(PUBLISHED) > 10);
    assert!(
        word(LEFT) <= WORDS * 8 / 4096,
        "beyond the newest and the one that is kept {} slots are in use",
        word(LEFT)
    );
}

fn spawn(world: &Arc<World>, series: &Series, index: usize, full: FullPolicy, seed: u64) -> i32 {
    world.fork(|| {
        let mut observer = series.observe(index);
        observe(world, &mut observer, full, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    })
}

/// Tells whether this child has ended. If the child ended with an error, or by another signal than SIGKILL, the test
/// fails.
fn ended(pid: i32, who: &str) -> bool {
    let mut status = 0;
    // SAFETY: the call asks only about a child of this process.
    let answer = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    if answer != pid {
        return false;
    }
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    assert!(
        killed || (libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0),
        "{who} ended with status {status:#x}"
    );
    true
}

#[test]
fn no_version_is_ever_torn_and_no_observer_stops_the_publisher() {
    let part = Duration::from_secs(seconds()) / 4;
    stress(Detect::Auto, FullPolicy::Withhold, part);
    stress(Detect::PrivateCopies, FullPolicy::Fail, part);
    stress(Detect::WriteProtect, FullPolicy::TakeBack, part);
    stress(Detect::Compare, FullPolicy::TakeBack, part);
}
