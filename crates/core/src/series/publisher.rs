//! The publishing side: made, used in place, resized, ended.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::series::{NO_SLOT, PAGE, STATE_ENDED, STATE_LIVE};
use crossdock_layout::{MemberId, Status};
use crossdock_os::{Access, OsError, fork, futex, memfd, place::Place};

use super::bits::Bits;
use super::costs::{Costs, Ways};
use super::describe;
use super::field::Field;
use super::finder::{Changing, Finder};
use super::plan::{metadata_bytes, plan};
use super::pool::Pool;
use super::publish::Taken;
use super::slots::Slots;
use super::spec::{self, AttributeSpec, FullPolicy, Method, Spec};
use crate::{Error, Result};

/// Whom a series asks: the session, or a test's stand-in.
pub trait Surroundings: Send + Sync {
    /// Who lives.
    fn liveness(&self) -> &LivenessTable;
    /// Count `total` bytes of this series against the quota. `NO_SPACE` if that is too much. Publisher only.
    fn reserve(&self, total: u64) -> Result<()>;
    /// Who that is, for errors.
    fn describe(&self, member: MemberId) -> String;
}

/// Whoever can do several things at once, for large copies: a program's own pool of threads.
pub trait Runner: Send + Sync {
    /// Calls `piece` with each number below `pieces`, in any order, at the same time where that helps; returns when all
    /// calls have returned.
    fn run(&self, pieces: usize, piece: &(dyn Fn(usize) + Sync));
}

/// What a new publisher gives to the node daemon.
#[derive(Debug)]
pub struct Offer {
    /// The pool: a memfd sealed against shrinking, growing, writers and further sealing.
    pub pool: OwnedFd,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of memory that are reserved so far, pin pages included; more is asked of [`Surroundings::reserve`].
    pub reserved: u64,
    /// A pin page for each observer at a time: memfds of 4096 bytes, sealed against shrinking and growing, zeroed.
    pub pins: Vec<OwnedFd>,
}

/// What a publisher has done so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// How changes are found now.
    pub method: Method,
    /// Ways that this place does not have, and why.
    pub unavailable: Vec<(Method, String)>,
    /// How often the way was changed.
    pub switches: u64,
    /// Versions published.
    pub published: u64,
    /// Chunks copied for them.
    pub copied: u64,
    /// Chunks that versions took over from the one before.
    pub shared: u64,
    /// How much changes in a step, as far as it is known.
    pub changing: Option<Changing>,
    /// Measured costs.
    pub costs: Costs,
    /// The last publish.
    pub last: Duration,
    /// The longest publish.
    pub longest: Duration,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Slots with memory, and those of them that hold a chunk of some version.
    pub slots: (u32, u32),
    /// Versions that exist.
    pub versions: u32,
    /// Bytes of memory reserved.
    pub reserved: u64,
    /// Publishes that found no room.
    pub no_space: u64,
    /// Versions that were taken back from observers.
    pub refused: u64,
}

/// A series' publisher. One thread at a time uses it; the variables' memory is the program's own.
pub struct Publisher {
    pub(super) name: String,
    pub(super) pool: Pool,
    pub(super) descriptor: OwnedFd,
    pub(super) surroundings: Arc<dyn Surroundings>,
    /// All pin pages, one behind the other, for reading.
    pub(super) pins: Place,
    pub(super) observers: u32,
    pub(super) fields: Vec<Field>,
    pub(super) attributes: Vec<AttributeSpec>,
    pub(super) slots: Slots,
    /// The newest version's slot table.
    pub(super) current: Vec<u32>,
    /// Chunks that the next version must carry anew.
    pub(super) pending: Bits,
    /// The program said what it touched in this step.
    pub(super) hinted: bool,
    /// Does a private mapping of the newest version lie at the variables' addresses?
    pub(super) pool_backed: bool,
    /// For each record the sequence that it holds; 0 = free.
    pub(super) records: Vec<u64>,
    /// The newest version's sequence; 0 before the first.
    pub(super) sequence: u64,
    pub(super) newest_record: u32,
    pub(super) keep: u32,
    pub(super) full: FullPolicy,
    pub(super) finder: Finder,
    pub(super) ways: Ways,
    pub(super) runner: Option<Arc<dyn Runner>>,
    pub(super) begun: bool,
    /// The slots of the version that was begun.
    pub(super) begun_slots: Vec<Taken>,
    pub(super) ended: bool,
    /// Why nothing can be published any more.
    pub(super) broken: Option<Error>,
    /// Room for a slot table, so that none is made anew for each version.
    pub(super) scratch: Vec<u32>,
    pub(super) counts: Counts,
    token: u32,
}

