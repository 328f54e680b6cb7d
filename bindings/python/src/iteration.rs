//! The iterators for `for message in port` and `async for message in port`.

use crossdock_client::Status;
use pyo3::prelude::*;

use crate::messages::Message;
use crate::ports::Port;

/// An iterator over the messages of a port. `Port.messages` makes it.
#[pyclass(frozen, module = "crossdock")]
pub struct Messages {
    /// The consumer's end of the port.
    pub port: Py<Port>,
    /// How many seconds to wait for each message; `None` means 60.
    pub timeout: Option<f64>,
}

#[pymethods]
impl Messages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        match self.port.get().receive(py, self.timeout) {
            Ok(message) => Ok(Some(message)),
            Err(e) if e.value(py).getattr("status").is_ok_and(|s| s.eq(Status::Closed as i32).unwrap_or(false)) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("crossdock._aio")?.getattr("next_message")?.call1((&self.port, self.timeout))
    }
}
