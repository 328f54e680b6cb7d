//! Describing items of other nodes. The item's node is asked ([`FIND`]), and the member's request waits for the answer.
//!
//! When another node makes a name, this node learns of the name a moment later. So a request that does not wait does
//! not fail at once with "there is no such item": the catalog is asked first.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, ItemRequest, Request, SegmentKind};
use crossdock_layout::{MemberId, Status, record};

use super::want::{VERSION, unreadable};
use crate::broker::site::SiteName;
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::{Asker, Broker, Effect, NodeFailure, PARKED, SiteOrder};

/// The service by which a node asks another one to describe an item.
pub(in crate::broker) const FIND: u32 = 12;

record! {
    /// The question: what is known of this item?
    pub struct Sought as Stored {
        version: u32,
        workflow: String,
        key: String,
    }
}

/// A request that waits for another node's description of an item.
pub(super) struct Finding {
    asker: Asker,
    workflow: u64,
    key: String,
    node: String,
}

/// The requests that wait for another node's description of an item, by the ids of the questions.
pub(super) type Findings = BTreeMap<u64, Finding>;

/// A request for items that no node is known to have. It waits for the catalog.
pub(super) struct LookUp {
    asker: Asker,
    request: ItemRequest,
    /// The names about which the catalog has not answered yet.
    names: BTreeSet<SiteName>,
}

impl Broker {
    /// If none of these items is known, asks the catalog about them; the request is then served again after the
    /// answers. Returns `false` if the catalog is not asked.
    pub(super) fn looks_up(&mut self, asker: Asker, workflow: u64, keys: &[String], request: &ItemRequest) -> bool {
        let is_in = self.site.as_ref().is_some_and(|site| site.is_in());
        let is_known = |key: &String| {
            let here = self.lasting.items.keys.contains_key(&(workflow, key.clone()));
            here || self.item_elsewhere(workflow, key).is_some()
        };
        let own = self.items.look_ups.iter().filter(|of| of.asker.connection == asker.connection).count();
        if !is_in || self.items.looked_up || own >= PARKED || keys.iter().any(is_known) {
            return false;
        }
        let names = keys.iter().filter_map(|key| self.site_name(workflow, SegmentKind::Item, key));
        let names: BTreeSet<_> = names.collect();
        for name in &names {
            self.effects.push(Effect::Site(SiteOrder::Find(name.clone())));
        }
        self.items.look_ups.push(LookUp { asker, request: request.clone(), names });
        true
    }

    /// Handles the catalog's answer about a name.
    pub(in crate::broker) fn name_looked_up(&mut self, name: &SiteName) {
        for of in &mut self.items.look_ups {
            of.names.remove(name);
        }
        let done = std::mem::take(&mut self.items.look_ups).into_iter().partition(|of| of.names.is_empty());
        let (done, open): (Vec<_>, Vec<_>) = done;
        self.items.look_ups = open;
        for LookUp { asker, request, .. } in done {
            if self.has_member(asker.connection, asker.member) {
                self.items.looked_up = true;
                self.serve_item(asker, request);
                self.items.looked_up = false;
            }
        }
    }

    /// Asks the node that has the item to describe it. The member's request is answered later.
    pub(super) fn find_elsewhere(&mut self, asker: Asker, workflow: u64, key: &str, node: String) {
        let own = self.items.findings.values().filter(|of| of.asker.connection == asker.connection).count();
        if !self.may_wait_for_node(asker, own) {
            return;
        }
        let Some(of) = self.lasting.workflow_name(workflow) else { return };
        let body = encode(&Sought { version: VERSION, workflow: of, key: key.to_owned() });
        let id = self.ask_node(&node, FIND, body);
        self.items.findings.insert(id, Finding { asker, workflow, key: key.to_owned(), node });
    }

    /// Describes an item for another node. The answer is encoded as for a member, because the asking node passes it on
    /// to its member.
    pub(in crate::broker) fn item_sought(&self, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(sought) = decode::<Sought>(body).filter(|sought| sought.version == VERSION) else {
            return Err(unreadable());
        };
        let workflow = self.lasting.workflow_names.get(&sought.workflow).copied();
        let item = workflow.and_then(|of| self.lasting.items.keys.get(&(of, sought.key.clone())).copied());
        let Some(mut entry) = item.and_then(|item| self.item_entry(item, MemberId::NOBODY)) else {
            let text = format!("there is no item '{}'", sought.key);
            return Err(NodeFailure { status: Status::NotFound, text });
        };
        // This number would mean another member on the asking node, because each node numbers its own members.
        entry.holder = MemberId::NOBODY;
        let opcode = Request::Item(ItemRequest::Find { key: String::new() }).number();
        Ok(Answer::ItemInfo(entry).encode(opcode, 0))
    }

    /// Handles the answer to a question about an item's description. Returns `false` if the answer is to another kind
    /// of question.
    pub(super) fn item_found(&mut self, id: u64, outcome: &Result<Vec<u8>, NodeFailure>) -> bool {
        let Some(Finding { asker, workflow, key, node }) = self.items.findings.remove(&id) else { return false };
        if !self.has_member(asker.connection, asker.member) {
            return true;
        }
        match outcome.as_ref().map(|body| Answer::decode(body, 0)) {
            Ok(Ok((_, Answer::ItemInfo(mut entry)))) => {
                entry.mine = self.is_of(asker.member, workflow, &entry.owner);
                self.answer(asker, &Answer::ItemInfo(entry));
            }
            Ok(_) => self.fail(asker, Status::Incompatible, format!("node {node} gave no answer about item '{key}'")),
            Err(NodeFailure { status: Status::NotFound, text }) => self.fail(asker, Status::NotFound, text.clone()),
            Err(NodeFailure { text, .. }) => {
                let text = format!("node {node}, which has item '{key}', does not answer: {text}");
                self.fail(asker, Status::Disconnected, text);
            }
        }
        true
    }

    /// Gives the node that has the item, if it is not this one.
    pub(super) fn node_of_item(&self, workflow: u64, key: &str) -> Option<String> {
        self.owner_elsewhere(workflow, SegmentKind::Item, key)
    }
}
