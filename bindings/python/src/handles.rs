//! Handles in Python. They are immutable and hashable, and any workflow system can carry their sixteen bytes.

use crossdock_client::{Handle as Inner, Status};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::error;

/// The place of an object: a segment and an offset in it. A handle may be copied, compared, pickled and sent. It is
/// checked when a task loads the object.
#[pyclass(frozen, eq, hash, from_py_object, module = "crossdock")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The id of the segment. No other segment ever gets it.
    #[pyo3(get)]
    pub segment: u64,
    /// The offset of the object in bytes from the start of the segment.
    #[pyo3(get)]
    pub offset: u64,
}

impl From<Inner> for Handle {
    fn from(inner: Inner) -> Self {
        Self { segment: inner.segment, offset: inner.offset }
    }
}

impl From<Handle> for Inner {
    fn from(handle: Handle) -> Self {
        Self { segment: handle.segment, offset: handle.offset }
    }
}

#[pymethods]
impl Handle {
    /// Makes a handle from a segment's id and an offset: `Handle(segment, offset)`.
    #[new]
    fn new(segment: u64, offset: u64) -> Self {
        Self { segment, offset }
    }

    /// Returns the sixteen bytes, in the layout of C's `crossdock_handle`.
    #[allow(clippy::wrong_self_convention, reason = "a Python method takes a reference")]
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.segment.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_ne_bytes());
        PyBytes::new(py, &bytes)
    }

    /// Makes a handle from its sixteen bytes.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let Ok(bytes) = <[u8; 16]>::try_from(data) else {
            return Err(error(py, Status::Invalid, format!("a handle has 16 bytes, not {}", data.len())));
        };
        let half = |n: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[n + i]));
        Ok(Self { segment: half(0), offset: half(8) })
    }

    fn __bool__(&self) -> bool {
        self.segment != 0
    }

    fn __repr__(&self) -> String {
        format!("crossdock.Handle({}, {:#x})", self.segment, self.offset)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let this = slf.get();
        (slf.get_type(), (this.segment, this.offset)).into_pyobject(slf.py())
    }
}
