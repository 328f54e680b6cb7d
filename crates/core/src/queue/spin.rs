//! How long an end spins before it sleeps.
//!
//! Spinning pays if the peer answers sooner than a sleep and a wake take, and if the peer has a processor of its own.
//! So an end learns how long to spin: a wait that ended while spinning raises the score, and a wait that did not halves
//! it. At a score of zero only every sixteenth wait tries spinning. The time allowed is the cost of a sleep and a wake,
//! and up to four times that after spinning has paid again and again.
//!
//! If there are more tasks than processors, spinning takes the processor from the very member that is waited for. Then
//! it pays to give the processor to others for one turn before sleeping. They run until they have to wait themselves,
//! so that many messages pass in one turn, and no member makes a system call to wake this one. An end learns that, too.
//! A turn halves its score if it brought nothing, or if it took so long that a program without this port must have had
//! it. At zero every 256th wait tries it.

use crossdock_layout::queue::Waiting;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The approximate cost of one sleep and one wake (measured: 4.7 µs each).
const WAKE_PAIR: Duration = Duration::from_micros(10);
const BEST: u32 = 32;
/// The largest number of turns that one wait gives to others.
pub(super) const TURNS: u32 = 8;
/// A shorter turn was not used: no other thread waits for the CPU.
pub(super) const NOBODYS: Duration = Duration::from_nanos(800);
/// If the turns took longer than this together, another program used them.
pub(super) const TOO_LONG: Duration = Duration::from_micros(200);

/// What one end has learned about spinning.
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

    /// How long this wait may spin; `None` as long as the wait lasts.
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

    /// Is a short spin worthwhile, by what this end has learned?
    #[inline]
    pub fn pays(&self) -> bool {
        match self.mode.load(Relaxed) {
            mode if mode == Waiting::Spin as u32 => true,
            mode if mode == Waiting::Block as u32 => false,
            _ => self.score.load(Relaxed) > 0 && crossdock_os::process::processors() > 1,
        }
    }

    /// Does this end spin until its deadline?
    #[inline]
    pub fn spins_for_good(&self) -> bool {
        self.mode.load(Relaxed) == Waiting::Spin as u32
    }

    /// Is it worthwhile to give others a turn before sleeping, by what this end has learned?
    pub fn gives_way(&self) -> bool {
        if cfg!(loom) {
            return false; // a model has no processors to give away
        }
        let wait = self.yields.fetch_add(1, Relaxed);
        self.mode.load(Relaxed) == Waiting::Adaptive as u32 && (self.turns.load(Relaxed) > 0 || wait % 256 == 0)
    }

    /// Records whether giving others a turn paid.
    pub fn learn_way(&self, paid: bool) {
        let score = self.turns.load(Relaxed);
        self.turns.store(if paid { (score + 1).min(BEST) } else { score / 2 }, Relaxed);
    }

    /// Records whether a spin paid.
    pub fn learn(&self, paid: bool) {
        let score = self.score.load(Relaxed);
        self.score.store(if paid { (score + 1).min(BEST) } else { score / 2 }, Relaxed);
    }
}

/// Spins while `going_on` is true and the time is not up; `false` if the time was up. Reading the clock costs as much
/// as dozens of loads, so it is read only now and then. `clock` keeps the last reading.
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
