//! Tests of where a version's bytes lie: versions that are written in place, versions that several threads write, and
//! versions in a process that has no mappings left.

use crossdock_core::series::{Detect, Method, Spec};
use crossdock_layout::Status;

use crate::series_world::{World, as_numbers, numbers, spec};

#[test]
fn a_begun_version_is_written_in_place_and_published_without_a_copy() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(4096), ..spec(10_000) });
    let mut observer = series.observe(0);
    let own = publisher.memory("u").unwrap();
    numbers(&mut publisher, "u").fill(1);
    publisher.publish(&[]).unwrap();
    let first = observer.latest().unwrap();
    for step in 2..20u64 {
        publisher.begin().unwrap();
        assert_ne!(publisher.memory("u").unwrap(), own);
        assert_eq!(publisher.begin().unwrap_err().status, Status::Busy);
        assert_eq!(publisher.resize("u", &[1]).unwrap_err().status, Status::Busy);
        numbers(&mut publisher, "u").fill(step);
        assert_eq!(publisher.publish(&[]).unwrap(), step);
        assert_eq!(publisher.memory("u").unwrap(), own);
        assert!(numbers(&mut publisher, "u").iter().all(|n| *n == step), "the variable holds what was published");
        let version = observer.latest().unwrap();
        assert_eq!(version.method(), Some(Method::InPlace));
        assert!(as_numbers(version.bytes("u").unwrap()).iter().all(|n| *n == step));
    }
    assert!(as_numbers(first.bytes("u").unwrap()).iter().all(|n| *n == 1));
    // The next version is published without a call of `begin`. Only one page has changed, and the version must contain
    // the change.
    numbers(&mut publisher, "u")[600] = 77;
    publisher.publish(&[]).unwrap();
    let version = observer.latest().unwrap();
    let seen = as_numbers(version.bytes("u").unwrap());
    assert_eq!((seen[600], seen[0], seen[9_999]), (77, 19, 19));
    publisher.begin().unwrap();
    numbers(&mut publisher, "u").fill(1000);
    publisher.abandon().unwrap();
    assert_eq!(publisher.abandon().unwrap_err().status, Status::Invalid);
    assert_eq!(numbers(&mut publisher, "u")[600], 77);
    publisher.publish(&[]).unwrap();
    assert_eq!(as_numbers(observer.latest().unwrap().bytes("u").unwrap())[600], 77);
}

#[test]
fn a_begun_version_in_scattered_slots_is_one_array() {
    let world = World::new();
    let (mut publisher, series) =
        world.publisher(Spec { chunk: Some(4096), capacity: Some(64 * 4096), detect: Detect::Hints, ..spec(16 * 512) });
    let mut observer = series.observe(0);
    publisher.publish(&[]).unwrap();
    // The observer holds versions that use every second slot. So no two free slots are neighbours.
    let mut held = Vec::new();
    for step in 0..16u64 {
        numbers(&mut publisher, "u")[step as usize * 512] = step;
        publisher.touched("u", step * 4096..step * 4096 + 1).unwrap();
        publisher.publish(&[]).unwrap();
        if step % 2 == 0 {
            held.push(observer.latest().unwrap());
        }
    }
    for round in 0..3u64 {
        publisher.begin().unwrap();
        for (n, number) in numbers(&mut publisher, "u").iter_mut().enumerate() {
            *number = round * 100_000 + n as u64;
        }
        publisher.publish(&[]).unwrap();
        let version = observer.latest().unwrap();
        let seen = as_numbers(version.bytes("u").unwrap());
        assert!(seen.iter().enumerate().all(|(n, number)| *number == round * 100_000 + n as u64), "round {round}");
    }
}

#[test]
fn a_programs_threads_may_share_a_large_copy() {
    struct Two;
    impl crossdock_core::series::Runner for Two {
        fn run(&self, pieces: usize, piece: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                for part in 0..2 {
                    scope.spawn(move || (0..pieces).filter(|n| n % 2 == part).for_each(piece));
                }
            });
        }
    }
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(3 << 20));
    publisher.copy_with(std::sync::Arc::new(Two));
    for step in 1..=2 {
        for (n, number) in numbers(&mut publisher, "u").iter_mut().enumerate() {
            *number = step * n as u64;
        }
        publisher.publish(&[]).unwrap();
        let version = series.observe(0).latest().unwrap();
        assert!(
            as_numbers(version.bytes("u").unwrap()).iter().enumerate().all(|(n, number)| *number == step * n as u64)
        );
    }
}

#[test]
fn a_process_without_more_mappings_gets_a_copy() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec {
        chunk: Some(4096),
        capacity: Some(400 * 4096),
        detect: Detect::Hints,
        ..spec(100 * 512)
    });
    publisher.publish(&[]).unwrap();
    let mut holder = series.observe(1);
    let mut held = Vec::new();
    // Only every second page changes. So the slots of neighbouring pages of the newest version are not neighbours in
    // the pool.
    for page in (0..100u64).step_by(2) {
        numbers(&mut publisher, "u")[page as usize * 512] = page;
        publisher.touched("u", page * 4096..page * 4096 + 1).unwrap();
        publisher.publish(&[]).unwrap();
        if held.len() < 10 {
            held.push(holder.latest().unwrap());
        }
    }
    let pid = world.fork(|| {
        let used = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let limit: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        let reservation = crossdock_os::reservation::Reservation::reserve(limit * 8192).unwrap();
        for n in 0..(limit - used - 40) / 2 {
            reservation.put_memory(n * 8192, 4096).unwrap();
        }
        let mut observer = series.observe(0);
        let mut version = observer.latest().unwrap();
        let whole = |version: &crossdock_core::series::Version| {
            let seen = as_numbers(version.bytes("u").unwrap());
            (0..100).all(|page| seen[page * 512] == if page % 2 == 0 { page as u64 } else { 0 })
        };
        let first = whole(&version) && version.is_copy("u");
        version.replace_by(observer.at(version.sequence(), std::time::Duration::ZERO).unwrap()).unwrap();
        i32::from(!(first && whole(&version)))
    });
    assert_eq!(world.wait(pid), 0);
    drop(held);
}
