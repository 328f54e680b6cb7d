//! A message that a port delivered: a handle, a tag, some bytes, and the credit that the consumer must give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_client::{Error, Message as Inner, Result, Status};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{OrRaise, error};
use crate::handles::Handle;
use crate::objects;
use crate::open_ports::OpenPort;
use crate::session_state::SessionState;

/// The credit of a received message: the message's cell in the port, which the producer does not have back yet. The
/// message and every array that was made through the message share the credit. When the last of them is gone, the cell
/// goes back to the producer, so no data is overwritten while it is in use.
pub struct Credit {
    port: Arc<OpenPort>,
    message: Inner,
    released: AtomicBool,
}

impl Credit {
    /// Gives the cell back to the producer. A second call is an error.
    fn release(&self) -> Result<()> {
        if self.released.swap(true, Ordering::Relaxed) {
            return Err(Error::new(
                Status::Invalid,
                format!("message {} of port '{}' is released already", self.message.position, self.port.name),
            ));
        }
        self.port.open()?.release(&self.message)
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        // If the program has failed, the message is not released, so that the next consumer gets it again.
        let Ok(port) = self.port.open() else { return };
        if port.here() && !*self.released.get_mut() {
            // The release can fail only if the port is corrupt. In this case no producer can use the cell anyway.
            let _ = port.release(&self.message);
        }
    }
}

/// A received message. The program releases it when it no longer needs the data, for example at the end of `with
/// port.receive() as m:`. If the program drops the message object without releasing it, the message is released when
/// the last array that was loaded through it is gone.
#[pyclass(frozen, module = "crossdock")]
pub struct Message {
    credit: Arc<Credit>,
    session: Arc<SessionState>,
}

impl Message {
    /// Makes the Python object for a message that was just received.
    pub fn new(port: Arc<OpenPort>, message: Inner, session: Arc<SessionState>) -> Self {
        Self { credit: Arc::new(Credit { port, message, released: AtomicBool::new(false) }), session }
    }
}

#[pymethods]
impl Message {
    /// The handle of the data; None if the message carries none.
    #[getter]
    fn handle(&self) -> Option<Handle> {
        let handle = self.credit.message.handle;
        (!handle.is_none()).then(|| handle.into())
    }

    /// A number that the sender chose, for example the number of a step.
    #[getter]
    fn tag(&self) -> u64 {
        self.credit.message.tag
    }

    /// Up to 24 bytes that travelled in the message itself.
    #[getter]
    fn inline<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.credit.message.inline)
    }

    /// The number of this message in the port. The first message has number 0.
    #[getter]
    fn position(&self) -> u64 {
        self.credit.message.position
    }

    /// True if the message was released, so that the producer has the credit back.
    #[getter]
    fn released(&self) -> bool {
        self.credit.released.load(Ordering::Relaxed)
    }

    /// Loads the object that the handle names, as a Vector, Ndarray, String or Simple. If this process has not opened
    /// the object's region yet, the call opens it.
    ///
    /// `type` is needed only for a block without a name. While arrays of the object are alive, the producer does not
    /// get the message back, unless the program releases it explicitly.
    #[pyo3(signature = (r#type=None))]
    fn load<'py>(&self, py: Python<'py>, r#type: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.credit.message.handle;
        if handle.is_none() {
            return Err(error(
                py,
                Status::BadHandle,
                format!(
                    "message {} of port '{}' carries no handle; look at its tag and inline bytes",
                    self.credit.message.position, self.credit.port.name
                ),
            ));
        }
        if self.released() {
            return Err(error(
                py,
                Status::Invalid,
                format!(
                    "message {} of port '{}' is released, its data may be overwritten; load it before",
                    self.credit.message.position, self.credit.port.name
                ),
            ));
        }
        let open_region = self.session.region_of(py, handle)?;
        objects::load(py, &open_region, handle, r#type, Some(&self.credit))
    }

    /// Releases the message: gives the cell and the data back to the producer, which may then write the data again.
    /// Arrays that were loaded from this message stay valid memory, but their values may change.
    ///
    /// Messages may be released in any order, each one once. The call never waits. Raises InvalidError if the message
    /// was released already.
    pub fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.credit.port.get(py)?;
        self.credit.release().or_raise(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Releases the message at the end of a `with` block. If the block failed, the message is not released, so that the
    /// next consumer gets it again.
    #[pyo3(signature = (kind, value, trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (value, trace);
        if kind.is_none() && !self.released() {
            self.release(py)?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        let message = &self.credit.message;
        format!(
            "<crossdock.Message {} of port '{}': tag {}, {}, {} inline bytes{}>",
            message.position,
            self.credit.port.name,
            message.tag,
            if message.handle.is_none() { "no handle".to_owned() } else { message.handle.to_string() },
            message.inline.len(),
            if self.released() { ", released" } else { "" }
        )
    }
}
