//! Describing items of a site, wherever they are. The item's node is asked ([`FIND`]), and the member's request waits for
//! the answer.
//!
//! When another node makes a name, this node learns of the name a moment later. An item may also be on its way between
//! two nodes: then neither of them can describe it. So what this node or another node does not know proves nothing. A
//! request fails with NOT_FOUND only if the catalog has said, after the request came, that no node has the item's name:
//!
//! ```text
//!                     ┌── no node has the name ──► NOT_FOUND
//!   ask the catalog ──┼── another node has it ───► ask that node ── it describes the item ──► answer
//!         ▲           └── this node has it ──┐         │
//!         └────────────── pause ◄────────────┴─────────┘  the item has not arrived there yet
//! ```
//!
//! If the item has not arrived within [`PATIENCE_MS`], the request fails, and the error says where the item was seen.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, ItemRequest, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, Status, record};

use super::want::{RETRY_MS, VERSION, unreadable};
use super::{Phase, Refusal};
use crate::broker::site::SiteName;
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::waits::Due;
use crate::broker::{Broker, Effect, NodeFailure, Requester, SiteOrder};

/// The service by which a node asks another one to describe an item.
pub(in crate::broker) const FIND: u32 = 12;

/// How long a request waits for an item that is on its way between two nodes, or for the catalog. The answer of a node
/// that is asked within this time may come later.
const PATIENCE_MS: u64 = 5_000;
/// The first pause before the catalog is asked again. Each further pause is twice as long, up to [`RETRY_MS`].
const FIRST_PAUSE_MS: u64 = 2;

/// How much longer a request waits.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// The time at which the request fails.
    until: u64,
    pause_ms: u64,
}

impl Patience {
    /// The patience of a request that comes at the time `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { until: now + PATIENCE_MS, pause_ms: FIRST_PAUSE_MS }
    }
}

record! {
    /// The question: what is known of this item?
    pub struct DescriptionRequest as Stored {
        version: u32,
        workflow: String,
        key: String,
    }
}

/// A request that waits for another node's description of an item.
pub(super) struct PendingDescription {
    asker: Requester,
    workflow: u64,
    key: String,
    node: String,
    patience: Patience,
}

/// The requests that wait for another node's description of an item, by the ids of the questions.
pub(super) type PendingDescriptions = BTreeMap<u64, PendingDescription>;

/// A request for items that no node is known to have. It waits for the catalog, or for an item that is on its way.
pub(super) struct LookUp {
    asker: Requester,
    workflow: u64,
    request: ItemRequest,
    patience: Patience,
    stage: Stage,
    /// The node that was asked to describe the item after the catalog had named it, and why it did not.
    refused: Option<(String, NodeFailure)>,
}

enum Stage {
    /// The catalog has not answered about the names `open`. `said` are its answers about the other names: the node that
    /// has the name, or why the catalog could not be asked.
    Asking { open: BTreeSet<SiteName>, said: Vec<Result<Option<String>, String>> },
    /// The catalog is asked again at this time.
    Pausing { until: u64 },
}

impl LookUp {
    fn keys(&self) -> &[String] {
        keys(&self.request)
    }

    /// Gives the node that has the item by the catalog, if it did not answer. A node that has no such item has answered.
    fn silent_node(&self) -> Option<&String> {
        self.refused.as_ref().filter(|(_, failure)| failure.status != Status::NotFound).map(|(node, _)| node)
    }
}

/// Gives the keys of a request that may have to ask the catalog about them.
pub(super) fn keys(request: &ItemRequest) -> &[String] {
    match request {
        ItemRequest::Find { key } => std::slice::from_ref(key),
        ItemRequest::Access { wait_ms: 0, keys, .. } => keys,
        _ => &[],
    }
}

