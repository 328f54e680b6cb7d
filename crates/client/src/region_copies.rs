//! The session's calls that bring a region of another node to this node: calls for tasks, and calls for the daemon
//! itself.

use std::time::{Duration, Instant};

use crossdock_core::region::note_former;
use crossdock_layout::region::{MIN_CAPACITY, PAGE};
use crossdock_layout::wire::{Request, SegmentKind};
use crossdock_layout::{Rights, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping, memfd};

use crate::region::AGAIN;
use crate::segment::{OpenRequest, OpenedSegment};
use crate::{Error, Mode, Region, Result, Session};

/// How long this process waits for the daemon's answer after the call's deadline. The answer may be late, because the
/// daemon first removes an unfinished copy.
const CLEANING: Duration = Duration::from_secs(5);

impl Session {
    /// Copies a region of any node of the site to this node, under another name, and opens the copy. The copy has the
    /// bytes that the region had at a moment when no task had it open. Handles that were saved in the region are valid
    /// in the copy, and name the copy's objects there.
    ///
    /// `timeout` is for the whole call. Within this time, the call waits for the region to be made, and for all tasks
    /// to close it.
    ///
    /// # Errors
    /// `BUSY` if a task still has the region open at the timeout (the text names the task). `EXISTS` if the name of the
    /// copy is taken. `NOT_FOUND` if no node has the region at the timeout. `NO_SPACE` if the quota or this node's
    /// memory does not suffice. `DENIED` without a grant to read the region, or to create and read the copy.
    /// `TIMED_OUT` if the copying takes longer than the timeout. `DISCONNECTED` if the region's node, or the catalog,
    /// was lost meanwhile. `INVALID` if a name is not allowed, if both names are equal, or if the region is on this
    /// node and the daemon is in no site. After an error there is no copy.
    pub fn copy_region(&self, name: &str, copy: &str, timeout: Duration) -> Result<Region> {
        self.bring_region(name, copy, false, timeout)
    }

    /// Moves a region of any node of the site to this node, and opens it. The region keeps its name, and handles of it
    /// stay valid. A region that is on this node already is only opened.
    ///
    /// `timeout` is for the whole call. Within this time, the call waits for the region to be made, and for all tasks
    /// to close it.
    ///
    /// # Errors
    /// As for [`Self::copy_region`], but `DENIED` without the grants to read, write, remove and create the region.
    /// After an error the region is where it was.
    pub fn move_region(&self, name: &str, timeout: Duration) -> Result<Region> {
        self.bring_region(name, name, true, timeout)
    }

