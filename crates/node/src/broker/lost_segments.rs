//! A table of the segments whose descriptors were lost with the keeper, with a member for each that may offer it again.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::{MemberId, SegmentId};

/// The lost segments, and for each the member that may have its memory, as far as one was found.
///
/// The broker looks for such a member after an event only for the segments that are to be settled: those that were just
/// lost, and those whose member may have closed the segment. So an event costs little although many segments are lost.
#[derive(Debug, Default)]
pub(super) struct LostSegments {
    /// For each lost segment the member that may have its memory. `NONE`: no member was looked for yet.
    holders: BTreeMap<SegmentId, MemberId>,
    /// The same by member.
    of_member: BTreeMap<MemberId, BTreeSet<SegmentId>>,
    /// The lost segments whose member may not have the memory any more.
    unsettled: BTreeSet<SegmentId>,
}

impl LostSegments {
    /// Notes that the segment's descriptor was lost.
    pub fn insert(&mut self, segment: SegmentId) {
        if self.holders.insert(segment, MemberId::NONE).is_none() {
            self.unsettled.insert(segment);
        }
    }

    /// Notes that the segment was offered again, or is gone. Returns `true` if it was lost.
    pub fn remove(&mut self, segment: SegmentId) -> bool {
        let Some(holder) = self.holders.remove(&segment) else { return false };
        self.drop_of(holder, segment);
        self.unsettled.remove(&segment);
        true
    }

    /// Tells whether the segment is lost.
    pub fn contains(&self, segment: SegmentId) -> bool {
        self.holders.contains_key(&segment)
    }

    /// Tells whether no segment is lost.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Notes that the member may not have this segment open any more.
    pub fn doubt(&mut self, segment: SegmentId, member: MemberId) {
        if self.holders.get(&segment) == Some(&member) {
            self.unsettled.insert(segment);
        }
    }

    /// Notes that the member may have closed any segment, or is gone.
    pub fn doubt_all_of(&mut self, member: MemberId) {
        self.unsettled.extend(self.of_member.get(&member).into_iter().flatten());
    }

    /// Takes the segments for which a member has to be looked for, each with the member that had it until now.
    pub fn take_unsettled(&mut self) -> Vec<(SegmentId, MemberId)> {
        if self.unsettled.is_empty() {
            return Vec::new();
        }
        let unsettled = std::mem::take(&mut self.unsettled);
        unsettled.into_iter().filter_map(|segment| Some((segment, *self.holders.get(&segment)?))).collect()
    }

    /// Notes that the member may have the lost segment's memory.
    pub fn set_holder(&mut self, segment: SegmentId, member: MemberId) {
        let Some(holder) = self.holders.get_mut(&segment) else { return };
        let former = std::mem::replace(holder, member);
        if former != member {
            self.drop_of(former, segment);
            self.of_member.entry(member).or_default().insert(segment);
        }
    }

    fn drop_of(&mut self, member: MemberId, segment: SegmentId) {
        if let Some(of) = self.of_member.get_mut(&member) {
            of.remove(&segment);
            if of.is_empty() {
                self.of_member.remove(&member);
            }
        }
    }

    /// Gives the lost segments that are settled, each with the member that may have its memory.
    pub fn settled(&self) -> impl Iterator<Item = (SegmentId, MemberId)> {
        let settled = self.holders.iter().filter(|(segment, _)| !self.unsettled.contains(segment));
        settled.map(|(segment, member)| (*segment, *member))
    }

    /// Gives all lost segments.
    pub fn all(&self) -> impl Iterator<Item = SegmentId> {
        self.holders.keys().copied()
    }
}
