//! The messages between two node daemons; `docs/node-protocol.md` has their tables.
//!
//! A link is a stream of bytes (TCP, usually inside TLS), so each message says how long it is: a header of 16 bytes, then a
//! body whose layout its opcode fixes. Both sides check everything. A message that fails a check is never repaired: the
//! connection that it came by ends, and only that one.

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

/// The longest message, header and all. The bytes of a [`NodeMessage::Chunk`] follow it and do not count.
pub const MAX_FRAME: usize = 64 << 10;

/// The most bytes that follow one [`NodeMessage::Chunk`].
pub const MAX_CHUNK: u64 = 1 << 20;
