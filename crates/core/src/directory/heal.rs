//! Heals objects that a member was making or removing when it died.

use std::sync::atomic::Ordering;

use crossdock_layout::MemberId;
use crossdock_layout::region::{ENTRY_CONSTRUCTING, ENTRY_REMOVING};

use super::entry;
use crate::fault_point;
use crate::heap::LockGuard;
use crate::region::Region;

impl Region {
    /// Removes the objects that dead members were constructing or removing. Each removal is recorded in the dead
    /// member's heap slot, so the dead members keep their slots until all removals are done.
    pub(crate) fn heal_directory(&self, guard: &LockGuard<'_>) -> u64 {
        let mut healed = 0;
        for index in 0..self.memory.entries() {
            let Some(entry) = self.memory.entry(index) else { break };
            let state = entry.state.load(Ordering::Acquire);
            let owner = entry.owner.load(Ordering::Acquire);
            let half_done = matches!(state, ENTRY_CONSTRUCTING | ENTRY_REMOVING);
            if !half_done || owner == self.member.0 || !self.host.liveness().is_dead(MemberId(owner)) {
                continue;
            }
            let by = entry::slot_of(entry, self.memory.slots());
            let Some(slot) = self.memory.slot(by.into()) else { continue };
            // A living member holds the slot that the entry names. The slot's records are that member's, so the
            // removal cannot be recorded in them.
            if self.is_held(slot) {
                continue;
            }
            fault_point!("heal.entry");
            let done = if state == ENTRY_CONSTRUCTING {
                self.drop_entry(index, entry, slot, by, guard).is_ok()
            } else {
                self.finish_removal(index, entry, slot, by, guard).is_ok()
            };
            healed += u64::from(done);
        }
        if healed > 0 {
            self.wake_directory();
        }
        healed
    }
}
