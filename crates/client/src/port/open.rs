//! Opens a port, removes its name, and inspects a port from outside.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossdock_core::queue::{self, Ring, Shape};
use crossdock_layout::wire::{OpenMode, SegmentKind};
use crossdock_layout::{Rights, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping};

use super::recent_regions::RecentRegions;
use super::{End, Port, PortOptions, PortReport, Shared};
use crate::host::SessionHost;
use crate::segment::{OpenRequest, OpenedSegment};
use crate::{Error, Reason, Result, Session};

/// The longest wait for the member that formats a new port. Formatting takes microseconds, but that member may be
/// stopped. A caller without a timeout waits at most 5 s. A caller with a timeout waits until its deadline, but at
/// least 1 s, because the formatting member may have to wait for a CPU.
const FORMAT_WAIT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));

impl Session {
    /// Makes a port without taking an end of it. The launcher uses this call for a port whose options the tasks do not
    /// choose themselves.
    ///
    /// # Errors
    /// `EXISTS` if there is a port of this name. `INVALID` if the name or the capacity is not allowed. `DENIED` without
    /// a grant to produce and to consume. `NO_SPACE` if the quota or the node's memory does not suffice.
    pub fn make_port(&self, name: &str, options: &PortOptions) -> Result<()> {
        let shape = options.shape();
        shape.check().map_err(|error| error.about(SegmentKind::Port, name))?;
        let access = Rights::PRODUCE.with(Rights::CONSUME);
        self.open_segment(&request(name, OpenMode::CreateOnly, access, shape, options.persistent)).map(drop)
    }

    /// Opens one end of a port. The first task that opens the port makes it, so producer and consumer may start in any
    /// order. The call does not wait for a peer. If another member has the end, the call waits up to `timeout` until
    /// the end is free. If `timeout` is `None`, the call does not wait.
    ///
    /// # Errors
    /// `INVALID` if the name or the capacity is not allowed, or if the options differ from those of the existing port
    /// (the text prints both). `BUSY` if another member has the end (the text names it). `DENIED` without a grant for
    /// this end. `NO_SPACE` if the quota or the node's memory does not suffice. `CLOSED` if another thread closes the
    /// session meanwhile.
    pub fn port(&self, name: &str, end: End, options: &PortOptions, timeout: Option<Duration>) -> Result<Port> {
        let named = |error: Error| error.about(SegmentKind::Port, name);
        let shape = options.shape();
        shape.check().map_err(named)?;
        let access = match end {
            End::Producer => Rights::PRODUCE,
            End::Consumer => Rights::CONSUME,
        };
        // All waits of this call share one deadline.
        let deadline = Deadline::after(timeout.unwrap_or_default());
        let mut wanted = request(name, OpenMode::OpenOrCreate, access, shape, options.persistent);
        // The daemon gets the timeout too. If the port is on another node, the daemon waits for a free end. If the port
        // is on this node, this process itself waits for a free end, in shared memory.
        wanted.timeout = timeout;
        let opened = self.open_segment(&wanted)?;
        let shape = agreed(name, &opened, options)?;
        let mapping = map(name, &opened, Access::ReadWrite)?;
        let taking = self.connection().begin_taking().map_err(named)?;
        let alive = self.liveness();
        let formatted = timeout.map_or(FORMAT_WAIT.0, |_| deadline.left().max(FORMAT_WAIT.1));
        let ring = Ring::open(mapping, shape, self.member(), alive, Deadline::after(formatted)).map_err(named)?;
        let host = Arc::new(SessionHost::new(self, vec![opened.opening]));
        let end = queue::End::open(ring, end, self.member(), &self.label(), host, deadline.left()).map_err(named)?;
        let shared = Arc::new(Shared {
            end,
            name: name.to_owned(),
            id: opened.id,
            poll_descriptor: OnceLock::new(),
            recent_regions: RecentRegions::default(),
        });
        self.session_objects().note_port(&shared);
        drop(taking);
        Ok(Port { shared })
    }

    /// Removes a port's name. Members that have the port open keep it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no port of this name, `DENIED` without a grant to remove it.
    pub fn remove_port(&self, name: &str) -> Result<()> {
        self.remove_segment(SegmentKind::Port, name)
    }

    /// Describes the present state of a port. The call reads the port's memory without taking an end of the port. The
    /// launcher and `inspect` use it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such segment, or if this session may not see it. `DENIED` if the grant of this task
    /// allows neither end of the port. `WRONG_TYPE` if the segment is no port. `NOT_YET` if no member has formatted the
    /// port yet. `CORRUPT` or `INCOMPATIBLE` if the memory does not hold a port of this version.
    pub fn port_report(&self, id: SegmentId) -> Result<PortReport> {
        let opened = self.attach_segment(id)?;
        if opened.kind != SegmentKind::Port {
            return Err(Error::new(
                Status::WrongType,
                format!("{} is {} {}, not a port", opened.id, opened.kind.word(), opened.name),
            ));
        }
        let mapping = map(&opened.name, &opened, Access::Read)?;
        let ring = Ring::inspect(mapping).map_err(|error| error.about(SegmentKind::Port, &opened.name))?;
        Ok(ring.report(self.liveness()))
    }
}

fn request(name: &str, mode: OpenMode, access: Rights, shape: Shape, persistent: bool) -> OpenRequest<'_> {
    OpenRequest {
        kind: SegmentKind::Port,
        name,
        mode,
        access,
        size: shape.size(),
        reserve: shape.size(),
        // With the port's segment, the daemon stores the options of the member that made the port. So each member that
        // opens the port knows the options, even before a member has formatted the port's memory.
        attribute: u64::from(shape.capacity) << 8 | shape.pattern as u64,
        persistent,
        timeout: None,
    }
}

/// Gives the options with which the port was made. Fails if the options that the caller wants are different.
fn agreed(name: &str, opened: &OpenedSegment, wanted: &PortOptions) -> Result<Shape> {
    let pattern = queue::Pattern::from_number((opened.attribute & 0xff) as u32);
    let capacity = u32::try_from(opened.attribute >> 8).unwrap_or(0);
    let found = pattern.map(|pattern| Shape { pattern, capacity }).filter(|shape| shape.check().is_ok());
    let Some(found) = found.filter(|shape| shape.size() <= opened.size) else {
        let text = "it is something that is no port of this version; remove it";
        return Err(Error::new(Status::Incompatible, text).about(SegmentKind::Port, name));
    };
    if wanted.fits(found) {
        return Ok(found);
    }
    let reason = Reason::OtherOptions { found: found.to_string(), wanted: wanted.shape().to_string() };
    Err(Error::because(Status::Invalid, reason).about(SegmentKind::Port, name))
}

fn map(name: &str, opened: &OpenedSegment, access: Access) -> Result<Mapping> {
    let length = usize::try_from(opened.size).unwrap_or(usize::MAX);
    Mapping::new(&opened.descriptor, length, access).map_err(|error| Error::os(&error).about(SegmentKind::Port, name))
}
