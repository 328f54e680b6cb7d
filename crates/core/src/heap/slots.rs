//! How a member takes and leaves heap slots. A slot keeps its slices when its holder leaves or dies, and its next
//! holder uses them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crossdock_layout::region::{Available, HeapSlot, PAGE};
use crossdock_layout::{MemberId, Status};

use super::local::LocalSlot;
use super::lock::LockGuard;
use crate::region::Region;
use crate::{Result, fault_point};

/// The number of slices that a member looks through before it releases the region's lock for a moment.
const PIECE: u64 = 1 << 16;

impl Region {
    /// Takes a vacant slot, with the slices that the slot owns.
    pub(super) fn claim_slot(&self) -> Result<LocalSlot> {
        let (index, slot) = self.growing(|guard| {
            let index = match self.vacant_slot(guard)? {
                Some(index) => index,
                None if self.heal_locked(guard).slots > 0 => self.vacant_slot(guard)?.unwrap_or(u64::MAX),
                None => u64::MAX,
            };
            let Some(slot) = self.memory.slot(index) else {
                let all = self.memory.geometry().slots;
                let text = format!("all {all} heap slots are taken, one by each thread that allocates; make it larger");
                return Err(self.error(Status::Busy, text));
            };
            slot.holder.store(self.member.0, Ordering::Release);
            Ok((index, slot))
        })?;
        fault_point!("heap.slot.claimed");
        self.locals.note(index as u16);
        let mut local = LocalSlot::new(index as u16, slot);
        self.rescan(&mut local);
        Ok(local)
    }

    fn vacant_slot(&self, guard: &LockGuard<'_>) -> Result<Option<u64>> {
        let header = self.memory.header();
        let vacant = |&i: &u64| self.memory.slot(i).is_some_and(|s| s.holder.load(Ordering::Acquire) == 0);
        let ready = self.memory.slots();
        if let Some(index) = (0..ready).find(vacant) {
            return Ok(Some(index));
        }
        if ready >= self.memory.geometry().slots {
            return Ok(None);
        }
        let at = self.memory.geometry().slots_at + ready * size_of::<HeapSlot>() as u64;
        self.charge_and_reserve(guard, PAGE, at, PAGE)?;
        header.slots.store(ready + PAGE / size_of::<HeapSlot>() as u64, Ordering::Release);
        Ok(Some(ready))
    }

    /// Leaves these slots, because the process leaves the region. The caller has sorted the slots by number. The
    /// prepared blocks of the slots are freed, as after a death, and the slots' slices without used blocks return to
    /// the pool of free slices.
    pub(super) fn leave_slots(&self, slots: &[Box<LocalSlot>]) {
        let Ok(guard) = self.lock() else { return };
        for local in slots {
            self.mend_slot(&guard, local.index.into());
        }
        drop(guard);
        // This call takes the region's lock again. If it cannot take the lock, the slices stay with these slots, which
        // the loop below makes vacant. A later call of `trim_vacant` returns the slices to the pool.
        let _ = self.trim_in_pieces(|owner| slots.binary_search_by_key(&owner, |local| local.index).is_ok());
        fault_point!("heap.slot.trimmed");
        for local in slots {
            local.shared(self).holder.store(0, Ordering::Release);
        }
    }

    /// Returns slices without used blocks to the pool of free slices, for all slots without a holder.
    pub(super) fn trim_vacant(&self) -> Result<()> {
        let slots = self.memory.slots();
        let vacant = |slot: &HeapSlot| slot.holder.load(Ordering::Acquire) == 0;
        self.trim_in_pieces(|owner| u64::from(owner) < slots && self.memory.slot(owner.into()).is_some_and(vacant))
    }

    /// Does the work of `trim_slots` for the whole region. Takes the lock for each piece of the region separately,
    /// because the whole work takes seconds for a large region.
    fn trim_in_pieces(&self, trims: impl Fn(u16) -> bool) -> Result<()> {
        let mut first = 0;
        while first < self.memory.committed() {
            let guard = self.lock()?;
            let end = self.memory.committed().min(first + PIECE);
            self.trim_slots(&guard, first..end, &trims);
            first = end;
        }
        Ok(())
    }

    /// Returns slices without used blocks to the pool of free slices, for the slots that `trims` accepts. These slots
    /// have no holder, or their holder is dead or leaving. Like `rescan`, the function also finds slices that a dead
    /// member was putting on the stack of such a slot.
    pub(super) fn trim_slots(&self, guard: &LockGuard<'_>, range: Range<u64>, trims: impl Fn(u16) -> bool) {
        let found = self.find_slices(range, &trims);
        for index in (0..self.memory.slots() as u16).filter(|index| trims(*index)) {
            if let Some(slot) = self.memory.slot(index.into()) {
                self.pop_available(slot, index, |_, _| {});
            }
        }
        for (slice, class, word) in found {
            if matches!(word.available(), Available::Queued | Available::Orphan) {
                self.turn(slice, word, word.with(Available::Active, 0));
            }
            self.release_locked(guard, word.owner(), slice, class);
        }
    }

    /// Tells whether a living member holds this slot.
    pub(crate) fn is_held(&self, slot: &HeapSlot) -> bool {
        let holder = slot.holder.load(Ordering::Acquire);
        holder != 0 && !self.host.liveness().is_dead(MemberId(holder))
    }
}
