//! One faulty member writes arbitrary bytes into a port. The other members may get errors or odd messages, but must not
//! crash or loop for ever.

mod queue_world;

use crossdock_core::Host;
use crossdock_core::queue::{End, Pattern, Ring, Side, fuzz_entry};
use crossdock_layout::queue::{AtomicU64, CELLS_AT};
use crossdock_os::Deadline;
use crossdock_os::testing::Random;
use queue_world::{World, message};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PATTERNS: [Pattern; 4] = [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue];

/// Makes random values and offsets that may do harm to a port. They are the same in every run of the test.
struct Dice(Random);

impl Dice {
    /// Gives a value that may do harm: any number, a small number, a huge number, or a number that looks like the state
    /// of a cell a few laps later.
    fn value(&mut self) -> u64 {
        match self.0.below(5) {
            0 => self.0.number(),
            1 => self.0.number() % 8,
            2 => u64::MAX - self.0.number() % 8,
            3 => 1 << (self.0.number() % 64),
            _ => ((self.0.number() % 4) << 12) | ((self.0.number() % 40) << 4) | (self.0.number() % 16),
        }
    }

    /// Gives an offset at which the port has data: in the header, in the first end slots, or in the cells.
    fn offset(&mut self, size: u64) -> u64 {
        let (from, to) = match self.0.below(4) {
            0 => (0, 512),
            1 => (1024, 1024 + 256),
            2 => (1024 + 32 * 128, 1024 + 34 * 128),
            _ => (CELLS_AT as u64, size),
        };
        (from + self.0.number() % (to - from)) & !7
    }
}

/// A thread of the test overwrites the port. When this value is dropped, that thread ends. So the thread also ends if
/// an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn whatever_is_written_over_a_port_each_call_ends() {
    let mut dice = Dice(Random(0x5eed));
    for round in 0..3000 {
        let mut input = vec![(dice.0.number() & 7) as u8, (dice.0.number() & 7) as u8];
        let capacity = 1 << (input[1] & 3);
        for _ in 0..1 + dice.0.number() % 12 {
            let offset = dice.offset(CELLS_AT as u64 + 64 * capacity);
            // `fuzz_entry` expects an offset as a number of 8-byte words.
            input.extend_from_slice(&((offset / 8) as u16).to_le_bytes());
            input.extend_from_slice(&dice.value().to_le_bytes());
        }
        let start = Instant::now();
        fuzz_entry(&input);
        assert!(start.elapsed() < Duration::from_secs(5), "round {round} took {:?}: {input:02x?}", start.elapsed());
    }
}

#[test]
fn while_a_member_scribbles_others_get_answers_or_errors_in_time() {
    for pattern in PATTERNS {
        let world = World::new(pattern, 4);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        let over = AtomicBool::new(false);
        let raw = world.mapping();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut dice = Dice(Random(0xbad + pattern as u64));
                while !over.load(Relaxed) {
                    let offset = dice.offset(raw.length() as u64);
                    let address = raw.at(offset, 8).unwrap();
                    // SAFETY: the word is in bounds of `raw` and aligned, and all code accesses it only as an atomic.
                    unsafe { AtomicU64::from_ptr(address.as_ptr().cast()) }.store(dice.value(), Relaxed);
                    std::thread::yield_now();
                }
            });
            let begin = Instant::now();
            let mut slowest = Duration::ZERO;
            let wait = Duration::from_millis(2);
            let me = world.member();
            let _stop = Stop(&over);
            while begin.elapsed() < Duration::from_millis(400) {
                let start = Instant::now();
                let _ = producer.reclaim(wait);
                let _ = producer.send(&message(1), 0, wait);
                if let Ok((position, _)) = consumer.receive(wait) {
                    let _ = consumer.release(position);
                }
                let _ = (producer.has_event(), consumer.has_event(), consumer.ring().statistics());
                let soon = Deadline::after(wait);
                if let Ok(ring) = Ring::open(world.mapping(), world.shape, me, world.host.liveness(), soon) {
                    let _ = End::open(ring, Side::Consumer, me, "another", world.host.clone(), wait);
                }
                slowest = slowest.max(start.elapsed());
            }
            assert!(slowest < Duration::from_secs(1), "{pattern:?}: a round of calls took {slowest:?}");
        });
    }
}

#[test]
fn a_wild_inline_length_is_an_error_and_not_a_long_message() {
    let world = World::new(Pattern::OneToOne, 2);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    producer.send(&message(0), 0, Duration::ZERO).unwrap();
    let raw = world.mapping();
    let word = raw.at(CELLS_AT as u64 + 8, 8).unwrap();
    // SAFETY: the word is in bounds of `raw` and aligned, and all code accesses it only as an atomic.
    unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }.store(25 << 32, Relaxed);
    let error = consumer.receive(Duration::ZERO).unwrap_err();
    assert_eq!(error.status, crossdock_layout::Status::Corrupt, "{error}");
}
