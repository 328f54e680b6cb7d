use super::*;
use crate::wire::{Answer, ItemLevel, ItemState, MAX_MESSAGE, OnDeath, Page, Request};
use crate::{MemberId, SegmentId};

pub(in crate::wire) fn requests() -> Vec<ItemRequest> {
    let key = || "frame/3".to_owned();
    let item = SegmentId(7);
    vec![
        ItemRequest::Create { size: 9, level: ItemLevel::Strict, on_death: OnDeath::Return, key: key() },
        ItemRequest::Find { key: key() },
        ItemRequest::Access { read: true, wait_ms: 5, keys: vec![key(); KEYS_PER_MESSAGE] },
        ItemRequest::Transfer { item, to: Party::task("detect") },
        ItemRequest::Transfer { item, to: Party::rank("detect", 3) },
        ItemRequest::Transfer { item, to: Party::Number(12) },
        ItemRequest::Release { item },
        ItemRequest::Hold { item: SegmentId(0) },
        ItemRequest::Destroy { item },
        ItemRequest::Share { item },
        ItemRequest::Unshare { item, wait_ms: 4 },
        ItemRequest::Resize { item, size: 8192 },
        ItemRequest::Policy { item, on_death: OnDeath::Destroy },
        ItemRequest::Reopen { item },
        ItemRequest::Register { number: 5 },
        ItemRequest::Word { party: Party::task("detect") },
    ]
}

#[test]
fn every_request_about_items_comes_through_unchanged_and_no_part_of_it_does() {
    for request in requests().into_iter().map(Request::Item) {
        let number = u64::from(request.wants_answer());
        let message = request.encode(number, 1);
        assert!(message.len() <= MAX_MESSAGE);
        assert_eq!(Request::decode(&message, 0).unwrap().1, request);
        for length in 24..message.len() {
            let mut cut = message[..length].to_vec();
            cut[4..8].copy_from_slice(&(length as u32).to_le_bytes());
            assert!(Request::decode(&cut, 0).is_err(), "{request:?} cut to {length}");
        }
    }
}

pub(in crate::wire) fn answers() -> Vec<(u16, Answer)> {
    let key = || "k".to_owned();
    let given = ItemGiven {
        item: SegmentId(1),
        file: SegmentId(2),
        size: 3,
        level: ItemLevel::Verified,
        on_death: OnDeath::Keep,
        writable: true,
        created: false,
        words: [4, 5],
        creator: 6,
        key: key(),
    };
    let entry = ItemEntry {
        item: SegmentId(1),
        file: SegmentId(2),
        size: 3,
        holder: MemberId::new(3, 4),
        since_ms: 5,
        transfers: 6,
        copies: 7,
        level: ItemLevel::Cooperative,
        on_death: OnDeath::Destroy,
        state: ItemState::Copying,
        waiting: 8,
        readers: 9,
        mine: true,
        owner: Party::Number(10),
        creator: Party::rank("t", 11),
        workflow: key(),
        key: key(),
    };
    let page = Page { entries: vec![entry.clone(); ItemEntry::PER_PAGE], more: true };
    vec![
        (50, Answer::Item(given.clone())),
        (52, Answer::Item(given)),
        (51, Answer::ItemInfo(entry)),
        (12, Answer::Items(page)),
        (53, Answer::Done { value: 1 }),
    ]
}

#[test]
fn every_answer_about_items_comes_through_unchanged() {
    for (opcode, answer) in answers() {
        let message = answer.encode(opcode, 9);
        assert!(message.len() <= MAX_MESSAGE);
        assert_eq!(Answer::decode(&message, answer.descriptors().into()), Ok((9, answer)));
    }
}
