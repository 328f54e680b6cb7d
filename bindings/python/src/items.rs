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
use crate::item_words::check_plain;
use crate::open_items::{Access, OpenItem};
use crate::regions::Region;
use crate::session_state::SessionState;
use crate::sizes::count;
use crate::views::{ArrayLayout, array_over, converted, lock};
use crate::wait::deadline;
use crate::words::member;

/// An item that this task owns or reads. `Session.create_item`, `access_item`, `access_any` and `read_item` make it. As
/// a context manager it closes the item in this process; if this task owns the item, it stays the owner.
///
/// `transfer`, `share`, `unshare`, `resize` and `destroy` take the memory away from this process. They raise BusyError
/// while arrays over the memory are alive, and they release the view that `memory` gave. After the item was handed on,
/// every call raises ClosedError.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Item {
    item: Arc<OpenItem>,
    session: Arc<SessionState>,
    /// The memoryview that `memory` gave. This memoryview must be released before the item's memory goes to another
    /// task.
    memory: std::sync::Mutex<Option<Py<PyMemoryView>>>,
}

impl Item {
    /// Makes the Python object for an item that this process has just opened.
    pub fn new(session: &Arc<SessionState>, access: Access) -> Self {
        let item = Arc::new(OpenItem::new(access));
        session.keep_item(&item);
        Self { item, session: session.clone(), memory: std::sync::Mutex::default() }
    }

    fn exclusively<T: Send>(
        &self,
        py: Python<'_>,
        verb: &str,
        change: impl FnOnce(&mut Access) -> crossdock_client::Result<T> + Send,
    ) -> PyResult<T> {
        self.refuse_arrays(py, verb)?;
        self.release_memory(py, verb)?;
        self.item.exclusively(py, verb, change)
    }

    /// Fails if an array over the item's memory is alive. The array behind the memoryview that the property `memory`
    /// has given does not count. A call that fails must leave this memoryview valid, so the check comes before its
    /// release.
    fn refuse_arrays(&self, py: Python<'_>, verb: &str) -> PyResult<()> {
        let behind = usize::from(lock(&self.memory).is_some());
        self.item.refuse_views(py, verb, behind)
    }

    /// Releases the memoryview that `memory` gave. After that, code that still uses the memoryview gets a ValueError.
    fn release_memory(&self, py: Python<'_>, verb: &str) -> PyResult<()> {
        let Some(memory) = lock(&self.memory).take() else { return Ok(()) };
        match memory.call_method0(py, "release") {
            Ok(_) => Ok(()),
            Err(e) if e.is_instance_of::<PyBufferError>(py) => {
                *lock(&self.memory) = Some(memory);
                let key = &self.item.key;
                let text = format!(
                    "item '{key}' cannot be {verb}: something is a view of its memory; let go of it (del) first"
                );
                Err(error(py, Status::Busy, text))
            }
            Err(e) => Err(e),
        }
    }

    /// Chooses dtype, shape and order of an array. Each comes from the caller, or by default from the item's
    /// description.
    fn layout<'py>(
        &self,
        py: Python<'py>,
        size: u64,
        dtype: Option<&Bound<'py, PyAny>>,
        shape: Option<&Bound<'py, PyAny>>,
        order: Option<&str>,
    ) -> PyResult<ArrayLayout<'py>> {
        let order = order.map(|o| order_of(py, o)).transpose()?;
        if dtype.is_none() && shape.is_none() {
            if let Contents::Array { ty, shape, order: its } = self.item.contents(py)? {
                let dtype = from_type(py, &parse(py, &ty)?, &ty)?;
                let fortran = order.unwrap_or(its) == Order::Fortran;
                return Ok(ArrayLayout { dtype, shape, fortran, data: 0 });
            }
        }
        let dtype = dtype.map_or_else(|| PyArrayDescr::new(py, "u1"), to_dtype)?;
        check_plain(py, &dtype)?;
        let element = (dtype.itemsize() as u64).max(1);
        let shape = shape.map_or_else(|| Ok(vec![size / element]), shape_of)?;
        let bytes = shape.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent));
        if bytes.is_none_or(|bytes| bytes > size) {
            let text = format!("item '{}' has {size} bytes; {dtype} of shape {shape:?} does not fit", self.item.key);
            return Err(error(py, Status::Invalid, text));
        }
        Ok(ArrayLayout { dtype, shape, fortran: order == Some(Order::Fortran), data: 0 })
    }
}

