//! The 24 bytes that every message begins with.

use super::cursor::{Malformed, Reader, Writer};
use super::{MAX_DESCRIPTORS, MAX_MESSAGE};

/// Bytes of a header.
pub const HEADER: usize = 24;

/// This bit in the opcode makes it the answer to that request.
pub const ANSWER: u16 = 0x8000;

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of message.
    pub opcode: u16,
    /// The number of descriptors that came with the message.
    pub descriptors: u16,
    /// The number of a request on this connection. The answer repeats it. 0 in messages that want no answer.
    pub request: u64,
    /// In requests: all requests of this member below this number have been answered, so the daemon may forget their
    /// outcomes. In answers: the status (a small number).
    pub word: u64,
}

impl Header {
    /// Reads and checks the header of a whole message. Gives the body as well.
    pub fn decode(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut reader = Reader::new(message);
        let opcode = reader.u16()?;
        let descriptors = reader.u16()?;
        let length = reader.u32()?;
        let request = reader.u64()?;
        let word = reader.u64()?;
        if length as usize != message.len() || message.len() > MAX_MESSAGE {
            return Err(Malformed::HeaderLength);
        }
        if usize::from(descriptors) > MAX_DESCRIPTORS {
            return Err(Malformed::Descriptors);
        }
        Ok((Self { opcode, descriptors, request, word }, reader.rest()))
    }

    /// Begins a message; [`finish`] sets the length.
    pub(super) fn begin(self) -> Writer {
        let mut writer = Writer(Vec::with_capacity(512));
        writer.u16(self.opcode).u16(self.descriptors).u32(0).u64(self.request).u64(self.word);
        writer
    }
}

/// Sets the length of a message that [`Header::begin`] began.
pub(super) fn finish(writer: Writer) -> Vec<u8> {
    let mut message = writer.0;
    debug_assert!(message.len() <= MAX_MESSAGE, "a message of {} bytes", message.len());
    let length = (message.len() as u32).to_le_bytes();
    message[4..8].copy_from_slice(&length);
    message
}
