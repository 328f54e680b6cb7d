//! The messages between two node daemons; `docs/node-protocol.md` has their tables.
//!
//! A link is a stream of bytes (TCP, usually inside TLS), so each message has its length in a header of 16 bytes. A
//! body follows whose layout the opcode fixes. Both sides check everything. A message that fails a check is not
//! repaired: the connection that brought it ends, and no other one.

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

/// Version of the messages between nodes. Daemons of different versions refuse each other, naming both.
pub const LINK_VERSION: u32 = 1;

/// The longest message, with its header. The bytes that follow a [`NodeMessage::Chunk`] do not count.
pub const MAX_FRAME: usize = 64 << 10;

/// The most bytes that follow one [`NodeMessage::Chunk`].
pub const MAX_CHUNK: u64 = 1 << 20;
