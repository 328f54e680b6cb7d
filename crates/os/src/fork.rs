//! Has this process forked since? Answered by one load.
//!
//! A child inherits its parent's mappings but not its identity: it must not use the parent's heap slots or ports.
//! The kernel zeroes a page marked `MADV_WIPEONFORK` in every child, so a word in one tells without a system call.

use rustix::mm::{MapFlags, ProtFlags};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

struct Page(&'static AtomicU32);

static PAGE: OnceLock<Option<Page>> = OnceLock::new();

/// A number that is the same for the whole life of a process and another one in each of its children. Never 0.
///
/// Keep it when something is made that only this process may use; compare before use.
pub fn token() -> u32 {
    match PAGE.get_or_init(make_page) {
        Some(Page(word)) => match word.load(Ordering::Relaxed) {
            0 => renew(word),
            token => token,
        },
        // No such page to be had: the process id, at the price of a system call.
        None => std::process::id(),
    }
}

/// Runs `hook` in every child that this process forks, on the thread that forked; for caches that a child must not use.
/// Children made without the C library's `fork` do not run it, and are told by `token` alone.
pub fn in_child(hook: extern "C" fn()) {
    // SAFETY: the hook is a plain function that stays; registering it touches nothing of the caller's.
    unsafe { libc::pthread_atfork(None, None, Some(hook)) };
}

#[cold]
fn renew(word: &AtomicU32) -> u32 {
    // Only the process id differs for certain between parent and child while both live.
    let own = std::process::id();
    word.store(own, Ordering::Relaxed);
    own
}

fn make_page() -> Option<Page> {
    let length = rustix::param::page_size();
    // SAFETY: a new private mapping at an address the kernel chooses.
    let start = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: the range was mapped just now and belongs to nobody else.
    let advised = unsafe { libc::madvise(start, length, libc::MADV_WIPEONFORK) };
    if advised != 0 {
        return None;
    }
    // SAFETY: page-aligned, readable, writable, zeroed, and never unmapped.
    Some(Page(unsafe { &*start.cast::<AtomicU32>() }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_child_has_another_token() {
        let own = super::token();
        assert_ne!(own, 0);
        assert_eq!(own, super::token());
        // SAFETY: the child only loads a word and leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(super::token() == own);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "the child saw its parent's token");
    }
}
