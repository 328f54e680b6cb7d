//! The publisher of a series: how it is made, which state it has, and how it ends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use crossdock_layout::series::{NO_SLOT, STATE_ENDED};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};
use crossdock_os::{Access, OsError, OwnFile, fork, futex, memfd, reservation::Reservation};

use super::backing::Backing;
use super::children::Children;
use super::chunk_set::ChunkSet;
use super::copy::FreshSlots;
use super::costs::CopyTuner;
use super::describe;
use super::detector::ChangeDetector;
use super::field::Field;
use super::pins::Pins;
use super::plan::{metadata_bytes, plan};
use super::pool::Pool;
use super::slots::Slots;
use super::spec::{AttributeSpec, FullPolicy, Identity, Spec};
use super::statistics::Counts;
use super::withheld::{LAST_VERSION, Withheld};
use crate::Host;
use crate::error::Reason;
use crate::{Error, Result};

/// A thread pool of the program. The publisher uses it to share large copies and comparisons among several threads.
pub trait Runner: Send + Sync {
    /// Calls `piece` with each number below `pieces`, in any order and possibly at the same time. Returns when all
    /// calls have returned.
    fn run(&self, pieces: usize, piece: &(dyn Fn(usize) + Sync));
}

/// What a new publisher passes to the node daemon: the pool and its sizes.
#[derive(Debug)]
pub struct Offer {
    /// The pool: a memfd that is sealed against resizing, against further writers and against further seals.
    pub pool: OwnFile,
    /// The pool's size in bytes.
    pub size: u64,
    /// The bytes of memory that are reserved so far. The publisher asks [`Host::reserve`] for more.
    pub reserved: u64,
    /// The largest number of observers at the same time.
    pub observers: u32,
}

/// The publisher of a series. Dropping it ends the series, as [`Self::end`] does. Only one thread at a time may use it.
/// The variables' memory belongs to the program. A forked child cannot use its parent's publisher.
pub struct Publisher {
    pub(super) name: String,
    pub(super) pool: Arc<Pool>,
    pub(super) descriptor: OwnFile,
    pub(super) host: Arc<dyn Host>,
    pub(super) pins: Pins,
    pub(super) fields: Vec<Field>,
    pub(super) attributes: Vec<AttributeSpec>,
    pub(super) slots: Slots,
    /// The newest version's slot table.
    pub(super) current: Vec<u32>,
    /// The chunks that changed. The next version needs new copies of these chunks.
    pub(super) pending: ChunkSet,
    /// True if the program said by hints which bytes it wrote in this step.
    pub(super) hinted: bool,
    /// True if an earlier step (the time from one publish to the next) may have changes that no publish has searched
    /// for and that no hint has named. The next publish then searches for changes even if the program gives hints.
    pub(super) unsearched: bool,
    /// The kind of memory at each chunk's addresses, indexed by the chunk's position in slot tables.
    pub(super) backing: Vec<Backing>,
    /// The forked children of this process, and the slots that are kept for them.
    pub(super) children: Children,
    /// True if all chunks have the kind of memory that the chosen method needs.
    pub(super) settled: bool,
    /// For each record, the sequence number of its version; 0 if the record is free.
    pub(super) records: Vec<u64>,
    /// The newest version's sequence number; 0 before the first version.
    pub(super) sequence: u64,
    pub(super) newest_record: u32,
    pub(super) keep: u32,
    pub(super) full: FullPolicy,
    pub(super) detector: ChangeDetector,
    pub(super) tuner: CopyTuner,
    pub(super) runner: Option<Arc<dyn Runner>>,
    pub(super) begun: bool,
    /// The slots of the begun version, that is, the version that the program writes straight into the pool.
    pub(super) begun_slots: Vec<FreshSlots>,
    end: Arc<EndMark>,
    /// The version that the last publish withheld; `None` after a version was published.
    pub(super) withheld: Option<Withheld>,
    /// The last attempt to grow the pool, if it failed: the time before which the publisher does not try again, and the
    /// error.
    pub(super) growth: Option<(Instant, Error)>,
    /// The error after which this publisher can publish nothing any more; `None` while it works.
    pub(super) broken: Option<Error>,
    /// A buffer for one slot table, so that a publish need not allocate one.
    pub(super) scratch: Vec<u32>,
    pub(super) counts: Counts,
    process: fork::ProcessToken,
    /// The id of the series' segment. Until the node daemon has registered the series, this field has the id that
    /// means no segment.
    segment: SegmentId,
}

