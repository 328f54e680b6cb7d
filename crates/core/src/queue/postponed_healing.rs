//! Lets a caller decide when an end heals regions.
//!
//! An end heals the session's regions before its program gets what a dead member left. If a stopped member holds a
//! region's lock, this waits for some seconds, also in a call that does not wait for the port. A caller that must not
//! wait during the call, because it holds a lock that other threads need, postpones the healing until it has released
//! its lock.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Healing {
    AtOnce,
    Postponed,
    /// The healing was postponed, and an end has learned of a death since then.
    Due,
}

thread_local! {
    static HEALING: Cell<Healing> = const { Cell::new(Healing::AtOnce) };
}

/// Runs `call`, during which no end heals regions in this thread. The second result is true if an end has to heal: the
/// caller calls [`End::heal`](super::End::heal) before it gives the result of `call` to the program.
pub fn postpone_healing<T>(call: impl FnOnce() -> T) -> (T, bool) {
    /// Ends the postponement also if `call` panics.
    struct Postponement;
    impl Drop for Postponement {
        fn drop(&mut self) {
            HEALING.set(Healing::AtOnce);
        }
    }
    HEALING.set(Healing::Postponed);
    let _postponement = Postponement;
    let done = call();
    (done, HEALING.get() == Healing::Due)
}

/// Tells whether the healing is postponed in this thread. If so, records that it is due.
pub(super) fn is_postponed() -> bool {
    let postponed = HEALING.get() != Healing::AtOnce;
    if postponed {
        HEALING.set(Healing::Due);
    }
    postponed
}
