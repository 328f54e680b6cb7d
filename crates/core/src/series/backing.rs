//! The kind of memory at each chunk of the variables. Some methods of finding changes need a certain kind of memory.
//! When the publisher chooses such a method, this module gives the chunks the kind of memory that the method needs.
//!
//! | backing | the chunk's memory | how a change is found |
//! |---|---|---|
//! | memory | ordinary memory of this process | not at all: the chunk is compared or copied |
//! | watched | ordinary memory of this process | the kernel notes the first write to each page |
//! | slot | a private mapping of the newest version's slot | written pages have become private copies |
//!
//! New memory, page tables and marks on pages cost time. If all chunks changed their kind of memory after the same
//! publish, that publish would take as long as several copies of all data. So after each publish only some chunks
//! change. Until all chunks have the new kind of memory, the publisher searches each chunk by the method that fits the
//! chunk's present memory.
//!
//! A chunk that is a mapped slot becomes ordinary memory without a new mapping. Those of its pages that the program has
//! written are private copies already. The kernel makes private copies of the remaining pages.

use std::ops::Range;
use std::time::Instant;

use crossdock_os::reservation::HUGE;
use crossdock_os::{OsError, OsResult};

use super::publisher::Publisher;
use super::spec::Method;

/// The kind of memory at a chunk's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Backing {
    /// Ordinary memory of this process.
    #[default]
    Memory,
    /// Ordinary memory of this process, for which the kernel notes the first write to each page.
    Watched,
    /// A private mapping of the chunk's slot in the newest version.
    Slot,
}

/// After each publish, at least one in `LEAST` of all chunks gets the needed kind of memory.
const LEAST: u32 = 16;
/// When one in [`LEAST`] of all chunks has got the needed kind of memory, the publisher goes on with more chunks, until
/// the changes after this publish have taken this fraction of the time that a copy of all data takes.
const SHARE: f64 = 0.25;

impl Publisher {
    /// The kind of memory that the chosen method of finding changes needs at the variables' addresses; `None` if the
    /// method works with every kind.
    pub(super) fn goal(&self) -> Option<Backing> {
        match self.detector.method {
            Method::CopyAll | Method::Compare => Some(Backing::Memory),
            Method::WriteProtect => Some(Backing::Watched),
            Method::PrivateCopies => Some(Backing::Slot),
            Method::Hints | Method::InPlace => None,
        }
    }

    /// Splits a range of chunks into runs with the same kind of memory. `table` is the range of the chunks' indices in
    /// the slot table. All these chunks belong to one variable.
    pub(super) fn backings(&self, table: Range<u32>) -> Vec<(Range<u32>, Backing)> {
        let mut at = table.start;
        let runs = self.backing[table.start as usize..table.end as usize].chunk_by(PartialEq::eq);
        runs.map(|run| {
            let start = at;
            at += run.len() as u32;
            (start..at, run[0])
        })
        .collect()
    }

    /// Changes the kind of memory of some chunks. The chosen method needs a certain kind of memory (`goal`), and these
    /// chunks do not have it yet. The caller has just searched for changes and published, so the variables hold the
    /// same data as the newest version.
    pub(super) fn change_over(&mut self) {
        let Some(goal) = self.goal().filter(|_| !self.settled && self.broken.is_none()) else { return };
        self.change_chunks(goal);
        if goal == Backing::Watched {
            self.detector.note_pins();
        }
    }

    fn change_chunks(&mut self, goal: Backing) {
        let unit = (HUGE / self.pool.chunk()).max(1) as u32;
        let least = (self.chunks() / LEAST).max(unit);
        let limit = self.version_bytes() as f64 * self.detector.costs.copy_byte * SHARE;
        let started = Instant::now();
        let mut changed = 0;
        for index in 0..self.fields.len() {
            let (table, mut at) = (self.fields[index].table(), 0);
            while table.start + at < table.end {
                // A piece consists of whole huge pages, so that no huge page has to be split.
                let piece = table.start + at..(table.start + (at / unit + 1) * unit).min(table.end);
                at = piece.end - table.start;
                for (part, backing) in self.backings(piece) {
                    if backing == goal {
                        continue;
                    }
                    if changed >= least && started.elapsed().as_nanos() as f64 >= limit {
                        return;
                    }
                    if let Err(error) = self.change_part(index, part.clone(), backing, goal) {
                        return self.cannot_change(goal, &error);
                    }
                    changed += part.len() as u32;
                }
            }
        }
        self.settled = true;
    }

