//! Copying the changed chunks to fresh slots.

use std::ops::Range;
use std::time::Instant;

use crossdock_layout::series::NO_SLOT;
use crossdock_os::copy;

use super::backing::Backing;
use super::publisher::Publisher;
use super::slots::SlotRun;
use crate::fault_point;

/// The approximate number of bytes of one piece of a copy. A copy is cut into pieces so that several threads can share
/// it.
const PIECE: usize = 4 << 20;

/// A run of consecutive slots that were just taken from the free ones, for chunks of one variable.
#[derive(Clone, Copy)]
pub(super) struct FreshSlots {
    pub field: usize,
    /// The number of the first chunk within the variable.
    pub chunk: u32,
    pub run: SlotRun,
}

#[derive(Clone, Copy)]
struct CopyPiece {
    to: usize,
    from: usize,
    length: usize,
}

impl Publisher {
    /// Takes fresh slots for all changed chunks. The caller has made sure that enough slots are free.
    pub(super) fn take_slots(&mut self) -> Vec<FreshSlots> {
        let mut taken = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            for (first, count) in self.pending.runs(field.table()) {
                let (mut chunk, mut left) = (first - field.span.first, count);
                while left > 0 {
                    let run = self.slots.take(left, chunk).expect("room was made for all of them");
                    taken.push(FreshSlots { field: index, chunk, run });
                    chunk += run.count;
                    left -= run.count;
                }
            }
        }
        taken
    }

    /// Copies the changed chunks to their fresh slots.
    ///
    /// For chunks that are private mappings of slots, `dirty` has the pages that are private copies; it is `None` if
    /// the kernel could not say which. The other pages of such a chunk are unchanged. They are read in the old slot,
    /// because a read at the variable's addresses may first have to fill page table entries.
    pub(super) fn copy_changes(&mut self, taken: &[FreshSlots], dirty: Option<&[Range<usize>]>) {
        let chunk = self.pool.chunk();
        let mut pieces: Vec<CopyPiece> = Vec::new();
        for FreshSlots { field, chunk: first, run } in taken {
            let field = &self.fields[*field];
            for n in 0..run.count {
                let from = field.address(first + n, chunk) as usize;
                let to = self.pool.slot(run.first + n) as usize;
                let index = (field.span.first + first + n) as usize;
                let old = self.current[index];
                match dirty {
                    Some(dirty) if self.backing[index] == Backing::Slot && old != NO_SLOT => {
                        add_mixed(&mut pieces, to, from, self.pool.slot(old) as usize, chunk, dirty);
                    }
                    _ => add(&mut pieces, to, from, chunk),
                }
            }
        }
        let bytes: usize = pieces.iter().map(|piece| piece.length).sum();
        let mode = self.tuner.choose(bytes);
        let started = Instant::now();
        let copy = |n: usize| {
            let CopyPiece { to, from, length } = pieces[n];
            if n == pieces.len() / 2 {
                fault_point!("series.publish.half");
            }
            // SAFETY: `from` lies in a variable's memory or in a slot of the newest version. `to` lies in slots that
            // were just taken. No version has these slots, so no observer reads them. Both ranges stay mapped as long
            // as `self` exists.
            unsafe { copy::copy(to as *mut u8, from as *const u8, length, mode) };
        };
        match &self.runner {
            Some(runner) if bytes >= 2 * PIECE => runner.run(pieces.len(), &copy),
            _ => (0..pieces.len()).for_each(copy),
        }
        if bytes > 0 {
            let took = started.elapsed().as_nanos() as f64;
            self.tuner.learn(mode, bytes, took);
            if bytes >= 1 << 16 {
                super::costs::learn(&mut self.detector.costs.copy_byte, took / bytes as f64);
            }
        }
    }
}

/// Adds a piece to the list. If the piece begins where the last piece ends, in the source and in the target, the two
/// become one piece.
fn add(pieces: &mut Vec<CopyPiece>, to: usize, from: usize, length: usize) {
    match pieces.last_mut() {
        Some(last) if last.to + last.length == to && last.from + last.length == from && last.length < PIECE => {
            last.length += length;
        }
        _ => pieces.push(CopyPiece { to, from, length }),
    }
}

/// Adds the pieces for a chunk of which only some pages are private copies: the private copies are read at `from`, the
/// other pages at `old`.
fn add_mixed(pieces: &mut Vec<CopyPiece>, to: usize, from: usize, old: usize, chunk: usize, dirty: &[Range<usize>]) {
    let mut at = 0;
    let first = dirty.partition_point(|range| range.end <= from);
    for range in dirty[first..].iter().take_while(|range| range.start < from + chunk) {
        let (start, end) = (range.start.max(from) - from, range.end.min(from + chunk) - from);
        if at < start {
            add(pieces, to + at, old + at, start - at);
        }
        add(pieces, to + start, from + start, end - start);
        at = end;
    }
    if at < chunk {
        add(pieces, to + at, old + at, chunk - at);
    }
}
