//! Makes NumPy arrays over shared memory, and counts them.
//!
//! Each array has an [`ArrayBase`] as its base object. Arrays that are made from it (slices, `memoryview`, DLPack) keep
//! that base. The base counts as one view of the object whose memory the array shows, and keeps the region mapped, so
//! no array ever points to unmapped memory. While an object has a view, calls that would move or free its memory raise
//! `BusyError`, also in another session of the process, and after the region was closed and opened again.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crossdock_client::{PerProcess, ProcessToken, Region, Result, SegmentId, Status};
use numpy::npyffi::flags::NPY_ARRAY_WRITEABLE;
use numpy::npyffi::{NpyTypes, PY_ARRAY_API, PyArrayObject, get_type_object, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;

use crate::errors::{OrRaise, error};
use crate::fork::{Own, OwnLock, elsewhere};
use crate::messages::Credit;

/// The part of an error message that says how many arrays are views of an object or item.
pub fn viewed(count: usize) -> String {
    match count {
        1 => "1 array is a view of it; let go of it (del) first".to_owned(),
        _ => format!("{count} arrays are views of it; let go of them (del) first"),
    }
}

/// Locks a mutex. It also works after a panic in another thread, because the guarded data is consistent after every
/// statement.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The use of an object's memory in this process.
enum MemoryUse {
    /// The number of live NumPy arrays over the memory.
    Views(usize),
    /// A thread of this process moves or frees the object. In a forked child, where this thread does not run, the
    /// object counts as unused.
    Moving(ProcessToken),
}

impl MemoryUse {
    fn is_moving(&self) -> bool {
        matches!(self, Self::Moving(process) if process.is_current())
    }
}

/// The use of a region's objects in this process, each given by its offset. An object that is not in the map is unused.
/// The lock is held only by threads that have the GIL, so no thread holds it during a fork.
type ObjectUses = Mutex<HashMap<u64, MemoryUse>>;

/// The `ObjectUses` of all regions that are mapped in this process, by the ids of the files that contain them. A file
/// may be mapped several times: each session maps it, and arrays keep a mapping that the program has closed. All these
/// mappings show the same memory, so they share one `ObjectUses`. A forked child has its parent's arrays too.
static OBJECT_USES: PerProcess<Mutex<UsesByFile>> = PerProcess::new();

type UsesByFile = BTreeMap<SegmentId, Weak<ObjectUses>>;

fn object_uses(region: &Region) -> Arc<ObjectUses> {
    let inherit = |parents: Option<&'static Mutex<UsesByFile>>| Some(parents?.try_lock().ok()?.clone());
    let own = OBJECT_USES.get_or_inherit(|parents| Some(Mutex::new(inherit(parents).unwrap_or_default())));
    let mut all = lock(own.expect("the closure always makes one"));
    if let Some(known) = all.get(&region.file()).and_then(Weak::upgrade) {
        return known;
    }
    all.retain(|_, uses| uses.strong_count() > 0);
    let uses = Arc::default();
    all.insert(region.file(), Arc::downgrade(&uses));
    uses
}

/// A region that this process has mapped. All Python objects that refer to the region share this value.
pub struct OpenRegion {
    region: OwnLock<Mutex<Option<Own<Region>>>>,
    /// The region's name, for error messages after the region was closed.
    pub name: String,
    /// True if the region is the heap of an item. A handle into this region can be loaded only as long as the item is
    /// open.
    pub in_item: bool,
    /// The number of open `crossdock.Region` objects of this region.
    pub opens: AtomicUsize,
    /// The number of live NumPy arrays that were made through this value.
    views: AtomicUsize,
    uses: Arc<ObjectUses>,
}

impl OpenRegion {
    /// Wraps a region that was just opened.
    pub fn new(region: Region) -> Self {
        let (name, in_item, opens) = (region.name().to_owned(), region.is_in_item(), AtomicUsize::new(0));
        let (views, uses) = (AtomicUsize::new(0), object_uses(&region));
        Self { region: OwnLock::new(Mutex::new(Some(Own::new(region)))), name, in_item, opens, views, uses }
    }

    /// The region; an error if it was closed or belongs to another process.
    pub fn get(&self, py: Python<'_>) -> PyResult<Region> {
        // The lock is released before the exception is made, because making an exception may run any Python code.
        let held = self.region.here().map(|region| lock(region).as_ref().map(|region| (**region).clone()));
        match held {
            Some(Some(region)) => Ok(region),
            Some(None) => Err(error(py, Status::Closed, format!("region '{}' is closed; open it again", self.name))),
            None => Err(elsewhere(py, &format!("region '{}'", self.name))),
        }
    }

    /// Tells whether the region is still open in this process.
    pub fn is_open(&self) -> bool {
        self.region.here().is_some_and(|region| lock(region).is_some())
    }

    /// Tells whether this value wraps the same mapping as `region`, and is open in this process.
    pub fn is_of(&self, region: &Region) -> bool {
        self.region.here().is_some_and(|own| lock(own).as_ref().is_some_and(|own| Arc::ptr_eq(own, region)))
    }

    /// Calls `change`, which moves or frees the memory of the object at `offset`. Fails if a view of that object is
    /// alive in this process.
    pub fn exclusively<T: Send>(
        &self,
        py: Python<'_>,
        offset: u64,
        what: &str,
        verb: &str,
        change: impl FnOnce(&Region) -> Result<T> + Send,
    ) -> PyResult<T> {
        let region = self.get(py)?;
        let refused = {
            let mut uses = lock(&self.uses);
            match uses.get(&offset) {
                Some(MemoryUse::Views(count)) => Some(viewed(*count)),
                Some(moving) if moving.is_moving() => {
                    Some("another thread is changing it; do one after the other".to_owned())
                }
                _ => {
                    uses.insert(offset, MemoryUse::Moving(ProcessToken::current()));
                    None
                }
            }
        };
        if let Some(why) = refused {
            return Err(error(py, Status::Busy, format!("{what} of region '{}' cannot be {verb}: {why}", self.name)));
        }
        let done = py.detach(|| change(&region));
        lock(&self.uses).remove(&offset);
        done.or_raise(py)
    }

    /// Counts one more view of the object at `offset`. Fails while another thread moves or frees the object.
    ///
    /// The caller must not read the object's header before this call, because another thread may move or free the
    /// memory until the view is counted.
    pub fn count_view(self: &Arc<Self>, py: Python<'_>, offset: u64) -> PyResult<CountedView> {
        let counted = {
            let mut uses = lock(&self.uses);
            match uses.entry(offset).or_insert(MemoryUse::Views(0)) {
                MemoryUse::Views(count) => {
                    *count += 1;
                    true
                }
                moving if moving.is_moving() => false,
                left => {
                    *left = MemoryUse::Views(1);
                    true
                }
            }
        };
        if counted {
            self.views.fetch_add(1, Ordering::Relaxed);
            return Ok(CountedView { open_region: self.clone(), offset });
        }
        let what = format!("the object at {offset:#x} of region '{}'", self.name);
        Err(error(py, Status::Busy, format!("{what} is being changed by another thread; look at it afterwards")))
    }

    /// Fails if any NumPy array that was made through this value is alive.
    pub fn refuse_if_any_view(&self, py: Python<'_>) -> PyResult<()> {
        match self.views.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => Err(error(
                py,
                Status::Busy,
                format!(
                    "region '{}' cannot be closed: {count} array{} of it alive; let go of them (del) first",
                    self.name,
                    if count == 1 { " is" } else { "s are" }
                ),
            )),
        }
    }

    /// Gives up the mapping. If views are alive, the region is unmapped together with the last view.
    pub fn let_go(&self) {
        let region = self.region.here().and_then(|region| lock(region).take());
        drop(region);
    }
}

