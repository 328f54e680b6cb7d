//! What tests of several crates share: counted skips, waiting, inputs of the fuzz targets, and random numbers.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::Deadline;

/// Writes a line that says that the calling test was skipped because this kernel or machine lacks a feature.
/// `scripts/test` counts these lines, and fails unless `tests/skips` lists the feature with a reason.
pub fn skip(feature: &str) {
    let thread = std::thread::current();
    let line = format!("\nSKIP {feature}: {}\n", thread.name().unwrap_or("a test"));
    // No macro such as `eprintln!` is used, because the test runner would capture its output.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Waits until `holds` returns true, for two minutes at most.
///
/// # Panics
/// The time is over; the message names `what`.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(120), what, holds);
}

/// Waits until `holds` returns true, for the time `limit` at most.
///
/// # Panics
/// The time is over; the message names `what`.
pub fn until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Deadline::after(limit);
    while !holds() {
        assert!(!deadline.passed(), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Closes all descriptors of this process except the standard streams, as a program does with `closefrom(3)`.
pub fn close_all_descriptors() {
    // SAFETY: the numbers of the closed descriptors may be given out again, which is what the tests are about. The
    // standard library reports a descriptor that was closed twice; nothing worse can happen.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

/// The CPU time that all threads of this process have used.
#[must_use]
pub fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// Runs `target` with each input that is kept for the fuzz target `name`.
///
/// # Panics
/// No input is kept for `name`.
pub fn run_corpus(name: &str, target: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let inputs: Vec<_> = std::fs::read_dir(corpus).expect("a folder of inputs").collect();
    assert!(!inputs.is_empty(), "no input is kept for the fuzz target {name}");
    for input in inputs {
        target(&std::fs::read(input.expect("an input").path()).expect("a readable input"));
    }
}

/// Mixes the bits of a number: the last step of SplitMix64.
#[must_use]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Random numbers that depend only on the seed (SplitMix64). Documents name seeds of the simulations, so a seed must
/// give the same numbers in all versions.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The number that each step of the generator adds to its state.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Gives the next random number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        mix(self.0)
    }

    /// Gives the lowest byte of the next random number.
    pub fn byte(&mut self) -> u8 {
        self.number() as u8
    }

    /// Gives `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }

    /// Gives a number from 0 to `limit` - 1, and 0 for the limit 0.
    ///
    /// # Panics
    /// `limit` is negative.
    pub fn below<N: TryInto<u64> + TryFrom<u64>>(&mut self, limit: N) -> N {
        let Ok(limit) = limit.try_into() else { panic!("a limit is not negative") };
        N::try_from(self.number() % limit.max(1)).unwrap_or_else(|_| unreachable!("it is below the limit"))
    }

    /// Gives true once in `n` times, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Gives one of these values.
    ///
    /// # Panics
    /// `from` is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_the_numbers_of_splitmix64() {
        let mut random = Random(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
        assert_eq!(random.below(1000u64), 9_817_491_932_198_370_423 % 1000);
    }
}
