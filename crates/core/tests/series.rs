//! A series in one process: what publishers and observers see of each other.

mod series_world;

use std::time::Duration;

use crossdock_core::series::{
    AttributeSpec, Detect, FullPolicy, Kind, Method, PublisherState, Report, Spec, Value, Variable, diff,
};
use crossdock_layout::Status;
use series_world::{LONG, World, as_numbers, numbers, spec};

const WAYS: [Detect; 5] = [Detect::Auto, Detect::CopyAll, Detect::Hints, Detect::PrivateCopies, Detect::WriteProtect];

/// A megabyte in chunks of 4 KiB.
fn in_pages(detect: Detect) -> Spec {
    Spec { chunk: Some(4096), detect, ..spec(131_072) }
}

#[test]
fn a_version_is_what_the_variables_held_when_it_was_published_however_changes_are_found() {
    for detect in WAYS {
        let world = World::new();
        let (mut publisher, series) = world.publisher(Spec { capacity: Some(8 << 20), ..in_pages(detect) });
        let mut observer = series.observe(0);
        let mut random = 7u64;
        let mut model = vec![0u64; 131_072];
        let mut held = Vec::new();
        for step in 1..=40u64 {
            let changes = if step % 10 == 0 { 0 } else { 1 << (step % 9) };
            for _ in 0..changes {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % model.len();
                model[at] = random;
                numbers(&mut publisher, 0)[at] = random;
                if detect == Detect::Hints {
                    publisher.touched(0, at as u64 * 8..at as u64 * 8 + 8).unwrap();
                }
            }
            assert_eq!(publisher.publish(&[("step", Value::U64(step))]).unwrap(), step);
            let version = observer.latest().unwrap();
            assert_eq!(version.sequence(), step);
            assert_eq!(version.attribute("step"), Some(&Value::U64(step)));
            assert!(as_numbers(version.bytes(0).unwrap()) == model, "{detect:?}, step {step}");
            assert!(numbers(&mut publisher, 0) == model, "{detect:?}, step {step}: the publisher's own");
            if step % 3 == 0 {
                held.push((version, model.clone()));
            }
            if held.len() > 4 {
                held.remove(0);
            }
            for (version, model) in &held {
                let seen = as_numbers(version.bytes(0).unwrap());
                assert!(seen == *model, "{detect:?}, step {step}: version {} changed", version.sequence());
            }
        }
        let statistics = publisher.statistics();
        let as_asked = match detect {
            Detect::Hints => statistics.method == Method::Hints,
            Detect::CopyAll => statistics.method == Method::CopyAll,
            Detect::PrivateCopies => statistics.method == Method::PrivateCopies || !statistics.unavailable.is_empty(),
            Detect::WriteProtect => statistics.method == Method::WriteProtect || !statistics.unavailable.is_empty(),
            Detect::Auto => true,
        };
        assert!(as_asked, "{detect:?}: {statistics:?}");
        if detect != Detect::Auto && statistics.method != Method::CopyAll {
            assert!(statistics.shared > statistics.copied, "{detect:?}: {statistics:?}");
        }
    }
}

#[test]
fn versions_share_what_did_not_change_and_memory_goes_back_when_nobody_holds_them() {
    for detect in [Detect::PrivateCopies, Detect::WriteProtect, Detect::Hints] {
        let world = World::new();
        let (mut publisher, series) = world.publisher(in_pages(detect));
        let mut observer = series.observe(0);
        publisher.publish(&[]).unwrap();
        publisher.publish(&[]).unwrap();
        if publisher.statistics().method == Method::CopyAll {
            continue; // this place has no such way, and says so
        }
        let used = || publisher_used(&series);
        let baseline = used();
        let mut held = Vec::new();
        for step in 0..10usize {
            numbers(&mut publisher, 0)[step * 512] = 1;
            publisher.touched(0, step as u64 * 4096..step as u64 * 4096 + 8).unwrap();
            publisher.publish(&[]).unwrap();
            held.push(observer.latest().unwrap());
        }
        assert_eq!(used(), baseline + 9, "{detect:?}: a page each for nine versions that are held");
        assert_eq!(diff(&held[0], &held[3]).unwrap(), [(0, 4096..4 * 4096)]);
        drop(held);
        publisher.touched(0, 0..0).unwrap();
        publisher.publish(&[]).unwrap();
        assert_eq!(used(), baseline, "{detect:?}");
        assert_eq!(publisher.statistics().versions, 1);
    }
}

