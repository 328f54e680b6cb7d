//! Makes system calls fail on purpose. This module exists only in builds with the feature `faults`. Tests use it to see
//! what a process does when descriptors, memory or space run out, when signals interrupt it, or when data arrive in
//! parts.
//!
//! A *plan* says which calls fail. Either the n-th call from now on fails, with a chosen error that the kernel may give
//! for it. Or on average one of N calls fails, and a seed determines which calls. A plan belongs to one thread
//! ([`arm_thread`]), or it lies in a *page* of a file that other processes map too ([`MappedPlan`]). The variable
//! `CROSSDOCK_FAULTS` names that file. Through this file, a test can change the plan of a daemon, or of all processes
//! of a soak test, while they run.

use rustix::fd::AsFd;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::testing::{Random, mix};

/// The environment variable with the path of the file that contains a shared plan ([`MappedPlan`]).
pub const VARIABLE: &str = "CROSSDOCK_FAULTS";

/// The way in which a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call does nothing and returns this error.
    Error(Errno),
    /// The call reads or writes only half of the bytes, and succeeds.
    Short,
    /// The received message lacks the descriptors that the peer sent with it.
    Stripped,
}

const fn error(errno: Errno) -> Fault {
    Fault::Error(errno)
}

const DESCRIPTORS: &[Fault] = &[error(Errno::MFILE), error(Errno::NFILE), error(Errno::NOMEM)];
const MEMORY: &[Fault] = &[error(Errno::NOMEM)];

