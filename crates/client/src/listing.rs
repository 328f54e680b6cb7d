//! Lists of what the daemon has, requested page by page.

use std::time::Duration;

use crossdock_layout::wire::{Answer, ListOf, MemberEntry, MemberState, NodeState, Page, Request, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::Deadline;

use crate::connection::Connection;
use crate::session::unexpected;
use crate::{Error, ItemInfo, Result};

/// A segment, as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The id is never used again for another segment.
    pub id: SegmentId,
    /// Region or port.
    pub kind: SegmentKind,
    /// The workflow that the segment belongs to.
    pub workflow: String,
    /// Its name there.
    pub name: String,
    /// Size (capacity) in bytes.
    pub size: u64,
    /// Bytes that count against the quota.
    pub reserved: u64,
    /// The member that made the segment.
    pub creator: MemberId,
    /// The time when the segment was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// The number of members that have it open.
    pub members: u32,
    /// The name is removed already, and the memory is still in use.
    pub removed: bool,
    /// A series that was published in a run that has ended.
    pub former: bool,
    /// The value that the maker gave: a port's options. For a series see [`Self::observers`].
    pub attribute: u64,
}

impl SegmentInfo {
    /// For a series: the number of its observers, and the largest number that it allows.
    #[must_use]
    pub fn observers(&self) -> Option<(u32, u32)> {
        (self.kind == SegmentKind::Series).then_some(((self.attribute >> 32) as u32, self.attribute as u32))
    }
}

/// A member, as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// The id is never used again for another member.
    pub id: MemberId,
    /// The workflow that the member takes part in.
    pub workflow: String,
    /// The task that the member acts as.
    pub task: String,
    /// The member's rank in the task.
    pub rank: u32,
    /// The member's process id, as the node sees it.
    pub pid: u32,
    /// The member's user id, as the node sees it.
    pub uid: u32,
    /// Does the member have a connection now? (It may have none for a moment while a daemon restarts.)
    pub connected: bool,
    /// The last report to [`Session::progress`](crate::Session::progress): steps done, and steps in all.
    pub progress: Option<(u64, u64)>,
}

/// A workflow, as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowInfo {
    /// Its name.
    pub name: String,
    /// The most bytes that its segments may reserve together; 0 = no limit but the node's.
    pub quota: u64,
    /// The bytes that its segments have reserved.
    pub reserved: u64,
    /// The number of runs that the workflow has had, with the current one.
    pub run: u64,
}

/// What the daemon has, as far as the asking task may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Workflows, by name.
    pub workflows: Vec<WorkflowInfo>,
    /// Members, by id.
    pub members: Vec<MemberInfo>,
    /// Segments, by id.
    pub segments: Vec<SegmentInfo>,
    /// Items, by id.
    pub items: Vec<ItemInfo>,
}

/// A node of the daemon's site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The site.
    pub site: String,
    /// The node's name.
    pub name: String,
    /// The node's number, which the ids of its segments hold above bit 50.
    pub number: u64,
    /// The node's state, as far as the daemon knows.
    pub state: NodeState,
    /// How long ago the node was last known to have its lease; for this node, how long ago it last reached the catalog.
    pub silent: Duration,
    /// The number of names of regions, ports and items that belong to the node.
    pub names: u32,
    /// The address at which the node's daemon can be reached; empty if unknown.
    pub address: String,
    /// What carries bytes between this node and that one: `tcp`, or `tcp+tls`. `None` for this node, and as long as no link
    /// was needed.
    pub transport: Option<String>,
    /// The time from a question to that node to its answer, if it was measured.
    pub round_trip: Option<Duration>,
    /// Why no better transport carries the bytes, or why there is no connection now; empty without a link.
    pub why: String,
}

/// The nodes of the daemon's site by number; none if the daemon is in no site.
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

/// Everything, or everything of one workflow.
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

/// Requests page after page. Each page says where the next one begins.
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
