//! What the daemon has, asked for page by page.

use std::time::Duration;

use crossdock_layout::wire::{Answer, ListOf, MemberEntry, MemberState, NodeState, Page, Request, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::Deadline;

use crate::connection::Connection;
use crate::{Error, ItemInfo, Result};

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
    /// When it was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// How many members have it open.
    pub members: u32,
    /// Its name is taken away already; its memory is still in use.
    pub removed: bool,
    /// A series that was published in a run that has ended.
    pub former: bool,
    /// What its maker gave: a port's options. Of a series: see [`Self::observers`].
    pub attribute: u64,
}

impl SegmentInfo {
    /// Of a series: its observers, and how many it takes.
    #[must_use]
    pub fn observers(&self) -> Option<(u32, u32)> {
        (self.kind == SegmentKind::Series).then_some(((self.attribute >> 32) as u32, self.attribute as u32))
    }
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
    /// What it last gave to [`Session::progress`](crate::Session::progress): steps done, and steps in all.
    pub progress: Option<(u64, u64)>,
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
    /// How many runs it has had, the current one included.
    pub run: u64,
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
    /// Items, by id.
    pub items: Vec<ItemInfo>,
}

/// One node of the daemon's site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The site.
    pub site: String,
    /// The node's name.
    pub name: String,
    /// Its number, which the ids of its segments hold above bit 50.
    pub number: u64,
    /// What is known of it.
    pub state: NodeState,
    /// How long ago it was last known to have its lease; of this node, how long ago it has reached the catalog.
    pub silent: Duration,
    /// How many names of regions, ports and items are its.
    pub names: u32,
    /// Where its daemon can be reached; empty if that is not known.
    pub address: String,
}

/// The nodes of the daemon's site by number; none if it is in no site.
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
                }));
                Ok(last.filter(|_| more))
            }
            _ => Err(Error::new(Status::Incompatible, "the daemon listed something else than was asked for")),
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
    let unexpected = || Error::new(Status::Incompatible, "the daemon listed something else than was asked for");
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

/// Asks for page after page; each says where the next one begins.
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
