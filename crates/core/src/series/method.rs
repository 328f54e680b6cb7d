//! The work after a publish: the publisher prepares the variables' memory for the next step, and switches to another
//! method of finding changes if that pays. During this work the program does not write to the variables. The variables'
//! addresses stay the same.

use std::ops::Range;

use crossdock_layout::Status;
use crossdock_os::{OsError, OsResult};

use super::backing::Backing;
use super::copy::FreshSlots;
use super::publisher::Publisher;
use super::slots::SlotRun;
use super::spec::Method;
use crate::fault_point;

impl Publisher {
    /// The memory of some chunks is a private mapping of their slots. This publish has copied some of those chunks to
    /// fresh slots (`taken`). This function maps the fresh slots at the addresses of those chunks, or gives the chunks
    /// ordinary memory, because the old slots may be overwritten as soon as no version uses them. `dirty` lists the
    /// pages that are private copies, as in [`Self::copy_changes`].
    pub(super) fn follow_up(&mut self, taken: &[FreshSlots], dirty: Option<&[Range<usize>]>) {
        let chunk = self.pool.chunk();
        let leaves = self.goal().is_some_and(|goal| goal != Backing::Slot);
        // Neighbouring chunks whose slots also follow each other become one mapping.
        let mut runs: Vec<FreshSlots> = Vec::new();
        for FreshSlots { field, chunk: first, run } in taken {
            for n in 0..run.count {
                let index = (self.fields[*field].span.first + first + n) as usize;
                if self.backing[index] != Backing::Slot {
                    continue;
                }
                let start = self.fields[*field].address(first + n, chunk) as usize;
                let written = dirty.filter(|_| leaves).map_or(0, |dirty| written(dirty, start..start + chunk));
                // If every page of the chunk is a private copy, the chunk is ordinary memory already. If at least half
                // of the pages are private copies, it costs less to copy the remaining pages than to map the fresh
                // slot.
                let reservation = &self.fields[*field].reservation;
                let make_own = || reservation.make_own((first + n) as usize * chunk, chunk).is_ok();
                if written == chunk || (2 * written >= chunk && make_own()) {
                    self.backing[index] = Backing::Memory;
                    continue;
                }
                match runs.last_mut() {
                    Some(last)
                        if last.field == *field
                            && last.chunk + last.run.count == first + n
                            && last.run.first + last.run.count == run.first + n =>
                    {
                        last.run.count += 1;
                    }
                    _ => {
                        let run = SlotRun { first: run.first + n, count: 1 };
                        runs.push(FreshSlots { field: *field, chunk: first + n, run });
                    }
                }
            }
        }
        let started = std::time::Instant::now();
        let count = runs.len();
        let descriptor = self.descriptor.clone();
        let descriptor = match descriptor.proved_if_in_doubt() {
            Ok(descriptor) => descriptor,
            Err(error) => return self.leave_pool(&error),
        };
        for (n, FreshSlots { field, chunk: first, run }) in runs.into_iter().enumerate() {
            let (at, length) = (first as usize * chunk, run.count as usize * chunk);
            let from = self.pool.geometry().slot(run.first);
            if let Err(error) = self.fields[field].reservation.put_private(at, length, descriptor, from) {
                return self.leave_pool(&error);
            }
            if n == count / 2 {
                fault_point!("series.publish.tracked");
            }
        }
        if count >= 16 {
            let cost = started.elapsed().as_nanos() as f64 / count as f64;
            super::costs::learn(&mut self.detector.costs.map_run, cost);
        }
    }

    /// Moves the variables' data to ordinary memory, with one mapping for each variable. The caller found that the
    /// kernel refuses further mappings (a process may have 65530). Chunks that are still mapped to their old slots show
    /// the right data, because no slot can be overwritten before the publisher retires a version.
    pub(super) fn leave_pool(&mut self, error: &OsError) {
        self.detector.give_up(Method::PrivateCopies, error.to_string());
        self.detector.method = Method::CopyAll;
        self.settled = false;
        let chunk = self.pool.chunk();
        for field in 0..self.fields.len() {
            let table = self.fields[field].table();
            let table = table.start as usize..table.end as usize;
            if !self.backing[table.clone()].contains(&Backing::Slot) {
                continue;
            }
            if let Err(error) = self.fields[field].turn_into_memory(chunk) {
                let text =
                    format!("its variables' memory could not be kept apart from the pool ({error}); end the series");
                self.broken = Some(self.error(Status::System, text));
                return;
            }
            self.backing[table].fill(Backing::Memory);
        }
    }

    /// Switches to another method of finding changes if that method costs less than the present method. Later publishes
    /// then change the memory at the variables' addresses, step by step, to the kind that the new method needs.
    pub(super) fn choose_method(&mut self) {
        if let Some(method) = self.detector.choose(self.chunks(), self.version_bytes()) {
            self.detector.method = method;
            self.detector.switches += 1;
            self.settled = false;
        }
    }

    /// Maps the newest version's slots privately over the variables' addresses. Gives the number of mappings made.
    pub(super) fn put_pool_behind(&mut self) -> OsResult<u32> {
        self.watch_children()?;
        let mut mapped = 0;
        for field in &self.fields {
            // Even if the call of `put_slots` fails, it may have mapped some of the chunks to their slots. So all
            // chunks are noted as mapped slots before the call.
            let table = field.table();
            self.backing[table.start as usize..table.end as usize].fill(Backing::Slot);
            let descriptor = self.descriptor.proved_if_in_doubt()?;
            mapped += field.put_slots(0..field.chunks, &self.current, &self.pool, descriptor)?;
        }
        Ok(mapped)
    }
}

/// The number of bytes of `within` that lie in `ranges`. The ranges must be sorted.
fn written(ranges: &[Range<usize>], within: Range<usize>) -> usize {
    let first = ranges.partition_point(|range| range.end <= within.start);
    let here = ranges[first..].iter().take_while(|range| range.start < within.end);
    here.map(|range| range.end.min(within.end) - range.start.max(within.start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_of_a_chunk_is_counted_within_it() {
        let ranges = [0..10, 20..40, 50..90];
        let counted = [0..10, 5..25, 10..20, 30..60, 90..99, 0..99].map(|within| written(&ranges, within));
        assert_eq!(counted, [10, 10, 0, 20, 0, 70]);
        assert_eq!(written(&[], 0..10), 0);
    }
}
