//! Which node an item is on: its *residence*. The broker keeps the residence of each item that has left this node or
//! has come from another one.
//!
//! ```text
//!   node A:  Here(e) ── a task of B asks, proof ──► Leaving(e+1) ── commit ──► Left(e+1) ── B has the bytes ──► (forgotten)
//!                                                       └─ refused ─► Here(e)
//!   node B:                                          ── the catalog tells ──► Here(e+1), bytes on A ── pulled ──► Here(e+1)
//! ```
//!
//! The **epoch** counts how often an item has moved from node to node. Only the node that the catalog's entry names
//! changes this entry, and each move increments the epoch. A report with an earlier epoch than the broker knows is
//! outdated, and is ignored. Between `Leaving` and the answer of the catalog, no member of this node gets the item.
//!
//! An item may go on to a third node while its bytes are still on the first one. The catalog's entry then names the
//! first node, and the epoch with which the bytes left it. The first node keeps the bytes until the entry says that
//! they are elsewhere. The second node keeps its note of the item until then, because the first node asks the second
//! one where the item is if the catalog loses the item's entry (see `unlisted`).

#![allow(missing_docs, reason = "plain fields, named as in the records")]

use crossdock_layout::wire::{ItemLevel, OnDeath, Party};
use crossdock_layout::{MemberId, SegmentId, record};

use super::record::{Item, Items};
use super::serve::MAX_SIZE;
use crate::broker::stored::{Stored, decode, encode};

/// An item has come to this node, but its bytes are still on another node. This value says where the bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BytesSource {
    pub node: String,
    /// The epoch with which the item left the node `node`.
    pub left: u64,
}

/// Which node an item is on, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Residence {
    /// The item is on this node. `bytes` says where its bytes are, if they are not on this node.
    Here { epoch: u64, bytes: Option<BytesSource> },
    /// The item is on this node until the catalog confirms that it is on the node `to`.
    Leaving { epoch: u64, bytes: Option<BytesSource>, to: String },
    /// The item is on another node. Its bytes stay in this file until the catalog's entry says that they are elsewhere.
    /// The file is 0 if the bytes are not on this node.
    Left { epoch: u64, to: String, file: SegmentId, workflow: u64 },
    /// The item is on no node. It ended on this node, and the catalog must still remove the item's entry.
    Ended { epoch: u64 },
}

impl Residence {
    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Here { epoch, .. }
            | Self::Leaving { epoch, .. }
            | Self::Left { epoch, .. }
            | Self::Ended { epoch } => *epoch,
        }
    }
}

record! {
    /// What the next node must know of an item, as the item's entry in the catalog has it.
    pub struct ItemSummary as Stored {
        version: u32,
        workflow: String,
        key: String,
        size: u64,
        level: ItemLevel,
        on_death: OnDeath,
        creator: Party,
        owner: Party,
        transfers: u64,
        copies: u64,
        /// The node that has the item's bytes; empty if the bytes are on the node that owns the item.
        source: String,
        left: u64,
        /// The stamp with which the bytes travel ahead (see `ahead`); 0 if they do not.
        stamp: u64,
    }
}

impl ItemSummary {
    pub(super) const VERSION: u32 = 2;

    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let about: Self = decode(bytes)?;
        // An entry is refused if no correct node can have written it: cooperative items never leave their node, and no
        // node makes an item of size 0 or above `MAX_SIZE`.
        let moves = about.level != ItemLevel::Cooperative;
        let fits = about.size > 0 && about.size <= MAX_SIZE;
        (about.version == Self::VERSION && fits && moves).then_some(about)
    }

    /// Gives the state that an item from another node has at first on this node. The item has no file on this node yet.
    pub(super) fn item(&self, workflow: u64) -> Item {
        Item {
            workflow,
            key: self.key.clone(),
            file: SegmentId(0),
            size: self.size,
            level: self.level,
            on_death: self.on_death,
            creator: self.creator.clone(),
            owner: self.owner.clone(),
            holder: MemberId::NONE,
            shared: false,
            transfers: self.transfers,
            copies: self.copies,
        }
    }

    pub(super) fn source(&self) -> Option<BytesSource> {
        (!self.source.is_empty()).then(|| BytesSource { node: self.source.clone(), left: self.left })
    }
}

impl Items {
    /// Tells how often an item has moved from node to node.
    pub(super) fn epoch(&self, item: SegmentId) -> u64 {
        self.residences.get(&item).map_or(0, Residence::epoch)
    }

    /// Gives the node that has the bytes of an item, if that is not this node.
    pub(super) fn source(&self, item: SegmentId) -> Option<&BytesSource> {
        match self.residences.get(&item)? {
            Residence::Here { bytes, .. } | Residence::Leaving { bytes, .. } => bytes.as_ref(),
            Residence::Left { .. } | Residence::Ended { .. } => None,
        }
    }

    pub(super) fn is_leaving(&self, item: SegmentId) -> bool {
        matches!(self.residences.get(&item), Some(Residence::Leaving { .. }))
    }

    /// Tells whether this file has the bytes of an item that left this node, so that another node can pull the bytes.
    pub(super) fn is_left_behind(&self, file: SegmentId) -> bool {
        self.residences.values().any(|at| matches!(at, Residence::Left { file: of, .. } if *of == file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_item_of_an_impossible_size_is_refused() {
        for (size, is_good) in [(1, true), (MAX_SIZE, true), (0, false), (MAX_SIZE + 1, false), (u64::MAX, false)] {
            let about = ItemSummary {
                version: ItemSummary::VERSION,
                workflow: "default".into(),
                key: "x".into(),
                size,
                level: ItemLevel::Verified,
                on_death: OnDeath::Keep,
                creator: Party::task("a"),
                owner: Party::task("b"),
                transfers: 1,
                copies: 0,
                source: String::new(),
                left: 0,
                stamp: 0,
            };
            assert_eq!(ItemSummary::decode(&about.encode()).is_some(), is_good, "{size}");
        }
    }
}
