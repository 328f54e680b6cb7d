//! Waits for files of managed directories.

use std::path::PathBuf;

use crossdock_client::Reason;
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// Waits until the file is published, if it lies in a managed directory that this task consumes. For any other file the
/// call returns immediately.
///
/// Other Python threads run during the wait. Raises NotFoundError if the producers have ended and did not publish the
/// file. Raises TimedOutError if the time limit of the directory has passed.
#[pyfunction]
pub fn await_file(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    loop {
        let waited = py.detach(|| crossdock_client::await_file(&path));
        // If a signal interrupted the wait, `check_signals` runs Python's handler of the signal, which may raise an
        // exception. If the handler raises none, the wait goes on.
        py.check_signals()?;
        match waited {
            Err(error) if matches!(error.reason, Reason::Interrupted(_)) => {}
            other => return other.or_raise(py),
        }
    }
}