/// Counters that are kept here, and shown in the pool's header.
#[derive(Default)]
pub(super) struct Counts {
    pub copied: u64,
    pub shared: u64,
    pub last: Duration,
    pub longest: Duration,
    pub no_space: u64,
    pub refused: u64,
    pub reserved: u64,
}

impl Publisher {
    /// Makes a series: its pool, pin pages and the variables' memory, zeroed. The offer goes to the node daemon.
    ///
    /// # Errors
    /// `INVALID` (names, types, shapes, sizes), `NO_SPACE` (quota or node), `SYSTEM`.
    pub fn create(spec: Spec, surroundings: Arc<dyn Surroundings>) -> Result<(Self, Offer)> {
        spec.check()?;
        let plan = plan(&spec)?;
        let geometry = plan.geometry;
        let system = |e: OsError| failed(&spec.name, &e);
        let metadata = metadata_bytes(&geometry);
        surroundings.reserve(metadata + u64::from(spec.max_observers) * PAGE)?;
        let label = spec.label("series");
        let (descriptor, mapping) = memfd::create_published(&label, geometry.size, metadata).map_err(system)?;
        mapping.populate(0, metadata, Access::ReadWrite);
        let mut pins = Vec::new();
        let pin_pages = Place::reserve(spec.max_observers as usize * PAGE as usize).map_err(system)?;
        for index in 0..spec.max_observers as usize {
            let page = memfd::create(&spec.label("pin"), PAGE).map_err(system)?;
            memfd::reserve(&page, 0, PAGE).map_err(system)?;
            pin_pages.put_readable(index * PAGE as usize, PAGE as usize, &page, 0).map_err(system)?;
            pins.push(page);
        }
        let pool = Pool::new(mapping, geometry);
        describe::write(&pool, &spec, &plan);
        let chunk = pool.chunk();
        let mut fields = Vec::new();
        for (variable, span) in spec.variables.iter().zip(&plan.spans) {
            let place = Place::reserve(span.chunks as usize * chunk).map_err(system)?;
            let field = Field {
                name: variable.name.clone(),
                span: *span,
                shape: variable.shape.clone(),
                max_shape: if variable.max_shape.is_empty() { &variable.shape } else { &variable.max_shape }.clone(),
                bytes: span.extents.bytes,
                chunks: span.extents.bytes.div_ceil(chunk as u64) as u32,
                place,
                begun: None,
            };
            field.put_memory(0..field.chunks, chunk).map_err(system)?;
            fields.push(field);
        }
        let counts = Counts { reserved: metadata + u64::from(spec.max_observers) * PAGE, ..Counts::default() };
        let mut publisher = Self {
            pool,
            surroundings,
            pins: pin_pages,
            observers: spec.max_observers,
            fields,
            attributes: spec.attributes,
            slots: Slots::new(geometry.counts.chunk),
            current: vec![NO_SLOT; geometry.counts.chunks as usize],
            pending: Bits::new(geometry.counts.chunks),
            hinted: false,
            pool_backed: false,
            records: vec![0; geometry.counts.records as usize],
            sequence: 0,
            newest_record: 0,
            keep: spec.keep,
            full: spec.full,
            finder: Finder::new(spec.detect),
            ways: Ways::default(),
            runner: None,
            begun: false,
            begun_slots: Vec::new(),
            ended: false,
            broken: None,
            scratch: vec![0; geometry.counts.chunks as usize],
            counts,
            token: fork::token(),
            descriptor: descriptor.as_fd().try_clone_to_owned().map_err(|e| failed(&spec.name, &e))?,
            name: spec.name,
        };
        // Memory for one version: the first publish takes no faults.
        publisher.grow(publisher.chunks())?;
        let offer = Offer { pool: descriptor, size: geometry.size, reserved: publisher.counts.reserved, pins };
        Ok((publisher, offer))
    }