fn publisher_used(series: &series_world::Series) -> u32 {
    Report::read("field", &series.offer.pool, series.offer.size).unwrap().slots.2
}

#[test]
fn refresh_maps_only_what_differs_and_addresses_stay() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(in_pages(Detect::Hints));
    publisher.publish(&[]).unwrap();
    let mut version = series.observe(0).latest().unwrap();
    let address = version.bytes(0).unwrap().as_ptr();
    assert_eq!(version.refresh().unwrap(), 0);
    for at in [0usize, 5 * 512, 6 * 512] {
        numbers(&mut publisher, 0)[at] = 9;
        publisher.touched(0, at as u64 * 8..at as u64 * 8 + 8).unwrap();
    }
    publisher.publish(&[]).unwrap();
    assert_eq!(as_numbers(version.bytes(0).unwrap())[0], 0);
    assert_eq!(version.refresh().unwrap(), 3);
    assert_eq!((version.sequence(), version.bytes(0).unwrap().as_ptr()), (2, address));
    let seen = as_numbers(version.bytes(0).unwrap());
    assert_eq!((seen[0], seen[512], seen[5 * 512], seen[6 * 512]), (9, 0, 9, 9));
}

#[test]
fn a_begun_version_is_written_in_place_and_published_without_a_copy() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(4096), ..spec(10_000) });
    let mut observer = series.observe(0);
    let own = publisher.memory(0);
    numbers(&mut publisher, 0).fill(1);
    publisher.publish(&[]).unwrap();
    let first = observer.latest().unwrap();
    for step in 2..20u64 {
        publisher.begin().unwrap();
        assert_ne!(publisher.memory(0), own);
        assert_eq!(publisher.begin().unwrap_err().status, Status::Busy);
        assert_eq!(publisher.resize(0, &[1]).unwrap_err().status, Status::Busy);
        numbers(&mut publisher, 0).fill(step);
        assert_eq!(publisher.publish(&[]).unwrap(), step);
        assert_eq!(publisher.memory(0), own);
        assert!(numbers(&mut publisher, 0).iter().all(|n| *n == step), "the variable holds what was published");
        let version = observer.latest().unwrap();
        assert_eq!(version.method(), Some(Method::InPlace));
        assert!(as_numbers(version.bytes(0).unwrap()).iter().all(|n| *n == step));
    }
    assert!(as_numbers(first.bytes(0).unwrap()).iter().all(|n| *n == 1));
    // In place again, and a change of one page only.
    numbers(&mut publisher, 0)[600] = 77;
    publisher.publish(&[]).unwrap();
    let version = observer.latest().unwrap();
    let seen = as_numbers(version.bytes(0).unwrap());
    assert_eq!((seen[600], seen[0], seen[9_999]), (77, 19, 19));
    publisher.begin().unwrap();
    numbers(&mut publisher, 0).fill(1000);
    publisher.abandon().unwrap();
    assert_eq!(publisher.abandon().unwrap_err().status, Status::Invalid);
    assert_eq!(numbers(&mut publisher, 0)[600], 77);
    publisher.publish(&[]).unwrap();
    assert_eq!(as_numbers(observer.latest().unwrap().bytes(0).unwrap())[600], 77);
}

