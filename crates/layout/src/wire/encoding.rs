//! The encoding of values as bytes. Each type has one usual encoding. If a field has another encoding, the declaration
//! of the field names that encoding.

use super::cursor::{Malformed, NAME_FIELD, Reader, Writer};
use super::item::Party;
use crate::{MemberId, Rights, SegmentId, Status};

/// Writes values of one type as bytes, and reads and checks them.
pub trait Encoding<T> {
    /// The name of the encoding in the protocol's tables.
    const WHAT: &'static str;
    /// The number of bytes of an encoded value; 0 if this number varies.
    const SIZE: usize;
    /// Appends the value to the message.
    fn write(value: &T, w: &mut Writer);
    /// Reads a value from the front of the message. An error names `field`.
    ///
    /// # Errors
    /// The bytes are not a valid encoding of a value.
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<T, Malformed>;
}

/// The usual encoding of a type in messages.
#[derive(Clone, Copy, Debug)]
pub struct Wire;

/// A value of four bytes with a reserved word behind it, so that the next field begins at a multiple of eight.
#[derive(Clone, Copy, Debug)]
pub struct Padded;

/// Several flags in one word, the first one in bit 0.
#[derive(Clone, Copy, Debug)]
pub struct Bits;

/// A pattern: a name, or the beginning of a name followed by `*`.
#[derive(Clone, Copy, Debug)]
pub struct Pattern;

/// An address: printable ASCII without spaces. It may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Address;

/// A line of text for people: UTF-8 without control characters. The line may be empty. A line that is too long for its
/// field is shortened.
#[derive(Clone, Copy, Debug)]
pub struct TextLine;

/// From 1 to `MOST` values, with their number in front of them.
#[derive(Clone, Copy, Debug)]
pub struct NonEmptyList<const MOST: usize>;

/// At most `MOST` values, with their number and a reserved word in front of them.
#[derive(Clone, Copy, Debug)]
pub struct List<const MOST: usize>;

/// An encoding for the status of an answer. The status is in the message's header, so it takes no bytes of the body.
#[derive(Clone, Copy, Debug)]
pub struct InHeader;

/// Text up to the end of the message. A text of more than `MOST` bytes is shortened.
#[derive(Clone, Copy, Debug)]
pub struct Text<const MOST: usize>;

macro_rules! spelled {
    ($($encoding:ty: $type:ty, $what:literal, $size:expr, |$value:ident, $w:ident| $write:expr, |$r:ident, $field:ident| $read:expr;)+) => {$(
        impl Encoding<$type> for $encoding {
            const WHAT: &'static str = $what;
            const SIZE: usize = $size;
            fn write($value: &$type, $w: &mut Writer) {
                let _ = $write;
            }
            #[inline]
            fn read($r: &mut Reader<'_>, $field: &'static str) -> Result<$type, Malformed> {
                $read
            }
        }
    )+};
}

