//! The hints that a slot's holder has about the free blocks of one size class. Hints can be thrown away at any time.
//!
//! The state bytes in shared memory are the truth. Only the slot's holder changes blocks of its slices from FREE to
//! another state, so it can take a block whose byte reads FREE with a plain store. A hint is out of date if its block
//! was handed out through another hint; the block's byte shows that.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossdock_layout::region::{CLASSES, STATE_FREE};

use crate::fault_point;

/// Stands for no slice and for no group.
pub(super) const NONE: u32 = u32::MAX;

/// How many freed blocks a thread remembers per class.
const RECENT: usize = 64;

/// A block of a slice of this slot that this thread freed.
#[derive(Clone, Copy)]
struct Recent {
    offset: u64,
    state: *const AtomicU8,
}

/// What a slot's holder knows of one size class.
#[repr(align(64))]
pub(super) struct LocalClass {
    /// The number of entries of `recent` that are valid.
    count: usize,
    /// One bit for each block of the current group: set if the block was free when this thread looked.
    pub mask: u64,
    /// Offset of the current group's first block.
    pub first: u64,
    /// The state byte of the current group's first block; null if there is no current slice.
    pub states: *const AtomicU8,
    /// The current slice, or [`NONE`].
    pub slice: u32,
    /// The current group of 64 blocks in it, or [`NONE`] before the first.
    pub group: u32,
    /// Other slices of this slot that have free blocks, or had some. All are `Available::Active`.
    pub partial: Vec<u32>,
    /// The blocks that were freed last. They are used again first, while they are in the caches.
    recent: [Recent; RECENT],
}

impl LocalClass {
    pub(super) fn new() -> Self {
        let none = std::ptr::null();
        Self {
            count: 0,
            mask: 0,
            first: 0,
            states: none,
            slice: NONE,
            group: NONE,
            partial: Vec::new(),
            recent: [Recent { offset: 0, state: none }; RECENT],
        }
    }

    /// Remembers a block that was just freed, if there is room for the hint.
    #[inline(always)]
    pub(super) fn remember(&mut self, offset: u64, state: *const AtomicU8) {
        if self.count < RECENT {
            self.recent[self.count] = Recent { offset, state };
            self.count += 1;
        }
    }

    /// No current slice.
    pub(super) fn clear(&mut self) {
        self.mask = 0;
        self.states = std::ptr::null();
        self.slice = NONE;
    }

    /// Forgets all hints to blocks. This is needed before a slice is given away, because a hint into that slice would
    /// then read the state of another owner's block.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.count = 0;
    }

    /// Takes a block that a hint says is free. Its offset is stored in `cell` before the block is taken. If this member
    /// dies after that, before the caller has recorded the block, a healer frees it. `state` is USED or NAMED.
    #[inline(always)]
    pub(super) fn take(&mut self, class: usize, cell: &AtomicU64, state: u8) -> Option<u64> {
        while self.count > 0 {
            self.count -= 1;
            let recent = self.recent[self.count % RECENT];
            // SAFETY: a state byte in the mapping, of a slice that was this slot's when it was noted, and still is.
            if take_block(recent.offset, unsafe { &*recent.state }, cell, state) {
                return Some(recent.offset);
            }
        }
        while self.mask != 0 {
            let bit = self.mask.trailing_zeros();
            self.mask &= self.mask - 1;
            let offset = self.first + u64::from(bit) * u64::from(CLASSES[class].size);
            // SAFETY: `refill` set `states` to the current group's bytes in the mapping, and the mask has bits only for
            // blocks that the class has in it, fewer than 64 from there.
            if take_block(offset, unsafe { &*self.states.add(bit as usize) }, cell, state) {
                return Some(offset);
            }
        }
        None
    }
}

/// Takes a block of a slice of this slot, if the block is free.
#[inline(always)]
fn take_block(offset: u64, byte: &AtomicU8, cell: &AtomicU64, state: u8) -> bool {
    if byte.load(Ordering::Relaxed) != STATE_FREE {
        return false;
    }
    // A member that learns of our death sees our stores in program order, and healing relies on that. Release keeps the
    // compiler from reordering them.
    cell.store(offset, Ordering::Release);
    fault_point!("heap.allocate.noted");
    byte.store(state, Ordering::Release);
    fault_point!("heap.allocate.taken");
    true
}
