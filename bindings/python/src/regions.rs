//! Regions in Python: memory that tasks share, with named objects in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_client::{Region as Inner, Status};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use crate::containers::{order_of, settle, shape_of};
use crate::errors::{OrRaise, error};
use crate::handles::Handle;
use crate::objects::{self, Kind, ObjectRef, handle_of, look_up, type_ref};
use crate::sizes::count;
use crate::views::{OpenRegion, one_less};

/// A region of the workflow, mapped in this process. `Session.region` makes it. It is a context manager.
#[pyclass(frozen, module = "crossdock")]
pub struct Region {
    /// The state that all Region objects of the same region share.
    pub(crate) open_region: Arc<OpenRegion>,
    /// Tells whether this Region object was closed.
    pub(crate) closed: AtomicBool,
}

impl Region {
    /// Makes one more Region object for a mapped region.
    pub fn new(open_region: Arc<OpenRegion>) -> Self {
        open_region.opens.fetch_add(1, Ordering::Relaxed);
        Self { open_region, closed: AtomicBool::new(false) }
    }
}

#[pymethods]
impl Region {
    /// The region's name.
    #[getter]
    fn name(&self) -> &str {
        &self.open_region.name
    }

    /// The id of the segment, which handles contain. No other segment ever gets it.
    #[getter]
    fn segment(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.id().0)
    }

    /// The number of bytes to which the region can grow. Memory is taken when it is used.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.capacity())
    }

    /// True if this task may write to the region.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.writable())
    }

    /// True if this object was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || !self.open_region.is_open()
    }

    /// Opens or makes a `vector<T>`, which can grow. A new vector has `size` elements, all zero.
    ///
    /// `dtype` is a NumPy dtype such as 'f8', numpy.float32, ('f8', 3) or an aligned structured dtype. It may be left
    /// out for a vector that exists. `mode` is open_or_create, open_only, create_only or recreate. `timeout` is how
    /// many seconds open_only waits for a vector that does not exist (None: it does not wait). Raises WrongTypeError if
    /// the object has another type (the message has both), ExistsError if create_only finds an object of this name,
    /// NotFoundError if open_only without a timeout finds none, TimedOutError if open_only with a timeout finds none,
    /// NoSpaceError if the region, the quota or the node is full, and InvalidError for a wrong name or dtype.
    #[pyo3(signature = (name, dtype=None, size=0, *, mode="open_or_create", timeout=None))]
    fn vector<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = count)] size: u64,
        mode: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fill = |r: &Inner, offset, element| if size == 0 { Ok(()) } else { r.vector_resize(offset, element, size) };
        let options = Self::open_options(py, mode, timeout)?.with_elements(size);
        let object = self.open_as(py, name, dtype, |of| format!("vector<{of}>"), options, fill)?;
        match object.kind {
            Kind::Vector(_) => object.into_object(py),
            _ => Self::wrong_kind(py, &object, "vector"),
        }
    }

    /// Opens or makes an `ndarray<T>` of up to 8 dimensions. `order` is "C" or "F". Shape and order may be left out for
    /// an ndarray that exists; if they are given and differ from its own, an InvalidError is raised. The other
    /// arguments and errors are those of `vector`.
    #[pyo3(signature = (name, shape=None, dtype=None, *, order=None, mode="open_or_create", timeout=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn ndarray<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        shape: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        order: Option<&str>,
        mode: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shape = shape.map(shape_of).transpose()?;
        let wanted = order.map(|o| order_of(py, o)).transpose()?;
        let filled = (shape.clone().unwrap_or_else(|| vec![0]), wanted.unwrap_or(crossdock_client::Order::C));
        let elements = filled.0.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).unwrap_or(u64::MAX);
        let fill = move |r: &Inner, at, element| r.ndarray_reshape(at, element, filled.1, &filled.0);
        let options = Self::open_options(py, mode, timeout)?.with_elements(elements);
        let object = self.open_as(py, name, dtype, |of| format!("ndarray<{of}>"), options, fill)?;
        if !matches!(object.kind, Kind::Ndarray(_)) {
            return Self::wrong_kind(py, &object, "ndarray");
        }
        let there = self.open_region.get(py)?.ndarray_at(object.offset, object.element()).or_raise(py)?;
        let same = shape.as_ref().is_none_or(|s| *s == there.shape()) && wanted.is_none_or(|o| o == there.order);
        if !same {
            let text = format!(
                "ndarray '{name}' of region '{}' has shape {:?} in order {}, not {:?} in order {}; leave them out to take \
                 it as it is, or call its reshape",
                self.open_region.name,
                there.shape(),
                there.order.word(),
                shape.unwrap_or_default(),
                order.unwrap_or("C")
            );
            return Err(error(py, Status::Invalid, text));
        }
        object.into_object(py)
    }

    /// Opens or makes an object of fixed size: a number ('f8'), a fixed array (('f4', (4, 8))) or a struct (an aligned
    /// structured dtype). A new object is zero. The other arguments and errors are those of `vector`.
    #[pyo3(signature = (name, dtype=None, *, mode="open_or_create", timeout=None))]
    fn simple<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        dtype: Option<&Bound<'py, PyAny>>,
        mode: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Self::open_options(py, mode, timeout)?;
        let object = self.open_as(py, name, dtype, str::to_owned, options, |_, _, _| Ok(()))?;
        match object.kind {
            Kind::Simple(_) => object.into_object(py),
            _ => Self::wrong_kind(py, &object, "simple object"),
        }
    }

    /// Opens or makes a `string`. `value` is the text of a new string. The other arguments and errors are those of
    /// `vector`.
    #[pyo3(signature = (name, value=None, *, mode="open_or_create", timeout=None))]
    fn string<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        value: Option<&str>,
        mode: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = value.unwrap_or_default().as_bytes();
        let fill = |r: &Inner, offset, _| crate::headers::set_bytes(r, offset, bytes);
        let options = Self::open_options(py, mode, timeout)?.with_elements(bytes.len() as u64);
        let ty = type_ref(py, "string".to_owned())?;
        let claim = self.claim(py, name, &ty, 1, options)?;
        let region = self.open_region.get(py)?;
        settle(py, &region, claim, true, || fill(&region, claim.offset, 1))?;
        let kind = Kind::of(py, "string", None)?;
        ObjectRef::opened(py, &self.open_region, (name, claim.offset), ty, kind)?.into_object(py)
    }

    /// Opens the object of this name, whatever its kind. `timeout` is how many seconds to wait for it (None: it does
    /// not wait).
    #[pyo3(signature = (name, *, timeout=None))]
    fn open<'py>(&self, py: Python<'py>, name: &str, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let options = Self::open_options(py, "open_only", timeout)?;
        self.open_as(py, name, None, str::to_owned, options, |_, _, _| Ok(()))?.into_object(py)
    }

    /// Returns the handle of an object of this region, or of an array over a whole object.
    fn save(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Handle> {
        let region = self.get(py)?;
        let (handle, _) = handle_of(object)?;
        if !region.is_named_by(handle.segment) {
            let text =
                format!("{object:?} is not in region '{}' but in segment {}", self.open_region.name, handle.segment);
            return Err(error(py, Status::BadHandle, text));
        }
        Ok(handle.into())
    }

    /// Loads the object that a handle names, as a Vector, Ndarray, String or Simple. The type of a named object is
    /// known from the region. If `type` (a dtype, or a name such as "vector<f64>") is given, the object must have this
    /// type (WrongTypeError). Raises BadHandleError if the handle names no object of this region.
    #[pyo3(signature = (handle, r#type=None))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        handle: Handle,
        r#type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py)?;
        objects::load(py, &self.open_region, handle.into(), r#type, None)
    }

    /// Removes a named object and frees its memory. Handles to it become invalid. Raises BusyError while an array of
    /// the object is alive in this process. No other task may be using the object.
    pub(crate) fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let offset = look_up(py, &self.get(py)?, |region| region.find(name))?.offset;
        self.open_region.exclusively(py, offset, &format!("object '{name}'"), "removed", |r| r.remove(name).map(|_| ()))
    }

    /// Lists the named objects as tuples (name, type, size, offset), sorted by name.
    fn objects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let class = py.import("crossdock._records")?.getattr("ObjectInfo")?;
        let list = PyList::empty(py);
        for object in look_up(py, &self.get(py)?, |region| region.objects())? {
            list.append(class.call1((object.name, object.ty.name, object.ty.size, object.offset))?)?;
        }
        Ok(list)
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        look_up(py, &self.get(py)?, |region| match region.find(name) {
            Ok(_) => Ok(true),
            Err(e) if e.status == Status::NotFound => Ok(false),
            Err(e) => Err(e),
        })
    }

    /// Statistics of the region as a dict: capacity, reserved, used and largest_free in bytes, and the numbers of
    /// blocks, objects and slots.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.get(py)?.statistics();
        let all = PyDict::new(py);
        for (name, value) in [
            ("capacity", s.capacity),
            ("reserved", s.reserved),
            ("used", s.used),
            ("blocks", s.blocks),
            ("objects", s.objects),
            ("slots", s.slots),
            ("largest_free", s.largest_free),
        ] {
            all.set_item(name, value)?;
        }
        Ok(all)
    }

    /// Closes the region in this process. Raises BusyError if this is the last open Region object of the region and
    /// arrays of the region are alive. The region itself exists until it is removed or its workflow ends. Closing twice
    /// does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.open_region.opens.load(Ordering::Relaxed) == 1 && self.open_region.is_open() {
            self.open_region.refuse_if_any_view(py)?;
        }
        self.let_go();
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the region at the end of a `with` block. Arrays that are still alive are no error; they keep the memory
    /// until they are gone.
    #[pyo3(signature = (_kind, _value, _trace))]
    fn __exit__(
        &self,
        _kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) {
        self.let_go();
    }

    fn __repr__(&self) -> String {
        format!("<crossdock.Region '{}'{}>", self.open_region.name, if self.closed() { ", closed" } else { "" })
    }
}

impl Region {
    fn let_go(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) && one_less(&self.open_region.opens) == 0 {
            self.open_region.let_go();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Objects that were opened through this region stay usable. The region is unmapped when the last of them is
        // gone.
        if !*self.closed.get_mut() {
            one_less(&self.open_region.opens);
        }
    }
}
