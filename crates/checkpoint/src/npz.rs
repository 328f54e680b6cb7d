//! Writes NumPy's archive: an uncompressed zip of `.npy` files that always has the 64-bit fields of ZIP64.

use std::io::{self, Write};

use crossdock_layout::Status;
use crossdock_layout::type_name::{Type, with_offsets};

use crate::contents::{Series, Value};
use crate::error::{self, Error, Result};

/// Writes a series as an archive. Each variable and each attribute is an entry under its own name. An attribute is a
/// single number or a single text.
///
/// # Errors
/// `INVALID` for a type that NumPy lacks or for two entries with the same name. If `out` cannot be written: `NO_SPACE`
/// if the disk is full, otherwise `SYSTEM`.
pub fn write_npz(out: &mut impl Write, series: &Series) -> Result<()> {
    let mut members: Vec<(String, Vec<u8>, &[u8])> = Vec::new();
    for variable in &series.variables {
        let ty = Type::parse(&variable.type_name).map_err(|e| Error::new(Status::Invalid, e.to_string()))?;
        let (element, more) = description(&ty).ok_or_else(|| {
            Error::new(Status::Invalid, format!("{}: NumPy has no {}", variable.name, variable.type_name))
        })?;
        let shape: Vec<u64> = variable.shape.iter().copied().chain(more).collect();
        members.push((variable.name.clone(), npy_header(&element, &shape), variable.bytes));
    }
    let values: Vec<_> = series.attributes.iter().map(|(name, value)| (name, single(value))).collect();
    for (name, (element, bytes)) in &values {
        members.push(((*name).clone(), npy_header(element, &[]), bytes));
    }
    for (i, member) in members.iter().enumerate() {
        if members[..i].iter().any(|other| other.0 == member.0) {
            let message = format!("{} is both a variable and an attribute; export as .h5 keeps them apart", member.0);
            return Err(Error::new(Status::Invalid, message));
        }
    }
    zip(out, &members).map_err(|e| error::refused("the archive".as_ref(), "cannot write", &e))
}

/// Gives NumPy's name for the type of an element, with an empty list of extents. If the element is an array, gives the
/// name for the array's elements, and the array's extents.
fn description(ty: &Type) -> Option<(String, Vec<u64>)> {
    let (mut inner, mut extents) = (ty, Vec::new());
    while let Type::Array(of, n) = inner {
        extents.insert(0, *n);
        inner = of;
    }
    let word = match inner {
        Type::Scalar("bool", _) => "'|b1'".into(),
        Type::Scalar("c64", _) => "'<c8'".into(),
        Type::Scalar("c128", _) => "'<c16'".into(),
        Type::Scalar(name, size) => format!("'<{}{size}'", &name[..1]),
        Type::Struct(fields) => structure(inner, fields)?,
        _ => return None,
    };
    Some((word, extents))
}

/// Gives NumPy's description of a struct: its fields from the first to the last, with the bytes between them as
/// nameless fields.
fn structure(ty: &Type, fields: &[Type]) -> Option<String> {
    let (mut text, mut end) = (String::from("["), 0);
    let gap = |from: u64, to: u64| if to > from { format!("('', '|V{}'), ", to - from) } else { String::new() };
    for (i, (at, field)) in with_offsets(fields).enumerate() {
        let (word, extents) = description(field)?;
        let shape = if extents.is_empty() { String::new() } else { format!(", {}", tuple(&extents)) };
        text += &format!("{}('f{i}', {word}{shape}), ", gap(end, at));
        end = at + field.size_and_align()?.0;
    }
    Some(text + &gap(end, ty.size_and_align()?.0) + "]")
}

fn tuple(extents: &[u64]) -> String {
    extents.iter().fold("(".to_owned(), |text, n| format!("{text}{n}, ")) + ")"
}

fn single(value: &Value) -> (String, Vec<u8>) {
    match value {
        Value::I64(n) => ("'<i8'".into(), n.to_le_bytes().to_vec()),
        Value::U64(n) => ("'<u8'".into(), n.to_le_bytes().to_vec()),
        Value::F64(x) => ("'<f8'".into(), x.to_le_bytes().to_vec()),
        Value::Text(text) => {
            let characters = text.chars().count().max(1);
            let mut bytes: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
            bytes.resize(characters * 4, 0);
            (format!("'<U{characters}'"), bytes)
        }
    }
}

fn npy_header(element: &str, shape: &[u64]) -> Vec<u8> {
    let text = format!("{{'descr': {element}, 'fortran_order': False, 'shape': {}, }}", tuple(shape));
    let whole = (12 + text.len() + 1).next_multiple_of(64);
    let mut out = b"\x93NUMPY\x02\x00".to_vec();
    out.extend(((whole - 12) as u32).to_le_bytes());
    out.extend(text.as_bytes());
    out.resize(whole - 1, b' ');
    out.push(b'\n');
    out
}

/// The fields that all headers of the zip have in common: version 4.5 needed, no flags except UTF-8 names, stored
/// without compression, date 1980-01-01.
const COMMON: [u8; 10] = [45, 0, 0, 8, 0, 0, 0, 0, 0x21, 0];

fn zip(out: &mut impl Write, members: &[(String, Vec<u8>, &[u8])]) -> io::Result<()> {
    let (mut directory, mut at) = (Vec::new(), 0u64);
    for (name, header, bytes) in members {
        let name = format!("{name}.npy");
        let mut sum = crc32fast::Hasher::new();
        sum.update(header);
        sum.update(bytes);
        let (sum, size) = (sum.finalize().to_le_bytes(), (header.len() + bytes.len()) as u64);
        let mut local = b"PK\x03\x04".to_vec();
        local.extend(COMMON);
        local.extend(sum);
        local.extend([0xff; 8]); // the sizes are in the 64-bit field
        local.extend((name.len() as u16).to_le_bytes());
        local.extend(20u16.to_le_bytes());
        local.extend(name.as_bytes());
        let mut extra = vec![1, 0, 16, 0];
        extra.extend(size.to_le_bytes());
        extra.extend(size.to_le_bytes());
        local.extend(&extra);
        directory.extend(b"PK\x01\x02\x2d\x03");
        directory.extend(COMMON);
        directory.extend(sum);
        directory.extend([0xff; 8]);
        directory.extend((name.len() as u16).to_le_bytes());
        directory.extend(28u16.to_le_bytes());
        directory.extend([0; 6]); // no comment, first disk, no internal attributes
        directory.extend((0o100_644u32 << 16).to_le_bytes());
        directory.extend([0xff; 4]);
        directory.extend(name.as_bytes());
        extra[2] = 24;
        directory.extend(&extra);
        directory.extend(at.to_le_bytes());
        at += local.len() as u64 + size;
        out.write_all(&local)?;
        out.write_all(header)?;
        out.write_all(bytes)?;
    }
    out.write_all(&directory)?;
    out.write_all(&end(members.len() as u64, directory.len() as u64, at))
}

/// Writes the three records that close a 64-bit zip.
fn end(count: u64, size: u64, at: u64) -> Vec<u8> {
    let mut out = b"PK\x06\x06".to_vec();
    out.extend(44u64.to_le_bytes());
    out.extend([45, 0, 45, 0]);
    out.extend([0; 8]);
    for word in [count, count, size, at] {
        out.extend(word.to_le_bytes());
    }
    out.extend(b"PK\x06\x07\0\0\0\0");
    out.extend((at + size).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([0xff; 12]); // the counts, the size and the offset are in the 64-bit record
    out.extend([0; 2]);
    out
}
