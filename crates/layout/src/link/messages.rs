//! What two node daemons say to each other; the tables of `docs/node-protocol.md` are written from this.

use super::MAX_CHUNK;
use super::header::{FRAME_HEADER, FrameHeader, finish};
use crate::wire::{Malformed, Padded, Reader, SegmentKind, Spells, Text, Wire, Writer};
use crate::{Status, closed_set, messages};

/// The first eight bytes of the first message's body: `crossdok`. What is no link at all is refused by it.
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
        /// Bytes of segments, pulled by the node that dialed.
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
    /// One message between two node daemons. The node that dialed asks; the node that accepted answers. Both send pulses.
    pub enum NodeMessage: u16 as Wire {
        /// First on every connection, by the node that dialed, and only there.
        1 Hello -> Welcome {
            /// [`MAGIC`].
            magic: u64,
            /// [`super::LINK_VERSION`].
            version: u32,
            /// What the connection is for.
            purpose: Purpose,
            /// Which start of the dialing daemon this is.
            incarnation: u64,
            /// On data connections: the session that the control connection's Welcome named; else zeros.
            session: [u8; 16],
            /// The longest time between two pulses of the dialing node.
            pulse_ms: u32,
            /// The dialing node counts a peer as away that was silent for so long.
            away_ms: u32,
            /// The dialing node's name; under TLS its certificate must prove it.
            node: String,
            /// The node that it means to reach. Another one refuses.
            to: String,
        },
        /// The connection stands.
        2 Welcome {
            /// The version that the answering node speaks.
            version: u32 as Padded,
            /// Which start of the answering daemon this is.
            incarnation: u64,
            /// Names this control connection in the Hello of its data connections.
            session: [u8; 16],
            /// The longest time between two pulses of the answering node.
            pulse_ms: u32,
            /// The answering node counts a peer as away that was silent for so long.
            away_ms: u32,
            /// The answering node's name.
            node: String,
        },
        /// I am here. Both sides of a control connection send it.
        3 Pulse {
            /// How many the sender has sent before.
            count: u64,
        },
        /// A question to a service of the other node.
        4 Ask -> Said {
            /// Which service.
            service: u32,
            /// How long the asking node waits for the answer.
            wait_ms: u32,
            /// What the service defines.
            body: Vec<u8> as Body,
        },
        /// A service's answer.
        5 Said(body: Vec<u8> as Body),
        /// The other node could not, or would not.
        6 Failed {
            /// Why, as a number.
            status: Status as Padded,
            /// Why, for people: object, reason and hint.
            text: String as Text<MAX_LINK_TEXT>,
        },
        /// Send bytes of an object. Answered by chunks in order of their offsets, or by one Failed.
        7 Fetch -> Chunk {
            /// What the object is.
            kind: SegmentKind,
            /// Each chunk carries a checksum. Zero where TLS protects the bytes already.
            checked: bool,
            /// Its id on the node that is asked.
            object: u64,
            /// Its epoch; another one is refused.
            epoch: u64,
            /// The first byte wanted.
            offset: u64,
            /// How many bytes are wanted, at least 1.
            length: u64,
        },
        /// Bytes of an object. They follow this message; nothing lies between.
        8 Chunk {
            /// Where the bytes belong in the object.
            offset: u64,
            /// How many follow: from 1 to [`super::MAX_CHUNK`].
            length: u64,
            /// XXH3 (64 bit) of the bytes, if the Fetch wanted it; else 0.
            sum: u64,
        },
        /// The sender closes in order; nothing follows.
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

    /// Is it a question, or the answer to one, so that its number must not be 0?
    #[must_use]
    pub const fn is_numbered(&self) -> bool {
        matches!(self, Self::Ask { .. } | Self::Said(_) | Self::Failed { .. } | Self::Fetch { .. } | Self::Chunk { .. })
    }

    /// Takes the body of a message apart that any program may have written.
    ///
    /// # Errors
    /// It is not the one spelling of a message.
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

    /// The version in a Hello or a Welcome, whatever the rest of it looks like: what a daemon of another build says of
    /// itself. In a Hello the magic number must be right.
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
