//! How a piece of bytes is written in a message of gRPC: as the protobuf message `Piece { bytes data = 1; }`. A call
//! carries a stream of such pieces in each direction:
//!
//! ```text
//! package crossdock;
//! service Links { rpc Carry(stream Piece) returns (stream Piece); }
//! ```

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The path of the call in HTTP/2.
pub const PATH: &str = "/crossdock.Links/Carry";

/// The largest number of bytes in one piece that a node sends. A piece from a peer may have up to [`MESSAGE`] bytes.
pub const PIECE: usize = 256 << 10;

/// The largest gRPC message that this node accepts from a peer, in bytes.
pub const MESSAGE: usize = 1 << 20;

/// The protobuf key of the field `data`: field 1, of the wire type whose bytes follow their length.
const DATA: u8 = 1 << 3 | 2;

/// Encodes each piece of bytes as a gRPC message of its own, and decodes such messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pieces;

impl Codec for Pieces {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

/// Gives the settings of the buffer into which messages are encoded. The first number is the buffer's size at the
/// beginning. The second number is a limit: the messages that are ready are encoded into the same buffer until the
/// buffer has this many bytes, so that one HTTP/2 frame carries several messages.
fn buffers() -> BufferSettings {
    BufferSettings::new(8 << 10, PIECE)
}

impl Encoder for Pieces {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, piece: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(piece.len() + 11);
        out.put_u8(DATA);
        let mut length = piece.len();
        while length >= 0x80 {
            out.put_u8(length as u8 | 0x80);
            length >>= 7;
        }
        out.put_u8(length as u8);
        out.put(piece);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl Decoder for Pieces {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let left = from.remaining();
        piece(from).map(|length| Some(from.copy_to_bytes(length))).ok_or_else(|| {
            Status::invalid_argument(format!("a message of {left} bytes is no piece of a stream between nodes"))
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// Reads the key and the length that stand before the bytes of a piece, and gives the number of these bytes. `None` if
/// the message is no piece.
fn piece(from: &mut impl Buf) -> Option<usize> {
    if !from.has_remaining() {
        // Protobuf leaves out an empty field, so an empty message is a piece without bytes.
        return Some(0);
    }
    if from.get_u8() != DATA {
        return None;
    }
    let mut length = 0;
    for shift in (0..28).step_by(7) {
        if !from.has_remaining() {
            return None;
        }
        let byte = from.get_u8();
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (length == from.remaining()).then_some(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{DATA, piece};

    #[test]
    fn only_a_piece_whose_length_is_right_is_accepted() {
        assert_eq!(piece(&mut &[][..]), Some(0));
        assert_eq!(piece(&mut &[DATA, 0][..]), Some(0));
        assert_eq!(piece(&mut &[DATA, 2, 7, 7][..]), Some(2));
        let long = [&[DATA, 0xac, 2][..], &[7; 300]].concat();
        assert_eq!(piece(&mut &long[..]), Some(300));
        for bad in [&[DATA][..], &[DATA, 2, 7], &[DATA, 1, 7, 7], &[DATA + 8, 0], &[DATA, 0xff, 0xff, 0xff, 0xff, 1]] {
            assert_eq!(piece(&mut &*bad), None, "{bad:?}");
        }
    }
}
