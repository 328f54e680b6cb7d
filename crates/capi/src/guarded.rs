//! Locks for objects that only one call at a time may use.
//!
//! If another thread held a lock when the process forked, the child inherits a held lock, and no thread of the child
//! releases it. A child must not use its parent's objects. If it does, it gets an error instead of waiting for ever.

use std::sync::{
    LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_client::{Error, ProcessToken, Result, Status};

/// How long a forked child tries to get a lock. The child does not fail immediately, because another thread of the
/// child may hold the lock for a moment.
const TRIES: Duration = Duration::from_millis(100);

/// A value behind a lock, together with the process that made the value.
pub(crate) struct Guarded<L> {
    lock: L,
    process: ProcessToken,
    noun: &'static str,
}

impl<L> Guarded<L> {
    fn around(lock: L, noun: &'static str) -> Self {
        Self { lock, process: ProcessToken::current(), noun }
    }

    #[inline]
    fn enter<'a, G>(
        &'a self,
        wait: impl FnOnce(&'a L) -> LockResult<G>,
        attempt: impl Fn(&'a L) -> TryLockResult<G>,
    ) -> Result<G> {
        if self.process.is_current() {
            return Ok(wait(&self.lock).unwrap_or_else(PoisonError::into_inner));
        }
        self.enter_in_child(attempt)
    }

    #[cold]
    fn enter_in_child<'a, G>(&'a self, attempt: impl Fn(&'a L) -> TryLockResult<G>) -> Result<G> {
        let end = Instant::now() + TRIES;
        loop {
            match attempt(&self.lock) {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::WouldBlock) => {
                    let text = format!(
                        "this {} belongs to the parent process, where another thread used it during fork(); connect and \
                         open it anew in the child",
                        self.noun
                    );
                    return Err(Error::new(Status::Disconnected, text));
                }
            }
        }
    }
}

impl<T> Guarded<Mutex<T>> {
    pub(crate) fn new(value: T, noun: &'static str) -> Self {
        Self::around(Mutex::new(value), noun)
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        self.enter(Mutex::lock, Mutex::try_lock)
    }
}

impl<T> Guarded<RwLock<T>> {
    pub(crate) fn shared(value: T, noun: &'static str) -> Self {
        Self::around(RwLock::new(value), noun)
    }

    pub(crate) fn read(&self) -> Result<RwLockReadGuard<'_, T>> {
        self.enter(RwLock::read, RwLock::try_read)
    }

    pub(crate) fn write(&self) -> Result<RwLockWriteGuard<'_, T>> {
        self.enter(RwLock::write, RwLock::try_write)
    }
}
