//! How a member takes and leaves heap slots. A slot keeps its slices when its holder leaves or dies, and its next
//! holder uses them.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{Available, HeapSlot, PAGE};
use crossdock_layout::{MemberId, Status};

use super::local::LocalSlot;
use super::lock::LockGuard;
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Takes a vacant slot, with the slices that the slot owns.
    pub(super) fn claim_slot(&self) -> Result<LocalSlot> {
        let guard = self.lock()?;
        let index = match self.vacant_slot(&guard)? {
            Some(index) => index,
            None if self.heal_locked(&guard).slots > 0 => self.vacant_slot(&guard)?.unwrap_or(u64::MAX),
            None => u64::MAX,
        };
        let Some(slot) = self.memory.slot(index) else {
            let all = self.memory.geometry().slots;
            let text = format!("all {all} heap slots are taken, one by each thread that allocates; make it larger");
            return Err(self.error(Status::Busy, text));
        };
        slot.holder.store(self.member.0, Ordering::Release);
        drop(guard);
        fault_point!("heap.slot.claimed");
        self.locals.note(index as u16);
        let mut local = LocalSlot::new(index as u16, slot);
        self.rescan(&mut local);
        Ok(local)
    }

    fn vacant_slot(&self, _guard: &LockGuard<'_>) -> Result<Option<u64>> {
        let header = self.memory.header();
        let vacant = |&i: &u64| self.memory.slot(i).is_some_and(|s| s.holder.load(Ordering::Acquire) == 0);
        let ready = self.memory.slots();
        if let Some(index) = (0..ready).find(vacant) {
            return Ok(Some(index));
        }
        if ready >= self.memory.geometry().slots {
            return Ok(None);
        }
        self.charge(PAGE)?;
        self.reserve_range(self.memory.geometry().slots_at + ready * size_of::<HeapSlot>() as u64, PAGE)?;
        header.slots.store(ready + PAGE / size_of::<HeapSlot>() as u64, Ordering::Release);
        Ok(Some(ready))
    }

    /// Leaves a slot in order. The slot's prepared blocks are freed, as after a death, and its slices without used
    /// blocks return to the pool.
    ///
    /// # Errors
    /// `BUSY` if a stopped member holds the lock. Then the slot stays this member's.
    pub(super) fn leave_slot(&self, local: &mut LocalSlot) -> Result<()> {
        let guard = self.lock()?;
        self.mend_slot(&guard, local.index.into());
        self.trim_slot(&guard, local.index);
        fault_point!("heap.slot.trimmed");
        local.shared(self).holder.store(0, Ordering::Release);
        Ok(())
    }

    /// Returns slices without used blocks to the pool, for a slot that has no holder. Like `rescan`, the function
    /// also finds slices that a dead member was putting on the slot's stack.
    pub(super) fn trim_slot(&self, guard: &LockGuard<'_>, index: u16) -> u64 {
        let Some(slot) = self.memory.slot(index.into()) else { return 0 };
        let found = self.find_slices(index);
        self.pop_available(slot, index, |_, _| {});
        let mut released = 0;
        for (slice, class, word) in found {
            if matches!(word.available(), Available::Queued | Available::Orphan) {
                self.turn(slice, word, word.with(Available::Active, 0));
            }
            released += u64::from(self.release_locked(guard, index, slice, class));
        }
        released
    }

    /// Returns slices without used blocks to the pool, for all slots without a holder.
    pub(super) fn trim_vacant(&self, guard: &LockGuard<'_>) -> u64 {
        let vacant = |i: &u64| self.memory.slot(*i).is_some_and(|s| s.holder.load(Ordering::Acquire) == 0);
        (0..self.memory.slots()).filter(vacant).map(|i| self.trim_slot(guard, i as u16)).sum()
    }

    /// Tells whether a living member holds this slot.
    pub(crate) fn is_held(&self, slot: &HeapSlot) -> bool {
        let holder = slot.holder.load(Ordering::Acquire);
        holder != 0 && !self.host.liveness().is_dead(MemberId(holder))
    }
}
