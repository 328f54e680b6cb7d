//! The Python classes for the objects of a region. Each Python object refers to shared memory and copies nothing. Its
//! `array` is a NumPy array over the shared memory.

use crossdock_client::{Order, Status};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{OrRaise, error};
use crate::handles::Handle;
use crate::headers;
use crate::objects::{Kind, ObjectRef};
use crate::sizes::count;
use crate::views::converted;
use crate::words::member;

/// An object of a region. It is a Vector, an Ndarray, a String or a Simple.
#[pyclass(frozen, subclass, module = "crossdock")]
pub struct Object {
    /// The place of the object in the region, and its kind.
    pub object: ObjectRef,
}

#[pymethods]
impl Object {
    /// The name of the object in the region; None if the object was opened by a handle and not by its name.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.object.name.as_deref()
    }

    /// The type of the object, written as in all languages, for example "vector<f64>".
    #[getter]
    fn r#type(&self) -> &str {
        &self.object.ty.name
    }

    /// The name of the region that the object is in.
    #[getter]
    fn region(&self) -> &str {
        &self.object.open_region.name
    }

    /// The dtype of an element.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.object.kind.dtype(py).into_any()
    }

    /// The handle of the object: sixteen bytes that name it in every process. Raises BadHandleError if the object was
    /// removed meanwhile.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Handle> {
        Ok(self.object.handle(py)?.into())
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.object.nbytes(py)
    }

    /// A NumPy array over the shared memory itself. Each use makes a new array object. While an array is alive, this
    /// process cannot resize or remove the object or close the region (BusyError). If the task may only read, the array
    /// is read-only. Raises CorruptError if the object's header in shared memory has impossible values.
    #[getter]
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.object.array(py)
    }

    /// `numpy.asarray(x)` calls this. It returns the array, without a copy unless a copy is asked for.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        converted(self.object.array(py)?, dtype, copy)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.object.array(py)?.get_item(key)
    }

    fn __setitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>, value: &Bound<'py, PyAny>) -> PyResult<()> {
        self.object.array(py)?.set_item(key, value)
    }

    fn __repr__(&self) -> String {
        let class = match self.object.kind {
            Kind::Vector(_) => "Vector",
            Kind::Ndarray(_) => "Ndarray",
            Kind::String(_) => "String",
            Kind::Simple(_) => "Simple",
        };
        let name =
            self.object.name.as_ref().map_or_else(|| format!("at {:#x}", self.object.offset), |n| format!("'{n}'"));
        format!("<crossdock.{class} {name} of region '{}': {}>", self.object.open_region.name, self.object.ty.name)
    }
}

/// A `vector<T>`: a sequence of elements that can grow.
#[pyclass(frozen, extends = Object, module = "crossdock")]
pub struct Vector;

#[pymethods]
impl Vector {
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(slf.as_super().get().object.shape(slf.py())?[0] as usize)
    }

    /// The number of elements for which the vector has room without moving.
    #[getter]
    fn capacity(slf: &Bound<'_, Self>) -> PyResult<u64> {
        let object = &slf.as_super().get().object;
        Ok(object.region(slf.py())?.vector_at(object.offset, object.element()).or_raise(slf.py())?.capacity)
    }

    /// Changes the number of elements to `size`. New elements are zero. The elements may move, so this process must
    /// have no array of the vector (BusyError), and no other task may be reading it. After a NoSpaceError the vector is
    /// unchanged.
    fn resize(slf: &Bound<'_, Self>, #[pyo3(from_py_with = count)] size: u64) -> PyResult<()> {
        let (py, object) = (slf.py(), &slf.as_super().get().object);
        object.region(py)?;
        let (offset, element) = (object.offset, object.element());
        object
            .open_region
            .exclusively(py, offset, &object.what(), "resized", |r| r.vector_resize(offset, element, size))
    }

    /// Makes room for `capacity` elements without changing the size. The conditions and errors are those of `resize`.
    fn reserve(slf: &Bound<'_, Self>, #[pyo3(from_py_with = count)] capacity: u64) -> PyResult<()> {
        let (py, object) = (slf.py(), &slf.as_super().get().object);
        object.region(py)?;
        let (offset, element) = (object.offset, object.element());
        object
            .open_region
            .exclusively(py, offset, &object.what(), "moved", |r| r.vector_reserve(offset, element, capacity))
    }
}

