//! Which node an item is on: its *residence*, kept for each item that has left a node or comes from another one.
//!
//! ```text
//!   node A:  Here(e) ── a task of B asks, proof ──► Leaving(e+1) ── commit ──► Left(e+1) ── B has the bytes ──► (forgotten)
//!                                                       └─ refused ─► Here(e)
//!   node B:                                          ── the catalog tells ──► Here(e+1), bytes on A ── pulled ──► Here(e+1)
//! ```
//!
//! The **epoch** counts the nodes that an item has been on. Only the node that the catalog names changes the item's entry
//! there, and each change of the node counts the epoch up. What is told of an earlier epoch than a broker knows is old news,
//! and changes nothing. Between `Leaving` and the answer of the catalog no member of this node gets the item.
//!
//! The bytes may still be on a former node when the item goes on: the entry says on which, and by which epoch they left it.
//! That node keeps them until the entry says that they are elsewhere.

#![allow(missing_docs, reason = "plain fields, named as in the records")]

use crossdock_layout::wire::{ItemLevel, OnDeath, Party};
use crossdock_layout::{MemberId, SegmentId, record};

use super::record::{Item, Items};
use crate::broker::stored::{Stored, decode, encode};

/// Where the bytes of an item are that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub node: String,
    /// The epoch by which they left that node.
    pub left: u64,
}

/// Which node an item is on, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Residence {
    /// This one. `bytes` says where its bytes are, if they are not here.
    Here { epoch: u64, bytes: Option<Source> },
    /// This one, until the catalog says that it is the node `to`.
    Leaving { epoch: u64, bytes: Option<Source>, to: String },
    /// Another one. Its bytes stay in this file (0: they are not here) until the entry says that they are elsewhere.
    Left { epoch: u64, to: String, file: SegmentId, workflow: u64 },
    /// None: it ended here, and the catalog is to forget it.
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
    /// What the next node needs to know of an item, in its entry.
    pub struct About as Stored {
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
        /// Where its bytes are; empty if they are on the node that owns it.
        source: String,
        left: u64,
    }
}

impl About {
    pub(super) const VERSION: u32 = 1;

    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let about: Self = decode(bytes)?;
        (about.version == Self::VERSION && about.size > 0).then_some(about)
    }

    /// The item as it begins on this node, with no file yet.
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
            holder: MemberId::NOBODY,
            shared: false,
            transfers: self.transfers,
            copies: self.copies,
        }
    }

    pub(super) fn source(&self) -> Option<Source> {
        (!self.source.is_empty()).then(|| Source { node: self.source.clone(), left: self.left })
    }
}

impl Items {
    /// How many changes of its node an item has seen.
    pub(super) fn epoch(&self, item: SegmentId) -> u64 {
        self.residences.get(&item).map_or(0, Residence::epoch)
    }

    /// Where the bytes of an item are, if they are not here.
    pub(super) fn source(&self, item: SegmentId) -> Option<&Source> {
        match self.residences.get(&item)? {
            Residence::Here { bytes, .. } | Residence::Leaving { bytes, .. } => bytes.as_ref(),
            Residence::Left { .. } | Residence::Ended { .. } => None,
        }
    }

    pub(super) fn is_leaving(&self, item: SegmentId) -> bool {
        matches!(self.residences.get(&item), Some(Residence::Leaving { .. }))
    }

    /// Does the file hold the bytes of an item that left, and that its node has not pulled yet?
    pub(super) fn is_left_behind(&self, file: SegmentId) -> bool {
        self.residences.values().any(|at| matches!(at, Residence::Left { file: of, .. } if *of == file))
    }
}
