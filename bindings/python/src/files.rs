//! Waiting for files of managed directories.

use std::path::PathBuf;

use crossdock_client::Reason;
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// Waits until the file is there, if it lies in a managed directory that this task consumes; else returns at once.
///
/// Other threads run meanwhile. NotFoundError: the producers have ended without it. TimedOutError: the directory's time is over.
#[pyfunction]
pub fn await_file(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    loop {
        let waited = py.detach(|| crossdock_client::await_file(&path));
        // A signal's Python handler runs here and may raise; without one, the wait goes on.
        py.check_signals()?;
        match waited {
            Err(error) if matches!(error.reason, Reason::Interrupted(_)) => {}
            other => return other.or_raise(py),
        }
    }
}
