//! A table that says which members have which segments open, as far as the broker knows.

use std::collections::BTreeMap;

use crossdock_layout::{MemberId, SegmentId};

use super::lasting::Lasting;

/// How often a member has a segment open.
#[derive(Clone, Copy, Debug)]
struct OpenCount {
    count: u32,
    /// True if the broker only assumes that the member has the segment open, because the member's connection is lost.
    /// When the member connects again, it lists the segments that it has open.
    assumed: bool,
}

/// For each open segment the members that have it open.
#[derive(Debug, Default)]
pub(super) struct OpenSegments(BTreeMap<SegmentId, BTreeMap<MemberId, OpenCount>>);

impl OpenSegments {
    /// Notes that the member has opened the segment once more.
    pub fn open(&mut self, segment: SegmentId, member: MemberId) {
        let open = self.0.entry(segment).or_default().entry(member).or_insert(OpenCount { count: 0, assumed: false });
        open.count = open.count.saturating_add(1);
    }

    /// Notes that the member has the segment open. Counts one opening, unless the broker has counted openings of the
    /// member before.
    pub fn open_once(&mut self, segment: SegmentId, member: MemberId) {
        self.0.entry(segment).or_default().entry(member).or_insert(OpenCount { count: 1, assumed: false });
    }

    /// Notes that the member, whose connection is lost, may have the segment open `count` times.
    pub fn assume(&mut self, segment: SegmentId, member: MemberId, count: u32) {
        self.0.entry(segment).or_default().entry(member).or_insert(OpenCount { count, assumed: true });
    }

    /// Notes that the member's connection is lost. From now on the broker only assumes that the member has its segments
    /// open.
    pub fn assume_all_of(&mut self, member: MemberId) {
        self.0.values_mut().filter_map(|of| of.get_mut(&member)).for_each(|open| open.assumed = true);
    }

    /// Sets how often the member has the segment open, as the member says.
    pub fn set(&mut self, segment: SegmentId, member: MemberId, count: u32) {
        if count == 0 {
            self.remove(segment, member);
        } else {
            self.0.entry(segment).or_default().insert(member, OpenCount { count, assumed: false });
        }
    }

    /// Notes that the member closed the segment `count` times. Returns `true` if the member does not have the segment
    /// open any more.
    pub fn close(&mut self, segment: SegmentId, member: MemberId, count: u32) -> bool {
        let Some(open) = self.0.get_mut(&segment).and_then(|of| of.get_mut(&member)) else { return false };
        open.count = open.count.saturating_sub(count);
        let last = open.count == 0;
        if last {
            self.remove(segment, member);
        }
        last
    }

    /// Notes that the member does not have the segment open any more.
    pub fn remove(&mut self, segment: SegmentId, member: MemberId) {
        if let Some(of) = self.0.get_mut(&segment) {
            of.remove(&member);
            if of.is_empty() {
                self.0.remove(&segment);
            }
        }
    }

    /// Removes a segment that is gone.
    pub fn forget(&mut self, segment: SegmentId) {
        self.0.remove(&segment);
    }

    /// Tells whether any member has this segment open.
    pub fn is_open(&self, segment: SegmentId) -> bool {
        self.0.contains_key(&segment)
    }

    /// Tells whether this member has this segment open.
    pub fn has(&self, segment: SegmentId, member: MemberId) -> bool {
        self.0.get(&segment).is_some_and(|of| of.contains_key(&member))
    }

    /// Gives the members that have a segment open, each with the number of its openings.
    pub fn of(&self, segment: SegmentId) -> impl ExactSizeIterator<Item = (MemberId, u32)> {
        static NONE: BTreeMap<MemberId, OpenCount> = BTreeMap::new();
        self.0.get(&segment).unwrap_or(&NONE).iter().map(|(member, open)| (*member, open.count))
    }

    /// Gives the segments that a member has open.
    pub fn of_member(&self, member: MemberId) -> Vec<SegmentId> {
        self.0.iter().filter(|(_, of)| of.contains_key(&member)).map(|(segment, _)| *segment).collect()
    }

    /// Gives the segments that a member is only assumed to have open, because its connection is lost.
    pub fn assumed_of(&self, member: MemberId) -> Vec<SegmentId> {
        let assumed = self.0.iter().filter(|(_, of)| of.get(&member).is_some_and(|open| open.assumed));
        assumed.map(|(segment, _)| *segment).collect()
    }

    /// Panics if a segment or a member in the table does not exist, or if a count is zero.
    pub fn check(&self, lasting: &Lasting) {
        for (segment, of) in &self.0 {
            assert!(lasting.of(*segment).is_some(), "{segment} is gone and open");
            assert!(!of.is_empty(), "{segment} is open in no member");
            for (member, open) in of {
                assert!(lasting.members.contains_key(member), "{member} is gone and has {segment} open");
                assert!(!lasting.holds_nothing(*member), "{member} has {segment} open and never asked for anything");
                assert!(open.count > 0, "{member} has {segment} open no time");
            }
        }
    }
}
