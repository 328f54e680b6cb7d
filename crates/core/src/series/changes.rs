//! Finding what changed, by the way that is chosen at present; and how much it was.

use std::ops::Range;

use crossdock_layout::series::NO_SLOT;

use super::finder::Changing;
use super::publisher::Publisher;
use super::spec::Method;

const PAGE: usize = 4096;

impl Publisher {
    /// Adds to the list what changed since the last version. Gives the way used, and the pages that are private copies.
    pub(super) fn find_changes(&mut self) -> (Method, Vec<Range<usize>>) {
        // Chunks that no version has yet, whatever else is known.
        for field in &self.fields {
            for index in field.table() {
                if self.current[index as usize] == NO_SLOT {
                    self.pending.insert(index);
                }
            }
        }
        let hints = self.hinted && self.finder.detect_allows_hints();
        let method = match self.finder.method {
            _ if hints => Method::Hints,
            Method::Hints => Method::Hints,
            _ if self.pool_backed && self.finder.has(Method::PrivateCopies) => Method::PrivateCopies,
            Method::WriteProtect if !self.pool_backed => Method::WriteProtect,
            _ => Method::CopyAll,
        };
        let mut dirty = Vec::new();
        let found = match method {
            Method::Hints => true,
            Method::PrivateCopies | Method::WriteProtect => self.scan(method, &mut dirty),
            _ => false,
        };
        if !found {
            if method == Method::CopyAll && self.sequence > 0 {
                self.sample();
            }
            for field in &self.fields {
                self.pending.insert_range(field.table());
            }
            return (Method::CopyAll, Vec::new());
        }
        (method, dirty)
    }

    /// Asks the kernel which pages changed; `false` where it fails after all.
    fn scan(&mut self, method: Method, dirty: &mut Vec<Range<usize>>) -> bool {
        let chunk = self.pool.chunk();
        let (mut found, mut pages) = (Vec::new(), 0);
        for field in self.fields.iter().filter(|field| field.chunks > 0) {
            let addresses = field.addresses(chunk);
            if let Err(error) = self.finder.scan(addresses.clone(), method, &mut found) {
                self.finder.give_up(method, error.to_string());
                return false;
            }
            for range in &found {
                let (from, to) =
                    ((range.start - addresses.start) / chunk, (range.end - addresses.start).div_ceil(chunk));
                self.pending.insert_range(field.span.first + from as u32..field.span.first + to as u32);
                pages += range.len() / PAGE;
            }
            if method == Method::PrivateCopies {
                dirty.append(&mut found);
            }
        }
        // The variables need not lie in memory in the order of their declaration.
        dirty.sort_by_key(|range| range.start);
        let all = f64::from(self.chunks()).max(1.0);
        let chunks = f64::from(self.pending.count()) / all;
        let pages = (pages * PAGE) as f64 / (all * chunk as f64);
        self.finder.note(Changing { chunks, pages });
        true
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
