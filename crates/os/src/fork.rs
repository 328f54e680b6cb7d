//! Tells whether this process is a forked child of the process that made a value. The answer costs one load from
//! memory.
//!
//! A child inherits its parent's mappings, but is another process: it must not use the parent's heap slots or ports.
//! The kernel zeroes a page marked `MADV_WIPEONFORK` in every child, so a word in that page gives the answer without a
//! system call.

use crate::{child, clock, sys};
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The address of the page that holds this process's token; null until the page is first needed. This is an atomic and
/// not a lock, because a thread could fork while another thread makes the page, and no thread of the child would
/// release an inherited lock.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// If the kernel refuses to make the page, [`PAGE`] holds the address of this static instead. The static's value is
/// never used.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// A number that is the same during the whole life of a process and is different in each of its descendants. It is
/// never 0.
///
/// A caller stores the number in a value that only this process may use. Before each use of the value, it compares the
/// stored number with the result of this function.
pub fn token() -> u64 {
    let page = PAGE.load(Ordering::Acquire);
    let page = if page.is_null() { first_page() } else { page };
    if ptr::eq(page, &raw const NO_PAGE) {
        // The kernel refused to make the page, so this function returns the process id, which costs a system call. A
        // child in a pid namespace of its own may have the same process id, and is then not told apart from its
        // parent.
        return std::process::id().into();
    }
    // SAFETY: `page` is not null, so `first_page` has made it: aligned, zeroed by the kernel, and never unmapped.
    let word = unsafe { &*page };
    match word.load(Ordering::Relaxed) {
        0 => renew(word),
        token => token,
    }
}

/// Identifies the process that made a value. Only that process may use the value.
///
/// `word` is the token's address. With this address, a check reads only the page that holds the token. Without it, the
/// check would also read the static variable `PAGE`, which lies in another page. With cold caches the second page would
/// cost a large part of a call's time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessToken {
    word: &'static AtomicU64,
    token: u64,
}

impl ProcessToken {
    /// Gives the token of this process.
    #[must_use]
    pub fn current() -> Self {
        let token = token();
        // SAFETY: `token` has set `PAGE`, so it is not null. It points to a page that is never unmapped, or to the
        // static `NO_PAGE`.
        Self { word: unsafe { &*PAGE.load(Ordering::Acquire) }, token }
    }

    /// Tells whether the calling process is the process that made the value, and not a child of that process.
    #[inline]
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.word.load(Ordering::Relaxed) == self.token || self.is_current_without_page()
    }

    #[cold]
    fn is_current_without_page(&self) -> bool {
        ptr::eq(self.word, &raw const NO_PAGE) && token() == self.token
    }
}

/// A value that each process makes for itself. A child does not see its parent's value, whose locks may be held by
/// threads that the child does not have. The value is never freed.
#[derive(Debug)]
pub struct PerProcess<T: 'static>(AtomicPtr<(u64, T)>);

