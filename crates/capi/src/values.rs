//! Converts values, attributes and variables of series from C and to C.

use std::ffi::c_char;

use crossdock_client::{AttributeSpec, Kind, Result, Value, Variable};

use crate::arguments::{OutPointer, choice_from_0, out, text};
use crate::error::invalid;
use crate::series_plain as plain;

/// The largest number of attributes or constants that one call of a C program may give. The limits of the library
/// behind this interface are lower.
const MANY: usize = 4096;

/// The list that the caller gave, as a slice. An empty list may be NULL.
///
/// # Safety
/// A `list` that is not NULL must have `count` readable elements that no thread writes during the call.
unsafe fn list<'a, T>(list: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || !list.is_aligned() || count > MANY {
        return Err(invalid(format!("the list of {count} {what} is NULL, misaligned or longer than {MANY}")));
    }
    // SAFETY: the lines above check that `list` is aligned and not NULL. The caller promises that `count` elements are
    // readable there.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

fn kind(number: u32) -> Result<Kind> {
    choice_from_0(number, "kind of value", "crossdock_value_kind")
}

fn value_in(given: &plain::Value) -> Result<Value> {
    Ok(match kind(given.kind)? {
        Kind::I64 => Value::I64(given.number as i64),
        Kind::U64 => Value::U64(given.number),
        Kind::F64 => Value::F64(f64::from_bits(given.number)),
        Kind::Text => {
            let end = given.text.iter().position(|b| *b == 0);
            let end = end.ok_or_else(|| invalid("a text value has no terminating zero within its 64 bytes"))?;
            let text = std::str::from_utf8(&given.text[..end]).map_err(|_| invalid("a text value is not UTF-8"))?;
            Value::Text(text.to_owned())
        }
    })
}

