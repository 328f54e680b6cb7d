//! A region as this process has it: the mapping, the id of this member, and the host (the trait `Host`, which knows
//! dead members and the quota).
//!
//! The heap (`heap/`), the directory (`directory/`) and the containers (`containers.rs`) are further `impl Region`
//! blocks. All numbers in the mapping are unchecked: a number becomes an offset only through [`Memory`], which checks
//! it.

mod block;
mod copied;
mod table;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_layout::region::{FINGERPRINT, Geometry, REGION_MAGIC, REGION_READY};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping, OwnFile, fork, memfd};

use crate::directory::OwnerSearch;
use crate::error::Reason;
use crate::heap::{LocalSlots, Memory, StuckHolder};
use crate::host::Host;
use crate::liveness::{epoch_word, proved};
use crate::{Error, Result, fault_point};

pub use block::NewBlock;
pub use copied::note_former;
pub(crate) use table::heal_all;
pub use table::{at_base, is_heap_mapped, with_base};

/// How long other members wait for a member that formats a region or holds the region's lock.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What a member passes to [`Region::attach`].
pub struct RegionParts {
    /// The region's name, for error messages.
    pub name: String,
    /// The segment's id, which is part of handles.
    pub segment: SegmentId,
    /// The segment's descriptor: a sealed memfd.
    pub descriptor: OwnFile,
    /// The segment's size in bytes.
    pub size: u64,
    /// True if this task may write to the region.
    pub writable: bool,
    /// The member that uses the region.
    pub member: MemberId,
    /// The session of this process with the daemon, through the interface that `core` uses: it tells which members are
    /// dead, and counts memory against the quota.
    pub host: Arc<dyn Host>,
}

/// What a member passes to [`Region::over`], for memory that is mapped already.
pub struct MappedRegionParts {
    /// The region's name, for error messages.
    pub name: String,
    /// The segment's id, which is part of handles.
    pub segment: SegmentId,
    /// The id of the file that contains the memory, see [`Region::file`].
    pub file: SegmentId,
    /// True if this task may write to the region.
    pub writable: bool,
    /// The member that uses the region.
    pub member: MemberId,
    /// The session of this process with the daemon, through the interface that `core` uses: it tells which members are
    /// dead, and counts memory against the quota.
    pub host: Arc<dyn Host>,
}

/// A mapped region. Threads can share it. When the value is dropped, this process leaves its heap slots, so that other
/// members can take them.
pub struct Region {
    pub(crate) memory: Memory,
    /// The descriptor through which the region gets more memory; `None` if all of its memory exists already, as in an
    /// item.
    pub(crate) descriptor: Option<OwnFile>,
    pub(crate) name: String,
    pub(crate) segment: SegmentId,
    file: SegmentId,
    pub(crate) writable: bool,
    pub(crate) member: MemberId,
    pub(crate) host: Arc<dyn Host>,
    /// The number of this mapping in this process. No number is used twice.
    pub(crate) serial: u64,
    /// The process that attached the region. It is recorded because a forked child must not use this `Region`.
    process: fork::ProcessToken,
    /// The address of the count of deaths in the liveness table. It is kept here because looking it up would touch half
    /// a dozen pages.
    deaths: NonNull<AtomicU32>,
    pub(crate) locals: LocalSlots,
    /// The count of deaths at the time when this process last healed the region.
    pub(crate) deaths_seen: AtomicU32,
    /// The largest number of bytes of this region that the daemon has counted against the quota at the request of this
    /// process.
    pub(crate) granted: AtomicU64,
    /// The member that held the region's lock when this process last waited for the lock in vain.
    pub(crate) stuck: Mutex<Option<StuckHolder>>,
    /// A number that the language binding stores here, see [`Region::tag`].
    tag: AtomicU64,
    /// The named objects that this process is constructing now: offset and index of the directory entry.
    pub(crate) claims: Mutex<Vec<(u64, u32)>>,
    /// The results of the last searches for the named object to which a container belongs.
    pub(crate) owners: OwnerSearch,
}

// SAFETY: `deaths` points to an atomic that lasts as long as `host`, which this value holds. Both are Send and Sync,
// and all other fields are Send by themselves.
unsafe impl Send for Region {}
// SAFETY: `deaths` points to an atomic, and all other fields are Sync by themselves.
unsafe impl Sync for Region {}

static SERIAL: AtomicU64 = AtomicU64::new(1);

