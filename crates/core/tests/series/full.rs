//! Tests of what happens when a pool is full.

use crossdock_core::series::{Detect, FullPolicy, Spec};
use crossdock_layout::Status;

use crate::WAYS;
use crate::series_world::{World, as_numbers, numbers, pages, spec};

#[test]
fn by_the_policy_fail_a_full_pool_is_an_error_and_nothing_is_lost() {
    for detect in WAYS {
        let world = World::new();
        let chunk = 4096;
        let (mut publisher, series) = world.publisher(Spec {
            chunk: Some(chunk),
            capacity: Some(3 * 64 * 4096),
            full: FullPolicy::Fail,
            pages: pages(detect),
            detect,
            ..spec(64 * 512)
        });
        let mut observer = series.observe(0);
        let mut held = Vec::new();
        let mut refused = 0;
        for step in 1..=6u64 {
            numbers(&mut publisher, "u").fill(step);
            publisher.touched("u", 0..64 * 4096).unwrap();
            match publisher.publish(&[]) {
                Ok(_) => held.push((observer.latest().unwrap(), step)),
                Err(error) => {
                    assert_eq!(error.status, Status::NoSpace, "{error}");
                    assert!(
                        error.to_string().contains("observer 0 holds 2 old version(s), the oldest is 1"),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
        assert_eq!((held.len(), refused), (3, 3), "{detect:?}");
        for (version, step) in &held {
            assert!(as_numbers(version.bytes("u").unwrap()).iter().all(|n| n == step));
        }
        drop(held);
        // The last publish failed because the pool was full, but its changes are not lost. The next version contains
        // them, even if the program's hint for this version names only other bytes.
        numbers(&mut publisher, "u")[0] = 99;
        publisher.touched("u", 0..8).unwrap();
        assert_eq!(publisher.publish(&[]).unwrap(), 4);
        let version = observer.latest().unwrap();
        let seen = as_numbers(version.bytes("u").unwrap());
        assert!(seen[0] == 99 && seen[1..].iter().all(|n| *n == 6), "{detect:?}: {:?}", &seen[..3]);
        assert_eq!(publisher.statistics().no_space, 3);
    }
}

#[test]
fn a_quota_is_a_full_pool() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(4096), full: FullPolicy::Fail, ..spec(64 * 512) });
    world.set_quota(series.offer.reserved + 70 * 4096);
    let mut observer = series.observe(0);
    publisher.publish(&[]).unwrap();
    let first = observer.latest().unwrap();
    numbers(&mut publisher, "u").fill(1);
    publisher.publish(&[]).unwrap();
    let second = observer.latest().unwrap();
    numbers(&mut publisher, "u").fill(2);
    let error = publisher.publish(&[]).unwrap_err();
    assert!(error.status == Status::NoSpace && error.to_string().contains("quota"), "{error}");
    assert!(series.resident() <= series.offer.reserved + 70 * 4096);
    drop(first);
    publisher.publish(&[]).unwrap();
    drop(second);
    world.set_quota(100);
    assert_eq!(world.try_publisher(spec(1000)).unwrap_err().status, Status::NoSpace);
}

#[test]
fn the_policy_take_back_takes_the_oldest_version_and_what_was_read_of_it_stays() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec {
        chunk: Some(4096),
        capacity: Some(3 * 16 * 4096),
        full: FullPolicy::TakeBack,
        detect: Detect::CopyAll,
        ..spec(16 * 512)
    });
    let (mut laggard, mut other) = (series.observe(0), series.observe(1));
    publisher.publish(&[]).unwrap();
    let mut old = laggard.latest().unwrap();
    let unread = laggard.latest().unwrap();
    assert!(as_numbers(old.bytes("u").unwrap()).iter().all(|n| *n == 0));
    publisher.publish(&[]).unwrap();
    let young = other.latest().unwrap();
    for step in 3..=10u64 {
        numbers(&mut publisher, "u").fill(step);
        publisher.publish(&[]).unwrap();
        assert_eq!(old.is_valid(), step < 4, "step {step}");
        assert!(as_numbers(old.bytes("u").unwrap()).iter().all(|n| *n == 0), "step {step}: what was read stays");
        assert!(young.is_valid(), "step {step}: one was enough");
    }
    let mut word = [0; 8];
    old.copy_out("u", 0, &mut word).unwrap();
    assert_eq!(word, [0; 8], "of what was read before");
    for error in [unread.copy_out("u", 0, &mut word).unwrap_err(), unread.bytes("u").unwrap_err()] {
        assert_eq!(error.status, Status::NotFound);
        assert!(error.to_string().contains("take_back"), "{error}");
    }
    assert_eq!(publisher.statistics().taken_back, 1);
    assert!(as_numbers(young.bytes("u").unwrap()).iter().all(|n| *n == 0));
    let address = old.bytes("u").unwrap().as_ptr();
    old.refresh().unwrap();
    assert_eq!(old.bytes("u").unwrap().as_ptr(), address);
    assert!(as_numbers(old.bytes("u").unwrap()).iter().all(|n| *n == 10));
    old.copy_out("u", 8, &mut word).unwrap();
    assert_eq!((old.is_valid(), u64::from_le_bytes(word)), (true, 10));
}
