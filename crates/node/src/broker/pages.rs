//! What the broker knows of the pin pages of series and of the pages' slots, besides the lasting state.

use std::collections::BTreeSet;

use crossdock_layout::SegmentId;

use super::Requester;
use super::lasting::Lasting;

/// A pin page that the host is making right now.
#[derive(Clone, Debug)]
pub(super) struct MakingPage {
    pub asker: Requester,
    pub series: SegmentId,
    pub endpoint: u64,
    pub page: SegmentId,
}

/// Lost pin pages, slots that are in doubt, and the page that is being made.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The pages whose descriptors were lost with the keeper. No observer gets a free slot of these pages.
    lost: BTreeSet<SegmentId>,
    /// The slots in doubt: since the broker's restart, the observers of these slots have not said whether they still
    /// use the slots.
    unsure: BTreeSet<SegmentId>,
    making: Option<MakingPage>,
}

impl Pages {
    /// Notes that the descriptor of this pin page was lost with the former keeper.
    pub fn lose(&mut self, page: SegmentId) {
        self.lost.insert(page);
    }

    /// Notes that a lost page was offered again, or is gone with its series.
    pub fn is_settled(&mut self, page: SegmentId) {
        self.lost.remove(&page);
    }

    /// Tells whether any page is lost.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Tells whether this page is lost.
    pub fn is_lost(&self, page: SegmentId) -> bool {
        self.lost.contains(&page)
    }

    /// Notes that these slots are in doubt until their observers say whether they still use the slots.
    pub fn doubt(&mut self, slots: impl IntoIterator<Item = SegmentId>) {
        self.unsure.extend(slots);
    }

    /// Notes that a slot is not in doubt any more, because its observer still uses the slot or the slot is free.
    pub fn be_sure(&mut self, slot: SegmentId) {
        self.unsure.remove(&slot);
    }

    /// Gives those slots of pin pages whose observers have not yet said whether they still use the slot.
    pub fn unsure(&self) -> Vec<SegmentId> {
        self.unsure.iter().copied().collect()
    }

    /// Forgets which slots of a series are in doubt, because the series is gone. Each slot of a pin page has an id. A
    /// series, its pin pages and their slots have successive ids: `series` is the first of them, and `ids` is their
    /// number.
    pub fn forget(&mut self, series: SegmentId, ids: u64) {
        let end = SegmentId(series.0.saturating_add(ids));
        self.unsure.retain(|slot| !(series..end).contains(slot));
    }

    /// Notes that the host is making a pin page. The host makes one page at a time.
    pub fn make(&mut self, making: MakingPage) {
        assert!(self.making.is_none(), "the host makes one page at a time");
        self.making = Some(making);
    }

    /// Removes the note of the pin page that the host was making and returns it, because the host has answered.
    pub fn made(&mut self) -> Option<MakingPage> {
        self.making.take()
    }

    /// Tells whether the host is making a page.
    pub fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Tells whether the host is making a page of this series.
    pub fn is_making_of(&self, series: SegmentId) -> bool {
        self.making.as_ref().is_some_and(|making| making.series == series)
    }

    /// Panics if a page or a slot belongs to no series.
    pub fn check(&self, lasting: &Lasting) {
        for page in &self.lost {
            let there = lasting.of(*page).is_some_and(|(_, segment)| segment.removed.is_none());
            assert!(there, "{page} is lost and has no series");
        }
        for slot in &self.unsure {
            assert!(lasting.pin_of(*slot).is_some(), "{slot} is no observer");
        }
    }

    /// Panics if the host was asked for a page and has not answered.
    pub fn check_at_rest(&self) {
        assert!(self.making.is_none(), "a pin page was asked for and never made");
    }
}