    /// The name, as given when it was made.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The newest version's sequence; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// Where the variable's elements are: an array that the program reads and writes in place. Aligned to 2 MiB, or to a
    /// chunk between `begin` and `publish`. The address stays while the publisher lives, but for the time from `begin` to
    /// `publish` or `abandon`: then the variable's memory is elsewhere and holds anything, and all of it must be written.
    ///
    /// The library reads this memory during `publish` only; no thread may write it then.
    pub fn memory(&self, variable: usize) -> *mut u8 {
        self.fields[variable].memory(&self.pool)
    }

    /// Bytes of a variable now.
    pub fn bytes(&self, variable: usize) -> u64 {
        self.fields[variable].bytes
    }

    /// Lengths of a variable now.
    pub fn shape(&self, variable: usize) -> &[u64] {
        &self.fields[variable].shape
    }

    /// How many variables it has.
    pub fn variables(&self) -> usize {
        self.fields.len()
    }

    /// Names of the attributes known so far.
    pub fn attributes(&self) -> &[AttributeSpec] {
        &self.attributes
    }

    /// Chunks of all variables now.
    pub(super) fn chunks(&self) -> u32 {
        self.fields.iter().map(|field| field.chunks).sum()
    }

    /// Bytes that a version takes now.
    pub(super) fn version_bytes(&self) -> u64 {
        u64::from(self.chunks()) * self.pool.chunk() as u64
    }

    /// Gives a variable another shape, within its largest. Bytes stay where they are; those that come new are zero.
    ///
    /// # Errors
    /// `INVALID` beyond the largest shape, `BUSY` between `begin` and `publish`, `SYSTEM`.
    pub fn resize(&mut self, variable: usize, shape: &[u64]) -> Result<()> {
        self.check_use()?;
        if self.begun {
            return Err(self.error(Status::Busy, "a version was begun; publish or abandon it before a resize"));
        }
        let chunk = self.pool.chunk();
        let field = &self.fields[variable];
        let fits =
            shape.len() == field.max_shape.len() && shape.iter().zip(&field.max_shape).all(|(n, most)| n <= most);
        if !fits {
            let text =
                format!("variable '{}': shape {shape:?} is beyond the largest, {:?}", field.name, field.max_shape);
            return Err(self.error(Status::Invalid, text));
        }
        let bytes = spec::bytes(field.span.extents.element, shape).expect("smaller than the largest, which has a size");
        let (old_bytes, old) = (field.bytes, field.chunks);
        let new = bytes.div_ceil(chunk as u64) as u32;
        if new != old {
            let range = old.min(new)..old.max(new);
            field.put_memory(range.clone(), chunk).map_err(|e| failed(&self.name, &e))?;
            let table = field.span.first + range.start..field.span.first + range.end;
            self.current[table.start as usize..table.end as usize].fill(NO_SLOT);
            self.pending.remove_range(table);
        }
        if bytes > old_bytes && old > 0 {
            let end = bytes.min(u64::from(old) * chunk as u64);
            // SAFETY: within the memory of the chunks that the variable had and has.
            unsafe {
                self.fields[variable]
                    .place
                    .start()
                    .as_ptr()
                    .add(old_bytes as usize)
                    .write_bytes(0, (end - old_bytes) as usize)
            };
            self.pending.insert(self.fields[variable].span.first + old - 1);
        }
        let field = &mut self.fields[variable];
        field.shape = shape.to_vec();
        field.bytes = bytes;
        field.chunks = new;
        if new > old {
            self.watch_more(variable, old..new);
        }
        Ok(())
    }

