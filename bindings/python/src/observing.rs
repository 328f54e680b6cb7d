//! Observers of series, and versions: NumPy arrays that are read-only and never change.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crossdock_client::{Error, Observer as Inner, Order, Result, SegmentKind, Status, Version as InnerVersion};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::dtypes::{from_type, parse};
use crate::errors::OrRaise;
use crate::fork::{Own, OwnLock, elsewhere, error_elsewhere};
use crate::values;
use crate::views::{ArrayLayout, array_over, lock};
use crate::wait::{deadline, wait};

/// An observer of a series. `Session.observe` makes it. It is a context manager. Iteration gives versions until the
/// publisher ends the series. Each step gives the version that is the newest at that time, and waits if the iteration
/// has given this version already.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Observer {
    inner: OwnLock<Mutex<Option<Own<Inner>>>>,
    name: String,
}

/// How long a call holds the observer's lock while it waits for the publisher to decide whether to recycle a version.
const DECISION: Duration = Duration::from_millis(1);

impl Observer {
    /// Makes the Python object for an observer that was just attached.
    pub fn new(inner: Inner) -> Self {
        let name = inner.name().to_owned();
        Self { inner: OwnLock::new(Mutex::new(Some(Own::new(inner)))), name }
    }

    fn with<T: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut Inner) -> Result<T> + Send) -> PyResult<T> {
        self.usable(py)?;
        py.detach(|| self.act(act)).or_raise(py)
    }

    /// Waits until `ask` gives a version, for at most `slice`. It waits for a version with a higher number than
    /// `beyond`; if `beyond` is `None`, for a version that the observer has not given yet. Other threads can use the
    /// observer during the wait.
    fn await_version(
        &self,
        slice: Duration,
        beyond: Option<u64>,
        ask: impl Fn(&mut Inner, Duration) -> Result<InnerVersion>,
    ) -> Result<InnerVersion> {
        let looked = self.act(|o| match ask(o, Duration::ZERO) {
            Err(e) if e.status == Status::NotYet && !slice.is_zero() => Ok(Err(o.waiter(beyond))),
            other => other.map(Ok),
        })?;
        match looked {
            Ok(version) => Ok(version),
            Err(waiter) => {
                waiter.wait(slice)?;
                self.act(|o| ask(o, DECISION.min(slice)))
            }
        }
    }

    fn act<T>(&self, act: impl FnOnce(&mut Inner) -> Result<T>) -> Result<T> {
        let Some(inner) = self.inner.here() else { return Err(error_elsewhere(&self.what())) };
        match lock(inner).as_mut() {
            Some(inner) => act(inner),
            None => Err(Error::closed_here().about(SegmentKind::Series, &self.name)),
        }
    }

    /// Fails if this process is a forked child of the one that made the observer.
    fn usable(&self, py: Python<'_>) -> PyResult<()> {
        if self.inner.here().is_some() { Ok(()) } else { Err(elsewhere(py, &self.what())) }
    }

    /// The name of this object in error messages.
    fn what(&self) -> String {
        format!("the observer of series '{}'", self.name)
    }
}

