//! Entry point for the fuzzer: decodes the messages between clients and keeper, and the keeper's journal.

use super::journal;
use super::message::{Answer, Request};

/// Decodes bytes as a request, an answer or a journal; the first byte says which. If a message is accepted, encoding
/// and decoding it again must give an equal message. The same holds for the records of a journal.
pub fn fuzz_decode(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 3 {
        0 => {
            if let Ok(request) = Request::decode(body) {
                assert_eq!(Request::decode(&request.encode()), Ok(request));
            }
        }
        1 => {
            if let Ok(answer) = Answer::decode(body) {
                assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
            }
        }
        _ => journal::fuzz(body),
    }
}
