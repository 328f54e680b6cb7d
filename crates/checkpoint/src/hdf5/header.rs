//! Object headers, which describe groups and datasets.

use super::message::{self, kind};
use super::{datatype, lookup3};
use crate::contents::Value;
use crossdock_layout::type_name::Type;

/// An object header under construction.
#[derive(Default)]
pub struct Header {
    messages: Vec<u8>,
}

impl Header {
    /// Makes the header of a group with links to other headers.
    pub fn group(links: &[(&str, u64)], attributes: &[(String, Value)]) -> Self {
        let mut header = Self::default();
        header.put(kind::LINK_INFO, &message::link_info());
        header.put(kind::GROUP_INFO, &[0, 0]);
        for (name, address) in links {
            header.put(kind::LINK, &message::link(name, *address));
        }
        header.attributes(attributes);
        header
    }

    /// Makes the header of a dataset. `place` is the position of the dataset's bytes, and their number.
    pub fn dataset(ty: &Type, item: u64, shape: &[u64], place: (u64, u64), attributes: &[(String, Value)]) -> Self {
        let (datatype, more) = datatype::of(ty, item);
        let shape: Vec<u64> = shape.iter().copied().chain(more).collect();
        let mut header = Self::default();
        header.put(kind::DATASPACE, &message::dataspace(&shape));
        header.put(kind::DATATYPE, &datatype);
        header.put(kind::FILL_VALUE, &message::fill_value());
        header.put(kind::LAYOUT, &message::layout(place.0, place.1));
        header.attributes(attributes);
        header
    }

    fn attributes(&mut self, attributes: &[(String, Value)]) {
        if !attributes.is_empty() {
            self.put(kind::ATTRIBUTE_INFO, &message::attribute_info());
        }
        for (name, value) in attributes {
            self.put(kind::ATTRIBUTE, &message::attribute(name, value));
        }
    }

    fn put(&mut self, kind: u8, body: &[u8]) {
        self.messages.push(kind);
        self.messages.extend((body.len() as u16).to_le_bytes());
        self.messages.push(u8::from(kind == kind::DATATYPE)); // bit 0: the message is constant
        self.messages.extend(body);
    }

    /// Returns the bytes of the header as they are in the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"OHDR".to_vec();
        out.extend([2, 2]); // version 2; the second byte says that the length of the messages takes four bytes
        out.extend((self.messages.len() as u32).to_le_bytes());
        out.extend(&self.messages);
        let sum = lookup3::sum(&out);
        out.extend(sum.to_le_bytes());
        out
    }
}
