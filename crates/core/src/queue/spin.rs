//! How long an end spins before it sleeps.
//!
//! Spinning pays if the peer answers sooner than a sleep and a wake take, and if the peer has a CPU of its own. So an
//! end learns how long to spin, and keeps a score for it. If the awaited change comes during the spin, the score rises;
//! otherwise the score is halved. At a score of zero only every sixteenth wait tries spinning. A spin may last as long
//! as a sleep and a wake take, and up to four times as long after spinning has paid many times.
//!
//! If there are more tasks than CPUs, a spinning end may use the CPU that its peer needs. In this case it pays to yield
//! the CPU to other threads before sleeping. The other threads run until they have to wait themselves. In this way many
//! messages pass between two context switches, and no member makes a system call to wake this end. A second score says
//! whether yielding pays. This score is halved if the awaited change did not come during the yields, or if the yields
//! took so long that a program that does not use this port must have had the CPU. At a score of zero only every 256th
//! wait yields.

use crossdock_layout::queue::Waiting;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The approximate time of one sleep and one wake (measured: 4.7 µs each).
const WAKE_PAIR: Duration = Duration::from_micros(10);
const BEST: u32 = 32;
/// The largest number of times that one wait yields the CPU.
pub(super) const TURNS: u32 = 8;
/// If a yield took less time than this, no other thread wanted the CPU.
pub(super) const IDLE_YIELD: Duration = Duration::from_nanos(800);
/// If the yields of one wait took more time than this, the CPU went to a program that has nothing to do with this port.
pub(super) const TOO_LONG: Duration = Duration::from_micros(200);

/// What one end has learned about whether spinning or yielding the CPU pays.
#[derive(Debug)]
pub(super) struct Spinner {
    score: AtomicU32,
    waits: AtomicU32,
    mode: AtomicU32,
    turns: AtomicU32,
    yields: AtomicU32,
}

impl Spinner {
    pub fn new() -> Self {
        Self {
            score: AtomicU32::new(4),
            waits: AtomicU32::new(0),
            mode: AtomicU32::new(Waiting::Adaptive as u32),
            turns: AtomicU32::new(4),
            yields: AtomicU32::new(0),
        }
    }

    pub fn set(&self, waiting: Waiting) {
        self.mode.store(waiting as u32, Relaxed);
    }

    /// Gives the time for which this wait may spin; `None` if it may spin until its deadline.
    pub fn allowance(&self, processors: usize) -> Option<Duration> {
        let mode = self.mode.load(Relaxed);
        if mode == Waiting::Spin as u32 {
            return None;
        }
        if mode == Waiting::Block as u32 || processors < 2 {
            return Some(Duration::ZERO);
        }
        let wait = self.waits.fetch_add(1, Relaxed);
        Some(match self.score.load(Relaxed) {
            0 if wait % 16 != 0 => Duration::ZERO,
            0..16 => WAKE_PAIR,
            16..24 => WAKE_PAIR * 2,
            _ => WAKE_PAIR * 4,
        })
    }

    /// Tells whether this end has learned that it pays to spin for a short time before it sleeps.
    #[inline]
    pub fn pays(&self) -> bool {
        match self.mode.load(Relaxed) {
            mode if mode == Waiting::Spin as u32 => true,
            mode if mode == Waiting::Block as u32 => false,
            _ => self.score.load(Relaxed) > 0 && crossdock_os::process::processors() > 1,
        }
    }

    /// Tells whether this end is set to spin until its deadline.
    #[inline]
    pub fn spins_for_good(&self) -> bool {
        self.mode.load(Relaxed) == Waiting::Spin as u32
    }

    /// Tells whether this end has learned that it pays to yield the CPU before it sleeps.
    pub fn gives_way(&self) -> bool {
        if cfg!(loom) {
            return false; // a model has no CPUs, so yielding is pointless
        }
        let wait = self.yields.fetch_add(1, Relaxed);
        self.mode.load(Relaxed) == Waiting::Adaptive as u32 && (self.turns.load(Relaxed) > 0 || wait % 256 == 0)
    }

    /// Records whether yielding the CPU paid, that is, whether the awaited change came soon, while this end yielded.
    pub fn learn_way(&self, paid: bool) {
        let score = self.turns.load(Relaxed);
        self.turns.store(if paid { (score + 1).min(BEST) } else { score / 2 }, Relaxed);
    }

    /// Records whether the last spin paid, that is, whether the awaited change came during the spin.
    pub fn learn(&self, paid: bool) {
        let score = self.score.load(Relaxed);
        self.score.store(if paid { (score + 1).min(BEST) } else { score / 2 }, Relaxed);
    }
}

/// Spins as long as `going_on` returns `true`, but at most until the time `until`. Returns `false` if that time was
/// reached. Reading the clock takes the time of dozens of loads, so the clock is read only now and then. `clock` keeps
/// the last reading.
pub(super) fn spin_while(until: Instant, clock: &mut Instant, mut going_on: impl FnMut() -> bool) -> bool {
    loop {
        for _ in 0..32 {
            if !going_on() {
                return true;
            }
            std::hint::spin_loop();
        }
        *clock = Instant::now();
        if *clock >= until {
            return false;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_processor_never_spins() {
        assert_eq!(Spinner::new().allowance(1), Some(Duration::ZERO));
    }

    #[test]
    fn spinning_that_never_pays_is_given_up_but_for_a_probe() {
        let spinner = Spinner::new();
        for _ in 0..8 {
            spinner.allowance(2);
            spinner.learn(false);
        }
        let spun = (0..160).filter(|_| spinner.allowance(2) != Some(Duration::ZERO)).count();
        assert_eq!(spun, 10);
    }

    #[test]
    fn giving_way_that_never_pays_is_given_up_but_for_a_probe() {
        let spinner = Spinner::new();
        for _ in 0..8 {
            spinner.gives_way();
            spinner.learn_way(false);
        }
        assert_eq!((0..2560).filter(|_| spinner.gives_way()).count(), 10);
        spinner.learn_way(true);
        assert!(spinner.gives_way(), "once it has paid it is done again");
    }

    #[test]
    fn only_an_adaptive_end_gives_way() {
        let spinner = Spinner::new();
        assert!(spinner.gives_way());
        for mode in [Waiting::Spin, Waiting::Block] {
            spinner.set(mode);
            assert!(!(0..512).any(|_| spinner.gives_way()));
        }
    }

    #[test]
    fn spinning_beyond_a_wake_pair_must_have_paid() {
        let spinner = Spinner::new();
        assert_eq!(spinner.allowance(2), Some(WAKE_PAIR));
        for _ in 0..64 {
            spinner.learn(true);
        }
        assert_eq!(spinner.allowance(2), Some(WAKE_PAIR * 4));
        spinner.learn(false);
        assert_eq!(spinner.allowance(2), Some(WAKE_PAIR * 2));
    }

    #[test]
    fn a_spin_ends_at_its_time() {
        let start = Instant::now();
        let (until, mut clock) = (start + Duration::from_millis(2), start);
        assert!(!spin_while(until, &mut clock, || true));
        assert!(start.elapsed() >= Duration::from_millis(2) && clock >= until);
        assert!(spin_while(until, &mut clock, || false));
    }
}
