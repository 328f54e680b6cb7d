//! Reading and writing little-endian fields, one after the other. Every read checks the bounds of the message.

use crate::{Status, name};

/// The fault of a message that cannot be decoded. The receiver closes the connection on which the message came, and no
/// other connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message ends in the middle of a field, or has bytes behind its last field.
    Length,
    /// The length in the header is not the length of the message.
    HeaderLength,
    /// No message has the opcode that was received.
    Opcode(u16),
    /// A reserved field is not zero.
    Reserved,
    /// A name field has no valid name.
    Name,
    /// The field of this name has a number that is not allowed there.
    Value(&'static str),
    /// The message came with a wrong number of descriptors, or the kernel cut off the control data with the
    /// descriptors.
    Descriptors,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length => f.write_str("message is too short or too long for its kind"),
            Self::HeaderLength => f.write_str("header gives another length than the message has"),
            Self::Opcode(n) => write!(f, "unknown opcode {n}"),
            Self::Reserved => f.write_str("a reserved field is not zero"),
            Self::Name => f.write_str("a name field holds no name"),
            Self::Value(field) => write!(f, "field '{field}' is out of range"),
            Self::Descriptors => f.write_str("wrong number of descriptors"),
        }
    }
}

/// The number of bytes of a name field. The name is followed by zeros.
pub const NAME_FIELD: usize = name::MAX_NAME + 1;

/// Reads fields from the front of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// The status in the header of an answer.
    pub(super) status: Status,
}

impl<'a> Reader<'a> {
    /// Makes a reader that begins with the first of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self::answer(bytes, Status::Ok)
    }

    pub(super) const fn answer(bytes: &'a [u8], status: Status) -> Self {
        Self { bytes, status }
    }

    /// Reads the next `N` bytes.
    #[inline]
    pub fn bytes<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (field, rest) = self.bytes.split_first_chunk::<N>().ok_or(Malformed::Length)?;
        self.bytes = rest;
        Ok(field)
    }

    /// Reads a field of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.bytes().map(|b| u16::from_le_bytes(*b))
    }

    /// Reads a field of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.bytes().map(|b| u32::from_le_bytes(*b))
    }

    /// Reads a field of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.bytes().map(|b| u64::from_le_bytes(*b))
    }

    /// Reads a field that must be zero in this version. A later version may give the field a meaning. This build does
    /// not know that meaning, so it must refuse the message.
    pub fn reserved(&mut self) -> Result<(), Malformed> {
        if self.u32()? == 0 { Ok(()) } else { Err(Malformed::Reserved) }
    }

    /// Reads a name field.
    pub fn name(&mut self) -> Result<String, Malformed> {
        let field = self.bytes::<NAME_FIELD>()?;
        name::from_field(field).map(str::to_owned).ok_or(Malformed::Name)
    }

    /// Reads a name field that may be empty. All bytes of an empty field are zero.
    pub fn optional_name(&mut self) -> Result<Option<String>, Malformed> {
        let field = self.bytes::<NAME_FIELD>()?;
        if field.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        name::from_field(field).map(|n| Some(n.to_owned())).ok_or(Malformed::Name)
    }

    /// Reads a pattern: a name, the beginning of a name followed by `*`, or `*` alone.
    pub fn pattern(&mut self) -> Result<String, Malformed> {
        let field = self.bytes::<NAME_FIELD>()?;
        let end = field.iter().position(|b| *b == 0).ok_or(Malformed::Name)?;
        if field[end..].iter().any(|b| *b != 0) {
            return Err(Malformed::Name);
        }
        let text = std::str::from_utf8(&field[..end]).map_err(|_| Malformed::Name)?;
        if super::is_pattern(text) { Ok(text.to_owned()) } else { Err(Malformed::Name) }
    }

    /// Reads an address: printable ASCII without spaces, or an empty field.
    pub fn address(&mut self) -> Result<String, Malformed> {
        let field = self.bytes::<NAME_FIELD>()?;
        let end = field.iter().position(|b| *b == 0).ok_or(Malformed::Name)?;
        let (text, rest) = field.split_at(end);
        let good = text.iter().all(u8::is_ascii_graphic) && rest.iter().all(|b| *b == 0);
        good.then(|| text.iter().map(|b| char::from(*b)).collect()).ok_or(Malformed::Name)
    }

    /// Reads a line of text, which may be empty.
    pub fn line(&mut self) -> Result<String, Malformed> {
        let field = self.bytes::<NAME_FIELD>()?;
        let end = field.iter().position(|b| *b == 0).ok_or(Malformed::Name)?;
        let (text, rest) = field.split_at(end);
        let text = std::str::from_utf8(text).map_err(|_| Malformed::Name)?;
        let good = !text.chars().any(char::is_control) && rest.iter().all(|b| *b == 0);
        good.then(|| text.to_owned()).ok_or(Malformed::Name)
    }

    /// Reads all bytes up to the end of the message.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Reads the next `length` bytes.
    pub fn slice(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (field, rest) = self.bytes.split_at_checked(length).ok_or(Malformed::Length)?;
        self.bytes = rest;
        Ok(field)
    }

    /// Checks that the message has no further bytes.
    pub fn end(self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed::Length) }
    }
}

/// Appends fields to a message.
#[derive(Debug)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Appends these bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a number of two bytes, little-endian.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number of four bytes, little-endian.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number of eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a line of text, shortened so that it fits into its field. Control characters become spaces.
    pub fn line(&mut self, text: &str) -> &mut Self {
        let mut line = String::new();
        for letter in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if line.len() + letter.len_utf8() >= NAME_FIELD {
                break;
            }
            line.push(letter);
        }
        self.name(&line)
    }

    /// Appends a name field. Callers have checked that the name fits. A name that is too long would leave no zero byte
    /// at the end of the field, and the receiver would refuse it.
    pub fn name(&mut self, name: &str) -> &mut Self {
        let mut field = [0u8; NAME_FIELD];
        let length = name.len().min(NAME_FIELD);
        field[..length].copy_from_slice(&name.as_bytes()[..length]);
        self.bytes(&field)
    }
}
