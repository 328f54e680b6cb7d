//! The lasting state of items, and the records in the journal from which a new broker rebuilds it.

#![allow(missing_docs, reason = "plain fields, named as in the records and on the wire")]

use std::collections::BTreeMap;

use crossdock_layout::wire::{Bits, ItemLevel, OnDeath, Party};
use crossdock_layout::{MemberId, SegmentId, messages, record};

use super::keyed::by;
use super::residence::{BytesSource, Residence};
use crate::broker::stored::Stored;
use crate::broker::{Cause, Lasting, NODE_SHIFT, Outcome};

messages! {
    /// One lasting change of items, as the journal has it.
    pub enum ItemRecord: u32 as Stored {
        /// An item begins. In a compacted journal: an item exists. The item's memory is a segment, which an earlier
        /// record has made.
        20 Made { item: SegmentId, state: Item, cause: Cause, },
        /// The item has another owner, or its owner has opened it, closed it, shared it or ended the sharing.
        21 Owner { item: SegmentId, owner: Party, holder: MemberId, shared + transferred + made: bool as Bits, cause: Cause, },
        /// The item's bytes are in another file, or the item has another size.
        22 Memory { item: SegmentId, file: SegmentId, size: u64, clung: bool, cause: Cause, },
        /// The item is gone.
        23 Gone { item: SegmentId, cause: Cause, },
        /// The item has another `on_death` policy.
        24 Policy { item: SegmentId, on_death: OnDeath, cause: Cause, },
        /// From now on this number stands for a rank of a task, which has registered the number.
        25 Number { workflow: u64, number: u64, party: Party, cause: Cause, },
        /// From now on the number `word` in owner words means this party.
        26 Word { workflow: u64, party: Party, word: u64, cause: Cause, },
        /// So far, `parties` parties have got a number for owner words because requests of this task needed it.
        36 Named { workflow: u64, task: String, parties: u64, },
        /// The item is on this node, and has moved between nodes `epoch` times. `source` is the node that has its
        /// bytes, and `left` the epoch with which they left that node. If `source` is empty, the bytes are on this
        /// node.
        27 Here { item: SegmentId, epoch: u64, source: String, left: u64, },
        /// The item goes to the node `to` if the catalog agrees. The item then has this epoch, the number of its
        /// moves.
        28 Leaving { item: SegmentId, epoch: u64, to: String, },
        /// The item is on the node `to`, with this epoch. Its bytes stay in `file` until that node has them. `file` is
        /// 0 if the bytes are not on this node.
        29 Left { item: SegmentId, epoch: u64, to: String, file: SegmentId, workflow: u64, },
        /// The item ended on this node, or never began here. The catalog still says that this node has it.
        33 Ended { item: SegmentId, epoch: u64, },
        /// The catalog does not say any more that this node has the item.
        34 Settled { item: SegmentId, },
    }
}

record! {
    /// The lasting state of an item.
    pub struct Item as Stored {
        workflow: u64,
        key: String,
        /// The segment that holds the item's bytes. The item's id is that of its first segment; after a copy, the bytes
        /// are in another segment.
        file: SegmentId,
        size: u64,
        level: ItemLevel,
        on_death: OnDeath,
        creator: Party,
        owner: Party,
        /// The member of the owner that has the item open.
        holder: MemberId,
        /// Whether the item is shared: no member writes it, and each member with the right to read may have it.
        shared: bool,
        transfers: u64,
        /// How often the item had to be copied, because a former user had kept it open or mapped.
        copies: u64,
    }
}

/// All lasting state of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items {
    pub all: BTreeMap<SegmentId, Item>,
    pub keys: BTreeMap<(u64, String), SegmentId>,
    /// For each file, the item whose bytes it holds.
    pub files: BTreeMap<SegmentId, SegmentId>,
    pub numbers: BTreeMap<(u64, u64), Party>,
    pub words: BTreeMap<(u64, Party), u64>,
    pub last_word: u64,
    /// For each task of a workflow: how many parties have got a number for owner words because a request of this task
    /// needed their number.
    pub named: BTreeMap<(u64, String), u64>,
    /// Which node an item is on, for each item that has been on several nodes or is about to be.
    pub residences: BTreeMap<SegmentId, Residence>,
}

/// Gives the bytes of memory for an item of `size` bytes: one page for its description, and whole pages of data.
pub const fn memory_of(size: u64) -> u64 {
    size.next_multiple_of(4096) + 4096
}

