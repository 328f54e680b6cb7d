//! Reads object headers. This module knows only headers of the kinds that this library writes. Any other header is an
//! error.
//!
//! The caller has already checked the checksums of the headers. But any program may have made the file and its
//! checksums, so every number is checked before it is used.

use std::collections::HashSet;

use super::message::kind;
use super::{SIGNATURE, SUPERBLOCK, lookup3};
use crate::contents::Value;

/// The contents of an HDF5 object header.
#[derive(Debug, Default)]
pub struct Object {
    /// The attributes, in the order in which they are in the header.
    pub attributes: Vec<(String, Value)>,
    /// The extents of a dataset.
    pub shape: Vec<u64>,
    /// The position of a dataset's bytes, counted from the superblock, and the number of bytes.
    pub data: Option<(u64, u64)>,
}

type Read<T> = Result<T, &'static str>;
const SHORT: &str = "a header ends before it should";
const STRANGE: &str = "it holds what crossdock does not write";

/// Reads every object of a file. The root group is the first. `bytes` begins with the superblock.
pub fn objects(bytes: &[u8]) -> Read<Vec<Object>> {
    let block = bytes.get(..SUPERBLOCK as usize).ok_or(SHORT)?;
    if block[..8] != SIGNATURE || block[8..12] != [2, 8, 8, 0] {
        return Err(STRANGE);
    }
    let mut at = Cursor { bytes: block, at: 36 };
    let mut waiting = vec![at.u64()?];
    if at.u32()? != lookup3::sum(&block[..44]) {
        return Err("the superblock's checksum is wrong");
    }
    let (mut found, mut seen, mut left) = (Vec::new(), HashSet::new(), bytes.len() - SUPERBLOCK as usize);
    while let Some(address) = waiting.pop() {
        if !seen.insert(address) {
            return Err("two names lead to the same header");
        }
        let (object, links, length) = header(bytes, address)?;
        // Headers must not overlap. If a header could lie inside another one, a short file could describe very many
        // objects.
        left = left.checked_sub(length).ok_or("its headers overlap")?;
        waiting.extend(links);
        found.push(object);
    }
    Ok(found)
}

/// Reads the header at this address. Returns the object, the addresses to which its links lead, and the length of the
/// header.
fn header(bytes: &[u8], address: u64) -> Read<(Object, Vec<u64>, usize)> {
    let start = usize::try_from(address).ok().filter(|a| *a < bytes.len()).ok_or(SHORT)?;
    let mut at = Cursor { bytes, at: start };
    if at.take(6)? != b"OHDR\x02\x02" {
        return Err(STRANGE);
    }
    let length = at.u32()? as usize;
    let mut messages = Cursor { bytes: at.take(length)?, at: 0 };
    let end = at.at;
    if at.u32()? != lookup3::sum(&bytes[start..end]) {
        return Err("a header's checksum is wrong");
    }
    let whole = at.at - start;
    let (mut object, mut links) = (Object::default(), Vec::new());
    while messages.at < messages.bytes.len() {
        let kind = messages.u8()?;
        let length = messages.u16()? as usize;
        messages.u8()?;
        let mut body = Cursor { bytes: messages.take(length)?, at: 0 };
        match kind {
            kind::LINK => links.push(body.link()?),
            kind::DATASPACE => object.shape = body.dataspace()?,
            kind::LAYOUT => object.data = Some(body.layout()?),
            kind::ATTRIBUTE => object.attributes.push(body.attribute()?),
            kind::DATATYPE | kind::FILL_VALUE | kind::LINK_INFO | kind::GROUP_INFO | kind::ATTRIBUTE_INFO => {}
            _ => return Err(STRANGE),
        }
    }
    Ok((object, links, whole))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(n).ok_or(SHORT)?;
        let found = self.bytes.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(found)
    }

    fn number<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.number()?))
    }

    fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.number()?))
    }

    fn text(&mut self, n: usize) -> Read<String> {
        Ok(std::str::from_utf8(self.take(n)?).map_err(|_| STRANGE)?.to_owned())
    }

    /// Reads a link and returns the address to which it leads. The link's name is skipped, because attributes contain
    /// the names of series and variables.
    fn link(&mut self) -> Read<u64> {
        if self.take(3)? != [1, 0x10, 1] {
            return Err(STRANGE);
        }
        let length = self.u8()? as usize;
        self.text(length)?;
        self.u64()
    }

    fn dataspace(&mut self) -> Read<Vec<u64>> {
        if self.u8()? != 2 {
            return Err(STRANGE);
        }
        let rank = self.u8()?;
        self.take(2)?;
        (0..rank).map(|_| self.u64()).collect()
    }

    fn layout(&mut self) -> Read<(u64, u64)> {
        if self.take(2)? != [3, 1] {
            return Err(STRANGE);
        }
        Ok((self.u64()?, self.u64()?))
    }

    fn attribute(&mut self) -> Read<(String, Value)> {
        if self.take(2)? != [3, 0] {
            return Err(STRANGE);
        }
        let (name, datatype, dataspace) = (self.u16()?, self.u16()?, self.u16()?);
        self.u8()?;
        let name = self.text(name as usize)?.trim_end_matches('\0').to_owned();
        let datatype = self.take(datatype as usize)?;
        if self.take(dataspace as usize)? != [2, 0, 0, 0] {
            return Err(STRANGE);
        }
        let mut kind = Cursor { bytes: datatype, at: 0 };
        let (class, bits) = (kind.u8()? & 15, kind.take(3)?);
        let size = kind.u32()? as usize;
        let value = match (class, size) {
            (0, 8) if bits[0] == 8 => Value::I64(i64::from_le_bytes(self.number()?)),
            (0, 8) => Value::U64(self.u64()?),
            (1, 8) => Value::F64(f64::from_le_bytes(self.number()?)),
            (3, _) => Value::Text(self.text(size)?.trim_end_matches('\0').to_owned()),
            _ => return Err(STRANGE),
        };
        Ok((name, value))
    }
}
