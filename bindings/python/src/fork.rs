//! A forked child has a copy of its parent's memory, but the daemon knows only the parent: a child that closed a port
//! would close its parent's. So an object that a session gave is used, and dropped, only in the process that got it.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_client::{Origin, Status};
use pyo3::prelude::*;

use crate::errors::error;

/// True once the program ends by an error: after that no object is closed in order.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Called when the program ends by an error. Nothing is closed in order any more, so peers learn that the program died,
/// and messages that it did not release go to a successor.
#[pyfunction]
pub fn _abandon() {
    ABANDONED.store(true, Ordering::Relaxed);
}

/// The error for an object that belongs to the parent process.
pub fn elsewhere(py: Python<'_>, what: &str) -> PyErr {
    error(
        py,
        Status::Disconnected,
        format!(
            "{what} belongs to the process that this one was forked from; call crossdock.connect() in the child (with \
             multiprocessing, the 'spawn' method avoids the question)"
        ),
    )
}

/// An object that belongs to the process that made it. A forked child neither uses nor drops it.
pub struct Own<T> {
    value: ManuallyDrop<T>,
    origin: Origin,
}

impl<T> Own<T> {
    /// Makes this process the owner.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), origin: Origin::here() }
    }

    /// Is this the process that made the object?
    pub fn here(&self) -> bool {
        self.origin.is_here() && !ABANDONED.load(Ordering::Relaxed)
    }

    /// An error in a forked child that names the object and gives a hint.
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
            // SAFETY: dropped here and nowhere else, and not looked at afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
