//! The entries of listings.

use super::answer::PAGE_ROOM;
use super::{Address, MemberState, NodeState, SegmentKind, Wire};
use crate::{MemberId, SegmentId, record};

record! {
    /// A workflow in a listing.
    pub struct WorkflowEntry as Wire {
        /// Grows from workflow to workflow; where a listing goes on.
        number: u64,
        /// Most bytes; 0 = the node's.
        quota: u64,
        /// Bytes that count against it.
        reserved: u64,
        /// The member that it ends with; 0 for the default one.
        owner: MemberId,
        /// How many runs it has had, the current one included.
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
        /// Milliseconds since it was last heard of.
        silent_ms: u64,
        /// Steps that it has done, as it says.
        done: u64,
        /// Steps that it will do in all; 0 = it has reported no progress.
        of: u64,
        /// Its rank in its task.
        rank: u32,
        /// Its process, as the node sees it.
        pid: u32,
        /// Its user, as the node sees it.
        uid: u32,
        /// What is known of it.
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
        /// What its maker gave.
        attribute: u64,
        /// The member that made it.
        creator: MemberId,
        /// When it was made, in milliseconds since 1970.
        since_ms: u64,
        /// Region or port.
        kind: SegmentKind,
        /// How many members have it open.
        members: u32,
        /// Its name is taken away already; its memory is still in use.
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
        /// Belongs to the node's name for good.
        number: u64,
        /// Milliseconds since it was last known to have its lease, or this node to have reached the catalog.
        silent_ms: u64,
        /// What is known of it.
        state: NodeState,
        /// How many names of regions, ports and items are its.
        names: u32,
        /// The site.
        site: String,
        /// The node's name.
        node: String,
        /// Where its daemon can be reached.
        address: String as Address,
    }
}

impl NodeEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}
