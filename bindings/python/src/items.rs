//! Items in Python: data that exactly one task owns.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_client::{Contents, Error, Mode, Order, Status};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyType};

use crate::containers::{order_of, shape_of};
use crate::dtypes::{from_type, parse, to_dtype};
use crate::errors::error;
use crate::fork::Own;
use crate::holds::{Grip, Hold};
use crate::item_words::check_plain;
use crate::regions::Region;
use crate::sizes::count;
use crate::standing::Standing;
use crate::views::{Shown, array_over, converted, lock};
use crate::wait::deadline;
use crate::words::member;

/// An item that this task owns, or reads. Made by `Session.create_item`, `access_item`, `access_any`, `read_item`. A
/// context manager, which closes the item here: an item that this task owns stays its own.
///
/// `transfer`, `share`, `unshare`, `resize` and `destroy` take the memory away. They fail (BusyError) while arrays of
/// it are alive. They release the views that `memory` gave. An item that was handed on gives ClosedError for
/// everything.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Item {
    hold: Arc<Hold>,
    session: Arc<Standing>,
    /// The view that `memory` gave. It is released before the memory goes away.
    memory: std::sync::Mutex<Option<Py<PyMemoryView>>>,
}

impl Item {
    /// An item that was just opened.
    pub fn new(session: &Arc<Standing>, grip: Grip) -> Self {
        let hold = Arc::new(Hold::new(grip));
        session.keep_item(&hold);
        Self { hold, session: session.clone(), memory: std::sync::Mutex::default() }
    }

    fn exclusively<T: Send>(
        &self,
        py: Python<'_>,
        verb: &str,
        change: impl FnOnce(&mut Grip) -> crossdock_client::Result<T> + Send,
    ) -> PyResult<T> {
        self.release_memory(py, verb)?;
        self.hold.exclusively(py, verb, change)
    }

    /// Releases the memoryview that `memory` gave. Code that still has it gets ValueError from now on.
    fn release_memory(&self, py: Python<'_>, verb: &str) -> PyResult<()> {
        let Some(memory) = lock(&self.memory).take() else { return Ok(()) };
        match memory.call_method0(py, "release") {
            Ok(_) => Ok(()),
            Err(e) if e.is_instance_of::<PyBufferError>(py) => {
                *lock(&self.memory) = Some(memory);
                let key = &self.hold.key;
                let text = format!(
                    "item '{key}' cannot be {verb}: something is a view of its memory; let go of it (del) first"
                );
                Err(error(py, Status::Busy, text))
            }
            Err(e) => Err(e),
        }
    }

    /// dtype, shape and order: those of the caller, otherwise those that the item's description has.
    fn shown<'py>(
        &self,
        py: Python<'py>,
        size: u64,
        dtype: Option<&Bound<'py, PyAny>>,
        shape: Option<&Bound<'py, PyAny>>,
        order: Option<&str>,
    ) -> PyResult<Shown<'py>> {
        let order = order.map(|o| order_of(py, o)).transpose()?;
        if dtype.is_none() && shape.is_none() {
            if let Contents::Array { ty, shape, order: its } = self.hold.contents(py)? {
                let dtype = from_type(py, &parse(py, &ty)?, &ty)?;
                let fortran = order.unwrap_or(its) == Order::Fortran;
                return Ok(Shown { dtype, shape, fortran, data: 0 });
            }
        }
        let dtype = dtype.map_or_else(|| PyArrayDescr::new(py, "u1"), to_dtype)?;
        check_plain(py, &dtype)?;
        let element = (dtype.itemsize() as u64).max(1);
        let shape = shape.map_or_else(|| Ok(vec![size / element]), shape_of)?;
        let bytes = shape.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent));
        if bytes.is_none_or(|bytes| bytes > size) {
            let text = format!("item '{}' has {size} bytes; {dtype} of shape {shape:?} does not fit", self.hold.key);
            return Err(error(py, Status::Invalid, text));
        }
        Ok(Shown { dtype, shape, fortran: order == Some(Order::Fortran), data: 0 })
    }
}

#[pymethods]
impl Item {
    /// The item's key in the workflow.
    #[getter]
    fn key(&self) -> &str {
        &self.hold.key
    }

