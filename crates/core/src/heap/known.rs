//! What a slot's holder knows of one size class: hints to free blocks, which can be thrown away at any time.
//!
//! The state bytes in shared memory are the truth. Only this slot takes blocks of its slices out of FREE, so a block whose
//! byte reads FREE can be taken with a plain store; and a hint that is out of date, because the block was handed out by way
//! of another hint, is seen by its byte.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossdock_layout::region::{CLASSES, STATE_FREE};

use crate::fault_point;

/// No slice, or no group.
pub(super) const NONE: u32 = u32::MAX;

/// Blocks that a thread remembers having freed, of each class.
const RECENT: usize = 64;

/// A block that was freed by this thread, in an own slice.
#[derive(Clone, Copy)]
struct Recent {
    offset: u64,
    state: *const AtomicU8,
}

/// What a slot's holder knows of one size class.
#[repr(align(64))]
pub(super) struct LocalClass {
    /// How many of `recent` count.
    count: usize,
    /// Blocks of the current group that were free when looked at, as bits.
    pub mask: u64,
    /// Offset of the current group's first block.
    pub first: u64,
    /// State byte of the current group's first block; null without a current slice.
    pub states: *const AtomicU8,
    /// The current slice, or [`NONE`].
    pub slice: u32,
    /// The current group of 64 blocks in it, or [`NONE`] before the first.
    pub group: u32,
    /// Other slices of this slot that have, or had, free blocks. All are `Available::Active`.
    pub partial: Vec<u32>,
    /// The blocks freed last: used again first, while they are warm.
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

    /// Remembers a block that was just freed, while there is room.
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

    /// Forgets all hints to blocks. Needed before a slice is given away: a hint into it would read another block's state.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.count = 0;
    }

    /// A block that is known to be free. Its offset stands in `cell` before it is taken, so that a death in between, or
    /// before the caller has made something of it, can be put right. `state` is USED or NAMED.
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

/// Takes a block of an own slice, if it is free.
#[inline(always)]
fn take_block(offset: u64, byte: &AtomicU8, cell: &AtomicU64, state: u8) -> bool {
    if byte.load(Ordering::Relaxed) != STATE_FREE {
        return false;
    }
    // Stores become visible, in program order, to a member that learns of our death, and that is what healing relies on; Release
    // keeps the compiler to it.
    cell.store(offset, Ordering::Release);
    fault_point!("heap.allocate.noted");
    byte.store(state, Ordering::Release);
    fault_point!("heap.allocate.taken");
    true
}
