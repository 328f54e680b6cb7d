//! Changes of several steps that are done completely or not at all if a member dies: preparing a block, and exchanging
//! one block for another.
//!
//! Before a change begins, a record in the heap slot describes the change: the words to write, the new block and the
//! old block. In state `PREPARED` the new block belongs to the record, and is freed if the member dies. As soon as the
//! record has the state `REPLACING`, the change is certain to be completed: if the member dies after that, healing
//! writes all words of the record to their places and frees the old block. The result is the same however many of these
//! steps the dead member had done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_layout::Status;
use crossdock_layout::region::{
    HeapSlot, MAX_WORDS, OP_NONE, OP_PREPARED, OP_REPLACING, Operation, PHASE_BEGUN, PHASE_MASK, STATE_USED,
};

use super::lock::LockGuard;
use super::memory::Block;
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Allocates a prepared block: if this member dies before it passes the block to `replace` or `keep`, another
    /// member frees the block when it heals the region. A heap slot has only a few records for such blocks. If this
    /// thread has used all of them, the block is an ordinary one.
    pub fn prepare(self: &Arc<Self>, size: u64, align: u64) -> Result<u64> {
        self.check_succession()?;
        let want = self.want(size, align)?;
        self.with_local(|local| {
            // The last record of the slot is not used here. It stays free for calls of `replace` with a block that
            // was not prepared.
            let records = &local.shared(self).operations;
            let free = |record: &&Operation| record.kind.load(Ordering::Relaxed) == OP_NONE;
            let Some(record) = records[..records.len() - 1].iter().find(free) else {
                return self.take(local, want, STATE_USED);
            };
            record.new_block.store(0, Ordering::Relaxed);
            record.kind.store(OP_PREPARED, Ordering::Release);
            let taken = self.take_into(local, want, &record.new_block, STATE_USED);
            if taken.is_err() {
                record.kind.store(OP_NONE, Ordering::Release);
            }
            fault_point!("prepare.done");
            taken
        })
    }

    /// Turns a block that `prepare` allocated into an ordinary one, which stays allocated if this member dies.
    pub fn keep(self: &Arc<Self>, offset: u64) -> Result<()> {
        self.with_local(|local| {
            if let Some(record) = self.prepared(local.shared(self), offset) {
                record.kind.store(OP_NONE, Ordering::Release);
            } else {
                self.keep_elsewhere(offset);
            }
            Ok(())
        })
    }

    /// Writes `words` at `header` and frees `old_block` (0 = none). If this member dies, either both have happened or
    /// neither. `new_block` (0 = none) is the block that the words point to.
    pub fn replace(self: &Arc<Self>, header: u64, words: &[u64], new_block: u64, old_block: u64) -> Result<()> {
        self.check_succession()?;
        self.with_local(|local| {
            // A large block is freed under the region's lock. The lock is taken before the replacement is recorded,
            // because a recorded replacement must be completed, and a later attempt to take the lock could fail.
            let guard = match self.memory.block_at(old_block) {
                Some(Block::Large { .. }) => Some(self.lock()?),
                _ => None,
            };
            self.check_replace(header, words, new_block, old_block)?;
            let slot = local.shared(self);
            let record = match self.prepared(slot, new_block) {
                Some(record) if new_block != 0 => record,
                _ => {
                    self.keep_elsewhere(new_block);
                    self.free_record(slot, local.index, guard.as_ref())?
                }
            };
            self.begin_replace(record, header, words, new_block, old_block);
            self.finish_replace(record, slot, local.index, guard.as_ref());
            Ok(())
        })
    }

    /// Does the same as `replace` without a new block. The change is recorded in `slot`, which may belong to a dead
    /// member.
    pub(crate) fn exchange(
        &self,
        slot: &HeapSlot,
        by: u16,
        guard: &LockGuard<'_>,
        header: u64,
        words: &[u64],
        old_block: u64,
    ) -> Result<()> {
        let record = self.free_record(slot, by, Some(guard))?;
        self.begin_replace(record, header, words, 0, old_block);
        self.finish_replace(record, slot, by, Some(guard));
        Ok(())
    }

    /// Records a replacement. As soon as the record has the state `REPLACING`, the replacement will be completed even
    /// if this member dies.
    fn begin_replace(&self, record: &Operation, header: u64, words: &[u64], new_block: u64, old_block: u64) {
        for (to, word) in record.words.iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        record.header.store(header, Ordering::Relaxed);
        record.count.store(words.len() as u32, Ordering::Relaxed);
        record.new_block.store(new_block, Ordering::Relaxed);
        record.retiring.store(if old_block == 0 { 0 } else { old_block | PHASE_BEGUN }, Ordering::Relaxed);
        fault_point!("replace.noted");
        record.kind.store(OP_REPLACING, Ordering::Release);
        fault_point!("replace.begun");
    }

    /// Does the remaining steps of a replacement that is recorded: writes the words and frees the old block. If the old
    /// block is large, the caller holds the region's lock.
    fn finish_replace(&self, record: &Operation, slot: &HeapSlot, by: u16, guard: Option<&LockGuard<'_>>) {
        let header = record.header.load(Ordering::Relaxed);
        let count = record.count.load(Ordering::Relaxed).clamped(MAX_WORDS as u32) as usize;
        for (i, word) in record.words[..count].iter().enumerate() {
            if let Some(to) = header.checked_add(8 * i as u64).and_then(|at| self.memory.word(at)) {
                to.store(word.load(Ordering::Relaxed), Ordering::Release);
            }
            fault_point!("replace.writing");
        }
        fault_point!("replace.written");
        self.retire(&record.retiring, slot, by, guard);
        fault_point!("replace.retired");
        record.kind.store(OP_NONE, Ordering::Release);
    }

    /// Finishes the replacements that are recorded in a heap slot, and frees the slot's prepared blocks. The slot's
    /// holder is dead, or it is the caller, which is leaving the slot. Returns the number of records that were in use.
    pub(super) fn finish_operations(&self, slot: &HeapSlot, by: u16, guard: &LockGuard<'_>) -> u64 {
        let mut count = 0;
        for record in &slot.operations {
            let kind = record.kind.load(Ordering::Acquire);
            if kind == OP_PREPARED {
                // To free the prepared block, the next lines turn the record into a replacement that writes no words
                // and frees this block as its old block.
                let block = record.new_block.load(Ordering::Relaxed) & !PHASE_MASK;
                record.retiring.store(if block == 0 { 0 } else { block | PHASE_BEGUN }, Ordering::Relaxed);
                record.count.store(0, Ordering::Relaxed);
                record.kind.store(OP_REPLACING, Ordering::Release);
                fault_point!("heal.converted");
            }
            if kind != OP_NONE {
                count += 1;
                self.finish_replace(record, slot, by, Some(guard));
            }
        }
        count
    }

    fn check_replace(&self, header: u64, words: &[u64], new_block: u64, old_block: u64) -> Result<()> {
        let last = header.checked_add(8 * (words.len() as u64).saturating_sub(1));
        let fits = words.len() <= MAX_WORDS && last.and_then(|at| self.memory.word(at)).is_some();
        if !fits || (!words.is_empty() && self.memory.word(header).is_none()) {
            let text = format!("{} words at {header:#x}: at most {MAX_WORDS}, aligned to 8, in a block", words.len());
            return Err(self.error(Status::Invalid, text));
        }
        for block in [new_block, old_block] {
            if block != 0 && !self.is_plain_block(block) {
                return Err(self.not_a_block(block));
            }
        }
        Ok(())
    }

    /// Tells whether `offset` is the start of a block that is in use and has no name.
    pub(crate) fn is_plain_block(&self, offset: u64) -> bool {
        self.memory.block_at(offset).is_some_and(|block| self.is_plain(block))
    }

    fn prepared<'a>(&self, slot: &'a HeapSlot, block: u64) -> Option<&'a Operation> {
        let of_block = |record: &&Operation| {
            record.kind.load(Ordering::Relaxed) == OP_PREPARED && record.new_block.load(Ordering::Relaxed) == block
        };
        slot.operations.iter().find(of_block)
    }

    /// Turns a prepared block into an ordinary one, if another thread of this process has prepared it.
    fn keep_elsewhere(&self, block: u64) {
        if block == 0 {
            return;
        }
        for index in self.held_slots() {
            let slot = self.memory.slot(index.into());
            if let Some(record) = slot.and_then(|slot| self.prepared(slot, block)) {
                record.kind.store(OP_NONE, Ordering::Release);
            }
        }
    }

    fn free_record<'a>(&self, slot: &'a HeapSlot, by: u16, guard: Option<&LockGuard<'_>>) -> Result<&'a Operation> {
        if let Some(guard) = guard {
            for record in &slot.operations {
                // A member that healed this slot may have recorded a replacement here and died before it was complete.
                // In this case the next line completes the replacement, so that the record becomes free.
                if record.kind.load(Ordering::Relaxed) == OP_REPLACING {
                    self.finish_replace(record, slot, by, Some(guard));
                }
            }
        }
        let free = slot.operations.iter().rev().find(|r| r.kind.load(Ordering::Relaxed) == OP_NONE);
        free.ok_or_else(|| self.corrupt("the records of a heap slot are all taken"))
    }
}
