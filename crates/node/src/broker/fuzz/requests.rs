//! Valid requests for the fuzzer, chosen by a byte.

use crossdock_layout::wire::{
    Grant, HEADER, InUse, ItemLevel, ItemRequest, OnDeath, OpenMode, PROTOCOL_VERSION, Party, Request, SegmentKind,
};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Rights, SegmentId};

pub(super) fn hello(who: u8) -> Vec<u8> {
    let request = Request::Hello {
        protocol: PROTOCOL_VERSION,
        layout: LAYOUT_VERSION,
        fingerprint: crossdock_layout::wire::FINGERPRINT,
        token: [who.max(1); 16],
        member: MemberId::NONE,
        rank: 0,
        task: None,
        workflow: None,
        visitor: false,
    };
    let message = request.encode(1, 0);
    debug_assert!(message.len() > HEADER);
    message
}

pub(super) fn some_request(which: u8) -> Request {
    let name = ["a", "b", "out/c"][usize::from(which / 16) % 3].to_owned();
    let kind = if which & 8 == 0 { SegmentKind::Region } else { SegmentKind::Port };
    let access = if which & 8 == 0 { Rights::WRITE } else { Rights::PRODUCE };
    let segment = SegmentId(u64::from(which / 16) + 1);
    let open = |mode, wait_ms| Request::Open {
        kind,
        mode,
        access,
        size: 65_536 << (which / 64),
        reserve: 4096,
        attribute: 0,
        wait_ms,
        persistent: which & 128 != 0,
        name: name.clone(),
    };
    if which % 32 >= 24 {
        // Requests about series. All of them use the same few names, and each published series allows two observers.
        return match which % 8 {
            0 | 1 => Request::Publish { size: 65_536, reserved: 4096, attribute: 0, observers: 2, name },
            2 | 3 => Request::Pins { segment, from: u32::from(which % 2) },
            4 => Request::Observe { wait_ms: 0, former: true, name },
            5 => Request::Observe { wait_ms: 100, former: false, name },
            6 => Request::Unpublish { segment },
            _ => Request::Remove { kind: SegmentKind::Series, in_use: InUse::Force, name },
        };
    }
    match which % 16 {
        0 => open(OpenMode::CreateOnly, 0),
        8 if which < 64 => Request::CopyRegion { wait_ms: 100, moves: which & 32 != 0, name: name.clone(), copy: name },
        8 if which < 128 => Request::Freeze { segment, moves: which & 32 != 0 },
        8 if which < 192 => {
            Request::Adopt { order: u64::from(which % 2), named: which & 32 != 0, segment, former: SegmentId(7) }
        }
        8 => Request::HandOver { segment, becomes: SegmentId(u64::from(which / 16 % 2)), node: "there".into() },
        1 | 9 => open(OpenMode::OpenOnly, 100),
        2 | 10 => open(OpenMode::OpenOrCreate, 0),
        3 | 11 => open(OpenMode::Recreate, 0),
        4 if which & 128 != 0 => Request::Remove { kind, in_use: InUse::Unused, name },
        4 => Request::Remove { kind, in_use: InUse::Refuse, name },
        5 => Request::MakeWorkflow { quota: 1 << 20, name: "w".into() },
        6 => {
            let grants = vec![Grant { pattern: "*".into(), kind, rights: Rights::ALL }];
            Request::MakeEndpoint { workflow: "w".into(), task: "t".into(), grants }
        }
        7 => Request::EndWorkflow { name: "w".into() },
        15 => Request::Progress { done: u64::from(which), of: u64::from(which / 16) },
        12 => Request::Reserve { segment, upto: 65_536 },
        13 => Request::Attach { segment, access: Rights::ALL },
        14 if which < 64 => Request::Listen { endpoint: u64::from(which / 16) },
        14 => Request::Offer { segment },
        _ => Request::Detach { segment, count: 1 },
    }
}

pub(super) fn some_item_request(which: u8) -> ItemRequest {
    let key = ["a", "b"][usize::from(which / 16) % 2].to_owned();
    let item = SegmentId(u64::from(which / 32) + 1);
    let level = [ItemLevel::Verified, ItemLevel::Strict, ItemLevel::Cooperative][usize::from(which / 32) % 3];
    let on_death = [OnDeath::Keep, OnDeath::Return, OnDeath::Destroy][usize::from(which / 64) % 3];
    match which % 16 {
        0 | 1 => ItemRequest::Create { size: 5000, level, on_death, key },
        2 => ItemRequest::Access { read: false, wait_ms: 300, keys: vec![key, "b".into()] },
        3 => ItemRequest::Access { read: true, wait_ms: 100, keys: vec![key] },
        4 => ItemRequest::Transfer { item, to: Party::task("t") },
        5 => ItemRequest::Transfer { item, to: Party::Number(1) },
        6 => ItemRequest::Destroy { item },
        7 => ItemRequest::Share { item },
        8 => ItemRequest::Unshare { item, wait_ms: 100 },
        9 => ItemRequest::Resize { item, size: u64::from(which) << 6 },
        10 => ItemRequest::Policy { item, on_death },
        11 => ItemRequest::Reopen { item },
        12 => ItemRequest::Register { number: 1 },
        13 => ItemRequest::Word { party: Party::task("t") },
        14 => ItemRequest::Access { read: false, wait_ms: 0, keys: vec![key] },
        _ => ItemRequest::Find { key },
    }
}
