//! The recorded bytes of each message. A build that encodes a message differently must increment the version.
//!
//! `UPDATE=1 cargo test -p crossdock-layout golden` records the bytes again.

use super::tests::{all, number};

#[test]
fn golden_bytes_of_every_message_between_nodes() {
    let mut text = String::new();
    for message in all() {
        let words = format!("{message:?}");
        let name = words.split([' ', '(', '{']).next().unwrap_or_default();
        let bytes = message.encode(number(&message));
        text += &format!("{name} {}\n", crate::wire::hex(&bytes));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/link/golden.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, recorded, "messages have changed: UPDATE=1 records them again");
}
