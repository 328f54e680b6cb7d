//! Tests that every message is the same after encoding and decoding, and that every damaged message is refused.

use super::*;
use crate::{LAYOUT_VERSION, MemberId, Rights, SegmentId, Status};

pub(super) fn requests() -> Vec<Request> {
    let name = || "out/field".to_owned();
    let grant = Grant { pattern: "out/*".into(), kind: SegmentKind::Port, rights: Rights::PRODUCE };
    vec![
        Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token: [7; 16],
            member: MemberId::new(3, 4),
            rank: 2,
            task: None,
            workflow: Some(name()),
            visitor: true,
        },
        Request::Open {
            kind: SegmentKind::Region,
            mode: OpenMode::Recreate,
            access: Rights::WRITE,
            size: 1 << 30,
            reserve: 4096,
            attribute: 9,
            wait_ms: 100,
            persistent: true,
            name: name(),
        },
        Request::Attach { segment: SegmentId(5), access: Rights::READ },
        Request::Reserve { segment: SegmentId(5), upto: 1 << 20 },
        Request::Detach { segment: SegmentId(5), count: 1 },
        Request::Hold { segment: SegmentId(5), count: 2 },
        Request::Remove { kind: SegmentKind::Port, in_use: InUse::Refuse, name: name() },
        Request::MakeWorkflow { quota: 0, name: name() },
        Request::MakeEndpoint { workflow: name(), task: name(), grants: vec![grant.clone(); GRANTS_PER_MESSAGE] },
        Request::AddGrants { endpoint: 3, grants: vec![grant] },
        Request::EndWorkflow { name: name() },
        Request::List { of: ListOf::Members, after: 7, workflow: None },
        Request::Describe { member: MemberId::new(3, 4) },
        Request::Offer { segment: SegmentId(5) },
        Request::Listen { endpoint: 3 },
        Request::Bye,
        Request::Progress { done: 3, of: 10 },
        Request::CopyRegion { wait_ms: 100, moves: true, name: name(), copy: name() },
        Request::Freeze { segment: SegmentId(5), moves: true },
        Request::Adopt { order: 7, named: true, segment: SegmentId(5), former: SegmentId(4) },
        Request::HandOver { segment: SegmentId(5), becomes: SegmentId(6), node: name() },
        Request::Publish { size: 1 << 20, reserved: 8192, attribute: 3, observers: 64, name: name() },
        Request::Pins { segment: SegmentId(5), from: 8 },
        Request::Observe { wait_ms: 100, former: true, name: name() },
        Request::Unpublish { segment: SegmentId(5) },
    ]
}

pub(super) fn answers() -> Vec<(u16, Answer)> {
    let name = || "n".to_owned();
    let segment = SegmentEntry {
        segment: SegmentId(5),
        size: 4096,
        reserved: 4096,
        attribute: 1,
        creator: MemberId::new(3, 4),
        since_ms: 6,
        kind: SegmentKind::Region,
        members: 2,
        removed: true,
        former: true,
        workflow: name(),
        name: name(),
    };
    let member = MemberEntry {
        member: MemberId::new(3, 4),
        silent_ms: 5,
        done: 3,
        of: 10,
        rank: 1,
        pid: 2,
        uid: 3,
        state: MemberState::Away,
        workflow: name(),
        task: name(),
    };
    let node = NodeEntry {
        number: 3,
        silent_ms: 7,
        state: NodeState::Gone,
        names: 2,
        site: name(),
        node: name(),
        address: "[::1]:7700".into(),
        round_trip_us: 90,
        transport: "tcp+tls".into(),
        why: "no way".into(),
    };
    let workflow = WorkflowEntry { number: 1, quota: 2, reserved: 1, owner: MemberId::NONE, run: 3, name: name() };
    vec![
        (
            1,
            Answer::Welcome {
                member: MemberId::new(3, 4),
                resumed: true,
                admin: false,
                incarnation: 12,
                run: 5,
                rank: 2,
                task: name(),
                workflow: name(),
            },
        ),
        (
            2,
            Answer::Segment {
                segment: SegmentId(5),
                size: 4096,
                reserved: 0,
                attribute: 3,
                kind: SegmentKind::Port,
                created: true,
                writable: true,
                name: name(),
            },
        ),
        (4, Answer::Done { value: 4096 }),
        (12, Answer::Workflows(Page { entries: vec![workflow; WorkflowEntry::PER_PAGE], more: true })),
        (12, Answer::Members(Page { entries: vec![member.clone(); MemberEntry::PER_PAGE], more: false })),
        (12, Answer::Segments(Page { entries: vec![segment; SegmentEntry::PER_PAGE], more: false })),
        (12, Answer::Nodes(Page { entries: vec![node; NodeEntry::PER_PAGE], more: false })),
        (
            42,
            Answer::Series(SeriesEntry {
                segment: SegmentId(5),
                size: 1 << 20,
                reserved: 8192,
                attribute: 3,
                publisher: MemberId::new(3, 4),
                pin: SegmentId(9),
                slot: 3,
                name: name(),
            }),
        ),
        (41, Answer::Pins(PageEntry { page: SegmentId(6), next: 1, left: 2 })),
        (13, Answer::Member(member)),
        (2, Answer::Failed { status: Status::NotFound, text: "region 'x' is not there".into() }),
    ]
}

