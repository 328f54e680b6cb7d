//! The messages between the relays of two daemons about series: the bodies of the requests to the services 40 to 45,
//! and of their answers.

use crossdock_client::{AttributeSpec, Description, FullPolicy, Kind, MemberId, Order, Value, Variable};
use crossdock_core::series::{ChunkRun, Original, VersionHead};
use crossdock_link::body::{Read, Reader, put, put_bytes, wrong};

use crate::messages::{BodyField, ChannelKey, EndReason, spell};

/// Asks which series has a name on the asked node. The answer is [`FoundSeries`].
pub const FIND: u32 = 40;
/// Asks a node for a supply of one of its series: an observer that offers each version to the mirror. The answer is a
/// [`Load`] with the bytes of [`Supplied`].
pub const SUPPLY: u32 = 41;
/// Offers a version to a mirror. The answer is empty.
pub const VERSION: u32 = 42;
/// Reports to the supply that the mirror shows or skips a version. The body is a [`VersionAck`], the answer is empty.
pub const VERSION_ACK: u32 = 43;
/// Reports to the mirror that the series has ended. The body is a [`SeriesEnded`], the answer is empty.
pub const SERIES_ENDED: u32 = 44;
/// Reports to the supply that the mirror is gone. The answer is empty.
pub const MIRROR_GONE: u32 = 45;

/// A description of a series with more bytes than this does not fit into the answer to a request, so it is pulled.
pub const SHORT: usize = 48 << 10;
/// No description of a series has more bytes than this.
pub const MOST: u64 = 1 << 20;

