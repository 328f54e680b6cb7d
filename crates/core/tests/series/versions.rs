//! Tests of the contents of versions: a version has the contents that the variables had when it was published, and
//! versions share the chunks that did not change.

use std::sync::Arc;

use crossdock_core::series::{Detect, Method, Observer, Publisher, Report, Spec, Value, Variable, Version, diff};
use crossdock_layout::Status;
use crossdock_os::testing::Random;

use crate::WAYS;
use crate::series_world::{Series, World, as_numbers, numbers, pages, spec};

/// The spec of a series with one variable of 1 MiB, in chunks of 4 KiB.
fn in_pages(detect: Detect) -> Spec {
    Spec { chunk: Some(4096), detect, pages: pages(detect), ..spec(131_072) }
}

/// Checks that the newest version, and the program's array, have these numbers in their first and their last element.
#[track_caller]
fn check_ends(publisher: &mut Publisher, series: &Series, ends: [u64; 2]) {
    let version = series.observe(0).latest().unwrap();
    let seen = as_numbers(version.bytes("u").unwrap());
    assert_eq!([seen[0], seen[seen.len() - 1]], ends, "version {}", version.sequence());
    let own = numbers(publisher, "u");
    assert_eq!([own[0], own[own.len() - 1]], ends, "the program's own");
}

#[test]
fn hints_for_a_step_whose_publish_fails_or_whose_version_is_abandoned_hide_no_later_change() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(in_pages(Detect::Auto));
    let (good, wrong) = ([("a", Value::I64(1))], [("a", Value::F64(1.0))]);
    numbers(&mut publisher, "u").fill(1);
    publisher.publish(&good).unwrap();
    numbers(&mut publisher, "u")[0] = 2;
    publisher.touched("u", 0..8).unwrap();
    assert_eq!(publisher.publish(&wrong).unwrap_err().status, Status::WrongType);
    numbers(&mut publisher, "u").fill(3);
    publisher.publish(&good).unwrap();
    check_ends(&mut publisher, &series, [3, 3]);
    publisher.begin().unwrap();
    publisher.touched("u", 0..8).unwrap();
    publisher.abandon().unwrap();
    numbers(&mut publisher, "u").fill(4);
    publisher.publish(&good).unwrap();
    check_ends(&mut publisher, &series, [4, 4]);
}

#[test]
fn hints_do_not_hide_the_changes_of_an_earlier_step_whose_publish_failed() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(in_pages(Detect::Auto));
    let (good, wrong) = ([("a", Value::I64(1))], [("a", Value::F64(1.0))]);
    numbers(&mut publisher, "u").fill(1);
    publisher.publish(&good).unwrap();
    *numbers(&mut publisher, "u").last_mut().unwrap() = 2;
    assert_eq!(publisher.publish(&wrong).unwrap_err().status, Status::WrongType);
    for step in [3, 4] {
        numbers(&mut publisher, "u")[0] = step;
        publisher.touched("u", 0..8).unwrap();
        if step == 3 {
            assert_eq!(publisher.publish(&wrong).unwrap_err().status, Status::WrongType);
        }
    }
    publisher.publish(&good).unwrap();
    check_ends(&mut publisher, &series, [4, 2]);
    // From now on the publisher knows only from hints what has changed.
    numbers(&mut publisher, "u")[0] = 5;
    publisher.touched("u", 0..8).unwrap();
    publisher.publish(&good).unwrap();
    check_ends(&mut publisher, &series, [5, 2]);
    let version = series.observe(0).latest().unwrap();
    assert_eq!((version.method(), version.copied()), (Some(Method::Hints), 1));
    // If a language binding itself refuses to publish, it calls `give_up_step`. This has the effect of a failed
    // publish: the next version also contains the changes of this step, although the hints of the next step do not name
    // them.
    *numbers(&mut publisher, "u").last_mut().unwrap() = 6;
    publisher.give_up_step();
    numbers(&mut publisher, "u")[0] = 7;
    publisher.touched("u", 0..8).unwrap();
    publisher.publish(&good).unwrap();
    check_ends(&mut publisher, &series, [7, 6]);
}

