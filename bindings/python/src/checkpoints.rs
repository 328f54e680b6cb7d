//! Reads checkpoint files, which `crossdock checkpoint` wrote, into NumPy arrays; and makes names that contain the
//! rank. No daemon is needed for this.

use std::path::PathBuf;

use crossdock_checkpoint::{self as file, Restart, Value};
use crossdock_client::Status;
use numpy::{PyArray1, PyArrayDescr, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dtypes;
use crate::errors::{OrRaise, error};

/// A checkpoint that is open for reading. `restart(folder)` or `Checkpoint(path)` makes it. Opening checks the whole
/// file.
///
/// `series` names the series to read. The files of a program with one rank have only one series; for such a file,
/// `series` may be left out.
#[pyclass(frozen, module = "crossdock")]
pub struct Checkpoint {
    found: Restart,
}

/// Opens the newest undamaged checkpoint of a folder. `name` is the part of the file names before the number
/// ('field'). It is needed if the folder holds checkpoints of several names. `folder` may also be the path of one
/// checkpoint file. In a program of several ranks, one rank should choose the newest checkpoint and tell the other
/// ranks its path, because a newer checkpoint may be saved between the calls of two ranks.
///
/// Raises NotFoundError if there is no checkpoint, which is the case when the program runs for the first time. Raises
/// CorruptError if all checkpoints are damaged. `.skipped` lists damaged checkpoints that are newer than this one.
#[pyfunction]
#[pyo3(signature = (folder, name=None))]
pub fn restart(py: Python<'_>, folder: PathBuf, name: Option<&str>) -> PyResult<Checkpoint> {
    let found = py.detach(|| file::restart(&folder, name.unwrap_or("")));
    Ok(Checkpoint { found: found.or_raise(py)? })
}

/// Appends the rank to a name: on rank 3, `ranked('field')` returns 'field/3'. The default of `rank` is the rank that
/// the launcher gave to this process.
#[pyfunction]
#[pyo3(signature = (name, rank=None))]
pub fn ranked(py: Python<'_>, name: &str, rank: Option<u32>) -> PyResult<String> {
    crossdock_client::ranked(name, rank).or_raise(py)
}

#[pymethods]
impl Checkpoint {
    /// Opens a file and checks it completely. Raises NotFoundError if there is no such file, CorruptError if it is
    /// damaged or no checkpoint, and DeniedError if this user may not read it.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| file::Checkpoint::open(&path).and_then(|c| c.verify().map(|()| c)));
        Ok(Self { found: Restart { checkpoint: opened.or_raise(py)?, skipped: Vec::new() } })
    }

    /// The path of the checkpoint file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.found.checkpoint.path().to_owned()
    }

    /// The newer checkpoints that were skipped because they were damaged, as pairs (path, reason).
    #[getter]
    fn skipped(&self) -> Vec<(PathBuf, String)> {
        self.found.skipped.iter().map(|(path, why)| (path.clone(), why.to_string())).collect()
    }

    /// The names of the series in the file, in the order of the ranks.
    #[getter]
    fn series(&self) -> Vec<String> {
        self.found.checkpoint.series().map(str::to_owned).collect()
    }

    /// The number of the version in the checkpoint.
    #[pyo3(signature = (series=""))]
    fn sequence(&self, py: Python<'_>, series: &str) -> PyResult<u64> {
        self.found.checkpoint.sequence(series).or_raise(py)
    }

    /// The attributes of the version in the checkpoint, as a dict.
    #[pyo3(signature = (series=""))]
    fn attributes<'py>(&self, py: Python<'py>, series: &str) -> PyResult<Bound<'py, PyDict>> {
        dict(py, &self.found.checkpoint.series_attributes(series).or_raise(py)?)
    }

    /// The names of the variables of a series.
    #[pyo3(signature = (series=""))]
    fn variables(&self, py: Python<'_>, series: &str) -> PyResult<Vec<String>> {
        let variables = self.found.checkpoint.variables(series).or_raise(py)?;
        Ok(variables.iter().map(|v| v.name.clone()).collect())
    }

    /// The constants of a variable, as a dict.
    #[pyo3(signature = (name, series=""))]
    fn constants<'py>(&self, py: Python<'py>, name: &str, series: &str) -> PyResult<Bound<'py, PyDict>> {
        dict(py, &self.found.checkpoint.variable(series, name).or_raise(py)?.constants)
    }

    /// Reads the elements of a variable into a new array. If `into` is given, they are read into that array instead,
    /// for example an array of a publisher. `into` must be writable and C-contiguous, and have the same dtype and shape
    /// as the variable.
    #[pyo3(signature = (name, series="", into=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        series: &str,
        into: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stored = self.found.checkpoint.variable(series, name).or_raise(py)?;
        let dtype = dtypes::from_type(py, &dtypes::parse(py, &stored.type_name)?, &stored.type_name)?;
        let shape = PyTuple::new(py, &stored.shape)?;
        let array = match into {
            Some(array) => {
                self.fits(py, name, &array, &dtype, &shape)?;
                array
            }
            None => py.import("numpy")?.call_method1("empty", (shape, dtype))?,
        };
        let bytes = array.call_method1("reshape", (-1,))?.call_method1("view", ("u1",))?;
        let bytes = bytes.cast::<PyArray1<u8>>()?;
        let mut bytes = bytes.try_readwrite()?;
        let into = bytes.as_slice_mut()?;
        py.detach(|| self.found.checkpoint.read(series, name, into)).or_raise(py)?;
        Ok(array)
    }

    fn __repr__(&self) -> String {
        format!("<crossdock.Checkpoint {}>", self.found.checkpoint.path().display())
    }
}

impl Checkpoint {
    fn fits(
        &self,
        py: Python<'_>,
        name: &str,
        array: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyArrayDescr>,
        shape: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let (its_dtype, its_shape) = (array.getattr("dtype")?, array.getattr("shape")?);
        // If an element is a fixed array, an array has the dimensions of the element behind its own.
        let (dtype, shape) =
            match dtype.getattr("subdtype")?.extract::<Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>>()? {
                Some((base, more)) => (base, shape.add(more)?),
                None => (dtype.clone().into_any(), shape.clone().into_any()),
            };
        if !its_dtype.eq(&dtype)? || !its_shape.eq(&shape)? {
            let why = format!("{name} has dtype {dtype} and shape {shape}; the array has {its_dtype} and {its_shape}");
            return Err(error(py, Status::WrongType, why));
        }
        let flags = array.getattr("flags")?;
        for (flag, why) in [("c_contiguous", "is not C-contiguous"), ("writeable", "cannot be written")] {
            if !flags.getattr(flag)?.extract::<bool>()? {
                return Err(error(py, Status::Invalid, format!("the array to read {name} into {why}")));
            }
        }
        Ok(())
    }
}

fn dict<'py>(py: Python<'py>, values: &[(String, Value)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in values {
        match value {
            Value::I64(n) => dict.set_item(name, n)?,
            Value::U64(n) => dict.set_item(name, n)?,
            Value::F64(x) => dict.set_item(name, x)?,
            Value::Text(text) => dict.set_item(name, text)?,
        }
    }
    Ok(dict)
}
