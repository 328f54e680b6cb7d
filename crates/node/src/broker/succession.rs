//! How the name of a series moves to another node, when the next publisher of the series is on that node.
//!
//! A series whose publisher has ended or died may be published again. If its name belongs to another node, the new
//! publisher's node asks that node to give the name up ([`GIVE_UP`]). The asked node removes the former publisher's
//! series, as it does for a new publisher of its own. The asked node answers when the catalog says that the name is
//! free. Then the new publisher's node claims the name. While the former publisher lives, the answer is `EXISTS`. A
//! question whose answer was lost may be asked again: by then the name is free, or a living publisher has it.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Request, SegmentKind};
use crossdock_layout::{MemberId, Status, record};

use super::site::SiteName;
use super::stored::{Stored, decode, encode};
use super::{Broker, Cause, Connection, Effect, NodeFailure, NodeOrder, Requester};

/// The service by which a node asks for the name of a series whose publisher has ended.
pub(super) const GIVE_UP: u32 = 46;

record! {
    /// The question by which a node asks for a series' name, because one of its tasks is about to publish the series.
    struct NameRequest as Stored {
        workflow: String,
        series: String,
    }
}

record! {
    /// The answer to a `NameRequest`: whether the asked node gives the name up.
    struct NameReply as Stored {
        /// 1 if the asked node gives up the name, otherwise 0.
        yes: u32,
        /// The reason, if the asked node does not give up the name.
        text: String,
    }
}

/// A request to publish that waits until another node gives up the name.
struct WaitingPublisher {
    waits: (Connection, u64),
    member: MemberId,
    request: Request,
    name: SiteName,
    node: String,
}

/// The names of series that move from node to node.
#[derive(Default)]
pub(super) struct Succession {
    /// The questions by which this node has asked other nodes for the names of series. The key is the question's id.
    asked: BTreeMap<u64, WaitingPublisher>,
    /// For each name, the ids of the requests of other nodes that want the name. These requests are answered when the
    /// name is free.
    giving: BTreeMap<SiteName, Vec<u64>>,
    /// Names that this node has released, but which the catalog has not yet reported as free.
    released: BTreeSet<SiteName>,
}

/// Makes the body of the request by which a node asks another node to give up the name of a series.
pub(super) fn question(workflow: &str, series: &str) -> Vec<u8> {
    encode(&NameRequest { workflow: workflow.to_owned(), series: series.to_owned() })
}

impl Succession {
    /// Notes that this node releases a name.
    pub fn released(&mut self, name: &SiteName) {
        if name.kind == SegmentKind::Series {
            self.released.insert(name.clone());
        }
    }

    /// Tells whether `id` is the id of a request by which this node asked another node to give up the name of a series.
    pub fn has_asked(&self, id: u64) -> bool {
        self.asked.contains_key(&id)
    }
}

impl Broker {
    /// Asks the node that has the name of a series to give the name up. The member's request waits for the answer.
    pub(super) fn ask_for_series_name(&mut self, asker: Requester, request: Request, name: SiteName, node: String) {
        let own = self.succession.asked.values().filter(|heir| heir.waits.0 == asker.connection).count();
        if !self.may_wait_for_node(asker, own) {
            return;
        }
        let id = self.ask_node(&node, GIVE_UP, question(&name.workflow, &name.name));
        let waits = (asker.connection, asker.number);
        self.succession.asked.insert(id, WaitingPublisher { waits, member: asker.member, request, name, node });
    }

