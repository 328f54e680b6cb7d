//! Mirrors: ports and series of other nodes, as the tasks of this node open them.
//!
//! A task that opens a port of another node gets a *mirror*, which is a port of this node. At the mirror's other end,
//! the daemon itself is the producer or consumer (`crossdock_relay`). The task's request waits until the host has made
//! the mirror ([`NodeOrder::Mirror`], [`NodeEvent::Mirrored`]). A mirror of a port belongs to one member. When this
//! member has closed the mirror or is dead, the broker tells the host ([`NodeOrder::MirrorLeft`]). The host then closes
//! the daemon's end of the original port, even if the member never took its end of the mirror.
//!
//! A series of another node is mirrored once for all members of this node, and the daemon publishes the mirror
//! ([`NodeOrder::MirrorSeries`]). When no member observes the mirror any more, the broker tells the host.
//!
//! The names of mirrors begin with [`MIRROR`], and only the daemon may use such names. A task has the same rights to a
//! mirror as to the original port or series. No node claims mirrors' names in the site.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::name::{MIRROR, mirrored};
use crossdock_layout::wire::{MemberState, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::open::OpenOutcome;
use super::{Broker, Cause, Connection, Effect, NodeFailure, NodeOrder, Requester};

/// A member's request that waits for a mirror.
struct Opening {
    waits: (Connection, u64),
    endpoint: u64,
    member: MemberId,
    opcode: u16,
    /// The wanted series; `None` for a port.
    series: Option<WantedSeries>,
}

/// A series that a member wants to observe.
struct WantedSeries {
    workflow: u64,
    name: String,
    former: bool,
    /// The time until which the member waits for the series.
    deadline: u64,
}

/// The mirrors that this broker knows.
#[derive(Default)]
pub(super) struct Mirrors {
    opening: BTreeMap<u64, Opening>,
    /// The member to which each mirror of a port belongs.
    owners: BTreeMap<SegmentId, MemberId>,
    /// The mirrors of series. A mirror is in this set while a member observes it or is about to observe it.
    series: BTreeSet<SegmentId>,
}

impl Mirrors {
    /// Counts the mirrors that are being opened for members of this endpoint.
    pub fn opening_of(&self, endpoint: u64) -> usize {
        self.opening.values().filter(|opening| opening.endpoint == endpoint).count()
    }
}

/// Tells whether `name` is the name of a mirror.
pub(super) fn is_mirror(name: &str) -> bool {
    name.starts_with(MIRROR)
}

impl Broker {
    /// After the broker's start: removes all mirrors. The daemon's ends of these mirrors were in the former broker's
    /// process, and died with it.
    pub(super) fn drop_mirrors(&mut self) {
        let names = self.lasting.names.iter().filter(|((.., name), _)| is_mirror(name));
        for segment in names.map(|(_, segment)| *segment).collect::<Vec<_>>() {
            self.take_name(segment, Cause::NONE);
        }
    }

    /// Asks the host to make a mirror of another node's port, for a member of this node.
    pub(super) fn open_mirror(&mut self, asker: Requester, node: String, request: &Request) {
        let Request::Open { access, wait_ms, name, .. } = request else { return };
        if *access != Rights::PRODUCE && *access != Rights::CONSUME {
            let text = format!("port '{name}' is on node {node}: one end of it can be opened here at a time");
            return self.fail(asker, Status::Invalid, text);
        }
        let Some((endpoint, _)) = self.place(asker).filter(|_| self.may_wait_for_mirror(asker)) else { return };
        let Some(member) = self.lasting.members.get(&asker.member) else { return };
        let Some(workflow) = self.lasting.workflows.get(&member.workflow) else { return };
        let (workflow, port) = (workflow.name.clone(), name.clone());
        let (task, rank) = (member.task.clone(), member.rank);
        let (sends, wait_ms) = (*access == Rights::PRODUCE, *wait_ms);
        let id = self.node_order_id();
        let waits = (asker.connection, asker.number);
        let opening = Opening { waits, endpoint, member: asker.member, opcode: asker.opcode, series: None };
        self.mirrors.opening.insert(id, opening);
        self.effects.push(Effect::Nodes(NodeOrder::Mirror { id, node, workflow, port, task, rank, sends, wait_ms }));
    }

    /// Asks the host to make a mirror of another node's series, for a member of this node.
    pub(super) fn open_series_mirror(
        &mut self,
        asker: Requester,
        node: String,
        (wait_ms, former, series): (u64, bool, String),
    ) {
        let Some((endpoint, number)) = self.place(asker) else { return };
        if !self.may_wait_for_mirror(asker) {
            return;
        }
        let Some(workflow) = self.lasting.workflow_name(number) else { return };
        let id = self.node_order_id();
        let waits = (asker.connection, asker.number);
        let deadline = self.now.saturating_add(wait_ms);
        let wanted = WantedSeries { workflow: number, name: series.clone(), former, deadline };
        let opening = Opening { waits, endpoint, member: asker.member, opcode: asker.opcode, series: Some(wanted) };
        self.mirrors.opening.insert(id, opening);
        self.effects.push(Effect::Nodes(NodeOrder::MirrorSeries { id, node, workflow, series, former, wait_ms }));
    }

    fn may_wait_for_mirror(&mut self, asker: Requester) -> bool {
        let own = self.mirrors.opening.values().filter(|opening| opening.waits.0 == asker.connection).count();
        self.may_open_elsewhere(asker, own)
    }

    /// Handles the host's answer to a request for a mirror.
    pub(super) fn mirrored(&mut self, id: u64, outcome: Result<SegmentId, NodeFailure>) {
        let Some(Opening { waits, member, opcode, series, .. }) = self.mirrors.opening.remove(&id) else { return };
        let asker = Requester { connection: waits.0, member, number: waits.1, opcode };
        let is_there = self.has_member(waits.0, member);
        match outcome {
            Ok(mirror) if series.is_some() => {
                // If no member observes the mirror, the broker tells the host at the end of this event that the mirror
                // is not used.
                self.mirrors.series.insert(mirror);
                if is_there && self.is_named(mirror) {
                    self.admit(asker, mirror);
                } else if is_there {
                    let text = "the mirror of the series ended while it was opened; observe the series again";
                    self.observe_again(asker, series, (Status::Disconnected, text.into()));
                }
            }
            Ok(mirror) if is_there && self.is_named(mirror) && !self.is_lost(mirror) => {
                self.mirrors.owners.insert(mirror, member);
                self.give(asker, mirror, OpenOutcome::Writable);
            }
            Ok(mirror) if is_there => {
                self.effects.push(Effect::Nodes(NodeOrder::MirrorLeft { mirror, died: false }));
                let text = "the mirror of the port ended while it was opened; open the port again";
                self.fail(asker, Status::Disconnected, text);
            }
            // The member died while it waited for the mirror. The broker reports the member's death to the host, as it
            // does for a member that has got its mirror.
            Ok(mirror) => self.effects.push(Effect::Nodes(NodeOrder::MirrorLeft { mirror, died: true })),
            Err(NodeFailure { status: status @ (Status::NotFound | Status::Disconnected), text }) if is_there => {
                // Another node may have the name by now, because the next publisher of the series is there. So the
                // series is looked up again.
                self.observe_again(asker, series, (status, text));
            }
            Err(NodeFailure { status, text }) if is_there => self.fail(asker, status, text),
            Err(_) => {}
        }
    }

    /// If the observer's waiting time is not over, looks for the series again. Otherwise the request fails.
    fn observe_again(&mut self, asker: Requester, series: Option<WantedSeries>, (status, text): (Status, String)) {
        match series {
            Some(WantedSeries { name, former, deadline, .. }) if deadline > self.now => {
                let request = Request::Observe { wait_ms: deadline - self.now, former, name };
                self.again.push_back(((asker.connection, asker.number), asker.member, request));
            }
            _ => self.fail(asker, status, text),
        }
    }

    /// Tells the host which mirrors are not used any more.
    pub(super) fn settle_mirrors(&mut self) {
        self.settle_series_mirrors();
        if self.mirrors.owners.is_empty() {
            return;
        }
        let has = |(mirror, member): (&SegmentId, &MemberId)| self.open_segments.has(*mirror, *member);
        let left: Vec<_> = self.mirrors.owners.iter().filter(|owner| !has(*owner)).map(|(m, o)| (*m, *o)).collect();
        for (mirror, member) in left {
            self.mirrors.owners.remove(&mirror);
            let died = self.dead.iter().any(|(_, entry)| entry.member == member && entry.state == MemberState::Dead);
            self.effects.push(Effect::Nodes(NodeOrder::MirrorLeft { mirror, died }));
        }
    }

    /// Tells the host which mirrors of series no member observes any more.
    fn settle_series_mirrors(&mut self) {
        let is_used = |mirror: &SegmentId| {
            let Some(found) = self.lasting.segments.get(mirror).filter(|found| found.removed.is_none()) else {
                return false;
            };
            let is_opened = |opening: &Opening| {
                opening
                    .series
                    .as_ref()
                    .is_some_and(|of| of.workflow == found.workflow && of.name == mirrored(&found.name))
            };
            found.series.as_ref().is_some_and(|series| !series.pins.is_empty())
                || self.pages.is_making_of(*mirror)
                || self.mirrors.opening.values().any(is_opened)
        };
        let left: Vec<_> = self.mirrors.series.iter().copied().filter(|mirror| !is_used(mirror)).collect();
        for mirror in left {
            self.mirrors.series.remove(&mirror);
            self.effects.push(Effect::Nodes(NodeOrder::MirrorLeft { mirror, died: false }));
        }
    }

    /// Gives the time since another node was last heard, if `task` is the name of a member that acts for that node.
    pub(super) fn heard_for(&self, task: &str) -> Option<u64> {
        let (_, node) = task.split_once(".on.")?;
        self.node_silent_ms(node)
    }

    /// Gives the node that has this port or series, if that is another node. Tasks of this node then use a mirror.
    pub(super) fn node_of_mirrored(&self, workflow: u64, kind: SegmentKind, name: &str) -> Option<String> {
        if !matches!(kind, SegmentKind::Port | SegmentKind::Series) || is_mirror(name) {
            return None;
        }
        self.owner_elsewhere(workflow, kind, name)
    }
}
