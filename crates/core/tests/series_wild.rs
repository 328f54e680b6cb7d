//! Tests of series whose memory another process overwrites. Observers may get errors and odd values. They must not
//! crash, wait for ever, or get data of another task.

mod series_world;

use std::time::{Duration, Instant};

use crossdock_core::series::{AttachParts, Detect, Observer, Report, Spec, fuzz_entry};
use crossdock_layout::Status;
use crossdock_os::testing::Random;
use crossdock_os::{Access, Mapping, file, memfd};
use series_world::{PUBLISHER, World, as_numbers, numbers, pattern, spec};

#[test]
fn whatever_lies_in_pools_and_pin_pages_every_call_ends() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let ends = Instant::now() + Duration::from_secs(5);
    let mut rounds = 0;
    while Instant::now() < ends || rounds < 50 {
        let length = 2 + 10 * random.below(30);
        let mut data = random.bytes(length);
        // Half of the rounds write small values, which look like valid version numbers, record numbers and slot
        // numbers.
        if random.one_in(2) {
            data[2..].chunks_mut(10).for_each(|chunk| chunk.iter_mut().skip(4).for_each(|byte| *byte = 0));
        }
        data[1] |= 4;
        fuzz_entry(&data);
        rounds += 1;
    }
}

#[test]
fn a_pool_that_is_none_is_refused_with_what_is_wrong() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(spec(1000));
    publisher.publish(&[]).unwrap();
    let size = series.offer.size;
    let attach = |change: &dyn Fn(&Mapping)| {
        let fd = memfd::create("copy", size).unwrap();
        let copy = Mapping::new(&fd, size as usize, Access::ReadWrite).unwrap();
        let real = Mapping::new(&series.offer.pool, size as usize, Access::Read).unwrap();
        // SAFETY: both mappings have `size` bytes, and they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(real.start().as_ptr(), copy.start().as_ptr(), size as usize) };
        change(&copy);
        let pool = file::reopen_read_only(&fd).unwrap();
        Observer::attach(AttachParts { pool: pool.into(), ..series.parts(0) }).and_then(|mut observer| {
            observer.latest()?;
            Report::read("field", &fd, size).map(|_| ())
        })
    };
    attach(&|_| {}).unwrap();
    let word = |offset: u64, value: u64| {
        move |copy: &Mapping| copy.word64(offset).unwrap().store(value, std::sync::atomic::Ordering::SeqCst)
    };
    for (offset, value, status, words) in [
        (0, 7, Status::Corrupt, "no series header"),
        (16, 0, Status::Corrupt, "no series header"),
        (8, u64::MAX, Status::Incompatible, "use one version"),
        (48, 3 | 1 << 32, Status::Corrupt, "does not fit"),
        (64, u64::MAX, Status::Corrupt, "does not fit"),
        (72, u64::from(u32::MAX) | 64 << 32, Status::Corrupt, "does not fit"),
        (4096, 0, Status::Corrupt, "variable number 0"),
        (4096 + 320, 9, Status::Corrupt, "variable number 0"),
        (4096 + 400, u64::MAX, Status::Corrupt, "variable number 0"),
        (128, 1 << 16 | 0xffff, Status::Corrupt, "outside its table"),
    ] {
        let error = attach(&word(offset, value)).unwrap_err();
        assert!(error.status == status && error.to_string().contains(words), "{offset}: {error}");
        assert!(error.to_string().starts_with("series 'field': "), "{error}");
    }
    let small = memfd::create("small", 4096).unwrap();
    assert_eq!(
        Observer::attach(AttachParts { pool: small.into(), ..series.parts(0) }).unwrap_err().status,
        Status::System
    );
}

#[test]
fn pins_that_lie_keep_versions_and_nothing_else() {
    let world = World::new();
    let (mut publisher, series) = world.publisher(Spec {
        chunk: Some(4096),
        capacity: Some(40 * 4096),
        detect: Detect::CopyAll,
        ..spec(8 * 512)
    });
    let liar = Mapping::new(series.pin_page(3), 4096, Access::ReadWrite).unwrap();
    let scribble = |value: &dyn Fn(u64) -> u64| {
        for word in 0..16 {
            liar.word64((3 * 16 + word) * 8).unwrap().store(value(word), std::sync::atomic::Ordering::SeqCst);
        }
    };
    let mut observer = series.observe(0);
    let mut full = 0;
    for round in 0..60u64 {
        let step = publisher.sequence() + 1;
        match round / 10 % 6 {
            0 => scribble(&|_| u64::MAX),
            1 => scribble(&|word| if word == 0 { u64::MAX } else { step.saturating_sub(word) }),
            2 => scribble(&|word| word << 60 | word),
            3 => scribble(&|word| step + word),
            4 => scribble(&|_| step),
            _ => scribble(&|_| 0),
        }
        pattern::write(numbers(&mut publisher, "u"), step, false);
        let started = Instant::now();
        match publisher.publish(&[]) {
            Ok(0) => {
                let why = publisher.statistics().withheld_why.unwrap();
                assert!(why.contains("observer 3 holds"), "{why}");
                full += 1;
            }
            Ok(_) => {
                let version = observer.latest().unwrap();
                pattern::check(as_numbers(version.bytes("u").unwrap()), step, 1).unwrap();
            }
            Err(error) => panic!("a liar costs the publisher a call: {error}"),
        }
        assert!(started.elapsed() < Duration::from_secs(5));
    }
    assert!(full > 0, "it can fill the pool, which the policy is for");
    series.clear_pins(3);
    publisher.publish(&[]).unwrap();
    publisher.publish(&[]).unwrap();
    assert_eq!(publisher.statistics().versions, 1, "the liar is gone, and so is what it held");
    assert_eq!(observer.description().publisher, PUBLISHER);
}
