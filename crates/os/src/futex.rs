//! Lets threads wait for changes of words in shared memory.
//!
//! The words lie in segments that several processes map, so these futexes are not private ones. Waits and wakes also
//! work through a read-only mapping. A wait can end although the word did not change, so the caller must read the word
//! again after each wait.

use crate::deadline::Deadline;
use crate::error::OsError;
use crate::sys;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The caller must look at the word again. A wake or a signal came, or the word had changed before the sleep, or
    /// the kernel ended the wait without a reason.
    LookAgain,
    /// The deadline passed.
    TimedOut,
}

/// The longest single sleep of a wait on two words, if the kernel has no `futex_waitv` or a filter forbids it.
pub const SLICE: Duration = Duration::from_millis(20);

/// Sleeps while `word` holds `expected`, until a wake comes or the deadline passes.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Woken {
    let left = deadline.left();
    if left.is_zero() {
        return Woken::TimedOut;
    }
    let timeout = timespec(left);
    // SAFETY: `word` is a live, aligned u32; the timeout lives through the call.
    let sleep = || unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout, 0usize, 0u32)
    };
    let answer = sys::raw("futex", sleep);
    if answer < 0 && Errno::from_raw_os_error(errno()) == Errno::TIMEDOUT { Woken::TimedOut } else { Woken::LookAgain }
}

/// Sleeps like [`wait`], but a signal also ends the sleep if its handler does not restart calls. In that case the
/// result is `true`. `what` tells other processes the reason for the wait: its address is the fifth argument of the
/// call, which the kernel ignores and shows in `/proc/PID/task/TID/syscall`.
pub fn wait_interruptible(word: &AtomicU32, expected: u32, deadline: Deadline, what: &std::ffi::CStr) -> bool {
    let left = deadline.left();
    if left.is_zero() {
        return false;
    }
    let timeout = timespec(left);
    // SAFETY: `word` is a live, aligned u32; the timeout and the text `what` live through the call. The kernel does not
    // read the text.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
            what.as_ptr(),
            0u32,
        )
    };
    answer < 0 && Errno::from_raw_os_error(errno()) == Errno::INTR
}

/// Sleeps while both words hold the expected values, until one of the words gets a wake or the deadline passes.
///
/// If the kernel has no `futex_waitv`, the thread sleeps on the first word for at most [`SLICE`] at a time, and reads
/// the second word between two sleeps.
pub fn wait_either(first: (&AtomicU32, u32), second: (&AtomicU32, u32), deadline: Deadline) -> Woken {
    static NO_WAITV: AtomicBool = AtomicBool::new(false);
    if !NO_WAITV.load(Ordering::Relaxed) {
        match waitv(first, second, deadline) {
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => NO_WAITV.store(true, Ordering::Relaxed),
            Err(Errno::TIMEDOUT) => return Woken::TimedOut,
            _ => return Woken::LookAgain,
        }
    }
    if second.0.load(Ordering::Acquire) != second.1 {
        return Woken::LookAgain;
    }
    match wait(first.0, first.1, deadline.at_most(SLICE)) {
        Woken::TimedOut if !deadline.passed() => Woken::LookAgain,
        woken => woken,
    }
}

fn waitv(first: (&AtomicU32, u32), second: (&AtomicU32, u32), deadline: Deadline) -> Result<(), Errno> {
    #[repr(C)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const FUTEX2_SIZE_U32: u32 = 2;
    let waiter = |(word, expected): (&AtomicU32, u32)| Waiter {
        value: expected.into(),
        address: word.as_ptr() as u64,
        flags: FUTEX2_SIZE_U32,
        reserved: 0,
    };
    let waiters = [waiter(first), waiter(second)];
    // `futex_waitv` takes a point in time as its timeout, and not a duration.
    let until = timespec(deadline.on_clock());
    // SAFETY: the array and the time live through the call, and the addresses in it are live, aligned u32 words.
    let sleep = || unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len() as u32,
            0u32,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        )
    };
    let answer = sys::raw("futex", sleep);
    if answer < 0 { Err(Errno::from_raw_os_error(errno())) } else { Ok(()) }
}

/// Wakes at most `count` sleepers on `word` and gives the number of those that were woken.
pub fn wake(word: &AtomicU32, count: i32) -> i32 {
    // SAFETY: `word` is a live, aligned u32; waking reads nothing from it.
    let answer =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count, 0usize, 0usize, 0u32) };
    i32::try_from(answer).unwrap_or(0).max(0)
}

/// Wakes all threads that sleep on `word`.
pub fn wake_all(word: &AtomicU32) -> i32 {
    wake(word, i32::MAX)
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

fn errno() -> i32 {
    OsError::last("futex", "").errno.raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(30))
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let word = AtomicU32::new(1);
        let deadline = soon();
        assert_eq!(wait(&word, 1, deadline), Woken::TimedOut);
        assert!(deadline.passed());
        let (deadline, other) = (soon(), AtomicU32::new(2));
        while wait_either((&word, 1), (&other, 2), deadline) == Woken::LookAgain {}
        assert!(deadline.passed());
    }

    #[test]
    fn a_changed_word_does_not_wait() {
        let (word, other) = (AtomicU32::new(1), AtomicU32::new(2));
        let long = Deadline::after(Duration::from_secs(60));
        assert_eq!(wait(&word, 0, long), Woken::LookAgain);
        assert_eq!(wait_either((&word, 1), (&other, 0), long), Woken::LookAgain);
    }

    #[test]
    fn a_wake_of_the_second_word_ends_the_wait() {
        let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let waker = std::thread::spawn({
            let words = words.clone();
            move || {
                std::thread::sleep(Duration::from_millis(20));
                words.1.store(1, Ordering::Release);
                wake_all(&words.1);
            }
        });
        let long = Deadline::after(Duration::from_secs(60));
        while words.1.load(Ordering::Acquire) == 0 {
            wait_either((&words.0, 0), (&words.1, 0), long);
        }
        assert!(long.left() > Duration::from_secs(55));
        waker.join().unwrap();
    }
}
