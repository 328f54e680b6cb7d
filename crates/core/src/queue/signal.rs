//! The words on which members sleep, and the reason why no wake is lost.
//!
//! A member that wants to sleep does four steps. (1) It sets a bit in the word. (2) It executes a full fence. (3) It
//! looks whether the thing that it waits for has come. (4) It sleeps as long as the word has the value of step (1).
//!
//! A member that makes a change for which others may wait does three steps. (a) It makes its change visible (a cell's
//! state). (b) It executes a full fence. (c) It looks at the bit. If the bit is set, it clears the bit, increments
//! the word and wakes all sleeping members.
//!
//! Both fences are sequentially consistent, so either (b) or (2) comes first. If (b) comes first, step (3) sees the
//! change of step (a), and the member does not sleep. If (2) comes first, step (c) sees the bit. In this case the
//! word changes before the wake. So a member that has not reached step (4) yet does not sleep, and a sleeping member
//! is woken. The system call is made only if the bit was set.
//!
//! The bit is cleared by the member that wakes, not by the one that sleeps. So if a sleeping member has died or has
//! reached its deadline, it leaves nothing behind but one needless wake. If a member dies after it cleared the bit, but
//! before it wakes the others, its own death wakes them, because all sleep on the liveness table's word as well.

use crossdock_layout::queue::{SIGNAL_STEP, SLEEPER, Signal, fence};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// Does steps (b) and (c) of this file's first comment: after a visible change, checks whether a member sleeps on this
/// signal's word. If the result is `true`, the caller must wake all members that sleep on this word.
#[inline]
pub(super) fn call(signal: &Signal) -> bool {
    fence(SeqCst);
    let word = signal.word.load(Relaxed);
    word & SLEEPER != 0 && collect(signal, word)
}

#[cold]
fn collect(signal: &Signal, mut word: u32) -> bool {
    // The loop is limited, because a faulty member could change the word again and again. If no member is faulty, a
    // failed exchange means that another member cleared the bit, or that one more member is going to sleep.
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

/// Does steps (1) and (2) of this file's first comment: announces that this member wants to sleep. Gives the word. The
/// caller then does step (3), and sleeps as long as the word has this value.
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