impl Region {
    /// Makes a region of this size for a test. It is in memory of its own, and no daemon knows it.
    #[cfg(test)]
    pub(crate) fn alone(size: u64) -> Arc<Self> {
        use crate::host::StandaloneHost;

        Self::attach(RegionParts {
            name: "test".into(),
            segment: SegmentId(1),
            descriptor: memfd::create("test", size).unwrap().into(),
            size,
            writable: true,
            member: StandaloneHost::MEMBER,
            host: Arc::new(StandaloneHost::default()),
        })
        .unwrap()
    }

    /// Maps a segment. If no member has formatted the segment, this call formats it.
    ///
    /// # Errors
    /// `INVALID` if the segment is too small, `INCOMPATIBLE` or `CORRUPT` if the memory does not hold a region that
    /// this build understands, `SYSTEM` if the kernel refuses the mapping, `NO_SPACE` if there is no memory to format
    /// it, `TIMED_OUT` if another member takes too long to format it.
    pub fn attach(parts: RegionParts) -> Result<Arc<Self>> {
        let system = |e: crossdock_os::OsError| Error::os(&e).about(SegmentKind::Region, &parts.name);
        memfd::check(&parts.descriptor, parts.size).map_err(system)?;
        let access = if parts.writable { Access::ReadWrite } else { Access::Read };
        let mapping = Mapping::for_huge_pages(&parts.descriptor, parts.size as usize, access).map_err(system)?;
        let RegionParts { name, segment, descriptor, writable, member, host, .. } = parts;
        let file = segment;
        Self::over(mapping, Some(descriptor), MappedRegionParts { name, segment, file, writable, member, host })
    }

    /// Makes a region of memory that this process has mapped already, for example of the data of an item. If no member
    /// has formatted the memory, this call formats it.
    ///
    /// # Errors
    /// The errors of [`Region::attach`].
    pub fn over(mapping: Mapping, descriptor: Option<OwnFile>, over: MappedRegionParts) -> Result<Arc<Self>> {
        let size = mapping.length() as u64;
        let Some(geometry) = Geometry::of(size) else {
            let least = crossdock_layout::region::MIN_CAPACITY;
            let text = format!("{size} bytes: a region has at least {least} bytes");
            return Err(Error::new(Status::Invalid, text).about(SegmentKind::Region, &over.name));
        };
        let region = Arc::new(Self {
            memory: Memory::new(mapping, geometry),
            descriptor,
            name: over.name,
            segment: over.segment,
            file: over.file,
            writable: over.writable,
            member: over.member,
            deaths: NonNull::from(epoch_word(over.host.liveness())),
            host: over.host,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            process: fork::ProcessToken::current(),
            locals: LocalSlots::default(),
            deaths_seen: AtomicU32::new(0),
            claims: Mutex::default(),
            owners: OwnerSearch::default(),
            granted: AtomicU64::new(0),
            stuck: Mutex::default(),
            tag: AtomicU64::new(0),
        });
        region.make_ready()?;
        region.check_header()?;
        // The order matters: the region enters the table before it is healed below. If a thread learns of a death from
        // a port after that, it finds the region in the table and heals it. If it learns of the death earlier, the
        // death is counted already, and the call below heals the region.
        table::enter(&region);
        if region.writable {
            // A member may have died in the middle of a change before this process opened the region. This call
            // finishes that change. The call's result is ignored: if a stopped member holds the lock, later calls
            // heal the region.
            let _ = region.check_succession();
        }
        Ok(region)
    }

    /// The name that was given when the region was attached.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The segment's id, the same in all processes.
    #[inline]
    pub fn id(&self) -> SegmentId {
        self.segment
    }

    /// The id of the file that contains the region's memory. All mappings of this file show the same memory. For the
    /// heap of an item it is the id of the item's file, and otherwise the segment's id.
    pub fn file(&self) -> SegmentId {
        self.file
    }

    /// The region's address in this process.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// The mapping of the region's bytes, for checked access to elements by `shared_access`.
    pub fn mapping(&self) -> &Mapping {
        self.memory.mapping()
    }

    /// A number that a language binding may store with this mapping of the region, for its own use. It is 0 at first.
    pub fn tag(&self) -> &AtomicU64 {
        &self.tag
    }

    /// The region's size in bytes. The size is virtual: memory is taken only as it is used.
    pub fn capacity(&self) -> u64 {
        self.memory.geometry().capacity
    }

    /// Tells whether the region is the heap of an item, and not a segment of its own.
    pub fn is_in_item(&self) -> bool {
        self.descriptor.is_none()
    }