/// Ends a series from outside of its publisher, for example when the program ends. A second call of [`Self::end`] does
/// nothing. An `EndMark` keeps the pool mapped, so it may live longer than the publisher.
pub struct EndMark {
    pool: Arc<Pool>,
    ended: AtomicBool,
    process: fork::ProcessToken,
}

impl EndMark {
    /// Tells the observers that no further version will come. In a forked child of the publishing process, this
    /// function does nothing. A publish that runs in another thread at this moment may still make its version visible.
    pub fn end(&self) {
        if !self.process.is_current() || self.ended.swap(true, Relaxed) {
            return;
        }
        let version_words = &self.pool.header().version_words;
        version_words.state.store(STATE_ENDED, Release);
        crate::fault_point!("series.end.noted");
        version_words.published.fetch_add(1, Release);
        futex::wake_all(&version_words.published);
    }
}

impl std::fmt::Debug for EndMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndMark").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Publisher {
    /// Makes a series: its pool, and the variables' memory, which is zeroed. The caller passes the offer to the node
    /// daemon. After that the caller calls [`Self::placed`] with the segment that the daemon's answer names.
    ///
    /// # Errors
    /// `INVALID` if a name, type, shape or size in the spec is not allowed, `NO_SPACE` if the quota or the node's
    /// memory does not suffice, `SYSTEM` if the kernel refuses the pool or a mapping.
    pub fn create(identity: Identity, spec: &Spec, host: Arc<dyn Host>) -> Result<(Self, Offer)> {
        spec.check(&identity.name)?;
        let plan = plan(&identity.name, spec)?;
        let geometry = plan.geometry;
        let system = |e: OsError| failed(&identity.name, &e);
        let metadata = metadata_bytes(&geometry);
        host.reserve(metadata)?;
        let label = identity.label("series");
        let (descriptor, mapping) = memfd::create_published(&label, geometry.size, metadata).map_err(system)?;
        mapping.populate(0, metadata, Access::ReadWrite);
        let descriptor = OwnFile::from(descriptor);
        let pool = Arc::new(Pool::new(mapping, geometry));
        describe::write(&pool, identity.member, spec, &plan);
        let chunk = pool.chunk();
        let mut fields = Vec::new();
        for (variable, span) in spec.variables.iter().zip(&plan.spans) {
            let reservation = Reservation::reserve(span.chunks as usize * chunk).map_err(system)?;
            let chunks = span.extents.bytes.div_ceil(chunk as u64) as u32;
            let field = Field {
                name: variable.name.clone(),
                ty: variable.ty.clone(),
                order: variable.order,
                span: *span,
                shape: variable.shape.clone(),
                max_shape: if variable.max_shape.is_empty() { &variable.shape } else { &variable.max_shape }.clone(),
                bytes: span.extents.bytes,
                chunks,
                mapped: chunks,
                reservation,
                begun: None,
            };
            field.put_memory(0..field.chunks, chunk).map_err(system)?;
            fields.push(field);
        }
        let counts = Counts { reserved: metadata, ..Counts::default() };
        let end = Arc::new(EndMark {
            pool: pool.clone(),
            ended: AtomicBool::new(false),
            process: fork::ProcessToken::current(),
        });
        let mut publisher = Self {
            pool,
            end,
            host,
            pins: Pins::default(),
            fields,
            attributes: spec.attributes.clone(),
            slots: Slots::new(geometry.counts.chunk),
            current: vec![NO_SLOT; geometry.counts.chunks as usize],
            pending: ChunkSet::new(geometry.counts.chunks),
            hinted: false,
            unsearched: false,
            backing: vec![Backing::Memory; geometry.counts.chunks as usize],
            children: Children::default(),
            settled: true,
            records: vec![0; geometry.counts.records as usize],
            sequence: 0,
            newest_record: 0,
            keep: spec.keep,
            full: spec.full,
            detector: ChangeDetector::new(spec.detect, spec.pages),
            tuner: CopyTuner::default(),
            runner: None,
            begun: false,
            begun_slots: Vec::new(),
            withheld: None,
            growth: None,
            broken: None,
            scratch: vec![0; geometry.counts.chunks as usize],
            counts,
            process: fork::ProcessToken::current(),
            segment: SegmentId::default(),
            descriptor: descriptor.clone(),
            name: identity.name,
        };
        // In tests, `host` may already have pin pages. So the publisher asks for the pages here.
        publisher.pins.update(&*publisher.host);
        // Memory for one version is reserved now, so that the first publish causes no page faults.
        publisher
            .grow(publisher.chunks())
            .map_err(|why| why.about(SegmentKind::Series, &publisher.name).with_status(Status::NoSpace))?;
        let observers = spec.max_observers;
        let offer = Offer { pool: descriptor, size: geometry.size, reserved: publisher.counts.reserved, observers };
        Ok((publisher, offer))
    }

    /// The name that was given when the series was made.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes the id of the segment under which the node daemon has registered the series.
    pub fn placed(&mut self, segment: SegmentId) {
        self.segment = segment;
    }

    /// The id of the series' segment.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.segment
    }

    /// The newest version's number; 0 before the first version.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Sets the program's own thread pool, whose threads share the work of large copies from now on.
    pub fn copy_with(&mut self, runner: Arc<dyn Runner>) {
        self.runner = Some(runner);
    }

    /// Ends the series. Observers keep the versions that they hold, and later observers can still read the newest
    /// version. Observers that wait for the next version get an error, which says that the publisher has ended the
    /// series. Dropping a publisher has the same effect for observers, but reports no error.
    ///
    /// If the last version was withheld because the daemon did not answer in time, and if the program has not changed
    /// the variables since then, this call first publishes that version. It waits for the daemon for up to 5 s; a drop
    /// makes only one attempt. Until this call returns, no thread may write the variables. A last version that was
    /// withheld because observers hold all old versions is lost; [`Self::publish`] has returned 0, and the error of
    /// waiting observers says that the version was withheld.
    ///
    /// # Errors
    /// `DISCONNECTED` or `TIMED_OUT` if the node daemon did not learn of the end. In this case the name stays taken
    /// until this session ends.
    pub fn end(mut self) -> Result<()> {
        self.end_mut()
    }

    /// Ends the series as [`Self::end`] does, but keeps the variables' memory until the publisher is dropped. This
    /// function is for languages whose arrays may live longer than the publisher.
    ///
    /// # Errors
    /// The errors of [`Self::end`].
    pub fn end_mut(&mut self) -> Result<()> {
        self.publish_withheld(LAST_VERSION);
        self.end.end();
        self.host.series_ended()
    }

    /// Returns a value that can end the series while another thread is using the publisher. The library uses this value
    /// when the program ends.
    pub fn end_mark(&self) -> &Arc<EndMark> {
        &self.end
    }

    /// Checks that this process may still publish: it is no forked child, and it has not ended the series.
    pub(super) fn check_use(&self) -> Result<()> {
        if !self.is_own() {
            return Err(Error::because(Status::Disconnected, Reason::Forked).about(SegmentKind::Series, &self.name));
        }
        if self.end.ended.load(Relaxed) {
            return Err(Error::closed_here().about(SegmentKind::Series, &self.name));
        }
        Ok(())
    }

    pub(super) fn is_own(&self) -> bool {
        self.process.is_current()
    }

    /// Makes an error that names this series.
    #[cold]
    pub(super) fn error(&self, status: Status, text: impl std::fmt::Display) -> Error {
        Error::new(status, text.to_string()).about(SegmentKind::Series, &self.name)
    }
}

/// Makes the error for a system call that the kernel refused.
#[cold]
pub(super) fn failed(name: &str, error: &OsError) -> Error {
    Error::os(error).about(SegmentKind::Series, name)
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.publish_withheld(Duration::ZERO);
        }
        self.end.end();
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Publisher");
        out.field("name", &self.name).field("id", &self.segment).field("sequence", &self.sequence);
        out.finish_non_exhaustive()
    }
}
