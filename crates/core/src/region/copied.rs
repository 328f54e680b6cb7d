//! Functions for regions whose bytes were copied from another segment, for example from another node.
//!
//! All pointers in a region are relative, so its bytes work in any segment. Only handles name a segment. So a copy
//! keeps the ids of the segments that its bytes came from, and accepts handles that name them.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{HeapSlot, MAX_FORMER, PAGE, RegionHeader, SLICE, STATES_PER_SLICE, SliceHead};
use crossdock_layout::{SegmentId, Status};

use super::Region;
use crate::Result;

/// The largest number of extents (parts of the region that have memory) that [`Region::extents`] gives.
const EXTENTS: usize = 1024;

/// Notes that a region's bytes were copied from the segment `from`. `page` is the first page of these bytes. No other
/// process may have the bytes mapped.
pub fn note_former(page: &mut [u8], from: SegmentId) {
    let former = std::mem::offset_of!(RegionHeader, former);
    let ids = &mut page[former..former + 8 * MAX_FORMER];
    ids.copy_within(..8 * (MAX_FORMER - 1), 8);
    ids[..8].copy_from_slice(&from.0.to_le_bytes());
}

impl Region {
    /// Tells whether a handle that names this segment is a handle of this region: the segment is the region's own, or
    /// one from which the region's bytes were copied.
    pub fn is_named_by(&self, segment: u64) -> bool {
        segment == self.segment.0 || self.is_copied_from(SegmentId(segment))
    }

    /// Tells whether the region's bytes were copied from this segment. A region remembers its last 32 former segments.
    #[cold]
    pub fn is_copied_from(&self, segment: SegmentId) -> bool {
        segment.0 != 0 && self.memory.header().former.iter().any(|id| id.load(Ordering::Relaxed) == segment.0)
    }

    /// The number of bytes of memory that the region counts against the quota.
    pub fn counted(&self) -> u64 {
        self.memory.header().reserved.load(Ordering::Relaxed).min(self.capacity())
    }

    /// Heals the region, and checks that no other member can be in the middle of a change, so that the region's bytes
    /// can be copied.
    ///
    /// # Errors
    /// `BUSY` if a part of the heap (a heap slot) is in use by a member that is not proved dead.
    pub fn settle(&self) -> Result<()> {
        self.heal()?;
        for index in 0..self.memory.slots() {
            let Some(slot) = self.memory.slot(index) else { continue };
            let holder = slot.holder.load(Ordering::Acquire);
            if holder != 0 && holder != self.member.0 {
                let who = self.host.describe(crossdock_layout::MemberId(holder));
                return Err(self.error(Status::Busy, format!("{who} has not closed it in order, and may still use it")));
            }
        }
        Ok(())
    }

    /// The parts of the region that have memory, as offsets and lengths in whole pages, in ascending order. There are
    /// at most 1024 of them. If there would be more, parts with a small gap between them are joined.
    pub fn extents(&self) -> Vec<(u64, u64)> {
        let g = self.memory.geometry();
        let committed = self.memory.committed();
        let entries = self.memory.entries_reserved();
        let mut parts = vec![
            (0, PAGE),
            (g.slots_at, self.memory.slots() * size_of::<HeapSlot>() as u64),
            (g.buckets_at, g.buckets * 8),
            (g.entries_at, entries_bytes(entries)),
            (g.used_at, committed.div_ceil(64) * 8),
            (g.heads_at, committed * size_of::<SliceHead>() as u64),
        ];
        let has_states =
            |slice: &u64| self.memory.head(*slice).is_some_and(|head| head.states_ready.load(Ordering::Relaxed) != 0);
        let states = (0..committed).filter(has_states);
        parts.extend(states.map(|slice| (g.states_at + slice * STATES_PER_SLICE, STATES_PER_SLICE)));
        parts.push((g.data_at, committed * SLICE));
        let pages = parts.into_iter().filter(|(_, length)| *length > 0).map(|(offset, length)| {
            let start = offset / PAGE * PAGE;
            (start, (offset + length).next_multiple_of(PAGE).min(g.capacity) - start)
        });
        joined(pages.collect())
    }
}

fn entries_bytes(entries: u64) -> u64 {
    entries * size_of::<crossdock_layout::region::Entry>() as u64
}

/// Joins extents that touch or overlap. If more than 1024 are left, also joins extents with a small gap between them,
/// and allows larger gaps until at most 1024 are left.
fn joined(mut extents: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut gap = 0;
    loop {
        let mut fewer: Vec<(u64, u64)> = Vec::with_capacity(extents.len());
        for (start, length) in extents {
            match fewer.last_mut() {
                Some((first, covered)) if start <= *first + *covered + gap => {
                    *covered = (*covered).max(start + length - *first);
                }
                _ => fewer.push((start, length)),
            }
        }
        if fewer.len() <= EXTENTS {
            return fewer;
        }
        extents = fewer;
        gap = (gap * 2).max(PAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_touch_are_joined_and_there_are_never_too_many() {
        assert_eq!(joined(vec![(0, 4096), (4096, 4096), (16384, 4096)]), [(0, 8192), (16384, 4096)]);
        let every_second: Vec<_> = (0..10_000).map(|n| (n * 8192, 4096)).collect();
        assert_eq!(joined(every_second), [(0, 9_999 * 8192 + 4096)]);
    }

    #[test]
    fn a_former_segment_moves_the_older_ones_back_and_the_oldest_one_out() {
        let mut page = vec![0; 4096];
        (1..=40).for_each(|id| note_former(&mut page, SegmentId(id)));
        let id = |n: usize| u64::from_le_bytes(page[256 + 8 * n..][..8].try_into().unwrap());
        assert_eq!((id(0), id(1), id(31), id(32)), (40, 39, 9, 0));
    }
}