/// The errors that the kernel may give for each call. The names are those that [`crate::sys`] uses. A call that is not
/// in this table never fails by a plan.
const TABLE: &[(&str, &[Fault])] = &[
    ("open", DESCRIPTORS),
    ("memfd_create", DESCRIPTORS),
    ("eventfd", DESCRIPTORS),
    ("timerfd_create", DESCRIPTORS),
    ("signalfd", DESCRIPTORS),
    ("epoll_create1", DESCRIPTORS),
    ("pidfd_open", DESCRIPTORS),
    ("SO_PEERPIDFD", DESCRIPTORS),
    ("inotify_init1", DESCRIPTORS),
    ("userfaultfd", DESCRIPTORS),
    ("fanotify_init", DESCRIPTORS),
    ("fanotify_read", &[error(Errno::NFILE), error(Errno::NOMEM)]),
    ("close_range", &[error(Errno::MFILE), error(Errno::NOMEM)]),
    ("open_tree", DESCRIPTORS),
    ("fsopen", DESCRIPTORS),
    ("fsmount", DESCRIPTORS),
    ("pipe2", DESCRIPTORS),
    ("shmget", &[error(Errno::NOSPC), error(Errno::NOMEM)]),
    ("shmat", MEMORY),
    ("F_DUPFD_CLOEXEC", &[error(Errno::MFILE), error(Errno::NOMEM)]),
    ("socket", &[error(Errno::MFILE), error(Errno::NFILE), error(Errno::NOBUFS), error(Errno::NOMEM)]),
    ("accept", &[error(Errno::MFILE), error(Errno::NFILE), error(Errno::NOMEM), error(Errno::INTR)]),
    ("connect", &[error(Errno::AGAIN), error(Errno::NOMEM)]),
    ("bind", &[error(Errno::NOSPC), error(Errno::NOMEM)]),
    ("sendmsg", &[error(Errno::AGAIN), error(Errno::INTR), error(Errno::NOBUFS), error(Errno::NOMEM)]),
    ("recvmsg", &[error(Errno::AGAIN), error(Errno::INTR)]),
    ("SCM_RIGHTS", &[Fault::Stripped]),
    ("poll", &[error(Errno::INTR), error(Errno::NOMEM)]),
    ("epoll_wait", &[error(Errno::INTR)]),
    ("epoll_ctl", &[error(Errno::NOMEM), error(Errno::NOSPC)]),
    ("futex", &[error(Errno::INTR)]),
    ("mmap", MEMORY),
    ("mremap", MEMORY),
    ("mprotect", MEMORY),
    ("munmap", MEMORY),
    ("madvise", MEMORY),
    ("MADV_POPULATE", &[error(Errno::NOMEM), error(Errno::INTR), error(Errno::AGAIN)]),
    ("statx", MEMORY),
    ("mount_setattr", MEMORY),
    ("fanotify_mark", &[error(Errno::NOMEM), error(Errno::NOSPC)]),
    ("inotify_read", &[error(Errno::FAULT)]),
    ("inotify_add_watch", &[error(Errno::NOMEM), error(Errno::NOSPC)]),
    ("F_OFD_SETLK", &[error(Errno::NOLCK), error(Errno::NOMEM)]),
    ("F_OFD_GETLK", MEMORY),
    ("F_SETLEASE", MEMORY),
    ("flock", &[error(Errno::NOLCK), error(Errno::INTR)]),
    ("UFFDIO", MEMORY),
    ("PAGEMAP_SCAN", MEMORY),
    ("ftruncate", &[error(Errno::NOMEM), error(Errno::NOSPC)]),
    ("fallocate", &[error(Errno::NOSPC), error(Errno::INTR), error(Errno::NOMEM)]),
    ("mkdir", &[error(Errno::NOSPC), error(Errno::NOMEM)]),
    ("rename", &[error(Errno::NOSPC), error(Errno::NOMEM)]),
    ("read", &[Fault::Short, error(Errno::INTR)]),
    ("pread", &[Fault::Short, error(Errno::INTR)]),
    ("write", &[Fault::Short, error(Errno::INTR), error(Errno::NOSPC)]),
    ("pwrite", &[Fault::Short, error(Errno::INTR), error(Errno::NOSPC)]),
    ("pwrite_reserved", &[Fault::Short, error(Errno::INTR)]),
    ("write_file", &[Fault::Short, error(Errno::INTR), error(Errno::NOSPC), error(Errno::IO), error(Errno::DQUOT)]),
    ("getdents", &[error(Errno::IO), error(Errno::NOMEM)]),
    ("read_file", &[error(Errno::IO), error(Errno::NOMEM)]),
    ("copy_file_range", &[error(Errno::NOSPC), error(Errno::IO), error(Errno::NOMEM)]),
    ("link", &[error(Errno::NOSPC), error(Errno::NOMEM)]),
    ("unlink", &[error(Errno::IO), error(Errno::NOMEM)]),
    ("stat", &[error(Errno::IO), error(Errno::NOMEM)]),
    ("chmod", &[error(Errno::IO), error(Errno::NOMEM)]),
    ("spawn", &[error(Errno::AGAIN), error(Errno::NOMEM), error(Errno::MFILE)]),
    ("fsync", &[error(Errno::NOSPC), error(Errno::INTR), error(Errno::IO)]),
    ("fork", &[error(Errno::AGAIN), error(Errno::NOMEM)]),
    ("clone", &[error(Errno::AGAIN)]),
];

/// A plan and its counters. It consists of atomic words, so several processes can share it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct FaultPlan {
    /// How many calls remain until the one that fails; 0 means that no call fails.
    nth: AtomicU64,
    /// The only call that may fail, as the number of its row in `TABLE` (from 1 on); 0 means that any call may fail.
    only: AtomicU64,
    /// The index of the error with which the call fails, in the list of its possible errors. An index behind the last
    /// error wraps around.
    which: AtomicU64,
    /// The number N, if on average one of N calls is to fail; 0 if no call is to fail in this way.
    one_in: AtomicU64,
    /// The state of the random number generator that chooses which calls fail.
    seed: AtomicU64,
    /// The number of system calls that the plan has counted so far.
    calls: AtomicU64,
    /// The number of system calls that failed by this plan so far.
    failed: AtomicU64,
    /// The call that failed last, as the number of its row in `TABLE` (from 1 on); 0 if no call has failed yet.
    last: AtomicU64,
}

