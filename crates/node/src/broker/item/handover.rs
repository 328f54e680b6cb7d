//! The hand-over of each item from member to member, as one state: its phase.
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
//! Only [`Handovers`] changes a phase. A request that waits for the end of a phase is stored in the phase. So when the
//! phase ends, the request is answered or dropped.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::{MemberId, SegmentId};

use crate::broker::{Connection, Requester};

/// How far an item is on its way to the next member that opens it.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// A member may have the item open, or a former user may have kept the item's file open. The kernel has proved
    /// nothing about the file.
    Open,
    /// The owner wants to write again, but members still read the item. The proof begins when no member reads it any
    /// more, or when the owner's request has waited long enough.
    Draining { asker: Requester },
    /// The kernel is asked whether any process has the item's file open. The answer comes before any other event.
    Proving { purpose: Purpose },
    /// The item's bytes are being copied to the file `to`. `clung` says that a former user kept the old file open.
    Copying { to: SegmentId, clung: bool, purpose: Purpose },
    /// No process has the item's file open. The broker has given the item to no member since the proof.
    Proved,
    /// The item's bytes are on another node.
    Away,
    /// The item's bytes are being pulled from another node into the file `to`.
    Fetching { to: SegmentId },
    /// The broker has asked the catalog to give the item to another node. No member of this node gets it meanwhile.
    /// `stamp` is the stamp of the item's bytes that travel ahead of the catalog's report; 0 if the bytes do not travel
    /// ahead.
    Leaving { stamp: u64 },
}

/// The reason for a proof.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The proof is for the item's next owner, even if that owner has not asked for the item yet.
    NextOwner,
    /// The proof is for the owner's request to share the item with readers.
    Share(Requester),
    /// The proof is for the owner's request to write the item again after sharing it.
    Unshare(Requester),
}

impl Phase {
    /// Gives the owner's request that is answered when this phase ends, if there is one.
    pub(super) fn pending(&self) -> Option<Requester> {
        match self {
            Self::Draining { asker } => Some(*asker),
            Self::Proving { purpose } | Self::Copying { purpose, .. } => match purpose {
                Purpose::Share(asker) | Purpose::Unshare(asker) => Some(*asker),
                Purpose::NextOwner => None,
            },
            Self::Open | Self::Proved | Self::Away | Self::Fetching { .. } | Self::Leaving { .. } => None,
        }
    }

    /// Tells whether the owner is about to end the item's sharing. If so, the item gets no new readers.
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
    /// The member that had the item open last. If a former user keeps a file of the item open, the file's memory counts
    /// as used by this member.
    former: MemberId,
    /// The time at which the item got its present owner.
    since: u64,
}

/// For every item its phase, its last holder, and the time at which it got its present owner.
#[derive(Default)]
pub(super) struct Handovers {
    all: BTreeMap<SegmentId, Handover>,
    /// The items whose proof is requested at the end of the present event. Empty between events.
    to_ask: BTreeSet<SegmentId>,
}

impl Handovers {
    /// Adds an item that is new or was found in the journal, in the phase `Open`.
    pub(super) fn begin(&mut self, item: SegmentId, now: u64) {
        self.all.insert(item, Handover { phase: Phase::Open, former: MemberId::NONE, since: now });
    }

    /// Removes an item that is gone. Returns the phase in which it was.
    pub(super) fn end(&mut self, item: SegmentId) -> Phase {
        self.to_ask.remove(&item);
        self.all.remove(&item).map_or(Phase::Open, |h| h.phase)
    }

    pub(super) fn phase(&self, item: SegmentId) -> &Phase {
        self.all.get(&item).map_or(&Phase::Open, |h| &h.phase)
    }

    /// Puts an item into another phase. Returns the former phase.
    pub(super) fn enter(&mut self, item: SegmentId, phase: Phase) -> Phase {
        let Some(found) = self.all.get_mut(&item) else { return Phase::Open };
        self.to_ask.remove(&item);
        if matches!(phase, Phase::Proving { .. }) {
            self.to_ask.insert(item);
        }
        std::mem::replace(&mut found.phase, phase)
    }

    /// Removes the owner's request from the item's phase and returns the request. If the item is being proved or
    /// copied, the proof or the copy continues for the next owner.
    pub(super) fn drop_pending(&mut self, item: SegmentId) -> Option<Requester> {
        let found = self.all.get_mut(&item)?;
        let pending = found.phase.pending();
        match &mut found.phase {
            Phase::Draining { .. } => found.phase = Phase::Open,
            Phase::Proving { purpose } | Phase::Copying { purpose, .. } => *purpose = Purpose::NextOwner,
            Phase::Open | Phase::Proved | Phase::Away | Phase::Fetching { .. } | Phase::Leaving { .. } => {}
        }
        pending
    }

    /// Removes the requests of a connection that is gone. Returns the items whose phases had such a request.
    pub(super) fn forget_connection(&mut self, connection: Connection) -> Vec<SegmentId> {
        let came = |h: &Handover| h.phase.pending().is_some_and(|asker| asker.connection == connection);
        let items: Vec<_> = self.all.iter().filter(|(_, h)| came(h)).map(|(item, _)| *item).collect();
        for item in &items {
            self.drop_pending(*item);
        }
        items
    }

    /// Notes `now` as the time at which the item got its present owner.
    pub(super) fn restart_clock(&mut self, item: SegmentId, now: u64) {
        if let Some(found) = self.all.get_mut(&item) {
            found.since = now;
        }
    }

    pub(super) fn since(&self, item: SegmentId) -> u64 {
        self.all.get(&item).map_or(0, |h| h.since)
    }

    /// Notes that this member has closed the item, or is about to close it.
    pub(super) fn set_former(&mut self, item: SegmentId, member: MemberId) {
        if let Some(found) = self.all.get_mut(&item) {
            found.former = member;
        }
    }

    /// Gives the member that had the item open last, if this broker knows it.
    pub(super) fn former(&self, item: SegmentId) -> Option<MemberId> {
        self.all.get(&item).map(|h| h.former).filter(|m| *m != MemberId::NONE)
    }

    /// Takes the items for which the host must next ask the kernel whether any process has their files open.
    pub(super) fn take_questions(&mut self) -> BTreeSet<SegmentId> {
        std::mem::take(&mut self.to_ask)
    }

    /// Gives every item with its phase.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Phase)> {
        self.all.iter().map(|(item, h)| (*item, &h.phase))
    }

    /// Tells whether the host has been asked for all proofs that the present event needs.
    pub(super) fn asked(&self) -> bool {
        self.to_ask.is_empty()
    }
}
