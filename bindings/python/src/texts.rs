//! The Python class for strings in shared memory.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::containers::Object;
use crate::errors::OrRaise;
use crate::headers;

/// A `string` in a region: a sequence of bytes, which should be UTF-8.
#[pyclass(frozen, extends = Object, name = "String", module = "crossdock")]
pub struct Text;

#[pymethods]
impl Text {
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(slf.as_super().get().object.shape(slf.py())?[0] as usize)
    }

    /// A copy of the text. Raises UnicodeDecodeError if the bytes are not UTF-8; then use `bytes`.
    #[getter]
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyString>> {
        let bytes = Self::bytes(slf)?;
        Ok(bytes.call_method1("decode", ("utf-8",))?.cast_into()?)
    }

    #[setter]
    fn set_value(slf: &Bound<'_, Self>, text: &str) -> PyResult<()> {
        assign(slf, text.as_bytes())
    }

    /// A copy of the bytes. Setting `value` or `bytes` replaces the bytes of the string, with the conditions and errors
    /// of `Vector.resize`.
    #[getter]
    fn bytes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyBytes>> {
        let (py, object) = (slf.py(), &slf.as_super().get().object);
        let _view = object.open_region.count_view(py, object.offset)?;
        let region = object.region(py)?;
        Ok(PyBytes::new(py, &headers::bytes(&region, object.offset).or_raise(py)?))
    }

    #[setter]
    fn set_bytes(slf: &Bound<'_, Self>, bytes: &[u8]) -> PyResult<()> {
        assign(slf, bytes)
    }

    fn __str__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyString>> {
        Self::value(slf)
    }
}

/// Replaces the bytes of a string.
fn assign(slf: &Bound<'_, Text>, bytes: &[u8]) -> PyResult<()> {
    let (py, object) = (slf.py(), &slf.as_super().get().object);
    object.region(py)?;
    let offset = object.offset;
    object.open_region.exclusively(py, offset, &object.what(), "changed", |r| headers::set_bytes(r, offset, bytes))
}
