//! The messages between two node daemons. `docs/node-protocol.md` has tables of them.
//!
//! A link is a stream of bytes (TCP, usually inside TLS), so each message begins with a header of 16 bytes that
//! contains the message's length. The opcode in the header determines the layout of the body. Each side checks every
//! field that it receives. If a message fails a check, the receiver closes the connection on which the message came,
//! and keeps its other connections.

mod fuzz;
#[cfg(test)]
mod golden;
mod header;
mod messages;
#[cfg(test)]
mod tests;

pub use fuzz::fuzz_decode;
pub use header::{FRAME_HEADER, FrameHeader};
pub use messages::{Body, MAGIC, MAX_BODY, MAX_LINK_TEXT, NodeMessage, Purpose};

/// The version of the messages between nodes. Daemons of different versions refuse each other, and the error names both
/// versions.
pub const LINK_VERSION: u32 = 1;

/// The largest number of bytes of a message, including its header. The bytes that follow a [`NodeMessage::Chunk`] do
/// not count.
pub const MAX_FRAME: usize = 64 << 10;

/// The largest number of bytes that follow one [`NodeMessage::Chunk`].
pub const MAX_CHUNK: u64 = 1 << 20;
