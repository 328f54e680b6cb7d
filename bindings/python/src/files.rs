//! Waiting for files of managed directories.

use std::path::PathBuf;

use crossdock_client::Reason;
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// Waits until the file is published, if it lies in a managed directory that this task consumes; otherwise returns at
/// once.
///
/// Other threads run meanwhile. NotFoundError: the producers have ended and did not publish the file. TimedOutError:
/// the directory's time limit has passed.
#[pyfunction]
pub fn await_file(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    loop {
        let waited = py.detach(|| crossdock_client::await_file(&path));
        // Python's handler of a signal runs here and may raise an exception. If it does not, the wait continues.
        py.check_signals()?;
        match waited {
            Err(error) if matches!(error.reason, Reason::Interrupted(_)) => {}
            other => return other.or_raise(py),
        }
    }
}