    /// Changes the kind of memory of some chunks of one variable from `from` to `to`. All chunks in `part` have the
    /// kind `from`.
    fn change_part(&mut self, field: usize, part: Range<u32>, from: Backing, to: Backing) -> OsResult<()> {
        if to == Backing::Slot {
            self.watch_children()?;
        }
        let field = &self.fields[field];
        let chunk = self.pool.chunk();
        let own = part.start - field.span.first..part.end - field.span.first;
        let (at, length) = (own.start as usize * chunk, own.len() * chunk);
        let address = field.address(own.start, chunk) as usize;
        let as_usize = part.start as usize..part.end as usize;
        if to == Backing::Slot {
            // Even if the call of `put_slots` fails, it may have mapped some of the chunks to their slots. So all
            // chunks of the range are noted as mapped slots before the call.
            self.backing[as_usize].fill(Backing::Slot);
            field.put_slots(own, &self.current, &self.pool, self.descriptor.proved_if_in_doubt()?)?;
            return Ok(());
        }
        match from {
            Backing::Slot => field.reservation.make_own(at, length)?,
            Backing::Watched => self.notes()?.leave(address, length)?,
            Backing::Memory => {}
        }
        self.backing[as_usize.clone()].fill(Backing::Memory);
        if to == Backing::Watched {
            self.notes()?.watch(address, length)?;
            self.notes()?.begin(address, length)?;
            self.backing[as_usize].fill(Backing::Watched);
        }
        Ok(())
    }

    fn notes(&self) -> OsResult<&crossdock_os::userfault::WriteTracker> {
        self.detector.notes().ok_or_else(|| OsError::last("userfaultfd", "none is open"))
    }

