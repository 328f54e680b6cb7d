//! Lets a language binding end a call that waits for the daemon, for example because the user pressed Ctrl-C.

use std::cell::Cell;

thread_local! {
    static CHECK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// When this value is dropped, even after a panic, the thread's former check is set again.
struct Restore(Option<fn() -> bool>);

impl Drop for Restore {
    fn drop(&mut self) {
        CHECK.set(self.0);
    }
}

/// Runs `call`. While `call` waits for an answer of the daemon, the library calls `check` at least about every 100 ms,
/// and holds no lock meanwhile. If `check` returns `true`, the waiting request and all later requests of `call` fail
/// with `TIMED_OUT`. If the answer to the waiting request comes later, the session tells the daemon to close what the
/// answer opened.
pub fn interruptible<T>(check: fn() -> bool, call: impl FnOnce() -> T) -> T {
    let _restore = Restore(CHECK.replace(Some(check)));
    call()
}

/// Tells whether a check is set in this thread.
pub(crate) fn is_checked() -> bool {
    CHECK.get().is_some()
}

/// Tells whether the call that this thread is in must end.
pub(crate) fn is_interrupted() -> bool {
    CHECK.get().is_some_and(|check| check())
}
