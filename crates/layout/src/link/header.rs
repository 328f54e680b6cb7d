//! The header of 16 bytes with which every message between nodes begins.

use super::MAX_FRAME;
use crate::Wild;
use crate::wire::{Malformed, Reader, Writer};

/// The number of bytes of a header.
pub const FRAME_HEADER: usize = 16;

/// The decoded header of a message between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The number of bytes of the whole message.
    pub length: usize,
    /// The number of the kind of message.
    pub opcode: u16,
    /// In a question: its number on this connection. In an answer: the number of the question. In all other messages:
    /// 0.
    pub number: u64,
}

impl FrameHeader {
    /// Reads and checks a header, which any program may have written.
    ///
    /// # Errors
    /// The length is smaller than a header or greater than [`MAX_FRAME`], or the reserved field is not zero.
    pub fn decode(bytes: &[u8; FRAME_HEADER]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let length = Wild::new(r.u32()? as usize);
        let opcode = r.u16()?;
        if r.u16()? != 0 {
            return Err(Malformed::Reserved);
        }
        let length = length.check(|n| (FRAME_HEADER..=MAX_FRAME).contains(&n)).ok_or(Malformed::HeaderLength)?;
        Ok(Self { length, opcode, number: r.u64()? })
    }

    /// Writes the header of a message with length 0. The caller appends the body, and [`finish`] then sets the length.
    pub(super) fn begin(opcode: u16, number: u64) -> Writer {
        let mut writer = Writer(Vec::with_capacity(256));
        writer.u32(0).u16(opcode).u16(0).u64(number);
        writer
    }
}

/// Completes a message that begins with a header from [`FrameHeader::begin`]: writes the message's length to the
/// header.
pub(super) fn finish(writer: Writer) -> Vec<u8> {
    let mut message = writer.0;
    assert!(message.len() <= MAX_FRAME, "a message of {} bytes", message.len());
    let length = (message.len() as u32).to_le_bytes();
    message[..4].copy_from_slice(&length);
    message
}
