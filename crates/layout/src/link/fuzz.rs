//! The entry point for fuzzing the decoder of messages between nodes.

use super::{FRAME_HEADER, FrameHeader, MAX_FRAME, NodeMessage};

/// Decodes arbitrary bytes as messages, one after the other, as a node does with the bytes of a connection. Each
/// message has only one encoding. So a message that is accepted must give the same bytes when it is encoded again.
pub fn fuzz_decode(mut bytes: &[u8]) {
    while let Some((first, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() {
        let Ok(header) = FrameHeader::decode(first) else { return };
        assert!(header.length <= MAX_FRAME);
        let Some((body, after)) = rest.split_at_checked(header.length - FRAME_HEADER) else { return };
        let _ = NodeMessage::version(header, body);
        let Ok(message) = NodeMessage::decode(header, body) else { return };
        assert_eq!(message.encode(header.number), bytes[..header.length], "{message:?}");
        bytes = after;
    }
}