    /// Tells whether this task may write to the region.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Waits until the region is formatted, or formats it.
    fn make_ready(&self) -> Result<()> {
        let init = &self.memory.header().init;
        let deadline = Deadline::after(PATIENCE);
        loop {
            let seen = init.load(Ordering::Acquire);
            if seen == REGION_READY {
                return Ok(());
            }
            let takes = seen == 0 || self.host.liveness().is_dead(MemberId(seen));
            if takes && self.writable {
                // The page that contains the header's word `init` must have memory before this process writes the word.
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
                let who = self.host.describe(MemberId(seen));
                return Err(self.error(Status::TimedOut, format!("not formatted after 10 s (by {who}); try again")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes an empty region. The memory is zeroed, unless a member died while it formatted the region. In that case
    /// the memory has what that member wrote.
    fn format(&self) -> Result<()> {
        let (header, g) = (self.memory.header(), self.memory.geometry());
        self.host.reserve(g.first_reserve())?;
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
        if magic != REGION_MAGIC || !header.capacity.load(Ordering::Acquire).is(self.capacity()) {
            return Err(self.corrupt("its header is not that of a region of this size"));
        }
        let (version, print) = (header.version.load(Ordering::Acquire), header.fingerprint.load(Ordering::Acquire));
        if (version, print) != (LAYOUT_VERSION, FINGERPRINT) {
            let reason = Reason::Layout { version, fingerprint: print, ours: FINGERPRINT };
            return Err(self.failed(Status::Incompatible, reason));
        }
        Ok(())
    }

    /// Takes memory for a range of the segment, which is rounded to whole pages.
    pub(crate) fn reserve_range(&self, offset: u64, length: u64) -> Result<()> {
        const PAGE: u64 = crossdock_layout::region::PAGE;
        let start = offset / PAGE * PAGE;
        let end = (offset + length).next_multiple_of(PAGE).min(self.capacity());
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        descriptor.proved().and_then(|fd| memfd::reserve(fd, start, end - start)).map_err(|e| {
            self.error(Status::NoSpace, format!("the node has no memory left ({e}); remove objects or end other tasks"))
        })
    }

    /// Checks that this process may change the region.
    pub(crate) fn check_use(&self) -> Result<()> {
        if !self.writable {
            return Err(self.failed(Status::Denied, Reason::ReadOnly));
        }
        if !self.is_own() {
            return Err(self.failed(Status::Disconnected, Reason::Forked));
        }
        Ok(())
    }

    /// Checks what `check_use` checks, for a caller that is about to change a container. After a death it first
    /// finishes what the dead member left half done. If a later call finished the dead member's change, that call
    /// would overwrite the caller's change.
    pub(crate) fn check_succession(&self) -> Result<()> {
        self.check_use()?;
        if !self.is_healed() {
            drop(self.lock()?);
        }
        Ok(())
    }

    /// Tells whether no member has died since this process last healed the region.
    #[inline]
    pub(crate) fn is_healed(&self) -> bool {
        self.deaths_seen.load(Ordering::Acquire) == self.deaths()
    }

    /// Tells whether a call that finds an object may have to wait for another member: a member has died since this
    /// process last healed the region, or a member is changing the directory at this moment. A caller that must not
    /// wait while it holds a lock that other threads need releases this lock first. The answer may be out of date when
    /// the caller has it.
    #[inline]
    pub fn may_wait(&self) -> bool {
        let changing = self.memory.header().directory_version.load(Ordering::Acquire) & 1 != 0;
        changing || self.writable && !self.is_healed()
    }

    /// The sum of two numbers: the deaths that the liveness table has counted, and the deaths that were proved to this
    /// process or that it has learned of from a port or an item. A death may be counted twice. The number starts again
    /// from 0 after 2³² deaths.
    #[inline]
    pub(crate) fn deaths(&self) -> u32 {
        // SAFETY: the trait `Host` promises that the word lasts as long as `host`, which `self` holds.
        unsafe { self.deaths.as_ref() }.load(Ordering::Acquire).wrapping_add(proved())
    }

    /// Tells whether this process opened the region itself, rather than inherited it by fork.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_current()
    }

    /// Makes an error that names this region.
    #[cold]
    pub(crate) fn error(&self, status: Status, text: impl std::fmt::Display) -> Error {
        Error::new(status, text.to_string()).about(SegmentKind::Region, &self.name)
    }

    /// Makes an error that names this region and has this reason.
    #[cold]
    pub(crate) fn failed(&self, status: Status, reason: Reason) -> Error {
        Error::because(status, reason).about(SegmentKind::Region, &self.name)
    }

    /// Makes the error for shared memory with contents that no correct member writes.
    #[cold]
    pub(crate) fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        self.failed(Status::Corrupt, Reason::Damaged(what.to_string()))
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("name", &self.name).field("segment", &self.segment).finish_non_exhaustive()
    }
}
