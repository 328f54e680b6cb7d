//! What regions and ports need from the session: segments by name or id, with their descriptors.

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
    /// What the caller will do with the segment. Region: READ, WRITE (denied without that right), or both, which gives
    /// as much as is granted. Port: PRODUCE, CONSUME, or both (denied unless both are granted).
    pub access: Rights,
    /// The size in bytes, if the segment has to be made (the daemon rounds it up to whole pages). 0 = only open.
    pub size: u64,
    /// The bytes from the start that count as reserved if the daemon makes the segment. Each process that opens the
    /// segment for writing takes those of these pages that do not exist yet, so touching them causes no SIGBUS.
    pub reserve: u64,
    /// Any number. An existing segment keeps its maker's number. Ports put their options here.
    pub attribute: u64,
    /// If the segment is made: it stays when the run ends (regions always do).
    pub persistent: bool,
    /// How long to wait for a segment that does not exist (only `OpenOnly` waits); `None` = not at all.
    pub timeout: Option<Duration>,
}

/// A segment, open in this process.
#[derive(Debug)]
pub(crate) struct OpenedSegment {
    pub id: SegmentId,
    pub kind: SegmentKind,
    pub name: String,
    /// Sealed against shrinking, growing and further seals. It is read-only if the grant has no WRITE.
    pub descriptor: OwnedFd,
    /// The size in bytes. The daemon knows how much of it is reserved; `Session::reserve` reserves more.
    pub size: u64,
    pub attribute: u64,
    pub writable: bool,
    /// Keep this as long as the segment is mapped. When it is dropped, the daemon is told that this process no longer
    /// uses the memory. Clones count as one.
    pub lease: Lease,
}

/// Tells the daemon, when the last clone is dropped, that one opening of a segment is closed.
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
