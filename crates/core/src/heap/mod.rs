//! The heap of a region. Many processes allocate and free. None of them stops another, and any of them may be killed at
//! any instruction.
//!
//! - `memory` turns numbers into checked addresses; `states` reads many state bytes at once.
//! - `hints`, `local` and `thread_cache` are a thread's fast paths; `refill` and `rescan` find free blocks for the
//!   thread; `threads` and `slots` give the thread its slot.
//! - `pool` and `grow` manage the slices under `lock`.
//! - `operation` and `retire` make changes that are done completely or not at all if a member dies; `heal` completes
//!   them.
//!
//! `docs/memory-format.md` draws the memory and lists what a death at each point leaves.

mod fault_points;
mod fuzz;
mod grow;
mod heal;
mod hints;
mod local;
mod lock;
mod memory;
mod operation;
mod pool;
mod refill;
mod rescan;
mod retire;
mod slots;
mod states;
mod statistics;
mod thread_cache;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::Status;
use crossdock_layout::region::{CLASSES, MAX_SMALL, PAGE, STATE_USED, class_for};

pub use fault_points::POINTS;
pub use fuzz::fuzz_entry;
pub use heal::HealReport;
pub(crate) use local::LocalSlot;
pub(crate) use lock::{LockGuard, StuckHolder};
pub(crate) use memory::{Block, Memory};
pub use statistics::Statistics;
pub(crate) use thread_cache::cached_region;
pub use thread_cache::{allocate_at, deallocate_at};
pub(crate) use threads::LocalSlots;

use crate::Result;
use crate::region::Region;

/// The kind of block that a request needs.
#[derive(Clone, Copy)]
pub(crate) enum BlockRequest {
    /// A small block of this class.
    Small(usize),
    /// A large block: whole slices with room for this number of bytes.
    Large(u64),
}

/// Finds the size class of a request by a table. The table works for small requests with an alignment that all blocks
/// have (1, 2, 4, 8, 16).
#[inline(always)]
fn quick_class(size: u64, align: u64) -> Option<usize> {
    (align <= 16 && 0x1_0116 >> align & 1 == 1 && size.wrapping_sub(1) < MAX_SMALL).then(|| class_for(size))
}

impl Region {
    /// Allocates a block of at least `size` bytes at a multiple of `align`, which is a power of two up to 4096. The
    /// block is not zeroed.
    ///
    /// # Errors
    /// `NO_SPACE` if the region cannot grow by enough memory, `INVALID` if `size` is 0 or the alignment is not
    /// allowed.
    #[inline]
    pub fn allocate(self: &Arc<Self>, size: u64, align: u64) -> Result<u64> {
        if let Some(class) = quick_class(size, align) {
            if let Some(offset) = self.cached_local().and_then(|local| local.take_at_hand(self, class)) {
                return Ok(offset);
            }
        }
        self.allocate_slowly(size, align)
    }

    #[inline(never)]
    fn allocate_slowly(self: &Arc<Self>, size: u64, align: u64) -> Result<u64> {
        let want = self.want(size, align)?;
        self.with_local(|local| self.take(local, want, STATE_USED))
    }

    /// Frees a block. Any member may have allocated it. After a death, this call first finishes the changes that the
    /// dead member left half done. If such a change were finished later, it could write to the freed block when the
    /// block belongs to another object already.
    ///
    /// # Errors
    /// `BAD_HANDLE` if no block in use starts at `offset`. `BUSY` if the block belongs to a named object, or if a
    /// stopped member holds the region's lock.
    #[inline]
    pub fn deallocate(self: &Arc<Self>, offset: u64) -> Result<()> {
        if let Some(local) = self.cached_local() {
            if self.is_healed() && self.free_own(local, offset) {
                return Ok(());
            }
        }
        self.deallocate_slowly(offset)
    }

    #[inline(never)]
    fn deallocate_slowly(self: &Arc<Self>, offset: u64) -> Result<()> {
        if !self.is_healed() {
            self.check_succession()?;
        }
        self.with_local(|local| if self.free_own(local, offset) { Ok(()) } else { self.free_elsewhere(local, offset) })
    }

    /// The size in bytes of the block that starts at `offset`, if the block is in use.
    pub fn block_size(&self, offset: u64) -> Result<u64> {
        let block = self.memory.block_at(offset).filter(|&block| self.is_used(block));
        block.map(Block::size).ok_or_else(|| self.not_a_block(offset))
    }

    /// Finds the kind of block that fits a request best.
    pub(crate) fn want(&self, size: u64, align: u64) -> Result<BlockRequest> {
        if size == 0 || !align.is_power_of_two() || align > PAGE {
            let text = format!("{size} bytes aligned to {align}: at least 1 byte, and a power of two up to {PAGE}");
            return Err(self.error(Status::Invalid, text));
        }
        if size > self.capacity() {
            let text = format!("{size} bytes are more than it has ({}); make it larger", self.capacity());
            return Err(self.error(Status::NoSpace, text));
        }
        if size > MAX_SMALL {
            return Ok(BlockRequest::Large(size));
        }
        let fits = |&class: &usize| u64::from(CLASSES[class].size) % align == 0;
        let class = (class_for(size.next_multiple_of(align))..CLASSES.len()).find(fits);
        Ok(class.map_or(BlockRequest::Large(size), BlockRequest::Small))
    }

    /// Takes a block. If this member dies before the call returns, another member frees the block when it heals the
    /// region.
    pub(crate) fn take(&self, local: &mut LocalSlot, want: BlockRequest, state: u8) -> Result<u64> {
        let cell = &local.shared(self).allocating;
        let taken = self.take_into(local, want, cell, state);
        crate::fault_point!("heap.allocate.leaving");
        cell.store(0, Ordering::Release);
        taken
    }

    /// Takes a block for a record, such as a directory entry. First the block's offset is stored in the record's word
    /// `cell`, so that no block is lost if this member dies.
    pub(crate) fn take_into(
        &self,
        local: &mut LocalSlot,
        want: BlockRequest,
        cell: &AtomicU64,
        state: u8,
    ) -> Result<u64> {
        match want {
            BlockRequest::Small(class) => self.take_small(local, class, cell, state),
            BlockRequest::Large(size) => self.take_large(local, size, cell, state),
        }
    }

    /// Tells whether the block at this place is in use, named or not.
    pub(crate) fn is_used(&self, block: Block) -> bool {
        use crossdock_layout::region::STATE_NAMED;
        match block {
            Block::Small { slice, block, .. } => self
                .memory
                .state(slice, block)
                .is_some_and(|s| matches!(s.load(Ordering::Acquire), STATE_USED | STATE_NAMED)),
            Block::Large { .. } => true,
        }
    }

    /// Tells whether the block at this place is in use and has no name.
    #[inline]
    pub(crate) fn is_plain(&self, block: Block) -> bool {
        match block {
            Block::Small { slice, block, .. } => {
                self.memory.state(slice, block).is_some_and(|s| s.load(Ordering::Acquire) == STATE_USED)
            }
            Block::Large { named, .. } => !named,
        }
    }

    /// Tells whether the block belongs to a named object.
    pub(crate) fn is_named(&self, block: Block) -> bool {
        use crossdock_layout::region::STATE_NAMED;
        match block {
            Block::Small { slice, block, .. } => {
                self.memory.state(slice, block).is_some_and(|s| s.load(Ordering::Acquire) == STATE_NAMED)
            }
            Block::Large { named, .. } => named,
        }
    }
}