spelled! {
    Wire: u32, "u32", 4, |value, w| w.u32(*value), |r, _field| r.u32();
    Wire: u64, "u64", 8, |value, w| w.u64(*value), |r, _field| r.u64();
    Wire: [u64; 2], "2 × u64", 16, |value, w| w.u64(value[0]).u64(value[1]), |r, _field| Ok([r.u64()?, r.u64()?]);
    Wire: [u8; 16], "16 bytes", 16, |value, w| w.bytes(value), |r, _field| r.bytes().copied();
    Wire: bool, "0 or 1, u32", 4, |value, w| w.u32(u32::from(*value)), |r, field| Ok(bits(r, field, 1)? == 1);
    Wire: MemberId, "member, u64", 8, |value, w| w.u64(value.0), |r, _field| r.u64().map(MemberId);
    Wire: SegmentId, "segment, u64", 8, |value, w| w.u64(value.0), |r, _field| r.u64().map(SegmentId);
    Wire: Rights, "rights, u32", 4, |value, w| w.u32(value.0),
        |r, field| Ok(Rights(r.u32()?)).and_then(|set| Rights::KNOWN.contains(set).then_some(set).ok_or(Malformed::Value(field)));
    Wire: String, "name", NAME_FIELD, |value, w| w.name(value), |r, _field| r.name();
    Wire: Option<String>, "optional name", NAME_FIELD,
        |value, w| w.name(value.as_deref().unwrap_or("")), |r, _field| r.optional_name();
    Wire: Party, "party", 8 + NAME_FIELD, |value, w| value.write(w), |r, _field| Party::read(r);
    Address: String, "address", NAME_FIELD, |value, w| w.name(value), |r, _field| r.address();
    TextLine: String, "line", NAME_FIELD, |value, w| w.line(value), |r, _field| r.line();
    Pattern: String, "pattern", NAME_FIELD, |value, w| w.name(value), |r, _field| r.pattern();
    Bits: (bool, bool), "bits, u32", 4, |value, w| w.u32(u32::from(value.0) | u32::from(value.1) << 1),
        |r, field| bits(r, field, 3).map(|bits| (bits & 1 != 0, bits & 2 != 0));
    Bits: (bool, bool, bool), "bits, u32", 4,
        |value, w| w.u32(u32::from(value.0) | u32::from(value.1) << 1 | u32::from(value.2) << 2),
        |r, field| bits(r, field, 7).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0));
    InHeader: Status, "in the header", 0, |_value, w| w, |r, _field| Ok(r.status);
}

fn bits(r: &mut Reader<'_>, field: &'static str, all: u32) -> Result<u32, Malformed> {
    let bits = r.u32()?;
    if bits <= all { Ok(bits) } else { Err(Malformed::Value(field)) }
}

impl<T> Encoding<T> for Padded
where
    Wire: Encoding<T>,
{
    const WHAT: &'static str = <Wire as Encoding<T>>::WHAT;
    const SIZE: usize = <Wire as Encoding<T>>::SIZE + 4;
    fn write(value: &T, w: &mut Writer) {
        Wire::write(value, w);
        w.u32(0);
    }
    #[inline]
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<T, Malformed> {
        let value = Wire::read(r, field)?;
        r.reserved()?;
        Ok(value)
    }
}

impl<T, const MOST: usize> Encoding<Vec<T>> for NonEmptyList<MOST>
where
    Wire: Encoding<T>,
{
    const WHAT: &'static str = "number u32, entries";
    const SIZE: usize = 0;
    fn write(values: &Vec<T>, w: &mut Writer) {
        w.u32(values.len() as u32);
        values.iter().for_each(|value| Wire::write(value, w));
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Vec<T>, Malformed> {
        match r.u32()? as usize {
            count if (1..=MOST).contains(&count) => (0..count).map(|_| Wire::read(r, field)).collect(),
            _ => Err(Malformed::Value(field)),
        }
    }
}

impl<T, const MOST: usize> Encoding<Vec<T>> for List<MOST>
where
    Wire: Encoding<T>,
{
    const WHAT: &'static str = "number u32, reserved u32, entries";
    const SIZE: usize = 0;
    fn write(values: &Vec<T>, w: &mut Writer) {
        w.u32(values.len() as u32).u32(0);
        values.iter().for_each(|value| Wire::write(value, w));
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Vec<T>, Malformed> {
        let count: u32 = <Padded as Encoding<u32>>::read(r, field)?;
        if count as usize > MOST {
            return Err(Malformed::Value(field));
        }
        (0..count).map(|_| Wire::read(r, field)).collect()
    }
}

impl<const MOST: usize> Encoding<String> for Text<MOST> {
    const WHAT: &'static str = "UTF-8 up to the end";
    const SIZE: usize = 0;
    fn write(text: &String, w: &mut Writer) {
        w.bytes(crate::text::clipped(text, MOST).as_bytes());
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<String, Malformed> {
        let body = r.rest();
        if body.len() > MOST {
            return Err(Malformed::Length);
        }
        std::str::from_utf8(body).map(str::to_owned).map_err(|_| Malformed::Value(field))
    }
}