#[pymethods]
impl Observer {
    /// The series' name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// A number that identifies this incarnation of the series. When a publisher is restarted, its series gets another
    /// number.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |o| Ok(o.id().0))
    }

    /// The state of the publisher: "live", "ended" (the publisher has ended the series) or "died".
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |o| Ok(o.state().word()))
    }

    /// The description of the variables in the series: a dict from names to type, dtype, shape (the largest), order and
    /// constants.
    #[getter]
    fn variables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let description = self.with(py, |o| Ok(o.description().clone()))?;
        let record = py.import("crossdock._records")?.getattr("VariableInfo")?;
        let all = PyDict::new(py);
        for v in &description.variables {
            // A type that exists only in another language has no dtype.
            let dtype = parse(py, &v.ty)
                .and_then(|t| from_type(py, &t, &v.ty))
                .map_or_else(|_| py.None(), |d| d.into_any().unbind());
            let order = v.order.word();
            let shape = pyo3::types::PyTuple::new(py, &v.shape)?;
            all.set_item(&v.name, record.call1((&v.ty, dtype, shape, order, values::dict(py, &v.constants)?))?)?;
        }
        Ok(all)
    }

    /// Returns the newest version, even if the publisher has ended or died. If no version was published, raises
    /// NotYetError while the publisher lives, and ClosedError or PeerDiedError after it has ended or died.
    fn latest(&self, py: Python<'_>) -> PyResult<Version> {
        Ok(Version::new(self.with(py, Inner::latest)?, &self.name))
    }

    /// Waits for a version that is newer than every version returned so far, and returns the newest one. It waits up to
    /// `timeout` seconds (None: 60; with 0 it raises NotYetError).
    ///
    /// Raises TimedOutError at the deadline. If all versions were returned, raises ClosedError if the publisher has
    /// ended the series, and PeerDiedError if the publisher died. Versions that are older than the newest one are
    /// skipped; `at` returns those that still exist.
    #[pyo3(signature = (*, timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Version> {
        self.usable(py)?;
        let total = deadline(py, timeout)?;
        let version = wait(py, total, |slice: Duration| self.await_version(slice, None, Inner::next))?;
        Ok(Version::new(version, &self.name))
    }

    /// Waits up to `timeout` seconds until there is a version that is newer than every version returned so far, but
    /// does not return the version. `anext` calls this function in a thread, and takes the version when the thread has
    /// ended.
    #[pyo3(signature = (timeout))]
    fn _wait(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.usable(py)?;
        let total = deadline(py, Some(timeout))?;
        let waiter = self.with(py, |o| Ok(o.waiter(None)))?;
        wait(py, total, |slice: Duration| waiter.wait(slice))
    }

    /// Does the same as `next` in an event loop: other coroutines run while it waits.
    #[pyo3(signature = (*, timeout=None))]
    fn anext<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        deadline(py, timeout)?;
        py.import("crossdock._aio")?.getattr("next_version")?.call1((slf, timeout))
    }

    /// Returns the version with this number. Waits up to `timeout` seconds until it is published. Raises NotFoundError
    /// if the version no longer exists, and NotYetError if `timeout` is 0 and the version is not published yet. The
    /// other errors are those of `next`.
    #[pyo3(signature = (sequence, *, timeout=0.0))]
    fn at(&self, py: Python<'_>, sequence: u64, timeout: Option<f64>) -> PyResult<Version> {
        self.usable(py)?;
        let total = deadline(py, timeout)?;
        let beyond = Some(sequence.saturating_sub(1));
        let look = |slice| self.await_version(slice, beyond, |o, slice| o.at(sequence, slice));
        let version = wait(py, total, look)?;
        Ok(Version::new(version, &self.name))
    }

    /// Iterates over all versions from the oldest one that exists to the last one, until the publisher ends the series.
    /// It waits up to `timeout` seconds for each version (None: 60). Versions that no longer exist are skipped;
    /// `version.missed` is the number of versions that were skipped just before `version`. The publisher's option
    /// `keep` decides how many versions a reader can fall behind before it misses one.
    #[pyo3(signature = (*, timeout=None))]
    fn each(slf: Py<Self>, py: Python<'_>, timeout: Option<f64>) -> PyResult<Each> {
        deadline(py, timeout)?;
        Ok(Each { observer: slf, timeout })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Version>> {
        match self.next(py, None) {
            Ok(version) => Ok(Some(version)),
            Err(e) if has_ended(py, &e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("crossdock._aio")?.getattr("step_version")?.call1((slf,))
    }

    /// Ends the observation. Versions and arrays stay valid.
    fn close(&self, py: Python<'_>) {
        let inner = self.inner.here().and_then(|inner| lock(inner).take());
        py.detach(|| drop(inner));
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

    fn __repr__(&self) -> String {
        format!("<crossdock.Observer '{}'>", self.name)
    }
}

/// The iterator that `Observer.each` returns.
#[pyclass(frozen, module = "crossdock._native")]
pub struct Each {
    observer: Py<Observer>,
    timeout: Option<f64>,
}

#[pymethods]
impl Each {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Version>> {
        let observer = self.observer.get();
        observer.usable(py)?;
        let total = deadline(py, self.timeout)?;
        match wait(py, total, |slice: Duration| observer.await_version(slice, None, Inner::each)) {
            Ok(version) => Ok(Some(Version::new(version, &observer.name))),
            Err(e) if has_ended(py, &e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Tells whether the error means that the publisher has ended the series.
fn has_ended(py: Python<'_>, error: &PyErr) -> bool {
    error.value(py).getattr("status").is_ok_and(|s| s.eq(Status::Closed as i32).unwrap_or(false))
}

/// A version, and the number of arrays over its memory. The number is increased and checked only under the version's
/// lock.
struct PinnedVersion {
    version: OwnLock<RwLock<Own<InnerVersion>>>,
    arrays: AtomicUsize,
}

impl PinnedVersion {
    fn read<T>(&self, py: Python<'_>, look: impl FnOnce(&InnerVersion) -> Result<T>) -> PyResult<T> {
        // The lock is released before an exception is made, because making an exception may run any Python code.
        self.look(look).or_raise(py)
    }

    fn look<T>(&self, look: impl FnOnce(&InnerVersion) -> Result<T>) -> Result<T> {
        look(&self.lock()?.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> Result<&RwLock<Own<InnerVersion>>> {
        self.version.here().ok_or_else(|| error_elsewhere("this version"))
    }
}

/// The base object of an array over a version. It keeps the version pinned.
#[pyclass(frozen, module = "crossdock._native")]
struct VersionArrayBase(Arc<PinnedVersion>);

impl VersionArrayBase {
    /// Makes the base object of an array, and counts the array. The caller has a lock on the version.
    fn new(pinned: &Arc<PinnedVersion>) -> Self {
        pinned.arrays.fetch_add(1, Ordering::AcqRel);
        Self(pinned.clone())
    }
}

impl Drop for VersionArrayBase {
    fn drop(&mut self) {
        self.0.arrays.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A version of a series. `version["u"]` is a read-only array. The memory of the version is kept as long as this object
/// or one of its arrays is alive.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Version {
    pinned: Arc<PinnedVersion>,
    name: String,
}

impl Version {
    fn new(inner: InnerVersion, name: &str) -> Self {
        let pinned = PinnedVersion { version: OwnLock::new(RwLock::new(Own::new(inner))), arrays: AtomicUsize::new(0) };
        Self { pinned: Arc::new(pinned), name: name.to_owned() }
    }
}

#[pymethods]
impl Version {
    /// The series' name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The number of the version. The first version of a series has number 1.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        self.pinned.read(py, |v| Ok(v.sequence()))
    }

    /// The time at which the version was published, in nanoseconds since 1970.
    #[getter]
    fn time_ns(&self, py: Python<'_>) -> PyResult<u64> {
        self.pinned.read(py, |v| Ok(v.time()))
    }

    /// The time at which the version was published, in seconds since 1970.
    #[getter]
    fn time(&self, py: Python<'_>) -> PyResult<f64> {
        self.pinned.read(py, |v| Ok(v.time() as f64 * 1e-9))
    }

    /// The attributes of the version, as a dict.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = self.pinned.read(py, |v| Ok(v.attributes().to_vec()))?;
        values::dict(py, &all)
    }

    /// The names of the variables.
    #[getter]
    fn variables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.pinned.read(py, |v| Ok(v.description().variables.iter().map(|v| v.name.clone()).collect()))
    }

    /// The number of versions that `Observer.each` skipped just before this one, because they no longer existed.
    #[getter]
    fn missed(&self, py: Python<'_>) -> PyResult<u64> {
        self.pinned.read(py, |v| Ok(v.missed()))
    }

    /// False if the publisher has taken the version back (`full="take_back"`). Arrays that were made before keep their
    /// contents. Making a new array raises NotFoundError.
    #[getter]
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        self.pinned.read(py, |v| Ok(v.is_valid()))
    }

    /// Returns the elements of a variable as a read-only array, without a copy.
    fn __getitem__<'py>(&self, py: Python<'py>, variable: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.pinned.read(py, |v| {
            Ok(v.description().variables.iter().find(|d| d.name == variable).map(|d| (d.ty.clone(), d.order)))
        })?;
        let Some((ty, order)) = found else {
            return Err(PyKeyError::new_err(format!("series '{}' has no variable '{variable}'", self.name)));
        };
        let dtype = from_type(py, &parse(py, &ty)?, &ty)?;
        let (address, shape, base) = self.pinned.read(py, |v| {
            let (bytes, shape) = (v.bytes(variable)?, v.shape(variable)?.to_vec());
            Ok((bytes.as_ptr() as usize, shape, VersionArrayBase::new(&self.pinned)))
        })?;
        let base = Py::new(py, base)?.into_any();
        // An array without elements needs no memory, so any aligned address can be used.
        let address = if shape.contains(&0) { 64 } else { address };
        let layout = ArrayLayout { dtype, shape, fortran: order == Order::Fortran, data: 0 };
        // SAFETY: the bytes belong to the version, and there are as many bytes as the shape and the dtype need (checked
        // by the library). The bytes stay mapped as long as the version exists, and the base object keeps the version.
        // `refresh` fails if it could change the number of bytes.
        unsafe { array_over(py, address as *mut c_void, layout, false, base) }
    }

    fn __contains__(&self, py: Python<'_>, variable: &str) -> PyResult<bool> {
        Ok(self.variables(py)?.iter().any(|name| name == variable))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.variables(py)?.len())
    }

    /// Returns the names of the variables, as for a dict.
    fn keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.variables(py)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(pyo3::types::PyList::new(py, self.variables(py)?)?.as_any().try_iter()?.into_any().unbind())
    }

    /// Turns this object into the newest version. Only the chunks that differ are mapped again. Existing arrays show
    /// the new version after this call. Returns the number of chunks that were mapped. Raises BusyError while there are
    /// arrays of variables that can grow.
    fn refresh(&self, py: Python<'_>) -> PyResult<u64> {
        let refreshed = py.detach(|| {
            let mut version = self.pinned.lock()?.write().unwrap_or_else(PoisonError::into_inner);
            let arrays = self.pinned.arrays.load(Ordering::Acquire);
            if arrays > 0 && can_change_shape(&version) {
                let text = format!(
                    "version of series '{}' cannot be refreshed: {arrays} of its arrays are alive and its variables can \
                     change their shape; let go of them (del) first",
                    self.name
                );
                return Err(Error::new(Status::Busy, text));
            }
            version.refresh()
        });
        refreshed.or_raise(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<crossdock.Version {} of series '{}'>", self.sequence(py)?, self.name))
    }
}

/// Tells whether a variable can have another shape in a later version than in this one.
fn can_change_shape(version: &InnerVersion) -> bool {
    version.description().variables.iter().any(|variable| {
        !variable.max_shape.is_empty() && variable.max_shape != variable.shape
            || version.shape(&variable.name).is_ok_and(|shape| shape != variable.shape)
    })
}

/// Lists the chunks in which two versions of one observer differ, as tuples (variable, first byte, byte after the
/// last).
#[pyfunction]
pub fn diff(py: Python<'_>, before: &Version, after: &Version) -> PyResult<Vec<(String, u64, u64)>> {
    let found = before.pinned.read(py, |one| {
        // If `before` and `after` are the same version, its lock is taken only once. If this thread took the lock
        // twice, it could wait for ever: its second `read` would wait for a `refresh` of another thread, which waits
        // for the first `read` to end.
        if Arc::ptr_eq(&before.pinned, &after.pinned) {
            return crossdock_client::diff(one, one);
        }
        after.pinned.look(|other| crossdock_client::diff(one, other))
    })?;
    Ok(found.into_iter().map(|(variable, range)| (variable, range.start, range.end)).collect())
}