impl Broker {
    /// Describes an item for a member.
    pub(super) fn find_item(&mut self, asker: Requester, key: &str, patience: Patience) -> Result<(), Refusal> {
        let Some((_, workflow)) = self.place(asker) else { return Ok(()) };
        let found = self.lasting.items.keys.get(&(workflow, key.to_owned())).copied();
        let visible = self.may_see(asker, key);
        let node = self.owner_elsewhere(workflow, SegmentKind::Item, key).filter(|_| visible && found.is_none());
        if let Some(node) = node {
            self.find_elsewhere(asker, workflow, key, node, patience);
            return Ok(());
        }
        let entry = found.filter(|_| visible).and_then(|item| self.item_entry(item, asker.member));
        let entry = entry.ok_or_else(|| self.no_item(asker, workflow, key))?;
        self.answer(asker, &Answer::ItemInfo(entry));
        Ok(())
    }

    fn may_see(&self, asker: Requester, key: &str) -> bool {
        self.item_rights(asker, key).0 & Rights::OWN.with(Rights::READ).0 != 0
    }

    fn no_item(&self, asker: Requester, workflow: u64, key: &str) -> Refusal {
        let visible = self.may_see(asker, key);
        let lost = if visible { self.departed_with(workflow, SegmentKind::Item, key) } else { String::new() };
        (Status::NotFound, format!("there is no item '{key}'{lost}"))
    }

    /// If it is not certain where these items are, asks the catalog about them; the request is then served again after
    /// the answers. Returns `false` if the catalog is not asked.
    pub(super) fn looks_up(&mut self, asker: Requester, workflow: u64, request: &ItemRequest) -> bool {
        let is_find = matches!(request, ItemRequest::Find { .. });
        let is_known =
            |key: &String| self.serves_here(workflow, key, is_find) || self.item_elsewhere(workflow, key).is_some();
        if self.site.is_none() || self.items.looked_up || keys(request).iter().any(is_known) {
            return false;
        }
        if is_find && !keys(request).iter().all(|key| self.may_see(asker, key)) {
            return false;
        }
        let own = self.items.look_ups.iter().filter(|of| of.asker.connection == asker.connection).count();
        if self.may_wait_for_node(asker, own) {
            self.look_up(asker, workflow, request.clone(), Patience::new(self.now), None);
        }
        true
    }

    /// Tells whether this node has the item and can serve a request for it. It does not describe an item that is about to
    /// leave, because the next node may have it already.
    fn serves_here(&self, workflow: u64, key: &str, is_find: bool) -> bool {
        let here = self.lasting.items.keys.get(&(workflow, key.to_owned()));
        here.is_some_and(|item| !is_find || !self.lasting.items.is_leaving(*item))
    }

    /// Asks the catalog about the items of this request. Without a lease, the request fails.
    fn look_up(
        &mut self,
        asker: Requester,
        workflow: u64,
        request: ItemRequest,
        patience: Patience,
        refused: Option<(String, NodeFailure)>,
    ) {
        if let Some(cut_off) = self.site.as_ref().and_then(|site| site.cut_off(self.now)) {
            let text = format!(
                "item '{}' cannot be looked up in the site: {cut_off}. What is on this node goes on working; try again \
                 when `crossdock ls --nodes` says that the node is back",
                keys(&request)[0]
            );
            return self.fail(asker, Status::Disconnected, text);
        }
        let names = keys(&request).iter().filter_map(|key| self.site_name(workflow, SegmentKind::Item, key));
        let open: BTreeSet<_> = names.collect();
        self.effects.extend(open.iter().map(|name| Effect::Site(SiteOrder::Find(name.clone()))));
        let stage = Stage::Asking { open, said: Vec::new() };
        self.items.look_ups.push(LookUp { asker, workflow, request, patience, stage, refused });
    }

    /// Handles the catalog's answer about a name.
    pub(in crate::broker) fn name_looked_up(&mut self, name: &SiteName, outcome: &Result<Option<String>, String>) {
        let mut done = Vec::new();
        for mut of in std::mem::take(&mut self.items.look_ups) {
            if let Stage::Asking { open, said } = &mut of.stage {
                if open.remove(name) {
                    said.push(outcome.clone());
                }
                if open.is_empty() {
                    let said = std::mem::take(said);
                    done.push((of, said));
                    continue;
                }
            }
            self.items.look_ups.push(of);
        }
        for (of, said) in done {
            if self.has_member(of.asker.connection, of.asker.member) {
                self.looked_up(of, &said);
            }
        }
    }

