//! The pool of slices. A slice is a piece of memory of fixed size. A large block is a run of slices, and small blocks
//! share a slice. Each change of the pool is made under the region's lock.
//!
//! The slice heads decide which slices are in use: a slice is in use if its head says so, or if it is a later slice of
//! a large block. The bitmap of used slices is derived from the heads. `pool_dirty` is set while the bitmap and the
//! heads may differ. A member that takes the lock and finds `pool_dirty` set rebuilds the bitmap.

use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::Status;
use crossdock_layout::region::{Available, PAGE, SLICE, STATE_NAMED, STATES_PER_SLICE, SliceKind, SliceWord};

use super::local::LocalSlot;
use super::lock::LockGuard;
use super::memory::{Block, Memory};
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Takes a large block: a run of free slices. The block's offset is first stored in `cell`, so that the block is
    /// not lost if this member dies.
    pub(super) fn take_large(&self, local: &mut LocalSlot, size: u64, cell: &AtomicU64, state: u8) -> Result<u64> {
        let run = size.div_ceil(SLICE);
        self.with_space(local, |guard| {
            let slice = self.find_or_grow(guard, run)?;
            let offset = self.memory.geometry().slice_at(slice);
            let Some(head) = self.memory.head(slice) else { return Err(self.corrupt("a slice lies outside")) };
            cell.store(offset, Ordering::Release);
            fault_point!("heap.large.noted");
            self.change_pool(guard, || {
                self.set_used(slice, run, true);
                head.run.store(run, Ordering::Release);
                fault_point!("heap.large.marked");
                head.word.store(SliceWord::large(state == STATE_NAMED).0, Ordering::Release);
                fault_point!("heap.large.taken");
            });
            Ok(offset)
        })
    }

    /// Frees a large block, for `deallocate`.
    #[cold]
    pub(super) fn free_large(&self, offset: u64) -> Result<()> {
        let guard = self.lock()?;
        match self.memory.block_at(offset) {
            Some(Block::Large { named: true, .. }) => {
                let text = format!("the block at {offset:#x} is a named object's; remove the object by its name");
                Err(self.error(Status::Busy, text))
            }
            Some(Block::Large { slice, run, .. }) => {
                self.free_run(&guard, slice, run);
                Ok(())
            }
            _ => Err(self.not_a_block(offset)),
        }
    }

    /// Returns the slices of a large block to the pool of free slices.
    pub(super) fn free_run(&self, guard: &LockGuard<'_>, slice: u64, run: u64) {
        let Some(head) = self.memory.head(slice) else { return };
        self.change_pool(guard, || {
            head.word.store(SliceWord::FREE.0, Ordering::Release);
            fault_point!("heap.large.freed");
            self.set_used(slice, run, false);
        });
    }

    /// Takes a slice for small blocks of `class`. The slot `local` becomes the slice's owner.
    pub(super) fn fresh_slice(&self, local: &mut LocalSlot, class: usize) -> Result<u64> {
        let owner = local.index;
        self.with_space(local, |guard| {
            let slice = self.find_or_grow(guard, 1)?;
            let Some(head) = self.memory.head(slice) else { return Err(self.corrupt("a slice lies outside")) };
            self.reserve_states(guard, slice)?;
            self.change_pool(guard, || {
                self.set_used(slice, 1, true);
                fault_point!("heap.slice.marked");
                head.word.store(SliceWord::small(class, owner).0, Ordering::Release);
                fault_point!("heap.slice.taken");
            });
            Ok(slice)
        })
    }

    /// Returns a slice to the pool of free slices, if the slot `owner` owns the slice, if the slice is not queued, and
    /// if none of its blocks is in use. Gives `true` if the slice was returned.
    pub(super) fn release_slice(&self, owner: u16, slice: u64, class: usize) -> bool {
        let Ok(guard) = self.lock() else { return false };
        self.release_locked(&guard, owner, slice, class)
    }

    /// Does the work of `release_slice` for a caller that holds the lock.
    pub(super) fn release_locked(&self, guard: &LockGuard<'_>, owner: u16, slice: u64, class: usize) -> bool {
        let (Some(head), Some((word, now))) = (self.memory.head(slice), self.own_slice(owner, slice)) else {
            return false;
        };
        // A queued slice is on its owner's stack, so it cannot be returned to the pool before the owner has taken it
        // off the stack.
        if now != class || word.available() == Available::Queued || !self.memory.is_empty(slice, class) {
            return false;
        }
        let mut released = false;
        self.change_pool(guard, || {
            let free = SliceWord::FREE.0;
            released = head.word.compare_exchange(word.0, free, Ordering::SeqCst, Ordering::Relaxed).is_ok();
            fault_point!("heap.slice.released");
            if released {
                self.set_used(slice, 1, false);
            }
        });
        released
    }

    /// Takes memory for a slice's state bytes, before the slice is first used for small blocks. One page holds the
    /// state bytes of two slices.
    fn reserve_states(&self, guard: &LockGuard<'_>, slice: u64) -> Result<()> {
        let Some(head) = self.memory.head(slice) else { return Err(self.corrupt("a slice lies outside")) };
        if head.states_ready.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let neighbour = self.memory.head(slice ^ 1).is_some_and(|n| n.states_ready.load(Ordering::Relaxed) != 0);
        if !neighbour {
            let at = self.memory.geometry().states_at + slice * STATES_PER_SLICE;
            self.charge_and_reserve(guard, PAGE, at, STATES_PER_SLICE)?;
        }
        head.states_ready.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Changes slice heads and the bitmap. If the member dies within the change, `pool_dirty` stays set.
    fn change_pool(&self, _guard: &LockGuard<'_>, change: impl FnOnce()) {
        let dirty = &self.memory.header().pool_dirty;
        dirty.store(1, Ordering::SeqCst);
        change();
        dirty.store(0, Ordering::Release);
    }

    /// Finds the first run of `count` free slices that all have memory.
    pub(super) fn find_run(&self, _guard: &LockGuard<'_>, count: u64) -> Option<u64> {
        let committed = self.memory.committed();
        let first = self.memory.header().first_free.load(Ordering::Relaxed).clamped(committed);
        let (mut start, mut length, mut all_used) = (first / 64 * 64, 0, true);
        for index in first / 64..committed.div_ceil(64) {
            let used = self.memory.used(index)?.load(Ordering::Relaxed);
            if all_used && used != u64::MAX {
                all_used = false;
                let lowest = index * 64 + u64::from(used.trailing_ones());
                self.memory.header().first_free.store(lowest, Ordering::Relaxed);
            }
            let mut bit = 0;
            while bit < 64 {
                let rest = used >> bit;
                let free = u64::from(rest.trailing_zeros()).min(64 - bit);
                if length == 0 {
                    start = index * 64 + bit;
                }
                length += free;
                if length >= count {
                    return (start + count <= committed).then_some(start);
                }
                bit += free;
                if bit < 64 {
                    length = 0;
                    bit += u64::from((used >> bit).trailing_ones());
                }
            }
        }
        None
    }

    /// The number of free slices at the end of the memory that the region has taken so far.
    pub(super) fn free_tail(&self) -> u64 {
        let committed = self.memory.committed();
        let used = |slice: u64| {
            let word = self.memory.used(slice / 64).map_or(0, |w| w.load(Ordering::Relaxed));
            word >> (slice % 64) & 1 != 0
        };
        (0..committed).rev().take_while(|&slice| !used(slice)).count() as u64
    }

    fn set_used(&self, start: u64, count: u64, value: bool) {
        let end = start + count;
        let mut slice = start;
        while slice < end {
            let (bit, length) = (slice % 64, (64 - slice % 64).min(end - slice));
            let mask = if length == 64 { u64::MAX } else { ((1 << length) - 1) << bit };
            if let Some(word) = self.memory.used(slice / 64) {
                let old = word.load(Ordering::Relaxed);
                word.store(if value { old | mask } else { old & !mask }, Ordering::Relaxed);
            }
            slice += length;
        }
        let first = &self.memory.header().first_free;
        if !value {
            first.store(first.load(Ordering::Relaxed).clamped(start), Ordering::Relaxed);
        }
    }

    /// Rebuilds the bitmap of used slices from the slice heads.
    pub(super) fn rebuild_pool(&self, _guard: &LockGuard<'_>) {
        let committed = self.memory.committed();
        for index in 0..committed.div_ceil(64) {
            if let Some(word) = self.memory.used(index) {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.memory.header().first_free.store(0, Ordering::Relaxed);
        let mut slice = 0;
        while slice < committed {
            let Some(head) = self.memory.head(slice) else { break };
            let taken = match SliceWord(head.word.load(Ordering::Acquire)).kind() {
                Some(SliceKind::Free) => 0,
                Some(SliceKind::Small) | None => 1,
                Some(SliceKind::Large | SliceKind::LargeNamed) => Memory::run_within(head, committed - slice),
            };
            self.set_used(slice, taken, true);
            slice += taken.max(1);
        }
        self.memory.header().pool_dirty.store(0, Ordering::Release);
    }
}
