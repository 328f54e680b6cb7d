//! How a task removes a region, port or series that is on another node.
//!
//! The member's own node checks the member's grant. Then it asks the node that has the name to remove the object
//! ([`REMOVE`]), and passes the answer of the asked node on to the member. The asked node removes the object as for a
//! member of its own. If the answer is lost, the member does not know whether the object was removed.

use std::collections::BTreeMap;

use crossdock_layout::wire::{Answer, InUse, SegmentKind};
use crossdock_layout::{MemberId, Status, record};

use super::site::SiteName;
use super::stored::{Stored, decode, encode};
use super::{Broker, Cause, Connection, NodeFailure, Requester};

/// The service by which a node asks another node to remove an object.
pub(super) const REMOVE: u32 = 47;

record! {
    /// The question by which a node asks another node to remove an object of that node.
    struct RemovalRequest as Stored {
        workflow: String,
        kind: SegmentKind,
        in_use: InUse,
        name: String,
    }
}

/// A request to remove an object, which waits for the answer of the object's node.
struct WaitingRemover {
    waits: (Connection, u64),
    member: MemberId,
    opcode: u16,
    name: SiteName,
    node: String,
}

/// The requests for removal that this node has sent to other nodes. The key is the id of the question.
#[derive(Default)]
pub(super) struct Removals(BTreeMap<u64, WaitingRemover>);

impl Removals {
    /// Tells whether `id` is the id of a question by which this node asked another node to remove an object.
    pub fn has_asked(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }
}

/// Makes the body of a question by which a node asks another node to remove an object.
pub(super) fn question(name: &SiteName, in_use: InUse) -> Vec<u8> {
    let (workflow, kind, name) = (name.workflow.clone(), name.kind, name.name.clone());
    encode(&RemovalRequest { workflow, kind, in_use, name })
}

impl Broker {
    /// Asks a node to remove an object of that node. The member's request waits for the answer.
    pub(super) fn ask_to_remove(&mut self, asker: Requester, name: SiteName, in_use: InUse, node: String) {
        let own = self.removals.0.values().filter(|remover| remover.waits.0 == asker.connection).count();
        if !self.may_wait_for_node(asker, own) {
            return;
        }
        let id = self.ask_node(&node, REMOVE, question(&name, in_use));
        let waits = (asker.connection, asker.number);
        let remover = WaitingRemover { waits, member: asker.member, opcode: asker.opcode, name, node };
        self.removals.0.insert(id, remover);
    }

    /// Handles the answer of a node that was asked to remove an object.
    pub(super) fn removed_elsewhere(&mut self, id: u64, outcome: Result<Vec<u8>, NodeFailure>) {
        let Some(WaitingRemover { waits, member, opcode, name, node }) = self.removals.0.remove(&id) else { return };
        if !self.has_member(waits.0, member) {
            return;
        }
        let asker = Requester { connection: waits.0, member, number: waits.1, opcode };
        match outcome {
            Ok(_) => self.answer(asker, &Answer::Done { value: 0 }),
            Err(NodeFailure { status: Status::Disconnected | Status::TimedOut, text }) => {
                let text = format!(
                    "node {node}, which has {} '{}', does not answer, so it is not known whether it is removed: {text}",
                    name.kind.word(),
                    name.name
                );
                self.fail(asker, Status::Disconnected, text);
            }
            Err(NodeFailure { status, text }) => self.fail(asker, status, text),
        }
    }

    /// Handles the question of another node that asks this node to remove an object.
    pub(super) fn removal_wanted(&mut self, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        // An item belongs to a task, so no other node may ask for its removal.
        let asked = decode::<RemovalRequest>(body).filter(|asked| asked.kind != SegmentKind::Item);
        let Some(RemovalRequest { workflow, kind, in_use, name }) = asked else {
            let text = "the question for a removal cannot be read; run the same version of crossdock on all nodes";
            return Err(NodeFailure { status: Status::Incompatible, text: text.into() });
        };
        let Some(workflow) = self.lasting.workflow_names.get(&workflow).copied() else {
            return Err(none_to_remove(kind, &name));
        };
        self.remove_here(workflow, kind, in_use, &name, Cause::NONE).map(|()| Vec::new())
    }

    /// Removes an object of this node.
    pub(super) fn remove_here(
        &mut self,
        workflow: u64,
        kind: SegmentKind,
        in_use: InUse,
        name: &str,
        cause: Cause,
    ) -> Result<(), NodeFailure> {
        let busy = |text| Err(NodeFailure { status: Status::Busy, text });
        let Some(segment) = self.lasting.names.get(&(workflow, kind, name.to_owned())).copied() else {
            return Err(none_to_remove(kind, name));
        };
        if let Some(text) = self.why_not_removed(segment, in_use) {
            return busy(text);
        }
        if matches!(in_use, InUse::Refuse | InUse::Unused) {
            if let Some(text) = self.users(segment).or_else(|| self.possible_user(segment)) {
                return busy(format!("{} '{name}' {text}", kind.word()));
            }
        }
        if in_use == InUse::Unused && self.unused.get(&segment) != Some(&cause.member) {
            return busy(format!("another member may have used {} '{name}'", kind.word()));
        }
        if let Some(publisher) = self.living_publisher(segment).filter(|_| in_use != InUse::Force) {
            let who = self.who(publisher);
            return busy(format!("series '{name}' is being published by {who}; it has to end first"));
        }
        self.check_journal()?;
        self.take_name(segment, cause);
        Ok(())
    }
}

fn none_to_remove(kind: SegmentKind, name: &str) -> NodeFailure {
    NodeFailure { status: Status::NotFound, text: format!("there is no {} '{name}' to remove", kind.word()) }
}
