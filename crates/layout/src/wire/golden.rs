//! The recorded bytes of each message. A build that encodes a message differently cannot talk to any older program.
//!
//! `UPDATE=1 cargo test -p crossdock-layout golden` records the bytes again.

use super::Request;
use super::item::tests as items;
use super::tests::{answers, requests};

/// The bytes in hexadecimal. A run of more than three zero bytes is written as its length in parentheses.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while let [first, ..] = rest {
        let zeros = rest.iter().take_while(|b| **b == 0).count();
        if zeros > 3 {
            text += &format!("({zeros})");
            rest = &rest[zeros..];
        } else {
            text += &format!("{first:02x}");
            rest = &rest[1..];
        }
    }
    text
}

fn name(message: &impl std::fmt::Debug) -> String {
    let text = format!("{message:?}").replace("Item(Item", "Item").replace("Item(", "Item::");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

#[test]
fn golden_bytes_of_every_message() {
    let requests = requests().into_iter().chain(items::requests().into_iter().map(Request::Item));
    let mut text = String::new();
    for request in requests {
        let bytes = request.encode(0x1122_3344_5566_7788 * u64::from(request.wants_answer()), 9);
        text += &format!("request {} {}\n", name(&request), hex(&bytes));
    }
    for (opcode, answer) in answers().into_iter().chain(items::answers()) {
        text += &format!("answer {opcode} {} {}\n", name(&answer), hex(&answer.encode(opcode, 7)));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/wire/golden.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    for (now, then) in text.lines().zip(recorded.lines()) {
        assert_eq!(now, then);
    }
    assert_eq!(text, recorded, "messages were added or removed: UPDATE=1 records them again");
}
