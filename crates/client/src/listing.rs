//! Lists of the daemon's workflows, members, segments, items and nodes. A list is requested page by page.

use std::time::Duration;

use crossdock_layout::wire::{Answer, ListOf, MemberEntry, MemberState, NodeState, Page, Request, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::Deadline;

use crate::connection::Connection;
use crate::session::unexpected;
use crate::{Error, ItemInfo, Result};

/// What the daemon knows about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The id of the segment, which no other segment ever gets.
    pub id: SegmentId,
    /// The kind of the segment, for example a region or a port.
    pub kind: SegmentKind,
    /// The workflow that the segment belongs to.
    pub workflow: String,
    /// The name of the segment in the workflow.
    pub name: String,
    /// The size in bytes. For a region this is its capacity.
    pub size: u64,
    /// The number of bytes that count against the quota.
    pub reserved: u64,
    /// The member that made the segment.
    pub creator: MemberId,
    /// The time when the segment was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// The number of members that have the segment open.
    pub members: u32,
    /// True if the name was removed, but members still use the memory.
    pub removed: bool,
    /// True for a series that was published in a run that has ended.
    pub former: bool,
    /// A number that the maker of the segment has set. For a port it encodes the port's options. For a series it
    /// encodes the counts that [`Self::observers`] returns.
    pub attribute: u64,
}

impl SegmentInfo {
    /// For a series: the number of its observers, and the largest number of observers that it allows. `None` for other
    /// segments.
    #[must_use]
    pub fn observers(&self) -> Option<(u32, u32)> {
        (self.kind == SegmentKind::Series).then_some(((self.attribute >> 32) as u32, self.attribute as u32))
    }
}

/// What the daemon knows about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// The id of the member, which no other member ever gets.
    pub id: MemberId,
    /// The workflow that the member takes part in.
    pub workflow: String,
    /// The task that the member acts as.
    pub task: String,
    /// The member's rank in the task.
    pub rank: u32,
    /// The process id of the member, in the PID namespace of the node.
    pub pid: u32,
    /// The user id of the member, in the user namespace of the node.
    pub uid: u32,
    /// True if the member is connected now. A living member may have no connection for a moment while a daemon
    /// restarts.
    pub connected: bool,
    /// The numbers of the member's last call of [`Session::progress`](crate::Session::progress): the steps done, and
    /// the steps in all.
    pub progress: Option<(u64, u64)>,
}

/// What the daemon knows about a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowInfo {
    /// The name of the workflow.
    pub name: String,
    /// The largest number of bytes that the workflow's segments may reserve together; 0 means that only the node's
    /// memory is the limit.
    pub quota: u64,
    /// The number of bytes that the workflow's segments have reserved.
    pub reserved: u64,
    /// The number of runs that the workflow has had, including the current run.
    pub run: u64,
}

/// Everything on the daemon that the asking task may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The workflows, sorted by name.
    pub workflows: Vec<WorkflowInfo>,
    /// The members, sorted by id.
    pub members: Vec<MemberInfo>,
    /// The segments, sorted by id.
    pub segments: Vec<SegmentInfo>,
    /// The items, sorted by id.
    pub items: Vec<ItemInfo>,
}

/// What the daemon knows about a node of its site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The name of the site.
    pub site: String,
    /// The node's name.
    pub name: String,
    /// The node's number. The ids of the node's segments have this number in their bits from bit 50 on.
    pub number: u64,
    /// The node's state, as far as this daemon knows.
    pub state: NodeState,
    /// The time since the node was last known to have its lease. For the asking node itself: the time since it last
    /// reached the catalog.
    pub silent: Duration,
    /// How many names of regions, ports and items belong to the node.
    pub names: u32,
    /// The address of the node's daemon; empty if it is unknown.
    pub address: String,
    /// The name of the transport between the asking node and this node, for example `tcp` or `grpc+tls`. `None` for the
    /// asking node itself, and as long as no link to this node was needed.
    pub transport: Option<String>,
    /// The round-trip time between the asking node and this node; `None` if the time was not measured.
    pub round_trip: Option<Duration>,
    /// The reason why no better transport is used, or why there is no connection now; empty if there is no link.
    pub why: String,
}

