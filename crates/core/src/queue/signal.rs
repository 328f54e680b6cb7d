//! The words to sleep on, and why no wake is lost.
//!
//! A sleeper: (1) sets its bit in the word, (2) full fence, (3) looks whether what it waits for is there, (4) sleeps while
//! the word is what it was after (1). Whoever makes something happen: (a) makes it visible (a cell's state), (b) full
//! fence, (c) looks at the word's bits; if any is set, clears them, counts the word up, wakes.
//!
//! Both fences are sequentially consistent, so one comes first. If (b) does, (3) sees what (a) did and nobody sleeps. If
//! (2) does, (c) sees the bit; then the word changes before the wake, so that a sleeper that has not yet come to (4) does
//! not sleep there, and one that has is woken. The system call is made only when a bit was set.
//!
//! Bits are cleared by whoever wakes, not by the sleeper: a sleeper that died, or ended by its deadline, costs one wake
//! in vain and leaves nothing behind. Whoever dies between clearing the bits and waking leaves sleepers to the liveness
//! table's word, which everybody sleeps on as well: its own death wakes them.

use crossdock_layout::queue::{ARMED, SIGNAL_STEP, SLEEPER, Signal, fence};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// Bits of a word that somebody left: who is to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called(u32);

impl Called {
    /// Does somebody sleep on the word?
    pub fn sleeper(self) -> bool {
        self.0 & SLEEPER != 0
    }

    /// Does some end want its eventfd written?
    pub fn armed(self) -> bool {
        self.0 & ARMED != 0
    }
}

/// Steps (b) and (c), after something was made visible. `None`: nobody is to be woken.
#[inline]
pub fn call(signal: &Signal) -> Option<Called> {
    fence(SeqCst);
    let word = signal.word.load(Relaxed);
    if word & (SLEEPER | ARMED) == 0 { None } else { collect(signal, word) }
}

#[cold]
fn collect(signal: &Signal, mut word: u32) -> Option<Called> {
    // Bounded: a lying member could keep the word changing for ever. Each honest failure means that somebody else
    // collected the bits (then there are none), or a sleeper came.
    for _ in 0..64 {
        let bits = word & (SLEEPER | ARMED);
        if bits == 0 {
            return None;
        }
        match signal.word.compare_exchange(word, (word & !bits).wrapping_add(SIGNAL_STEP), AcqRel, Relaxed) {
            Ok(_) => {
                crate::fault_point!("queue.wake.collected");
                return Some(Called(bits));
            }
            Err(now) => word = now,
        }
    }
    Some(Called(SLEEPER))
}

/// Steps (1) and (2); the caller then does (3), and sleeps while the word is what this returns.
pub fn announce(signal: &Signal, bit: u32) -> u32 {
    let word = signal.word.fetch_or(bit, SeqCst) | bit;
    fence(SeqCst);
    word
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crossdock_layout::queue::AtomicU32;

    #[test]
    fn a_call_without_sleepers_changes_nothing() {
        let signal = Signal { word: AtomicU32::new(40) };
        assert_eq!(call(&signal), None);
        assert_eq!(signal.word.load(Relaxed), 40);
    }

    #[test]
    fn a_call_takes_the_bits_and_changes_the_word() {
        let signal = Signal { word: AtomicU32::new(u32::MAX - 3) };
        let expected = announce(&signal, SLEEPER);
        announce(&signal, ARMED);
        let called = call(&signal).unwrap();
        assert!(called.sleeper() && called.armed());
        assert_ne!(signal.word.load(Relaxed), expected);
        assert_eq!(call(&signal), None, "the bits are taken once");
    }
}