/// An `ndarray<T>`: elements in up to 8 dimensions, in C or Fortran order.
#[pyclass(frozen, extends = Object, module = "crossdock")]
pub struct Ndarray;

#[pymethods]
impl Ndarray {
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(slf.as_super().get().object.shape(slf.py())?.first().map_or(0, |n| *n as usize))
    }

    /// The number of elements in each dimension, as a tuple.
    #[getter]
    fn shape<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(slf.py(), slf.as_super().get().object.shape(slf.py())?)
    }

    /// The order of the elements: "C" (the last index varies fastest) or "F" (the first index varies fastest).
    #[getter]
    fn order(slf: &Bound<'_, Self>) -> PyResult<&'static str> {
        let object = &slf.as_super().get().object;
        Ok(object.ndarray(slf.py())?.order.word())
    }

    /// Gives the array another shape, and another order if `order` is given. The elements may move, so the conditions
    /// and errors are those of `Vector.resize`.
    #[pyo3(signature = (shape, *, order=None))]
    fn reshape(slf: &Bound<'_, Self>, shape: &Bound<'_, PyAny>, order: Option<&str>) -> PyResult<()> {
        let (py, object) = (slf.py(), &slf.as_super().get().object);
        let before = object.ndarray(py)?;
        let order = order.map_or(Ok(before.order), |order| order_of(py, order))?;
        let shape = shape_of(shape)?;
        let (offset, element) = (object.offset, object.element());
        let change = |r: &crossdock_client::Region| r.ndarray_reshape(offset, element, order, &shape);
        object.open_region.exclusively(py, offset, &object.what(), "reshaped", change)
    }
}

/// Reads an order, which is "C" or "F".
pub fn order_of(py: Python<'_>, order: &str) -> PyResult<Order> {
    member(py, "order", &order.to_uppercase())
}

/// Reads a shape in the forms that NumPy accepts: one number or several.
pub fn shape_of(given: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let shape = match given.extract::<u64>() {
        Ok(one) => vec![one],
        Err(_) => given.extract::<Vec<u64>>().map_err(|_| {
            error(given.py(), Status::Invalid, format!("shape {given:?} is no number and no row of numbers from 0"))
        })?,
    };
    if shape.len() > 8 {
        let text = format!("shape {shape:?} has {} dimensions; at most 8 are possible", shape.len());
        return Err(error(given.py(), Status::Invalid, text));
    }
    Ok(shape)
}

/// An object of fixed size: a number, a fixed array or a struct.
#[pyclass(frozen, extends = Object, module = "crossdock")]
pub struct Simple;

#[pymethods]
impl Simple {
    /// A copy of the value. It is a number, a tuple (for a struct) or an array.
    #[getter]
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let array = slf.as_super().get().object.array(slf.py())?;
        match array.getattr("ndim")?.extract::<usize>()? {
            0 => array.call_method0("item"),
            _ => array.call_method0("copy"),
        }
    }

    #[setter]
    fn set_value(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.as_super().get().object.array(slf.py())?.set_item(slf.py().Ellipsis(), value)
    }
}

/// Opens the object that `claim` made or found. A new object is linked to its region and filled by `fill`; other tasks
/// can open it only after that.
pub fn settle(
    py: Python<'_>,
    region: &crossdock_client::Region,
    claim: crossdock_client::Claim,
    container: bool,
    fill: impl FnOnce() -> crossdock_client::Result<()> + Send,
) -> PyResult<()> {
    if !claim.created {
        return Ok(());
    }
    if container {
        headers::tie(region, claim.offset);
    }
    let done = py.detach(|| match fill() {
        Ok(()) => region.commit_or_abandon(claim.offset),
        Err(e) => {
            // The caller needs the error of the first failure, so an error of `abandon` is ignored.
            let _ = region.abandon(claim.offset);
            Err(e)
        }
    });
    done.or_raise(py)
}
