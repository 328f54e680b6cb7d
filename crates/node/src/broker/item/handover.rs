//! The hand-over of each item as one state.
//!
//! ```text
//!   Open ──► Draining ──► Proving ──► Proved ──► Open   (given to its next owner, or to its first reader)
//!     │                   ▲  │           ▲
//!     └───────────────────┘  └► Copying ─┘
//!
//!   Away ──► Fetching ──► Proved            (its bytes come from another node)
//!   Open, Proved, Away, Fetching ──► Leaving (it goes to another node; see `residence`)
//! ```
//!
//! Only [`Handovers`] changes a phase. A request that waits for the end of a phase is part of that phase, so that it is
//! answered or dropped together with it.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::{MemberId, SegmentId};

use crate::broker::{Asker, Connection};

/// How far an item is on its way to the next member that opens it.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Members may have it open, or a former user may have kept it open. Nothing is proved.
    Open,
    /// The owner wants to write again. The item is proved as soon as no member reads it, or when the owner's time is
    /// over.
    Draining { asker: Asker },
    /// The kernel is asked whether any process has the item open. The answer comes before any other event.
    Proving { purpose: Purpose },
    /// The bytes are being copied to the file `to`. `clung` if a former user kept the old file open.
    Copying { to: SegmentId, clung: bool, purpose: Purpose },
    /// No process has the item open, and the broker has given it to no member since the proof.
    Proved,
    /// Its bytes are on another node.
    Away,
    /// Its bytes are being pulled from another node into the file `to`.
    Fetching { to: SegmentId },
    /// The catalog is asked to make it another node's. No member of this node gets it.
    Leaving,
}

/// What an item is proved for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Its next owner, which need not have asked yet.
    NextOwner,
    /// Its owner wants to share it.
    Share(Asker),
    /// Its owner wants to write it again.
    Unshare(Asker),
}

impl Phase {
    /// The owner's request that the broker answers when this phase ends.
    pub(super) fn pending(&self) -> Option<Asker> {
        match self {
            Self::Draining { asker } => Some(*asker),
            Self::Proving { purpose } | Self::Copying { purpose, .. } => match purpose {
                Purpose::Share(asker) | Purpose::Unshare(asker) => Some(*asker),
                Purpose::NextOwner => None,
            },
            Self::Open | Self::Proved | Self::Away | Self::Fetching { .. } | Self::Leaving => None,
        }
    }

    /// Is the item being taken back from its readers? Then it gets no new ones.
    pub(super) fn ends_sharing(&self) -> bool {
        matches!(
            self,
            Self::Draining { .. }
                | Self::Proving { purpose: Purpose::Unshare(_) }
                | Self::Copying { purpose: Purpose::Unshare(_), .. }
        )
    }
}

#[derive(Clone, Debug)]
struct Handover {
    phase: Phase,
    /// The member that had it open last. A file that a former user keeps open counts for this member.
    former: MemberId,
    /// Since when it has its owner.
    since: u64,
}

/// The hand-over of every item.
#[derive(Default)]
pub(super) struct Handovers {
    all: BTreeMap<SegmentId, Handover>,
    /// The items whose proof is requested at the end of this event. Empty between events.
    to_ask: BTreeSet<SegmentId>,
}

impl Handovers {
    /// An item is new, or was found in the journal: nothing is proved.
    pub(super) fn begin(&mut self, item: SegmentId, now: u64) {
        self.all.insert(item, Handover { phase: Phase::Open, former: MemberId::NOBODY, since: now });
    }

    /// The item is gone. Gives the phase that this ended.
    pub(super) fn end(&mut self, item: SegmentId) -> Phase {
        self.to_ask.remove(&item);
        self.all.remove(&item).map_or(Phase::Open, |h| h.phase)
    }

    pub(super) fn phase(&self, item: SegmentId) -> &Phase {
        self.all.get(&item).map_or(&Phase::Open, |h| &h.phase)
    }

    /// Begins another phase. Gives the one that this ended.
    pub(super) fn enter(&mut self, item: SegmentId, phase: Phase) -> Phase {
        let Some(found) = self.all.get_mut(&item) else { return Phase::Open };
        self.to_ask.remove(&item);
        if matches!(phase, Phase::Proving { .. }) {
            self.to_ask.insert(item);
        }
        std::mem::replace(&mut found.phase, phase)
    }

    /// Drops the owner's request from its phase. A proof or a copy continues for the next owner.
    pub(super) fn drop_pending(&mut self, item: SegmentId) -> Option<Asker> {
        let found = self.all.get_mut(&item)?;
        let pending = found.phase.pending();
        match &mut found.phase {
            Phase::Draining { .. } => found.phase = Phase::Open,
            Phase::Proving { purpose } | Phase::Copying { purpose, .. } => *purpose = Purpose::NextOwner,
            Phase::Open | Phase::Proved | Phase::Away | Phase::Fetching { .. } | Phase::Leaving => {}
        }
        pending
    }

    /// A connection is gone, and so are its requests. Gives the items that this changed.
    pub(super) fn forget_connection(&mut self, connection: Connection) -> Vec<SegmentId> {
        let came = |h: &Handover| h.phase.pending().is_some_and(|asker| asker.connection == connection);
        let items: Vec<_> = self.all.iter().filter(|(_, h)| came(h)).map(|(item, _)| *item).collect();
        for item in &items {
            self.drop_pending(*item);
        }
        items
    }

    /// The item went to another owner.
    pub(super) fn restart_clock(&mut self, item: SegmentId, now: u64) {
        if let Some(found) = self.all.get_mut(&item) {
            found.since = now;
        }
    }

    pub(super) fn since(&self, item: SegmentId) -> u64 {
        self.all.get(&item).map_or(0, |h| h.since)
    }

    /// This member closed the item, or is about to.
    pub(super) fn set_former(&mut self, item: SegmentId, member: MemberId) {
        if let Some(found) = self.all.get_mut(&item) {
            found.former = member;
        }
    }

    /// The member that had the item open last, if this broker has seen one.
    pub(super) fn former(&self, item: SegmentId) -> Option<MemberId> {
        self.all.get(&item).map(|h| h.former).filter(|m| *m != MemberId::NOBODY)
    }

    /// The items for which the kernel is asked now whether any process still has them open.
    pub(super) fn take_questions(&mut self) -> BTreeSet<SegmentId> {
        std::mem::take(&mut self.to_ask)
    }

    /// Every item with its phase.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Phase)> {
        self.all.iter().map(|(item, h)| (*item, &h.phase))
    }

    /// Have all questions of this event been asked?
    pub(super) fn asked(&self) -> bool {
        self.to_ask.is_empty()
    }
}
