//! The publisher: made, used in place, resized, ended.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use crossdock_layout::series::{NO_SLOT, STATE_ENDED};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};
use crossdock_os::{Access, OsError, fork, futex, memfd, place::Place};

use super::backing::Backing;
use super::bits::Bits;
use super::copy::Taken;
use super::costs::Ways;
use super::describe;
use super::field::Field;
use super::finder::Finder;
use super::pins::Pins;
use super::plan::{metadata_bytes, plan};
use super::pool::Pool;
use super::slots::Slots;
use super::spec::{AttributeSpec, FullPolicy, Identity, Spec};
use super::statistics::Counts;
use crate::Host;
use crate::error::Reason;
use crate::{Error, Result};

/// Runs several pieces of work at the same time, for large copies: a program's own pool of threads.
pub trait Runner: Send + Sync {
    /// Calls `piece` with each number below `pieces`, in any order and possibly at the same time. It returns when all
    /// calls have returned.
    fn run(&self, pieces: usize, piece: &(dyn Fn(usize) + Sync));
}

/// What a new publisher passes to the node daemon.
#[derive(Debug)]
pub struct Offer {
    /// The pool: a memfd that is sealed against shrinking, growing, further writers and further seals.
    pub pool: Arc<OwnedFd>,
    /// The pool's size in bytes.
    pub size: u64,
    /// The bytes of memory that are reserved so far. [`Host::reserve`] is asked for more.
    pub reserved: u64,
    /// The largest number of observers at the same time.
    pub observers: u32,
}

/// The publisher of a series. Dropping it ends the series in order. One thread at a time may use it. The variables' memory
/// belongs to the program. A forked child cannot use its parent's publisher.
pub struct Publisher {
    pub(super) name: String,
    pub(super) pool: Arc<Pool>,
    pub(super) descriptor: Arc<OwnedFd>,
    pub(super) host: Arc<dyn Host>,
    pub(super) pins: Pins,
    pub(super) fields: Vec<Field>,
    pub(super) attributes: Vec<AttributeSpec>,
    pub(super) slots: Slots,
    /// The newest version's slot table.
    pub(super) current: Vec<u32>,
    /// The chunks that the next version must carry anew.
    pub(super) pending: Bits,
    /// Did the program say what it touched in this step?
    pub(super) hinted: bool,
    /// The kind of memory at each chunk's addresses, indexed by the chunk's place in slot tables.
    pub(super) backing: Vec<Backing>,
    /// Do all chunks have the kind of memory that the chosen method needs?
    pub(super) settled: bool,
    /// For each record the sequence that it holds; 0 if it is free.
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
    /// The slots of the begun version.
    pub(super) begun_slots: Vec<Taken>,
    end: Arc<EndMark>,
    /// Why the last publish withheld its version; `None` once one is published.
    pub(super) withheld_why: Option<Error>,
    /// Why the pool could not grow, and the time before which it does not try again.
    pub(super) growth: Option<(Instant, Error)>,
    /// Why nothing can be published any more.
    pub(super) broken: Option<Error>,
    /// Room for one slot table, so that not each version makes one.
    pub(super) scratch: Vec<u32>,
    pub(super) counts: Counts,
    origin: fork::Origin,
    /// None before the node daemon has it.
    segment: SegmentId,
}

/// Marks the series as ended, once. It keeps the pool mapped.
pub struct EndMark {
    pool: Arc<Pool>,
    ended: AtomicBool,
    origin: fork::Origin,
}

impl EndMark {
    /// Ends the series in order, unless this process is a forked child of the publishing one. A publish that runs in
    /// another thread at this moment may still show its version.
    pub fn end(&self) {
        if !self.origin.is_here() || self.ended.swap(true, Relaxed) {
            return;
        }
        let news = &self.pool.header().news;
        news.state.store(STATE_ENDED, Release);
        crate::fault_point!("series.end.noted");
        news.published.fetch_add(1, Release);
        futex::wake_all(&news.published);
    }
}