impl Lasting {
    pub(in crate::broker) fn apply_item(&mut self, record: &ItemRecord) {
        match record {
            ItemRecord::Made { item, state, cause } => {
                if !self.workflows.contains_key(&state.workflow) {
                    return;
                }
                // If this node gave out the item's id, the next id must be greater. Ids of items from other nodes have
                // other upper bits, and do not matter here.
                if item.0 >> NODE_SHIFT == self.next_segment >> NODE_SHIFT {
                    self.next_segment = self.next_segment.max(item.0.saturating_add(1));
                }
                self.items.keys.insert((state.workflow, state.key.clone()), *item);
                if state.file.0 != 0 {
                    self.items.files.insert(state.file, *item);
                }
                self.items.all.insert(*item, state.clone());
                self.remember(*cause, Outcome::Made(*item));
            }
            ItemRecord::Owner { item, owner, holder, shared, transferred, made, cause } => {
                if let Some(found) = self.items.all.get_mut(item) {
                    (found.owner, found.holder, found.shared) = (owner.clone(), *holder, *shared);
                    found.transfers = found.transfers.saturating_add(u64::from(*transferred));
                }
                self.remember(*cause, if *made { Outcome::Made(*item) } else { Outcome::Done(0) });
            }
            ItemRecord::Memory { item, file, size, clung, cause } => {
                let Some(found) = self.items.all.get_mut(item) else { return };
                self.items.files.remove(&found.file);
                self.items.files.insert(*file, *item);
                (found.file, found.size) = (*file, *size);
                found.copies = found.copies.saturating_add(u64::from(*clung));
                self.set_size(*file, memory_of(*size));
                self.remember(*cause, Outcome::Made(*item));
            }
            ItemRecord::Gone { item, cause } => {
                self.items.forget(*item);
                self.items.end_residence(*item);
                self.remember(*cause, Outcome::Done(0));
            }
            ItemRecord::Here { item, epoch, source, left } => {
                let bytes = (!source.is_empty()).then(|| BytesSource { node: source.clone(), left: *left });
                self.items.residences.insert(*item, Residence::Here { epoch: *epoch, bytes });
            }
            ItemRecord::Leaving { item, epoch, to } => {
                let bytes = self.items.source(*item).cloned();
                self.items.residences.insert(*item, Residence::Leaving { epoch: *epoch, bytes, to: to.clone() });
            }
            ItemRecord::Left { item, epoch, to, file, workflow } => {
                self.items.forget(*item);
                let left = Residence::Left { epoch: *epoch, to: to.clone(), file: *file, workflow: *workflow };
                self.items.residences.insert(*item, left);
            }
            ItemRecord::Ended { item, epoch } => {
                self.items.residences.insert(*item, Residence::Ended { epoch: *epoch });
            }
            ItemRecord::Settled { item } => drop(self.items.residences.remove(item)),
            ItemRecord::Policy { item, on_death, cause } => {
                if let Some(found) = self.items.all.get_mut(item) {
                    found.on_death = *on_death;
                }
                self.remember(*cause, Outcome::Done(0));
            }
            ItemRecord::Number { workflow, number, party, cause } => {
                if self.workflows.contains_key(workflow) {
                    self.items.numbers.insert((*workflow, *number), party.clone());
                }
                self.remember(*cause, Outcome::Done(0));
            }
            ItemRecord::Word { workflow, party, word, cause } => {
                if self.workflows.contains_key(workflow) {
                    self.items.words.insert((*workflow, party.clone()), *word);
                }
                self.items.last_word = self.items.last_word.max(*word);
                self.remember(*cause, Outcome::Done(*word));
            }
            ItemRecord::Named { workflow, task, parties } => {
                if self.workflows.contains_key(workflow) {
                    self.items.named.insert((*workflow, task.clone()), *parties);
                }
            }
        }
    }

    /// Notes the new size of a file that grew or shrank.
    fn set_size(&mut self, file: SegmentId, size: u64) {
        let Some(found) = self.segments.get_mut(&file) else { return };
        let workflow = self.workflows.get_mut(&found.workflow);
        let change = |sum: &mut u64| *sum = sum.saturating_sub(found.reserved).saturating_add(size);
        change(&mut self.reserved);
        if let Some(workflow) = workflow {
            change(&mut workflow.reserved);
        }
        (found.size, found.reserved) = (size, size);
    }
}

