//! A region as this process sees it: the mapping, who we are, and whom to ask.
//!
//! The heap (`heap/`), the directory (`directory/`) and the containers (`containers.rs`) are further `impl Region`
//! blocks. Everything read from the mapping is wild: numbers become offsets only through [`Memory`], which checks them.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_layout::region::{FINGERPRINT, Geometry, REGION_MAGIC, REGION_READY};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping, fork, memfd};

use crate::error::status_of;
use crate::heap::{Locals, Memory};
use crate::{Error, Result, fault_point};

/// How long a member may take to format a region, or hold its lock, before others give up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Whom a region asks: the session, or a test's stand-in.
pub trait Surroundings: Send + Sync {
    /// Is it proved that this member is dead? Asked before anything of its is healed.
    fn is_dead(&self, member: MemberId) -> bool;
    /// Counts up with each death of a member; whoever takes the region's lock next then heals.
    fn deaths(&self) -> u32;
    /// The word that `deaths` reads, if there is one that stays where it is for as long as these surroundings last.
    fn death_word(&self) -> Option<&AtomicU32> {
        None
    }
    /// Count `total` bytes of this segment against the quota. `NO_SPACE` if that is too much.
    fn reserve(&self, total: u64) -> Result<()>;
    /// Who that is, for errors.
    fn describe(&self, member: MemberId) -> String;
}

/// What a region is made of.
pub struct Parts {
    /// For errors.
    pub name: String,
    /// The segment's id; what handles carry.
    pub segment: SegmentId,
    /// The segment: a sealed memfd.
    pub descriptor: OwnedFd,
    /// Its size.
    pub size: u64,
    /// May this task write?
    pub writable: bool,
    /// Who we are.
    pub member: MemberId,
    /// Whom to ask.
    pub surroundings: Arc<dyn Surroundings>,
}

/// What a region over mapped memory is besides that memory.
pub struct Over {
    /// For errors.
    pub name: String,
    /// What handles carry.
    pub segment: SegmentId,
    /// May this task write?
    pub writable: bool,
    /// Who we are.
    pub member: MemberId,
    /// Whom to ask.
    pub surroundings: Arc<dyn Surroundings>,
}

/// A region, mapped. Threads share it; it leaves its heap slots in order when dropped.
pub struct Region {
    pub(crate) memory: Memory,
    /// To take memory by; none for memory that is all there, as an item's.
    pub(crate) descriptor: Option<OwnedFd>,
    pub(crate) name: String,
    pub(crate) segment: SegmentId,
    pub(crate) writable: bool,
    pub(crate) member: MemberId,
    pub(crate) surroundings: Arc<dyn Surroundings>,
    /// This mapping's number in this process; never used again.
    pub(crate) serial: u64,
    /// The process that attached; a forked child of it may not use this.
    origin: fork::Origin,
    /// `Surroundings::death_word`, found once: the way there leads over half a dozen pages.
    deaths: Option<NonNull<AtomicU32>>,
    pub(crate) locals: Locals,
    /// `Surroundings::deaths` when this process last healed.
    pub(crate) deaths_seen: AtomicU32,
    /// Objects that this process is constructing: (offset, entry).
    pub(crate) claims: Mutex<Vec<(u64, u32)>>,
}

// SAFETY: `deaths` points to an atomic that lasts as long as `surroundings`, which are Send and Sync and held here; all
// else is Send by itself.
unsafe impl Send for Region {}
// SAFETY: as for Send.
unsafe impl Sync for Region {}

static SERIAL: AtomicU64 = AtomicU64::new(1);

impl Region {
    /// Maps a segment and formats it if nobody has.
    ///
    /// # Errors
    /// `INVALID` (too small), `INCOMPATIBLE`, `CORRUPT`, `SYSTEM`, `NO_SPACE`; `TIMED_OUT` while another formats.
    pub fn attach(parts: Parts) -> Result<Arc<Self>> {
        let system = |e| Error::new(status_of(&e), format!("region '{}': {e}", parts.name));
        memfd::check(&parts.descriptor, parts.size).map_err(system)?;
        let access = if parts.writable { Access::ReadWrite } else { Access::Read };
        let mapping = Mapping::for_huge_pages(&parts.descriptor, parts.size as usize, access).map_err(system)?;
        let Parts { name, segment, descriptor, writable, member, surroundings, .. } = parts;
        Self::over(mapping, Some(descriptor), Over { name, segment, writable, member, surroundings })
    }

    /// A region in memory that is mapped and there already, such as an item's.
    ///
    /// # Errors
    /// As for [`Region::attach`].
    pub fn over(mapping: Mapping, descriptor: Option<OwnedFd>, over: Over) -> Result<Arc<Self>> {
        let size = mapping.length() as u64;
        let Some(geometry) = Geometry::of(size) else {
            return Err(Error::new(
                Status::Invalid,
                format!(
                    "region '{}' of {size} bytes: a region has at least {} bytes",
                    over.name,
                    crossdock_layout::region::MIN_CAPACITY
                ),
            ));
        };
        let region = Arc::new(Self {
            memory: Memory::new(mapping, geometry),
            descriptor,
            name: over.name,
            segment: over.segment,
            writable: over.writable,
            member: over.member,
            deaths: over.surroundings.death_word().map(NonNull::from),
            surroundings: over.surroundings,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            origin: fork::Origin::here(),
            locals: Locals::default(),
            deaths_seen: AtomicU32::new(0),
            claims: Mutex::default(),
        });
        region.make_ready()?;
        region.check_header()?;
        if region.writable {
            // It may follow one that died in the middle of something. If somebody stuck has the lock, later calls do it.
            let _ = region.check_succession();
        }
        Ok(region)
    }