#[pymethods]
impl Item {
    /// The item's key in the workflow.
    #[getter]
    fn key(&self) -> &str {
        &self.item.key
    }

    /// The number of bytes of data.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.item.bytes(py)?.size)
    }

    /// The number of bytes of data. The attribute has the name that NumPy uses.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.size(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.item.bytes(py)?.size as usize)
    }

    /// True if this process can write the item: the item belongs to this task and is not shared.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.item.bytes(py)?.writable)
    }

    /// True if the item was handed on or destroyed, or was closed by this process.
    #[getter]
    fn closed(&self) -> bool {
        self.item.is_closed()
    }

    /// The item's bytes as a memoryview, for code that needs a buffer. Each use gives the same memoryview. The
    /// memoryview is released when the item is handed on; code that still uses it afterwards gets a ValueError.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        let known = lock(&self.memory).as_ref().map(|memory| memory.clone_ref(py));
        if let Some(memory) = known {
            self.item.bytes(py)?;
            return Ok(memory.into_bound(py));
        }
        let made = PyMemoryView::from(self.bytes_array(py)?.as_any())?;
        // Another thread may have made a memoryview meanwhile. Then this call gives that memoryview: the item keeps
        // only one memoryview, and must be able to release each one that it has given.
        let known = {
            let mut memory = lock(&self.memory);
            let known = memory.as_ref().map(|memory| memory.clone_ref(py));
            if known.is_none() {
                *memory = Some(made.clone().unbind());
            }
            known
        };
        Ok(known.map_or(made, |memory| memory.into_bound(py)))
    }

    /// Makes a NumPy array over the item's memory. Each call makes a new array object. Without arguments the array has
    /// the dtype and shape that the item's creator gave to `create_item`; if the creator gave none, it is an array of
    /// bytes. The default of `shape` is as many elements as fit.
    ///
    /// While an array is alive, the item cannot be handed on (BusyError). Raises InvalidError if the array would be
    /// larger than the item, and ClosedError if the item is closed.
    #[pyo3(signature = (dtype=None, shape=None, *, order=None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        shape: Option<&Bound<'py, PyAny>>,
        order: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size = self.item.bytes(py)?.size;
        let layout = self.layout(py, size, dtype, shape, order)?;
        let (bytes, view) = self.item.view(py)?;
        let base = Py::new(py, view)?.into_any();
        if bytes.size < size {
            let text = format!("item '{}' was made smaller by another thread; look again", self.item.key);
            return Err(error(py, Status::Busy, text));
        }
        // SAFETY: the shape was checked against the item's size, and `base` keeps the memory mapped at its address.
        unsafe { array_over(py, bytes.base.cast::<c_void>(), layout, bytes.writable, base) }
    }

    /// `numpy.asarray(item)` calls this. It returns the array, without a copy unless a copy is asked for.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        converted(self.array(py, None, None, None)?, dtype, copy)
    }

    /// Functions like `from_dlpack` of other libraries call this. It returns the array without a copy. While the other
    /// library keeps the array, the array counts as a view of the item's memory.
    #[pyo3(signature = (**arguments))]
    fn __dlpack__<'py>(&self, py: Python<'py>, arguments: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, None, None, None)?.call_method("__dlpack__", (), arguments)
    }

    /// Tells other libraries that the item's memory belongs to the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// The buffer protocol, with the array that `array()` gives. It works from Python 3.12 on, where
    /// `crossdock/__init__.py` sets `__buffer__`. With an older Python, use `memory`.
    fn _buffer<'py>(&self, py: Python<'py>, _flags: i32) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.array(py, None, None, None)?.as_any())
    }

    /// Opens the heap in the item. It has named objects as a region has. `mode` is create_only (makes the heap in the
    /// item's zero bytes, at least 256 KiB), open_only (opens a heap that exists; WrongTypeError if there is none),
    /// open_or_create or recreate. Before you hand the item on or recreate the heap, close the heap and let go of its
    /// arrays (BusyError otherwise).
    #[pyo3(signature = (mode="open_or_create"))]
    fn region(&self, py: Python<'_>, mode: &str) -> PyResult<Region> {
        let mode: Mode = member(py, "mode", mode)?;
        let region = self.item.beside_views(py, "opened as a heap", move |access| heap(access, mode))?;
        Ok(Region::new(self.session.shared(region)))
    }

    /// Hands the item to another task in one step. `to` is "combine" (the first rank of the task that accesses it),
    /// "detect/1" (rank 1 of the task), or "#7" (the task that registers the number 7). The task need not exist yet. If
    /// a task waits for the item, it gets the item immediately.
    ///
    /// Raises InvalidError (`to` is not a possible name of a task, or names this task), DeniedError (that task has no
    /// grant to own the item), BusyError (there are views, or the heap in the item is open) or ClosedError (the item is
    /// no longer open in this process). After an error this task still has the item.
    fn transfer(&self, py: Python<'_>, to: String) -> PyResult<()> {
        self.exclusively(py, "transferred", move |access| access.owned()?.transfer_mut(&to))
    }

    /// Makes a new item with the same bytes. This task owns the new item, which is independent of the first item. The
    /// errors are those of `Session.create_item`.
    fn copy(&self, py: Python<'_>, key: String) -> PyResult<Self> {
        let made = self.item.beside_views(py, "copied", |access| access.owned()?.copy(&key))?;
        Ok(Self::new(&self.session, Access::Own(Own::new(made))))
    }

    /// Destroys the item. Tasks that wait for it get a NotFoundError.
    fn destroy(&self, py: Python<'_>) -> PyResult<()> {
        self.exclusively(py, "destroyed", |access| access.owned()?.destroy_mut())
    }

    /// Lets other tasks read the item with `Session.read_item`. Until `unshare`, no task can write it, not even this
    /// one.
    fn share(&self, py: Python<'_>) -> PyResult<()> {
        self.exclusively(py, "shared", |access| {
            let shared = access.owned()?.share_mut()?;
            *access = Access::Shared(Own::new(shared));
            Ok(())
        })
    }

    /// Ends the sharing. The call waits up to `timeout` seconds (None: 60) until the readers have closed the item. A
    /// reader that has not closed the item by then keeps the old bytes, and this task gets a copy of its own.
    #[pyo3(signature = (*, timeout=None))]
    fn unshare(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let total = deadline(py, timeout)?;
        self.refuse_arrays(py, "taken back")?;
        self.release_memory(py, "taken back")?;
        self.item.exclusively_in_thread(py, "taken back", move |access| {
            let Access::Shared(shared) = access else {
                let item = access.owned()?;
                return Err(Error::new(Status::Invalid, format!("item '{}' is not shared", item.key())));
            };
            let own = shared.unshare_mut(Some(total))?;
            *access = Access::Own(Own::new(own));
            Ok(())
        })
    }

    /// Gives the item another size. The bytes up to the smaller of the two sizes stay as they are; new bytes are zero.
    /// After an InvalidError or a NoSpaceError the item is unchanged.
    fn resize(&self, py: Python<'_>, #[pyo3(from_py_with = count)] size: u64) -> PyResult<()> {
        self.exclusively(py, "resized", move |access| access.owned()?.resize(size))
    }

    /// Closes the item in this process. If this task owns the item, it stays the owner and can access the item again.
    /// Arrays that are still alive keep the memory until they are gone.
    fn close(&self, py: Python<'_>) {
        if self.release_memory(py, "closed").is_err() {
            // The memoryview cannot be released, because another object uses it as its buffer. The memoryview
            // disappears together with that object.
            drop(lock(&self.memory).take());
        }
        py.detach(|| self.item.let_go());
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
        match self.item.bytes(py) {
            Ok(bytes) => {
                let way = if bytes.writable { "owned" } else { "shared" };
                format!("<crossdock.Item '{}': {} bytes, {way}>", self.item.key, bytes.size)
            }
            Err(_) => format!("<crossdock.Item '{}': closed>", self.item.key),
        }
    }
}

impl Item {
    fn bytes_array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let byte = PyArrayDescr::new(py, "u1")?;
        self.array(py, Some(byte.as_any()), None, None)
    }
}

fn heap(access: &mut Access, mode: Mode) -> crossdock_client::Result<crossdock_client::Region> {
    match (mode, &mut *access) {
        (Mode::OpenOnly, Access::Read(view)) => view.region(),
        (Mode::OpenOnly, Access::Shared(shared)) => shared.region(),
        _ => access.owned()?.open_region(mode),
    }
}
