//! A session: one member's standing in the node, and everything that it may ask the daemon for.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::wire::{Grant, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};

use crate::Result;
use crate::segment::{OpenRequest, OpenedSegment};

/// How to reach the daemon, and as whom.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The endpoint's socket; `None` looks for one (`CROSSDOCK_SOCKET`, `/run/crossdock`, the user's runtime folder).
    pub socket: Option<PathBuf>,
    /// The task's name; an endpoint that was made for one task knows it, and takes no other.
    pub task: Option<String>,
    /// The task's rank; else `CROSSDOCK_RANK`, else 0.
    pub rank: Option<u32>,
    /// The workflow; an endpoint that was made for one knows it, and takes no other.
    pub workflow: Option<String>,
    /// The deadline for connecting, and for each answer of the daemon.
    pub timeout: Duration,
    /// Start a private daemon if none is found.
    pub private_daemon: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            socket: None,
            task: None,
            rank: None,
            workflow: None,
            timeout: Duration::from_secs(5),
            private_daemon: true,
        }
    }
}

/// One segment as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Never used again for another.
    pub id: SegmentId,
    /// Region or port.
    pub kind: SegmentKind,
    /// The workflow that it belongs to.
    pub workflow: String,
    /// Its name there.
    pub name: String,
    /// Size (capacity) in bytes.
    pub size: u64,
    /// Bytes that count against the quota.
    pub reserved: u64,
    /// The member that made it.
    pub creator: MemberId,
}

/// One member as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Never used again for another.
    pub id: MemberId,
    /// The workflow that it takes part in.
    pub workflow: String,
    /// The task that it acts as.
    pub task: String,
    /// Its rank in the task.
    pub rank: u32,
    /// Its process, as the node sees it.
    pub pid: u32,
    /// Its user, as the node sees it.
    pub uid: u32,
    /// Whether its connection stands right now (it may be away for a moment while a daemon restarts).
    pub connected: bool,
}

/// One workflow as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowInfo {
    /// Its name.
    pub name: String,
    /// Most bytes that its segments may reserve together; 0 = no limit but the node's.
    pub quota: u64,
    /// Bytes that they have reserved.
    pub reserved: u64,
}

/// What the daemon has, as far as the asker may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Workflows, by name.
    pub workflows: Vec<WorkflowInfo>,
    /// Members, by id.
    pub members: Vec<MemberInfo>,
    /// Segments, by id.
    pub segments: Vec<SegmentInfo>,
}

/// One member's standing in the node. Clones are the same session; threads may share it.
#[derive(Clone, Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {}

impl Session {
    /// Connects to the node daemon; starts a private one if none is there and the options allow it.
    ///
    /// # Errors
    /// `NOT_FOUND` without a daemon, `DENIED`, `INCOMPATIBLE` (names both versions), `TIMED_OUT`.
    pub fn connect(_options: &ConnectOptions) -> Result<Self> {
        todo!()
    }

    /// This session's member id.
    #[must_use]
    pub fn member(&self) -> MemberId {
        todo!()
    }

    /// The task that this session acts as.
    #[must_use]
    pub fn task(&self) -> &str {
        todo!()
    }

    /// The rank in the task.
    #[must_use]
    pub fn rank(&self) -> u32 {
        todo!()
    }

    /// The workflow that this session takes part in.
    #[must_use]
    pub fn workflow(&self) -> &str {
        todo!()
    }

    /// Everything that the asker may see: its workflow; all of the node for the daemon's own user.
    pub fn list(&self) -> Result<Listing> {
        todo!()
    }

    /// Makes a workflow that ends with this session, or by `end_workflow`. `quota` 0 = the node's.
    pub fn make_workflow(&self, _name: &str, _quota: u64) -> Result<()> {
        todo!()
    }

    /// Hands a listening socket to the daemon: whoever reaches it acts as `task` of `workflow` with these grants.
    pub fn make_endpoint(&self, _workflow: &str, _task: &str, _listener: OwnedFd, _grants: &[Grant]) -> Result<()> {
        todo!()
    }

    /// Ends a workflow that this session made: its segments, endpoints and members are gone afterwards.
    pub fn end_workflow(&self, _name: &str) -> Result<()> {
        todo!()
    }

    /// What a workflow of this session has right now.
    pub fn workflow_report(&self, _name: &str) -> Result<Listing> {
        todo!()
    }

    /// Leaves in order. Regions and ports that are still open go on to be usable, but nothing new can be asked for.
    pub fn close(self) -> Result<()> {
        todo!()
    }

    /// A number for this session that no other session of this process has (for process-local registries).
    pub(crate) fn serial(&self) -> u64 {
        todo!()
    }

    /// Opens or makes a segment by name.
    pub(crate) fn open_segment(&self, _request: &OpenRequest<'_>) -> Result<OpenedSegment> {
        todo!()
    }

    /// Opens a segment of this workflow by id; needs a grant on its name like opening it would.
    pub(crate) fn attach_segment(&self, _id: SegmentId) -> Result<OpenedSegment> {
        todo!()
    }

    /// Asks for the bytes up to `upto` of the segment to count as reserved; `NO_SPACE` if quota or node is full.
    /// The daemon has checked the quota when this returns; the caller then does `fallocate` on its descriptor.
    pub(crate) fn reserve(&self, _id: SegmentId, _upto: u64) -> Result<()> {
        todo!()
    }

    /// Takes a name away. The memory goes with its last mapping.
    pub(crate) fn remove_segment(&self, _kind: SegmentKind, _name: &str) -> Result<()> {
        todo!()
    }

    /// The liveness table, mapped read-only: who is alive at the price of a load, and the word that deaths wake.
    pub(crate) fn liveness(&self) -> &LivenessTable {
        todo!()
    }

    /// Who that member is or was ("task simulate, rank 0, pid 17, last seen 3.2 s ago"), for error messages.
    pub(crate) fn describe_member(&self, _member: MemberId) -> String {
        todo!()
    }
}
