//! Healing: finishes or undoes what dead members left half done. The healing member holds the region's lock. If the
//! healing member is killed, at whatever point, the next healing member begins again.
//!
//! Healing has four steps, in this order:
//!
//! 1. If a member died while it changed derived data (the bitmap of slices, the directory's chains), these data are
//!    rebuilt.
//! 2. The operations that are recorded in each dead member's heap slot are finished or undone.
//! 3. The operations that are recorded in the directory entries of dead members are finished or undone.
//! 4. The heap slots of the dead members become vacant.
//!
//! Each action for a heap slot is recorded in the same slot. So if the healing member is killed, the next healing
//! member knows what is left to do.

use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::MemberId;
use crossdock_layout::region::{Available, HeapSlot, PHASE_BEGUN, PHASE_MASK, SliceWord};

use super::lock::LockGuard;
use crate::region::Region;
use crate::{Result, fault_point};

/// The work that `heal` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HealReport {
    /// The number of dead members' slots that were healed and are vacant now.
    pub slots: u64,
    /// The number of operations of dead members that were finished or undone.
    pub operations: u64,
    /// The number of objects that were removed because the member that was making or removing them had died.
    pub objects: u64,
}

impl Region {
    /// Finishes or undoes what dead members left half done, and returns unused slices to the pool of free slices. The
    /// library calls this function itself when it needs something that a dead member holds, or when space is short.
    pub fn heal(&self) -> Result<HealReport> {
        self.check_use()?;
        let guard = self.lock()?;
        let mut report = self.heal_locked(&guard);
        let first = guard.healed;
        drop(guard);
        report.slots += first.slots;
        report.operations += first.operations;
        report.objects += first.objects;
        // An error is ignored, because the healing is complete. If the lock cannot be taken for this call, the unused
        // slices stay with their heap slots.
        let _ = self.trim_vacant();
        Ok(report)
    }

    /// Rebuilds the bitmap of slices and the directory's indexes, which are derived from other data.
    pub(super) fn rebuild(&self, guard: &LockGuard<'_>) {
        self.rebuild_pool(guard);
        fault_point!("heal.rebuilt");
        self.rebuild_directory(guard);
    }

    pub(crate) fn heal_locked(&self, guard: &LockGuard<'_>) -> HealReport {
        let mut report = HealReport::default();
        let mut dead = Vec::new();
        for index in 0..self.memory.slots() {
            let Some(slot) = self.memory.slot(index) else { continue };
            let holder = slot.holder.load(Ordering::Acquire);
            if holder != 0 && holder != self.member.0 && self.host.liveness().is_dead(MemberId(holder)) {
                report.operations += self.mend_slot(guard, index);
                dead.push(index);
                fault_point!("heal.done");
            }
        }
        report.objects = self.heal_directory(guard);
        if !dead.is_empty() {
            let trims = |owner: u16| dead.binary_search(&owner.into()).is_ok();
            self.trim_slots(guard, 0..self.memory.committed(), trims);
        }
        report.slots = dead.len() as u64;
        if report.slots > 0 {
            // A member may have died after it freed a block, but before it notified the heap slot that owns the
            // block's slice. So the holder of each slot has to search the slot's slices for free blocks. This is noted
            // before the slots of the dead are made vacant: if this member dies then, no other member does it.
            for index in 0..self.memory.slots() {
                if let Some(slot) = self.memory.slot(index) {
                    slot.rescan.store(1, Ordering::Release);
                }
            }
        }
        for &index in &dead {
            if let Some(slot) = self.memory.slot(index) {
                fault_point!("heal.trimmed");
                slot.holder.store(0, Ordering::Release);
            }
        }
        fault_point!("heal.vacated");
        report
    }

    /// Finishes or undoes the operations that are recorded in a slot. The slot's holder is dead, or it is the caller,
    /// which is leaving the slot.
    pub(super) fn mend_slot(&self, guard: &LockGuard<'_>, index: u64) -> u64 {
        let Some(slot) = self.memory.slot(index) else { return 0 };
        let by = index as u16;
        let mut count = 0;
        count += u64::from(self.take_back(&slot.allocating, &slot.retiring, slot, by, guard));
        count += self.finish_operations(slot, by, guard);
        count + u64::from(self.orphan(slot, by))
    }

    /// If the slot's holder died while it was allocating a block, and had already taken the block, frees the block.
    fn take_back(&self, from: &AtomicU64, cell: &AtomicU64, slot: &HeapSlot, by: u16, guard: &LockGuard<'_>) -> bool {
        let block = from.load(Ordering::Acquire) & !PHASE_MASK;
        if block != 0 {
            if cell.load(Ordering::Relaxed) & !PHASE_MASK != block {
                cell.store(block | PHASE_BEGUN, Ordering::Release);
            }
            // If the healing member is killed here, both `from` and `cell` name the block. The next healing member sees
            // that they are equal, and frees the block only once.
            fault_point!("heal.noted");
            from.store(0, Ordering::Release);
        }
        let pending = cell.load(Ordering::Acquire) != 0;
        if pending {
            self.retire(cell, slot, by, Some(guard));
        }
        pending
    }

    /// Handles a slice that a dead member was about to put on the stack of the slot that owns the slice. The function
    /// asks that slot's holder to search the slot's slices.
    fn orphan(&self, slot: &HeapSlot, by: u16) -> bool {
        let Some(slice) = slot.pushing.load(Ordering::Acquire).checked_sub(1) else { return false };
        if let Some(head) = self.memory.head(slice) {
            let word = SliceWord(head.word.load(Ordering::Acquire));
            if word.is_small() && word.available() == Available::Queued && word.by() == by {
                let orphan = word.with(Available::Orphan, by).0;
                let _ = head.word.compare_exchange(word.0, orphan, Ordering::SeqCst, Ordering::Relaxed);
                if let Some(owner) = self.memory.slot(word.owner().into()) {
                    owner.rescan.store(1, Ordering::Release);
                }
            }
        }
        fault_point!("heal.orphaned");
        slot.pushing.store(0, Ordering::Release);
        true
    }
}
