//! Records of items as bytes; numbers 20 to 26.

use crossdock_layout::wire::{ItemLevel, OnDeath, Party};

use super::{In, Out};
use crate::broker::{Item, ItemRecord};

const NUMBER: u32 = 1;
const ANY_RANK: u32 = 2;
const RANK: u32 = 3;

impl Out {
    fn party(&mut self, party: &Party) -> &mut Self {
        match party {
            Party::Number(number) => self.u32(NUMBER).u64(*number),
            Party::Task { task, rank: None } => self.u32(ANY_RANK).text(task),
            Party::Task { task, rank: Some(rank) } => self.u32(RANK).u32(*rank).text(task),
        }
    }
    fn flags(&mut self, flags: &[bool]) -> &mut Self {
        self.u32(flags.iter().enumerate().fold(0, |bits, (n, flag)| bits | u32::from(*flag) << n))
    }
}

impl In<'_> {
    fn party(&mut self) -> Option<Party> {
        Some(match self.u32()? {
            NUMBER => Party::Number(self.u64()?),
            ANY_RANK => Party::Task { task: self.text()?, rank: None },
            RANK => {
                let rank = Some(self.u32()?);
                Party::Task { task: self.text()?, rank }
            }
            _ => return None,
        })
    }
    fn flag(bits: u32, n: u32) -> bool {
        bits >> n & 1 == 1
    }
}

pub(super) fn encode(record: &ItemRecord, out: &mut Out) {
    match record {
        ItemRecord::Made { item, state, cause } => {
            out.u32(20).u64(item.0).u64(state.workflow).text(&state.key).u64(state.file.0).u64(state.size);
            out.u32(state.level as u32).u32(state.on_death as u32).party(&state.creator).party(&state.owner);
            out.u64(state.holder.0).flags(&[state.shared]).u64(state.transfers).u64(state.copies).cause(*cause);
        }
        ItemRecord::Owner { item, owner, holder, shared, transferred, made, cause } => {
            out.u32(21).u64(item.0).party(owner).u64(holder.0).flags(&[*shared, *transferred, *made]).cause(*cause);
        }
        ItemRecord::Memory { item, file, size, clung, cause } => {
            out.u32(22).u64(item.0).u64(file.0).u64(*size).flags(&[*clung]).cause(*cause);
        }
        ItemRecord::Gone { item, cause } => {
            out.u32(23).u64(item.0).cause(*cause);
        }
        ItemRecord::Policy { item, on_death, cause } => {
            out.u32(24).u64(item.0).u32(*on_death as u32).cause(*cause);
        }
        ItemRecord::Number { workflow, number, party, cause } => {
            out.u32(25).u64(*workflow).u64(*number).party(party).cause(*cause);
        }
        ItemRecord::Word { workflow, party, word, cause } => {
            out.u32(26).u64(*workflow).party(party).u64(*word).cause(*cause);
        }
    }
}

pub(super) fn decode(number: u32, r: &mut In<'_>) -> Option<ItemRecord> {
    Some(match number {
        20 => {
            let item = r.segment()?;
            let (workflow, key, file, size) = (r.u64()?, r.text()?, r.segment()?, r.u64()?);
            let (level, on_death) = (ItemLevel::from_u32(r.u32()?)?, OnDeath::from_u32(r.u32()?)?);
            let (creator, owner, holder) = (r.party()?, r.party()?, r.member()?);
            let shared = In::flag(r.u32()?, 0);
            let (transfers, copies) = (r.u64()?, r.u64()?);
            let state =
                Item { workflow, key, file, size, level, on_death, creator, owner, holder, shared, transfers, copies };
            ItemRecord::Made { item, state, cause: r.cause()? }
        }
        21 => {
            let (item, owner, holder, bits) = (r.segment()?, r.party()?, r.member()?, r.u32()?);
            let (shared, transferred, made) = (In::flag(bits, 0), In::flag(bits, 1), In::flag(bits, 2));
            ItemRecord::Owner { item, owner, holder, shared, transferred, made, cause: r.cause()? }
        }
        22 => {
            let (item, file, size) = (r.segment()?, r.segment()?, r.u64()?);
            ItemRecord::Memory { item, file, size, clung: In::flag(r.u32()?, 0), cause: r.cause()? }
        }
        23 => ItemRecord::Gone { item: r.segment()?, cause: r.cause()? },
        24 => ItemRecord::Policy { item: r.segment()?, on_death: OnDeath::from_u32(r.u32()?)?, cause: r.cause()? },
        25 => ItemRecord::Number { workflow: r.u64()?, number: r.u64()?, party: r.party()?, cause: r.cause()? },
        26 => ItemRecord::Word { workflow: r.u64()?, party: r.party()?, word: r.u64()?, cause: r.cause()? },
        _ => return None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{decode, encode};
    use super::*;
    use crate::broker::{Cause, Record};
    use crossdock_layout::{MemberId, SegmentId};

    pub(in super::super) fn records() -> Vec<Record> {
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
        ];
        records.into_iter().map(Record::Item).collect()
    }

    #[test]
    fn every_record_of_items_comes_back_and_none_comes_out_of_a_part_of_it() {
        for record in records() {
            let bytes = encode(&record);
            assert_eq!(decode(&bytes), Some(record));
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), None);
            }
        }
    }
}
