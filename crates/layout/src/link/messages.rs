//! The messages between two node daemons. The tables of `docs/node-protocol.md` are generated from these declarations.

use super::MAX_CHUNK;
use super::header::{FRAME_HEADER, FrameHeader, finish};
use crate::wire::{Encoding, Malformed, Padded, Reader, SegmentKind, Text, Wire, Writer};
use crate::{Status, closed_set, messages};

/// The first eight bytes in the body of a connection's first message: `crossdok`. Another program that connects by
/// mistake does not send these bytes, so its connection is refused.
pub const MAGIC: u64 = u64::from_le_bytes(*b"crossdok");

/// The largest number of bytes in the body of a question or an answer.
pub const MAX_BODY: usize = 60 << 10;

/// The largest number of bytes in the text of a refusal.
pub const MAX_LINK_TEXT: usize = 1024;

closed_set! {
    /// The purpose of a connection between two nodes.
    pub enum Purpose {
        /// Questions, answers and pulses (signs of life).
        Control = 1 "control",
        /// Transfer of the bytes of segments. The dialing node asks for the bytes.
        Data = 2 "data",
        /// Messages between the site's nodes about the site's catalog.
        Catalog = 3 "catalog",
    }
}

/// An encoding: bytes up to the end of the message, at most [`MAX_BODY`].
#[derive(Clone, Copy, Debug)]
pub struct Body;

impl Encoding<Vec<u8>> for Body {
    const WHAT: &'static str = "bytes up to the end";
    const SIZE: usize = 0;
    fn write(value: &Vec<u8>, w: &mut Writer) {
        assert!(value.len() <= MAX_BODY, "a body of {} bytes", value.len());
        w.bytes(value);
    }
    fn read(r: &mut Reader<'_>, _field: &'static str) -> Result<Vec<u8>, Malformed> {
        let body = r.rest();
        if body.len() > MAX_BODY { Err(Malformed::Length) } else { Ok(body.to_vec()) }
    }
}

messages! {
    /// A message between two node daemons. The dialing node asks, and the accepting node answers. Both send pulses,
    /// which are signs of life.
    pub enum NodeMessage: u16 as Wire {
        /// Opens a connection. The dialing node sends Hello as its first message, and only once.
        1 Hello -> Welcome {
            /// The number [`MAGIC`].
            magic: u64,
            /// The version of the node protocol that the dialing node uses, [`super::LINK_VERSION`].
            version: u32,
            /// The purpose of the connection.
            purpose: Purpose,
            /// A number that changes each time the dialing daemon is started.
            incarnation: u64,
            /// On a data connection: the value of the field `session` in the Welcome of the control connection to which
            /// the data connection belongs. On other connections, all bytes are zero.
            session: [u8; 16],
            /// The time between two pulses of the dialing node, in milliseconds. The node sends a pulse when this time
            /// has passed since its last pulse.
            pulse_ms: u32,
            /// If the dialing node hears nothing from a peer for this time in milliseconds, it counts the peer as away.
            away_ms: u32,
            /// The dialing node's name. Under TLS, the dialing node's certificate must prove this name.
            node: String,
            /// The name of the node that the dialing node wants to reach. Any other node refuses the connection.
            to: String,
        },
        /// The accepting node's answer to Hello. With Welcome, the node accepts the connection.
        2 Welcome {
            /// The version of the node protocol that the answering node uses, [`super::LINK_VERSION`].
            version: u32 as Padded,
            /// A number that changes each time the answering daemon is started.
            incarnation: u64,
            /// An identifier of this control connection. Each data connection that belongs to the control connection
            /// repeats the identifier in the field `session` of its Hello.
            session: [u8; 16],
            /// The time between two pulses of the answering node, in milliseconds. The node sends a pulse when this
            /// time has passed since its last pulse.
            pulse_ms: u32,
            /// If the answering node hears nothing from a peer for this time in milliseconds, it counts the peer as
            /// away.
            away_ms: u32,
            /// The name of the answering node.
            node: String,
        },
        /// Shows that the sender is alive. Both sides of a control connection send pulses.
        3 Pulse {
            /// The number of pulses that the sender has sent before this one.
            count: u64,
        },
        /// Asks the other node a question. The field `service` says which part of that node answers.
        4 Ask -> Said {
            /// The number of the service.
            service: u32,
            /// How long the asking node waits for the answer, in milliseconds.
            wait_ms: u32,
            /// The question's contents, which the service defines.
            body: Vec<u8> as Body,
        },
        /// The answer of the other node to a question.
        5 Said(body: Vec<u8> as Body),
        /// Says that the other node could not answer the question, or refused to.
        6 Failed {
            /// The reason for the failure, as a status number for programs.
            status: Status as Padded,
            /// The reason for the failure, as a text for people. The text names the object, says what is wrong, and
            /// gives a hint.
            text: String as Text<MAX_LINK_TEXT>,
        },
        /// Asks for bytes of an object. The other node answers a Fetch with Chunk messages in the order of their
        /// offsets, or with one Failed.
        7 Fetch -> Chunk {
            /// The kind of the object.
            kind: SegmentKind,
            /// True if each Chunk must carry a checksum. If TLS protects the bytes already, the asking node needs no
            /// checksums and sends 0.
            checked: bool,
            /// The object's id on the node that gets this message.
            object: u64,
            /// The epoch of the object (for an item: how often it has moved between nodes), as the asking node knows
            /// it. If the object has another epoch on the answering node, that node refuses the Fetch.
            epoch: u64,
            /// The offset of the first byte that is asked for.
            offset: u64,
            /// The number of bytes that are asked for, at least 1.
            length: u64,
        },
        /// Announces bytes of an object. The bytes themselves follow directly behind the Chunk message.
        8 Chunk {
            /// The offset of these bytes in the object.
            offset: u64,
            /// The number of bytes that follow: from 1 to [`super::MAX_CHUNK`].
            length: u64,
            /// The checksum XXH3 (64 bit) of the bytes, if the Fetch asked for one; otherwise 0.
            sum: u64,
        },
        /// Closes the connection without a fault. The sender of a Bye sends nothing more on the connection.
        9 Bye,
    }
}

