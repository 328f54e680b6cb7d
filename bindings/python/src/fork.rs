//! A forked child has a copy of its parent's memory, but the daemon knows only the parent. If a child closed a port,
//! its parent's port would be closed. So only the process that opened an object of a session may use or drop it.
//!
//! While the interpreter ends, no object is used or dropped. The process is about to exit, and its status is not known
//! yet. If it is 0, the library closes the ports and ends the series; otherwise peers learn that the program died.
//! Messages that the program did not release go to the next consumer.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crossdock_client::{Error, ProcessToken, Status};
use pyo3::prelude::*;

use crate::errors::raise;
use crate::wait::is_ending;

/// Makes the exception for an object that belongs to the parent process, or that is used while the interpreter ends.
pub fn elsewhere(py: Python<'_>, what: &str) -> PyErr {
    raise(py, &error_elsewhere(what))
}

/// Makes the library's error for an object that belongs to the parent process, or that is used while the interpreter
/// ends.
pub fn error_elsewhere(what: &str) -> Error {
    let text = if is_ending() {
        format!("{what} cannot be used any more, because the interpreter ends")
    } else {
        format!(
            "{what} belongs to the process that this one was forked from; call crossdock.connect() in the child (with \
             multiprocessing, the 'spawn' method avoids the question)"
        )
    };
    Error::new(Status::Disconnected, text)
}

/// An object that belongs to the process that made it. A forked child neither uses nor drops it, and neither does an
/// interpreter that ends.
pub struct Own<T> {
    value: ManuallyDrop<T>,
    process: ProcessToken,
}

impl<T> Own<T> {
    /// Wraps an object that this process has made.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: ProcessToken::current() }
    }

    /// Tells whether this is the process that made the object, and its interpreter does not end yet.
    pub fn here(&self) -> bool {
        self.process.is_current() && !is_ending()
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
/// lock is locked for ever in the child, because the child does not have that thread. So a child gets no access. While
/// the interpreter ends, a daemon thread may have been stopped with the lock. So no thread gets access then.
pub struct OwnLock<L> {
    lock: L,
    process: ProcessToken,
}

impl<L> OwnLock<L> {
    /// Wraps a lock that this process has made.
    pub fn new(lock: L) -> Self {
        Self { lock, process: ProcessToken::current() }
    }

    /// The lock; `None` in a forked child, and while the interpreter ends.
    pub fn here(&self) -> Option<&L> {
        (self.process.is_current() && !is_ending()).then_some(&self.lock)
    }
}
