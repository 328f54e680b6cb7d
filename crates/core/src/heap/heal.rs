//! What dead members left half done, finished or taken back. Under the region's lock; may itself be killed and begun
//! again at any point.
//!
//! Order: first the derived parts (bitmap, chains), if their holder died while changing them; then, for each slot of a
//! dead member, its records; then the directory entries of dead members, in the name of those same slots; last, the
//! slots become vacant. Everything that is done for a slot is done with its own records, so that a killed healer leaves
//! what the next one understands.

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
    /// Slots of dead members that were put in order and are vacant now.
    pub slots: u64,
    /// Operations that were finished or taken back.
    pub operations: u64,
    /// Objects whose constructor or remover had died.
    pub objects: u64,
}

impl Region {
    /// Finishes or takes back what dead members left half done, and gives slices that are no longer used back to the
    /// pool. Runs by itself where a dead member is in the way, or space is short.
    pub fn heal(&self) -> Result<HealReport> {
        self.check_use()?;
        let guard = self.lock()?;
        let report = self.heal_locked(&guard);
        self.trim_vacant(&guard);
        Ok(report)
    }

    /// Makes all that is derived anew.
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
            // A death between freeing a block and telling its owner: let every owner look.
            for index in 0..self.memory.slots() {
                if let Some(slot) = self.memory.slot(index) {
                    slot.rescan.store(1, Ordering::Release);
                }
            }
        }
        report
    }

    /// Finishes or takes back what the records of a slot say. Its holder is dead, or leaving, or this caller.
    pub(super) fn mend_slot(&self, guard: &Guard<'_>, index: u64) -> u64 {
        let Some(slot) = self.memory.slot(index) else { return 0 };
        let by = index as u16;
        let mut count = 0;
        count += u64::from(self.take_back(&slot.allocating, &slot.retiring, slot, by, guard));
        for record in &slot.operations {
            let kind = record.kind.load(Ordering::Acquire);
            if kind == OP_PREPARED {
                // As a replacement that writes nothing and frees the new block.
                let block = record.new_block.load(Ordering::Relaxed) & !PHASE_MASK;
                record.retiring.store(if block == 0 { 0 } else { block | PHASE_BEGUN }, Ordering::Relaxed);
                record.count.store(0, Ordering::Relaxed);
                record.kind.store(OP_REPLACING, Ordering::Release);
                fault_point!("heal.converted");
            }
            if kind != OP_NONE {
                count += 1;
                // It has the lock, so it cannot fail.
                let _ = self.finish_replace(record, slot, by, Some(guard));
            }
        }
        count + u64::from(self.orphan(slot, by))
    }

    /// Frees the block that was being handed out, if it had been taken.
    fn take_back(&self, from: &AtomicU64, cell: &AtomicU64, slot: &Slot, by: u16, guard: &Guard<'_>) -> bool {
        let block = from.load(Ordering::Acquire) & !PHASE_MASK;
        if block != 0 {
            if cell.load(Ordering::Relaxed) & !PHASE_MASK != block {
                cell.store(block | PHASE_BEGUN, Ordering::Release);
            }
            // A healer that is killed here leaves both; the next one sees that they are the same.
            fault_point!("heal.noted");
            from.store(0, Ordering::Release);
        }
        let pending = cell.load(Ordering::Acquire) != 0;
        if pending {
            let _ = self.retire(cell, slot, by, Some(guard));
        }
        pending
    }

    /// A notice that was on its way: its owner is to look for the slice itself.
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