    /// The name, as given when it was attached.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The segment's id.
    #[inline]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Where it lies in this process.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// The bytes themselves, for `view`.
    pub fn mapping(&self) -> &Mapping {
        self.memory.mapping()
    }

    /// Its size in bytes.
    pub fn capacity(&self) -> u64 {
        self.memory.geometry().capacity
    }

    /// May this task write to it?
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Waits until the region is formatted, or does it.
    fn make_ready(&self) -> Result<()> {
        let init = &self.memory.header().init;
        let deadline = Deadline::after(PATIENCE);
        loop {
            let seen = init.load(Ordering::Acquire);
            if seen == REGION_READY {
                return Ok(());
            }
            let takes = seen == 0 || self.surroundings.is_dead(MemberId(seen));
            if takes && self.writable {
                // The memory must be there before it is touched, the init word's page included.
                let me = self.member.0;
                self.reserve_range(0, crossdock_layout::region::PAGE)?;
                if init.compare_exchange(seen, me, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    fault_point!("region.format.claimed");
                    let formatted = self.format();
                    init.store(if formatted.is_ok() { REGION_READY } else { 0 }, Ordering::Release);
                    return formatted;
                }
            }
            if deadline.passed() {
                let who = self.surroundings.describe(MemberId(seen));
                return Err(self.error(Status::TimedOut, format!("not formatted after 10 s (by {who}); try again")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes zeroed memory, or what a dead formatter left, an empty region.
    fn format(&self) -> Result<()> {
        let (header, g) = (self.memory.header(), self.memory.geometry());
        self.surroundings.reserve(g.first_reserve())?;
        self.reserve_range(g.buckets_at, g.buckets * 8)?;
        header.capacity.store(g.capacity, Ordering::Relaxed);
        header.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        header.fingerprint.store(FINGERPRINT, Ordering::Relaxed);
        header.reserved.store(g.first_reserve(), Ordering::Relaxed);
        fault_point!("region.format.half");
        header.magic.store(REGION_MAGIC, Ordering::Release);
        fault_point!("region.format.done");
        Ok(())
    }

    fn check_header(&self) -> Result<()> {
        let header = self.memory.header();
        let magic = header.magic.load(Ordering::Acquire);
        if magic != REGION_MAGIC || header.capacity.load(Ordering::Acquire) != self.capacity() {
            return Err(self.corrupt("its header is not that of a region of this size"));
        }
        let (version, print) = (header.version.load(Ordering::Acquire), header.fingerprint.load(Ordering::Acquire));
        if (version, print) != (LAYOUT_VERSION, FINGERPRINT) {
            let text = format!(
                "made by a build with memory layout {version} ({print:08x}), this one has {LAYOUT_VERSION} \
                 ({FINGERPRINT:08x}); use one version of crossdock in all tasks"
            );
            return Err(self.error(Status::Incompatible, text));
        }
        Ok(())
    }

    /// Takes memory for a range of the segment, rounded to whole pages.
    pub(crate) fn reserve_range(&self, offset: u64, length: u64) -> Result<()> {
        const PAGE: u64 = crossdock_layout::region::PAGE;
        let start = offset / PAGE * PAGE;
        let end = (offset + length).next_multiple_of(PAGE).min(self.capacity());
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        memfd::reserve(descriptor, start, end - start).map_err(|e| {
            self.error(Status::NoSpace, format!("the node has no memory left ({e}); remove objects or end other tasks"))
        })
    }

    /// May this process change the region?
    pub(crate) fn check_use(&self) -> Result<()> {
        if !self.writable {
            return Err(self.error(Status::Denied, "this task may only read it; grant it 'write' in the workflow file"));
        }
        if !self.is_own() {
            let text = "this process was forked from the one that opened it; open it anew in the child";
            return Err(self.error(Status::Disconnected, text));
        }
        Ok(())
    }

    /// `check_use` for whoever is about to change a container: after a death, what the dead member left half done is
    /// finished first. Done later, it would write its words over what the successor has made of the container.
    pub(crate) fn check_succession(&self) -> Result<()> {
        self.check_use()?;
        if !self.is_healed() {
            drop(self.lock()?);
        }
        Ok(())
    }

    /// Has nobody died since this process healed?
    #[inline]
    pub(crate) fn is_healed(&self) -> bool {
        self.deaths_seen.load(Ordering::Acquire) == self.deaths()
    }

    /// How many members have died so far, counted round.
    #[inline]
    pub(crate) fn deaths(&self) -> u32 {
        match self.deaths {
            // SAFETY: the word lasts as long as `surroundings`, which are held as long as `self` (the trait's promise).
            Some(word) => unsafe { word.as_ref() }.load(Ordering::Acquire),
            None => self.surroundings.deaths(),
        }
    }

    /// Did this process open the region itself, rather than inherit it by fork?
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.origin.is_here()
    }

    /// An error about this region.
    #[cold]
    pub(crate) fn error(&self, status: Status, text: impl std::fmt::Display) -> Error {
        Error::new(status, format!("region '{}': {text}", self.name))
    }

    /// Memory holds what no honest member writes.
    #[cold]
    pub(crate) fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        self.error(Status::Corrupt, format!("{what}; some member wrote over it. Remove the region and make it anew"))
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("name", &self.name).field("segment", &self.segment).finish_non_exhaustive()
    }
}