#[test]
fn a_begun_version_in_scattered_slots_is_one_array() {
    let world = World::new();
    let (mut publisher, series) =
        world.publisher(Spec { chunk: Some(4096), capacity: Some(64 * 4096), detect: Detect::Hints, ..spec(16 * 512) });
    let mut observer = series.observe(0);
    publisher.publish(&[]).unwrap();
    // Versions that hold every other slot keep the free ones apart.
    let mut held = Vec::new();
    for step in 0..16u64 {
        numbers(&mut publisher, 0)[step as usize * 512] = step;
        publisher.touched(0, step * 4096..step * 4096 + 1).unwrap();
        publisher.publish(&[]).unwrap();
        if step % 2 == 0 {
            held.push(observer.latest().unwrap());
        }
    }
    for round in 0..3u64 {
        publisher.begin().unwrap();
        for (n, number) in numbers(&mut publisher, 0).iter_mut().enumerate() {
            *number = round * 100_000 + n as u64;
        }
        publisher.publish(&[]).unwrap();
        let version = observer.latest().unwrap();
        let seen = as_numbers(version.bytes(0).unwrap());
        assert!(seen.iter().enumerate().all(|(n, number)| *number == round * 100_000 + n as u64), "round {round}");
    }
}

#[test]
fn variables_grow_and_shrink_and_versions_keep_their_shapes() {
    for detect in WAYS {
        let world = World::new();
        let u = Variable { max_shape: vec![100, 512], ..Variable::new("u", "u64", &[3, 512]) };
        let v = Variable { max_shape: vec![4000], ..Variable::new("v", "f32", &[0]) };
        let spec = Spec { chunk: Some(8192), detect, ..Spec::of(vec![u, v, Variable::new("t", "f64", &[])]) };
        let (mut publisher, series) = world.publisher(spec);
        let mut observer = series.observe(0);
        numbers(&mut publisher, 0).fill(5);
        publisher.publish(&[]).unwrap();
        let mut small = observer.latest().unwrap();
        assert_eq!((small.shape(0), small.shape(1), small.shape(2)), (&[3u64, 512][..], &[0u64][..], &[][..]));
        assert_eq!((small.bytes(0).unwrap().len(), small.bytes(1).unwrap().len()), (3 * 4096, 0));
        publisher.resize(0, &[50, 512]).unwrap();
        publisher.resize(1, &[4000]).unwrap();
        let address = publisher.memory(0);
        assert!(numbers(&mut publisher, 0)[3 * 512..].iter().all(|n| *n == 0), "{detect:?}: what comes new is zero");
        numbers(&mut publisher, 0)[49 * 512] = 6;
        publisher.touched(0, 49 * 4096..49 * 4096 + 8).unwrap();
        publisher.publish(&[]).unwrap();
        let large = observer.latest().unwrap();
        let seen = as_numbers(large.bytes(0).unwrap());
        assert_eq!((seen.len(), seen[0], seen[3 * 512], seen[49 * 512]), (50 * 512, 5, 0, 6), "{detect:?}");
        assert_eq!(large.bytes(1).unwrap().len(), 16_000);
        assert!(as_numbers(small.bytes(0).unwrap()).iter().all(|n| *n == 5));
        assert_eq!(diff(&small, &large).unwrap()[0].0, 0);
        small.refresh().unwrap();
        assert_eq!(as_numbers(small.bytes(0).unwrap())[49 * 512], 6);
        publisher.resize(0, &[1, 512]).unwrap();
        publisher.resize(0, &[4, 512]).unwrap();
        assert_eq!(publisher.memory(0), address);
        publisher.publish(&[]).unwrap();
        let back = observer.latest().unwrap();
        let seen = as_numbers(back.bytes(0).unwrap());
        assert!(seen[..512].iter().all(|n| *n == 5) && seen[512..].iter().all(|n| *n == 0), "{detect:?}");
        small.refresh().unwrap();
        assert_eq!(small.bytes(0).unwrap().len(), 4 * 4096);
        for (shape, status) in [(&[101u64, 512][..], Status::Invalid), (&[1][..], Status::Invalid)] {
            assert_eq!(publisher.resize(0, shape).unwrap_err().status, status);
        }
    }
}