/// The maximum size, in bytes, of the list of pieces (runs of changed chunks) in the request that offers a version.
const PIECES: usize = 24 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    pub workflow: String,
    pub series: String,
    /// Whether a series of a former run may be found.
    pub former: bool,
    pub wait_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSeries {
    /// The id of the series' segment on the node that publishes the series.
    pub segment: u64,
    /// The number of the newest version; 0 if there is none yet.
    pub newest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supply {
    pub key: ChannelKey,
    pub workflow: String,
    pub series: String,
    /// The id of the series' segment on the node that publishes the series.
    pub segment: u64,
    /// Whether observers from another run than the run of the series are allowed.
    pub former: bool,
    /// The number of the newest version that the mirror has. It is 0 if the mirror has none.
    pub has: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Supplied {
    pub original: Original,
    /// The task that publishes the series; empty if it is not known.
    pub publisher: String,
}

/// How the bytes of an offered version, or the description of a series, reach the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    Here(Vec<u8>),
    /// The mirror pulls the bytes. The fields are the number under which they are offered (the ticket) and the number
    /// of bytes.
    Pull(u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Offered {
    pub key: ChannelKey,
    pub head: VersionHead,
    pub pieces: Vec<ChunkRun>,
    pub load: Load,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionAck {
    pub key: ChannelKey,
    pub sequence: u64,
    /// Whether observers of the mirror see the version. If not, the mirror skipped it, because its bytes were gone.
    pub shown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesEnded {
    pub key: ChannelKey,
    pub how: EndReason,
}

spell! {
    Find { workflow, series, former, wait_ms }
    FoundSeries { segment, newest }
    Supply { key, workflow, series, segment, former, has }
    Supplied { original, publisher }
    VersionHead { sequence, time, copied, method, attributes, shapes, withheld }
    AttributeSpec { name, ty }
    VersionAck { key, sequence, shown }
    SeriesEnded { key, how }
}

impl BodyField for Kind {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, *self as u64);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Self::from_number(from.small()?).ok_or_else(wrong)
    }
}

impl BodyField for Value {
    fn write(&self, to: &mut Vec<u8>) {
        self.kind().write(to);
        match self {
            Self::I64(n) => put(to, *n as u64),
            Self::U64(n) => put(to, *n),
            Self::F64(n) => put(to, n.to_bits()),
            Self::Text(text) => put_bytes(to, text.as_bytes()),
        }
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(match Kind::read(from)? {
            Kind::I64 => Self::I64(from.number()? as i64),
            Kind::U64 => Self::U64(from.number()?),
            Kind::F64 => Self::F64(f64::from_bits(from.number()?)),
            Kind::Text => Self::Text(from.text()?),
        })
    }
}

impl BodyField for Variable {
    fn write(&self, to: &mut Vec<u8>) {
        self.name.write(to);
        self.ty.write(to);
        self.shape.write(to);
        put(to, self.order as u64);
        self.constants.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let (name, ty, shape) = (from.text()?, from.text()?, Vec::read(from)?);
        let order = Order::from_number(from.small()?).ok_or_else(wrong)?;
        Ok(Self { max_shape: shape.clone(), name, ty, shape, order, constants: BodyField::read(from)? })
    }
}

impl BodyField for Original {
    fn write(&self, to: &mut Vec<u8>) {
        let Description { variables, attributes, constants, chunk, publisher, created, full } = &self.description;
        variables.write(to);
        attributes.write(to);
        constants.write(to);
        put(to, (*chunk).into());
        put(to, publisher.0);
        put(to, *created);
        put(to, *full as u64);
        put(to, self.keep.into());
        put(to, self.observers.into());
        put(to, self.slots.into());
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let description = Description {
            variables: BodyField::read(from)?,
            attributes: BodyField::read(from)?,
            constants: BodyField::read(from)?,
            chunk: from.small()?,
            publisher: MemberId(from.number()?),
            created: from.number()?,
            full: FullPolicy::from_number(from.small()?).ok_or_else(wrong)?,
        };
        Ok(Self { description, keep: from.small()?, observers: from.small()?, slots: from.small()? })
    }
}

/// Writes a number in as few bytes as possible, with seven bits in each byte.
fn put_short(to: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn short(from: &mut std::slice::Iter<'_, u8>) -> Read<u32> {
    let mut number = 0u32;
    for shift in (0..32).step_by(7) {
        let byte = *from.next().ok_or_else(wrong)?;
        let part = u32::from(byte & 0x7f);
        number |= part << shift;
        if byte & 0x80 == 0 {
            // Each number has only one valid encoding: no bits beyond the 32 bits of the number are set, and the last
            // of several bytes is not 0.
            let is_short = number >> shift == part && (part > 0 || shift == 0);
            return if is_short { Ok(number) } else { Err(wrong()) };
        }
    }
    Err(wrong())
}

/// Encodes each piece (a run of changed chunks) as three numbers: its variable, the number of chunks between the
/// previous piece of this variable and this piece, and the number of chunks in this piece.
fn encode(pieces: &[ChunkRun]) -> Vec<u8> {
    let (mut bytes, mut at) = (Vec::new(), (0, 0));
    for ChunkRun { variable, first, count } in pieces {
        let before = if at.0 == *variable { at.1 } else { 0 };
        put_short(&mut bytes, *variable);
        put_short(&mut bytes, first - before);
        put_short(&mut bytes, *count);
        at = (*variable, first + count);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Read<Vec<ChunkRun>> {
    let (mut from, mut pieces, mut at) = (bytes.iter(), Vec::new(), (0, 0u32));
    while !from.as_slice().is_empty() {
        let variable = short(&mut from)?;
        let before = if at.0 == variable { at.1 } else { 0 };
        let first = before.checked_add(short(&mut from)?).ok_or_else(wrong)?;
        let count = short(&mut from)?;
        at = (variable, first.checked_add(count).ok_or_else(wrong)?);
        pieces.push(ChunkRun { variable, first, count });
    }
    Ok(pieces)
}

/// Makes the list of pieces short enough for one request. Pieces with a small gap between them become one piece, which
/// contains the chunks in the gap. If the list is still too long, wider gaps are closed.
pub fn fit(mut pieces: Vec<ChunkRun>) -> Vec<ChunkRun> {
    let mut gap = 1;
    while encode(&pieces).len() > PIECES {
        let mut joined: Vec<ChunkRun> = Vec::new();
        for piece in pieces {
            match joined.last_mut() {
                Some(last) if last.variable == piece.variable && piece.first - (last.first + last.count) <= gap => {
                    last.count = piece.first + piece.count - last.first;
                }
                _ => joined.push(piece),
            }
        }
        pieces = joined;
        gap *= 2;
    }
    pieces
}

impl BodyField for Offered {
    fn write(&self, to: &mut Vec<u8>) {
        self.key.write(to);
        self.head.write(to);
        put_bytes(to, &encode(&self.pieces));
        self.load.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let (key, head, pieces) = (ChannelKey::read(from)?, VersionHead::read(from)?, decode(&from.bytes()?)?);
        Ok(Self { key, head, pieces, load: Load::read(from)? })
    }
}

impl BodyField for Load {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Here(bytes) => {
                put(to, 1);
                put_bytes(to, bytes);
            }
            Self::Pull(ticket, length) => {
                put(to, 2);
                put(to, *ticket);
                put(to, *length);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        match from.number()? {
            1 => Ok(Self::Here(from.bytes()?)),
            2 => Ok(Self::Pull(from.number()?, from.number()?)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_second(count: u32) -> Vec<ChunkRun> {
        (0..count).map(|n| ChunkRun { variable: n / 50_000, first: 2 * (n % 50_000), count: 1 }).collect()
    }

    #[test]
    fn pieces_come_back_as_they_went() {
        for pieces in [
            vec![],
            every_second(7),
            every_second(60_000),
            vec![ChunkRun { variable: 3, first: 1 << 19, count: 1 << 20 }],
        ] {
            assert_eq!(decode(&encode(&pieces)).unwrap(), pieces);
        }
        assert!(decode(&[0, 0x80]).is_err() && decode(&[0xff; 9]).is_err());
        assert!(decode(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 5]).is_err(), "ends beyond the largest number");
        assert!(decode(&[0, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]).is_err(), "beyond the largest number");
        assert!(decode(&[0, 0x80, 0, 1]).is_err(), "a longer spelling of 0");
    }

    #[test]
    fn pieces_are_joined_only_if_they_do_not_fit() {
        assert_eq!(fit(every_second(8000)).len(), 8000);
        let joined = fit(every_second(60_000));
        assert!(encode(&joined).len() <= PIECES);
        let covered = |piece: &ChunkRun| {
            joined.iter().any(|j| {
                j.variable == piece.variable && j.first <= piece.first && piece.first + piece.count <= j.first + j.count
            })
        };
        assert!(every_second(60_000).iter().step_by(997).all(covered));
    }
}
