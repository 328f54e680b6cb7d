//! What regions and ports ask of the session: segments by name or id, with their descriptors.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crossdock_layout::wire::{OpenMode, SegmentKind};
use crossdock_layout::{Rights, SegmentId};

/// A request for a segment by its name in the session's workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRequest<'a> {
    pub kind: SegmentKind,
    pub name: &'a str,
    pub mode: OpenMode,
    /// What the caller means to do: READ or WRITE for a region, PRODUCE or CONSUME for a port.
    pub access: Rights,
    /// Size in bytes if it has to be made (rounded up to whole pages by the daemon). 0 = only open.
    pub size: u64,
    /// Bytes from the start that the daemon reserves at once (pages are there, no SIGBUS) if it makes the segment.
    pub reserve: u64,
    /// Any number; an existing segment keeps that of its maker. Ports put their options here.
    pub attribute: u64,
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
    pub size: u64,
    /// Bytes from the start that are reserved; more by `Session::reserve`.
    pub reserved: u64,
    pub attribute: u64,
    /// Made by this very request.
    pub created: bool,
    pub writable: bool,
}