impl FaultPlan {
    fn next(&self, row: usize) -> Option<Fault> {
        let failures = TABLE[row].1;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let only = self.only.load(Ordering::Relaxed);
        if only != 0 && only != row as u64 + 1 {
            return None;
        }
        let chosen = match self.count_down() {
            1 => Some(self.which.load(Ordering::Relaxed)),
            0 => self.draw(),
            _ => None,
        }?;
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.last.store(row as u64 + 1, Ordering::Relaxed);
        Some(failures[chosen as usize % failures.len()])
    }

    /// Lowers `nth` by 1 unless it is 0. Gives the value that `nth` had before.
    fn count_down(&self) -> u64 {
        let mut n = self.nth.load(Ordering::Acquire);
        while n > 0 {
            match self.nth.compare_exchange_weak(n, n - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => return before,
                Err(present) => n = present,
            }
        }
        n
    }

    fn draw(&self) -> Option<u64> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        if one_in == 0 {
            return None;
        }
        let z = mix(self.seed.fetch_add(Random::STEP, Ordering::Relaxed));
        (z % one_in == 0).then_some(z >> 32)
    }

    /// Counts all calls from now on, and makes the n-th of them fail (n counts from 1). `which` is an index into the
    /// possible errors of that call; an index behind the last error wraps around.
    pub fn fail_nth(&self, n: u64, which: u64) {
        self.arm(0, n, which);
    }

    /// Counts the calls with this name from now on, and makes the n-th of them fail. Calls with other names are not
    /// counted. So it does not matter how many such other calls the processes that share this plan make meanwhile.
    ///
    /// # Panics
    /// The table has no call with this name.
    pub fn fail_nth_of(&self, call: &str, n: u64, which: u64) {
        self.arm(row_of(call) as u64 + 1, n, which);
    }

    fn arm(&self, only: u64, n: u64, which: u64) {
        self.only.store(only, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        self.which.store(which, Ordering::Relaxed);
        self.nth.store(n, Ordering::Release);
    }

    /// From now on, makes one call in `one_in` fail on average. The calls that fail follow from `seed`.
    pub fn fail_some(&self, seed: u64, one_in: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.one_in.store(one_in, Ordering::Release);
    }

    /// From now on, makes every call with this name fail, each with one of its errors.
    ///
    /// # Panics
    /// The table has no call with this name.
    pub fn fail_each(&self, call: &str) {
        self.arm(row_of(call) as u64 + 1, 0, 0);
        self.one_in.store(1, Ordering::Release);
    }

    /// Stops making calls fail. Gives the name of the call that failed last, and the errors that this call can have.
    pub fn disarm(&self) -> Option<(&'static str, &'static [Fault])> {
        self.nth.store(0, Ordering::Release);
        self.one_in.store(0, Ordering::Release);
        self.only.store(0, Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed) as usize;
        TABLE.get(last.wrapping_sub(1)).copied()
    }

    /// The number of system calls that the plan has counted so far, and the number of those that it made fail.
    pub fn counted(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// A plan of failures in a file. The plan is valid for all processes that map the file.
#[derive(Debug)]
pub struct MappedPlan(&'static FaultPlan);

impl MappedPlan {
    /// Opens the file, or makes it if it does not exist, and maps it. The mapping stays until the process ends.
    ///
    /// # Errors
    /// `open`, `ftruncate` or `mmap` failed.
    pub fn open(path: &Path) -> rustix::io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        use rustix::mm::{MapFlags, ProtFlags};
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&file, 4096)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the call makes a new mapping at an address that the kernel chooses. The mapping is never unmapped.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
        // SAFETY: the mapped page is never unmapped, and a plan consists of atomics, for which every bit pattern is a
        // valid value.
        Ok(Self(unsafe { &*start.cast::<FaultPlan>() }))
    }

    /// The plan in the mapped page, which other processes may use at the same time.
    #[must_use]
    pub fn words(&self) -> &FaultPlan {
        self.0
    }
}

fn page() -> Option<&'static FaultPlan> {
    static PAGE: OnceLock<Option<MappedPlan>> = OnceLock::new();
    let found = PAGE.get_or_init(|| {
        let path = std::env::var_os(VARIABLE)?;
        Some(MappedPlan::open(Path::new(&path)).expect("CROSSDOCK_FAULTS names a file that can be written"))
    });
    found.as_ref().map(|page| page.0)
}

