//! Healing: finishes or takes back what dead members left half done. The healer holds the region's lock. It may itself
//! be killed at any point; the next healer then begins again.
//!
//! Healing has an order. First it rebuilds the derived parts (bitmap, chains), if a member died while it changed them.
//! Then it treats the records of each slot of a dead member, and then the directory entries of dead members, recorded
//! in those same slots. Last, the slots become vacant. Each step for a slot uses that slot's own records, so that the
//! next healer understands what a killed healer left.

use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::MemberId;
use crossdock_layout::region::{
    Available, OP_NONE, OP_PREPARED, OP_REPLACING, PHASE_BEGUN, PHASE_MASK, SliceWord, Slot,
};

use super::lock::Guard;
use crate::region::Region;
use crate::{Result, fault_point};

/// What `heal` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HealReport {
    /// Number of slots of dead members that were put in order and are vacant now.
    pub slots: u64,
    /// Number of operations that were finished or taken back.
    pub operations: u64,
    /// Number of objects whose constructor or remover had died.
    pub objects: u64,
}

impl Region {
    /// Finishes or takes back what dead members left half done, and gives slices that are no longer used back to the
    /// pool. The library calls this itself when a dead member is in the way or when space is short.
    pub fn heal(&self) -> Result<HealReport> {
        self.check_use()?;
        let guard = self.lock()?;
        let report = self.heal_locked(&guard);
        self.trim_vacant(&guard);
        Ok(report)
    }

    /// Rebuilds everything that is derived.
    pub(super) fn rebuild(&self, guard: &Guard<'_>) {
        self.rebuild_pool(guard);
        fault_point!("heal.rebuilt");
        self.rebuild_directory(guard);
    }

    pub(crate) fn heal_locked(&self, guard: &Guard<'_>) -> HealReport {
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
        for &index in &dead {
            self.trim_slot(guard, index as u16);
            if let Some(slot) = self.memory.slot(index) {
                fault_point!("heal.trimmed");
                slot.holder.store(0, Ordering::Release);
            }
        }
        report.slots = dead.len() as u64;
        if report.slots > 0 {
            // A member may have died after it freed a block and before it told the block's owner. So every owner has to
            // look.
            for index in 0..self.memory.slots() {
                if let Some(slot) = self.memory.slot(index) {
                    slot.rescan.store(1, Ordering::Release);
                }
            }
        }
        report
    }

    /// Finishes or takes back what the records of a slot say. The slot's holder is dead, is leaving, or is the caller.
    pub(super) fn mend_slot(&self, guard: &Guard<'_>, index: u64) -> u64 {
        let Some(slot) = self.memory.slot(index) else { return 0 };
        let by = index as u16;
        let mut count = 0;
        count += u64::from(self.take_back(&slot.allocating, &slot.retiring, slot, by, guard));
        for record in &slot.operations {
            let kind = record.kind.load(Ordering::Acquire);
            if kind == OP_PREPARED {
                // The record becomes a replacement that writes no words and frees the new block.
                let block = record.new_block.load(Ordering::Relaxed) & !PHASE_MASK;
                record.retiring.store(if block == 0 { 0 } else { block | PHASE_BEGUN }, Ordering::Relaxed);
                record.count.store(0, Ordering::Relaxed);
                record.kind.store(OP_REPLACING, Ordering::Release);
                fault_point!("heal.converted");
            }
            if kind != OP_NONE {
                count += 1;
                // This cannot fail, because the caller holds the lock.
                let _ = self.finish_replace(record, slot, by, Some(guard));
            }
        }
        count + u64::from(self.orphan(slot, by))
    }

    /// Frees the block that the slot's holder was allocating, if the block had been taken.
    fn take_back(&self, from: &AtomicU64, cell: &AtomicU64, slot: &Slot, by: u16, guard: &Guard<'_>) -> bool {
        let block = from.load(Ordering::Acquire) & !PHASE_MASK;
        if block != 0 {
            if cell.load(Ordering::Relaxed) & !PHASE_MASK != block {
                cell.store(block | PHASE_BEGUN, Ordering::Release);
            }
            // If the healer is killed here, both words name the block; the next healer sees that they are equal.
            fault_point!("heal.noted");
            from.store(0, Ordering::Release);
        }
        let pending = cell.load(Ordering::Acquire) != 0;
        if pending {
            let _ = self.retire(cell, slot, by, Some(guard));
        }
        pending
    }

    /// The dead member was about to tell the slice's owner about a free block. Now the owner has to look for the slice
    /// itself.
    fn orphan(&self, slot: &Slot, by: u16) -> bool {
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