impl std::fmt::Debug for EndMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndMark").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Publisher {
    /// Makes a series: its pool, and the variables' memory, which is zeroed. The caller passes the offer to the node
    /// daemon, and tells the publisher by [`Self::placed`] what the daemon answered.
    ///
    /// # Errors
    /// `INVALID` (names, types, shapes, sizes), `NO_SPACE` (quota or node), `SYSTEM`.
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
        let descriptor = Arc::new(descriptor);
        let pool = Arc::new(Pool::new(mapping, geometry));
        describe::write(&pool, identity.member, spec, &plan);
        let chunk = pool.chunk();
        let mut fields = Vec::new();
        for (variable, span) in spec.variables.iter().zip(&plan.spans) {
            let place = Place::reserve(span.chunks as usize * chunk).map_err(system)?;
            let chunks = span.extents.bytes.div_ceil(chunk as u64) as u32;
            let field = Field {
                name: variable.name.clone(),
                ty: variable.ty.clone(),
                span: *span,
                shape: variable.shape.clone(),
                max_shape: if variable.max_shape.is_empty() { &variable.shape } else { &variable.max_shape }.clone(),
                bytes: span.extents.bytes,
                chunks,
                mapped: chunks,
                place,
                begun: None,
            };
            field.put_memory(0..field.chunks, chunk).map_err(system)?;
            fields.push(field);
        }
        let counts = Counts { reserved: metadata, ..Counts::default() };
        let end = Arc::new(EndMark { pool: pool.clone(), ended: AtomicBool::new(false), origin: fork::Origin::here() });
        let mut publisher = Self {
            pool,
            end,
            host,
            pins: Pins::default(),
            fields,
            attributes: spec.attributes.clone(),
            slots: Slots::new(geometry.counts.chunk),
            current: vec![NO_SLOT; geometry.counts.chunks as usize],
            pending: Bits::new(geometry.counts.chunks),
            hinted: false,
            backing: vec![Backing::Memory; geometry.counts.chunks as usize],
            settled: true,
            records: vec![0; geometry.counts.records as usize],
            sequence: 0,
            newest_record: 0,
            keep: spec.keep,
            full: spec.full,
            finder: Finder::new(spec.detect, spec.pages),
            ways: Ways::default(),
            runner: None,
            begun: false,
            begun_slots: Vec::new(),
            withheld_why: None,
            growth: None,
            broken: None,
            scratch: vec![0; geometry.counts.chunks as usize],
            counts,
            origin: fork::Origin::here(),
            segment: SegmentId::default(),
            descriptor: descriptor.clone(),
            name: identity.name,
        };
        // The host of a test may have pages from the beginning.
        publisher.pins.update(&*publisher.host);
        // There is memory for one version already, so the first publish has no page faults.
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

    /// The node daemon has the series, as this segment.
    pub fn placed(&mut self, segment: SegmentId) {
        self.segment = segment;
    }

    /// The segment's id.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.segment
    }

    /// The newest version's number; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Lets the program's own threads share large copies.
    pub fn copy_with(&mut self, runner: Arc<dyn Runner>) {
        self.runner = Some(runner);
    }

    /// Ends the series in order. Observers keep the versions that they hold, the newest version stays for observers
    /// that come later, and observers that wait for the next version are told. Dropping a publisher does the same, but
    /// reports no error.
    ///
    /// # Errors
    /// `DISCONNECTED`, `TIMED_OUT`: the node daemon was not told, so the name is this session's until the session ends.
    pub fn end(mut self) -> Result<()> {
        self.end_mut()
    }

    /// As [`Self::end`], but the variables' memory stays until this value is dropped. For languages whose arrays may live on.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub fn end_mut(&mut self) -> Result<()> {
        self.end.end();
        self.host.series_ended()
    }

    /// Ends the series without the publisher, which another thread may be using. For the end of a program.
    pub fn end_mark(&self) -> &Arc<EndMark> {
        &self.end
    }

    /// May this process still publish?
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
        self.origin.is_here()
    }

    /// An error about this series.
    #[cold]
    pub(super) fn error(&self, status: Status, text: impl std::fmt::Display) -> Error {
        Error::new(status, text.to_string()).about(SegmentKind::Series, &self.name)
    }
}

/// The kernel refused.
#[cold]
pub(super) fn failed(name: &str, error: &OsError) -> Error {
    Error::os(error).about(SegmentKind::Series, name)
}

impl Drop for Publisher {
    fn drop(&mut self) {
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