    /// Handles the answer of a node that was asked to give up the name of a series.
    pub(super) fn series_name_given_up(&mut self, id: u64, outcome: Result<Vec<u8>, NodeFailure>) {
        let Some(WaitingPublisher { waits, member, request, name, node }) = self.succession.asked.remove(&id) else {
            return;
        };
        let given =
            outcome.map(|body| decode(&body).unwrap_or(NameReply { yes: 0, text: "it gave no answer to it".into() }));
        if matches!(given, Ok(NameReply { yes: 1, .. })) {
            self.forget_elsewhere(&name, &node);
        }
        if !self.has_member(waits.0, member) {
            return;
        }
        let asker = Requester { connection: waits.0, member, number: waits.1, opcode: request.number() };
        match given {
            Ok(NameReply { yes: 1, .. }) => {
                let Some((workflow, ..)) = self.local_key(&name) else { return };
                if self.has_name(asker, workflow, SegmentKind::Series, &name.name, || request) {
                    return self.publish_again(asker, &name.name);
                }
                self.has_asked_owner(&name, waits);
            }
            Ok(NameReply { text, .. }) => self.fail(asker, Status::Exists, text),
            Err(NodeFailure { text, .. }) => {
                let text =
                    format!("node {node}, which has the name of series '{}', does not give it up: {text}", name.name);
                self.fail(asker, Status::Disconnected, text);
            }
        }
    }

    /// Handles the request of another node that wants this node to give up the name of a series.
    pub(super) fn series_name_wanted(&mut self, id: u64, body: &[u8]) {
        let Some(NameRequest { workflow, series }) = decode(body) else {
            let text = "the question for a series cannot be read; run the same version of crossdock on all nodes";
            let outcome = Err(NodeFailure { status: Status::Incompatible, text: text.into() });
            return self.effects.push(Effect::Nodes(NodeOrder::Answer { id, outcome }));
        };
        let name = SiteName { workflow, kind: SegmentKind::Series, name: series };
        let key = self.local_key(&name);
        let here = key.and_then(|key| self.lasting.names.get(&key).copied());
        if let Some(publisher) = here.and_then(|segment| self.living_publisher(segment)) {
            let text = format!(
                "series '{}' is being published on node {} by {}; a series has one publisher: end that one, or take another name",
                name.name,
                self.own_node().unwrap_or("?"),
                self.who(publisher)
            );
            return self.answer_heir(id, Some(text));
        }
        if let Err(why) = &self.journal {
            let text = format!(
                "the journal of the daemon that has its name cannot be written ({why}); make room and try again"
            );
            return self.answer_heir(id, Some(text));
        }
        let Some(site) = self.site.as_ref() else { return };
        if let Some(publisher) = site.promised_to(&name).filter(|publisher| self.connected.contains_key(publisher)) {
            let text = format!(
                "series '{}' is about to be published on node {} by {}; a series has one publisher",
                name.name,
                self.own_node().unwrap_or("?"),
                self.who(publisher)
            );
            return self.answer_heir(id, Some(text));
        }
        let is_own = site.is_own(&name);
        if is_own {
            if let Some(former) = here {
                self.take_name(former, Cause::NONE);
            }
        }
        if is_own || self.succession.released.contains(&name) {
            self.succession.giving.entry(name).or_default().push(id);
        } else {
            self.answer_heir(id, None);
        }
    }

    /// Handles the catalog's report that a name is free or belongs to another node: answers the nodes that asked this
    /// node for the name.
    pub(super) fn series_name_is_free(&mut self, name: &SiteName) {
        self.answer_heirs(name, None);
    }

    /// Refuses a series' name to the nodes that asked for the name, because this node has a new series of that name.
    pub(super) fn series_name_is_kept(&mut self, name: &SiteName) {
        let text =
            format!("series '{}' was published anew on its node meanwhile; a series has one publisher", name.name);
        self.answer_heirs(name, Some(text));
    }

    /// Answers all nodes that asked for this series' name.
    fn answer_heirs(&mut self, name: &SiteName, why_not: Option<String>) {
        self.succession.released.remove(name);
        for id in self.succession.giving.remove(name).unwrap_or_default() {
            self.answer_heir(id, why_not.clone());
        }
    }

    /// Answers a node that asked for a name: the name is free, or `why_not` says why it is not free.
    fn answer_heir(&mut self, id: u64, why_not: Option<String>) {
        let given = NameReply { yes: u32::from(why_not.is_none()), text: why_not.unwrap_or_default() };
        self.effects.push(Effect::Nodes(NodeOrder::Answer { id, outcome: Ok(encode(&given)) }));
    }
}
