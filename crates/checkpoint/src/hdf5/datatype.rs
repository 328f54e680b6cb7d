//! Converts crossdock's types to HDF5 datatypes. Complex numbers and booleans have the form that h5py expects.

use crossdock_layout::type_name::{Type, with_offsets};

/// Gives the datatype of an element. If the element is an array, gives the datatype of the array's elements, and the
/// array's extents, which the caller appends to the variable's extents.
///
/// An opaque type is stored as bytes. `size` gives their number, because the type's name does not.
pub fn of(ty: &Type, size: u64) -> (Vec<u8>, Vec<u64>) {
    let (mut inner, mut extents) = (ty, Vec::new());
    while let Type::Array(of, n) = inner {
        extents.insert(0, *n);
        inner = of;
    }
    let mut out = Vec::new();
    if matches!(inner, Type::Vector(_) | Type::String | Type::Ndarray(_) | Type::Opaque(_)) {
        extents.push(inner.size_and_align().map_or(size, |s| s.0));
        fixed(1, false, &mut out);
    } else {
        put(inner, &mut out);
    }
    (out, extents)
}

/// The datatype of a text of this many bytes (at least one), padded with zeros.
pub fn text(bytes: usize) -> Vec<u8> {
    begun(1, 3, [0x11, 0, 0], bytes.max(1) as u64)
}

/// The datatype of a whole number of 64 bits.
pub fn whole(signed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    fixed(8, signed, &mut out);
    out
}

/// The datatype of a floating-point number of 64 bits.
pub fn real() -> Vec<u8> {
    let mut out = Vec::new();
    float(8, &mut out);
    out
}

fn begun(version: u8, class: u8, bits: [u8; 3], size: u64) -> Vec<u8> {
    let mut out = vec![version << 4 | class, bits[0], bits[1], bits[2]];
    out.extend((size as u32).to_le_bytes());
    out
}

fn put(ty: &Type, out: &mut Vec<u8>) {
    match ty {
        Type::Scalar("bool", _) => boolean(out),
        Type::Scalar("f32", _) => float(4, out),
        Type::Scalar("f64", _) => float(8, out),
        Type::Scalar(name @ ("c64" | "c128"), _) => complex(if *name == "c64" { 4 } else { 8 }, out),
        Type::Scalar(name, size) => fixed(*size, name.starts_with('i'), out),
        Type::Array(of, n) => {
            let whole = ty.size_and_align().map_or(0, |s| s.0);
            out.extend(begun(3, 10, [0; 3], whole));
            out.push(1);
            out.extend((*n as u32).to_le_bytes());
            put(of, out);
        }
        Type::Struct(fields) => structure(ty, fields, out),
        // The headers of crossdock's containers (vectors, strings and ndarrays) are stored as arrays of bytes. An
        // opaque type cannot be a part of another type, so no opaque type comes to this line.
        Type::Vector(_) | Type::String | Type::Ndarray(_) | Type::Opaque(_) => {
            let bytes = Type::Array(Box::new(Type::Scalar("u8", 1)), ty.size_and_align().map_or(1, |s| s.0));
            put(&bytes, out);
        }
    }
}

fn fixed(size: u64, signed: bool, out: &mut Vec<u8>) {
    out.extend(begun(1, 0, [if signed { 8 } else { 0 }, 0, 0], size));
    out.extend([0, 0]); // the position of the lowest bit
    out.extend((size as u16 * 8).to_le_bytes());
}

fn float(size: u64, out: &mut Vec<u8>) {
    let (sign, exponent_at, exponent_bits, bias) = if size == 8 { (63, 52, 11, 1023u32) } else { (31, 23, 8, 127) };
    out.extend(begun(1, 1, [0x20, sign, 0], size)); // the highest bit of the mantissa is implied
    out.extend([0, 0]);
    out.extend((size as u16 * 8).to_le_bytes());
    out.extend([exponent_at, exponent_bits, 0, exponent_at]);
    out.extend(bias.to_le_bytes());
}

fn boolean(out: &mut Vec<u8>) {
    out.extend(begun(3, 8, [2, 0, 0], 1));
    fixed(1, true, out);
    out.extend(b"FALSE\0TRUE\0\x00\x01");
}

fn complex(part: u64, out: &mut Vec<u8>) {
    out.extend(begun(3, 6, [2, 0, 0], part * 2));
    for (name, at) in [("r", 0), ("i", part)] {
        member(name, at, part * 2, out);
        float(part, out);
    }
}

fn structure(ty: &Type, fields: &[Type], out: &mut Vec<u8>) {
    let whole = ty.size_and_align().map_or(0, |s| s.0);
    let count = (fields.len() as u16).to_le_bytes();
    out.extend(begun(3, 6, [count[0], count[1], 0], whole));
    for (i, (at, field)) in with_offsets(fields).enumerate() {
        member(&format!("f{i}"), at, whole, out);
        put(field, out);
    }
}

/// Writes a field's name and its offset `at`. The offset takes the smallest number of bytes that can hold the size
/// `whole` of the struct.
fn member(name: &str, at: u64, whole: u64, out: &mut Vec<u8>) {
    out.extend(name.as_bytes());
    out.push(0);
    let bytes = (whole.max(1).ilog2() / 8 + 1) as usize;
    out.extend(&at.to_le_bytes()[..bytes]);
}
