//! Finding items of other nodes: their node is asked ([`FIND`]), and the request waits for its answer.
//!
//! What other nodes have made becomes known here a moment later. So before a request that does not wait is told that there is
//! no such item, the catalog itself is asked.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, ItemRequest, Request, SegmentKind};
use crossdock_layout::{MemberId, Status, record};

use super::want::{VERSION, unreadable};
use crate::broker::site::SiteName;
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::{Asker, Broker, Effect, NodeFailure, PARKED, SiteOrder};

/// The service by which nodes ask what is known of an item.
pub(in crate::broker) const FIND: u32 = 12;

record! {
    /// What is known of an item is wanted.
    pub struct Sought as Stored {
        version: u32,
        workflow: String,
        key: String,
    }
}

/// A request that waits for what another node knows.
pub(super) struct Finding {
    asker: Asker,
    workflow: u64,
    key: String,
    node: String,
}

/// The requests that wait for other nodes' answers, by the numbers of the questions.
pub(super) type Findings = BTreeMap<u64, Finding>;

/// A request about items that no node is known to have.
pub(super) struct LookUp {
    asker: Asker,
    request: ItemRequest,
    /// The names of which the catalog has not said anything yet.
    names: BTreeSet<SiteName>,
}

impl Broker {
    /// If no item of these keys is known, the catalog is asked, and then the request is served again. `false` if there is
    /// nothing to ask.
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

    /// The catalog has said which node has the name.
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

    /// Asks the node that has the item. The answer to the request follows.
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

    /// Another node asks what is known of an item. The answer is an answer to a member, whose item is another node's.
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
        // Another node numbers its members itself, so this number would mean another member there.
        entry.holder = MemberId::NOBODY;
        let opcode = Request::Item(ItemRequest::Find { key: String::new() }).number();
        Ok(Answer::ItemInfo(entry).encode(opcode, 0))
    }

    /// The answer to a question of this node. `false` if it is to another question.
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

    /// The node of an item that this request looks for, if it is another one.
    pub(super) fn node_of_item(&self, workflow: u64, key: &str) -> Option<String> {
        self.owner_elsewhere(workflow, SegmentKind::Item, key)
    }
}
