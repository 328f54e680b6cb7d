//! Pinning and retiring: how a version stays while an observer uses it, although neither side waits for the other.
//!
//! ```text
//! observer                                   publisher
//! (1) pin := sequence                        (a) state := retiring
//! (2) full fence                             (b) full fence
//! (3) state = live, of this sequence?        (c) does any pin hold the sequence?
//!     yes: held        no: pin := 0              yes: state := live     no: state := free, and a full fence
//! ```
//!
//! The fences are sequentially consistent, so one of (2) and (b) comes first. If (2) does, (c) sees the pin, and the
//! version stays. If (b) does, (3) sees at least *retiring*, and the observer does not take the version. If each sees
//! the other, the version stays and the observer asks again. No sequence is used twice. So if a state was live and is
//! live again with the same sequence, it was only live or retiring in between.
//!
//! A publisher that dies between (a) and (c) leaves *retiring* behind. Nothing is recycled any more then, so an
//! observer that knows of the death takes such a version as live. An observer that dies leaves its pin, which the
//! daemon clears. A false pin keeps versions and does no other harm: the pool's policy says what happens to those
//! versions.

use crossdock_layout::series::state::{Phase, State};
use crossdock_layout::series::{AtomicU64, fence};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// What an observer found after it pinned a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pinned {
    /// The version is held: the record and its slots stay until the pin is cleared.
    Held,
    /// The publisher examines at this very moment whether an observer holds the version: ask again.
    AskAgain,
    /// The record no longer holds the version.
    Gone,
}

/// For an observer: pins a version. Unless the version is held, the pin is clear again afterwards.
pub(super) fn pin(pin: &AtomicU64, state: &AtomicU64, sequence: u64, publisher_is_dead: bool) -> Pinned {
    pin.store(sequence, Relaxed);
    crate::fault_point!("series.pin.stored");
    fence(SeqCst);
    let found = look(state, sequence);
    if found == Pinned::Held || (found == Pinned::AskAgain && publisher_is_dead) {
        return Pinned::Held;
    }
    unpin(pin);
    found
}

/// For an observer: everything that it read comes before the store.
pub(super) fn unpin(pin: &AtomicU64) {
    pin.store(0, Release);
}

/// Does the version still exist for the observers that pinned it?
pub(super) fn look(state: &AtomicU64, sequence: u64) -> Pinned {
    let state = State(state.load(Acquire));
    match state.phase() {
        Phase::Live if state.sequence() == sequence => Pinned::Held,
        Phase::Retiring if state.sequence() == sequence => Pinned::AskAgain,
        _ => Pinned::Gone,
    }
}

/// For an observer: what was read before this call belongs to the version, if `look` says after it that the version
/// still exists.
pub(super) fn reads_end() {
    fence(Acquire);
}

/// For the publisher: step (a), for any number of versions. [`retire_fence`] follows, then a look at all pins and
/// [`settle`] for each version.
pub(super) fn mark(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Retiring).0, Relaxed);
}

/// For the publisher: step (b). It comes once more after the last `settle`, before anything that was freed is written
/// to.
pub(super) fn retire_fence() {
    fence(SeqCst);
}

/// For the publisher: the end of step (c). `held` says whether some pin holds the version.
pub(super) fn settle(state: &AtomicU64, sequence: u64, held: bool) {
    let phase = if held { Phase::Live } else { Phase::Free };
    state.store(State::new(sequence, phase).0, Release);
}

/// For the publisher: begins to write a version into a free record.
pub(super) fn fill(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Filling).0, Relaxed);
    fence(Release);
}

/// For the publisher: the record is complete.
pub(super) fn go_live(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Live).0, Release);
}
