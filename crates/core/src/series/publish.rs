//! Publishing: find what changed, make room, copy it to fresh slots, write the record, show it.
//!
//! Up to the store of `latest` nobody sees any of it. A publish that finds no room has lost nothing: what it had found
//! stays on the list, and the next publish carries it. A publisher that dies anywhere leaves the versions that it had
//! shown; the record that it was filling is none.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use crossdock_layout::Status;
use crossdock_layout::series::state::{Latest, MAX_SEQUENCE};
use crossdock_layout::series::{KIND_NONE, MAX_ATTRIBUTES, NO_SLOT};
use crossdock_os::{clock, copy, futex};

use super::describe::write_attribute;
use super::finder::Changing;
use super::pool::store_value;
use super::protocol;
use super::publisher::Publisher;
use super::slots::Run;
use super::spec::{AttributeSpec, Method, Value, check_value};
use crate::{Result, fault_point};

/// Pieces of a copy are at most this large, so that threads can share it.
const PIECE: usize = 4 << 20;
const PAGE: usize = 4096;

/// Fresh slots for chunks of one variable.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub field: usize,
    /// The first chunk, within the variable.
    pub chunk: u32,
    pub run: Run,
}

#[derive(Clone, Copy)]
struct Piece {
    to: usize,
    from: usize,
    length: usize,
}

impl Publisher {
    /// Makes what the variables hold now a version, and gives its sequence. Never waits for an observer.
    ///
    /// `attributes` are its own; one that was not declared is declared by this call while there is room for it.
    ///
    /// # Errors
    /// `NO_SPACE`: the pool is full (see [`super::FullPolicy`]); nothing is lost, the next publish carries the changes too.
    /// `WRONG_TYPE`, `INVALID`: an attribute's value. `SYSTEM`.
    pub fn publish(&mut self, attributes: &[(&str, Value)]) -> Result<u64> {
        let started = Instant::now();
        self.check_use()?;
        let columns = self.columns(attributes)?;
        if self.sequence >= MAX_SEQUENCE {
            return Err(self.error(Status::NoSpace, "it has had all the versions that there are numbers for"));
        }
        let published = if self.begun {
            self.publish_begun(&columns, attributes)
        } else {
            self.publish_in_place(&columns, attributes)
        };
        if let Err(error) = &published {
            self.counts.no_space += u64::from(error.status == Status::NoSpace);
        } else {
            self.counts.last = started.elapsed();
            self.counts.longest = self.counts.longest.max(self.counts.last);
        }
        self.show();
        published
    }

    /// Which attribute each value is for.
    fn columns(&mut self, attributes: &[(&str, Value)]) -> Result<Vec<u32>> {
        let room = self.pool.geometry().counts.attributes.min(MAX_ATTRIBUTES) as usize;
        let mut columns = Vec::with_capacity(attributes.len());
        for (name, value) in attributes {
            check_value(&self.name, name, value)?;
            let column = match self.attributes.iter().position(|known| known.name == *name) {
                Some(column) => column,
                None => {
                    crossdock_layout::name::check(name)
                        .map_err(|e| self.error(Status::Invalid, format!("attribute '{name}': {e}")))?;
                    if self.attributes.len() >= room {
                        let text =
                            format!("attribute '{name}' would be one more than the {room} that there is room for");
                        return Err(self.error(Status::Invalid, text));
                    }
                    let attribute = AttributeSpec { name: (*name).to_owned(), ty: value.kind() };
                    write_attribute(&self.pool, self.attributes.len() as u32, &attribute);
                    self.attributes.push(attribute);
                    self.pool.header().report.attributes.store(self.attributes.len() as u32, Release);
                    self.attributes.len() - 1
                }
            };
            let declared = self.attributes[column].ty;
            if declared != value.kind() {
                let (is, has) = (declared.name(), value.kind().name());
                return Err(
                    self.error(Status::WrongType, format!("attribute '{name}' is declared {is}, this value is {has}"))
                );
            }
            columns.push(column as u32);
        }
        Ok(columns)
    }

    fn publish_in_place(&mut self, columns: &[u32], attributes: &[(&str, Value)]) -> Result<u64> {
        let (method, dirty) = self.find_changes();
        fault_point!("series.publish.found");
        let needed = self.pending.count();
        self.make_room(needed)?;
        let record = self.free_record()?;
        let taken = self.take_slots();
        fault_point!("series.publish.taken");
        self.copy_changes(&taken, &dirty);
        fault_point!("series.publish.copied");
        for Taken { field, chunk, run } in &taken {
            let first = (self.fields[*field].span.first + chunk) as usize;
            (0..run.count).for_each(|n| self.current[first + n as usize] = run.first + n);
        }
        self.finish(record, needed, method, columns, attributes);
        self.pending.clear();
        self.hinted = false;
        self.follow_up(&taken);
        self.retire(self.keep);
        if method != Method::Hints {
            self.choose_method();
        }
        Ok(self.sequence)
    }

    /// Adds to the list what changed since the last version. Gives the way used, and the pages that are private copies.
    fn find_changes(&mut self) -> (Method, Vec<Range<usize>>) {
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

    /// Fresh slots for all that changed; there is room.
    pub(super) fn take_slots(&mut self) -> Vec<Taken> {
        let mut taken = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            for (first, count) in self.pending.runs(field.table()) {
                let (mut chunk, mut left) = (first - field.span.first, count);
                while left > 0 {
                    let run = self.slots.take(left, chunk).expect("room was made for all of them");
                    taken.push(Taken { field: index, chunk, run });
                    chunk += run.count;
                    left -= run.count;
                }
            }
        }
        taken
    }