/// One view of an object. While it is alive, no thread of this process moves or frees the object's memory.
pub struct CountedView {
    open_region: Arc<OpenRegion>,
    offset: u64,
}

impl Drop for CountedView {
    fn drop(&mut self) {
        self.open_region.views.fetch_sub(1, Ordering::Relaxed);
        let mut uses = lock(&self.open_region.uses);
        if let Some(MemoryUse::Views(count)) = uses.get_mut(&self.offset) {
            *count -= 1;
            if *count == 0 {
                uses.remove(&self.offset);
            }
        }
    }
}

/// The base object of an array. It keeps the array's memory mapped, and its message unreleased.
#[pyclass(frozen, module = "crossdock._native", name = "View")]
pub struct ArrayBase {
    view: CountedView,
    /// The address and the number of the viewed bytes.
    pub extent: (usize, u64),
    /// Rust drops the fields in the order in which they are declared: first the view count is decremented, then the
    /// region is given up, and at last the message's credit goes back.
    _region: Own<Region>,
    _credit: Option<Arc<Credit>>,
}

impl ArrayBase {
    /// The region of the viewed object.
    pub fn open_region(&self) -> &Arc<OpenRegion> {
        &self.view.open_region
    }

    /// The offset of the object that the view belongs to.
    pub fn offset(&self) -> u64 {
        self.view.offset
    }
}

