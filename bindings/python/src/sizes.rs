//! Reads sizes in the forms that people write, for example "512 MiB".

use crossdock_client::Status;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::errors::error;

/// Reads a number of bytes: an int, or a text such as "512 MiB".
pub fn bytes_of(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = given.py();
    if given.extract::<String>().is_err() {
        return count(given);
    }
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("B", 1),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let text = given.extract::<String>().unwrap_or_default();
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = UNITS.iter().find(|u| u.0 == unit.trim_start()).map(|u| u.1);
    match (number.parse::<u64>(), factor) {
        (Ok(n), Some(factor)) if n.checked_mul(factor).is_some() => Ok(n * factor),
        _ => {
            let text = format!("size {given:?} is not a number of bytes, nor a text such as '512 MiB' or '2 GB'");
            Err(error(py, Status::Invalid, text))
        }
    }
}

/// Reads a count, a whole number that fits into 64 bits. For other values it raises an exception with a hint, because
/// Python's own exception has none.
pub fn count(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole(given, 64)
}

/// Reads a count that fits into 32 bits.
pub fn small_count(given: &Bound<'_, PyAny>) -> PyResult<u32> {
    whole(given, 32)
}

/// Reads a count that fits into 32 bits, or None.
pub fn optional_small_count(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    if given.is_none() { Ok(None) } else { small_count(given).map(Some) }
}

fn whole<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(given: &'a Bound<'py, PyAny>, bits: u32) -> PyResult<T> {
    given.extract::<T>().map_err(|e| {
        if !e.is_instance_of::<PyOverflowError>(given.py()) {
            return e;
        }
        let text = format!("{given:?} is out of range; give a whole number from 0 to 2**{bits} - 1");
        error(given.py(), Status::Invalid, text)
    })
}
