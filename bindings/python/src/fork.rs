//! A forked child has a copy of its parent's memory, but the daemon knows only the parent. If a child closed a port,
//! its parent's port would be closed. So only the process that opened an object of a session may use or drop it.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_client::{Error, ProcessToken, Status};
use pyo3::prelude::*;

use crate::errors::raise;

/// True after the program has ended by an error. From then on no object is closed.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Python calls this when the program ends by an error. From then on no session, port or series is closed, so peers
/// learn that the program died. Messages that the program did not release go to the next consumer.
#[pyfunction]
pub fn _abandon() {
    ABANDONED.store(true, Ordering::Relaxed);
}

/// Makes the exception for an object that belongs to the parent process.
pub fn elsewhere(py: Python<'_>, what: &str) -> PyErr {
    raise(py, &error_elsewhere(what))
}

/// Makes the library's error for an object that belongs to the parent process.
pub fn error_elsewhere(what: &str) -> Error {
    let text = format!(
        "{what} belongs to the process that this one was forked from; call crossdock.connect() in the child (with \
         multiprocessing, the 'spawn' method avoids the question)"
    );
    Error::new(Status::Disconnected, text)
}

/// An object that belongs to the process that made it. A forked child neither uses nor drops it.
pub struct Own<T> {
    value: ManuallyDrop<T>,
    process: ProcessToken,
}

impl<T> Own<T> {
    /// Wraps an object that this process has made.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: ProcessToken::current() }
    }

    /// Tells whether this is the process that made the object.
    pub fn here(&self) -> bool {
        self.process.is_current() && !ABANDONED.load(Ordering::Relaxed)
    }

    /// Fails in a forked child. The error names the object and gives a hint.
    pub fn check(&self, py: Python<'_>, what: impl FnOnce() -> String) -> PyResult<()> {
        if self.here() {
            return Ok(());
        }
        Err(elsewhere(py, &what()))
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.here() {
            // SAFETY: the value is dropped only here, and is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A lock that belongs to the process that made it. If another thread of the parent held the lock during the fork, the
/// lock is locked for ever in the child, because the child does not have that thread. So a child gets no access.
pub struct OwnLock<L> {
    lock: L,
    process: ProcessToken,
}

impl<L> OwnLock<L> {
    /// Wraps a lock that this process has made.
    pub fn new(lock: L) -> Self {
        Self { lock, process: ProcessToken::current() }
    }

    /// The lock; `None` in a forked child.
    pub fn here(&self) -> Option<&L> {
        self.process.is_current().then_some(&self.lock)
    }
}
