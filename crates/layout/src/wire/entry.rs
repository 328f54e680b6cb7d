//! The entries of listings: workflows, members, segments and nodes.

use super::answer::PAGE_ROOM;
use super::{Address, MemberState, NodeState, SegmentKind, TextLine, Wire};
use crate::{MemberId, SegmentId, record};

record! {
    /// A workflow in a listing.
    pub struct WorkflowEntry as Wire {
        /// The number of the workflow. Each new workflow gets a greater number than all workflows before it. To get the
        /// next page of a listing, a client sends the last number that it got.
        number: u64,
        /// The largest number of bytes that the workflow may reserve; 0 for the node's limit.
        quota: u64,
        /// The number of bytes that count against the quota.
        reserved: u64,
        /// The member that made the workflow. When this member ends, the workflow ends. The value is 0 for the default
        /// workflow.
        owner: MemberId,
        /// The number of runs that the workflow has had, including the present one.
        run: u64,
        /// The workflow's name.
        name: String,
    }
}

impl WorkflowEntry {
    /// The number of entries that fit into one message (a page) of a listing.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}

record! {
    /// A member in a listing, or the answer to `Describe`.
    pub struct MemberEntry as Wire {
        /// The id of the member.
        member: MemberId,
        /// The time in milliseconds since the daemon last heard of the member.
        silent_ms: u64,
        /// The number of steps that the member has done, as it reports.
        done: u64,
        /// The number of steps that the member will do in all; 0 if it has reported no progress.
        of: u64,
        /// The member's rank in its task.
        rank: u32,
        /// The member's process id, as the node daemon sees it.
        pid: u32,
        /// The member's user id, as the node daemon sees it.
        uid: u32,
        /// The member's state, as far as the daemon knows.
        state: MemberState,
        /// The workflow in which the member takes part.
        workflow: String,
        /// The task as which the member acts.
        task: String,
    }
}

impl MemberEntry {
    /// The number of entries that fit into one message (a page) of a listing.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}

record! {
    /// A segment in a listing.
    pub struct SegmentEntry as Wire {
        /// The segment's id.
        segment: SegmentId,
        /// The segment's size in bytes.
        size: u64,
        /// The number of bytes that count against the quota.
        reserved: u64,
        /// The number that the maker of the segment chose; for a port, it contains the pattern and the capacity. In the
        /// entry of a series, this field has two other numbers: its upper 32 bits are the present number of observers,
        /// and its lower 32 bits are the largest number of observers that the series allows.
        attribute: u64,
        /// The member that made the segment.
        creator: MemberId,
        /// The time when the segment was made, in milliseconds since 1970.
        since_ms: u64,
        /// The kind of the segment: region, port or series.
        kind: SegmentKind,
        /// The number of members that have the segment open.
        members: u32,
        /// True if the segment's name was removed, but members still use its memory.
        removed: bool,
        /// True if this is a series that was published in an earlier run, which has ended.
        former: bool,
        /// The workflow that the segment belongs to.
        workflow: String,
        /// The segment's name.
        name: String,
    }
}

impl SegmentEntry {
    /// The number of entries that fit into one message (a page) of a listing.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}

record! {
    /// A node of the site in a listing.
    pub struct NodeEntry as Wire {
        /// The number of the node. A node name keeps its number for ever.
        number: u64,
        /// The time in milliseconds since it was last known that the node had its lease. For the node that answers,
        /// this is the time since it last reached the catalog.
        silent_ms: u64,
        /// The node's state, as far as the answering node knows.
        state: NodeState,
        /// The number of names of regions, ports and items that, as the catalog says, belong to the listed node.
        names: u32,
        /// The round-trip time to the node in microseconds, from a question until its answer, as last measured; 0 if
        /// there is no measurement.
        round_trip_us: u64,
        /// The name of the site.
        site: String,
        /// The name of the node.
        node: String,
        /// The address at which the node's daemon can be reached.
        address: String as Address,
        /// The transport that carries bytes to the node, for example TCP. The field is empty for the node that answers, and
        /// for a node to which no link was needed yet.
        transport: String as Address,
        /// The reason why no faster transport to the node can be used, or why there is no connection to the node at
        /// present.
        why: String as TextLine,
    }
}

impl NodeEntry {
    /// The number of entries that fit into one message (a page) of a listing.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}