#[test]
fn a_version_is_what_the_variables_held_when_it_was_published_however_changes_are_found() {
    for detect in WAYS {
        let world = World::new();
        let (mut publisher, series) = world.publisher(Spec { capacity: Some(8 << 20), ..in_pages(detect) });
        let mut observer = series.observe(0);
        let mut random = Random(7);
        let mut model = vec![0u64; 131_072];
        let mut held = Vec::new();
        for step in 1..=40u64 {
            let changes = if step % 10 == 0 { 0 } else { 1 << (step % 9) };
            for _ in 0..changes {
                let at = random.below(model.len());
                model[at] = random.number();
                numbers(&mut publisher, "u")[at] = model[at];
                if detect == Detect::Hints {
                    publisher.touched("u", at as u64 * 8..at as u64 * 8 + 8).unwrap();
                }
            }
            assert_eq!(publisher.publish(&[("step", Value::U64(step))]).unwrap(), step);
            let version = observer.latest().unwrap();
            assert_eq!(version.sequence(), step);
            assert_eq!(version.attribute("step").unwrap(), &Value::U64(step));
            assert!(as_numbers(version.bytes("u").unwrap()) == model, "{detect:?}, step {step}");
            assert!(numbers(&mut publisher, "u") == model, "{detect:?}, step {step}: the publisher's own");
            if step % 3 == 0 {
                held.push((version, model.clone()));
            }
            if held.len() > 4 {
                held.remove(0);
            }
            for (version, model) in &held {
                let seen = as_numbers(version.bytes("u").unwrap());
                assert!(seen == *model, "{detect:?}, step {step}: version {} changed", version.sequence());
            }
        }
        let statistics = publisher.statistics();
        let as_asked = match detect {
            Detect::Hints => statistics.method == Method::Hints,
            Detect::CopyAll => statistics.method == Method::CopyAll,
            Detect::PrivateCopies => statistics.method == Method::PrivateCopies || !statistics.unavailable.is_empty(),
            Detect::WriteProtect => statistics.method == Method::WriteProtect || !statistics.unavailable.is_empty(),
            Detect::Compare => statistics.method == Method::Compare,
            Detect::Auto => true,
        };
        assert!(as_asked, "{detect:?}: {statistics:?}");
        if detect != Detect::Auto && statistics.method != Method::CopyAll {
            assert!(statistics.shared > statistics.copied, "{detect:?}: {statistics:?}");
        }
    }
}

#[test]
fn versions_share_what_did_not_change_and_memory_goes_back_when_no_observer_holds_them() {
    for detect in [Detect::PrivateCopies, Detect::WriteProtect, Detect::Hints, Detect::Compare] {
        let world = World::new();
        let (mut publisher, series) = world.publisher(in_pages(detect));
        let mut observer = series.observe(0);
        publisher.publish(&[]).unwrap();
        publisher.publish(&[]).unwrap();
        if publisher.statistics().method == Method::CopyAll {
            continue; // this machine lacks the method, so the publisher copied everything
        }
        let used = || publisher_used(&series);
        let baseline = used();
        let mut held = Vec::new();
        for step in 0..10usize {
            numbers(&mut publisher, "u")[step * 512] = 1;
            publisher.touched("u", step as u64 * 4096..step as u64 * 4096 + 8).unwrap();
            publisher.publish(&[]).unwrap();
            held.push(observer.latest().unwrap());
        }
        assert_eq!(used(), baseline + 9, "{detect:?}: a page each for nine versions that are held");
        assert_eq!(diff(&held[0], &held[3]).unwrap(), [("u".to_owned(), 4096..4 * 4096)]);
        drop(held);
        publisher.touched("u", 0..0).unwrap();
        publisher.publish(&[]).unwrap();
        assert_eq!(used(), baseline, "{detect:?}");
        assert_eq!(publisher.statistics().versions, 1);
    }
}

#[test]
fn refresh_maps_only_what_differs_and_addresses_stay() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(in_pages(Detect::Hints));
    publisher.publish(&[]).unwrap();
    let mut version = series.observe(0).latest().unwrap();
    let address = version.bytes("u").unwrap().as_ptr();
    assert_eq!(version.refresh().unwrap(), 0);
    for at in [0usize, 5 * 512, 6 * 512] {
        numbers(&mut publisher, "u")[at] = 9;
        publisher.touched("u", at as u64 * 8..at as u64 * 8 + 8).unwrap();
    }
    publisher.publish(&[]).unwrap();
    assert_eq!(as_numbers(version.bytes("u").unwrap())[0], 0);
    assert_eq!(version.refresh().unwrap(), 3);
    assert_eq!((version.sequence(), version.bytes("u").unwrap().as_ptr()), (2, address));
    let seen = as_numbers(version.bytes("u").unwrap());
    assert_eq!((seen[0], seen[512], seen[5 * 512], seen[6 * 512]), (9, 0, 9, 9));
}

/// A series with one variable of 64 KiB in 16 chunks, and a version of it that an observer refreshes after each step.
/// In each step another chunk gets the step's number.
struct OftenRefreshed {
    publisher: Publisher,
    observer: Observer,
    version: Version,
    expected: Vec<u64>,
    step: u64,
}

