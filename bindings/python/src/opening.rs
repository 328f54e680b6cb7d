//! Opens a region's objects: finds them, waits for them, or makes them. Other tasks can open an object only when it is
//! complete.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crossdock_client::{Claim, Mode, ObjectInfo, ObjectMode, Region as Inner, Result, Status, TypeRef};
use pyo3::prelude::*;

use crate::containers::settle;
use crate::dtypes::{to_dtype, to_type};
use crate::errors::{OrRaise, error};
use crate::objects::{Kind, ObjectRef, type_ref};
use crate::regions::Region;
use crate::wait::{deadline, wait};
use crate::words::member;

/// Whether to find, wait for or make an object.
#[derive(Clone, Copy)]
pub struct OpenOptions {
    mode: ObjectMode,
    anew: bool,
    /// The number of elements that a new container gets.
    elements: u64,
    /// How long to wait for an object that does not exist; `None` means not to wait.
    timeout: Option<Duration>,
}

impl OpenOptions {
    /// Returns the same options, but with this number of elements for a new container.
    pub(crate) fn with_elements(self, elements: u64) -> Self {
        Self { elements, ..self }
    }
}

impl Region {
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Inner> {
        if self.closed.load(Ordering::Relaxed) {
            let text = format!("region '{}' is closed; open it again", self.open_region.name);
            return Err(error(py, Status::Closed, text));
        }
        self.open_region.get(py)
    }

    /// Finds or makes the object `name`, whose elements have `element` bytes. It waits in short slices, so that Ctrl-C
    /// can end it.
    pub(crate) fn claim(
        &self,
        py: Python<'_>,
        name: &str,
        ty: &TypeRef,
        element: u64,
        options: OpenOptions,
    ) -> PyResult<Claim> {
        let region = self.get(py)?;
        if options.anew {
            region.check_new(name, ty, options.elements.saturating_mul(element)).or_raise(py)?;
            match self.remove(py, name) {
                Err(e) if !e.is_instance_of::<pyo3::exceptions::PyLookupError>(py) => return Err(e),
                _ => {}
            }
        }
        match (options.mode, options.timeout) {
            // Without a timeout, this call waits only while another member constructs the object. That member finishes
            // or dies soon. So the wait need not be divided into short waits, between which Python's signals are
            // handled.
            (ObjectMode::OpenOnly, None) => py.detach(|| region.claim(name, ty, options.mode, None)).or_raise(py),
            (_, timeout) => {
                let total = timeout.unwrap_or(deadline(py, None)?);
                wait(py, total, |slice| region.claim(name, ty, options.mode, Some(slice)))
            }
        }
    }

    /// Finds what the directory knows about the object `name`. With a timeout, waits for the object.
    pub(crate) fn find(&self, py: Python<'_>, name: &str, timeout: Option<Duration>) -> PyResult<ObjectInfo> {
        const STEP: Duration = Duration::from_millis(5);
        let region = self.get(py)?;
        wait(py, timeout.unwrap_or_default(), |slice| match region.find(name) {
            Err(e) if e.status == Status::NotFound && !slice.is_zero() => {
                std::thread::sleep(slice.min(STEP));
                Err(e.with_status(Status::TimedOut))
            }
            other => other,
        })
    }

    /// Opens the object `name`. `named` makes the name of the object's type from the dtype, for example `vector<f64>`.
    /// Without a dtype, the object must exist and keeps its type.
    pub(crate) fn open_as<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        dtype: Option<&Bound<'py, PyAny>>,
        named: impl FnOnce(&str) -> String,
        options: OpenOptions,
        fill: impl FnOnce(&Inner, u64, u64) -> Result<()> + Send,
    ) -> PyResult<ObjectRef> {
        let dtype = dtype.map(to_dtype).transpose()?;
        let ty = match &dtype {
            Some(dtype) => type_ref(py, named(&to_type(dtype)?))?,
            None if options.mode == ObjectMode::CreateOnly => {
                let text =
                    format!("dtype is missing; object '{name}' of region '{}' is made anew", self.open_region.name);
                return Err(error(py, Status::Invalid, text));
            }
            None => self.find(py, name, options.timeout)?.ty,
        };
        let kind = Kind::of(py, &ty.name, dtype.as_ref())?;
        let element = numpy::PyArrayDescrMethods::itemsize(&kind.dtype(py)) as u64;
        let claim = self.claim(py, name, &ty, element, options)?;
        let (region, offset) = (self.open_region.get(py)?, claim.offset);
        let container = !matches!(kind, Kind::Simple(_));
        settle(py, &region, claim, container, || fill(&region, offset, element))?;
        ObjectRef::opened(py, &self.open_region, (name, offset), ty, kind)
    }

    pub(crate) fn open_options(py: Python<'_>, mode: &str, timeout: Option<f64>) -> PyResult<OpenOptions> {
        let (mode, anew) = match member(py, "mode", mode)? {
            Mode::OpenOrCreate => (ObjectMode::OpenOrCreate, false),
            Mode::CreateOnly => (ObjectMode::CreateOnly, false),
            Mode::OpenOnly => (ObjectMode::OpenOnly, false),
            Mode::Recreate => (ObjectMode::CreateOnly, true),
        };
        let timeout = timeout.map(|t| deadline(py, Some(t))).transpose()?.filter(|t| !t.is_zero());
        Ok(OpenOptions { mode, anew, elements: 0, timeout })
    }

    pub(crate) fn wrong_kind<T>(py: Python<'_>, object: &ObjectRef, wanted: &str) -> PyResult<T> {
        let text =
            format!("{} of region '{}' is {}, not a {wanted}", object.what(), object.open_region.name, object.ty.name);
        Err(error(py, Status::WrongType, text))
    }
}