#[test]
fn next_waits_for_what_is_new_and_says_when_nothing_will_come() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1000));
    let mut observer = series.observe(0);
    assert_eq!(observer.latest().unwrap_err().status, Status::NotYet);
    assert_eq!(observer.next(Duration::ZERO).unwrap_err().status, Status::NotYet);
    let error = observer.next(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.message.contains("member 1.1"), "{error}");
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
    publisher.end();
    assert_eq!(observer.state(), PublisherState::Ended);
    assert_eq!(observer.next(LONG).unwrap().sequence(), 4, "the last one is given first");
    assert_eq!(observer.next(LONG).unwrap_err().status, Status::Closed);
    assert_eq!(observer.latest().unwrap().sequence(), 4);
    assert_eq!(series.observe(1).latest().unwrap().sequence(), 4, "also to those that come later");
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
    let table = crossdock_core::series::Surroundings::liveness(&*world);
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
        numbers(&mut publisher, 0).fill(step);
        publisher.publish(&[]).unwrap();
    }
    for sequence in 7..=10 {
        let version = observer.at(sequence).unwrap();
        assert!(as_numbers(version.bytes(0).unwrap()).iter().all(|n| *n == sequence));
    }
    let error = observer.at(6).unwrap_err();
    assert_eq!(error.status, Status::NotFound);
    assert!(error.message.contains("from 7 to 10"), "{error}");
    assert_eq!(observer.at(11).unwrap_err().status, Status::NotYet);
    assert_eq!(observer.at(0).unwrap_err().status, Status::NotFound);
}

#[test]
fn a_full_pool_is_reported_and_nothing_is_lost() {
    for detect in WAYS {
        let world = World::new();
        let chunk = 4096;
        let (mut publisher, series) =
            world.publisher(Spec { chunk: Some(chunk), capacity: Some(3 * 64 * 4096), detect, ..spec(64 * 512) });
        let mut observer = series.observe(0);
        let mut held = Vec::new();
        let mut refused = 0;
        for step in 1..=6u64 {
            numbers(&mut publisher, 0).fill(step);
            publisher.touched(0, 0..64 * 4096).unwrap();
            match publisher.publish(&[]) {
                Ok(_) => held.push((observer.latest().unwrap(), step)),
                Err(error) => {
                    assert_eq!(error.status, Status::NoSpace, "{error}");
                    assert!(error.message.contains("observer 0 holds 2 old version(s), the oldest is 1"), "{error}");
                    refused += 1;
                }
            }
        }
        assert_eq!((held.len(), refused), (3, 3), "{detect:?}");
        for (version, step) in &held {
            assert!(as_numbers(version.bytes(0).unwrap()).iter().all(|n| n == step));
        }
        drop(held);
        // The step that found no room was not lost: it is published with the next one, whatever that touches.
        numbers(&mut publisher, 0)[0] = 99;
        publisher.touched(0, 0..8).unwrap();
        assert_eq!(publisher.publish(&[]).unwrap(), 4);
        let version = observer.latest().unwrap();
        let seen = as_numbers(version.bytes(0).unwrap());
        assert!(seen[0] == 99 && seen[1..].iter().all(|n| *n == 6), "{detect:?}: {:?}", &seen[..3]);
        assert_eq!(publisher.statistics().no_space, 3);
    }
}

#[test]
fn a_quota_is_a_full_pool() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(4096), ..spec(64 * 512) });
    world.set_quota(series.offer.reserved + 70 * 4096);
    let mut observer = series.observe(0);
    publisher.publish(&[]).unwrap();
    let first = observer.latest().unwrap();
    numbers(&mut publisher, 0).fill(1);
    publisher.publish(&[]).unwrap();
    let second = observer.latest().unwrap();
    numbers(&mut publisher, 0).fill(2);
    let error = publisher.publish(&[]).unwrap_err();
    assert!(error.status == Status::NoSpace && error.message.contains("quota"), "{error}");
    assert!(series.resident() <= series.offer.reserved + 70 * 4096);
    drop(first);
    publisher.publish(&[]).unwrap();
    drop(second);
    world.set_quota(100);
    assert_eq!(world.try_publisher(spec(1000)).unwrap_err().status, Status::NoSpace);
}

