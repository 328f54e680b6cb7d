//! Frees a block exactly once, although the member that frees it may die at any instruction.
//!
//! A call of `deallocate` frees a block by a single store, and nothing has to be healed. It is different if a record in
//! shared memory says that a block is to be freed, and the member that frees it dies. The healing member must then know
//! whether the block was already freed, because the block may belong to another object by now. So such a block is freed
//! in three steps. First the block is marked DYING with the number of the heap slot that has the record. Then the
//! record notes that the mark was set. Last, the block becomes FREE. No other slot sets a mark with this number. So if
//! the record says that the mark was set, the healing member frees the block if and only if the block still carries the
//! mark.
//!
//! Large blocks are freed under the region's lock. A member that takes the lock from a dead holder heals the region
//! before any other member can take the slices. So the head of a large block is enough to tell whether the block was
//! freed. A small block is freed without the lock. After the block became FREE, its slice may return to the pool of
//! free slices and become a part of a large block before the dead member is healed. So a record with the phase MARKED
//! never frees a large block.

use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::region::{HeapSlot, PHASE_MARKED, PHASE_MASK, STATE_DYING, STATE_FREE, STATE_NAMED, STATE_USED};

use super::lock::LockGuard;
use super::memory::Block;
use crate::fault_point;
use crate::region::Region;

impl Region {
    /// Frees the block that `cell` names, and empties the cell. The action is recorded in the heap slot `slot`, whose
    /// number is `by`. If the block is large, the caller holds the region's lock.
    pub(crate) fn retire(&self, cell: &AtomicU64, slot: &HeapSlot, by: u16, guard: Option<&LockGuard<'_>>) {
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
            // If a record has the phase MARKED, its block was small. If a large block begins at this offset now, the
            // small block has already been freed, and its slice has become a part of the large block.
            Some(Block::Large { slice, run, .. }) if phase != PHASE_MARKED => {
                // `guard` can be `None` here only if another process has overwritten the slice's head since the caller
                // looked at the block. In this case the block stays allocated.
                if let Some(guard) = guard {
                    self.free_run(guard, slice, run);
                    fault_point!("retire.large");
                }
            }
            _ => {}
        }
        cell.store(0, Ordering::Release);
    }
}
