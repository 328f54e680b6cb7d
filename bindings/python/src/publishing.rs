//! Publishers of series. Their NumPy arrays are changed in place and then published.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossdock_client::{AttributeSpec, Error, Publisher as Inner, Result, SeriesOptions, Session, Status, Variable};
use numpy::PyArrayDescr;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::containers::shape_of;
use crate::dtypes::{from_type, parse, to_dtype, to_type};
use crate::errors::{OrRaise, error};
use crate::fork::{Own, OwnLock};
use crate::values;
use crate::views::{ArrayLayout, array_over, lock};
use crate::words::member;

/// A publisher in this process. All arrays over its memory share this object, which keeps the memory alive.
pub struct OpenPublisher {
    publisher: OwnLock<Mutex<Own<Inner>>>,
    name: String,
    types: Vec<(String, String)>,
    /// The number of arrays over a version that was begun. Publishing unmaps the memory of that version, so `publish`
    /// fails while there are such arrays. The number is increased and checked only under the publisher's lock.
    begun: AtomicUsize,
}

impl OpenPublisher {
    /// Ends the series, so that observers know that the publisher did not die. The memory stays as long as there are
    /// arrays over it.
    pub fn end(&self) -> Result<()> {
        let Some(publisher) = self.publisher.here() else { return Ok(()) };
        let mut publisher = lock(publisher);
        if publisher.here() { publisher.end_mut() } else { Ok(()) }
    }
}

/// The base object of an array over a publisher's memory.
#[pyclass(frozen, module = "crossdock._native")]
struct PublisherArrayBase {
    open_publisher: Arc<OpenPublisher>,
    begun: bool,
}

impl PublisherArrayBase {
    /// Makes the base object of an array, and counts the array if it is over a version that was begun. The caller has
    /// the publisher's lock.
    fn new(open_publisher: &Arc<OpenPublisher>, begun: bool) -> Self {
        open_publisher.begun.fetch_add(usize::from(begun), Ordering::AcqRel);
        Self { open_publisher: open_publisher.clone(), begun }
    }
}