impl OftenRefreshed {
    fn new(world: &Arc<World>) -> Self {
        let (mut publisher, series) =
            world.publisher(Spec { chunk: Some(4096), detect: Detect::Compare, ..spec(16 * 512) });
        publisher.publish(&[]).unwrap();
        let mut observer = series.observe(0);
        let version = observer.latest().unwrap();
        assert_eq!(as_numbers(version.bytes("u").unwrap())[0], 0, "the first version is mapped");
        Self { publisher, observer, version, expected: vec![0; 16 * 512], step: 0 }
    }

    fn publish(&mut self) {
        self.step += 1;
        let chunk = self.step as usize % 16 * 512;
        self.expected[chunk..chunk + 512].fill(self.step);
        numbers(&mut self.publisher, "u").copy_from_slice(&self.expected);
        self.publisher.publish(&[]).unwrap();
    }

    #[track_caller]
    fn check(&self) {
        assert_eq!(self.version.sequence(), self.step + 1);
        assert!(as_numbers(self.version.bytes("u").unwrap()) == self.expected, "step {}", self.step);
    }
}

#[test]
fn a_small_variable_that_is_often_refreshed_is_copied_and_stays_at_its_addresses() {
    let world = World::new();
    let mut often = OftenRefreshed::new(&world);
    let address = often.version.bytes("u").unwrap().as_ptr();
    for step in 1..40 {
        often.publish();
        let was_mapped = !often.version.is_copy("u");
        let refreshed = often.version.refresh().unwrap();
        often.check();
        assert_eq!(often.version.bytes("u").unwrap().as_ptr(), address);
        assert_eq!(often.version.is_copy("u"), step > 3);
        let becomes_copy = was_mapped && often.version.is_copy("u");
        assert_eq!(refreshed, if becomes_copy { 16 } else { 1 }, "step {step}");
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start = format!("{:x}-", address as usize);
    let line = maps.lines().find(|line| line.starts_with(&start)).expect("the address is the start of a mapping");
    assert_eq!(line.split_whitespace().nth(1), Some("r--s"), "the program cannot write the copy");
}

#[test]
fn a_forked_child_cannot_change_a_version_of_its_parent() {
    let world = World::new();
    let mut often = OftenRefreshed::new(&world);
    for _ in 0..5 {
        often.publish();
        often.version.refresh().unwrap();
    }
    assert!(often.version.is_copy("u"));
    often.publish();
    let newer = often.observer.latest().unwrap();
    let pid = world.fork(|| {
        let refused = [often.version.replace_by(newer), often.version.refresh()];
        i32::from(!refused.into_iter().all(|error| error.unwrap_err().status == Status::Disconnected))
    });
    assert_eq!(world.wait(pid), 0);
    often.step -= 1;
    often.expected[6 * 512..7 * 512].fill(0);
    often.check();
}

#[cfg(feature = "faults")]
#[test]
fn a_small_variable_is_refreshed_whatever_call_fails_when_it_becomes_a_copy() {
    let world = World::new();
    let (mut mapped, mut copied) = (0, 0);
    let seen = crossdock_os::faults::each_call_fails(|attempt| {
        let mut often = OftenRefreshed::new(&world);
        for _ in 0..3 {
            often.publish();
            often.version.refresh().unwrap();
        }
        assert!(!often.version.is_copy("u"));
        often.publish();
        attempt.arm();
        let refreshed = often.version.refresh();
        attempt.disarm();
        refreshed.unwrap();
        often.check();
        *(if often.version.is_copy("u") { &mut copied } else { &mut mapped }) += 1;
        often.publish();
        often.version.refresh().unwrap();
        often.check();
    });
    assert!(seen.contains("memfd_create") && seen.contains("mmap"), "{seen:?}");
    assert!(mapped > 0 && copied > 0, "{mapped} refreshes changed the mapping, {copied} copied");
}

#[test]
fn variables_grow_and_shrink_and_versions_keep_their_shapes() {
    for detect in WAYS {
        let world = World::new();
        let u = Variable { max_shape: vec![100, 512], ..Variable::new("u", "u64", &[3, 512]) };
        let v = Variable { max_shape: vec![4000], ..Variable::new("v", "f32", &[0]) };
        let spec = Spec {
            chunk: Some(8192),
            detect,
            pages: pages(detect),
            ..Spec::of(vec![u, v, Variable::new("t", "f64", &[])])
        };
        let (mut publisher, series) = world.publisher(spec);
        let mut observer = series.observe(0);
        numbers(&mut publisher, "u").fill(5);
        publisher.publish(&[]).unwrap();
        let mut small = observer.latest().unwrap();
        assert_eq!(
            (small.shape("u").unwrap(), small.shape("v").unwrap(), small.shape("t").unwrap()),
            (&[3u64, 512][..], &[0u64][..], &[][..])
        );
        assert_eq!((small.bytes("u").unwrap().len(), small.bytes("v").unwrap().len()), (3 * 4096, 0));
        publisher.resize("u", &[50, 512]).unwrap();
        publisher.resize("v", &[4000]).unwrap();
        let address = publisher.memory("u").unwrap();
        assert!(numbers(&mut publisher, "u")[3 * 512..].iter().all(|n| *n == 0), "{detect:?}: what comes new is zero");
        numbers(&mut publisher, "u")[49 * 512] = 6;
        publisher.touched("u", 49 * 4096..49 * 4096 + 8).unwrap();
        publisher.publish(&[]).unwrap();
        let large = observer.latest().unwrap();
        let seen = as_numbers(large.bytes("u").unwrap());
        assert_eq!((seen.len(), seen[0], seen[3 * 512], seen[49 * 512]), (50 * 512, 5, 0, 6), "{detect:?}");
        assert_eq!(large.bytes("v").unwrap().len(), 16_000);
        assert!(as_numbers(small.bytes("u").unwrap()).iter().all(|n| *n == 5));
        assert_eq!(diff(&small, &large).unwrap()[0].0, "u");
        small.refresh().unwrap();
        assert_eq!(as_numbers(small.bytes("u").unwrap())[49 * 512], 6);
        publisher.resize("u", &[1, 512]).unwrap();
        publisher.resize("u", &[4, 512]).unwrap();
        assert_eq!(publisher.memory("u").unwrap(), address);
        publisher.publish(&[]).unwrap();
        let back = observer.latest().unwrap();
        let seen = as_numbers(back.bytes("u").unwrap());
        assert!(seen[..512].iter().all(|n| *n == 5) && seen[512..].iter().all(|n| *n == 0), "{detect:?}");
        small.refresh().unwrap();
        assert_eq!(small.bytes("u").unwrap().len(), 4 * 4096);
        for (shape, status) in [(&[101u64, 512][..], Status::Invalid), (&[1][..], Status::Invalid)] {
            assert_eq!(publisher.resize("u", shape).unwrap_err().status, status);
        }
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
            numbers(publisher, "u")[page * 512] = step;
        }
        publisher.publish(&[]).unwrap();
        seen.insert(publisher.statistics().method as u32);
        let version = observer.latest().unwrap();
        let numbers = as_numbers(version.bytes("u").unwrap());
        assert!((0..pages).all(|page| numbers[page * 512] == step), "step {step}");
    };
    (1..12).for_each(|step| step_of(&mut publisher, 2048, step));
    assert_eq!(publisher.statistics().method, Method::CopyAll);
    (12..30).for_each(|step| step_of(&mut publisher, 4, step));
    let sparse = publisher.statistics();
    // Without write protection, only comparing can find a small number of changes. The publisher does not choose
    // comparing if comparing a byte costs about twice as much as copying a byte. On a busy machine, the measured cost
    // may be that high.
    let compares_badly = sparse.costs.compare_byte > 1.9 * sparse.costs.copy_byte;
    assert!(sparse.method != Method::CopyAll || compares_badly, "{sparse:?}");
    // On a busy machine, the measured costs may be wrong for some steps, so the publisher may need more steps.
    let mut steps = 30;
    while steps < 60 || steps < 300 && publisher.statistics().method != Method::CopyAll {
        step_of(&mut publisher, 2048, steps);
        steps += 1;
    }
    let dense = publisher.statistics();
    assert_eq!(dense.method, Method::CopyAll, "{dense:?}");
    // Four changes of the method are expected. After the first publish, the publisher tries another method, and then
    // goes back to copying everything. When only a few pages change, it chooses another method again; when all pages
    // change, it goes back to copying everything. The costs are measured, so on a busy machine there are a few more. If
    // the method changed back and forth all the time, there would be one change for every few publishes.
    assert!(dense.switches <= steps / 5, "{dense:?}");
}

fn publisher_used(series: &Series) -> u32 {
    Report::read("field", &series.offer.pool, series.offer.size).unwrap().slots.2
}

#[test]
fn what_only_a_longer_version_has_differs_although_both_share_the_chunk_in_which_the_shorter_one_ends() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec { chunk: Some(4096), detect: Detect::Hints, ..spec(3 * 512) });
    let mut observer = series.observe(0);
    publisher.publish(&[]).unwrap();
    let longer = observer.latest().unwrap();
    publisher.resize("u", &[768]).unwrap();
    publisher.publish(&[]).unwrap();
    let shorter = observer.latest().unwrap();
    assert_eq!(shorter.copied(), 0);
    for (a, b) in [(&longer, &shorter), (&shorter, &longer)] {
        assert_eq!(diff(a, b).unwrap(), [("u".to_owned(), 768 * 8..1536 * 8)]);
    }
}
