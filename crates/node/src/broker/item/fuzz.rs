//! For the fuzzed broker: bodies of questions, of answers and of catalog entries about items, chosen by a byte.

use crossdock_layout::SegmentId;
use crossdock_layout::wire::{ItemLevel, OnDeath, Party};

use super::ahead::{AHEAD, Head};
use super::find::{DescriptionRequest, FIND};
use super::memory_of;
use super::ownership::{ENDED, Ended, OWN, OwnershipReply, OwnershipRequest, VERSION};
use super::readers::{READ, ReadReply, ReadRequest, SHARED, SharingReport};
use super::residence::ItemSummary;
use super::unlisted::{PlaceAnswer, PlaceQuestion, WHERE};
use crate::broker::stored::{decode, encode};

const TASKS: [&str; 2] = ["t", "program"];
const LEVELS: [ItemLevel; 2] = [ItemLevel::Verified, ItemLevel::Strict];
const ON_DEATH: [OnDeath; 2] = [OnDeath::Keep, OnDeath::Return];

fn workflow(which: u8) -> String {
    ["default", "w"][usize::from(which) % 2].to_owned()
}

fn key(which: u8) -> String {
    ["a", "b"][usize::from(which) % 2].to_owned()
}

/// Makes a question about an item: the service's number and the body.
pub(in crate::broker) fn question(which: u8, item: u64, sharing: u64) -> (u32, Vec<u8>) {
    let (version, workflow, key) = (VERSION, workflow(which / 8), key(which));
    match which / 16 % 8 {
        0..=2 => {
            let task = TASKS[usize::from(which / 2) % 2].to_owned();
            let numbers = if which & 4 == 0 { vec![] } else { vec![1] };
            (OWN, encode(&OwnershipRequest { version, workflow, key, task, rank: 0, numbers }))
        }
        3 | 4 => {
            let (readers, sharing) = (u32::from(which / 2 % 2), if which & 4 == 0 { 0 } else { sharing });
            (READ, encode(&ReadRequest { version, workflow, key, sharing, readers, stamp: u64::from(which) }))
        }
        5 if which & 4 == 0 => {
            let head = encode(&Head { version, item, left: u64::from(which % 3), stamp: u64::from(which / 2 % 2) });
            (AHEAD, [head, vec![which; memory_of(5000) as usize]].concat())
        }
        5 => (SHARED, encode(&SharingReport { version, workflow, key })),
        6 if which & 4 == 0 => (WHERE, encode(&PlaceQuestion { version, item, epoch: u64::from(which % 3) })),
        6 => (FIND, encode(&DescriptionRequest { version, workflow, key })),
        _ => (ENDED, encode(&Ended { version, workflow, key, item, why: "it was destroyed".into() })),
    }
}

/// Makes the body of an answer to a question to this service.
pub(in crate::broker) fn answer(service: u32, which: u8, item: u64) -> Vec<u8> {
    let (code, text) = (u32::from(which % 5), "a text".to_owned());
    match service {
        READ => encode(&ReadReply {
            code,
            text,
            item,
            sharing: super::SHARING | u64::from(which / 8 % 4),
            size: 5000,
            level: LEVELS[usize::from(which / 4) % 2],
            on_death: ON_DEATH[usize::from(which / 8) % 2],
        }),
        WHERE => {
            let node = ["", "there", "here"][usize::from(which / 8) % 3].to_owned();
            encode(&PlaceAnswer { code, node, left: u64::from(which % 3) })
        }
        _ => encode(&OwnershipReply { item, code, text }),
    }
}

/// Gives the item and the sharing that an answer names, if it names any.
pub(in crate::broker) fn readable(answer: &[u8]) -> Option<(SegmentId, u64)> {
    let readable = decode::<ReadReply>(answer).filter(|readable| readable.sharing != 0)?;
    Some((SegmentId(readable.item), readable.sharing))
}

/// Makes the description of an item for its entry in the catalog.
pub(in crate::broker) fn about(which: u8) -> Vec<u8> {
    let party = if which & 16 == 0 { Party::task(TASKS[usize::from(which / 32) % 2]) } else { Party::Number(1) };
    ItemSummary {
        version: ItemSummary::VERSION,
        workflow: workflow(which),
        key: key(which / 2),
        size: 5000,
        level: LEVELS[usize::from(which / 4) % 2],
        on_death: ON_DEATH[usize::from(which / 8) % 2],
        creator: Party::task(TASKS[0]),
        owner: party,
        transfers: 1,
        copies: 0,
        source: ["", "there", "here"][usize::from(which / 64) % 3].to_owned(),
        left: u64::from(which % 3),
        stamp: u64::from(which / 4 % 2),
    }
    .encode()
}
