//! What a thread knows about its heap slot, and the two fast paths.
//!
//! All of it is a hint that can be thrown away: the state bytes in shared memory are the truth. A set bit of `mask` says
//! that the block's state byte was FREE when looked at; it still is, because only this slot takes blocks of its slices
//! out of FREE.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossdock_layout::Status;
use crossdock_layout::region::{Available, CLASSES, STATE_DYING, STATE_FREE, STATE_NAMED, STATE_USED, SliceWord, Slot};

use super::memory::Place;
use crate::region::Region;
use crate::{Error, Result, fault_point};

/// No slice.
pub(super) const NONE: u64 = u64::MAX;

/// What a slot's holder knows of one size class.
pub(super) struct LocalClass {
    /// Blocks of the current group that are free, as bits.
    pub mask: u64,
    /// Offset of the current group's first block.
    pub first: u64,
    /// State byte of the current group's first block; null without a current slice.
    pub states: *const AtomicU8,
    /// The current slice, or [`NONE`].
    pub slice: u64,
    /// The current group of 64 blocks in it.
    pub group: u64,
    /// Other slices of this slot that have, or had, free blocks. All are `Available::Active`.
    pub partial: Vec<u32>,
}

impl LocalClass {
    pub(super) fn clear(&mut self) {
        self.mask = 0;
        self.states = std::ptr::null();
        self.slice = NONE;
    }
}

/// A heap slot as its holder sees it.
pub(crate) struct LocalSlot {
    pub(super) index: u16,
    shared: *const Slot,
    pub(super) classes: [LocalClass; CLASSES.len()],
}

// SAFETY: the pointers point into the region's mapping, at atomics; a LocalSlot is used by one thread at a time.
unsafe impl Send for LocalSlot {}

impl LocalSlot {
    pub(super) fn new(index: u16, shared: &Slot) -> Self {
        let classes = std::array::from_fn(|_| LocalClass {
            mask: 0,
            first: 0,
            states: std::ptr::null(),
            slice: NONE,
            group: 0,
            partial: Vec::new(),
        });
        Self { index, shared, classes }
    }

    /// Its number.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// The slot in shared memory.
    #[inline]
    pub(crate) fn shared<'a>(&self) -> &'a Slot {
        // SAFETY: made from a reference into the region's mapping. A LocalSlot lives in its region and is only used
        // through it, so the mapping is there.
        unsafe { &*self.shared }
    }
}

impl Region {
    /// A small block of `class`. Its offset stands in `cell` before the block is taken, so that a death in between, or
    /// before the caller has made something of it, can be put right. `state` is USED or NAMED.
    #[inline]
    pub(super) fn take_small(&self, local: &mut LocalSlot, class: usize, cell: &AtomicU64, state: u8) -> Result<u64> {
        if local.classes[class].mask == 0 {
            self.refill(local, class)?;
        }
        let known = &mut local.classes[class];
        let bit = known.mask.trailing_zeros();
        known.mask &= known.mask - 1;
        let offset = known.first + u64::from(bit) * u64::from(CLASSES[class].size);
        // Stores become visible to whoever learns of our death in program order, and that is what healing relies on;
        // Release keeps the compiler to it.
        cell.store(offset, Ordering::Release);
        fault_point!("heap.allocate.noted");
        // SAFETY: `refill` set `states` to the current group's bytes in the mapping, and `mask` has bits only for blocks
        // that the class has in it, fewer than 64 from there.
        unsafe { &*known.states.add(bit as usize) }.store(state, Ordering::Release);
        fault_point!("heap.allocate.taken");
        Ok(offset)
    }

