//! Translates between crossdock's type grammar and NumPy's dtypes.
//!
//! `f64` ↔ `float64`, `f32[4][8]` ↔ `('<f4', (4, 8))` (C order: four times eight), `{i32,f64}` ↔ an aligned structured
//! dtype. Only dtypes whose bytes mean the same in C, C++ and Fortran have a crossdock type. The error for another
//! dtype says what to use instead.

use crossdock_client::Status;
use crossdock_layout::type_name::{Type, with_offsets};
use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::errors::error;

/// The scalar types. Each row has NumPy's kind and size, crossdock's name, and NumPy's name.
const SCALARS: [(char, u64, &str, &str); 13] = [
    ('b', 1, "bool", "?"),
    ('i', 1, "i8", "i1"),
    ('i', 2, "i16", "i2"),
    ('i', 4, "i32", "i4"),
    ('i', 8, "i64", "i8"),
    ('u', 1, "u8", "u1"),
    ('u', 2, "u16", "u2"),
    ('u', 4, "u32", "u4"),
    ('u', 8, "u64", "u8"),
    ('f', 4, "f32", "f4"),
    ('f', 8, "f64", "f8"),
    ('c', 8, "c64", "c8"),
    ('c', 16, "c128", "c16"),
];

/// Converts what a caller gave as a dtype to a NumPy dtype. Names are NumPy's: `u8` has eight bytes, although
/// crossdock's type `u8` has one. If the given name is that of a crossdock type and not of a NumPy dtype, the error
/// tells NumPy's name for the type.
pub fn to_dtype<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDescr>> {
    let py = given.py();
    if let Ok(dtype) = given.cast::<PyArrayDescr>() {
        return Ok(dtype.clone());
    }
    PyArrayDescr::new(py, given.clone()).map_err(|e| {
        let hint = given
            .extract::<String>()
            .ok()
            .and_then(|text| SCALARS.iter().find(|s| s.2 == text).map(|s| s.3))
            .map_or_else(String::new, |name| format!("; crossdock's type of that name is NumPy's '{name}'"));
        error(py, Status::Invalid, format!("{given:?} is not a NumPy dtype ({}){hint}", e.value(py)))
    })
}

/// Gives the crossdock type for a dtype.
pub fn to_type(dtype: &Bound<'_, PyArrayDescr>) -> PyResult<String> {
    let any = dtype.as_any();
    let py = dtype.py();
    let refuse = |why: String| Err(error(py, Status::Invalid, format!("{any:?} has no crossdock type: {why}")));
    if let Some((base, shape)) = any.getattr("subdtype")?.extract::<Option<(Bound<'_, PyArrayDescr>, Vec<u64>)>>()? {
        let mut name = to_type(&base)?;
        for n in &shape {
            if *n == 0 {
                return refuse("a length of 0 makes no array; leave the field out".into());
            }
            name.push_str(&format!("[{n}]"));
        }
        return Ok(name);
    }
    if let Some(names) = any.getattr("names")?.extract::<Option<Vec<String>>>()? {
        return struct_type(any, &names);
    }
    let kind: char = any.getattr("kind")?.extract()?;
    let size: u64 = any.getattr("itemsize")?.extract()?;
    if !any.getattr("isnative")?.extract::<bool>()? {
        return refuse("its bytes are in the other order; use dtype.newbyteorder('=')".into());
    }
    match SCALARS.iter().find(|s| (s.0, s.1) == (kind, size)) {
        Some(scalar) => Ok(scalar.2.to_owned()),
        None => refuse(
            match kind {
                'O' => "a Python object cannot lie in shared memory; use numbers, or string()",
                'U' | 'S' => "NumPy's text has no counterpart in other languages; use string(), or ('u1', n) for bytes",
                'M' | 'm' => "other languages have no such type; store it as an 'i8' and use .view()",
                'f' if size == 2 => "no language but this has half precision; store it as a 'u2' and use .view()",
                'f' | 'c' => "extended precision differs between machines; use 'f8' or 'c16'",
                _ => "only numbers, fixed arrays and structs have one; use ('u1', n) for raw bytes",
            }
            .into(),
        ),
    }
}

