//! The words to sleep on, and why no wake is lost.
//!
//! A sleeper: (1) sets the bit in the word, (2) full fence, (3) looks whether what it waits for is there, (4) sleeps while
//! the word is what it was after (1). A member that makes something happen: (a) makes it visible (a cell's state), (b) full
//! fence, (c) looks at the bit; if it is set, clears it, counts the word up, wakes all.
//!
//! Both fences are sequentially consistent, so one comes first. If (b) does, (3) sees what (a) did and no member sleeps. If
//! (2) does, (c) sees the bit; then the word changes before the wake, so that a sleeper that has not yet come to (4) does
//! not sleep there, and one that has is woken. The system call is made only when the bit was set.
//!
//! The bit is cleared by the waker, not by the sleeper: a sleeper that died, or ended by its deadline, costs one wake
//! in vain and leaves nothing behind. A member that dies between clearing the bit and waking leaves sleepers to the liveness
//! table's word, which everybody sleeps on as well: its own death wakes them.

use crossdock_layout::queue::{SIGNAL_STEP, SLEEPER, Signal, fence};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// Steps (b) and (c), after something was made visible. `true`: all who sleep on the word are to be woken.
#[inline]
pub(super) fn call(signal: &Signal) -> bool {
    fence(SeqCst);
    let word = signal.word.load(Relaxed);
    word & SLEEPER != 0 && collect(signal, word)
}

#[cold]
fn collect(signal: &Signal, mut word: u32) -> bool {
    // Bounded: a lying member could keep the word changing for ever. Each honest failure means that another member
    // collected the bit, or that one more came to sleep.
    for _ in 0..64 {
        if word & SLEEPER == 0 {
            return false;
        }
        match signal.word.compare_exchange(word, (word & !SLEEPER).wrapping_add(SIGNAL_STEP), AcqRel, Relaxed) {
            Ok(_) => {
                crate::fault_point!("queue.wake.collected");
                return true;
            }
            Err(now) => word = now,
        }
    }
    true
}

/// Steps (1) and (2); the caller then does (3), and sleeps while the word is what this returns.
pub(super) fn announce(signal: &Signal) -> u32 {
    let word = signal.word.fetch_or(SLEEPER, SeqCst) | SLEEPER;
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
        assert!(!call(&signal));
        assert_eq!(signal.word.load(Relaxed), 40);
    }

    #[test]
    fn a_call_takes_the_bit_and_changes_the_word() {
        let signal = Signal { word: AtomicU32::new(u32::MAX - 1) };
        let expected = announce(&signal);
        assert!(call(&signal));
        assert_ne!(signal.word.load(Relaxed), expected);
        assert!(!call(&signal), "the bit is taken once");
    }
}
