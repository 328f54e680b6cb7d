//! Growth: the region takes memory in steps. Each step is first counted against the quota, and its pages are reserved.
//! So a lack of memory on the node gives an error and not a signal.
//!
//! Other members wait for the region's lock only for a short time. So a member that lets the region grow releases the
//! lock while it asks the daemon about the quota, and after each step.
//!
//! If the region's capacity allows, a step ends at the boundary of a huge page, and the kernel is asked for whole huge
//! pages. With huge pages a program has 512 times fewer page faults and entries in the CPU's page table cache.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{PAGE, SLICE, SliceHead};
use crossdock_layout::{HUGE, Status};
use crossdock_os::memfd;

use super::local::LocalSlot;
use super::lock::{LockGuard, Pause};
use crate::region::Region;
use crate::{Result, fault_point};

/// The smallest step (2 MiB) and the largest step (64 MiB) by which a region grows, in slices. A single request that
/// needs more takes several steps.
const STEP: (u64, u64) = (32, 1024);

impl Region {
    /// Runs `take` under the lock. If `take` finds no space, frees slices that are no longer used and runs `take`
    /// again.
    pub(super) fn with_space<R>(
        &self,
        local: &mut LocalSlot,
        mut take: impl FnMut(&LockGuard<'_>) -> Result<R>,
    ) -> Result<R> {
        let full = match self.growing(&mut take) {
            Err(error) if error.status == Status::NoSpace => error,
            other => return other,
        };
        self.trim(local);
        self.heal()?;
        self.growing(take).map_err(|again| if again.status == Status::NoSpace { full } else { again })
    }

    /// Runs `change` under the lock. If `change` lets the region grow, this function may have to release the lock for a
    /// while. It then runs `change` again from its beginning, so `change` must change nothing before the region has
    /// grown. If `change` fails, the region shrinks to its former size. If the lock cannot be taken for that, the new
    /// slices stay in the pool of free slices, where the next allocation of any member finds them.
    pub(crate) fn growing<R>(&self, mut change: impl FnMut(&LockGuard<'_>) -> Result<R>) -> Result<R> {
        let (mut refused, mut before) = (None, None);
        loop {
            let mut guard = self.lock()?;
            guard.refused = refused.take();
            let done = change(&guard);
            let pause = guard.pause.get().filter(|_| done.is_err());
            if let (Err(_), None, Some(before)) = (&done, pause, before) {
                self.shrink(&guard, before);
            }
            refused = guard.refused.take();
            drop(guard);
            match pause {
                None => return done,
                Some(Pause::Growing(committed)) => drop(before.get_or_insert(committed)),
                Some(Pause::Quota(total)) => {
                    match self.host.reserve(total) {
                        Ok(()) => drop(self.granted.fetch_max(total, Ordering::Relaxed)),
                        Err(error) if error.status == Status::NoSpace => refused = Some((total, error)),
                        Err(error) => {
                            // The lock is needed only if the region has grown and has to shrink now.
                            if let Some((before, Ok(guard))) = before.map(|before| (before, self.lock())) {
                                self.shrink(&guard, before);
                            }
                            return Err(error);
                        }
                    }
                    fault_point!("heap.quota.asked");
                }
            }
        }
    }

    /// Makes `growing` release the lock and then run the change again.
    fn pause<R>(&self, guard: &LockGuard<'_>, why: Pause) -> Result<R> {
        guard.pause.set(Some(why));
        Err(self.error(Status::NotYet, "it has to grow first"))
    }

    /// Finds `count` free slices in a row that have memory. If there are none, the region grows.
    pub(super) fn find_or_grow(&self, guard: &LockGuard<'_>, count: u64) -> Result<u64> {
        if let Some(slice) = self.find_run(guard, count) {
            return Ok(slice);
        }
        let committed = self.memory.committed();
        if !self.grow(guard, count)? {
            return self.pause(guard, Pause::Growing(committed));
        }
        self.find_run(guard, count).ok_or_else(|| self.corrupt("its pool of slices does not add up"))
    }

    /// Takes memory, at most for one step, so that the region gets `count` free slices in a row. Returns `false` if
    /// further steps are needed.
    fn grow(&self, guard: &LockGuard<'_>, count: u64) -> Result<bool> {
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
        let generous = self.to_huge_page(committed, (committed / 8).clamp(STEP.0, STEP.1).max(need));
        match self.grow_by(guard, committed, generous) {
            Err(error) if error.status == Status::NoSpace && generous > need => self.grow_by(guard, committed, need),
            other => other,
        }
    }

    /// Enlarges a step so that it ends at the boundary of a huge page, as far as the region's capacity allows.
    fn to_huge_page(&self, committed: u64, step: u64) -> u64 {
        let g = self.memory.geometry();
        let end = g.slice_at(committed + step);
        (step + (end.next_multiple_of(HUGE) - end) / SLICE).min(g.slices - committed)
    }

    /// Takes memory for the next `count` slices, or only for the first of them if all of them are more than one step.
    /// Returns `true` if all of them have memory now. The quota must allow all of them, even if this call takes memory
    /// for a part.
    fn grow_by(&self, guard: &LockGuard<'_>, committed: u64, count: u64) -> Result<bool> {
        let g = self.memory.geometry();
        self.check_quota(guard, self.cost(committed, committed + count))?;
        let step = self.to_huge_page(committed, STEP.1).min(count);
        let after = committed + step;
        self.charge(guard, self.cost(committed, after))?;
        fault_point!("heap.grow.charged");
        if let Some(descriptor) = &self.descriptor {
            self.memory.mapping().take_huge_pages(descriptor, g.slice_at(committed), step * SLICE);
        }
        let head = size_of::<SliceHead>() as u64;
        let reserved = self
            .reserve_range(g.used_at + committed / 64 * 8, (after.div_ceil(64) - committed / 64) * 8)
            .and_then(|()| self.reserve_range(g.heads_at + committed * head, step * head))
            .and_then(|()| self.reserve_range(g.slice_at(committed), step * SLICE));
        if let Err(error) = reserved {
            self.give_back(guard, committed, after);
            return Err(error);
        }
        fault_point!("heap.grow.reserved");
        self.memory.header().committed.store(after, Ordering::Release);
        Ok(step == count)
    }

    /// The number of bytes by which the count of reserved bytes grows when the region's memory grows from `committed`
    /// to `after` slices. This is the memory of the slices, of their heads and of their bits in the bitmap.
    fn cost(&self, committed: u64, after: u64) -> u64 {
        let g = self.memory.geometry();
        let new_pages = |at: u64, bytes_before: u64, bytes_after: u64| {
            (at + bytes_after).div_ceil(PAGE) - (at + bytes_before).div_ceil(PAGE)
        };
        let head = size_of::<SliceHead>() as u64;
        let heads = new_pages(g.heads_at, committed * head, after * head);
        let bits = new_pages(g.used_at, committed.div_ceil(64) * 8, after.div_ceil(64) * 8);
        (after - committed) * SLICE + (heads + bits) * PAGE
    }

    /// Undoes the steps by which the region has grown beyond `before` slices, because a later step failed. Slices that
    /// a member has begun to use in the meantime keep their memory.
    fn shrink(&self, guard: &LockGuard<'_>, before: u64) {
        let committed = self.memory.committed();
        let after = before.max(committed.saturating_sub(self.free_tail()));
        if after < committed {
            self.memory.header().committed.store(after, Ordering::Release);
            self.give_back(guard, after, committed);
        }
    }

    /// Releases the memory of slices that the region does not use yet, so that the kernel gets it back. Subtracts this
    /// memory from the count of reserved bytes.
    fn give_back(&self, _guard: &LockGuard<'_>, first: u64, end: u64) {
        self.memory.header().reserved.fetch_sub(self.cost(first, end), Ordering::Relaxed);
        if let Some(descriptor) = &self.descriptor {
            // If the kernel refuses to take the memory back, the memory stays, and the region uses this memory when it
            // grows again.
            let _ = memfd::give_back(descriptor, self.memory.geometry().slice_at(first), (end - first) * SLICE);
        }
    }

    /// Counts `bytes` more bytes against the quota. If this member dies before it uses these bytes, they stay counted.
    /// That does no harm, because the count is only an upper bound.
    pub(crate) fn charge(&self, guard: &LockGuard<'_>, bytes: u64) -> Result<()> {
        let total = self.check_quota(guard, bytes)?;
        self.memory.header().reserved.store(total, Ordering::Relaxed);
        Ok(())
    }

    /// Counts `bytes` more bytes against the quota, and takes the memory of the region's bytes from `at` on for them. If
    /// there is no memory, the bytes do not count.
    pub(crate) fn charge_and_reserve(&self, guard: &LockGuard<'_>, bytes: u64, at: u64, length: u64) -> Result<()> {
        let counted = &self.memory.header().reserved;
        let before = counted.load(Ordering::Relaxed);
        self.charge(guard, bytes)?;
        self.reserve_range(at, length).inspect_err(|_| counted.store(before, Ordering::Relaxed))
    }

    /// Checks that the quota allows `bytes` more than are reserved now, and returns the new total. If the daemon has to
    /// be asked, returns an error, after which [`Self::growing`] releases the lock and asks the daemon.
    fn check_quota(&self, guard: &LockGuard<'_>, bytes: u64) -> Result<u64> {
        let reserved = self.memory.header().reserved.load(Ordering::Relaxed);
        let total = reserved.saturating_add(bytes).min(self.capacity());
        match &guard.refused {
            _ if total <= self.granted.load(Ordering::Relaxed) => Ok(total),
            Some((refused, error)) if total >= *refused => Err(error.clone()),
            _ => self.pause(guard, Pause::Quota(total)),
        }
    }
}