/// Gives the type `{T,T,…}` for a structured dtype. Its fields must have the offsets that a C compiler gives them.
fn struct_type(dtype: &Bound<'_, PyAny>, names: &[String]) -> PyResult<String> {
    let py = dtype.py();
    let fields = dtype.getattr("fields")?;
    let (mut parts, mut offsets) = (Vec::new(), Vec::new());
    for name in names {
        let field = fields.get_item(name)?.cast_into::<PyTuple>()?;
        parts.push(to_type(&field.get_item(0)?.cast_into::<PyArrayDescr>()?)?);
        offsets.push(field.get_item(1)?.extract::<u64>()?);
    }
    if parts.is_empty() {
        return Err(error(py, Status::Invalid, "a struct without fields has no crossdock type; give it one field"));
    }
    let name = format!("{{{}}}", parts.join(","));
    let (size, natural) = natural_layout(py, &name)?;
    let itemsize: u64 = dtype.getattr("itemsize")?.extract()?;
    if natural != offsets || size != itemsize {
        return Err(error(
            py,
            Status::Invalid,
            format!(
                "{dtype:?} is not laid out as C does: its fields are at {offsets:?} of {itemsize} bytes, {name} has \
                 them at {natural:?} of {size}; make it with numpy.dtype(…, align=True)"
            ),
        ));
    }
    Ok(name)
}

/// The size of a struct and the offsets of its fields, as a C compiler lays it out.
fn natural_layout(py: Python<'_>, name: &str) -> PyResult<(u64, Vec<u64>)> {
    let parsed = parse(py, name)?;
    let Type::Struct(fields) = &parsed else { unreachable!("{name} was made with braces") };
    let offsets = with_offsets(fields).map(|(at, _)| at).collect();
    Ok((plain_size(py, &parsed, name)?.0, offsets))
}

fn plain_size(py: Python<'_>, of: &Type, name: &str) -> PyResult<(u64, u32)> {
    of.size_and_align().ok_or_else(|| error(py, Status::Invalid, format!("{name} has no size that fits into memory")))
}

/// Parses the name of a type.
pub fn parse(py: Python<'_>, name: &str) -> PyResult<Type> {
    Type::parse(name).map_err(|e| error(py, Status::Invalid, e.to_string()))
}

/// Gives the dtype for a crossdock type of plain data. The fields of a struct are called f0, f1, … as in NumPy.
pub fn from_type<'py>(py: Python<'py>, of: &Type, name: &str) -> PyResult<Bound<'py, PyArrayDescr>> {
    match of {
        Type::Scalar(word, _) => {
            static WORDS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
            let words = WORDS.get_or_try_init(py, || {
                let words = PyDict::new(py);
                for (_, _, word, code) in SCALARS {
                    words.set_item(word, PyArrayDescr::new(py, code)?)?;
                }
                Ok::<_, PyErr>(words.unbind())
            })?;
            let found = words.bind(py).get_item(word)?;
            let dtype = found.ok_or_else(|| error(py, Status::Invalid, format!("NumPy has no dtype for {word}")))?;
            Ok(dtype.cast_into()?)
        }
        Type::Array(..) => {
            let (mut base, mut shape) = (of, Vec::new());
            while let Type::Array(inner, n) = base {
                shape.push(*n);
                base = inner;
            }
            shape.reverse();
            let base = from_type(py, base, name)?;
            PyArrayDescr::new(py, (base, PyTuple::new(py, shape)?))
        }
        Type::Struct(fields) => {
            let list = PyList::empty(py);
            for (n, field) in fields.iter().enumerate() {
                list.append((format!("f{n}"), from_type(py, field, name)?))?;
            }
            let options = PyDict::new(py);
            options.set_item("align", true)?;
            let made = py.import("numpy")?.getattr("dtype")?.call((list,), Some(&options))?;
            Ok(made.cast_into()?)
        }
        Type::Vector(_) | Type::String | Type::Ndarray(_) => Err(error(
            py,
            Status::WrongType,
            format!("{name} holds a container inside a container, which no NumPy array can show; use it from C++"),
        )),
        Type::Opaque(_) => Err(error(
            py,
            Status::WrongType,
            format!("{name} is a type of its own language, which alone knows what is in it; use it from there"),
        )),
    }
}
