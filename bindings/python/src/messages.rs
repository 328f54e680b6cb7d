//! What a port delivered: a handle, a tag, some bytes, and the credit that must be given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_client::{Error, Message as Inner, Result, Status};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{OrRaise, error};
use crate::handles::Handle;
use crate::objects;
use crate::slots::Slot;
use crate::standing::Standing;

/// The credit of a received message: its cell in the port, which the producer does not have back yet. The message and
/// every array made through it share the credit, so that the data is not overwritten while any of them is in use. The
/// last of them gives it back.
pub struct Credit {
    slot: Arc<Slot>,
    message: Inner,
    released: AtomicBool,
}

impl Credit {
    /// Gives the cell back. A second call is an error.
    fn release(&self) -> Result<()> {
        if self.released.swap(true, Ordering::Relaxed) {
            return Err(Error::new(
                Status::Invalid,
                format!("message {} of port '{}' is released already", self.message.position, self.slot.name),
            ));
        }
        self.slot.open()?.release(&self.message)
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        // If the program fails, the message stays unreleased, so a successor gets it again.
        let Ok(port) = self.slot.open() else { return };
        if port.here() && !*self.released.get_mut() {
            // The release fails only if the port is corrupt, and then no producer can use the cell.
            let _ = port.release(&self.message);
        }
    }
}

/// A message. Release it when its data is no longer needed (`with port.receive() as m:` does). A message to which no
/// reference is left is released, once the arrays loaded through it are gone, too.
#[pyclass(frozen, module = "crossdock")]
pub struct Message {
    credit: Arc<Credit>,
    session: Arc<Standing>,
}

impl Message {
    /// Just received.
    pub fn new(slot: Arc<Slot>, message: Inner, session: Arc<Standing>) -> Self {
        Self { credit: Arc::new(Credit { slot, message, released: AtomicBool::new(false) }), session }
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

    /// A number that the sender chose, such as a step.
    #[getter]
    fn tag(&self) -> u64 {
        self.credit.message.tag
    }

    /// Up to 24 bytes that travelled in the message itself.
    #[getter]
    fn inline<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.credit.message.inline)
    }

    /// The number of this message in the port, from 0.
    #[getter]
    fn position(&self) -> u64 {
        self.credit.message.position
    }

    /// Whether the producer has the credit back.
    #[getter]
    fn released(&self) -> bool {
        self.credit.released.load(Ordering::Relaxed)
    }

    /// The object that the handle names, as a Vector, Ndarray, String or Simple. Its region is attached if this process
    /// does not have it yet.
    ///
    /// `type` is only needed for a block without a name. While arrays of the object are alive and the message was not
    /// released explicitly, the producer does not get it back.
    #[pyo3(signature = (r#type=None))]
    fn load<'py>(&self, py: Python<'py>, r#type: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.credit.message.handle;
        if handle.is_none() {
            return Err(error(
                py,
                Status::BadHandle,
                format!(
                    "message {} of port '{}' carries no handle; look at its tag and inline bytes",
                    self.credit.message.position, self.credit.slot.name
                ),
            ));
        }
        if self.released() {
            return Err(error(
                py,
                Status::Invalid,
                format!(
                    "message {} of port '{}' is released, its data may be overwritten; load it before",
                    self.credit.message.position, self.credit.slot.name
                ),
            ));
        }
        let live = self.session.region_of(py, handle)?;
        objects::load(py, &live, handle, r#type, Some(&self.credit))
    }

    /// Gives the cell, and the data, back to the producer, which may then write the data again. Arrays loaded from this
    /// message stay valid memory, but their values may change.
    ///
    /// Messages may be released in any order, each once. The call never waits. InvalidError if the message is released
    /// already.
    pub fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.credit.slot.get(py)?;
        self.credit.release().or_raise(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Releases the message, unless the block failed: then a successor of this task gets the message again.
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
            self.credit.slot.name,
            message.tag,
            if message.handle.is_none() { "no handle".to_owned() } else { message.handle.to_string() },
            message.inline.len(),
            if self.released() { ", released" } else { "" }
        )
    }
}