pub(crate) fn value_out(value: &Value) -> plain::Value {
    let number = match value {
        Value::I64(n) => *n as u64,
        Value::U64(n) => *n,
        Value::F64(x) => x.to_bits(),
        Value::Text(_) => 0,
    };
    let kind = value.kind() as u32 - 1;
    let mut out = plain::Value { kind, reserved: 0, number, text: [0; plain::TEXT] };
    if let Value::Text(text) = value {
        let length = text.len().min(plain::TEXT - 1);
        out.text[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
    out
}

/// Reads a list of named values that a C program gave.
///
/// # Safety
/// `given` must be NULL or have `count` readable elements, whose names are zero-terminated.
pub(crate) unsafe fn attributes<'a>(given: *const plain::Attribute, count: usize) -> Result<Vec<(&'a str, Value)>> {
    // SAFETY: the caller promises that `given` is NULL or has `count` readable elements.
    let given = unsafe { list(given, count, "attributes")? };
    // SAFETY: the caller promises that the names in the list are zero-terminated.
    given.iter().map(|a| Ok((unsafe { text(a.name, "attribute's name")? }, value_in(&a.value)?))).collect()
}

/// Reads the names and kinds of the attributes to declare.
///
/// # Safety
/// As [`attributes`].
pub(crate) unsafe fn declared(given: *const plain::Attribute, count: usize) -> Result<Vec<AttributeSpec>> {
    // SAFETY: the caller promises that `given` is NULL or has `count` readable elements.
    let given = unsafe { list(given, count, "attributes")? };
    let one = |a: &plain::Attribute| {
        // SAFETY: the caller promises that the names in the list are zero-terminated.
        let name = unsafe { text(a.name, "attribute's name")? };
        Ok(AttributeSpec { name: name.to_owned(), ty: kind(a.value.kind)? })
    };
    given.iter().map(one).collect()
}

/// Reads the descriptions of variables from C.
///
/// # Safety
/// `given` must be NULL or have `count` readable elements, whose texts and constants are as `crossdock.h` requires.
pub(crate) unsafe fn variables(given: *const plain::Variable, count: usize) -> Result<Vec<Variable>> {
    // SAFETY: the caller promises that `given` is NULL or has `count` readable elements.
    let given = unsafe { list(given, count, "variables")? };
    let one = |v: &plain::Variable| {
        // SAFETY: the caller promises that the texts in the struct are zero-terminated.
        let (name, ty) = unsafe { (text(v.name, "variable's name")?, text(v.type_name, "variable's type")?) };
        let dimensions = v.dimensions as usize;
        let (Some(shape), Some(most)) = (v.shape.get(..dimensions), v.max_shape.get(..dimensions)) else {
            return Err(invalid(format!("variable '{name}' has {dimensions} dimensions; at most 8 are allowed")));
        };
        let max_shape = if most.iter().all(|n| *n == 0) {
            Vec::new()
        } else {
            shape.iter().zip(most).map(|(now, most)| if *most == 0 { *now } else { *most }).collect()
        };
        // SAFETY: the caller promises that the lists of constants are valid.
        let constants = unsafe { attributes(v.constants, v.constant_count)? };
        Ok(Variable {
            name: name.to_owned(),
            ty: ty.to_owned(),
            shape: shape.to_vec(),
            max_shape,
            order: crate::container::order(v.order)?,
            constants: constants.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        })
    };
    given.iter().map(one).collect()
}

/// Copies a shape to an array with room for the largest number of dimensions that a shape may have.
fn lengths(shape: &[u64]) -> [u64; plain::DIMENSIONS] {
    let mut lengths = [0; plain::DIMENSIONS];
    lengths.iter_mut().zip(shape).for_each(|(to, from)| *to = *from);
    lengths
}

/// The caller's memory for a shape.
pub(crate) struct ShapePlace {
    dimensions: OutPointer<u32>,
    lengths: OutPointer<[u64; plain::DIMENSIONS]>,
}

impl ShapePlace {
    /// Checks the pointers for a shape: they must be aligned and not NULL.
    pub(crate) fn new(dimensions: *mut u32, shape: *mut u64) -> Result<Self> {
        let dimensions = out(dimensions, "number of dimensions")?;
        Ok(Self { dimensions, lengths: out(shape.cast(), "shape")? })
    }

    /// Writes the shape to the caller's memory.
    ///
    /// # Safety
    /// The two pointers from which this value was made must point to writable memory, and `shape` must have room for
    /// eight lengths.
    pub(crate) unsafe fn set(self, shape: &[u64]) {
        // SAFETY: the caller promises that both pointers are writable, and that `shape` has room for eight lengths.
        unsafe {
            self.dimensions.set(shape.len() as u32);
            self.lengths.set(lengths(shape));
        }
    }
}

/// Converts the description of a variable to the C struct.
pub(crate) fn variable_out(v: &Variable) -> plain::VariableInfo {
    let size = crossdock_layout::type_name::Type::parse(&v.ty).ok().and_then(|t| t.size_and_align());
    let most = if v.max_shape.is_empty() { &v.shape } else { &v.max_shape };
    plain::VariableInfo {
        name: field(&v.name),
        type_name: field(&v.ty),
        dimensions: v.shape.len() as u32,
        order: v.order as u32,
        element_size: size.map_or(0, |(size, _)| size),
        max_shape: lengths(most),
        constant_count: v.constants.len() as u32,
        reserved: 0,
    }
}

/// Copies a name into a buffer of [`plain::NAME`] bytes. Does nothing if the buffer is NULL.
///
/// # Safety
/// `buffer` must be NULL or have [`plain::NAME`] writable bytes.
pub(crate) unsafe fn name_out(name: &str, buffer: *mut c_char) -> Result<()> {
    if buffer.is_null() {
        return Ok(());
    }
    // SAFETY: the caller promises that `buffer`, which is not NULL here, has [`plain::NAME`] writable bytes.
    unsafe { crate::arguments::copy_text(name, buffer, plain::NAME) }
}

/// Copies a text into a zero-filled field of a struct.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.len().min(N - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        for value in [Value::I64(-3), Value::U64(u64::MAX), Value::F64(-0.25), Value::Text("é".into())] {
            assert_eq!(value_in(&value_out(&value)).unwrap(), value);
        }
        let mut endless = value_out(&Value::Text("x".repeat(63)));
        assert!(value_in(&endless).is_ok());
        endless.text = [b'x'; plain::TEXT];
        assert!(value_in(&endless).is_err());
        endless.kind = 4;
        assert!(value_in(&endless).is_err());
    }
}