impl Drop for PublisherArrayBase {
    fn drop(&mut self) {
        if self.begun {
            self.open_publisher.begun.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The publisher of a series. `Session.publisher` makes it. It is a context manager, which ends the series. Each
/// variable `u` is a NumPy array, `publisher.u` or `publisher["u"]`, which the program reads and writes in place. The
/// pages of the arrays stay in the same place, so that the arrays' memory can be registered (RDMA, io_uring, CUDA),
/// except with the option `pages="may_move"` and after a call of `begin`.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Publisher {
    open_publisher: Arc<OpenPublisher>,
    /// True from `begin` to `publish` or `abandon`. It changes only under the publisher's lock.
    is_begun: AtomicBool,
}

/// The arguments of `Session.publisher`, as Python gave them.
pub struct Declared<'a, 'py> {
    pub variables: &'a Bound<'py, PyDict>,
    pub max_shape: Option<&'a Bound<'py, PyDict>>,
    pub constants: Option<&'a Bound<'py, PyDict>>,
    pub attributes: Option<&'a Bound<'py, PyDict>>,
    pub full: &'a str,
    pub detect: &'a str,
    pub pages: &'a str,
}

impl Declared<'_, '_> {
    /// Makes the publisher's options from the keyword arguments.
    pub fn options(&self, py: Python<'_>) -> PyResult<SeriesOptions> {
        let mut options = SeriesOptions::default();
        for (name, given) in self.variables.iter() {
            let name: String = name.extract()?;
            // If the program gives a dtype without a shape, the variable is a single value.
            let (dtype, shape) = match given.cast::<PyTuple>() {
                Ok(pair) if pair.len() == 2 && shape_of(&pair.get_item(1)?).is_ok() => {
                    (pair.get_item(0)?, shape_of(&pair.get_item(1)?)?)
                }
                _ => (given.clone(), Vec::new()),
            };
            let mut variable = Variable::new(name.as_str(), to_type(&to_dtype(&dtype)?)?, &shape);
            if let Some(most) = self.max_shape.map(|m| m.get_item(&name)).transpose()?.flatten() {
                variable.max_shape = shape_of(&most)?;
            }
            if let Some(constants) = self.constants.map(|c| c.get_item(&name)).transpose()?.flatten() {
                variable.constants = values::values_of(constants.cast::<PyDict>()?, &[])?;
            }
            options.variables.push(variable);
        }
        for other in [self.max_shape, self.constants].into_iter().flatten() {
            for name in other.keys() {
                if !self.variables.contains(&name)? {
                    return Err(error(
                        py,
                        Status::NotFound,
                        format!("there is no variable {name:?} among those given"),
                    ));
                }
            }
        }
        for (name, kind) in self.attributes.iter().flat_map(|a| a.iter()) {
            options.attributes.push(AttributeSpec { name: name.extract()?, ty: values::kind_of(&kind)? });
        }
        options.full = member(py, "full", self.full)?;
        options.detect = member(py, "detect", self.detect)?;
        options.pages = member(py, "pages", self.pages)?;
        Ok(options)
    }
}

impl Publisher {
    /// Begins to publish a series.
    pub fn open(
        py: Python<'_>,
        session: &Session,
        name: &str,
        options: &SeriesOptions,
    ) -> PyResult<(Self, Arc<OpenPublisher>)> {
        let inner = py.detach(|| session.publisher(name, options)).or_raise(py)?;
        let open_publisher = Arc::new(OpenPublisher {
            publisher: OwnLock::new(Mutex::new(Own::new(inner))),
            name: name.to_owned(),
            types: options.variables.iter().map(|v| (v.name.clone(), v.ty.clone())).collect(),
            begun: AtomicUsize::new(0),
        });
        Ok((Self { open_publisher: open_publisher.clone(), is_begun: false.into() }, open_publisher))
    }

    /// Calls `act` on the publisher, and lets other Python threads run meanwhile.
    fn with<T: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut Inner) -> Result<T> + Send) -> PyResult<T> {
        let done = py.detach(|| {
            let mut publisher = lock(self.open_publisher.publisher.here()?);
            publisher.here().then(|| act(&mut publisher))
        });
        match done {
            Some(done) => done.or_raise(py),
            None => Err(crate::fork::elsewhere(py, &format!("the publisher of series '{}'", self.open_publisher.name))),
        }
    }

