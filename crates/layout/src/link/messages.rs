//! The messages between two node daemons. The tables of `docs/node-protocol.md` are generated from this.

use super::MAX_CHUNK;
use super::header::{FRAME_HEADER, FrameHeader, finish};
use crate::wire::{Malformed, Padded, Reader, SegmentKind, Spells, Text, Wire, Writer};
use crate::{Status, closed_set, messages};

/// The first eight bytes of the first message's body: `crossdok`. A connection that is no link is refused by them.
pub const MAGIC: u64 = u64::from_le_bytes(*b"crossdok");

/// The longest body of a question or an answer of a service.
pub const MAX_BODY: usize = 60 << 10;

/// The longest text of a refusal.
pub const MAX_LINK_TEXT: usize = 1024;

closed_set! {
    /// What a connection between two nodes is for.
    pub enum Purpose {
        /// Questions, answers and the pulse.
        Control = 1 "control",
        /// The bytes of segments, which the dialing node pulls.
        Data = 2 "data",
        /// The catalog's own messages.
        Catalog = 3 "catalog",
    }
}

/// Bytes up to the end of the message, at most [`MAX_BODY`].
#[derive(Clone, Copy, Debug)]
pub struct Body;

impl Spells<Vec<u8>> for Body {
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
    /// One message between two node daemons. The dialing node asks, and the accepting node answers. Both send pulses.
    pub enum NodeMessage: u16 as Wire {
        /// The first message on every connection, sent by the dialing node only.
        1 Hello -> Welcome {
            /// [`MAGIC`].
            magic: u64,
            /// [`super::LINK_VERSION`].
            version: u32,
            /// What the connection is for.
            purpose: Purpose,
            /// The number of this start of the dialing daemon.
            incarnation: u64,
            /// On data connections, the session that the control connection's Welcome named; zeros on others.
            session: [u8; 16],
            /// The longest time between two pulses of the dialing node.
            pulse_ms: u32,
            /// If a peer is silent for this long, the dialing node counts it as away.
            away_ms: u32,
            /// The dialing node's name; under TLS its certificate must prove it.
            node: String,
            /// The node that the dialing node wants to reach. Any other node refuses.
            to: String,
        },
        /// The connection stands.
        2 Welcome {
            /// The version that the answering node speaks.
            version: u32 as Padded,
            /// The number of this start of the answering daemon.
            incarnation: u64,
            /// The name of this control connection, for the Hello of its data connections.
            session: [u8; 16],
            /// The longest time between two pulses of the answering node.
            pulse_ms: u32,
            /// If a peer is silent for this long, the answering node counts it as away.
            away_ms: u32,
            /// The answering node's name.
            node: String,
        },
        /// Says that the sender is there. Both sides of a control connection send it.
        3 Pulse {
            /// The number of pulses that the sender has sent before.
            count: u64,
        },
        /// A question to a service of the other node.
        4 Ask -> Said {
            /// Which service.
            service: u32,
            /// How long the asking node waits for the answer.
            wait_ms: u32,
            /// Bytes that the service defines.
            body: Vec<u8> as Body,
        },
        /// A service's answer.
        5 Said(body: Vec<u8> as Body),
        /// The other node could not answer the question, or refused to.
        6 Failed {
            /// The reason as a number.
            status: Status as Padded,
            /// The reason for people: object, reason and hint.
            text: String as Text<MAX_LINK_TEXT>,
        },
        /// Asks for bytes of an object. The answer is chunks in the order of their offsets, or one Failed.
        7 Fetch -> Chunk {
            /// The kind of object.
            kind: SegmentKind,
            /// Must each chunk carry a checksum? 0 where TLS protects the bytes already.
            checked: bool,
            /// The object's id on the node that is asked.
            object: u64,
            /// The object's epoch. A node with another epoch refuses.
            epoch: u64,
            /// The offset of the first byte that is wanted.
            offset: u64,
            /// The number of bytes that are wanted, at least 1.
            length: u64,
        },
        /// Bytes of an object. They follow this message directly.
        8 Chunk {
            /// The offset of the bytes in the object.
            offset: u64,
            /// The number of bytes that follow: from 1 to [`super::MAX_CHUNK`].
            length: u64,
            /// XXH3 (64 bit) of the bytes, if the Fetch wanted it; else 0.
            sum: u64,
        },
        /// The sender closes the connection in order; nothing follows.
        9 Bye,
    }
}

impl NodeMessage {
    /// The whole message.
    #[must_use]
    pub fn encode(&self, number: u64) -> Vec<u8> {
        let mut writer = FrameHeader::begin(self.number(), number);
        self.write_body(&mut writer);
        finish(writer)
    }

    /// Is this a question, or the answer to one? Its number must not be 0 then.
    #[must_use]
    pub const fn is_numbered(&self) -> bool {
        matches!(self, Self::Ask { .. } | Self::Said(_) | Self::Failed { .. } | Self::Fetch { .. } | Self::Chunk { .. })
    }

    /// Decodes the body of a message that any program may have sent.
    ///
    /// # Errors
    /// The bytes are not the one spelling of a message.
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

    /// The version in a Hello or a Welcome, whatever the rest looks like. A daemon of another build says its version
    /// here. In a Hello the magic number must be right.
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
