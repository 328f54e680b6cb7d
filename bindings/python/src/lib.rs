//! The Python module. It calls the same library as the C ABI.
//!
//! The files: `session`, `regions`, `containers`, `texts`, `ports`, `iteration`, `messages`, `handles` and `items`
//! define the classes; `session_state`, `open_ports` and `open_items` contain the state that the classes share;
//! `opening` and `objects` find the memory for a name or a handle; `views` makes arrays over that memory and counts
//! them; `dtypes` and `sizes` convert types and sizes between Python and crossdock; `headers` writes headers in shared
//! memory; every call uses `wait`, `fork` and `errors`.

mod checkpoints;
mod containers;
mod dtypes;
mod errors;
mod files;
mod fork;
mod handles;
mod headers;
mod item_words;
mod items;
mod iteration;
mod messages;
mod objects;
mod observing;
mod open_items;
mod open_ports;
mod opening;
mod ports;
mod publishing;
mod regions;
mod session;
mod session_state;
mod sizes;
mod texts;
mod values;
mod views;
mod wait;
mod words;

use pyo3::prelude::*;

/// Returns the crossdock type for a NumPy dtype. For example, `type_name('f8')` is 'f64'. Raises InvalidError for a
/// dtype that has no crossdock type; the message says what to use instead.
#[pyfunction]
fn type_name(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    dtypes::to_type(&dtypes::to_dtype(dtype)?)
}

/// Returns the NumPy dtype for a crossdock type of plain data, for example `dtype_of('{i32,f64}')`.
#[pyfunction]
fn dtype_of<'py>(py: Python<'py>, type_name: &str) -> PyResult<Bound<'py, PyAny>> {
    Ok(dtypes::from_type(py, &dtypes::parse(py, type_name)?, type_name)?.into_any())
}

/// The native module. Programs do not import it directly; they import the package `crossdock`, which imports it.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<session::Session>()?;
    module.add_class::<regions::Region>()?;
    module.add_class::<containers::Object>()?;
    module.add_class::<containers::Vector>()?;
    module.add_class::<containers::Ndarray>()?;
    module.add_class::<texts::Text>()?;
    module.add_class::<containers::Simple>()?;
    module.add_class::<ports::Port>()?;
    module.add_class::<iteration::Messages>()?;
    module.add_class::<messages::Message>()?;
    module.add_class::<handles::Handle>()?;
    module.add_class::<items::Item>()?;
    module.add_class::<publishing::Publisher>()?;
    module.add_class::<observing::Observer>()?;
    module.add_class::<observing::Version>()?;
    module.add_function(wrap_pyfunction!(observing::diff, module)?)?;
    module.add_function(wrap_pyfunction!(session::connect, module)?)?;
    module.add_class::<checkpoints::Checkpoint>()?;
    module.add_function(wrap_pyfunction!(checkpoints::restart, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoints::ranked, module)?)?;
    module.add_function(wrap_pyfunction!(files::await_file, module)?)?;
    module.add_function(wrap_pyfunction!(type_name, module)?)?;
    module.add_function(wrap_pyfunction!(dtype_of, module)?)?;
    module.add_function(wrap_pyfunction!(wait::_ending, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
