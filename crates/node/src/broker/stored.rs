//! The encoding of values in the journal and in messages between nodes. Numbers are encoded as in messages to clients.
//! Texts and lists have their length in front.

use crossdock_layout::wire::{
    Encoding, Grant, InUse, ItemLevel, Malformed, OnDeath, Party, Reader, SegmentKind, Wire, Writer,
};
use crossdock_layout::{MemberId, Rights, SegmentId};

/// The usual encoding of a type in the journal and in messages between nodes.
#[derive(Clone, Copy, Debug)]
pub struct Stored;

/// Encodes a value.
pub(super) fn encode<T>(value: &T) -> Vec<u8>
where
    Stored: Encoding<T>,
{
    let mut writer = Writer(Vec::new());
    <Stored as Encoding<T>>::write(value, &mut writer);
    writer.0
}

/// Decodes a value. `None` if the bytes are not exactly one value.
pub(super) fn decode<T>(bytes: &[u8]) -> Option<T>
where
    Stored: Encoding<T>,
{
    let mut reader = Reader::new(bytes);
    let value = <Stored as Encoding<T>>::read(&mut reader, "value").ok()?;
    reader.end().ok()?;
    Some(value)
}

macro_rules! as_on_the_wire {
    ($($type:ty),+) => {$(
        impl Encoding<$type> for Stored {
            const WHAT: &'static str = <Wire as Encoding<$type>>::WHAT;
            const SIZE: usize = <Wire as Encoding<$type>>::SIZE;
            fn write(value: &$type, w: &mut Writer) {
                Wire::write(value, w);
            }
            fn read(r: &mut Reader<'_>, field: &'static str) -> Result<$type, Malformed> {
                Wire::read(r, field)
            }
        }
    )+};
}

as_on_the_wire! { u32, u64, bool, [u8; 16], MemberId, SegmentId, Rights, SegmentKind, InUse, ItemLevel, OnDeath }

impl Encoding<String> for Stored {
    const WHAT: &'static str = "text";
    const SIZE: usize = 0;
    fn write(text: &String, w: &mut Writer) {
        w.u32(text.len() as u32).bytes(text.as_bytes());
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<String, Malformed> {
        let length = r.u32()? as usize;
        std::str::from_utf8(r.slice(length)?).map(str::to_owned).map_err(|_| Malformed::Value(field))
    }
}

impl<T> Encoding<Vec<T>> for Stored
where
    Self: Encoding<T>,
{
    const WHAT: &'static str = "list";
    const SIZE: usize = 0;
    fn write(values: &Vec<T>, w: &mut Writer) {
        w.u32(values.len() as u32);
        values.iter().for_each(|value| Self::write(value, w));
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Vec<T>, Malformed> {
        (0..r.u32()?).map(|_| Self::read(r, field)).collect()
    }
}

/// A member that has a segment open, and the number of its openings.
impl Encoding<(MemberId, u32)> for Stored {
    const WHAT: &'static str = "member, u32";
    const SIZE: usize = 12;
    fn write((member, count): &(MemberId, u32), w: &mut Writer) {
        w.u64(member.0).u32(*count);
    }
    fn read(r: &mut Reader<'_>, _field: &'static str) -> Result<(MemberId, u32), Malformed> {
        Ok((MemberId(r.u64()?), r.u32()?))
    }
}

impl Encoding<Grant> for Stored {
    const WHAT: &'static str = "Grant";
    const SIZE: usize = 0;
    fn write(grant: &Grant, w: &mut Writer) {
        Self::write(&grant.kind, w);
        Self::write(&grant.rights, w);
        Self::write(&grant.pattern, w);
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Grant, Malformed> {
        Ok(Grant { kind: Self::read(r, field)?, rights: Self::read(r, field)?, pattern: Self::read(r, field)? })
    }
}

const NUMBER: u32 = 1;
const ANY_RANK: u32 = 2;
const RANK: u32 = 3;

impl Encoding<Party> for Stored {
    const WHAT: &'static str = "Party";
    const SIZE: usize = 0;
    fn write(party: &Party, w: &mut Writer) {
        match party {
            Party::Number(number) => drop(w.u32(NUMBER).u64(*number)),
            Party::Task { task, rank: None } => Self::write(task, w.u32(ANY_RANK)),
            Party::Task { task, rank: Some(rank) } => Self::write(task, w.u32(RANK).u32(*rank)),
        }
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Party, Malformed> {
        match r.u32()? {
            NUMBER => Ok(Party::Number(r.u64()?)),
            ANY_RANK => Ok(Party::Task { task: Self::read(r, field)?, rank: None }),
            RANK => {
                let rank = Some(r.u32()?);
                Ok(Party::Task { task: Self::read(r, field)?, rank })
            }
            _ => Err(Malformed::Value(field)),
        }
    }
}