impl Items {
    /// Gives the item that has this key in this workflow.
    pub fn of_key(&self, workflow: u64, key: &str) -> Option<SegmentId> {
        self.keys.get(by(&(workflow, key))).copied()
    }

    fn forget(&mut self, item: SegmentId) {
        if let Some(gone) = self.all.remove(&item) {
            self.files.remove(&gone.file);
            if self.of_key(gone.workflow, &gone.key) == Some(item) {
                self.keys.remove(by(&(gone.workflow, &gone.key)));
            }
        }
    }

    /// Notes that the item is gone. If the catalog has an entry of the item for this node, notes that the catalog must
    /// remove the entry.
    fn end_residence(&mut self, item: SegmentId) {
        if let Some(at) = self.residences.get_mut(&item) {
            if matches!(at, Residence::Here { .. } | Residence::Leaving { .. }) {
                *at = Residence::Ended { epoch: at.epoch() };
            }
        }
    }

    /// Removes the items of a workflow that ended.
    pub(in crate::broker) fn end_workflow(&mut self, workflow: u64) {
        for item in self.all.iter().filter(|(_, i)| i.workflow == workflow).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_residence(item);
        }
        for at in self.residences.values_mut() {
            if let Residence::Left { workflow: of, file, .. } = at {
                if *of == workflow {
                    *file = SegmentId(0);
                }
            }
        }
        self.all.retain(|_, item| item.workflow != workflow);
        self.files.retain(|_, item| self.all.contains_key(item));
        self.keys.retain(|(of, _), _| *of != workflow);
        self.numbers.retain(|(of, _), _| *of != workflow);
        self.words.retain(|(of, _), _| *of != workflow);
        self.named.retain(|(of, _), _| *of != workflow);
    }

    /// Gives the shortest list of records that makes this state from nothing.
    pub(in crate::broker) fn snapshot(&self) -> Vec<ItemRecord> {
        let cause = Cause::NONE;
        let mut records = Vec::new();
        if self.last_word > 0 {
            // The largest number that was ever given out for owner words is recorded, so that no number is given out
            // twice. This also holds if the workflow that got the number is gone.
            let party = Party::Number(0);
            records.push(ItemRecord::Word { workflow: u64::MAX, party, word: self.last_word, cause });
        }
        // Two items may have the same key: one that lost its name in the site, and another one that came to this node
        // with this name. The item to which the key belongs now is recorded last, so that it has the key after the
        // records are applied.
        let is_named = |(item, state): &(&SegmentId, &Item)| self.of_key(state.workflow, &state.key) == Some(**item);
        let (named, others): (Vec<_>, Vec<_>) = self.all.iter().partition(is_named);
        records.extend(others.into_iter().chain(named).map(|(item, state)| ItemRecord::Made {
            item: *item,
            state: state.clone(),
            cause,
        }));
        for (item, at) in &self.residences {
            let item = *item;
            let here = |epoch: u64, bytes: &Option<BytesSource>| {
                let (source, left) = bytes.as_ref().map_or((String::new(), 0), |s| (s.node.clone(), s.left));
                ItemRecord::Here { item, epoch, source, left }
            };
            match at {
                Residence::Here { epoch, bytes } => records.push(here(*epoch, bytes)),
                Residence::Leaving { epoch, bytes, to } => {
                    records.push(here(epoch - 1, bytes));
                    records.push(ItemRecord::Leaving { item, epoch: *epoch, to: to.clone() });
                }
                Residence::Left { epoch, to, file, workflow } => {
                    let (epoch, to, file, workflow) = (*epoch, to.clone(), *file, *workflow);
                    records.push(ItemRecord::Left { item, epoch, to, file, workflow });
                }
                Residence::Ended { epoch } => records.push(ItemRecord::Ended { item, epoch: *epoch }),
            }
        }
        records.extend(self.numbers.iter().map(|((workflow, number), party)| {
            let (workflow, number, party) = (*workflow, *number, party.clone());
            ItemRecord::Number { workflow, number, party, cause }
        }));
        records.extend(self.words.iter().map(|((workflow, party), word)| {
            let (workflow, party, word) = (*workflow, party.clone(), *word);
            ItemRecord::Word { workflow, party, word, cause }
        }));
        records.extend(self.named.iter().map(|((workflow, task), parties)| {
            let (workflow, task, parties) = (*workflow, task.clone(), *parties);
            ItemRecord::Named { workflow, task, parties }
        }));
        records
    }
}
