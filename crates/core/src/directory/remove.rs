//! Removes a named object.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_layout::region::{ENTRY_READY, ENTRY_REMOVING, Entry, HeapSlot, PHASE_BEGUN, PHASE_MASK};
use crossdock_layout::{MemberId, Status};

use super::Removed;
use super::entry::{self, ZEROED};
use crate::heap::LockGuard;
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Removes a named object together with the memory of its vectors, strings and ndarrays.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such object, `BUSY` while a member is constructing it.
    pub fn remove(self: &Arc<Self>, name: &str) -> Result<Removed> {
        self.check_name(name)?;
        self.with_local(|local| {
            let guard = self.lock()?;
            let mut found = self.search(name);
            if let Some((index, entry)) = found.filter(|f| f.1.state.load(Ordering::Acquire) != ENTRY_READY) {
                let owner = MemberId(entry.owner.load(Ordering::Acquire));
                if owner == self.member && self.take_leftover(index) {
                    self.drop_entry(index, entry, local.shared(self), local.index(), &guard)?;
                } else if !self.host.liveness().is_dead(owner) {
                    // The lock is released first, because `describe` may ask the daemon who `owner` is.
                    drop(guard);
                    let who = self.host.describe(owner);
                    return Err(self.error(Status::Busy, format!("object '{name}' is being constructed by {who}")));
                } else {
                    self.heal_locked(&guard);
                }
                found = None;
            }
            let Some((index, entry)) = found else {
                return Err(self.no_object(name));
            };
            let Some(info) = self.info(entry) else {
                return Err(self.corrupt(format!("the entry of object '{name}' makes no sense")));
            };
            entry.owner.store(self.member.0, Ordering::Relaxed);
            entry.slot.store(u32::from(local.index()) | ZEROED, Ordering::Relaxed);
            entry.retiring.store(info.offset | PHASE_BEGUN, Ordering::Release);
            fault_point!("directory.remove.noted");
            self.change_directory(&guard, || {
                entry.state.store(ENTRY_REMOVING, Ordering::Release);
                fault_point!("directory.remove.begun");
                self.unlink_name(index, entry);
                self.unlink_offset(index, entry);
            });
            fault_point!("directory.remove.unlinked");
            // The lock is kept until the removal is complete. If this call had to take the lock again, it could fail
            // after the name is gone.
            let removed = self.finish_removal(index, entry, local.shared(self), local.index(), &guard);
            drop(guard);
            self.wake_directory();
            removed
        })
    }

    /// Removes an object that this process has claimed but not committed. No other member has seen it. If this call
    /// fails, the caller need not repeat it: the object is removed when this process makes or removes an object of the
    /// same name, or leaves the region.
    pub fn abandon(self: &Arc<Self>, offset: u64) -> Result<()> {
        let abandoned = self.abandon_now(offset);
        if abandoned.is_err() && self.is_own() {
            self.leave_over(offset);
        }
        abandoned
    }

    fn abandon_now(self: &Arc<Self>, offset: u64) -> Result<()> {
        self.with_local(|local| {
            // The lock is taken before the entry is searched, because another thread of this process may be committing
            // or abandoning the same object.
            let guard = self.lock()?;
            let (index, entry) = self.claimed(offset)?;
            self.forget_claim(offset);
            let dropped = self.drop_entry(index, entry, local.shared(self), local.index(), &guard);
            drop(guard);
            self.wake_directory();
            dropped
        })
    }

    /// Abandons all objects that this process is constructing, because the process leaves the region. The removals are
    /// recorded in `slot`, a heap slot of this process. Returns `false` if the region's lock cannot be taken.
    pub(crate) fn abandon_all(&self, slot: u16) -> bool {
        let claims = std::mem::take(&mut *self.claims.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        if claims.is_empty() {
            return true;
        }
        // Without the lock the entries stay as they are. After this member has left, another member removes them.
        let Ok(guard) = self.lock() else { return false };
        for (_, index) in claims {
            if let (Some(entry), Some(shared)) = (self.memory.entry(index.into()), self.memory.slot(slot.into())) {
                let _ = self.drop_entry(index.into(), entry, shared, slot, &guard);
            }
        }
        true
    }

    /// Removes the directory entry of an object under construction, and frees the object's block if it has one.
    pub(super) fn drop_entry(
        &self,
        index: u64,
        entry: &Entry,
        slot: &HeapSlot,
        by: u16,
        guard: &LockGuard<'_>,
    ) -> Result<()> {
        let zeroed = if entry::is_zeroed(entry) { ZEROED } else { 0 };
        // The entry's offset is 0 if the entry has no block. If another process has overwritten the offset with a
        // number that is not the start of a block, the entry counts as one without a block.
        let is_block = |offset: u64| offset & PHASE_MASK == 0 && self.memory.block_at(offset).is_some();
        let block = entry::block_of(entry, is_block);
        entry.slot.store(u32::from(by) | zeroed, Ordering::Relaxed);
        entry.retiring.store(block.map_or(0, |offset| offset | PHASE_BEGUN), Ordering::Release);
        fault_point!("directory.abandon.noted");
        self.change_directory(guard, || {
            entry.state.store(ENTRY_REMOVING, Ordering::Release);
            fault_point!("directory.abandon.begun");
            self.unlink_name(index, entry);
        });
        self.finish_removal(index, entry, slot, by, guard).map(|_| ())
    }

    /// Frees the blocks of an object whose entry is in state REMOVING, and then the entry.
    pub(super) fn finish_removal(
        &self,
        index: u64,
        entry: &Entry,
        slot: &HeapSlot,
        by: u16,
        guard: &LockGuard<'_>,
    ) -> Result<Removed> {
        let mut removed = Removed::default();
        let retiring = entry.retiring.load(Ordering::Acquire);
        let walkable = entry::is_zeroed(entry);
        let block = retiring & !PHASE_MASK;
        if retiring & PHASE_MASK == PHASE_BEGUN {
            if walkable {
                removed = self.free_contents(entry, block, slot, by, guard)?;
                fault_point!("directory.remove.walked");
            }
            if let Some(freed) = self.memory.block_at(block) {
                removed.blocks += 1;
                removed.bytes += freed.size();
            }
        }
        if retiring != 0 {
            self.retire(&entry.retiring, slot, by, Some(guard));
        }
        fault_point!("directory.remove.retired");
        self.change_directory(guard, || self.free_entry(index, entry));
        Ok(removed)
    }
}
