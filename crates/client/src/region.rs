//! The session's calls for regions. A region is a segment with a heap and named objects that tasks share for reading
//! and writing (after the Dhmem paper, section III; see `docs/papers.md`). The calls of a region itself are in the
//! crate `core`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_core::region::{self, RegionParts};
use crossdock_layout::region::{ANY_SIZE, DEFAULT_CAPACITY, MIN_CAPACITY};
use crossdock_layout::wire::{InUse, SegmentKind};
use crossdock_layout::{Handle, Rights, SegmentId, Status};

use crate::host::SessionHost;
use crate::segment::{OpenRequest, OpenedSegment};
use crate::{Error, Mode, Result, Session};

/// A region that is mapped in this process. Clones share the mapping, which ends with the last clone. Threads may share
/// a region.
pub type Region = Arc<region::Region>;

/// The pause between two attempts to open a region that is busy.
pub(crate) const AGAIN: Duration = Duration::from_millis(20);

impl Session {
    /// Opens or makes a region. `size` is the capacity in bytes; it is used only if the region has to be made. The
    /// capacity is virtual, and includes the region's own tables (about a twentieth). A capacity of less than 256 KiB
    /// becomes 256 KiB. With `ANY_SIZE`, an existing region may have any size, and a new region gets the capacity
    /// `DEFAULT_CAPACITY`.
    ///
    /// `timeout` is how long `OpenOnly` waits for a region that does not exist yet. With `None`, the call does not
    /// wait.
    ///
    /// # Errors
    /// `INVALID` if the name is not allowed, the size is 0, or `OpenOrCreate` asks for more bytes than the existing
    /// region has. `EXISTS` if `CreateOnly` finds a region. `NOT_FOUND` if `OpenOnly` finds no region and does not
    /// wait; `TIMED_OUT` if it has waited in vain. `BUSY` while the region is being copied or moved to another node.
    /// `DENIED` without a grant. `NO_SPACE` if the quota or the node's memory does not suffice. `CORRUPT` if the memory
    /// holds what no correct member writes. `INCOMPATIBLE` if a build with another memory layout made the region.
    pub fn region(&self, name: &str, mode: Mode, size: u64, timeout: Option<Duration>) -> Result<Region> {
        if size == 0 && mode != Mode::OpenOnly {
            let text = format!("region '{name}': a size of 0 bytes; say how large it may become");
            return Err(Error::new(Status::Invalid, text));
        }
        let (asked, new_size) = if size == ANY_SIZE { (0, DEFAULT_CAPACITY) } else { (size, size.max(MIN_CAPACITY)) };
        let began = Instant::now();
        let open = |timeout| {
            self.open_segment(&OpenRequest {
                kind: SegmentKind::Region,
                name,
                mode,
                access: Rights::READ.with(Rights::WRITE),
                size: if mode == Mode::OpenOnly { 0 } else { new_size },
                reserve: 0,
                attribute: 0,
                persistent: true,
                timeout,
            })
        };
        let opened = loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            match open(left) {
                // The region is being copied or moved to another node, so the loop tries again.
                Err(error) if error.status == Status::Busy && left.is_some_and(|left| !left.is_zero()) => {
                    std::thread::sleep(AGAIN);
                }
                opened => break opened?,
            }
        };
        if mode == Mode::OpenOrCreate && asked > opened.size.max(MIN_CAPACITY) {
            let text = format!(
                "region '{name}' exists with {} bytes, and {asked} bytes were asked for; remove it first (`crossdock rm {}/{name}`), \
                 recreate it, or ask for what it has",
                opened.size,
                self.workflow()
            );
            return Err(Error::new(Status::Invalid, text));
        }
        let entered = self.enter(opened);
        if entered.is_err() && matches!(mode, Mode::CreateOnly | Mode::Recreate) {
            // This call has made the region, but could not map it. So this call removes the region.
            let _ = self.remove(SegmentKind::Region, name, InUse::Unused);
        }
        entered
    }

    /// Removes a region's name. Tasks that have the region open keep it. The region's memory is freed when the last
    /// task has unmapped it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no region of this name, `DENIED` without a grant to remove it.
    pub fn remove_region(&self, name: &str) -> Result<()> {
        self.remove_segment(SegmentKind::Region, name)
    }

    /// Gives the region that a handle points into, and opens the region if necessary. If the handle came in a message
    /// of a port, the port keeps the region open until the port is closed, so that the region need not be opened again
    /// for the next message. A port keeps up to four regions open.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the handle names a segment that does not exist, that this task may not see, or that is no
    /// region. `DENIED` if the grant of this task does not allow to read the region. `BUSY` while the region is being
    /// copied or moved to another node.
    pub fn region_of(&self, handle: Handle) -> Result<Region> {
        let id = SegmentId(handle.segment);
        if let Some(region) = self.session_objects().region(id) {
            return Ok(region);
        }
        if handle.is_none() {
            return Err(Error::new(Status::BadHandle, "the handle names nothing"));
        }
        let opened = match self.attach_segment(id) {
            Ok(opened) => opened,
            Err(error) if error.status == Status::NotFound => {
                // The handle may come from a region whose bytes were copied to this node. In this case, the handle
                // points into the copy.
                let missing = || error.during(handle.to_string()).with_status(Status::BadHandle);
                return self.session_objects().copy_of(id).ok_or_else(missing);
            }
            Err(error) => return Err(error),
        };
        if opened.kind != SegmentKind::Region {
            let text = format!("{handle} points into {} '{}', not into a region", opened.kind.word(), opened.name);
            return Err(Error::new(Status::BadHandle, text));
        }
        let region = self.enter(opened)?;
        // If the handle came through one of these ports, that port keeps the region open for the next message.
        for port in self.session_objects().ports() {
            port.keep(&region);
        }
        Ok(region)
    }

    pub(crate) fn enter(&self, opened: OpenedSegment) -> Result<Region> {
        if let Some(region) = self.session_objects().region(opened.id) {
            return Ok(region);
        }
        let host = SessionHost::growing(self, opened.opening, opened.id);
        let region = region::Region::attach(RegionParts {
            name: opened.name,
            segment: opened.id,
            descriptor: opened.descriptor,
            size: opened.size,
            writable: opened.writable,
            member: self.member(),
            host: Arc::new(host),
        })?;
        Ok(self.session_objects().note_region(region))
    }
}
