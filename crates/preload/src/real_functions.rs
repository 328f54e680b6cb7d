//! Finds the C library's real functions, which the shims call. Each function is looked up at its first use.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// `RTLD_NEXT`: the next library in the search order.
const NEXT: *mut c_void = usize::MAX as *mut c_void;
pub(crate) const ENOSYS: c_int = 38;
pub(crate) const ENOENT: c_int = 2;
pub(crate) const EACCES: c_int = 13;
pub(crate) const EROFS: c_int = 30;

/// The address of a real function. It is null before the lookup, and if the C library has no such function.
pub(crate) struct RealFunction(AtomicPtr<c_void>);

impl RealFunction {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Gives the function's address, or null with errno ENOSYS.
    pub(crate) fn find(&self, name: &CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is terminated. Two threads that search at the same time find the same address.
        let found = unsafe { dlsym(NEXT, name.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        if found.is_null() {
            set_errno(ENOSYS);
        }
        found
    }
}

/// Reads this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the address that the C library gives for this thread's errno is valid.
    unsafe { *__errno_location() }
}

pub(crate) fn set_errno(to: c_int) {
    // SAFETY: the address that the C library gives for this thread's errno is valid.
    unsafe { *__errno_location() = to }
}
