//! The messages between clients and the node daemon. `docs/wire-protocol.md` has tables of them.
//!
//! The messages go through a socket of type SOCK_SEQPACKET, which keeps each message whole. A message is a header of 24
//! bytes and a body. The opcode in the header determines the layout of the body. All numbers are little-endian. There
//! is no padding except named reserved fields, which must be zero. Each name has a field of 128 bytes, and the bytes
//! behind the name are zero. Each side checks every field that it receives. If a message fails a check, the receiver
//! closes the connection on which the message came, and keeps its other connections.

mod answer;
mod cursor;
pub(crate) mod declare;
mod encoding;
mod entry;
mod fingerprint;
mod fuzz;
#[cfg(test)]
mod golden;
mod grant;
mod header;
mod item;
mod kinds;
mod request;
mod series;
#[cfg(test)]
mod tests;

pub use answer::{Answer, MAX_TEXT, Page};
pub use cursor::{Malformed, NAME_FIELD, Reader, Writer};
pub use declare::{Field, Message};
pub use encoding::{Address, Bits, Encoding, InHeader, List, NonEmptyList, Padded, Pattern, Text, TextLine, Wire};
pub use entry::{MemberEntry, NodeEntry, SegmentEntry, WorkflowEntry};
pub use fingerprint::FINGERPRINT;
pub use fuzz::fuzz_decode;
#[cfg(test)]
pub(crate) use golden::hex;
pub use grant::{Grant, is_pattern};
pub use header::{ANSWER, HEADER, Header};
pub use item::{ItemEntry, ItemGiven, ItemRequest, KEYS_PER_MESSAGE, Party};
pub use kinds::{InUse, ItemLevel, ItemState, ListOf, MemberState, NodeState, OnDeath, OpenMode, SegmentKind};
pub use request::{GRANTS_PER_MESSAGE, Request};
pub use series::{MAX_PINS, PIN_PAGE, PIN_SLOTS, PageEntry, SeriesEntry, page_id, pin_id, series_ids};

/// The version of the messages. A daemon and a client of different versions refuse each other, and the error names both
/// versions.
pub const PROTOCOL_VERSION: u32 = 5;

/// The largest number of bytes of a message, including its header.
pub const MAX_MESSAGE: usize = 4096;

/// The largest number of descriptors that come with one message.
pub const MAX_DESCRIPTORS: usize = 4;
