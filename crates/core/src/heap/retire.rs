//! Frees a block exactly once, although the member that frees it may die at any instruction.
//!
//! A plain free is a single store and needs nothing more. But if a record says that a block is to be freed, and the
//! member dies, the healing member must know whether that happened: the block may belong to another object by now. So
//! the block is freed in three steps. It is marked DYING with the slot's number, then the record notes that, and then
//! the block becomes FREE. Only this slot sets this mark. So if the record says that the mark was set, healing frees
//! the block if and only if it still carries the mark.
//!
//! Large blocks are freed under the region's lock. A member that takes the lock from a dead holder heals the region
//! before any other member can take the slices. So for a large block its head alone says whether the block was freed.

use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::region::{HeapSlot, PHASE_MARKED, PHASE_MASK, STATE_DYING, STATE_FREE, STATE_NAMED, STATE_USED};

use super::lock::LockGuard;
use super::memory::Block;
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Frees the block that `cell` names, and empties the cell. The action is recorded in the heap slot `slot`, whose
    /// number is `by`. The function fails only if the region's lock is not available. In this case the cell keeps its
    /// value.
    pub(crate) fn retire(
        &self,
        cell: &AtomicU64,
        slot: &HeapSlot,
        by: u16,
        guard: Option<&LockGuard<'_>>,
    ) -> Result<()> {
        let value = cell.load(Ordering::Acquire);
        let (offset, phase) = (value & !PHASE_MASK, value & PHASE_MASK);
        match self.memory.block_at(offset) {
            Some(Block::Small { slice, block, .. }) => {
                if let Some(state) = self.memory.state(slice, block) {
                    let mine = STATE_DYING + (by as u8).min(u8::MAX - STATE_DYING);
                    if phase != PHASE_MARKED {
                        fault_point!("retire.begun");
                        for used in [STATE_USED, STATE_NAMED] {
                            let _ = state.compare_exchange(used, mine, Ordering::AcqRel, Ordering::Relaxed);
                        }
                        fault_point!("retire.marked");
                        cell.store(offset | PHASE_MARKED, Ordering::Release);
                    }
                    fault_point!("retire.noted");
                    if state.compare_exchange(mine, STATE_FREE, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                        fault_point!("retire.freed");
                        self.notify(slice, slot, by);
                    }
                }
            }
            Some(Block::Large { slice, run, .. }) => {
                let own;
                let guard = match guard {
                    Some(guard) => guard,
                    None => {
                        own = self.lock()?;
                        &own
                    }
                };
                self.free_run(guard, slice, run);
                fault_point!("retire.large");
                cell.store(0, Ordering::Release);
            }
            None => {}
        }
        cell.store(0, Ordering::Release);
        Ok(())
    }
}