impl NodeMessage {
    /// Encodes the whole message.
    #[must_use]
    pub fn encode(&self, number: u64) -> Vec<u8> {
        let mut writer = FrameHeader::begin(self.number(), number);
        self.write_body(&mut writer);
        finish(writer)
    }

    /// Tells whether this message is a question or an answer. The number in the header of a question or an answer must
    /// not be 0.
    #[must_use]
    pub const fn is_numbered(&self) -> bool {
        matches!(self, Self::Ask { .. } | Self::Said(_) | Self::Failed { .. } | Self::Fetch { .. } | Self::Chunk { .. })
    }

    /// Decodes a message's body, which any program may have sent.
    ///
    /// # Errors
    /// The bytes are not a valid encoding of a message.
    pub fn decode(header: FrameHeader, body: &[u8]) -> Result<Self, Malformed> {
        if header.length != FRAME_HEADER + body.len() {
            return Err(Malformed::HeaderLength);
        }
        let mut r = Reader::new(body);
        let message = Self::read_body(header.opcode, &mut r)?;
        r.end()?;
        if (header.number != 0) != message.is_numbered() {
            return Err(Malformed::Value("number"));
        }
        match &message {
            Self::Hello { magic, .. } if *magic != MAGIC => return Err(Malformed::Value("magic")),
            Self::Hello { pulse_ms, away_ms, .. } | Self::Welcome { pulse_ms, away_ms, .. }
                if *pulse_ms == 0 || *away_ms < *pulse_ms =>
            {
                return Err(Malformed::Value("away_ms"));
            }
            Self::Failed { status: Status::Ok | Status::NotYet, .. } => return Err(Malformed::Value("status")),
            Self::Fetch { offset, length, .. } if *length == 0 || offset.checked_add(*length).is_none() => {
                return Err(Malformed::Value("length"));
            }
            Self::Chunk { offset, length, .. }
                if !(1..=MAX_CHUNK).contains(length) || offset.checked_add(*length).is_none() =>
            {
                return Err(Malformed::Value("length"));
            }
            _ => {}
        }
        Ok(message)
    }

    /// Reads the protocol version in a Hello or a Welcome, even if this build cannot read the rest of the message. So
    /// an error can name the version of a daemon of another build. Gives `None` for a Hello whose magic number is
    /// wrong.
    #[must_use]
    pub fn version(header: FrameHeader, body: &[u8]) -> Option<u32> {
        let mut r = Reader::new(body);
        match header.opcode {
            1 if r.u64().ok()? == MAGIC => r.u32().ok(),
            2 => r.u32().ok(),
            _ => None,
        }
    }
}
