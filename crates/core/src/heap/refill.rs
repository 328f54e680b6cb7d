//! How a thread finds its next free blocks. It tries these sources in turn, the cheapest first: the rest of the
//! current slice, other slices of the thread's slot, slices of the slot in which other members freed blocks, and a
//! fresh slice.

use std::sync::atomic::{Ordering, fence};

use crossdock_layout::Wild;
use crossdock_layout::region::{Available, CLASSES, SliceWord};

use super::hints::NONE;
use super::local::LocalSlot;
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Finds a group of blocks of `class` with at least one free block, and makes it the thread's current group.
    #[cold]
    pub(super) fn refill(&self, local: &mut LocalSlot, class: usize) -> Result<()> {
        // Each pass of this loop uses up a slice or takes a new one. The limit matters only if another process has
        // overwritten the memory.
        for _ in 0..=2 * self.memory.geometry().slices + 16 {
            if local.classes[class].slice != NONE {
                let slice = u64::from(local.classes[class].slice);
                let from = u64::from(local.classes[class].group.wrapping_add(1));
                if let Some((group, mask)) = self.memory.next_free(slice, from, class) {
                    self.set_group(local, class, slice, group, mask);
                    return Ok(());
                }
                if self.leave_slice(local, class, slice) {
                    return Ok(());
                }
            }
            if let Some(slice) = self.next_partial(local, class) {
                self.enter_slice(local, class, slice);
                continue;
            }
            if local.shared(self).rescan.load(Ordering::Acquire) != 0 {
                self.rescan(local);
            } else if self.collect(local) == 0 {
                let slice = self.fresh_slice(local, class)?;
                self.enter_slice(local, class, slice);
            }
        }
        Err(self.corrupt("its heap has more slices without blocks than slices"))
    }

    /// Makes a slice the thread's current slice of this class. The current group (64 blocks of the slice) is chosen
    /// later.
    fn enter_slice(&self, local: &mut LocalSlot, class: usize, slice: u64) {
        let known = &mut local.classes[class];
        known.clear();
        known.slice = slice as u32;
        known.group = NONE; // so that the next group is the first one
    }

    fn set_group(&self, local: &mut LocalSlot, class: usize, slice: u64, group: u64, mask: u64) {
        let Some(states) = self.memory.state(slice, group * 64) else { return };
        let known = &mut local.classes[class];
        known.slice = slice as u32;
        known.group = group as u32;
        known.first = self.memory.geometry().slice_at(slice) + group * 64 * u64::from(CLASSES[class].size);
        known.states = states;
        known.mask = mask;
    }

    /// Leaves the current slice, which has no free block after the current group, and marks the slice as full. If
    /// blocks before the current group have been freed in the meantime, the slice stays the current one, and the result
    /// is `true`.
    ///
    /// The order matters. This member first marks the slice as full and then looks for free blocks. A member that frees
    /// a block first frees the block and then looks for the mark. Both sides are sequentially consistent, so at least
    /// one of the two notices the other.
    fn leave_slice(&self, local: &mut LocalSlot, class: usize, slice: u64) -> bool {
        local.classes[class].clear();
        let Some(head) = self.memory.head(slice) else { return false };
        let word = SliceWord(head.word.load(Ordering::Acquire));
        if !word.is_small() || word.owner() != local.index || word.class() != class {
            return false;
        }
        let full = word.with(Available::Full, 0).0;
        if head.word.compare_exchange(word.0, full, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        fault_point!("heap.refill.full");
        fence(Ordering::SeqCst);
        let Some((group, mask)) = self.memory.next_free(slice, 0, class) else { return false };
        let active = word.with(Available::Active, 0).0;
        if head.word.compare_exchange(full, active, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false; // a member that freed a block has queued the slice, so it is found on the stack
        }
        self.set_group(local, class, slice, group, mask);
        true
    }

    /// Finds the next slice of this slot and class that may have free blocks. The slot keeps one slice in which no
    /// block is in use; further such slices return to the pool of free slices.
    fn next_partial(&self, local: &mut LocalSlot, class: usize) -> Option<u64> {
        loop {
            let slice = u64::from(local.classes[class].partial.pop()?);
            let last = local.classes[class].partial.is_empty();
            if last || !self.memory.is_empty(slice, class) {
                return Some(slice);
            }
            local.classes[class].forget();
            if !self.release_slice(local.index, slice, class) {
                return Some(slice);
            }
        }
    }

    /// Empties this slot's stack, which has the slices in which other members freed blocks. Adds these slices to the
    /// thread's list of slices with free blocks, and returns their number.
    pub(super) fn collect(&self, local: &mut LocalSlot) -> usize {
        let mut count = 0;
        self.pop_available(local.shared(self), local.index, |slice, class| {
            local.classes[class].partial.push(slice as u32);
            count += 1;
        });
        count
    }

    /// Takes all slices off a slot's stack and marks them as `Active`. Calls `each` with each slice and its class.
    pub(super) fn pop_available(
        &self,
        slot: &crossdock_layout::region::HeapSlot,
        owner: u16,
        mut each: impl FnMut(u64, usize),
    ) {
        let mut top = slot.available.load(Ordering::Acquire);
        loop {
            if top as u32 == 0 {
                return;
            }
            let empty = (top >> 32).wrapping_add(1) << 32;
            match slot.available.compare_exchange_weak(top, empty, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(seen) => top = seen,
            }
        }
        fault_point!("heap.collect.popped");
        let slices = self.memory.geometry().slices;
        let mut next = Wild::new(top as u32);
        for _ in 0..slices {
            let Some(slice) = next.linked(slices) else { return };
            let Some(head) = self.memory.head(slice) else { return };
            next = head.next.load(Ordering::Acquire);
            loop {
                let word = SliceWord(head.word.load(Ordering::Acquire));
                let listed = matches!(word.available(), Available::Queued | Available::Orphan);
                if !word.is_small() || word.owner() != owner || word.class() >= CLASSES.len() || !listed {
                    break;
                }
                let active = word.with(Available::Active, 0).0;
                if head.word.compare_exchange(word.0, active, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    each(slice, word.class());
                    break;
                }
            }
        }
    }
}
