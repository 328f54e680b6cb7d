//! The messages of which the object headers of HDF5 consist.

use super::{UNDEFINED, datatype};
use crate::contents::Value;

/// The kinds of header messages.
pub mod kind {
    pub const DATASPACE: u8 = 0x01;
    pub const LINK_INFO: u8 = 0x02;
    pub const DATATYPE: u8 = 0x03;
    pub const FILL_VALUE: u8 = 0x05;
    pub const LINK: u8 = 0x06;
    pub const LAYOUT: u8 = 0x08;
    pub const GROUP_INFO: u8 = 0x0a;
    pub const ATTRIBUTE: u8 = 0x0c;
    pub const ATTRIBUTE_INFO: u8 = 0x15;
}

/// Writes the extents of an array. An empty `shape` means a single value.
pub fn dataspace(shape: &[u64]) -> Vec<u8> {
    let mut out = vec![2, shape.len() as u8, 0, u8::from(!shape.is_empty())];
    out.extend(shape.iter().flat_map(|n| n.to_le_bytes()));
    out
}

/// Makes the message which says that the links of a group are in the group's header.
pub fn link_info() -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend([0xff; 16]); // no heap and no index for links
    out
}

/// Makes the message which says that the attributes of an object are in the object's header.
pub fn attribute_info() -> Vec<u8> {
    link_info()
}

/// Writes a link: a name, and the address of its object header.
pub fn link(name: &str, address: u64) -> Vec<u8> {
    // Names have at most 255 bytes here, so one byte gives the length. They are UTF-8.
    let mut out = vec![1, 0x10, 1, name.len() as u8];
    out.extend(name.as_bytes());
    out.extend(address.to_le_bytes());
    out
}

/// Makes the message which says that a dataset gets its space when its data are written, and that HDF5 does not fill
/// the space with a value first.
pub fn fill_value() -> Vec<u8> {
    vec![3, 0x0a]
}

/// Writes the position and the number of a dataset's bytes, which are contiguous.
pub fn layout(address: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![3, 1];
    out.extend(if bytes == 0 { UNDEFINED } else { address }.to_le_bytes());
    out.extend(bytes.to_le_bytes());
    out
}

/// Writes an attribute: a name and a single value.
pub fn attribute(name: &str, value: &Value) -> Vec<u8> {
    let (datatype, data) = match value {
        Value::I64(n) => (datatype::whole(true), n.to_le_bytes().to_vec()),
        Value::U64(n) => (datatype::whole(false), n.to_le_bytes().to_vec()),
        Value::F64(x) => (datatype::real(), x.to_le_bytes().to_vec()),
        Value::Text(text) => {
            let mut data = text.as_bytes().to_vec();
            data.resize(data.len().max(1), 0);
            (datatype::text(data.len()), data)
        }
    };
    let dataspace = dataspace(&[]);
    let mut out = vec![3, 0];
    for length in [name.len() + 1, datatype.len(), dataspace.len()] {
        out.extend((length as u16).to_le_bytes());
    }
    out.push(1); // the name is UTF-8
    out.extend(name.as_bytes());
    out.push(0);
    out.extend(datatype);
    out.extend(dataspace);
    out.extend(data);
    out
}