    /// Chooses another method after the kernel refused the kind of memory that the present method needs.
    fn cannot_change(&mut self, goal: Backing, error: &OsError) {
        match goal {
            Backing::Slot => self.leave_pool(error),
            Backing::Watched => {
                self.detector.give_up(Method::WriteProtect, error.to_string());
                self.detector.method = Method::CopyAll;
            }
            // The system has no memory left, so these chunks stay private mappings of their slots. The next publish
            // asks the kernel which of their pages changed, or copies the chunks whole.
            Backing::Memory => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::StandaloneHost;
    use crate::series::{Detect, Identity, Spec, Variable};
    use crossdock_os::testing::Random;
    use std::sync::Arc;

    const NUMBERS: usize = 6 << 20 >> 3;

    fn publisher() -> Publisher {
        publisher_with(Detect::WriteProtect)
    }

    fn publisher_with(detect: Detect) -> Publisher {
        let (one, other) = (Variable::new("a", "u64", &[1000]), Variable::new("u", "u64", &[NUMBERS as u64]));
        let spec = Spec { detect, ..Spec::of(vec![one, other]) };
        Publisher::create(Identity::alone("s"), &spec, Arc::new(StandaloneHost::default())).unwrap().0
    }

    fn wants(publisher: &mut Publisher, goal: Backing) {
        publisher.detector.method = match goal {
            Backing::Memory => Method::CopyAll,
            Backing::Watched => Method::WriteProtect,
            Backing::Slot => Method::PrivateCopies,
        };
        publisher.settled = false;
    }

    /// Checks that both the newest version and the program's memory hold the numbers in `model`.
    fn check(publisher: &mut Publisher, model: &[u64]) {
        let chunk = publisher.pool.chunk();
        for (index, bytes) in publisher.fields[1].table().zip(model.chunks(chunk / 8)) {
            let slot = publisher.pool.slot(publisher.current[index as usize]);
            // SAFETY: the bytes are a whole slot of the pool, which no thread writes now.
            let there = unsafe { std::slice::from_raw_parts(slot.cast::<u64>(), bytes.len()) };
            assert!(there == bytes, "chunk {index} as published");
        }
        assert!(publisher.elements::<u64>("u").unwrap() == model, "the program's own");
    }

    #[test]
    fn whatever_lies_there_and_however_much_of_it_was_changed_over_nothing_is_lost() {
        let mut publisher = publisher();
        if !publisher.detector.has(Method::WriteProtect) {
            return crossdock_os::testing::skip("write-protection");
        }
        let mut model = vec![0u64; NUMBERS];
        let mut random = Random(1);
        let all = [Backing::Memory, Backing::Watched, Backing::Slot];
        for (step, (from, to)) in (1u64..).zip(all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to)))) {
            for partly in [false, true] {
                publisher.publish(&[]).unwrap();
                wants(&mut publisher, from);
                while !publisher.settled {
                    publisher.change_over();
                }
                assert!(publisher.backing[..publisher.chunks() as usize].iter().all(|backing| *backing == from));
                // These writes cause the kernel to make private copies of some pages, and of all pages of one chunk.
                for n in (0..NUMBERS).step_by(512 * 7).chain(1 << 14..1 << 15) {
                    model[n] = step;
                    publisher.elements::<u64>("u").unwrap()[n] = step;
                }
                publisher.publish(&[]).unwrap();
                check(&mut publisher, &model);
                wants(&mut publisher, from);
                while !publisher.settled {
                    publisher.change_over();
                }
                wants(&mut publisher, to);
                publisher.change_over();
                while !publisher.settled && !partly {
                    publisher.change_over();
                }
                for _ in 0..50 {
                    let n = random.below(NUMBERS);
                    model[n] = random.number();
                    publisher.elements::<u64>("u").unwrap()[n] = model[n];
                }
                publisher.publish(&[]).unwrap();
                check(&mut publisher, &model);
            }
        }
    }

    #[test]
    fn a_hint_that_names_too_little_costs_the_program_none_of_its_own_data() {
        let mut publisher = publisher_with(Detect::Auto);
        if !publisher.detector.has(Method::PrivateCopies) {
            return crossdock_os::testing::skip("private-copies");
        }
        for goal in [Backing::Slot, Backing::Watched] {
            if goal == Backing::Watched && !publisher.detector.has(Method::WriteProtect) {
                return crossdock_os::testing::skip("write-protection");
            }
            publisher.elements::<u64>("u").unwrap().fill(1);
            publisher.publish(&[]).unwrap();
            wants(&mut publisher, Backing::Memory);
            while !publisher.settled {
                publisher.change_over();
            }
            // All chunks have ordinary memory now. The publisher is to change them to the kind `goal`, but has not
            // changed any chunk yet when the program writes all chunks. The program's hint names only the first chunk.
            wants(&mut publisher, goal);
            publisher.elements::<u64>("u").unwrap().fill(2);
            publisher.touched("u", 0..8).unwrap();
            publisher.publish(&[]).unwrap();
            assert!(publisher.elements::<u64>("u").unwrap().iter().all(|n| *n == 2), "{goal:?}");
            publisher.publish(&[]).unwrap();
            check(&mut publisher, &vec![2; NUMBERS]);
        }
    }

    #[test]
    fn a_chunk_whose_pages_were_all_written_becomes_memory_without_a_call() {
        let mut publisher = publisher();
        if !publisher.detector.has(Method::PrivateCopies) {
            return crossdock_os::testing::skip("private-copies");
        }
        publisher.publish(&[]).unwrap();
        wants(&mut publisher, Backing::Slot);
        while !publisher.settled {
            publisher.change_over();
        }
        publisher.elements::<u64>("u").unwrap().fill(3);
        let found = publisher.find_changes();
        assert_eq!(found.method, Method::PrivateCopies);
        publisher.detector.method = Method::CopyAll;
        publisher.make_room(publisher.pending.count()).unwrap();
        let taken = publisher.take_slots();
        publisher.follow_up(&taken, found.dirty.as_deref());
        let table = publisher.fields[1].table();
        let whole = &publisher.backing[table.start as usize..table.end as usize];
        assert!(whole.iter().all(|backing| *backing == Backing::Memory), "{whole:?}");
        assert_eq!(publisher.backing[0], Backing::Slot, "of which nothing was written");
    }

    #[test]
    fn a_chunk_that_leaves_its_slot_has_nothing_of_it() {
        let mut publisher = publisher();
        if !publisher.detector.has(Method::WriteProtect) {
            return crossdock_os::testing::skip("write-protection");
        }
        let mut model: Vec<u64> = (0..NUMBERS as u64).collect();
        publisher.elements::<u64>("u").unwrap().copy_from_slice(&model);
        publisher.publish(&[]).unwrap();
        wants(&mut publisher, Backing::Slot);
        while !publisher.settled {
            publisher.change_over();
        }
        // Writes most pages of one third of the chunks, a few pages of another third, and all pages of the rest. The
        // publisher was declared with write protection, and the test has set the method of private copies instead
        // (`wants`). So the next publish goes back to write protection.
        let chunk = publisher.pool.chunk() / 8;
        for n in (0..NUMBERS).filter(|n| (n / 512) % (chunk / 512) < [12, 3, 16][n / chunk % 3]) {
            model[n] += 1;
            publisher.elements::<u64>("u").unwrap()[n] += 1;
        }
        let old: Vec<u32> = publisher.fields[1].table().map(|index| publisher.current[index as usize]).collect();
        publisher.publish(&[]).unwrap();
        assert_eq!(publisher.versions(), 1, "the old version's slots are free");
        for slot in old {
            // SAFETY: the range is a whole slot that no version uses, so no observer reads it and the publisher may
            // overwrite it.
            unsafe { publisher.pool.slot(slot).write_bytes(0xee, chunk * 8) };
        }
        check(&mut publisher, &model);
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_resize_that_fails_leaves_all_of_the_variable_as_it_was() {
        if !publisher().detector.has(Method::PrivateCopies) {
            return crossdock_os::testing::skip("private-copies");
        }
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let mut publisher = publisher();
            let model: Vec<u64> = (1..=NUMBERS as u64).collect();
            publisher.elements::<u64>("u").unwrap().copy_from_slice(&model);
            publisher.publish(&[]).unwrap();
            wants(&mut publisher, Backing::Slot);
            while !publisher.settled {
                publisher.change_over();
            }
            attempt.arm();
            let resized = publisher.resize("u", &[NUMBERS as u64 / 3]);
            let failed = attempt.disarm();
            assert_eq!(resized.is_err(), failed.is_some(), "{failed:?}");
            publisher.publish(&[]).unwrap();
            check(&mut publisher, if failed.is_some() { &model } else { &model[..NUMBERS / 3] });
        });
        assert!(seen.contains("mmap"), "{seen:?}");
    }
}