/// Describes the elements that an array shows.
pub struct ArrayLayout<'py> {
    /// The dtype of one element. If it is a fixed array, its dimensions are added to the shape.
    pub dtype: Bound<'py, PyArrayDescr>,
    /// The number of elements in each dimension.
    pub shape: Vec<u64>,
    /// True if the first index varies fastest (Fortran order).
    pub fortran: bool,
    /// The offset of the first element in the region. If there are no elements, it is any offset in the region.
    pub data: u64,
}

impl ArrayLayout<'_> {
    /// The distance in bytes between neighbours in each dimension. If an element is a fixed array, NumPy adds the
    /// strides of its dimensions. They are in C order whatever the order of the elements. If NumPy computed all strides
    /// from the order, an element would not lie in one piece.
    fn strides(&self) -> Vec<npy_intp> {
        let rank = self.shape.len();
        let mut strides = vec![0; rank];
        let mut next = self.dtype.itemsize() as npy_intp;
        for n in 0..rank {
            let dimension = if self.fortran { n } else { rank - 1 - n };
            strides[dimension] = next;
            next = next.wrapping_mul(self.shape[dimension].max(1) as npy_intp);
        }
        strides
    }
}

/// Makes an array over the memory of the object that `view` counts.
pub fn array<'py>(
    py: Python<'py>,
    view: CountedView,
    credit: Option<&Arc<Credit>>,
    layout: ArrayLayout<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let region = view.open_region.get(py)?;
    let corrupt = |why: String| {
        let text = format!("the object at {:#x} of region '{}' {why}", view.offset, view.open_region.name);
        error(py, Status::Corrupt, text)
    };
    let size = layout.shape.iter().try_fold(layout.dtype.itemsize() as u64, |n, d| n.checked_mul(*d));
    let bytes = size.unwrap_or(u64::MAX);
    let end = size.and_then(|n| n.checked_add(layout.data)).filter(|end| *end <= region.capacity());
    if end.is_none() || i64::try_from(region.capacity()).is_err() {
        return Err(corrupt(format!("says that it has {:?} elements, which end outside the region", layout.shape)));
    }
    if layout.data % layout.dtype.alignment().max(1) as u64 != 0 {
        return Err(corrupt(format!("has its elements at {:#x}, which is not aligned", layout.data)));
    }
    let writable = region.writable();
    let data = region.base().wrapping_add(layout.data as usize).cast::<c_void>();
    let extent = (data as usize, bytes);
    let base = ArrayBase { view, extent, _region: Own::new(region), _credit: credit.cloned() };
    let base = Py::new(py, base)?.into_any();
    // SAFETY: `data` and the bytes behind it lie in the mapping (checked above). The base object keeps the mapping.
    unsafe { array_over(py, data, layout, writable, base) }
}

/// The result of `__array__`: the array itself; or a copy, if another dtype or `copy=True` requires one.
pub fn converted<'py>(
    array: Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let other = match dtype {
        Some(dtype) => array.getattr("dtype")?.ne(dtype)?,
        None => false,
    };
    match (other, copy) {
        (true, Some(false)) => {
            let text = "another dtype needs a copy, which copy=False forbids; leave one out";
            Err(error(array.py(), Status::Invalid, text))
        }
        (true, _) => array.call_method1("astype", (dtype,)),
        (false, Some(true)) => array.call_method0("copy"),
        (false, _) => Ok(array),
    }
}

/// Makes an array over memory. As long as `base` lives, the memory stays at its address.
///
/// # Safety
/// From the address `data` on, as many bytes as the shape needs must stay mapped as long as `base` lives. If the array
/// is writable, the bytes must be writable.
pub unsafe fn array_over<'py>(
    py: Python<'py>,
    data: *mut c_void,
    layout: ArrayLayout<'py>,
    writable: bool,
    base: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let flags = if writable { NPY_ARRAY_WRITEABLE } else { 0 };
    let mut shape: Vec<npy_intp> = layout.shape.iter().map(|n| *n as npy_intp).collect();
    let mut strides = layout.strides();
    // NumPy finds out from the address and the strides whether the array is aligned and contiguous.
    // SAFETY: the caller promises that the memory is valid. NumPy takes over the references to `dtype` and `base`, and
    // releases the reference to `base` even if it fails.
    unsafe {
        let made = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            layout.dtype.into_dtype_ptr(),
            shape.len() as c_int,
            shape.as_mut_ptr(),
            strides.as_mut_ptr(),
            data,
            flags,
            std::ptr::null_mut(),
        );
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, made.as_ptr().cast::<PyArrayObject>(), base.into_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(made)
    }
}

/// Decrements the number of `crossdock.Region` objects of this region, and returns the remaining number.
pub fn one_less(opens: &AtomicUsize) -> usize {
    opens.fetch_sub(1, Ordering::Relaxed) - 1
}
