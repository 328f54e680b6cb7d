//! The session's calls for regions: a segment with a heap in it, and named objects that tasks share read-write (Dhmem,
//! section III). What a region does itself is in `core`.

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::region::{self, Parts};
use crossdock_layout::region::MIN_CAPACITY;
use crossdock_layout::wire::{InUse, SegmentKind};
use crossdock_layout::{Handle, Rights, SegmentId, Status};

use crate::host::SessionHost;
use crate::segment::{OpenRequest, OpenedSegment};
use crate::{Error, Mode, Result, Session};

/// A region, mapped in this process. Clones are the same mapping, which goes with the last of them; threads may share it.
pub type Region = Arc<region::Region>;

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
        let id = SegmentId(handle.segment);
        if let Some(region) = self.owned().region(id) {
            return Ok(region);
        }
        if handle.is_none() {
            return Err(Error::new(Status::BadHandle, "the handle names nothing"));
        }
        let opened = self.attach_segment(id).map_err(|error| match error.status {
            Status::NotFound => error.during(handle.to_string()).with_status(Status::BadHandle),
            _ => error,
        })?;
        if opened.kind != SegmentKind::Region {
            let text = format!("{handle} points into {} '{}', not into a region", opened.kind.word(), opened.name);
            return Err(Error::new(Status::BadHandle, text));
        }
        let region = self.enter(opened)?;
        // The ports that such handles come by keep it open for the next one.
        for port in self.owned().ports() {
            port.keep(&region);
        }
        Ok(region)
    }

    fn enter(&self, opened: OpenedSegment) -> Result<Region> {
        if let Some(region) = self.owned().region(opened.id) {
            return Ok(region);
        }
        let host = SessionHost::growing(self, opened.lease, opened.id);
        let region = region::Region::attach(Parts {
            name: opened.name,
            segment: opened.id,
            descriptor: opened.descriptor,
            size: opened.size,
            writable: opened.writable,
            member: self.member(),
            host: Arc::new(host),
        })?;
        Ok(self.owned().note_region(region))
    }
}
