//! Turns errors of the library into Python's exceptions. There is one exception class for each status. The classes are
//! defined in `crossdock/_errors.py`, where each can have one of Python's own classes as its second base. For example,
//! `TimedOutError` is a `TimeoutError`, and `WrongTypeError` is a `TypeError`.

use crossdock_client::{Error, Status};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::wait::park_if_ending;

/// The exception classes, at the index of their status. The class at index 0 is the base class.
static CLASSES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();

/// Makes the exception for an error of the library. If the interpreter ends, its daemon threads cannot use their
/// objects any more. Such a thread does not get an exception, which Python would print, but stops here.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if error.status == Status::Disconnected {
        park_if_ending(py);
    }
    let made = || -> PyResult<PyErr> {
        let classes = CLASSES.get_or_try_init(py, || {
            let found = py.import("crossdock._errors")?.getattr("BY_STATUS")?;
            Ok::<_, PyErr>(found.cast_into::<PyTuple>()?.unbind())
        })?;
        let class = classes.bind(py).get_item(error.status as usize)?;
        Ok(PyErr::from_value(class.call1((error.to_string(),))?))
    };
    made().unwrap_or_else(|failed| failed)
}

/// Makes the exception for a status, with a message that this binding wrote.
pub fn error(py: Python<'_>, status: Status, message: impl Into<std::borrow::Cow<'static, str>>) -> PyErr {
    raise(py, &Error::new(status, message))
}

/// Turns a result of the library into a result for Python.
pub trait OrRaise<T> {
    /// Gives the value, or raises the exception for the status.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for crossdock_client::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| raise(py, &e))
    }
}