    /// Says that these bytes of a variable were, or will be, written before the next publish. With `Detect::Hints`, and
    /// with `Detect::Auto` from the first such call of a step on, what was not named counts as unchanged.
    ///
    /// # Errors
    /// `INVALID` beyond the variable's end.
    pub fn touched(&mut self, variable: usize, bytes: std::ops::Range<u64>) -> Result<()> {
        self.check_use()?;
        let field = &self.fields[variable];
        if bytes.end > field.bytes || bytes.start > bytes.end {
            let text = format!("variable '{}' of {} bytes: touched {bytes:?}", field.name, field.bytes);
            return Err(self.error(Status::Invalid, text));
        }
        self.hinted = true;
        if !bytes.is_empty() {
            let chunk = self.pool.chunk() as u64;
            let (from, to) = ((bytes.start / chunk) as u32, bytes.end.div_ceil(chunk) as u32);
            let first = field.span.first;
            self.pending.insert_range(first + from..first + to);
        }
        Ok(())
    }

    /// Lets large copies be made by several threads of the program's.
    pub fn copy_with(&mut self, runner: Arc<dyn Runner>) {
        self.runner = Some(runner);
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            method: self.finder.method,
            unavailable: self.finder.unavailable().to_vec(),
            switches: self.finder.switches,
            published: self.sequence,
            copied: self.counts.copied,
            shared: self.counts.shared,
            changing: self.finder.changing,
            costs: self.finder.costs,
            last: self.counts.last,
            longest: self.counts.longest,
            chunk: self.pool.chunk() as u32,
            slots: (self.slots.committed(), self.slots.used()),
            versions: self.versions(),
            reserved: self.counts.reserved,
            no_space: self.counts.no_space,
            refused: self.counts.refused,
        }
    }

    /// Versions that exist.
    pub(super) fn versions(&self) -> u32 {
        self.records.iter().filter(|sequence| **sequence != 0).count() as u32
    }

    /// Ends the series in order: observers keep what they have, the newest version stays for those that come later, and
    /// whoever waits for the next one is told. Dropping a publisher does the same.
    pub fn end(mut self) {
        self.end_in_order();
    }

    /// The same, but the variables' memory stays until this is dropped: for languages whose arrays may live on.
    pub fn end_and_stay(&mut self) {
        self.end_in_order();
    }

    fn end_in_order(&mut self) {
        if self.ended || !self.is_own() {
            return;
        }
        self.ended = true;
        let news = &self.pool.header().news;
        news.state.store(STATE_ENDED, Release);
        crate::fault_point!("series.end.noted");
        news.published.fetch_add(1, Release);
        futex::wake_all(&news.published);
    }

    /// Counters in the header, for those who look from outside.
    pub(super) fn show(&self) {
        let report = &self.pool.header().report;
        report.method.store(self.finder.method as u32, Relaxed);
        report.committed.store(self.slots.committed(), Relaxed);
        report.used.store(self.slots.used(), Relaxed);
        report.versions.store(self.versions(), Relaxed);
        report.copied.store(self.counts.copied, Relaxed);
        report.shared.store(self.counts.shared, Relaxed);
        report.last_ns.store(nanoseconds(self.counts.last), Relaxed);
        report.longest_ns.store(nanoseconds(self.counts.longest), Relaxed);
        report.no_space.store(self.counts.no_space, Relaxed);
        report.refused.store(self.counts.refused, Relaxed);
        report.switches.store(self.finder.switches, Relaxed);
        report.reserved.store(self.counts.reserved, Relaxed);
        let unavailable = self.finder.unavailable().iter().fold(0u64, |set, (method, _)| set | 1 << *method as u32);
        report.unavailable.store(unavailable, Relaxed);
    }

    /// May this process go on publishing?
    pub(super) fn check_use(&self) -> Result<()> {
        if !self.is_own() {
            let text = "this process was forked from the one that publishes; only that one goes on";
            return Err(self.error(Status::Disconnected, text));
        }
        debug_assert!(self.pool.header().news.state.load(Relaxed) == STATE_LIVE);
        Ok(())
    }

    pub(super) fn is_own(&self) -> bool {
        fork::token() == self.token
    }

    /// An error about this series.
    #[cold]
    pub(super) fn error(&self, status: Status, text: impl std::fmt::Display) -> Error {
        Error::new(status, format!("series '{}': {text}", self.name))
    }
}

/// The kernel refused.
#[cold]
pub(super) fn failed(name: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(Status::System, format!("series '{name}': {error}"))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.end_in_order();
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("name", &self.name).field("sequence", &self.sequence).finish_non_exhaustive()
    }
}
