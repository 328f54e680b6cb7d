//! The session's calls for regions.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crossdock_core::liveness::Living;
use crossdock_core::region::{self as core, Parts, Surroundings};
use crossdock_layout::region::MIN_CAPACITY;
use crossdock_layout::wire::{InUse, SegmentKind};
use crossdock_layout::{Handle, MemberId, Rights, Status};

use super::{Mode, Region, Shared, registry};
use crate::segment::{Lease, OpenRequest, OpenedSegment};
use crate::{Error, Result, Session};

/// What a region asks of its session. It keeps both the session and the daemon's count of openings.
struct Asking {
    session: Session,
    segment: crossdock_layout::SegmentId,
    _lease: Lease,
}

impl Surroundings for Asking {
    fn is_dead(&self, member: MemberId) -> bool {
        self.session.liveness().is_dead(member)
    }

    fn deaths(&self) -> u32 {
        self.session.liveness().epoch()
    }

    fn death_word(&self) -> Option<&AtomicU32> {
        Some(&self.session.liveness().table().epoch)
    }

    fn reserve(&self, total: u64) -> crossdock_core::Result<()> {
        let answer = self.session.reserve(self.segment, total);
        answer.map_err(|e| crossdock_core::Error::new(e.status, e.message))
    }

    fn describe(&self, member: MemberId) -> String {
        self.session.describe_member(member)
    }
}

impl Session {
    /// Opens or makes a region. `size` counts when it has to be made: its capacity in bytes, which is virtual, and in
    /// which its own tables count (about a twentieth). Less than 256 KiB makes 256 KiB.
    ///
    /// `timeout`: how long `OpenOnly` waits for a region that is not there; `None` = not at all.
    ///
    /// # Errors
    /// `INVALID` (name, size 0, or more than an existing region has), `EXISTS`, `NOT_FOUND`, `TIMED_OUT`, `DENIED`, `NO_SPACE`, `CORRUPT`, `INCOMPATIBLE`.
    pub fn region(&self, name: &str, mode: Mode, size: u64, timeout: Option<Duration>) -> Result<Region> {
        if size == 0 && mode != Mode::OpenOnly {
            let text = format!("region '{name}': a size of 0 bytes; say how large it may become");
            return Err(Error::new(Status::Invalid, text));
        }
        let opened = self.open_segment(&OpenRequest {
            kind: SegmentKind::Region,
            name,
            mode,
            access: Rights::READ.with(Rights::WRITE),
            size: if mode == Mode::OpenOnly { 0 } else { size.max(MIN_CAPACITY) },
            reserve: 0,
            attribute: 0,
            persistent: true,
            timeout,
        })?;
        if mode == Mode::OpenOrCreate && size > opened.size.max(MIN_CAPACITY) {
            let text = format!(
                "region '{name}' exists with {} bytes, and {size} bytes were asked for; remove it first (`crossdock rm {}/{name}`), \
                 recreate it, or ask for what it has",
                opened.size,
                self.workflow()
            );
            return Err(Error::new(Status::Invalid, text));
        }
        let entered = self.enter(opened);
        if entered.is_err() && matches!(mode, Mode::CreateOnly | Mode::Recreate) {
            // What this call made is not left behind.
            let _ = self.remove(SegmentKind::Region, name, InUse::Refuse);
        }
        entered
    }

    /// Takes a region's name away. Who has it open keeps it; its memory goes with its last mapping.
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`.
    pub fn remove_region(&self, name: &str) -> Result<()> {
        self.remove_segment(SegmentKind::Region, name)
    }

    /// The region that a handle points into, opened if need be. If handles into it come by a port, that port keeps it open
    /// (up to four regions) until it is closed, so that the next message's region is at hand.
    ///
    /// # Errors
    /// `BAD_HANDLE` if it names no segment that is there, or one that is no region; `DENIED`.
    pub fn region_of(&self, handle: Handle) -> Result<Region> {
        let id = crossdock_layout::SegmentId(handle.segment);
        if let Some(region) = registry::of_segment(self.serial(), id) {
            return Ok(region);
        }
        if handle.is_none() {
            return Err(Error::new(Status::BadHandle, "the handle names nothing"));
        }
        let opened = self.attach_segment(id).map_err(|error| match error.status {
            Status::NotFound => Error::new(Status::BadHandle, format!("{handle}: {}", error.message)),
            _ => error,
        })?;
        if opened.kind != SegmentKind::Region {
            let text = format!("{handle} points into {} '{}', not into a region", opened.kind.word(), opened.name);
            return Err(Error::new(Status::BadHandle, text));
        }
        let region = self.enter(opened)?;
        crate::port::keep_region(self.serial(), &region);
        Ok(region)
    }

    fn enter(&self, opened: OpenedSegment) -> Result<Region> {
        if let Some(region) = registry::of_segment(self.serial(), opened.id) {
            return Ok(region);
        }
        let asking = Asking { session: self.clone(), segment: opened.id, _lease: opened.lease };
        let region = core::Region::attach(Parts {
            name: opened.name,
            segment: opened.id,
            descriptor: opened.descriptor,
            size: opened.size,
            writable: opened.writable,
            member: self.member(),
            surroundings: Arc::new(asking),
        })?;
        Ok(registry::enter(Arc::new(Shared { region, session: self.clone() })))
    }
}
