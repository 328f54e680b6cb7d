//! Ports of other nodes, as the tasks of this node open them.
//!
//! A task that opens a port of another node gets a *mirror*: a port of this node, at whose other end the daemon stands
//! (`crossdock_relay`). The request waits until the host has made it ([`NodeOrder::Mirror`], [`NodeNews::Mirrored`]). A
//! mirror belongs to one member; when that member does not have it any more, the host is told ([`NodeOrder::MirrorLeft`]),
//! so that the end at the port itself ends even if the member never took its end of the mirror.
//!
//! Mirrors have names that only the daemon gives ([`MIRROR`]). Their rights are those of the name that they mirror; no node
//! claims them in the site.

use std::collections::BTreeMap;

use crossdock_layout::name::MIRROR;
use crossdock_layout::wire::{MemberState, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::open::Given;
use super::{Asker, Broker, Cause, Connection, Effect, NodeFailure, NodeOrder, PARKED};

/// A request that waits for its mirror.
struct Opening {
    waits: (Connection, u64),
    member: MemberId,
    opcode: u16,
}

/// What a broker knows of mirrors.
#[derive(Default)]
pub(super) struct Mirrors {
    opening: BTreeMap<u64, Opening>,
    /// Whose each mirror is.
    owners: BTreeMap<SegmentId, MemberId>,
}

/// Is it the name of a mirror?
pub(super) fn is_mirror(name: &str) -> bool {
    name.starts_with(MIRROR)
}

impl Broker {
    /// After a start: the ends that a former broker had at mirrors died with it.
    pub(super) fn drop_mirrors(&mut self) {
        let names = self.lasting.names.iter().filter(|((.., name), _)| is_mirror(name));
        for segment in names.map(|(_, segment)| *segment).collect::<Vec<_>>() {
            self.take_name(segment, Cause::NONE);
        }
    }

    /// Opens a port of another node for a member of this one.
    pub(super) fn open_mirror(&mut self, asker: Asker, node: String, request: &Request) {
        let Request::Open { access, wait_ms, name, .. } = request else { return };
        let Some(member) = self.lasting.members.get(&asker.member) else { return };
        if *access != Rights::PRODUCE && *access != Rights::CONSUME {
            let text = format!("port '{name}' is on node {node}: one end of it can be opened here at a time");
            return self.fail(asker, Status::Invalid, text);
        }
        let own = self.mirrors.opening.values().filter(|opening| opening.waits.0 == asker.connection).count();
        if own >= PARKED {
            let text = format!("{own} requests of this program wait for other nodes already; let some end first");
            return self.fail(asker, Status::Busy, text);
        }
        let Some(workflow) = self.lasting.workflows.get(&member.workflow) else { return };
        let (workflow, port) = (workflow.name.clone(), name.clone());
        let (task, rank) = (member.task.clone(), member.rank);
        let (sends, wait_ms) = (*access == Rights::PRODUCE, *wait_ms);
        let id = self.node_order_id();
        let waits = (asker.connection, asker.number);
        self.mirrors.opening.insert(id, Opening { waits, member: asker.member, opcode: asker.opcode });
        self.effects.push(Effect::Nodes(NodeOrder::Mirror { id, node, workflow, port, task, rank, sends, wait_ms }));
    }

    /// The host has made a mirror, or could not.
    pub(super) fn mirrored(&mut self, id: u64, outcome: Result<SegmentId, NodeFailure>) {
        let Some(Opening { waits, member, opcode }) = self.mirrors.opening.remove(&id) else { return };
        let asker = Asker { connection: waits.0, member, number: waits.1, opcode };
        let is_there = self.links.get(&waits.0).is_some_and(|link| link.member == Some(member));
        match outcome {
            Ok(mirror) if is_there && self.lasting.segments.contains_key(&mirror) => {
                self.mirrors.owners.insert(mirror, member);
                self.give(asker, mirror, Given::ToWrite);
            }
            // The member died while it waited: as one that dies before it takes its end.
            Ok(mirror) => self.effects.push(Effect::Nodes(NodeOrder::MirrorLeft { mirror, died: true })),
            Err(NodeFailure { status, text }) if is_there => self.fail(asker, status, text),
            Err(_) => {}
        }
    }

    /// Tells of mirrors that their members do not have any more.
    pub(super) fn settle_mirrors(&mut self) {
        if self.mirrors.owners.is_empty() {
            return;
        }
        let has = |(mirror, member): (&SegmentId, &MemberId)| self.holds.has(*mirror, *member);
        let left: Vec<_> = self.mirrors.owners.iter().filter(|owner| !has(*owner)).map(|(m, o)| (*m, *o)).collect();
        for (mirror, member) in left {
            self.mirrors.owners.remove(&mirror);
            let died = self.dead.iter().any(|(_, entry)| entry.member == member && entry.state == MemberState::Dead);
            self.effects.push(Effect::Nodes(NodeOrder::MirrorLeft { mirror, died }));
        }
    }

    /// The node that has this port, if tasks of this node reach it by a mirror.
    pub(super) fn node_of_port(&self, workflow: u64, kind: SegmentKind, name: &str) -> Option<String> {
        if kind != SegmentKind::Port {
            return None;
        }
        self.owner_elsewhere(workflow, kind, name)
    }
}