    /// Continues with a request after the catalog has answered about all of its items.
    fn looked_up(&mut self, of: LookUp, said: &[Result<Option<String>, String>]) {
        let is_find = matches!(of.request, ItemRequest::Find { .. });
        if of.keys().iter().any(|key| self.serves_here(of.workflow, key, is_find)) {
            return self.serve_looked_up(of);
        }
        // An item that is about to leave is here, and the catalog alone knows whether it has left.
        let is_leaving = of.keys().iter().any(|key| self.lasting.items.keys.contains_key(&(of.workflow, key.clone())));
        let own = self.own_node().unwrap_or_default();
        let elsewhere = said.iter().flatten().flatten().find(|node| *node != own).cloned();
        let comes = said.iter().flatten().flatten().any(|node| node == own);
        let unknown = said.iter().find_map(|said| said.as_ref().err().cloned());
        match (elsewhere, unknown) {
            (Some(node), _) => self.looked_up_at(of, node),
            (None, Some(why)) => match of.silent_node().cloned() {
                Some(node) => self.looked_up_at(of, node),
                None => {
                    let text = format!("the catalog of the site cannot be asked: {why}");
                    self.look_up_later(of, Status::Disconnected, &text);
                }
            },
            (None, None) if is_leaving => self.serve_looked_up(of),
            (None, None) if comes => {
                let status = if is_find { Status::TimedOut } else { Status::NotYet };
                let text = format!("it is on its way to this node ({own})");
                self.look_up_later(of, status, &text);
            }
            // No node has the item. What this node has heard of the name before is older than that.
            (None, None) if is_find => {
                let (status, text) = self.no_item(of.asker, of.workflow, &of.keys()[0]);
                self.fail(of.asker, status, text);
            }
            (None, None) => self.serve_looked_up(of),
        }
    }

    /// Continues with a request after the catalog has said that another node has its item.
    fn looked_up_at(&mut self, mut of: LookUp, node: String) {
        let ItemRequest::Find { key } = of.request.clone() else { return self.serve_looked_up(of) };
        let is_silent = of.silent_node().is_some();
        match of.refused.take() {
            Some((refused, NodeFailure { text, .. })) if refused == node && is_silent => {
                let text = format!("node {node}, which has item '{key}', does not answer: {text}");
                self.fail(of.asker, Status::Disconnected, text);
            }
            Some((refused, NodeFailure { text, .. })) if refused == node => {
                self.look_up_later(of, Status::TimedOut, &format!("it is on its way to or from node {node}: {text}"));
            }
            _ => self.find_elsewhere(of.asker, of.workflow, &key, node, of.patience),
        }
    }

    /// Serves a request with what this node knows now.
    fn serve_looked_up(&mut self, of: LookUp) {
        if let ItemRequest::Find { key } = &of.request {
            if let Err((status, text)) = self.find_item(of.asker, key, of.patience) {
                self.fail(of.asker, status, text);
            }
            return;
        }
        self.items.looked_up = true;
        self.serve_item(of.asker, of.request);
        self.items.looked_up = false;
    }

    /// Lets a request ask the catalog again after a pause. If its time is over, the request fails with this status and
    /// reason.
    fn look_up_later(&mut self, mut of: LookUp, status: Status, why: &str) {
        let Patience { until, pause_ms } = of.patience;
        if self.now >= until {
            let text = format!("item '{}' was not found within {PATIENCE_MS} ms: {why}; try again", of.keys()[0]);
            return self.fail(of.asker, status, text);
        }
        let again = (self.now + pause_ms).min(until);
        of.patience.pause_ms = (pause_ms * 2).min(RETRY_MS);
        of.stage = Stage::Pausing { until: again };
        self.waits.expect(again, Due::LookUp);
        self.items.look_ups.push(of);
    }