    fn array<'py>(&self, py: Python<'py>, variable: &str) -> PyResult<Bound<'py, PyAny>> {
        let Some((_, ty)) = self.open_publisher.types.iter().find(|(name, _)| name == variable) else {
            let text = format!("series '{}' has no variable '{variable}'", self.open_publisher.name);
            return Err(error(py, Status::NotFound, text));
        };
        let dtype: Bound<'py, PyArrayDescr> = from_type(py, &parse(py, ty)?, ty)?;
        let (address, shape, base) = self.with(py, |publisher| {
            let (address, shape) = (publisher.memory(variable)? as usize, publisher.shape(variable)?.to_vec());
            let begun = self.is_begun.load(Ordering::Acquire);
            Ok((address, shape, PublisherArrayBase::new(&self.open_publisher, begun)))
        })?;
        let base = Py::new(py, base)?.into_any();
        let layout = ArrayLayout { dtype, shape, fortran: false, data: 0 };
        // SAFETY: the memory belongs to the variable, and is as long as the variable's shape requires. The base object
        // keeps the publisher alive, and the publisher keeps the memory. A begun version is not published while it has
        // arrays. If the variable shrinks, the addresses stay mapped.
        unsafe { array_over(py, address as *mut c_void, layout, true, base) }
    }

    /// Fails if arrays of a begun version are alive, because the memory of that version is unmapped when it is
    /// published. The caller has the publisher's lock.
    fn refuse_if_begun_views(&self, verb: &str) -> Result<()> {
        match self.open_publisher.begun.load(Ordering::Acquire) {
            0 => Ok(()),
            count => {
                let text = format!(
                    "the version that was begun of series '{}' cannot be {verb}: {count} of its arrays are alive; let go \
                     of them (del), then publish() or abandon()",
                    self.open_publisher.name
                );
                Err(Error::new(Status::Busy, text))
            }
        }
    }

    fn send(
        &self,
        py: Python<'_>,
        attributes: Option<&Bound<'_, PyDict>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let declared = self.with(py, |publisher| Ok(publisher.attributes().to_vec()))?;
        let mut all = Vec::new();
        for given in [attributes, more].into_iter().flatten() {
            match values::values_of(given, &declared) {
                Ok(values) => all.extend(values),
                Err(error) => {
                    self.with(py, |publisher| {
                        publisher.give_up_step();
                        Ok(())
                    })?;
                    return Err(error);
                }
            }
        }
        self.with(py, |publisher| {
            self.refuse_if_begun_views("published").inspect_err(|_| publisher.give_up_step())?;
            let list: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            let sequence = publisher.publish(&list)?;
            self.is_begun.store(false, Ordering::Release);
            Ok(sequence)
        })
    }
}

#[pymethods]
impl Publisher {
    /// The series' name.
    #[getter]
    fn name(&self) -> &str {
        &self.open_publisher.name
    }

