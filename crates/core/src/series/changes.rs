//! Finding what changed, by the way that is chosen at present; and how much it was.

use std::ops::Range;

use crossdock_layout::series::NO_SLOT;

use super::backing::Backing;
use super::finder::Changing;
use super::publisher::Publisher;
use super::spec::Method;

const PAGE: usize = 4096;

/// What a look found.
pub(super) struct Found {
    /// The way by which most was found.
    pub method: Method,
    /// Of the chunks that are slots', the pages that are private copies; `None` where nobody knows.
    pub dirty: Option<Vec<Range<usize>>>,
}

/// How the chunks of a version were looked at.
#[derive(Default)]
struct Looked {
    /// Chunks whose changes were found in either way.
    private: u32,
    protect: u32,
    /// Chunks of which nothing is known.
    unknown: u32,
    /// Pages that changed, where that is known.
    pages: usize,
}

impl Publisher {
    /// Adds to the list what changed since the last version.
    pub(super) fn find_changes(&mut self) -> Found {
        // Chunks that no version has yet, whatever else is known.
        for field in &self.fields {
            for index in field.table() {
                if self.current[index as usize] == NO_SLOT {
                    self.pending.insert(index);
                }
            }
        }
        let hints = self.hinted && self.finder.detect_allows_hints();
        if hints || self.finder.method == Method::Hints {
            return Found { method: Method::Hints, dirty: None };
        }
        let (mut looked, mut dirty) = (Looked::default(), Some(Vec::new()));
        for index in 0..self.fields.len() {
            for (part, backing) in self.backings(self.fields[index].table()) {
                self.look(index, part, backing, &mut looked, &mut dirty);
            }
        }
        // The variables need not lie in memory in the order of their declaration.
        if let Some(dirty) = &mut dirty {
            dirty.sort_by_key(|range| range.start);
        }
        let all = f64::from(self.chunks()).max(1.0);
        if looked.unknown == 0 {
            let chunks = f64::from(self.pending.count()) / all;
            let pages = (looked.pages * PAGE) as f64 / (all * self.pool.chunk() as f64);
            self.finder.note(Changing { chunks, pages });
        } else if self.sequence > 0 {
            self.sample();
        }
        let method = match looked {
            Looked { unknown, private, protect, .. } if unknown >= private.max(protect) => Method::CopyAll,
            Looked { private, protect, .. } if private > protect => Method::PrivateCopies,
            _ => Method::WriteProtect,
        };
        Found { method, dirty }
    }

    /// Asks the kernel which pages of a part of a variable changed, where it knows; all of it did where it does not.
    fn look(
        &mut self,
        field: usize,
        part: Range<u32>,
        backing: Backing,
        looked: &mut Looked,
        dirty: &mut Option<Vec<Range<usize>>>,
    ) {
        let (chunk, first) = (self.pool.chunk(), self.fields[field].span.first);
        let chunks = part.len() as u32;
        let method = match backing {
            Backing::Slot => Method::PrivateCopies,
            Backing::Watched => Method::WriteProtect,
            Backing::Memory => Method::CopyAll,
        };
        let start = self.fields[field].address(part.start - first, chunk) as usize;
        let mut found = Vec::new();
        let answer = match method {
            Method::CopyAll => None,
            _ if !self.finder.has(method) => None,
            _ => Some(self.finder.scan(start..start + part.len() * chunk, method, &mut found)),
        };
        if let Some(Err(error)) = &answer {
            self.finder.give_up(method, error.to_string());
            self.finder.method = Method::CopyAll;
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

    /// Compares a few chunks with the version before: how much changes, where everything is copied anyway.
    fn sample(&mut self) {
        let total = self.chunks();
        if !self.finder.wants_samples() || total < 4 {
            return;
        }
        let chunk = self.pool.chunk();
        let wanted = (total / 64).clamp(4, 64);
        let (mut looked, mut changed, mut pages) = (0u32, 0u32, 0usize);
        // A different place in each stretch at each step, so that no pattern hides.
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
            self.finder.note(Changing { chunks: f64::from(changed) / seen, pages });
        }
    }
}

fn differing_pages(here: *const u8, there: *const u8, length: usize) -> usize {
    let page = |address: *const u8, n: usize| {
        // SAFETY: both are whole chunks of memory that nobody writes while the publisher publishes.
        unsafe { std::slice::from_raw_parts(address.add(n * PAGE), PAGE) }
    };
    (0..length / PAGE).filter(|n| page(here, *n) != page(there, *n)).count()
}