thread_local! {
    static OWN: RefCell<Option<FaultPlan>> = const { RefCell::new(None) };
}

/// Gives this thread a plan of its own until [`disarm_thread`]. By this plan, the n-th system call that the thread
/// makes from now on fails. `which` selects one of the errors that the kernel may give for that call, as in
/// `FaultPlan::fail_nth`.
pub fn arm_thread(n: u64, which: u64) {
    let words = FaultPlan::default();
    words.fail_nth(n, which);
    set_thread_plan(words);
}

/// Gives this thread a plan of its own until [`take_thread_plan`].
pub fn set_thread_plan(plan: FaultPlan) {
    OWN.with_borrow_mut(|own| *own = Some(plan));
}

/// Ends the plan that this thread has of its own, and gives the plan back.
pub fn take_thread_plan() -> Option<FaultPlan> {
    OWN.take()
}

/// Ends the plan that [`arm_thread`] gave this thread. Gives the name and the possible errors of the call that failed
/// by the plan; `None` if the thread made fewer than n calls, so that none failed.
pub fn disarm_thread() -> Option<(&'static str, &'static [Fault])> {
    take_thread_plan().and_then(|words| words.disarm())
}

/// One attempt of [`each_call_fails`]. The tested step calls [`Attempt::arm`] before the calls that may fail, and
/// [`Attempt::disarm`] after them.
#[derive(Debug)]
pub struct Attempt {
    n: u64,
    which: u64,
    failed: Cell<Option<(&'static str, &'static [Fault])>>,
}

impl Attempt {
    /// Makes the n-th system call of this thread from now on fail. Each attempt has another n, or the same n with
    /// another error.
    pub fn arm(&self) {
        arm_thread(self.n, self.which);
    }

    /// Stops injecting failures. Gives the name and the error of the call that was made to fail in this attempt, or
    /// `None` if no call was.
    pub fn disarm(&self) -> Option<(&'static str, Fault)> {
        if let Some(failed) = disarm_thread() {
            self.failed.set(Some(failed));
        }
        self.failed.get().map(|(call, errors)| (call, errors[self.which as usize]))
    }
}

/// Runs `step` again and again. In each attempt another system call of this thread fails, or the same system call fails
/// with another of its errors. The repetition ends after an attempt in which no call failed. Gives the names of the
/// calls that failed.
pub fn each_call_fails(mut step: impl FnMut(&Attempt)) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let mut attempt = Attempt { n: 1, which: 0, failed: Cell::new(None) };
    loop {
        step(&attempt);
        attempt.disarm();
        let Some((call, errors)) = attempt.failed.take() else { return seen };
        seen.insert(call);
        attempt.which += 1;
        if attempt.which as usize == errors.len() {
            (attempt.n, attempt.which) = (attempt.n + 1, 0);
        }
    }
}

fn row_of(call: &str) -> usize {
    let row = TABLE.iter().position(|(name, _)| *name == call);
    row.unwrap_or_else(|| panic!("the table of failures has no row '{call}'"))
}

/// Counts a call. Gives the failure if the call must fail now.
pub(crate) fn next(call: &'static str) -> Option<Fault> {
    let row = row_of(call);
    let own = OWN.try_with(|own| own.borrow().as_ref().map(|words| words.next(row)));
    match own {
        Ok(Some(answer)) => answer,
        _ => page().and_then(|words| words.next(row)),
    }
}