impl<T: Send + Sync> PerProcess<T> {
    /// Makes a `PerProcess` that holds no value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// This process's value; `None` if it has not been made yet.
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or leads to a value that `get_or_make` leaked. Such a value is never freed or
        // changed.
        let found: Option<&'static (u64, T)> = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        found.filter(|(process, _)| *process == token()).map(|(_, value)| value)
    }

    /// This process's value. If this process has no value yet, `make` makes it. If two threads make the value at the
    /// same time, one of their two values is dropped.
    pub fn get_or_make(&self, make: impl FnOnce() -> Option<T>) -> Option<&'static T> {
        self.get_or_inherit(|_| make())
    }

    /// Works like [`PerProcess::get_or_make`], for a child that takes something over from its parent. `make` gets the
    /// parent's value as it was at the fork. If the value has a lock, a thread of the parent may have held that lock at
    /// the fork, and no thread of the child releases it. So `make` may try the lock but must not wait for it.
    pub fn get_or_inherit(&self, make: impl FnOnce(Option<&'static T>) -> Option<T>) -> Option<&'static T> {
        let before = self.0.load(Ordering::Acquire);
        if let Some(found) = self.get() {
            return Some(found);
        }
        // SAFETY: the pointer is null, or leads to a value that an earlier call leaked, in this process or in a parent.
        // Such a value is never freed or changed.
        let parents = unsafe { before.as_ref() }.map(|(_, value)| value);
        let fresh = Box::into_raw(Box::new((token(), make(parents)?)));
        if self.0.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: this function has made the value just now, and no other thread has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.get()
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs `hook` in every forked child of this process, on the thread that forked. Such hooks clear caches that a child
/// must not use. A child that was made without the C library's `fork` does not run the hook; in such a child only
/// [`token`] changes.
pub fn in_child(hook: extern "C" fn()) {
    // SAFETY: the hook is a plain function that exists as long as the process; registering it touches no memory of the
    // caller.
    unsafe { libc::pthread_atfork(None, None, Some(hook)) };
}

/// Makes this process's token, once for all threads. If another thread made it first, gives that thread's token.
#[cold]
fn renew(word: &AtomicU64) -> u64 {
    // The process id cannot be the token: the first process of a pid namespace and its child, if the child is the first
    // process of another pid namespace, both have the process id 1.
    let random = child::random().map_or_else(|_| clock::now_ns(), u64::from_ne_bytes);
    let own = random.max(1);
    word.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|others| others, |_| own)
}

/// Makes the page that holds this process's token, once for all threads. If another thread made it first, gives that
/// thread's page.
#[cold]
fn first_page() -> *const AtomicU64 {
    let (none, length) = ((&raw const NO_PAGE).cast_mut(), rustix::param::page_size());
    let made = make_page(length).map_or(none, |start| start.cast());
    match PAGE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(others) => {
            if made != none {
                // SAFETY: this function has made the page just now, and no other thread knows its address.
                let _ = unsafe { sys::mm::munmap_whole(made.cast(), length) };
            }
            others
        }
    }
}

fn make_page(length: usize) -> Option<*mut std::ffi::c_void> {
    // SAFETY: the call makes a new private mapping at an address that the kernel chooses.
    let start = unsafe {
        sys::mm::mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: the range was mapped just now and has no other owner.
    if sys::raw("madvise", || unsafe { libc::madvise(start, length, libc::MADV_WIPEONFORK) }) == 0 {
        return Some(start);
    }
    // SAFETY: the range was mapped just now and has no other owner.
    let _ = unsafe { sys::mm::munmap_whole(start, length) };
    None
}

#[cfg(test)]
mod tests {
    use super::{ProcessToken, token};

    #[test]
    fn threads_that_ask_first_at_once_get_one_token() {
        let tokens: Vec<_> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(token)).collect();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|one| *one == token()), "{tokens:?}");
    }

    /// Runs `body` in a forked child. Gives the child's exit code.
    fn in_fork(body: impl FnOnce() -> i32) -> i32 {
        let child = crate::child::fork_beside_threads(body).unwrap();
        match crate::child::ended(child, true).unwrap() {
            Some(crate::child::ExitStatus::Code(code)) => code,
            other => panic!("the child ended with {other:?}"),
        }
    }

    #[test]
    fn a_child_has_another_token() {
        let (own, made) = (token(), ProcessToken::current());
        assert_ne!(own, 0);
        assert_eq!(own, token());
        assert!(made.is_current());
        let code = in_fork(|| {
            let early = made.is_current();
            i32::from(early || token() == own || made.is_current())
        });
        assert_eq!(code, 0, "the child saw its parent's token");
    }

    #[test]
    fn a_child_with_its_parents_process_id_has_another_token() {
        const NO_NAMESPACES: i32 = 77;
        let inner = |of_parent: u32, own: u64, made: ProcessToken| {
            i32::from(std::process::id() != of_parent || made.is_current() || token() == own || made.is_current())
        };
        // SAFETY: the call touches no memory. It only moves this process and its next children into new namespaces.
        let enter = |flags| unsafe { libc::unshare(flags) } == 0;
        let code = in_fork(|| {
            // The first child is in a user namespace of its own, so no rights are needed.
            if !enter(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) {
                return NO_NAMESPACES;
            }
            in_fork(|| {
                let (pid, own, made) = (std::process::id(), token(), ProcessToken::current());
                if enter(libc::CLONE_NEWPID) { in_fork(|| inner(pid, own, made)) } else { NO_NAMESPACES }
            })
        });
        if code == NO_NAMESPACES {
            return crate::testing::skip("pid-namespaces");
        }
        assert_eq!(code, 0, "the child saw its parent's token");
    }
}
