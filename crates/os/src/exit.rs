//! The end of this process: at once, or normally with a hook.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The hook, stored as the address of a `fn()`; null until it is set. This is an atomic and not a lock, because a
/// forked child could find a lock held.
static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(hook: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Ends this process at once with this exit code. Neither the hook nor any other exit handler runs, so it does not
/// matter which locks the other threads hold.
pub fn now(code: i32) -> ! {
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(code) }
}

/// Calls `hook` when this process ends by `exit(0)`, or when its main function returns 0. The hook is not called if the
/// process ends with another status, by `_exit`, by `exec` or by a signal. A forked child that ends by `exit(0)` calls
/// the hook as well. Only the first call of this function sets a hook; later calls do nothing.
///
/// With a C library without `on_exit` (musl), the hook is also called if the process ends by `exit` with another
/// status, because such a library does not tell the status.
pub fn at_normal_exit(hook: fn()) {
    let hook = hook as *mut ();
    if HOOK.compare_exchange(ptr::null_mut(), hook, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: the function stays for the life of the process, because the library that contains it is never unloaded.
    unsafe {
        on_exit(ends, std::ptr::null_mut());
    }
    #[cfg(not(target_env = "gnu"))]
    // SAFETY: the function stays for the life of the process, because the library is never unloaded.
    unsafe {
        libc::atexit(ends_somehow);
    }
}

#[cfg(not(target_env = "gnu"))]
extern "C" fn ends_somehow() {
    ends(0, std::ptr::null_mut());
}

extern "C" fn ends(status: c_int, _: *mut c_void) {
    let hook = HOOK.load(Ordering::Acquire);
    if status == 0 && !hook.is_null() {
        // SAFETY: the address in `HOOK` is that of a `fn()`, which `at_normal_exit` stored there.
        let hook = unsafe { std::mem::transmute::<*mut (), fn()>(hook) };
        // A panic must not unwind through the C library. The panic is ignored, because the process is about to end
        // anyway.
        let _ = std::panic::catch_unwind(hook);
    }
}
