//! Converts the attributes and constants of series between Python's numbers and texts and the values of the library.

use crossdock_client::{AttributeSpec, Kind, Status, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyString};

use crate::errors::error;

/// Converts a Python object to a value. `declared` is the kind that the value must have.
pub fn value_of(given: &Bound<'_, PyAny>, declared: Option<Kind>) -> PyResult<Value> {
    let py = given.py();
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Value::Text(text.to_cow()?.into_owned()));
    }
    let float = given.is_instance_of::<PyFloat>();
    let whole = || given.extract::<i64>().map(Value::I64).or_else(|_| given.extract::<u64>().map(Value::U64));
    match declared {
        Some(Kind::F64) => Ok(Value::F64(given.extract()?)),
        Some(Kind::U64) if !float => given.extract::<u64>().map(Value::U64).or_else(|_| whole()),
        _ if float => Ok(Value::F64(given.extract()?)),
        _ if given.is_instance_of::<PyBool>() => Ok(Value::I64(given.extract::<bool>()?.into())),
        // NumPy's scalars are accepted: whole numbers have __index__, and the others have __float__. A whole number
        // that is too large is an error. It does not become a float, because a float could not hold the number exactly.
        _ => {
            let value = whole().or_else(|error| match given.hasattr("__index__")? {
                true => Err(error),
                false => given.extract::<f64>().map(Value::F64),
            });
            value.map_err(|_| {
                let text = format!("{given:?} is neither a whole number of 64 bits, nor a float, nor a text");
                error(py, Status::Invalid, text)
            })
        }
    }
}

/// Converts several named values. `declared` lists the attributes whose kinds are known already.
pub fn values_of(given: &Bound<'_, PyDict>, declared: &[AttributeSpec]) -> PyResult<Vec<(String, Value)>> {
    given
        .iter()
        .map(|(name, value)| {
            let name: String = name.extract()?;
            let kind = declared.iter().find(|a| a.name == name).map(|a| a.ty);
            Ok((name, value_of(&value, kind)?))
        })
        .collect()
}

/// Finds a kind by its name, or by the Python class of such values.
pub fn kind_of(given: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let py = given.py();
    let name = match given.extract::<String>() {
        Ok(name) => name,
        Err(_) => given.getattr("__name__").and_then(|n| n.extract()).unwrap_or_default(),
    };
    let known = match name.as_str() {
        "int" => Some(Kind::I64),
        "float" => Some(Kind::F64),
        "str" => Some(Kind::Text),
        other => Kind::from_word(other),
    };
    known.ok_or_else(|| {
        let text = format!("{given:?} is no kind of attribute; it is int, float, str, 'i64', 'u64', 'f64' or 'string'");
        error(py, Status::Invalid, text)
    })
}

/// Makes a Python dict from values and their names.
pub fn dict<'py>(py: Python<'py>, values: &[(String, Value)]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, value) in values {
        match value {
            Value::I64(n) => all.set_item(name, n)?,
            Value::U64(n) => all.set_item(name, n)?,
            Value::F64(x) => all.set_item(name, x)?,
            Value::Text(text) => all.set_item(name, text)?,
        }
    }
    Ok(all)
}
