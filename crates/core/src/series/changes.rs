//! Finds which chunks changed and which fraction of the data changed, by the method that the publisher has chosen.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crossdock_layout::series::NO_SLOT;

use super::backing::Backing;
use super::detector::Changing;
use super::publisher::Publisher;
use super::spec::Method;

const PAGE: usize = 4096;
/// How many chunks one call of `piece` compares. `piece` is the function that the program's thread pool calls.
const PIECE: usize = 64;
/// From this number of bytes on, the program's thread pool takes part in the comparison.
const LARGE: usize = 8 << 20;

/// The result of a search for changes.
pub(super) struct FoundChanges {
    /// The method by which most changes were found.
    pub method: Method,
    /// Some chunks of the variables are private mappings of slots. This list has the pages of those chunks that the
    /// program has written, so that they are private copies of this process. `None` if the kernel could not say which
    /// pages these are.
    pub dirty: Option<Vec<Range<usize>>>,
}

/// How many chunks and bytes of a version were examined, by which method, and how many pages had changed.
#[derive(Default)]
struct SearchCounts {
    /// For each of three methods, the number of chunks that it examined: private copies (`private`), write protection
    /// (`protect`), and comparing (`compared`).
    private: u32,
    protect: u32,
    compared: u32,
    /// The number of bytes that were compared, and the nanoseconds that this took.
    compared_bytes: u64,
    compared_ns: f64,
    /// The number of chunks for which no method could tell whether they changed.
    unknown: u32,
    /// The number of changed pages in those chunks for which the changes are known.
    pages: usize,
}

impl Publisher {
    /// Finds the chunks that changed since the last version and adds them to `pending`, the set of changed chunks.
    pub(super) fn find_changes(&mut self) -> FoundChanges {
        // A chunk that is in no version yet always counts as changed.
        for field in &self.fields {
            let table = field.table();
            let slots = &self.current[table.start as usize..table.end as usize];
            // Most versions have no such chunk. `contains` finds this out several times faster than the loop below.
            if slots.contains(&NO_SLOT) {
                let fresh = table.zip(slots).filter(|(_, slot)| **slot == NO_SLOT);
                fresh.for_each(|(index, _)| self.pending.insert(index));
            }
        }
        let hints = self.hinted && !self.unsearched && self.detector.detect_allows_hints();
        if hints || self.detector.method == Method::Hints {
            return FoundChanges { method: Method::Hints, dirty: None };
        }
        let (mut looked, mut dirty) = (SearchCounts::default(), Some(Vec::new()));
        for index in 0..self.fields.len() {
            for (part, backing) in self.backings(self.fields[index].table()) {
                self.look(index, part, backing, &mut looked, &mut dirty);
            }
        }
        if looked.protect > 0 && self.detector.has_blind_writes() {
            for index in 0..self.fields.len() {
                for (part, backing) in self.backings(self.fields[index].table()) {
                    if backing == Backing::Watched {
                        self.compare(index, part, &mut looked);
                    }
                }
            }
            looked.compared = 0;
        }
        // The ranges have to be sorted, because the variables need not lie in memory in the order of their declaration.
        if let Some(dirty) = &mut dirty {
            dirty.sort_by_key(|range| range.start);
        }
        let all = f64::from(self.chunks()).max(1.0);
        if looked.compared_bytes >= 1 << 16 {
            let cost = looked.compared_ns / looked.compared_bytes as f64;
            super::costs::learn(&mut self.detector.costs.compare_byte, cost);
        }
        if self.counts.withheld_now > 0 {
            // After a withheld version, the set `pending` has the changes of several steps. So its size does not tell
            // how much changes in one step.
        } else if looked.unknown == 0 {
            let chunks = f64::from(self.pending.count()) / all;
            // A comparison stops at the first difference in a chunk. So all pages of such a chunk count as changed.
            let pages = (looked.pages * PAGE) as f64 / (all * self.pool.chunk() as f64);
            self.detector.note(Changing { chunks, pages });
        } else if self.sequence > 0 {
            self.sample();
        }
        let ways = [
            (looked.protect, Method::WriteProtect),
            (looked.private, Method::PrivateCopies),
            (looked.compared, Method::Compare),
            (looked.unknown, Method::CopyAll),
        ];
        // Gives the method that examined the most chunks. If several examined the same number, the last one in the list
        // counts.
        let method = ways.into_iter().max_by_key(|(chunks, _)| *chunks).map_or(Method::CopyAll, |(_, method)| method);
        FoundChanges { method, dirty }
    }