    /// The number of the newest version; 0 before the first one.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |publisher| Ok(publisher.sequence()))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, variable: &str) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, variable)
    }

    /// Raises an AttributeError that says how to write a variable, because `p.u = values` cannot do it.
    fn __setattr__(&self, variable: &str, _values: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = &self.open_publisher.name;
        let text = if self.open_publisher.types.iter().any(|(known, _)| known == variable) {
            format!(
                "variable '{variable}' of series '{name}' is an array that stays; to write its elements, assign to \
                     publisher.{variable}[...]"
            )
        } else {
            format!("series '{name}' has no variable '{variable}'")
        };
        Err(PyAttributeError::new_err(text))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, variable: &str) -> PyResult<Bound<'py, PyAny>> {
        if self.open_publisher.types.iter().any(|(name, _)| name == variable) {
            return self.array(py, variable);
        }
        Err(PyAttributeError::new_err(format!("series '{}' has no variable '{variable}'", self.open_publisher.name)))
    }

    /// The names of the variables.
    #[getter]
    fn variables(&self) -> Vec<String> {
        self.open_publisher.types.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Publishes the present contents of the arrays as the next version and returns its number. The call does not wait
    /// for observers.
    ///
    /// It returns 0 if the version was withheld, because the pool cannot grow and observers use all old versions. The
    /// changes are then part of the next version that finds room. `statistics` counts withheld versions and tells the
    /// reason.
    ///
    /// Attributes are given by keyword or as a dict. Their values are whole numbers, floats, or texts of at most 63
    /// bytes. With full="fail" it raises NoSpaceError if there is no room; then nothing was published and nothing is
    /// lost. Raises WrongTypeError or InvalidError for wrong attributes, and ClosedError if the series has ended.
    #[pyo3(signature = (attributes=None, /, **more))]
    fn publish(
        &self,
        py: Python<'_>,
        attributes: Option<&Bound<'_, PyDict>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        self.send(py, attributes, more)
    }

    /// Begins a version that is written directly, so that publishing it copies nothing. After this call, get the arrays
    /// from the publisher again, write all of their elements, and publish. Other pages then lie at the arrays'
    /// addresses, so memory that was registered (RDMA, io_uring, CUDA) must be registered again. `with
    /// p.begin(step=3):` publishes at the end of the block, or abandons the version if the block failed. If arrays of
    /// the version are still alive at the end of the block, BusyError is raised.
    #[pyo3(signature = (**attributes))]
    fn begin(slf: Py<Self>, py: Python<'_>, attributes: Option<Py<PyDict>>) -> PyResult<Begun> {
        let this = slf.get();
        this.with(py, |publisher| {
            publisher.begin()?;
            this.is_begun.store(true, Ordering::Release);
            Ok(())
        })?;
        Ok(Begun { publisher: slf, attributes })
    }

    /// Undoes `begin`: drops the version that was begun.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |publisher| {
            self.refuse_if_begun_views("abandoned")?;
            publisher.abandon()?;
            self.is_begun.store(false, Ordering::Release);
            Ok(())
        })
    }

    /// Gives a variable another shape within its max_shape. New elements are zero. After this call, get the variable's
    /// array from the publisher again.
    fn resize(&self, py: Python<'_>, variable: &str, shape: &Bound<'_, PyAny>) -> PyResult<()> {
        let shape = shape_of(shape)?;
        self.with(py, |publisher| publisher.resize(variable, &shape))
    }

    /// A hint for the library: the bytes from `start` to `stop` of a variable were written since the last version.
    #[pyo3(signature = (variable, start=0, stop=None))]
    fn touched(&self, py: Python<'_>, variable: &str, start: u64, stop: Option<u64>) -> PyResult<()> {
        self.with(py, |publisher| {
            let stop = stop.map_or_else(|| publisher.bytes(variable), Ok)?;
            publisher.touched(variable, start..stop)
        })
    }

    /// Counters as a dict: versions, chunks that were copied and shared, times in nanoseconds, and the method that
    /// finds changes.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.with(py, |publisher| Ok(publisher.statistics()))?;
        let all = PyDict::new(py);
        for (name, value) in [
            ("published", s.published),
            ("versions", s.versions.into()),
            ("copied", s.copied),
            ("shared", s.shared),
            ("chunk", s.chunk.into()),
            ("reserved", s.reserved),
            ("no_space", s.no_space),
            ("withheld", s.withheld),
            ("taken_back", s.taken_back),
            ("last_ns", s.last.as_nanos() as u64),
            ("longest_ns", s.longest.as_nanos() as u64),
        ] {
            all.set_item(name, value)?;
        }
        all.set_item("withheld_why", s.withheld_why)?;
        all.set_item("method", s.method.word())?;
        Ok(all)
    }

    /// Ends the series. Observers still get the last version, and then a ClosedError. Arrays stay valid.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Inner::end_mut)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the series at the end of a `with` block, unless the block failed. If the error of the block ends the
    /// program, the observers learn that the program died.
    #[pyo3(signature = (kind, _value, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if kind.is_none() { self.end(py) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        format!("<crossdock.Publisher '{}': {}>", self.open_publisher.name, self.variables().join(", "))
    }
}

/// A version that was begun. It is the context manager that `Publisher.begin` returns.
#[pyclass(frozen, module = "crossdock._native")]
pub struct Begun {
    publisher: Py<Publisher>,
    attributes: Option<Py<PyDict>>,
}

#[pymethods]
impl Begun {
    fn __enter__(&self, py: Python<'_>) -> Py<Publisher> {
        self.publisher.clone_ref(py)
    }

    #[pyo3(signature = (kind, _value, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let publisher = self.publisher.get();
        if !publisher.is_begun.load(Ordering::Acquire) {
            // The code in the `with` block has published or abandoned the version already.
            return Ok(());
        }
        if kind.is_some() {
            // Python reports the error of the block. An error of `abandon` is ignored. `abandon` fails if the traceback
            // of the block's error keeps an array of the version alive; in this case the version stays begun.
            let _ = publisher.abandon(py);
            return Ok(());
        }
        publisher.send(py, self.attributes.as_ref().map(|a| a.bind(py)), None).map(drop)
    }
}
