//! The entries of listings.

use super::answer::PAGE_ROOM;
use super::{Address, Line, MemberState, NodeState, SegmentKind, Wire};
use crate::{MemberId, SegmentId, record};

record! {
    /// A workflow in a listing.
    pub struct WorkflowEntry as Wire {
        /// Grows from workflow to workflow. A listing continues from it.
        number: u64,
        /// The largest number of bytes; 0 for the node's limit.
        quota: u64,
        /// Bytes that count against it.
        reserved: u64,
        /// The member whose end ends the workflow; 0 for the default workflow.
        owner: MemberId,
        /// The number of runs that the workflow has had, with the current one.
        run: u64,
        /// Its name.
        name: String,
    }
}

impl WorkflowEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}

record! {
    /// A member in a listing, or the answer to `Describe`.
    pub struct MemberEntry as Wire {
        /// Which.
        member: MemberId,
        /// Milliseconds since the daemon last heard of the member.
        silent_ms: u64,
        /// Steps that it has done, as it says.
        done: u64,
        /// Steps that it will do in all; 0 = it has reported no progress.
        of: u64,
        /// The member's rank in its task.
        rank: u32,
        /// The member's process id, as the node sees it.
        pid: u32,
        /// The member's user id, as the node sees it.
        uid: u32,
        /// The member's state, as far as the daemon knows.
        state: MemberState,
        /// The workflow that it takes part in.
        workflow: String,
        /// The task that it acts as.
        task: String,
    }
}

impl MemberEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}

record! {
    /// A segment in a listing.
    pub struct SegmentEntry as Wire {
        /// Which.
        segment: SegmentId,
        /// Bytes.
        size: u64,
        /// Bytes that count against the quota.
        reserved: u64,
        /// The value that the segment's maker gave.
        attribute: u64,
        /// The member that made it.
        creator: MemberId,
        /// When it was made, in milliseconds since 1970.
        since_ms: u64,
        /// Region or port.
        kind: SegmentKind,
        /// How many members have it open.
        members: u32,
        /// The name is removed already, and the memory is still in use.
        removed: bool,
        /// A series that was published in a run that has ended.
        former: bool,
        /// Whose it is.
        workflow: String,
        /// Its name.
        name: String,
    }
}

impl SegmentEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}

record! {
    /// A node of the site in a listing.
    pub struct NodeEntry as Wire {
        /// The number that belongs to the node's name for good.
        number: u64,
        /// Milliseconds since the node was last known to have its lease; for this node, since it last reached the
        /// catalog.
        silent_ms: u64,
        /// The node's state, as far as this node knows.
        state: NodeState,
        /// The number of names of regions, ports and items that belong to the node.
        names: u32,
        /// Microseconds from a question to the node to its answer, as measured last; 0 if it was not measured.
        round_trip_us: u64,
        /// The site.
        site: String,
        /// The node's name.
        node: String,
        /// The address at which the node's daemon can be reached.
        address: String as Address,
        /// What carries bytes to the node; nothing for this node, and as long as no link to the node was needed.
        transport: String as Address,
        /// Why no better transport carries them, or why there is no connection now.
        why: String as Line,
    }
}

impl NodeEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}
