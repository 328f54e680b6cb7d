//! Pinning and retiring: this protocol keeps a version as long as an observer uses it, although neither side waits for
//! the other.
//!
//! ```text
//! observer                                   publisher
//! (1) pin := sequence                        (a) state := retiring
//! (2) full fence                             (b) full fence
//! (3) state = live, of this sequence?        (c) does any pin hold the sequence?
//!     yes: held        no: pin := 0              yes: state := live     no: state := free, and a full fence
//! ```
//!
//! The observer's fence (2) and the publisher's fence (b) are sequentially consistent, so one of them comes before the
//! other. If the observer's fence comes first, the publisher sees the pin when it looks at the pins in step (c), and
//! the version stays. If the publisher's fence comes first, the observer sees at least *retiring* when it reads the
//! state in step (3), and does not take the version. If the publisher sees the pin and the observer sees *retiring*,
//! the version stays, and the observer tries again.
//!
//! No sequence number is used twice. So if an observer twice finds a state live with the same sequence number, the
//! state was always live or retiring between the two looks.
//!
//! If a publisher dies after it marked a version as retiring (a) and before it decided about the version (c), the state
//! stays *retiring*. A dead publisher recycles nothing, so an observer that knows of the death treats such a version as
//! live. If an observer dies, its pin stays until the daemon clears it. A wrong number in a pin can only keep a version
//! in the pool; the pool's policy says what happens to such a version when the pool is full.
//!
//! A second protocol tells the publisher whether it has to wake an observer. A wake is a system call, and most versions
//! come when no observer sleeps.
//!
//! ```text
//! observer                                      publisher
//! (1) sleeps_at := the value of `published`     (a) `published` := the next value
//! (2) full fence                                (b) full fence
//! (3) sleep, if `published` has this value      (c) does a `sleeps_at` hold the previous value? yes: wake all
//! ```
//!
//! If the observer's fence comes first, the publisher sees `sleeps_at` in step (c) and wakes the observer. If the
//! publisher's fence comes first, the kernel finds the next value in step (3), and the observer does not sleep. The
//! observer does not clear `sleeps_at` after the sleep. This costs no wake later, because the previous value of
//! `published` is then another one. (After 2^32 versions it is the same again, and one wake is made in vain.) The
//! threads of one observer store `sleeps_at` one after the other. Each of them stores the value that `published` has at
//! that time, so no thread overwrites the value with an older one. Another process of the same task can write a wrong
//! value to the slot. Then a thread may miss a wake, and looks again after 50 ms.

use crossdock_layout::series::state::{Phase, State};
use crossdock_layout::series::{AtomicU32, AtomicU64, fence};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The result of an observer's attempt to pin a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PinResult {
    /// The version is held: the record and its slots stay until the pin is cleared.
    Held,
    /// The publisher is just finding out whether any observer holds the version, so this observer has to try again.
    AskAgain,
    /// The record does not hold this version any more.
    Gone,
}

/// Pins a version for an observer. If the result is not `Held`, this function has cleared the pin.
pub(super) fn pin(pin: &AtomicU64, state: &AtomicU64, sequence: u64, publisher_is_dead: bool) -> PinResult {
    pin.store(sequence, Relaxed);
    crate::fault_point!("series.pin.stored");
    fence(SeqCst);
    let found = look(state, sequence);
    if found == PinResult::Held || (found == PinResult::AskAgain && publisher_is_dead) {
        return PinResult::Held;
    }
    unpin(pin);
    found
}

/// Clears an observer's pin. The observer's reads of the version come before this store.
pub(super) fn unpin(pin: &AtomicU64) {
    pin.store(0, Release);
}

/// Reads a version's state word, and tells whether observers that have pinned the version with this number may use it.
fn look(state: &AtomicU64, sequence: u64) -> PinResult {
    let state = State(state.load(Acquire));
    match state.phase() {
        Phase::Live if state.sequence() == sequence => PinResult::Held,
        Phase::Retiring if state.sequence() == sequence => PinResult::AskAgain,
        _ => PinResult::Gone,
    }
}

/// An observer calls this function after it has read a version. Tells whether the version still exists. If it does, all
/// that the observer has read before this call belongs to the version. The fence keeps these reads before the load of
/// the state word.
pub(super) fn exists_after_reads(state: &AtomicU64, sequence: u64) -> bool {
    fence(Acquire);
    look(state, sequence) != PinResult::Gone
}

/// A thread of an observer calls this function before it sleeps until `published` changes from `expected`: the
/// observer's steps (1) and (2) of the second protocol in this file's first comment. Only one thread of the observer at
/// a time may be in this function. Returns `false` if `published` has changed already; the thread must not sleep then.
pub(super) fn note_sleep(published: &AtomicU32, sleeps_at: &AtomicU32, expected: u32) -> bool {
    if published.load(Relaxed) != expected {
        return false;
    }
    sleeps_at.store(expected, Relaxed);
    crate::fault_point!("series.sleep.noted");
    fence(SeqCst);
    true
}

/// Changes the word `published`, and gives its previous value: the publisher's steps (a) and (b) of the second protocol
/// in this file's first comment.
pub(super) fn announce(published: &AtomicU32, value: u32) -> u32 {
    let before = published.load(Relaxed);
    published.store(value, Release);
    fence(SeqCst);
    before
}

/// Tells whether a thread of the observer with this word may sleep until `published` changes from `value`: the
/// publisher's step (c) of the second protocol in this file's first comment.
pub(super) fn may_sleep_at(sleeps_at: &AtomicU32, value: u32) -> bool {
    sleeps_at.load(Relaxed) == value
}

/// Marks one version as *retiring*: the publisher's step (a) in this file's first comment. After the publisher has
/// marked all versions that it wants to retire, it calls [`retire_fence`], looks at all pins, and calls [`settle`] for
/// each version.
pub(super) fn mark(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Retiring).0, Relaxed);
}

/// Executes the full fence: the publisher's step (b) in this file's first comment. The publisher executes this fence a
/// second time after the last `settle`, before it overwrites the freed records and slots.
pub(super) fn retire_fence() {
    fence(SeqCst);
}

/// Ends the retiring of one version: the publisher's step (c) in this file's first comment. `held` says whether a pin
/// holds the version.
pub(super) fn settle(state: &AtomicU64, sequence: u64, held: bool) {
    let phase = if held { Phase::Live } else { Phase::Free };
    state.store(State::new(sequence, phase).0, Release);
}

/// Marks a free record as being filled with a version. The publisher writes the record after that.
pub(super) fn fill(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Filling).0, Relaxed);
    fence(Release);
}

/// Marks a record as live. The publisher has written all of it.
pub(super) fn go_live(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Live).0, Release);
}