    /// Frees a block that `deallocate` was given.
    #[inline]
    pub(super) fn free_block(&self, local: &mut LocalSlot, offset: u64) -> Result<()> {
        let Some(Place::Small { slice, block, class, word }) = self.memory.place(offset) else {
            return self.free_large(offset);
        };
        let Some(state) = self.memory.state(slice, block) else { return Err(self.not_a_block(offset)) };
        if word.owner() != local.index {
            return self.free_remote(local, offset, slice, state);
        }
        // Only this thread takes blocks of this slice, so a load and a store do; a second free of the same block by
        // somebody else at this very moment ends in the same state.
        let seen = state.load(Ordering::Relaxed);
        if seen != STATE_USED {
            return Err(self.not_freed(offset, seen));
        }
        state.store(STATE_FREE, Ordering::Release);
        fault_point!("heap.free.local");
        let known = &mut local.classes[class];
        if known.slice == slice {
            if known.group == block / 64 {
                known.mask |= 1 << (block % 64);
            }
        } else if word.available() == Available::Full {
            self.readmit(local, slice, class);
        }
        Ok(())
    }

    /// An own slice that was full has a free block again.
    #[cold]
    fn readmit(&self, local: &mut LocalSlot, slice: u64, class: usize) {
        let Some(head) = self.memory.head(slice) else { return };
        let word = SliceWord(head.word.load(Ordering::Acquire));
        let mine = word.is_small() && word.owner() == local.index && word.available() == Available::Full;
        let active = word.with(Available::Active, 0).0;
        // If this fails somebody else has just queued it, and it comes back that way.
        if mine && head.word.compare_exchange(word.0, active, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            local.classes[class].partial.push(slice as u32);
        }
    }

    fn free_remote(&self, local: &LocalSlot, offset: u64, slice: u64, state: &AtomicU8) -> Result<()> {
        // SeqCst: between this and the load of `available` in `notify`, nothing may be reordered (see `refill`).
        match state.compare_exchange(STATE_USED, STATE_FREE, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                fault_point!("heap.free.remote");
                self.notify(slice, local.shared(), local.index);
                Ok(())
            }
            Err(seen) => Err(self.not_freed(offset, seen)),
        }
    }

    /// Tells the owner of a slice that it has a free block, if the owner wants to know. `by` is in whose name, and
    /// `slot` that one's record.
    pub(super) fn notify(&self, slice: u64, slot: &Slot, by: u16) {
        let Some(head) = self.memory.head(slice) else { return };
        let word = SliceWord(head.word.load(Ordering::SeqCst));
        if !word.is_small() || word.available() != Available::Full {
            return;
        }
        slot.pushing.store(slice + 1, Ordering::Release);
        fault_point!("heap.notify.noted");
        let queued = word.with(Available::Queued, by).0;
        if head.word.compare_exchange(word.0, queued, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            fault_point!("heap.notify.queued");
            // Queued slices are neither released nor moved, so this is still the owner.
            if let Some(owner) = self.memory.slot(word.owner().into()) {
                let mut top = owner.available.load(Ordering::Acquire);
                loop {
                    head.next.store(top as u32, Ordering::Relaxed);
                    let next = (top >> 32).wrapping_add(1) << 32 | (slice + 1);
                    match owner.available.compare_exchange_weak(top, next, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => break,
                        Err(seen) => top = seen,
                    }
                }
            }
            fault_point!("heap.notify.pushed");
        }
        slot.pushing.store(0, Ordering::Release);
    }

    /// The error for an offset that is no block's start.
    #[cold]
    pub(crate) fn not_a_block(&self, offset: u64) -> Error {
        self.error(Status::BadHandle, format!("{offset:#x} is not the start of a block in use"))
    }

    #[cold]
    fn not_freed(&self, offset: u64, seen: u8) -> Error {
        match seen {
            STATE_FREE => self.error(Status::BadHandle, format!("the block at {offset:#x} is free already")),
            STATE_NAMED => {
                let text = format!("the block at {offset:#x} is a named object's; remove the object by its name");
                self.error(Status::Busy, text)
            }
            STATE_DYING.. => self.error(Status::BadHandle, format!("the block at {offset:#x} is being freed already")),
            _ => self.corrupt(format!("the state of the block at {offset:#x} is {seen}")),
        }
    }
}
