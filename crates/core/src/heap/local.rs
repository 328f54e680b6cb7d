//! What a thread knows about its heap slot, and the two fast paths.
//!
//! All of it is a hint that can be thrown away: the state bytes in shared memory are the truth. Only this slot takes
//! blocks of its slices out of FREE, so a block whose byte reads FREE can be taken with a plain store; and a hint that is
//! out of date, because the block was handed out by way of another hint, is seen by its byte.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossdock_layout::Status;
use crossdock_layout::region::{
    Available, CLASSES, SLICE, STATE_DYING, STATE_FREE, STATE_NAMED, STATE_USED, SliceWord, Slot,
};

use super::memory::Place;
use crate::region::Region;
use crate::{Error, Result, fault_point};

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
    fn new() -> Self {
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

    /// No current slice.
    pub(super) fn clear(&mut self) {
        self.mask = 0;
        self.states = std::ptr::null();
        self.slice = NONE;
    }

    /// Forgets all hints to blocks. Needed before a slice is given away: a hint into it would read somebody else's state.
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
    // Stores become visible to whoever learns of our death in program order, and that is what healing relies on; Release
    // keeps the compiler to it.
    cell.store(offset, Ordering::Release);
    fault_point!("heap.allocate.noted");
    byte.store(state, Ordering::Release);
    fault_point!("heap.allocate.taken");
    true
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
        let classes = std::array::from_fn(|_| LocalClass::new());
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
    /// A small block of `class`, as `LocalClass::take`.
    pub(super) fn take_small(&self, local: &mut LocalSlot, class: usize, cell: &AtomicU64, state: u8) -> Result<u64> {
        loop {
            if let Some(offset) = local.classes[class].take(class, cell, state) {
                return Ok(offset);
            }
            self.refill(local, class)?;
        }
    }

    /// Frees a block of an own slice; `false`, and nothing was done, for all others.
    ///
    /// Only this thread takes blocks of its slices, so a load and a store do; a second free of the same block by somebody
    /// else at this very moment ends in the same state.
    #[inline(always)]
    pub(super) fn free_own(&self, local: &mut LocalSlot, offset: u64) -> bool {
        let relative = offset.wrapping_sub(self.memory.geometry().data_at);
        let (slice, within) = (relative / SLICE, relative % SLICE);
        let Some(head) = self.memory.head(slice) else { return false };
        let word = SliceWord(head.word.load(Ordering::Acquire));
        let class = word.class();
        if !word.is_small() || word.owner() != local.index || class >= CLASSES.len() {
            return false;
        }
        // A block beyond the class's last is never in use.
        let Some(block) = CLASSES[class].block_at(within) else { return false };
        let Some(state) = self.memory.state(slice, block) else { return false };
        if state.load(Ordering::Relaxed) != STATE_USED {
            return false;
        }
        state.store(STATE_FREE, Ordering::Release);
        fault_point!("heap.free.local");
        let known = &mut local.classes[class];
        if known.count < RECENT {
            known.recent[known.count] = Recent { offset, state };
            known.count += 1;
        }
        if word.available() == Available::Full {
            self.readmit(local, slice, class);
        }
        true
    }

    /// Frees a block of another slot's slice, or a large one, or says why not.
    pub(super) fn free_elsewhere(&self, local: &LocalSlot, offset: u64) -> Result<()> {
        let Some(Place::Small { slice, block, .. }) = self.memory.place(offset) else {
            return self.free_large(offset);
        };
        let Some(state) = self.memory.state(slice, block) else { return Err(self.not_a_block(offset)) };
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

    /// An own slice that was full has a free block again.
    #[cold]
    #[inline(never)]
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
