//! The publisher's list of the pool's slots: which slots are free, and how many versions use each slot.
//!
//! The list is in the publisher's own memory. No other process needs the list, because no slot is used again after the
//! publisher's death.

/// The free slots as bits, and the number of versions that use each slot.
pub(super) struct Slots {
    /// One bit for each slot with memory. The bit is set if the slot is free.
    free: Vec<u64>,
    /// For each slot with memory, the number of versions that use it.
    holders: Vec<u32>,
    free_count: u32,
    /// The slot at which the next search for a small number of slots begins.
    cursor: u32,
    /// The number of slots in a huge page; 1 if a slot is as large as a huge page.
    per_huge: u32,
}

/// Consecutive slots of the pool, given by the first slot and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotRun {
    pub first: u32,
    pub count: u32,
}

impl Slots {
    pub fn new(chunk: u32) -> Self {
        let per_huge = (crossdock_layout::series::HUGE as u32 / chunk).max(1);
        Self { free: Vec::new(), holders: Vec::new(), free_count: 0, cursor: 0, per_huge }
    }

    pub fn committed(&self) -> u32 {
        self.holders.len() as u32
    }

    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    pub fn used(&self) -> u32 {
        self.committed() - self.free_count
    }

    pub fn per_huge(&self) -> u32 {
        self.per_huge
    }

    /// Adds `more` free slots behind the last slot. The caller has reserved memory for them.
    pub fn commit(&mut self, more: u32) {
        let from = self.committed();
        self.holders.resize((from + more) as usize, 0);
        self.free.resize(self.holders.len().div_ceil(64), 0);
        (from..from + more).for_each(|slot| self.set_free(slot));
    }

    fn set_free(&mut self, slot: u32) {
        self.free[slot as usize / 64] |= 1 << (slot % 64);
        self.free_count += 1;
    }

    /// Takes up to `want` free slots that follow each other, for the chunks from `chunk` on. Gives `None` if no slot is
    /// free.
    ///
    /// For a large request, prefers slots whose positions within a huge page are the same as those of their chunks.
    /// Observers can then map them with huge pages.
    pub fn take(&mut self, want: u32, chunk: u32) -> Option<SlotRun> {
        let run = if want < self.per_huge { self.next_run(want) } else { self.large_run(want, chunk) }?;
        (run.first..run.first + run.count).for_each(|slot| self.free[slot as usize / 64] &= !(1 << (slot % 64)));
        self.free_count -= run.count;
        Some(run)
    }

    fn next_run(&mut self, want: u32) -> Option<SlotRun> {
        let found = self.run_from(self.cursor).or_else(|| self.run_from(0))?;
        let run = SlotRun { first: found.first, count: found.count.min(want) };
        self.cursor = run.first + run.count;
        Some(run)
    }

    fn large_run(&self, want: u32, chunk: u32) -> Option<SlotRun> {
        let colour = chunk % self.per_huge;
        let (mut fits, mut longest): (Option<SlotRun>, Option<SlotRun>) = (None, None);
        let mut at = 0;
        while let Some(run) = self.run_from(at) {
            at = run.first + run.count;
            let ahead = (colour + self.per_huge - run.first % self.per_huge) % self.per_huge;
            if u64::from(ahead) + u64::from(want) <= u64::from(run.count) {
                return Some(SlotRun { first: run.first + ahead, count: want });
            }
            if fits.is_none() && run.count >= want {
                fits = Some(SlotRun { first: run.first, count: want });
            }
            if longest.is_none_or(|longest| run.count > longest.count) {
                longest = Some(run);
            }
        }
        fits.or(longest)
    }

    /// Finds the first run of free slots that begins at `from` or later.
    fn run_from(&self, from: u32) -> Option<SlotRun> {
        let first = self.find(from, true)?;
        let end = self.find(first, false).unwrap_or(self.committed());
        Some(SlotRun { first, count: end - first })
    }

    /// Finds the first slot from `from` on that is free, or, if `free` is `false`, the first one that is in use.
    fn find(&self, from: u32, free: bool) -> Option<u32> {
        let flip = if free { 0 } else { u64::MAX };
        let mut word = from as usize / 64;
        let mut bits = (self.free.get(word)? ^ flip) & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = self.free.get(word)? ^ flip;
        }
        let slot = word as u32 * 64 + bits.trailing_zeros();
        (slot < self.committed()).then_some(slot)
    }

    /// Adds one to the number of versions that use the slot.
    pub fn hold(&mut self, slot: u32) {
        self.holders[slot as usize] += 1;
    }

    /// Subtracts one from the number of versions that use the slot. If no version uses the slot any more, it becomes
    /// free.
    pub fn let_go(&mut self, slot: u32) {
        let holders = &mut self.holders[slot as usize];
        debug_assert!(*holders > 0, "slot {slot} is let go more often than it was held");
        *holders = holders.saturating_sub(1);
        if *holders == 0 {
            self.set_free(slot);
        }
    }

    /// Frees slots that were taken for a version that was given up.
    pub fn put_back(&mut self, run: SlotRun) {
        (run.first..run.first + run.count).for_each(|slot| self.set_free(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_once_and_come_back_with_their_last_holder() {
        let mut slots = Slots::new(65536);
        assert_eq!(slots.take(1, 0), None);
        slots.commit(100);
        let run = slots.take(40, 0).unwrap();
        assert_eq!(run, SlotRun { first: 0, count: 40 });
        assert_eq!(slots.free_count(), 60);
        (0..40).for_each(|slot| slots.hold(slot));
        slots.hold(7);
        (0..40).for_each(|slot| slots.let_go(slot));
        assert_eq!((slots.free_count(), slots.used()), (99, 1));
        slots.let_go(7);
        assert_eq!(slots.free_count(), 100);
    }

    #[test]
    fn large_runs_keep_their_distance_from_a_huge_pages_beginning() {
        let mut slots = Slots::new(65536);
        slots.commit(320);
        slots.take(5, 0).unwrap();
        assert_eq!(slots.take(64, 40).unwrap(), SlotRun { first: 8, count: 64 });
        assert_eq!(slots.take(100, 0).unwrap(), SlotRun { first: 96, count: 100 });
    }

    #[test]
    fn a_request_that_fits_nowhere_gets_the_longest_run_there_is() {
        let mut slots = Slots::new(65536);
        slots.commit(130);
        let all = slots.take(130, 0).unwrap();
        assert_eq!(all.count, 130);
        slots.put_back(SlotRun { first: 3, count: 10 });
        slots.put_back(SlotRun { first: 50, count: 70 });
        assert_eq!(slots.take(100, 0), Some(SlotRun { first: 50, count: 70 }));
        assert_eq!(slots.take(100, 0), Some(SlotRun { first: 3, count: 10 }));
        assert_eq!(slots.take(1, 0), None);
    }

    #[test]
    fn no_slot_is_given_twice_whatever_is_asked() {
        let mut slots = Slots::new(4096);
        slots.commit(1000);
        let mut taken = vec![false; 1000];
        let mut number = 1u32;
        while let Some(run) = slots.take(number % 700 + 1, number) {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for slot in run.first..run.first + run.count {
                assert!(!std::mem::replace(&mut taken[slot as usize], true), "slot {slot}");
            }
        }
        assert!(taken.iter().all(|t| *t) && slots.free_count() == 0);
    }
}
