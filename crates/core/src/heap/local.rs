//! A heap slot as the thread that holds it sees it, and how a thread frees blocks. A block of the slot's own slices
//! is freed on a fast path. If a block lies in another slot's slice, the thread frees it and notifies that slot.

use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::Status;
use crossdock_layout::region::{
    Available, CLASSES, HeapSlot, SLICE, STATE_DYING, STATE_FREE, STATE_NAMED, STATE_USED, SliceWord,
};

use super::hints::ClassHints;
use super::memory::Block;
use crate::region::Region;
use crate::{Error, Result, fault_point};

/// A heap slot as the thread that holds it sees it: the slot's number, its address in shared memory, and the thread's
/// hints.
pub(crate) struct LocalSlot {
    pub(super) index: u16,
    shared: *const HeapSlot,
    pub(super) classes: [ClassHints; CLASSES.len()],
}

// SAFETY: all pointers in a `LocalSlot` lead to atomics in the region's mapping, and only one thread at a time uses a
// `LocalSlot`.
unsafe impl Send for LocalSlot {}

impl LocalSlot {
    pub(super) fn new(index: u16, shared: &HeapSlot) -> Self {
        let classes = std::array::from_fn(|_| ClassHints::new());
        Self { index, shared, classes }
    }

    /// The number of the slot in its region.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// The slot in shared memory. It exists as long as the region.
    #[inline]
    pub(crate) fn shared<'region>(&self, region: &'region Region) -> &'region HeapSlot {
        let same = |slot: &HeapSlot| std::ptr::eq(slot, self.shared);
        debug_assert!(region.memory.slot(self.index.into()).is_some_and(same), "a slot of another region");
        // SAFETY: the pointer was made from a reference into this region's mapping, which lives as long as the
        // region.
        unsafe { &*self.shared }
    }

    /// Takes a block of this class, if this thread has a hint that names a free one. If this member dies before the
    /// call returns, another member frees the block when it heals the region.
    #[inline(always)]
    pub(super) fn take_at_hand(&mut self, region: &Region, class: usize) -> Option<u64> {
        let cell = &self.shared(region).allocating;
        let offset = self.classes[class].take(class, cell, STATE_USED)?;
        fault_point!("heap.allocate.leaving");
        cell.store(0, Ordering::Release);
        Some(offset)
    }
}

impl Region {
    /// Takes a small block of `class`; the arguments are those of `ClassHints::take`.
    pub(super) fn take_small(&self, local: &mut LocalSlot, class: usize, cell: &AtomicU64, state: u8) -> Result<u64> {
        loop {
            if let Some(offset) = local.classes[class].take(class, cell, state) {
                return Ok(offset);
            }
            self.refill(local, class)?;
        }
    }

    /// Frees a block in a slice of this slot. For any other offset, does nothing and gives `false`.
    ///
    /// Only this thread takes blocks of this slot's slices, so a load and a store are enough. If another member frees
    /// the same block at the same moment by mistake, the resulting state is the same.
    #[inline(always)]
    pub(super) fn free_own(&self, local: &mut LocalSlot, offset: u64) -> bool {
        let relative = offset.wrapping_sub(self.memory.geometry().data_at);
        let (slice, within) = (relative / SLICE, relative % SLICE);
        let Some((head, states)) = self.memory.head_and_states(slice) else { return false };
        let word = SliceWord(head.word.load(Ordering::Acquire));
        let class = word.class();
        if !word.is_small() || word.owner() != local.index || class >= CLASSES.len() {
            return false;
        }
        // No block begins at this offset, because it lies behind the last block of the slice.
        let Some(block) = CLASSES[class].block_at(within) else { return false };
        let Some(state) = states.get(block as usize) else { return false };
        if state.load(Ordering::Relaxed) != STATE_USED {
            return false;
        }
        state.store(STATE_FREE, Ordering::Release);
        fault_point!("heap.free.local");
        let known = &mut local.classes[class];
        known.remember(offset, state);
        if word.available() == Available::Full {
            self.readmit(local, slice, class);
        }
        true
    }

    /// Frees a block that lies in another slot's slice, or a large block. If the block cannot be freed, the error
    /// says why.
    pub(super) fn free_elsewhere(&self, local: &LocalSlot, offset: u64) -> Result<()> {
        let Some(Block::Small { slice, block, .. }) = self.memory.block_at(offset) else {
            return self.free_large(offset);
        };
        let Some(state) = self.memory.state(slice, block) else { return Err(self.not_a_block(offset)) };
        // The ordering is SeqCst, because this exchange must not be reordered with the load of `available` in `notify`
        // (see `leave_slice`).
        match state.compare_exchange(STATE_USED, STATE_FREE, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                fault_point!("heap.free.remote");
                self.notify(slice, local.shared(self), local.index);
                Ok(())
            }
            Err(seen) => Err(self.not_freed(offset, seen)),
        }
    }

    /// Adds a slice of this slot to the list of slices with free blocks. The slice was full, and one of its blocks was
    /// just freed.
    #[cold]
    #[inline(never)]
    fn readmit(&self, local: &mut LocalSlot, slice: u64, class: usize) {
        let Some(head) = self.memory.head(slice) else { return };
        let word = SliceWord(head.word.load(Ordering::Acquire));
        let mine = word.is_small() && word.owner() == local.index && word.available() == Available::Full;
        let active = word.with(Available::Active, 0).0;
        // If the exchange fails, another member has just queued the slice for this slot. In this case, this slot's
        // holder finds the slice on the slot's stack.
        if mine && head.word.compare_exchange(word.0, active, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            local.classes[class].partial.push(slice as u32);
        }
    }

    /// If a slice is marked as full, tells the slot that owns the slice that the slice has a free block now. While this
    /// call works, the action is recorded in `slot`, the heap slot of the thread that freed the block. `by` is the
    /// number of `slot`.
    pub(super) fn notify(&self, slice: u64, slot: &HeapSlot, by: u16) {
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
            // While a slice is queued, it is neither released nor given to another slot. So the owner that `word` names
            // is still right.
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

    /// Makes the error for an offset that is not the start of a block.
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