    /// Finds which pages in a range of one variable's chunks changed, by asking the kernel or by comparing. If the
    /// kernel cannot tell, the whole range counts as changed.
    fn look(
        &mut self,
        field: usize,
        part: Range<u32>,
        backing: Backing,
        looked: &mut SearchCounts,
        dirty: &mut Option<Vec<Range<usize>>>,
    ) {
        let (chunk, first) = (self.pool.chunk(), self.fields[field].span.first);
        let chunks = part.len() as u32;
        let method = match backing {
            Backing::Slot => Method::PrivateCopies,
            Backing::Watched => Method::WriteProtect,
            Backing::Memory if self.detector.method == Method::Compare => {
                self.compare(field, part, looked);
                return;
            }
            Backing::Memory => Method::CopyAll,
        };
        let start = self.fields[field].address(part.start - first, chunk) as usize;
        let mut found = Vec::new();
        let answer = match method {
            Method::CopyAll => None,
            _ if !self.detector.has(method) => None,
            _ => Some(self.detector.scan(start..start + part.len() * chunk, method, &mut found)),
        };
        if let Some(Err(error)) = &answer {
            self.detector.give_up(method, error.to_string());
            self.detector.method = Method::CopyAll;
            self.settled = false;
        }
        if !matches!(answer, Some(Ok(()))) {
            self.pending.insert_range(part);
            looked.unknown += chunks;
            if backing == Backing::Slot {
                *dirty = None;
            }
            return;
        }
        for range in &found {
            let (from, to) = ((range.start - start) / chunk, (range.end - start).div_ceil(chunk));
            self.pending.insert_range(part.start + from as u32..part.start + to as u32);
            looked.pages += range.len() / PAGE;
        }
        match method {
            Method::PrivateCopies => {
                looked.private += chunks;
                if let Some(dirty) = dirty {
                    dirty.append(&mut found);
                }
            }
            _ => looked.protect += chunks,
        }
    }

    /// Compares chunks of one variable with the newest version. Chunks that are already known to have changed are not
    /// compared.
    fn compare(&mut self, field: usize, part: Range<u32>, looked: &mut SearchCounts) {
        let (chunk, first) = (self.pool.chunk(), self.fields[field].span.first);
        looked.compared += part.len() as u32;
        let asked: Vec<u32> = part.filter(|index| !self.pending.has(*index)).collect();
        let here = |index: u32| {
            let slot = self.pool.slot(self.current[index as usize]);
            // SAFETY: the call reads two whole chunks. One is in the variable's memory, which the program does not
            // write during a publish. The other is a slot of the newest version, which the publisher does not write.
            unsafe { same(self.fields[field].address(index - first, chunk), slot, chunk) }
        };
        let differs: Vec<AtomicBool> = asked.iter().map(|_| AtomicBool::new(false)).collect();
        let pieces = asked.len().div_ceil(PIECE);
        let piece = |n: usize| {
            for at in n * PIECE..((n + 1) * PIECE).min(asked.len()) {
                differs[at].store(!here(asked[at]), Relaxed);
            }
        };
        let started = Instant::now();
        match &self.runner {
            Some(runner) if asked.len() * chunk >= LARGE => runner.run(pieces, &piece),
            _ => (0..pieces).for_each(piece),
        }
        looked.compared_ns += started.elapsed().as_nanos() as f64;
        let mut changed = 0u64;
        for (index, differs) in asked.iter().zip(&differs) {
            if differs.load(Relaxed) {
                self.pending.insert(*index);
                looked.pages += chunk / PAGE;
                changed += 1;
            }
        }
        looked.compared_bytes += (asked.len() as u64 * 2 - changed) * chunk as u64 / 2;
    }

    /// Compares a few chunks with the last version, to estimate how much of the data changes. The publisher does this
    /// while it copies all chunks without searching for changes.
    fn sample(&mut self) {
        let total = self.chunks();
        if !self.detector.wants_samples() || total < 4 {
            return;
        }
        let chunk = self.pool.chunk();
        let wanted = (total / 64).clamp(4, 64);
        let (mut looked, mut changed, mut pages) = (0u32, 0u32, 0usize);
        // The chunks are divided into stretches of equal length. In each publish, one chunk of each stretch is
        // examined, at a random position. With fixed positions, a regular pattern of changes could be missed.
        let mut random = self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for n in 0..wanted {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (from, to) = (u64::from(n) * u64::from(total), u64::from(n + 1) * u64::from(total));
            let (from, to) = (from / u64::from(wanted), to / u64::from(wanted));
            let mut index = (from + random % (to - from).max(1)) as u32;
            let Some(field) = self.fields.iter().find(|field| {
                let here = index < field.chunks;
                if !here {
                    index -= field.chunks;
                }
                here
            }) else {
                continue;
            };
            let slot = self.current[(field.span.first + index) as usize];
            if slot == NO_SLOT {
                continue;
            }
            looked += 1;
            let differing = differing_pages(field.address(index, chunk), self.pool.slot(slot), chunk);
            changed += u32::from(differing > 0);
            pages += differing;
        }
        if looked > 0 {
            let seen = f64::from(looked);
            let pages = (pages * PAGE) as f64 / (seen * chunk as f64);
            self.detector.note(Changing { chunks: f64::from(changed) / seen, pages });
        }
    }
}

/// # Safety
/// Both ranges must be readable for `length` bytes, and no thread may write to them during the call.
unsafe fn same(here: *const u8, there: *const u8, length: usize) -> bool {
    // SAFETY: the caller promises that both ranges are readable and that no thread writes to them.
    unsafe { std::slice::from_raw_parts(here, length) == std::slice::from_raw_parts(there, length) }
}

fn differing_pages(here: *const u8, there: *const u8, length: usize) -> usize {
    let page = |address: *const u8, n: usize| {
        // SAFETY: the page lies within a whole chunk of memory that no thread writes while the publisher publishes.
        unsafe { std::slice::from_raw_parts(address.add(n * PAGE), PAGE) }
    };
    (0..length / PAGE).filter(|n| page(here, *n) != page(there, *n)).count()
}