    /// Asks the catalog again for the requests whose pause is over.
    pub(in crate::broker) fn look_up_again(&mut self) {
        for of in std::mem::take(&mut self.items.look_ups) {
            match of.stage {
                Stage::Pausing { until } if until <= self.now => {
                    let LookUp { asker, workflow, request, patience, refused, .. } = of;
                    if self.has_member(asker.connection, asker.member) {
                        self.look_up(asker, workflow, request, patience, refused);
                    }
                }
                Stage::Asking { .. } | Stage::Pausing { .. } => self.items.look_ups.push(of),
            }
        }
    }

    /// Serves the requests that wait for an item which has just come to this node.
    pub(super) fn serve_look_ups(&mut self, workflow: u64, key: &str) {
        let waits = |of: &LookUp| {
            let is_it = of.workflow == workflow && of.keys().iter().any(|other| other == key);
            is_it && matches!(of.stage, Stage::Pausing { .. })
        };
        let (here, others) = std::mem::take(&mut self.items.look_ups).into_iter().partition(waits);
        self.items.look_ups = others;
        let here: Vec<LookUp> = here;
        for of in here {
            if self.has_member(of.asker.connection, of.asker.member) {
                self.serve_looked_up(of);
            }
        }
    }

    /// Asks the node that has the item to describe it. The member's request is answered later.
    fn find_elsewhere(&mut self, asker: Requester, workflow: u64, key: &str, node: String, patience: Patience) {
        let own = self.items.findings.values().filter(|of| of.asker.connection == asker.connection).count();
        if !self.may_wait_for_node(asker, own) {
            return;
        }
        let Some(of) = self.lasting.workflow_name(workflow) else { return };
        let body = encode(&DescriptionRequest { version: VERSION, workflow: of, key: key.to_owned() });
        let id = self.ask_node(&node, FIND, body);
        self.items.findings.insert(id, PendingDescription { asker, workflow, key: key.to_owned(), node, patience });
    }

    /// Describes an item for another node. The answer is encoded as for a member, because the asking node passes it on
    /// to its member.
    pub(in crate::broker) fn item_sought(&self, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(sought) = decode::<DescriptionRequest>(body).filter(|sought| sought.version == VERSION) else {
            return Err(unreadable());
        };
        let workflow = self.lasting.workflow_names.get(&sought.workflow).copied();
        let item = workflow.and_then(|of| self.lasting.items.keys.get(&(of, sought.key.clone())).copied());
        if item.is_some_and(|item| matches!(self.items.handovers.phase(item), Phase::Leaving { .. })) {
            // The next node may have the item already, and may have changed it.
            let text = format!("item '{}' is about to leave this node", sought.key);
            return Err(NodeFailure { status: Status::NotFound, text });
        }
        let Some(mut entry) = item.and_then(|item| self.item_entry(item, MemberId::NOBODY)) else {
            let text = format!("item '{}' is not there", sought.key);
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
        let Some(finding) = self.items.findings.remove(&id) else { return false };
        let PendingDescription { asker, workflow, key, node, patience } = finding;
        if !self.has_member(asker.connection, asker.member) {
            return true;
        }
        match outcome.as_ref().map(|body| Answer::decode(body, 0)) {
            Ok(Ok((_, Answer::ItemInfo(mut entry)))) => {
                entry.mine = self.is_of(asker.member, workflow, &entry.owner);
                self.answer(asker, &Answer::ItemInfo(entry));
            }
            Ok(_) => self.fail(asker, Status::Incompatible, format!("node {node} gave no answer about item '{key}'")),
            // The item may have been passed on, or destroyed, or may not have arrived yet: the catalog knows.
            Err(failure) => {
                let refused = Some((node, failure.clone()));
                self.look_up(asker, workflow, ItemRequest::Find { key }, patience, refused);
            }
        }
        true
    }
}