#[test]
fn the_policy_refuse_takes_the_oldest_version_back_and_its_view_says_so() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec {
        chunk: Some(4096),
        capacity: Some(3 * 16 * 4096),
        full: FullPolicy::Refuse,
        detect: Detect::CopyAll,
        ..spec(16 * 512)
    });
    let (mut laggard, mut other) = (series.observe(0), series.observe(1));
    publisher.publish(&[]).unwrap();
    let mut old = laggard.latest().unwrap();
    old.bytes(0).unwrap();
    publisher.publish(&[]).unwrap();
    let young = other.latest().unwrap();
    for step in 3..=10u64 {
        numbers(&mut publisher, 0).fill(step);
        publisher.publish(&[]).unwrap();
        assert_eq!(old.is_valid(), step < 4, "step {step}");
        assert!(young.is_valid(), "step {step}: one was enough");
    }
    let mut word = [0; 8];
    assert_eq!(old.copy_out(0, 0, &mut word).unwrap_err().status, Status::NotFound);
    assert_eq!(old.bytes(0).unwrap_err().status, Status::NotFound);
    assert_eq!(publisher.statistics().refused, 1);
    assert!(as_numbers(young.bytes(0).unwrap()).iter().all(|n| *n == 0));
    old.refresh().unwrap();
    old.copy_out(0, 8, &mut word).unwrap();
    assert_eq!((old.is_valid(), u64::from_le_bytes(word)), (true, 10));
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
fn attributes_have_kinds_and_may_be_declared_by_their_first_use() {
    let world = World::new();
    let step = AttributeSpec { name: "step".into(), ty: Kind::I64 };
    let (mut publisher, series) = world.publisher(Spec { attributes: vec![step], ..spec(8) });
    let mut observer = series.observe(0);
    let values = [
        ("step", Value::I64(-3)),
        ("time", Value::F64(0.5)),
        ("what", Value::Text("täst".into())),
        ("n", Value::U64(7)),
    ];
    publisher.publish(&values).unwrap();
    let version = observer.latest().unwrap();
    let seen: Vec<(&str, Value)> =
        version.attributes().iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(seen, values);
    publisher.publish(&[("time", Value::F64(1.5))]).unwrap();
    let version = observer.latest().unwrap();
    assert_eq!((version.attribute("step"), version.attribute("time")), (None, Some(&Value::F64(1.5))));
    assert_eq!(publisher.publish(&[("step", Value::F64(1.0))]).unwrap_err().status, Status::WrongType);
    assert_eq!(publisher.publish(&[("what", Value::Text("x".repeat(64)))]).unwrap_err().status, Status::Invalid);
    assert_eq!(publisher.publish(&[("a b", Value::I64(1))]).unwrap_err().status, Status::Invalid);
    assert_eq!(publisher.sequence(), 2);
    for n in 0..12 {
        publisher.publish(&[(&format!("more-{n}"), Value::I64(n))]).unwrap();
    }
    let error = publisher.publish(&[("one-too-many", Value::I64(1))]).unwrap_err();
    assert_eq!(error.status, Status::Invalid, "{error}");
}

#[test]
fn a_series_describes_itself() {
    let world = World::new();
    let mut u = Variable::new("u", "{f64,i32}", &[3, 4]);
    u.max_shape = vec![30, 4];
    u.constants = vec![("dx".into(), Value::F64(0.25)), ("unit".into(), Value::Text("K".into()))];
    let t = Variable::new("t", "f64", &[]);
    let constants = vec![("code".into(), Value::Text("heat".into()))];
    let (mut publisher, series) =
        world.publisher(Spec { constants: constants.clone(), ..Spec::of(vec![u.clone(), t]) });
    publisher.publish(&[("step", Value::I64(1))]).unwrap();
    let observer = series.observe(0);
    let description = observer.description();
    assert_eq!(description.constants, constants);
    let seen = &description.variables[0];
    assert_eq!((&seen.name, &seen.ty, &seen.max_shape, &seen.constants), (&u.name, &u.ty, &u.max_shape, &u.constants));
    assert_eq!(description.attributes, [AttributeSpec { name: "step".into(), ty: Kind::I64 }]);
    assert_eq!(description.publisher, series_world::PUBLISHER);
    let report = Report::read("field", &series.offer.pool, series.offer.size).unwrap();
    assert_eq!((report.newest, report.versions.len(), report.ended), (1, 1, false));
    assert_eq!(&report.description, description);
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
        for (n, number) in numbers(&mut publisher, 0).iter_mut().enumerate() {
            *number = step * n as u64;
        }
        publisher.publish(&[]).unwrap();
        let version = series.observe(0).latest().unwrap();
        assert!(as_numbers(version.bytes(0).unwrap()).iter().enumerate().all(|(n, number)| *number == step * n as u64));
    }
}

