//! Counts the blocks and objects in use by reading the state bytes. No fast path maintains counters. So the counts are
//! exact only while no member allocates or frees.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{CLASSES, ENTRY_READY, SLICE, SliceKind, SliceWord};

use super::memory::Memory;
use crate::region::Region;

/// How much of a region's memory is reserved and in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// The size in bytes to which the region can grow, including its header.
    pub capacity: u64,
    /// The bytes of memory that the region has taken so far.
    pub reserved: u64,
    /// The bytes of the blocks in use. The heap rounds each block's size up.
    pub used: u64,
    /// The number of blocks in use.
    pub blocks: u64,
    /// The number of named objects that their constructors have committed.
    pub objects: u64,
    /// The number of heap slots that living members hold.
    pub slots: u64,
    /// The size in bytes of the largest block that fits without further growth.
    pub largest_free: u64,
    /// The number of slices that are in use, for small or large blocks.
    pub slices: u64,
}

impl Region {
    /// Counts the blocks, objects and slots in use.
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
                Some(SliceKind::Large | SliceKind::LargeNamed) => {
                    let run = Memory::run_within(head, committed - slice);
                    s.used += run * SLICE;
                    s.blocks += 1;
                    run
                }
                Some(SliceKind::Small) if word.class() < CLASSES.len() => {
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
