//! A forked child has its parent's memory but not its standing: the daemon knows one process, and a child that closed a
//! port would close its parent's. So whatever a session gave is only usable, and only dropped, in the process that got it.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crossdock_client::Status;
use pyo3::prelude::*;

use crate::errors::error;

/// How many forks lie between the first process and this one. Written by `os.register_at_fork` in the child, before
/// any other code of it runs; read by everything else.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Called in each forked child.
#[pyfunction]
pub fn _after_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Called when the program ends by an error: nothing more is left in order, so that peers learn that it died, and
/// messages that it had not released go to a successor.
#[pyfunction]
pub fn _abandon() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The error for something of the parent's.
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

/// Something that belongs to the process that made it. In a forked child it is neither used nor dropped.
pub struct Own<T> {
    value: ManuallyDrop<T>,
    generation: u32,
}

impl<T> Own<T> {
    /// Belongs to this process.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// Is this the process that made it?
    pub fn here(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
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
