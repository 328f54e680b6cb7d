//! The entry point for fuzzing the decoders of messages.

use super::{Answer, MAX_DESCRIPTORS, Request};

/// Decodes arbitrary bytes as a request and as an answer. Each message has only one encoding. So a message that is
/// accepted must give the same bytes when it is encoded again.
pub fn fuzz_decode(bytes: &[u8]) {
    for descriptors in 0..=MAX_DESCRIPTORS {
        if let Ok((header, request)) = Request::decode(bytes, descriptors) {
            assert_eq!(request.encode(header.request, header.word), bytes, "{request:?}");
        }
        if let Ok((number, answer)) = Answer::decode(bytes, descriptors) {
            let opcode = u16::from_le_bytes([bytes[0], bytes[1]]);
            assert_eq!(answer.encode(opcode, number), bytes, "{answer:?}");
        }
    }
    let _ = Request::versions(bytes);
}
