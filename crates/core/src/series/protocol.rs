//! Pinning and retiring: how a version stays while an observer looks at it, though neither side waits for the other.
//!
//! ```text
//! observer                                   publisher
//! (1) pin := sequence                        (a) state := retiring
//! (2) full fence                             (b) full fence
//! (3) state = live, of this sequence?        (c) does any pin hold the sequence?
//!     yes: held        no: pin := 0              yes: state := live     no: state := free, and a full fence
//! ```
//!
//! The fences are sequentially consistent, so one of (2), (b) is first. If (2): (c) sees the pin, and the version stays.
//! If (b): (3) sees at least *retiring*, and the observer does not take the version. Both may see the other, then the
//! version stays and the observer asks again. A sequence is never used twice, so a state that was seen live and is seen
//! so again was never anything but live and retiring in between.
//!
//! A publisher that dies between (a) and (c) leaves *retiring* behind. Nothing is recycled then any more, so an
//! observer that knows of the death takes such a version as live. An observer that dies leaves its pin, which the daemon
//! clears. A pin that lies keeps versions, nothing else: the pool's policy says what becomes of those.

use crossdock_layout::series::state::{Phase, State};
use crossdock_layout::series::{AtomicU64, fence};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// What an observer found when it had pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pinned {
    /// It is held: the record and its slots stay as they are until the pin is cleared.
    Held,
    /// The publisher looks at this very moment whether an observer holds it: ask again.
    AskAgain,
    /// The record holds it no more.
    Gone,
}

/// Observer: pins a version. Unless it is held the pin is clear again afterwards.
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

/// Observer: what it read lies behind it.
pub(super) fn unpin(pin: &AtomicU64) {
    pin.store(0, Release);
}

/// Is the version still there for those who pinned it?
pub(super) fn look(state: &AtomicU64, sequence: u64) -> Pinned {
    let state = State(state.load(Acquire));
    match state.phase() {
        Phase::Live if state.sequence() == sequence => Pinned::Held,
        Phase::Retiring if state.sequence() == sequence => Pinned::AskAgain,
        _ => Pinned::Gone,
    }
}

/// Observer: what was read before this call was the version's, if `look` says so after it.
pub(super) fn reads_end() {
    fence(Acquire);
}

/// Publisher: (a). Any number of versions, then [`retire_fence`], then for each a look at all pins and [`settle`].
pub(super) fn mark(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Retiring).0, Relaxed);
}

/// Publisher: (b), and again after the last `settle`, before anything that was freed is written to.
pub(super) fn retire_fence() {
    fence(SeqCst);
}

/// Publisher: the end of (c). `held`: some pin holds it.
pub(super) fn settle(state: &AtomicU64, sequence: u64, held: bool) {
    let phase = if held { Phase::Live } else { Phase::Free };
    state.store(State::new(sequence, phase).0, Release);
}

/// Publisher: begins to write a version into a free record.
pub(super) fn fill(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Filling).0, Relaxed);
    fence(Release);
}

/// Publisher: the record is complete.
pub(super) fn go_live(state: &AtomicU64, sequence: u64) {
    state.store(State::new(sequence, Phase::Live).0, Release);
}
