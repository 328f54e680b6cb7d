//! The encoding of records in the journal: the record's number, then its fields, as `broker::Record` declares them.

use crossdock_layout::wire::{Reader, Writer};

use crate::broker::Record;

/// Encodes a record.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    encode_into(&mut bytes, record);
    bytes
}

/// Encodes a record, and appends it to `bytes`.
pub(super) fn encode_into(bytes: &mut Vec<u8>, record: &Record) {
    let mut out = Writer(std::mem::take(bytes));
    out.u32(record.number());
    record.write_body(&mut out);
    *bytes = out.0;
}

/// Decodes a record; `None` if the bytes are not exactly one record.
pub fn decode(bytes: &[u8]) -> Option<Record> {
    let mut r = Reader::new(bytes);
    let number = r.u32().ok()?;
    let record = Record::read_body(number, &mut r).ok()?;
    r.end().ok()?;
    Some(record)
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{Cause, Item, ItemRecord, Peer, ProofScope};
    use crossdock_layout::wire::{Grant, ItemLevel, OnDeath, Party, SegmentKind};
    use crossdock_layout::{MemberId, Rights, SegmentId};

    pub(super) fn records() -> Vec<Record> {
        let cause = Cause { member: MemberId(7), request: 8 };
        let grants = vec![Grant { pattern: "a/*".into(), kind: SegmentKind::Port, rights: Rights::PRODUCE }];
        let (name, task) = ("n".to_owned(), "t".to_owned());
        let mut records = vec![
            Record::Counters { member: 1, segment: 2, number: 3 },
            Record::Workflow { number: 1, quota: 2, owner: MemberId(3), name: name.clone(), cause },
            Record::WorkflowEnd { number: 1, cause },
            Record::Endpoint { number: 1, workflow: 2, task: task.clone(), grants: grants.clone(), cause },
            Record::Grants { endpoint: 1, grants, cause },
            Record::Member {
                member: MemberId(4097),
                endpoint: 0,
                workflow: 1,
                task,
                rank: 2,
                peer: Peer { pid: 3, birth: 4, uid: 5 },
                token: [6; 16],
                visitor: true,
            },
            Record::Run { workflow: 1, run: 2 },
            Record::MayHold { member: MemberId(8) },
            Record::MemberGone { member: MemberId(9) },
            Record::Segment {
                segment: SegmentId(1),
                workflow: 2,
                kind: SegmentKind::Region,
                name: name.clone(),
                size: 3,
                reserved: 4,
                attribute: 5,
                persistent: true,
                since_ms: 6,
                cause,
            },
            Record::Reserved { segment: SegmentId(1), upto: 2 },
            Record::Moving { segment: SegmentId(1), moves: true },
            Record::Renamed { segment: SegmentId(1), name: "x".into(), cause },
            Record::HandedOver { segment: SegmentId(1), becomes: SegmentId(2), node: "x".into() },
            Record::Arriving {
                segment: SegmentId(1),
                former: SegmentId(2),
                node: "x".into(),
                workflow: "w".into(),
                name: "r".into(),
                named: true,
            },
            Record::ArrivalKnown { segment: SegmentId(1) },
            Record::Removed { segment: SegmentId(1), holders: vec![(MemberId(2), 3)], cause },
            Record::Released { segment: SegmentId(1) },
            Record::Outcome { cause, made: true, value: 3 },
            Record::Series {
                segment: SegmentId(1),
                workflow: 2,
                run: 7,
                name,
                size: 3,
                reserved: 4,
                attribute: 5,
                observers: 6,
                since_ms: 7,
                cause,
            },
            Record::PinPage { segment: SegmentId(1), endpoint: 2 },
            Record::PinTaken { segment: SegmentId(1), pin: 3, slot: 2, cause },
            Record::PinFreed { segment: SegmentId(1), pin: 3 },
            Record::Unpublished { segment: SegmentId(1), cause },
            Record::Era(ProofScope { device: 1, inode: 2, born: 3, processes: 4, first: 5 }),
            Record::Ghost { member: MemberId(9), peer: Peer { pid: 3, birth: 4, uid: 5 } },
            Record::Numbers { segment: SegmentId(1), numbers: vec![2, 3] },
            Record::GhostEndpoint { member: MemberId(9), endpoint: 2 },
            Record::Undone { made: SegmentId(4) },
        ];
        records.extend(items());
        records
    }

    fn items() -> Vec<Record> {
        let cause = Cause { member: MemberId(7), request: 8 };
        let item = SegmentId(9);
        let state = Item {
            workflow: 1,
            key: "frame/1".into(),
            file: SegmentId(2),
            size: 3,
            level: ItemLevel::Strict,
            on_death: OnDeath::Return,
            creator: Party::rank("a", 4),
            owner: Party::task("b"),
            holder: MemberId(5),
            shared: true,
            transfers: 6,
            copies: 7,
        };
        let owner = Party::Number(3);
        let records = vec![
            ItemRecord::Made { item, state, cause },
            ItemRecord::Owner {
                item,
                owner: owner.clone(),
                holder: MemberId(1),
                shared: false,
                transferred: true,
                made: false,
                cause,
            },
            ItemRecord::Memory { item, file: SegmentId(3), size: 4, clung: true, cause },
            ItemRecord::Gone { item, cause },
            ItemRecord::Policy { item, on_death: OnDeath::Destroy, cause },
            ItemRecord::Number { workflow: 1, number: 2, party: owner.clone(), cause },
            ItemRecord::Word { workflow: 1, party: owner, word: 3, cause },
            ItemRecord::Here { item, epoch: 2, source: "n1".into(), left: 3 },
            ItemRecord::Leaving { item, epoch: 3, to: "n2".into() },
            ItemRecord::Left { item, epoch: 3, to: "n2".into(), file: SegmentId(4), workflow: 5 },
            ItemRecord::Ended { item, epoch: 3 },
            ItemRecord::Settled { item },
            ItemRecord::Named { workflow: 1, task: "t".into(), parties: 2 },
        ];
        records.into_iter().map(Record::Item).collect()
    }

    #[test]
    fn every_record_comes_back_and_none_comes_out_of_a_part_of_it() {
        for record in records() {
            let bytes = encode(&record);
            assert_eq!(decode(&bytes), Some(record));
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), None);
            }
        }
    }
}
