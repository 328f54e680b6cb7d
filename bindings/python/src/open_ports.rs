//! An open end of a port in this process. Several Python objects refer to the end; the `Port` object closes it.

use std::sync::{Arc, Mutex};

use crossdock_client::{Error, Port as Inner, Result, SegmentKind};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::fork::{Own, OwnLock, error_elsewhere};
use crate::views::lock;

/// One end of a port, until it is closed. Messages refer to it, because they are released through it.
pub struct OpenPort {
    port: OwnLock<Mutex<Option<Arc<Own<Inner>>>>>,
    /// The port's name.
    pub name: String,
}

impl OpenPort {
    /// Wraps an end that was just opened.
    pub fn new(name: &str, port: Inner) -> Self {
        Self { port: OwnLock::new(Mutex::new(Some(Arc::new(Own::new(port))))), name: name.to_owned() }
    }

    /// The end of the port; an error if it is closed, or belongs to the parent of this process.
    pub fn open(&self) -> Result<Arc<Own<Inner>>> {
        let Some(port) = self.port.here() else { return Err(error_elsewhere(&format!("port '{}'", self.name))) };
        let port = lock(port).clone();
        port.ok_or_else(|| Error::closed_here().about(SegmentKind::Port, &self.name))
    }

    /// Calls `work` with the end of the port. Gives `None` if the end is closed or belongs to the parent of this
    /// process, or if another thread has the lock of this object at this moment. `work` must not wait.
    pub fn with_open<T>(&self, work: impl FnOnce(&Arc<Own<Inner>>) -> Option<T>) -> Option<T> {
        let port = self.port.here()?.try_lock().ok()?;
        work(port.as_ref()?)
    }

    /// The end of the port; an error if it is closed or belongs to another process.
    pub fn get(&self, py: Python<'_>) -> PyResult<Arc<Own<Inner>>> {
        self.open().or_raise(py)
    }

    /// Closes the end of the port. A thread that waits at the port divides its wait into short waits. If another thread
    /// waits now, the end is closed when that thread's present short wait is over.
    pub fn close(&self) {
        let port = self.port.here().and_then(|port| lock(port).take());
        drop(port);
    }
}