#[test]
fn every_request_comes_through_unchanged() {
    for request in requests() {
        let number = u64::from(request.wants_answer());
        let message = request.encode(number, 1);
        assert!(message.len() <= MAX_MESSAGE);
        let (header, back) = Request::decode(&message, request.descriptors().into()).unwrap();
        assert_eq!((header.request, header.word, &back), (number, 1, &request));
    }
}

#[test]
fn every_answer_comes_through_unchanged() {
    for (opcode, answer) in answers() {
        let message = answer.encode(opcode, 9);
        assert!(message.len() <= MAX_MESSAGE, "{} bytes: {answer:?}", message.len());
        assert_eq!(Answer::decode(&message, answer.descriptors().into()), Ok((9, answer)));
    }
}

#[test]
fn a_message_cut_anywhere_or_grown_is_refused() {
    for request in requests() {
        let message = request.encode(u64::from(request.wants_answer()), 0);
        let descriptors = request.descriptors().into();
        for length in 0..message.len() {
            assert!(Request::decode(&message[..length], descriptors).is_err());
            let mut cut = message[..length].to_vec();
            if length >= 8 {
                cut[4..8].copy_from_slice(&(length as u32).to_le_bytes());
                assert!(Request::decode(&cut, descriptors).is_err(), "{request:?} cut to {length}");
            }
        }
        let mut grown = message.clone();
        grown.push(0);
        grown[4..8].copy_from_slice(&(message.len() as u32 + 1).to_le_bytes());
        assert_eq!(Request::decode(&grown, descriptors), Err(Malformed::Length));
    }
}

#[test]
fn wrong_opcodes_names_rights_reserved_words_and_descriptors_are_each_named() {
    let open = &requests()[1];
    let message = open.encode(1, 0);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = message.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        Request::decode(&changed, 0).unwrap_err()
    };
    assert_eq!(with(0, &99u16.to_le_bytes()), Malformed::Opcode(99));
    assert_eq!(with(4, &7u32.to_le_bytes()), Malformed::HeaderLength);
    assert_eq!(with(2, &9u16.to_le_bytes()), Malformed::Descriptors);
    assert_eq!(with(8, &0u64.to_le_bytes()), Malformed::Value("request"));
    assert_eq!(with(HEADER, &9u32.to_le_bytes()), Malformed::Value("kind"));
    assert_eq!(with(HEADER + 4, &9u32.to_le_bytes()), Malformed::Value("mode"));
    assert_eq!(with(HEADER + 8, &(1u32 << 31).to_le_bytes()), Malformed::Value("access"));
    assert_eq!(with(HEADER + 12, &2u32.to_le_bytes()), Malformed::Value("persistent"));
    assert_eq!(with(HEADER + 48, b"../"), Malformed::Name);
    assert_eq!(Request::decode(&message, 1).unwrap_err(), Malformed::Descriptors);
    let mut attach = requests()[2].encode(1, 0);
    attach[HEADER + 12] = 1;
    assert_eq!(Request::decode(&attach, 0).unwrap_err(), Malformed::Reserved);
}

#[test]
fn one_damaged_byte_never_passes_as_another_encoding_of_a_message() {
    for request in requests() {
        let message = request.encode(u64::from(request.wants_answer()), 0);
        for at in 0..message.len() {
            for flip in [1u8, 0x80, 0xff] {
                let mut changed = message.clone();
                changed[at] ^= flip;
                fuzz_decode(&changed);
            }
        }
    }
    for (opcode, answer) in answers() {
        let message = answer.encode(opcode, 9);
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 0x41;
            fuzz_decode(&changed);
        }
    }
}

#[test]
fn the_versions_of_a_hello_can_be_read_whatever_its_body() {
    let mut hello = requests()[0].encode(1, 0);
    assert_eq!(Request::versions(&hello), Some((PROTOCOL_VERSION, LAYOUT_VERSION, FINGERPRINT)));
    hello.truncate(HEADER + 16);
    hello[4..8].copy_from_slice(&(HEADER as u32 + 16).to_le_bytes());
    assert_eq!(Request::versions(&hello), Some((PROTOCOL_VERSION, LAYOUT_VERSION, FINGERPRINT)));
}
