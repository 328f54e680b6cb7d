//! The header of 24 bytes with which every message begins.

use super::cursor::{Malformed, Reader, Writer};
use super::{MAX_DESCRIPTORS, MAX_MESSAGE};

/// The number of bytes of a header.
pub const HEADER: usize = 24;

/// The bit of an opcode that says that the message is the answer to the request with this opcode.
pub const ANSWER: u16 = 0x8000;

/// The decoded header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the kind of message.
    pub opcode: u16,
    /// The number of descriptors that came with the message.
    pub descriptors: u16,
    /// In a request: its number, or 0 if the daemon does not answer this kind of request. In an answer: the number of
    /// the request.
    pub request: u64,
    /// In a request: a request number. All requests of this member with smaller numbers have been answered, so the
    /// daemon may forget their outcomes. In an answer: the number of the status.
    pub word: u64,
}

impl Header {
    /// Reads and checks the header of a whole message. Gives the header and the message's body.
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

    /// Writes the header of a message with length 0. The caller appends the body, and [`finish`] then sets the length.
    pub(super) fn begin(self) -> Writer {
        let mut writer = Writer(Vec::with_capacity(512));
        writer.u16(self.opcode).u16(self.descriptors).u32(0).u64(self.request).u64(self.word);
        writer
    }
}

/// Completes a message that begins with a header from [`Header::begin`]: writes the message's length to the header.
pub(super) fn finish(writer: Writer) -> Vec<u8> {
    let mut message = writer.0;
    debug_assert!(message.len() <= MAX_MESSAGE, "a message of {} bytes", message.len());
    let length = (message.len() as u32).to_le_bytes();
    message[4..8].copy_from_slice(&length);
    message
}
