//! What regions and ports ask of the session: segments by name or id, with their descriptors.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::wire::{OpenMode, SegmentKind};
use crossdock_layout::{Rights, SegmentId};

use crate::connection::Connection;

/// A request for a segment by its name in the session's workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRequest<'a> {
    pub kind: SegmentKind,
    pub name: &'a str,
    pub mode: OpenMode,
    /// What the caller means to do. Region: READ, WRITE (denied without that right), or both: as much as is granted.
    /// Port: PRODUCE, CONSUME, or both (denied unless both are granted).
    pub access: Rights,
    /// Size in bytes if it has to be made (rounded up to whole pages by the daemon). 0 = only open.
    pub size: u64,
    /// Bytes from the start that count as reserved if the daemon makes the segment. Each process that opens it for writing
    /// takes those pages that are not there yet, so touching them is no SIGBUS.
    pub reserve: u64,
    /// Any number; an existing segment keeps that of its maker. Ports put their options here.
    pub attribute: u64,
    /// If it is made: it stays when the run ends (regions always do).
    pub persistent: bool,
    /// How long to wait for a segment that is not there (`OpenOnly` alone); `None` = not at all.
    pub timeout: Option<Duration>,
}

/// A segment, open in this process.
#[derive(Debug)]
pub(crate) struct OpenedSegment {
    pub id: SegmentId,
    pub kind: SegmentKind,
    pub name: String,
    /// Sealed against shrinking, growing and further seals. Read-only if the grant has no WRITE.
    pub descriptor: OwnedFd,
    /// How much of it is reserved is the daemon's to know; more by `Session::reserve`.
    pub size: u64,
    pub attribute: u64,
    pub writable: bool,
    /// Keep it for as long as the segment is mapped: when it goes, the daemon hears that the memory is not used here
    /// any more. Clones count as one.
    pub lease: Lease,
}

/// Says to the daemon, when the last clone goes, that one opening of a segment is closed.
#[derive(Clone, Debug)]
pub(crate) struct Lease(#[expect(dead_code, reason = "kept for its drop")] Arc<Leased>);

#[derive(Debug)]
struct Leased {
    connection: Arc<Connection>,
    segment: SegmentId,
}

impl Lease {
    pub(crate) fn new(connection: Arc<Connection>, segment: SegmentId) -> Self {
        Self(Arc::new(Leased { connection, segment }))
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.connection.release(self.segment);
    }
}