    /// Bytes of data.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.hold.bytes(py)?.size)
    }

    /// The number of bytes, under NumPy's name.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.size(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.hold.bytes(py)?.size as usize)
    }

    /// Whether this process can write the item: it belongs to this task and is not shared.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.hold.bytes(py)?.writable)
    }

    /// Whether it was handed on, destroyed or closed here.
    #[getter]
    fn closed(&self) -> bool {
        self.hold.is_closed()
    }

    /// The item's bytes as a memoryview, for code that takes a buffer. Each use gives the same view. It is released
    /// when the item is handed on (ValueError for code that still has it).
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        let known = lock(&self.memory).as_ref().map(|memory| memory.clone_ref(py));
        if let Some(memory) = known {
            self.hold.bytes(py)?;
            return Ok(memory.into_bound(py));
        }
        let made = PyMemoryView::from(self.bytes_array(py)?.as_any())?;
        *lock(&self.memory) = Some(made.clone().unbind());
        Ok(made)
    }

    /// A NumPy array over the item's memory. Each use makes a new array object. Without arguments: as the item's maker
    /// described it (`create_item(dtype=, shape=)`), otherwise its bytes. `shape` defaults to as many elements as fit.
    ///
    /// While an array is alive, the item cannot be handed on (BusyError). InvalidError: the array is larger than the
    /// item. ClosedError.
    #[pyo3(signature = (dtype=None, shape=None, *, order=None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        shape: Option<&Bound<'py, PyAny>>,
        order: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size = self.hold.bytes(py)?.size;
        let shown = self.shown(py, size, dtype, shape, order)?;
        let (bytes, view) = self.hold.view(py)?;
        let base = Py::new(py, view)?.into_any();
        if bytes.size < size {
            let text = format!("item '{}' was made smaller by another thread; look again", self.hold.key);
            return Err(error(py, Status::Busy, text));
        }
        // SAFETY: the shape was checked against the size, and the base keeps the memory where it is.
        unsafe { array_over(py, bytes.base.cast::<c_void>(), shown, bytes.writable, base) }
    }

    /// What `numpy.asarray(item)` calls: the array, without a copy unless asked.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        converted(self.array(py, None, None, None)?, dtype, copy)
    }

    /// For `from_dlpack` of other libraries: the array, without a copy. It counts as a view while such a library keeps
    /// it.
    #[pyo3(signature = (**arguments))]
    fn __dlpack__<'py>(&self, py: Python<'py>, arguments: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, None, None, None)?.call_method("__dlpack__", (), arguments)
    }

    /// The memory is the CPU's.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// The buffer protocol for the array that `array()` gives, from Python 3.12 on (`crossdock/__init__.py` sets
    /// `__buffer__`). With an older Python use `memory`.
    fn _buffer<'py>(&self, py: Python<'py>, _flags: i32) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.array(py, None, None, None)?.as_any())
    }

    /// The heap in the item, with objects as in any region. create_only makes it in the item's zero bytes (at least 256
    /// KiB), open_only finds a heap that another task made (WrongTypeError: there is none), open_or_create, recreate.
    /// Close it before the item is handed on; until then that is a BusyError.
    #[pyo3(signature = (mode="open_or_create"))]
    fn region(&self, py: Python<'_>, mode: &str) -> PyResult<Region> {
        let mode: Mode = member(py, "mode", mode)?;
        let region = self.hold.beside_views(py, "opened as a heap", move |grip| heap(grip, mode))?;
        Ok(Region::new(self.session.shared(region)))
    }

    /// Hands the item to a task in one step: "combine" (the first rank that accesses it), "detect/1" (rank 1), "#7"
    /// (the task that registers 7). The task need not exist yet. A task that waits gets it at once.
    ///
    /// InvalidError (no such name, or this task itself), DeniedError, BusyError (views), ClosedError. After an error
    /// this task still has the item.
    fn transfer(&self, py: Python<'_>, to: String) -> PyResult<()> {
        self.exclusively(py, "transferred", move |grip| grip.owned()?.transfer_mut(&to))
    }

    /// A new item with the same bytes, owned by this task and independent of this one. Errors as `Session.create_item`.
    fn copy(&self, py: Python<'_>, key: String) -> PyResult<Self> {
        let made = self.hold.beside_views(py, "copied", |grip| grip.owned()?.copy(&key))?;
        Ok(Self::new(&self.session, Grip::Own(Own::new(made))))
    }

    /// Destroys the item. Tasks that wait for it get NotFoundError.
    fn destroy(&self, py: Python<'_>) -> PyResult<()> {
        self.exclusively(py, "destroyed", |grip| grip.owned()?.destroy_mut())
    }

    /// Lets other tasks read the item (`Session.read_item`). No task can write it, this one included, until `unshare`.
    fn share(&self, py: Python<'_>) -> PyResult<()> {
        self.exclusively(py, "shared", |grip| {
            let shared = grip.owned()?.share_mut()?;
            *grip = Grip::Shared(Own::new(shared));
            Ok(())
        })
    }

    /// Ends the sharing. Readers have `timeout` seconds (None: 60) to close it. A reader that does not keeps the bytes
    /// as they were, and this task gets a copy of its own.
    #[pyo3(signature = (*, timeout=None))]
    fn unshare(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let total = deadline(py, timeout)?;
        self.exclusively(py, "taken back", move |grip| {
            let Grip::Shared(shared) = grip else {
                let item = grip.owned()?;
                return Err(Error::new(Status::Invalid, format!("item '{}' is not shared", item.key())));
            };
            let own = shared.unshare_mut(Some(total))?;
            *grip = Grip::Own(Own::new(own));
            Ok(())
        })
    }

    /// Gives the item another size. Old bytes stay as far as they fit, and new ones are zero. InvalidError,
    /// NoSpaceError: it is unchanged.
    fn resize(&self, py: Python<'_>, #[pyo3(from_py_with = count)] size: u64) -> PyResult<()> {
        self.exclusively(py, "resized", move |grip| grip.owned()?.resize(size))
    }

    /// Closes the item here. An item that this task owns stays its own: access it again. Arrays that are still alive
    /// keep the memory until they are gone.
    fn close(&self, py: Python<'_>) {
        if self.release_memory(py, "closed").is_err() {
            // An object uses the memoryview as its buffer. The view goes with that object.
            drop(lock(&self.memory).take());
        }
        py.detach(|| self.hold.let_go());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (_kind, _value, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.hold.bytes(py) {
            Ok(bytes) => {
                let way = if bytes.writable { "owned" } else { "shared" };
                format!("<crossdock.Item '{}': {} bytes, {way}>", self.hold.key, bytes.size)
            }
            Err(_) => format!("<crossdock.Item '{}': closed>", self.hold.key),
        }
    }
}

impl Item {
    fn bytes_array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let byte = PyArrayDescr::new(py, "u1")?;
        self.array(py, Some(byte.as_any()), None, None)
    }
}

fn heap(grip: &mut Grip, mode: Mode) -> crossdock_client::Result<crossdock_client::Region> {
    match (mode, &mut *grip) {
        (Mode::OpenOnly, Grip::Read(view)) => view.region(),
        (Mode::OpenOnly, Grip::Shared(shared)) => shared.region(),
        _ => grip.owned()?.open_region(mode),
    }
}