    fn bring_region(&self, name: &str, copy: &str, moves: bool, timeout: Duration) -> Result<Region> {
        crate::session::check_name("region", name)?;
        crate::session::check_name("region", copy)?;
        let began = Instant::now();
        let mut last = None;
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let request = Request::CopyRegion { wait_ms, moves, name: name.to_owned(), copy: copy.to_owned() };
            let by = Deadline::after(left.saturating_add(CLEANING));
            match self.connection().ask(request, None, Some(left), by) {
                Ok(_) => break,
                Err(error) if matches!(error.status, Status::Busy | Status::NotFound) && left > AGAIN => {
                    last = Some(error);
                    std::thread::sleep(AGAIN);
                }
                // The error of the last failed attempt says more than `TIMED_OUT`, so that error is returned.
                Err(error) if error.status == Status::TimedOut => return Err(last.unwrap_or(error)),
                Err(error) => return Err(error),
            }
        }
        self.region(copy, Mode::OpenOnly, 0, None)
    }

    /// Heals and opens a region, so that its bytes can be copied to another node. While the returned region exists, no
    /// other member can open the region. `moves` is true if the region is to be moved to the other node, and false if
    /// it is only to be copied. The call is for the daemon itself.
    ///
    /// # Errors
    /// `BUSY` if another member has the region open (the text names the member). `NOT_FOUND` if there is no region of
    /// this name. `DENIED` if this session is not the daemon's own.
    pub fn freeze_region(&self, name: &str, moves: bool) -> Result<Region> {
        let opened = self.open_segment(&OpenRequest {
            kind: SegmentKind::Region,
            name,
            mode: Mode::OpenOnly,
            access: Rights::READ.with(Rights::WRITE),
            size: 0,
            reserve: 0,
            attribute: 0,
            persistent: true,
            timeout: None,
        })?;
        let freeze = Request::Freeze { segment: opened.id, moves };
        self.connection().ask(freeze, None, None, self.deadline())?;
        let region = self.enter(opened)?;
        region.settle()?;
        Ok(region)
    }

    /// Makes an empty segment for the bytes of a region. `name` must be one of the daemon's own names. The call is for
    /// the daemon itself.
    ///
    /// # Errors
    /// `NO_SPACE` if the quota or the node's memory does not suffice. `EXISTS` if the name is taken. `DENIED` if this
    /// session is not the daemon's own.
    pub fn incoming_region(&self, name: &str, capacity: u64) -> Result<IncomingRegion> {
        let opened = self.open_segment(&OpenRequest {
            kind: SegmentKind::Region,
            name,
            mode: Mode::CreateOnly,
            access: Rights::READ.with(Rights::WRITE),
            size: capacity.max(MIN_CAPACITY),
            reserve: 0,
            attribute: 0,
            persistent: false,
            timeout: None,
        })?;
        let length = usize::try_from(opened.size)
            .map_err(|_| Error::new(Status::Invalid, format!("{} bytes are too many here", opened.size)))?;
        let mapping = Mapping::new(&opened.descriptor, length, Access::ReadWrite).map_err(|error| Error::os(&error))?;
        Ok(IncomingRegion { session: self.clone(), opened, mapping })
    }

    /// Claims in the site the name that `region`, a complete copy of a region, is to get. `order` is the number that
    /// the broker gave when it told this session to copy the region. `former` is the segment from which the region was
    /// copied. If `named` is true, the broker also gives the copy this name. Until then, the copy has a name of the
    /// daemon's own. The call is for the daemon itself.
    ///
    /// # Errors
    /// `EXISTS` if the name was taken meanwhile. `DISCONNECTED` if the catalog did not answer. `CLOSED` if the member
    /// that asked for the copy is gone. `DENIED` if `region` is no copy that this session has made.
    pub fn adopt_region(
        &self,
        order: u64,
        region: &Region,
        former: SegmentId,
        named: bool,
        wait: Duration,
    ) -> Result<()> {
        let adopt = Request::Adopt { order, named, segment: region.id(), former };
        self.connection().ask(adopt, None, Some(wait), Deadline::after(wait)).map(drop)
    }

    /// After this call, the node `node` alone decides whether the region `segment` moves to it. This session must have
    /// opened the region by [`Self::freeze_region`]. No member of this node can open the region any more, unless this
    /// node learns that the region has not moved. If the region moves, it becomes the segment `becomes` of that node.
    /// The call is for the daemon itself.
    ///
    /// # Errors
    /// `CLOSED` if this session does not keep the region for that node any more. `NO_SPACE` if the daemon cannot write
    /// its journal.
    pub fn hand_over_region(&self, segment: SegmentId, becomes: SegmentId, node: &str) -> Result<()> {
        let hand_over = Request::HandOver { segment, becomes, node: node.to_owned() };
        self.connection().ask(hand_over, None, None, self.deadline()).map(drop)
    }
}

/// A segment of this node into which the bytes of a region are copied. No other member can see the segment.
#[derive(Debug)]
pub struct IncomingRegion {
    session: Session,
    opened: OpenedSegment,
    mapping: Mapping,
}

impl IncomingRegion {
    /// The segment's id.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.opened.id
    }

    /// Asks the daemon to count this many bytes against the quota of the workflow.
    ///
    /// # Errors
    /// `NO_SPACE` if the quota or the node's memory does not suffice.
    pub fn count(&self, bytes: u64) -> Result<()> {
        let reserve = Request::Reserve { segment: self.opened.id, upto: bytes };
        self.session.connection().ask(reserve, None, None, self.session.deadline()).map(drop)
    }

    /// Gives a part of the segment's memory for writing. The call first reserves the memory of this part, so that a
    /// store to the part causes no SIGBUS.
    ///
    /// # Errors
    /// `NO_SPACE` if the node has no memory for the part. `CORRUPT` if the part does not lie within the segment, or
    /// does not consist of whole pages.
    pub fn part(&mut self, offset: u64, length: u64) -> Result<&mut [u8]> {
        let outside = || Error::new(Status::Corrupt, format!("{length} bytes at {offset} are not in the region"));
        let end = offset.checked_add(length).filter(|end| *end <= self.opened.size).ok_or_else(outside)?;
        if length == 0 || offset % PAGE != 0 || length % PAGE != 0 {
            return Err(outside());
        }
        memfd::reserve(&self.opened.descriptor, offset, length).map_err(|error| {
            Error::new(Status::NoSpace, format!("the node has no memory for {length} bytes of the region: {error}"))
        })?;
        Ok(&mut self.mapping.fresh_bytes()[offset as usize..end as usize])
    }

    /// Opens the region, after all bytes of the segment `from` were copied.
    ///
    /// # Errors
    /// `CORRUPT` if the bytes are not those of a region. `INCOMPATIBLE` if a build with another memory layout made the
    /// region.
    pub fn finish(mut self, from: SegmentId) -> Result<Region> {
        note_former(self.part(0, PAGE)?, from);
        let Self { session, opened, mapping } = self;
        drop(mapping);
        session.enter(opened)
    }
}
