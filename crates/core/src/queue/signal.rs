//! The words that members sleep on, and why no wake is lost.
//!
//! A sleeping member (1) sets the bit in the word, (2) executes a full fence, (3) looks whether what it waits for is
//! there, and (4) sleeps while the word is what it was after (1). A member that makes something happen (a) makes it
//! visible (a cell's state), (b) executes a full fence, and (c) looks at the bit; if the bit is set, it clears the bit,
//! increments the word and wakes all.
//!
//! Both fences are sequentially consistent, so one of them comes first. If (b) comes first, (3) sees what (a) did, and
//! no member sleeps. If (2) comes first, (c) sees the bit. Then the word changes before the wake: a member that has not
//! reached (4) yet does not sleep there, and a member that sleeps is woken. The system call is made only if the bit was
//! set.
//!
//! The waking member clears the bit, not the sleeping one. So a sleeping member that died or reached its deadline costs
//! one needless wake and leaves nothing behind. If a member dies after it cleared the bit and before it wakes the
//! others, its own death wakes them: all sleep on the liveness table's word as well.

use crossdock_layout::queue::{SIGNAL_STEP, SLEEPER, Signal, fence};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// Steps (b) and (c), after something was made visible. If the result is `true`, the caller must wake all members that
/// sleep on the word.
#[inline]
pub(super) fn call(signal: &Signal) -> bool {
    fence(SeqCst);
    let word = signal.word.load(Relaxed);
    word & SLEEPER != 0 && collect(signal, word)
}

#[cold]
fn collect(signal: &Signal, mut word: u32) -> bool {
    // The loop is bounded, because a lying member could change the word for ever. Each honest failure means that
    // another member cleared the bit, or that one more member came to sleep.
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

/// Steps (1) and (2). The caller then does (3), and sleeps while the word is what this returns.
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