/// Counts a call as `next` does, for calls of which the only possible failure is an error.
pub(crate) fn check(call: &'static str) -> rustix::io::Result<()> {
    match next(call) {
        Some(Fault::Error(errno)) => Err(errno),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_the_plan_names_fails_and_no_other() {
        arm_thread(2, 0);
        let one = crate::memfd::create("crossdock-test", 4096);
        let (failed, _) = disarm_thread().unwrap();
        assert_eq!((failed, one.unwrap_err().errno), ("ftruncate", Errno::NOMEM));
        crate::memfd::create("crossdock-test", 4096).unwrap();
    }

    #[test]
    fn a_plan_that_is_not_reached_says_so() {
        arm_thread(100, 0);
        crate::memfd::create("crossdock-test", 4096).unwrap();
        assert_eq!(disarm_thread(), None);
    }

    #[test]
    fn each_call_fails_once_with_each_of_its_errors() {
        let mut failed = Vec::new();
        let seen = each_call_fails(|attempt| {
            attempt.arm();
            let made = crate::memfd::create("crossdock-test", 4096);
            let hit = attempt.disarm();
            assert_eq!(hit, attempt.disarm(), "the attempt remembers what failed");
            crate::memfd::create("crossdock-test", 4096).unwrap();
            failed.extend(made.err().map(|error| (hit.unwrap().0, error.errno)));
        });
        let create = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(|errno| ("memfd_create", errno));
        assert_eq!(failed[..3], create);
        assert!(failed[3..].contains(&("ftruncate", Errno::NOMEM)), "{failed:?}");
        assert!(seen.contains("memfd_create") && seen.contains("ftruncate"), "{seen:?}");
    }

    #[test]
    fn short_writes_are_continued_and_interrupted_ones_repeated() {
        let fd = crate::memfd::create("crossdock-test", 4096).unwrap();
        let mapping = crate::Mapping::new(&fd, 4096, crate::Access::ReadWrite).unwrap();
        for which in [0, 1] {
            let byte = mapping.word32(4092).unwrap();
            byte.store(7, Ordering::Relaxed);
            arm_thread(1, which);
            crate::memfd::clear(&fd, 0, 4096).unwrap();
            assert_eq!(disarm_thread().unwrap().0, "pwrite");
            assert_eq!(byte.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_plan_for_one_name_counts_no_other_call() {
        let words = FaultPlan::default();
        let (open, pipe) = (row_of("open"), row_of("pipe2"));
        words.fail_nth_of("pipe2", 2, 0);
        let failed: Vec<_> = [open, pipe, open, pipe, pipe].map(|row| words.next(row).is_some()).into();
        assert_eq!(failed, [false, false, false, true, false]);
        assert_eq!(words.disarm().unwrap().0, "pipe2");
        words.fail_nth(1, 0);
        assert!(words.next(open).is_some(), "the name of the former plan does not count any more");
    }

    #[test]
    fn a_plan_for_each_call_of_a_name_lets_all_other_calls_succeed() {
        let words = FaultPlan::default();
        let (open, pipe) = (row_of("open"), row_of("pipe2"));
        words.fail_each("pipe2");
        let failed: Vec<_> = [open, pipe, open, pipe, pipe].map(|row| words.next(row).is_some()).into();
        assert_eq!(failed, [false, true, false, true, true]);
        words.disarm();
        assert!(words.next(pipe).is_none(), "the plan has ended");
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let drawn = |seed| {
            let words = FaultPlan::default();
            words.fail_some(seed, 10);
            (0..1000).map(|_| words.next(0).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(5), drawn(5));
        assert_ne!(drawn(5), drawn(6));
        assert!((50..150).contains(&drawn(5).iter().filter(|failed| **failed).count()));
    }
}
