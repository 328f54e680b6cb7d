//! One thread's hints about the free blocks of one size class, in a heap slot that this thread holds. Forgetting hints
//! at any time does no harm.
//!
//! Only the state bytes in shared memory decide whether a block is free. Only the slot's holder changes blocks of the
//! slot's slices from FREE to another state. So if a block's state byte is FREE, the holder takes the block by a plain
//! store. A hint is outdated if its block was already taken through another hint; the block's state byte then is not
//! FREE.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossdock_layout::region::{CLASSES, STATE_FREE};

use crate::fault_point;

/// The value that means "none", for the number of a slice, and for the number of a group (64 blocks of a slice whose
/// state bytes are read together).
pub(super) const NONE: u32 = u32::MAX;

/// The number of freed blocks that a thread remembers for each size class.
const RECENT: usize = 64;

/// A block that this thread freed. The block's slice belongs to this thread's slot.
#[derive(Clone, Copy)]
struct RecentBlock {
    offset: u64,
    state: *const AtomicU8,
}

/// One thread's hints about free blocks of one size class. The thread holds the heap slot that owns these blocks.
#[repr(align(64))]
pub(super) struct ClassHints {
    /// The number of entries of `recent` that are valid.
    count: usize,
    /// One bit for each block of the current group. A bit is set if its block was free when this thread last read the
    /// state bytes.
    pub mask: u64,
    /// Offset of the current group's first block.
    pub first: u64,
    /// The state byte of the current group's first block; null if there is no current slice.
    pub states: *const AtomicU8,
    /// The current slice, or [`NONE`].
    pub slice: u32,
    /// The current group of 64 blocks in the current slice, or [`NONE`] if no group has been chosen yet.
    pub group: u32,
    /// The slices of this slot, except the current one, that had free blocks when this thread last looked. The heads of
    /// all these slices have the state `Available::Active`.
    pub partial: Vec<u32>,
    /// The blocks that were freed last. They are used again first, because they are still in the CPU's caches.
    recent: [RecentBlock; RECENT],
}

impl ClassHints {
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
            recent: [RecentBlock { offset: 0, state: none }; RECENT],
        }
    }

    /// Remembers a block that was just freed. If the list of remembered blocks is full, does nothing.
    #[inline(always)]
    pub(super) fn remember(&mut self, offset: u64, state: *const AtomicU8) {
        if self.count < RECENT {
            self.recent[self.count] = RecentBlock { offset, state };
            self.count += 1;
        }
    }

    /// Forgets the current slice and its group.
    pub(super) fn clear(&mut self) {
        self.mask = 0;
        self.states = std::ptr::null();
        self.slice = NONE;
    }

    /// Forgets all hints about blocks. The thread must do this before it returns a slice to the pool of free slices,
    /// because the blocks of that slice may then get another owner.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.count = 0;
    }

    /// Takes a block that is free according to a hint. First the block's offset is stored in `cell`. So if this
    /// member dies before the caller has recorded the block, another member frees the block when it heals the region.
    /// `state` is the block's new state, USED or NAMED.
    #[inline(always)]
    pub(super) fn take(&mut self, class: usize, cell: &AtomicU64, state: u8) -> Option<u64> {
        while self.count > 0 {
            self.count -= 1;
            let recent = self.recent[self.count % RECENT];
            // SAFETY: `recent.state` points to a state byte in the mapping. The byte's slice has belonged to this slot
            // since the hint was noted.
            if take_block(recent.offset, unsafe { &*recent.state }, cell, state) {
                return Some(recent.offset);
            }
        }
        while self.mask != 0 {
            let bit = self.mask.trailing_zeros();
            self.mask &= self.mask - 1;
            let offset = self.first + u64::from(bit) * u64::from(CLASSES[class].size);
            // SAFETY: `refill` set `states` to the current group's bytes in the mapping, and the mask has bits only
            // for blocks of the group, which are at most 64.
            if take_block(offset, unsafe { &*self.states.add(bit as usize) }, cell, state) {
                return Some(offset);
            }
        }
        None
    }
}

/// Takes a block of one of this slot's slices, if the block's state byte says that it is free. Stores the offset in
/// `cell` first.
#[inline(always)]
fn take_block(offset: u64, byte: &AtomicU8, cell: &AtomicU64, state: u8) -> bool {
    if byte.load(Ordering::Relaxed) != STATE_FREE {
        return false;
    }
    // Healing relies on the order of these two stores: a member that learns of this member's death must see them in
    // program order. Release keeps the compiler from reordering them.
    cell.store(offset, Ordering::Release);
    fault_point!("heap.allocate.noted");
    byte.store(state, Ordering::Release);
    fault_point!("heap.allocate.taken");
    true
}
