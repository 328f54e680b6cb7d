//! What is in use, counted from the state bytes: exact when no member is at work, and never kept on a hot path.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{CLASSES, ENTRY_READY, Kind, SLICE, SliceWord};

use crate::region::Region;

/// What a region holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Bytes that the region can grow to, header included.
    pub capacity: u64,
    /// Bytes of memory taken so far.
    pub reserved: u64,
    /// Bytes of blocks in use, as rounded up by the heap.
    pub used: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Named objects that are ready.
    pub objects: u64,
    /// Heap slots that living members hold.
    pub slots: u64,
    /// Bytes of the largest block that fits without further growth.
    pub largest_free: u64,
    /// Slices that are in use, for small blocks or large ones.
    pub slices: u64,
}

impl Region {
    /// Counts what is in use.
    pub fn statistics(&self) -> Statistics {
        let mut s = Statistics {
            capacity: self.capacity(),
            reserved: self.memory.header().reserved.load(Ordering::Relaxed).min(self.capacity()),
            ..Statistics::default()
        };
        let (mut slice, mut free, mut longest) = (0, 0u64, 0u64);
        let committed = self.memory.committed();
        while slice < committed {
            let Some(head) = self.memory.head(slice) else { break };
            let word = SliceWord(head.word.load(Ordering::Acquire));
            let taken = match word.kind() {
                Some(Kind::Large | Kind::LargeNamed) => {
                    let run = head.run.load(Ordering::Acquire).clamp(1, committed - slice);
                    s.used += run * SLICE;
                    s.blocks += 1;
                    run
                }
                Some(Kind::Small) if word.class() < CLASSES.len() => {
                    let blocks = self.memory.count_used(slice, word.class());
                    s.used += blocks * u64::from(CLASSES[word.class()].size);
                    s.blocks += blocks;
                    1
                }
                _ => 0,
            };
            s.slices += taken;
            free = if taken == 0 { free + 1 } else { 0 };
            longest = longest.max(free);
            slice += taken.max(1);
        }
        s.largest_free = longest * SLICE;
        let entries = (0..self.memory.entries()).filter_map(|i| self.memory.entry(i));
        s.objects = entries.filter(|e| e.state.load(Ordering::Acquire) == ENTRY_READY).count() as u64;
        let slots = (0..self.memory.slots()).filter_map(|i| self.memory.slot(i));
        s.slots = slots.filter(|slot| self.is_held(slot)).count() as u64;
        s
    }
}
