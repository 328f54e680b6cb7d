//! Growth: the region takes memory in steps. Each step is first counted against the quota, and its pages are
//! reserved. So a lack of memory on the node gives an error and not a signal.
//!
//! If there is room, a step ends at the boundary of a huge page, and the kernel is asked for whole huge pages. With
//! huge pages a program has 512 times fewer page faults and entries in the CPU's page table cache.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{PAGE, SLICE, SliceHead};
use crossdock_layout::{HUGE, Status};

use super::local::LocalSlot;
use super::lock::LockGuard;
use crate::region::Region;
use crate::{Result, fault_point};

/// The smallest step (2 MiB) and the largest step (64 MiB) by which a region grows, in slices. A single request that
/// needs more takes a larger step.
const STEP: (u64, u64) = (32, 1024);

impl Region {
    /// Runs `take` under the lock. If `take` finds no space, frees slices that are no longer used and runs `take`
    /// again.
    pub(super) fn with_space<R>(
        &self,
        local: &mut LocalSlot,
        mut take: impl FnMut(&LockGuard<'_>) -> Result<R>,
    ) -> Result<R> {
        let full = match self.lock().and_then(|guard| take(&guard)) {
            Err(error) if error.status == Status::NoSpace => error,
            other => return other,
        };
        self.trim(local);
        self.heal()?;
        let guard = self.lock()?;
        take(&guard).map_err(|again| if again.status == Status::NoSpace { full } else { again })
    }

    /// Finds `count` free slices in a row that have memory. If there are none, the region grows.
    pub(super) fn find_or_grow(&self, guard: &LockGuard<'_>, count: u64) -> Result<u64> {
        if let Some(slice) = self.find_run(guard, count) {
            return Ok(slice);
        }
        self.grow(guard, count)?;
        self.find_run(guard, count).ok_or_else(|| self.corrupt("its pool of slices does not add up"))
    }

    fn grow(&self, guard: &LockGuard<'_>, count: u64) -> Result<()> {
        let (committed, g) = (self.memory.committed(), self.memory.geometry());
        let need = count.saturating_sub(self.free_tail()).max(1);
        let left = g.slices - committed;
        if need > left {
            let (used, all) = (committed * SLICE, g.slices * SLICE);
            let text = format!(
                "no {} bytes in a row are left of its {all} ({used} have been used); remove objects, or make it larger",
                count * SLICE
            );
            return Err(self.error(Status::NoSpace, text));
        }
        let step = (committed / 8).clamp(STEP.0, STEP.1).max(need);
        let end = g.slice_at(committed + step);
        let step = (step + (end.next_multiple_of(HUGE) - end) / SLICE).min(left);
        match self.grow_by(guard, committed, step) {
            Err(error) if error.status == Status::NoSpace && step > need => self.grow_by(guard, committed, need),
            other => other,
        }
    }

    fn grow_by(&self, _guard: &LockGuard<'_>, committed: u64, count: u64) -> Result<()> {
        let g = self.memory.geometry();
        let new_pages = |at: u64, bytes_before: u64, bytes_after: u64| {
            (at + bytes_after).div_ceil(PAGE) - (at + bytes_before).div_ceil(PAGE)
        };
        let head = size_of::<SliceHead>() as u64;
        let after = committed + count;
        let heads = new_pages(g.heads_at, committed * head, after * head);
        let bits = new_pages(g.used_at, committed.div_ceil(64) * 8, after.div_ceil(64) * 8);
        self.charge(count * SLICE + (heads + bits) * PAGE)?;
        fault_point!("heap.grow.charged");
        if let Some(descriptor) = &self.descriptor {
            self.memory.mapping().take_huge_pages(descriptor, g.slice_at(committed), count * SLICE);
        }
        let reserved = self
            .reserve_range(g.used_at + committed / 64 * 8, (after.div_ceil(64) - committed / 64) * 8)
            .and_then(|()| self.reserve_range(g.heads_at + committed * head, count * head))
            .and_then(|()| self.reserve_range(g.slice_at(committed), count * SLICE));
        if reserved.is_err() {
            // The kernel gave no memory, so the step's bytes are subtracted from the count again.
            self.memory.header().reserved.fetch_sub(count * SLICE + (heads + bits) * PAGE, Ordering::Relaxed);
        }
        reserved?;
        fault_point!("heap.grow.reserved");
        self.memory.header().committed.store(after, Ordering::Release);
        Ok(())
    }

    /// Counts further bytes against the quota. If this member dies before it uses these bytes, they stay counted.
    /// That does no harm, because the count is only an upper bound.
    pub(crate) fn charge(&self, bytes: u64) -> Result<()> {
        let reserved = &self.memory.header().reserved;
        let total = reserved.load(Ordering::Relaxed).saturating_add(bytes).min(self.capacity());
        self.host.reserve(total)?;
        reserved.store(total, Ordering::Relaxed);
        Ok(())
    }
}
