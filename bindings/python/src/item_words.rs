//! Reads the options with which a program makes an item, and converts an item's description to Python.

use crossdock_client::{Contents, ItemInfo, ItemOptions, Status, address};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::containers::{order_of, shape_of};
use crate::dtypes::{to_dtype, to_type};
use crate::errors::error;
use crate::sizes::bytes_of;
use crate::words::member;

/// Reads the options of a new item from the arguments: dtype, shape and order, level, and policy for the owner's death.
pub fn options_of(
    py: Python<'_>,
    key: &str,
    size: Option<&Bound<'_, PyAny>>,
    (dtype, shape, order): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>, &str),
    (level, on_death): (&str, &str),
) -> PyResult<ItemOptions> {
    let invalid = |text: String| Err(error(py, Status::Invalid, text));
    let order = order_of(py, order)?;
    let said = size.map(bytes_of).transpose()?;
    let (least, contents) = match (dtype, shape) {
        (None, None) => (0, Contents::Bytes),
        (dtype, Some(shape)) => {
            let dtype = dtype.map_or_else(|| PyArrayDescr::new(py, "u1"), to_dtype)?;
            check_plain(py, &dtype)?;
            let shape = shape_of(shape)?;
            let bytes = shape.iter().try_fold(dtype.itemsize() as u64, |bytes, extent| bytes.checked_mul(*extent));
            let Some(bytes) = bytes else {
                return invalid(format!("item '{key}': shape {shape:?} is larger than any memory"));
            };
            (bytes, Contents::Array { ty: to_type(&dtype)?, shape, order })
        }
        (Some(_), None) => return invalid(format!("item '{key}': say the shape, too, when you say the dtype")),
    };
    let size = match said {
        None if contents == Contents::Bytes => {
            return invalid(format!("item '{key}': say its size, or dtype and shape"));
        }
        Some(size) if size < least => {
            return invalid(format!("item '{key}': an array of that dtype and shape has {least} bytes, not {size}"));
        }
        said => said.unwrap_or(least),
    };
    let mut options = ItemOptions::bytes(size);
    (options.level, options.on_death, options.contents) =
        (member(py, "level", level)?, member(py, "on_death", on_death)?, contents);
    Ok(options)
}

/// The daemon's information about an item, as a named tuple.
pub fn info_of<'py>(py: Python<'py>, info: &ItemInfo) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("key", &info.key)?;
    fields.set_item("size", info.size)?;
    fields.set_item("owner", address(&info.owner))?;
    fields.set_item("creator", address(&info.creator))?;
    fields.set_item("mine", info.mine)?;
    fields.set_item("state", info.state.word())?;
    fields.set_item("level", info.level.word())?;
    fields.set_item("on_death", info.on_death.word())?;
    fields.set_item("since", info.since_ms as f64 / 1000.0)?;
    fields.set_item("readers", info.readers)?;
    fields.set_item("waiting", info.waiting)?;
    fields.set_item("transfers", info.transfers)?;
    fields.set_item("copies", info.copies)?;
    py.import("crossdock._records")?.getattr("ItemInfo")?.call((), Some(&fields))
}

/// Refuses dtypes that contain Python objects, because a Python object means something only in its own process.
pub fn check_plain(py: Python<'_>, dtype: &Bound<'_, PyArrayDescr>) -> PyResult<()> {
    if dtype.getattr("hasobject")?.extract()? {
        return Err(error(
            py,
            Status::Invalid,
            format!("dtype {dtype} refers to Python objects; an item holds plain data"),
        ));
    }
    Ok(())
}