#[test]
fn what_is_chosen_follows_what_the_program_does() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1 << 20));
    let mut observer = series.observe(0);
    let mut seen = std::collections::BTreeSet::new();
    let mut step_of = |publisher: &mut crossdock_core::series::Publisher, pages: usize, step: u64| {
        for page in 0..pages {
            numbers(publisher, 0)[page * 512] = step;
        }
        publisher.publish(&[]).unwrap();
        seen.insert(publisher.statistics().method as u32);
        let version = observer.latest().unwrap();
        let numbers = as_numbers(version.bytes(0).unwrap());
        assert!((0..pages).all(|page| numbers[page * 512] == step), "step {step}");
    };
    (1..12).for_each(|step| step_of(&mut publisher, 2048, step));
    assert_eq!(publisher.statistics().method, Method::CopyAll);
    (12..30).for_each(|step| step_of(&mut publisher, 4, step));
    let sparse = publisher.statistics();
    assert_ne!(sparse.method, Method::CopyAll, "{sparse:?}");
    (30..60).for_each(|step| step_of(&mut publisher, 2048, step));
    let dense = publisher.statistics();
    assert_eq!(dense.method, Method::CopyAll, "{dense:?}");
    // The trial after the first publish and back, then there and back.
    assert!(dense.switches <= 4, "{dense:?}");
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
    // Every other page in a version of its own, held, so that the newest version's slots are scattered.
    for page in (0..100u64).step_by(2) {
        numbers(&mut publisher, 0)[page as usize * 512] = page;
        publisher.touched(0, page * 4096..page * 4096 + 1).unwrap();
        publisher.publish(&[]).unwrap();
        if held.len() < 10 {
            held.push(holder.latest().unwrap());
        }
    }
    let pid = world.fork(|| {
        let used = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let limit: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        let place = crossdock_os::place::Place::reserve(limit * 8192).unwrap();
        for n in 0..(limit - used - 40) / 2 {
            place.put_memory(n * 8192, 4096).unwrap();
        }
        let mut observer = series.observe(0);
        let mut version = observer.latest().unwrap();
        let whole = |version: &crossdock_core::series::Version| {
            let seen = as_numbers(version.bytes(0).unwrap());
            (0..100).all(|page| seen[page * 512] == if page % 2 == 0 { page as u64 } else { 0 })
        };
        let first = whole(&version) && version.is_copy(0);
        version.replace_by(observer.at(version.sequence()).unwrap()).unwrap();
        i32::from(!(first && whole(&version)))
    });
    assert_eq!(world.wait(pid), 0);
    drop(held);
}

#[test]
fn a_series_may_begin_empty() {
    let world = World::new();
    let empty = Variable { max_shape: vec![1000], ..Variable::new("u", "u64", &[0]) };
    let (mut publisher, series) = world.publisher(Spec::of(vec![empty]));
    publisher.publish(&[]).unwrap();
    publisher.begin().unwrap();
    publisher.publish(&[]).unwrap();
    let mut version = series.observe(0).latest().unwrap();
    assert!(version.bytes(0).unwrap().is_empty());
    publisher.resize(0, &[1000]).unwrap();
    numbers(&mut publisher, 0).fill(3);
    publisher.publish(&[]).unwrap();
    version.refresh().unwrap();
    assert!(as_numbers(version.bytes(0).unwrap()).iter().all(|n| *n == 3));
    // A variable without any element at all, ever.
    let nothing = Spec::of(vec![Variable::new("n", "f64", &[0, 7])]);
    let (mut publisher, series) = world.publisher(nothing);
    publisher.publish(&[("step", Value::I64(1))]).unwrap();
    assert_eq!(series.observe(0).latest().unwrap().shape(0), [0, 7]);
}
