//! What regions and ports need from the session: segments by name or by id, and their descriptors.

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::wire::{OpenMode, SegmentKind};
use crossdock_layout::{Rights, SegmentId};
use crossdock_os::OwnFile;

use crate::connection::Connection;

/// A request for a segment by its name in the session's workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRequest<'a> {
    pub kind: SegmentKind,
    pub name: &'a str,
    pub mode: OpenMode,
    /// The rights that the caller wants. For a region: READ, WRITE or both. If the caller wants only WRITE, the daemon
    /// denies the request of a task that may not write. If the caller wants both, it gets those of the two rights that
    /// the task has. For a port: PRODUCE, CONSUME or both. The daemon denies the request if the task lacks any of them.
    pub access: Rights,
    /// The size in bytes if the segment has to be made; the daemon rounds it up to whole pages. 0 means to open an
    /// existing segment only.
    pub size: u64,
    /// The number of bytes, from the start on, that count as reserved if the daemon makes the segment. Each process
    /// that opens the segment for writing allocates the missing pages of these bytes, so that an access to the bytes
    /// causes no SIGBUS.
    pub reserve: u64,
    /// Any number that the maker wants to keep with the segment. If the segment exists already, this number is ignored.
    /// For a port the number encodes the options.
    pub attribute: u64,
    /// If this request makes a segment: true if the segment stays when the run ends. Regions always stay.
    pub persistent: bool,
    /// How long `OpenOnly` waits for a segment that does not exist yet. With `None`, the request does not wait.
    pub timeout: Option<Duration>,
}

/// A segment, open in this process.
#[derive(Debug)]
pub(crate) struct OpenedSegment {
    pub id: SegmentId,
    pub kind: SegmentKind,
    pub name: String,
    /// The descriptor of the segment. The segment is sealed: it can neither shrink nor grow, nor get other seals. The
    /// descriptor is read-only if the grant has no WRITE.
    pub descriptor: OwnFile,
    /// The size in bytes. The daemon counts how many of these bytes are reserved; `SessionHost::reserve` asks the
    /// daemon to reserve more of them.
    pub size: u64,
    pub attribute: u64,
    pub writable: bool,
    /// The caller must keep this opening as long as the segment is mapped. When the last clone of the opening is
    /// dropped, this process tells the daemon that it no longer uses the memory.
    pub opening: SegmentOpening,
}

/// One opening of a segment in the daemon's count. When the last clone of this value is dropped, this process tells the
/// daemon that the opening is closed.
#[derive(Clone, Debug)]
pub(crate) struct SegmentOpening(#[expect(dead_code, reason = "kept for its drop")] Arc<CountedOpening>);

#[derive(Debug)]
struct CountedOpening {
    connection: Arc<Connection>,
    segment: SegmentId,
}

impl SegmentOpening {
    pub(crate) fn new(connection: Arc<Connection>, segment: SegmentId) -> Self {
        Self(Arc::new(CountedOpening { connection, segment }))
    }
}

impl Drop for CountedOpening {
    fn drop(&mut self) {
        self.connection.release(self.segment);
    }
}