    /// Copies the changed chunks to their slots. `dirty`: with the pool behind the variables, the pages that are private
    /// copies; all others are still the old slot's, and are read there, where no page table has to be filled first.
    fn copy_changes(&mut self, taken: &[Taken], dirty: &[Range<usize>]) {
        let chunk = self.pool.chunk();
        let mut pieces: Vec<Piece> = Vec::new();
        for Taken { field, chunk: first, run } in taken {
            let field = &self.fields[*field];
            for n in 0..run.count {
                let from = field.address(first + n, chunk) as usize;
                let to = self.pool.slot(run.first + n) as usize;
                let old = self.current[(field.span.first + first + n) as usize];
                if dirty.is_empty() || old == NO_SLOT {
                    add(&mut pieces, to, from, chunk);
                } else {
                    add_mixed(&mut pieces, to, from, self.pool.slot(old) as usize, chunk, dirty);
                }
            }
        }
        let bytes: usize = pieces.iter().map(|piece| piece.length).sum();
        let way = self.ways.choose(bytes);
        let started = Instant::now();
        let copy = |n: usize| {
            let Piece { to, from, length } = pieces[n];
            if n == pieces.len() / 2 {
                fault_point!("series.publish.half");
            }
            // SAFETY: `from` lies in a variable's memory or in a slot of the newest version, `to` in slots that were
            // just taken, which no version has, so nobody reads them; both are mapped for as long as `self`.
            unsafe { copy::copy(to as *mut u8, from as *const u8, length, way) };
        };
        match &self.runner {
            Some(runner) if bytes >= 2 * PIECE => runner.run(pieces.len(), &copy),
            _ => (0..pieces.len()).for_each(copy),
        }
        if bytes > 0 {
            let took = started.elapsed().as_nanos() as f64;
            self.ways.learn(way, bytes, took);
            if bytes >= 1 << 16 {
                super::costs::learn(&mut self.finder.costs.copy_byte, took / bytes as f64);
            }
        }
    }

    /// Writes the record of the next version and shows it. Nothing here can fail.
    pub(super) fn finish(
        &mut self,
        record: u32,
        copied: u32,
        method: Method,
        columns: &[u32],
        values: &[(&str, Value)],
    ) {
        let sequence = self.sequence + 1;
        let head = self.pool.record(record);
        protocol::fill(&head.state, sequence);
        fault_point!("series.publish.filling");
        head.sequence.store(sequence, Relaxed);
        head.time.store(clock::since_1970_ns(), Relaxed);
        head.copied.store(copied, Relaxed);
        head.method.store(method as u32, Relaxed);
        for column in 0..self.attributes.len() as u32 {
            let field = self.pool.value(record, column);
            match columns.iter().position(|known| *known == column) {
                Some(given) => store_value(field, &values[given].1),
                None => field.kind.store(KIND_NONE, Relaxed),
            }
        }
        head.attributes.store(self.attributes.len() as u32, Relaxed);
        for (index, field) in (0..).zip(&self.fields) {
            let extent = self.pool.extent(record, index);
            for (dimension, word) in extent.shape.iter().enumerate() {
                word.store(field.shape.get(dimension).copied().unwrap_or(0), Relaxed);
            }
            extent.bytes.store(field.bytes, Relaxed);
        }
        self.pool.write_table(record, &self.current);
        fault_point!("series.publish.filled");
        protocol::go_live(&head.state, sequence);
        fault_point!("series.publish.live");
        let news = &self.pool.header().news;
        news.latest.store(Latest::new(sequence, record as u16).0, Release);
        fault_point!("series.publish.latest");
        news.published.store(sequence as u32, Release);
        futex::wake_all(&news.published);
        fault_point!("series.publish.woken");
        for slot in self.current.iter().filter(|slot| **slot != NO_SLOT) {
            self.slots.hold(*slot);
        }
        self.records[record as usize] = sequence;
        self.sequence = sequence;
        self.newest_record = record;
        let chunks = u64::from(self.chunks());
        self.counts.copied += u64::from(copied);
        self.counts.shared += chunks.saturating_sub(u64::from(copied));
    }
}

/// Adds a piece, joined to the one before where both continue.
fn add(pieces: &mut Vec<Piece>, to: usize, from: usize, length: usize) {
    match pieces.last_mut() {
        Some(last) if last.to + last.length == to && last.from + last.length == from && last.length < PIECE => {
            last.length += length;
        }
        _ => pieces.push(Piece { to, from, length }),
    }
}

/// Adds a chunk of which only some pages are private copies.
fn add_mixed(pieces: &mut Vec<Piece>, to: usize, from: usize, old: usize, chunk: usize, dirty: &[Range<usize>]) {
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

fn differing_pages(here: *const u8, there: *const u8, length: usize) -> usize {
    let page = |address: *const u8, n: usize| {
        // SAFETY: both are whole chunks of memory that nobody writes while the publisher publishes.
        unsafe { std::slice::from_raw_parts(address.add(n * PAGE), PAGE) }
    };
    (0..length / PAGE).filter(|n| page(here, *n) != page(there, *n)).count()
}
