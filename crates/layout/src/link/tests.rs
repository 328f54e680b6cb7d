//! Tests that every message is the same after encoding and decoding, and that every damaged message is refused.

use super::*;
use crate::Status;
use crate::wire::{Malformed, SegmentKind};

pub(super) fn all() -> Vec<NodeMessage> {
    let hello = |purpose| NodeMessage::Hello {
        magic: MAGIC,
        version: LINK_VERSION,
        purpose,
        incarnation: 0x0102_0304_0506_0708,
        session: [9; 16],
        pulse_ms: 500,
        away_ms: 3000,
        node: "node-a".into(),
        to: "node-b".into(),
    };
    vec![
        hello(Purpose::Control),
        hello(Purpose::Data),
        hello(Purpose::Catalog),
        NodeMessage::Welcome {
            version: LINK_VERSION,
            incarnation: 7,
            session: [3; 16],
            pulse_ms: 500,
            away_ms: 3000,
            node: "node-b".into(),
        },
        NodeMessage::Pulse { count: 5 },
        NodeMessage::Ask { service: 4, wait_ms: 100, body: vec![1, 2, 3] },
        NodeMessage::Said(vec![4, 5]),
        NodeMessage::Failed { status: Status::NotFound, text: "item 'x' is not here".into() },
        NodeMessage::Fetch {
            kind: SegmentKind::Item,
            checked: true,
            object: 17,
            epoch: 3,
            offset: 4096,
            length: 1 << 30,
        },
        NodeMessage::Chunk { offset: 4096, length: MAX_CHUNK, sum: 0xfeed },
        NodeMessage::Bye,
    ]
}

pub(super) fn number(message: &NodeMessage) -> u64 {
    0x1122_3344_5566_7788 * u64::from(message.is_numbered())
}

fn decode(bytes: &[u8]) -> Result<NodeMessage, Malformed> {
    let (first, body) = bytes.split_first_chunk::<FRAME_HEADER>().ok_or(Malformed::Length)?;
    NodeMessage::decode(FrameHeader::decode(first)?, body)
}

#[test]
fn every_message_survives_the_way_there_and_back() {
    for message in all() {
        let bytes = message.encode(number(&message));
        assert_eq!(decode(&bytes), Ok(message));
        fuzz_decode(&bytes);
    }
}

#[test]
fn a_message_that_is_cut_or_longer_than_it_says_is_refused() {
    for message in all() {
        let bytes = message.encode(number(&message));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{message:?} cut to {length}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(decode(&longer), Err(Malformed::HeaderLength));
    }
}

#[test]
fn a_header_with_a_length_out_of_bounds_or_a_reserved_bit_is_refused() {
    let good = NodeMessage::Bye.encode(0);
    for length in [0u32, 15, MAX_FRAME as u32 + 1, u32::MAX] {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(FrameHeader::decode(bytes.first_chunk().unwrap()), Err(Malformed::HeaderLength), "{length}");
    }
    let mut bytes = good;
    bytes[6] = 1;
    assert_eq!(decode(&bytes), Err(Malformed::Reserved));
}

#[test]
fn numbers_that_no_honest_node_sends_are_refused() {
    let bad = [
        NodeMessage::Fetch { kind: SegmentKind::Item, checked: false, object: 1, epoch: 1, offset: 0, length: 0 },
        NodeMessage::Fetch {
            kind: SegmentKind::Item,
            checked: false,
            object: 1,
            epoch: 1,
            offset: 2,
            length: u64::MAX,
        },
        NodeMessage::Chunk { offset: 0, length: 0, sum: 0 },
        NodeMessage::Chunk { offset: 0, length: MAX_CHUNK + 1, sum: 0 },
        NodeMessage::Chunk { offset: u64::MAX, length: 1, sum: 0 },
        NodeMessage::Failed { status: Status::Ok, text: String::new() },
    ];
    for message in bad {
        assert!(matches!(decode(&message.encode(1)), Err(Malformed::Value(_))), "{message:?}");
    }
    assert_eq!(decode(&NodeMessage::Bye.encode(1)), Err(Malformed::Value("number")));
    assert_eq!(decode(&NodeMessage::Said(vec![]).encode(0)), Err(Malformed::Value("number")));
    let mut unknown = NodeMessage::Bye.encode(0);
    unknown[4] = 99;
    assert_eq!(decode(&unknown), Err(Malformed::Opcode(99)));
    let hello = all().remove(0).encode(0);
    let mut other = hello.clone();
    other[FRAME_HEADER] ^= 1;
    assert_eq!(decode(&other), Err(Malformed::Value("magic")));
}

#[test]
fn the_version_is_read_from_a_hello_of_another_build() {
    let mut hello = all().remove(0).encode(0);
    hello[FRAME_HEADER + 8] = 77;
    hello.truncate(FRAME_HEADER + 20);
    let header = FrameHeader { length: hello.len(), opcode: 1, number: 0 };
    assert_eq!(NodeMessage::version(header, &hello[FRAME_HEADER..]), Some(77));
    assert_eq!(NodeMessage::version(header, b"GET / HTTP/1.1\r\n"), None);
}