/// Asks for the nodes of the daemon's site, in the order of their numbers. The list is empty if the daemon is in no
/// site.
pub(crate) fn nodes(connection: &Connection, deadline: Deadline) -> Result<Vec<NodeInfo>> {
    let mut nodes = Vec::new();
    pages(|after| {
        let request = Request::List { of: ListOf::Nodes, after, workflow: None };
        match connection.ask(request, None, None, deadline)?.0 {
            Answer::Nodes(Page { entries, more }) => {
                let last = entries.last().map(|e| e.number);
                nodes.extend(entries.into_iter().map(|e| NodeInfo {
                    site: e.site,
                    name: e.node,
                    number: e.number,
                    state: e.state,
                    silent: Duration::from_millis(e.silent_ms),
                    names: e.names,
                    address: e.address,
                    transport: Some(e.transport).filter(|name| !name.is_empty()),
                    round_trip: (e.round_trip_us > 0).then(|| Duration::from_micros(e.round_trip_us)),
                    why: e.why,
                }));
                Ok(last.filter(|_| more))
            }
            _ => Err(unexpected()),
        }
    })?;
    Ok(nodes)
}

impl From<MemberEntry> for MemberInfo {
    fn from(entry: MemberEntry) -> Self {
        Self {
            id: entry.member,
            workflow: entry.workflow,
            task: entry.task,
            rank: entry.rank,
            pid: entry.pid,
            uid: entry.uid,
            connected: entry.state == MemberState::Connected,
            progress: (entry.of > 0).then_some((entry.done, entry.of)),
        }
    }
}

/// Lists all workflows, members, segments and items that this session may see, or only those of `workflow` if it is
/// given.
pub(crate) fn list(connection: &Connection, workflow: Option<&str>, deadline: Deadline) -> Result<Listing> {
    let ask = |of, after| {
        let request = Request::List { of, after, workflow: workflow.map(str::to_owned) };
        connection.ask(request, None, None, deadline).map(|(answer, _)| answer)
    };
    let mut listing = Listing::default();
    pages(|after| match ask(ListOf::Workflows, after)? {
        Answer::Workflows(Page { entries, more }) => {
            let last = entries.last().map(|e| e.number);
            listing.workflows.extend(entries.into_iter().map(|e| WorkflowInfo {
                name: e.name,
                quota: e.quota,
                reserved: e.reserved,
                run: e.run,
            }));
            Ok(last.filter(|_| more))
        }
        _ => Err(unexpected()),
    })?;
    pages(|after| match ask(ListOf::Members, after)? {
        Answer::Members(Page { entries, more }) => {
            let last = entries.last().map(|e| e.member.0);
            listing.members.extend(entries.into_iter().map(MemberInfo::from));
            Ok(last.filter(|_| more))
        }
        _ => Err(unexpected()),
    })?;
    pages(|after| match ask(ListOf::Segments, after)? {
        Answer::Segments(Page { entries, more }) => {
            let last = entries.last().map(|e| e.segment.0);
            listing.segments.extend(entries.into_iter().map(|e| SegmentInfo {
                id: e.segment,
                kind: e.kind,
                workflow: e.workflow,
                name: e.name,
                size: e.size,
                reserved: e.reserved,
                creator: e.creator,
                since_ms: e.since_ms,
                members: e.members,
                removed: e.removed,
                former: e.former,
                attribute: e.attribute,
            }));
            Ok(last.filter(|_| more))
        }
        _ => Err(unexpected()),
    })?;
    pages(|after| match ask(ListOf::Items, after)? {
        Answer::Items(Page { entries, more }) => {
            let last = entries.last().map(|e| e.item.0);
            listing.items.extend(entries.into_iter().map(ItemInfo::from));
            Ok(last.filter(|_| more))
        }
        _ => Err(unexpected()),
    })?;
    Ok(listing)
}

/// Requests all pages of a list, one after the other. `page(n)` requests the entries whose numbers are greater than
/// `n`. It returns the last number of the page that it got, or `None` if no page follows.
fn pages(mut page: impl FnMut(u64) -> Result<Option<u64>>) -> Result<()> {
    let mut after = 0;
    while let Some(next) = page(after)? {
        if next <= after {
            return Err(Error::new(Status::Incompatible, "the daemon's listing goes in circles"));
        }
        after = next;
    }
    Ok(())
}
