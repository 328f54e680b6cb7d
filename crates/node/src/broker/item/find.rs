//! How a node finds an item that may be on any node of the site. Requests to describe an item need this, and so do
//! requests to open an item that do not wait for the item's owner.
//!
//! When another node makes or removes a name, this node learns of it a moment later. An item may also be on its way
//! between two nodes: then neither of them can describe it. So an item may exist although this node does not know it.
//! And if this node has noted that another node has the item, the item may have left that node since. A request fails
//! with NOT_FOUND only if the catalog has said, after the request came, that no node has the item's name. A request to
//! open an item fails with NOT_YET only if the node that has the item has answered, after the request came, that the
//! item cannot be opened yet. The steps are these:
//!
//! ```text
//!                     ┌── no node has the name ──► NOT_FOUND
//!   ask the catalog ──┼── another node has it ───► ask that node ── it has the item ──► answer
//!         ▲           └── this node has it ──┐         │
//!         └────────────── pause ◄────────────┴─────────┘  the item has not arrived there yet, or has just ended
//! ```
//!
//! If this node knows which node has the item, it asks that node without asking the catalog first. If that node does
//! not have the item, this node asks the catalog. If the item has not arrived within [`PATIENCE_MS`], the request
//! fails with TIMED_OUT, and the error says where the item was seen.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, ItemRequest, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, Status, record};

use super::ownership::{RETRY_MS, VERSION, unreadable};
use super::queue::{RequestId, Wait, WaitPurpose};
use super::{Phase, Refusal};
use crate::broker::site::SiteName;
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::waits::Due;
use crate::broker::{Broker, Effect, NodeFailure, Requester, SiteOrder};

/// The number of the service by which a node asks another one to describe an item.
pub(in crate::broker) const FIND: u32 = 12;

/// How long a request waits for an item that is on its way between two nodes, or for the catalog. If another node is
/// asked within this time, its answer may come later.
const PATIENCE_MS: u64 = 5_000;
/// The first pause before the catalog is asked again. Each further pause is twice as long, up to [`RETRY_MS`].
const FIRST_PAUSE_MS: u64 = 2;

/// How much longer a request may look for its items, and the pause before it asks the catalog again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The time, in milliseconds of the broker's clock, at which the request fails.
    until: u64,
    pause_ms: u64,
}

impl Patience {
    /// Gives the time limits of a request that comes at the time `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { until: now + PATIENCE_MS, pause_ms: FIRST_PAUSE_MS }
    }
}

record! {
    /// The question by which a node asks another one to describe an item.
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

/// The requests that wait for another node's description of an item. The key is the id of the question to that node.
pub(super) type PendingDescriptions = BTreeMap<u64, PendingDescription>;

/// A request for items that no node is known to have. It waits for the catalog, or for an item that is on its way.
pub(super) struct LookUp {
    asker: Requester,
    workflow: u64,
    request: ItemRequest,
    patience: Patience,
    phase: LookUpPhase,
    /// The node that was asked about the item last, and the reason why it could not describe or give the item.
    refused: Option<(String, NodeFailure)>,
}

/// What the catalog says about names: the node that has the name, or why the catalog could not be asked.
type CatalogAnswers = BTreeMap<SiteName, Result<Option<String>, String>>;

enum LookUpPhase {
    /// The catalog has not answered yet about the names `open`. `said` has its answers about the request's other names.
    Asking { open: BTreeSet<SiteName>, said: CatalogAnswers },
    /// The catalog is asked again at this time.
    Pausing { until: u64 },
}

impl LookUp {
    /// Turns a queued request into a look-up. The caller makes sure that the request's member has asked not to wait; no
    /// other queued request becomes a look-up.
    fn of_wait(wait: Wait, refused: Option<(String, NodeFailure)>) -> Self {
        let Wait { asker, what, workflow, keys, patience, waited_ms: wait_ms, .. } = wait;
        debug_assert_eq!(wait_ms, 0, "a request that waits is not looked up");
        let request = ItemRequest::Access { read: what == WaitPurpose::Reading, wait_ms, keys };
        let phase = LookUpPhase::Asking { open: BTreeSet::new(), said: CatalogAnswers::new() };
        Self { asker, workflow, request, patience, phase, refused }
    }

    fn keys(&self) -> &[String] {
        keys(&self.request)
    }

    /// Gives an item of this request that another node has according to the catalog, and the name of that node. Prefers
    /// an item of the node that was asked last.
    fn named_elsewhere(&self, said: &CatalogAnswers, own: &str) -> Option<(String, String)> {
        let named = || said.iter().filter_map(|(name, said)| Some((name, said.as_ref().ok()?.as_ref()?)));
        let elsewhere = || named().filter(|(_, node)| *node != own);
        let refused = self.refused.as_ref().map(|(node, _)| node);
        let found = elsewhere().find(|(_, node)| Some(*node) == refused).or_else(|| elsewhere().next());
        found.map(|(name, node)| (name.name.clone(), node.clone()))
    }

    /// Gives the node that has an item of this request according to the catalog, if that node did not answer. Gives
    /// `None` if the node answered that it has no such item.
    fn silent_node(&self) -> Option<&String> {
        self.refused.as_ref().filter(|(_, failure)| failure.status != Status::NotFound).map(|(node, _)| node)
    }
}

/// Gives the item keys of a request about which the catalog may have to be asked.
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
        let found = self.lasting.items.of_key(workflow, key);
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

    /// If it is not certain where the request's items are, asks the catalog about them; the request is then served
    /// again after the answers. Returns `false` if the catalog is not asked.
    pub(super) fn looks_up(&mut self, asker: Requester, workflow: u64, request: &ItemRequest) -> bool {
        if self.site.is_none() {
            return false;
        }
        let is_find = matches!(request, ItemRequest::Find { .. });
        let is_known =
            |key: &String| self.serves_here(workflow, key, is_find) || self.item_elsewhere(workflow, key).is_some();
        let is_refused = match request {
            ItemRequest::Find { key } => !self.may_see(asker, key),
            ItemRequest::Access { read, keys, .. } => self.may_access(asker, *read, keys).is_err(),
            _ => true,
        };
        if is_refused || keys(request).iter().all(is_known) || self.is_ready(asker, request) {
            return false;
        }
        self.look_up(asker, workflow, request.clone(), Patience::new(self.now), None);
        true
    }

    /// Tells whether this node has the item and can serve a request for it. The node answers nothing about an item that
    /// is about to leave, because the next node may have it already.
    pub(super) fn serves_here(&self, workflow: u64, key: &str, is_find: bool) -> bool {
        let here = match is_find {
            true => self.lasting.items.of_key(workflow, key),
            false => self.key(workflow, key),
        };
        here.is_some_and(|item| !self.lasting.items.is_leaving(item))
    }

    /// Tells whether the asking member could open one of the request's items on this node, at once or after a proof.
    fn is_ready(&self, asker: Requester, request: &ItemRequest) -> bool {
        let ItemRequest::Access { read, keys, .. } = request else { return false };
        let Some((_, workflow)) = self.place(asker) else { return false };
        let what = if *read { WaitPurpose::Reading } else { WaitPurpose::Owning };
        let here = keys.iter().filter_map(|key| self.key(workflow, key));
        here.into_iter().any(|item| !self.lasting.items.is_leaving(item) && self.could_have(item, what, asker.member))
    }

    /// Lets the catalog decide about a request whose member asked not to wait, and whose items no node is known to
    /// have.
    pub(super) fn look_up_waiting(&mut self, waits: RequestId, refused: Option<(String, NodeFailure)>) {
        if let Some(wait) = self.unqueue(waits) {
            let LookUp { asker, workflow, request, patience, refused, .. } = LookUp::of_wait(wait, refused);
            self.look_up(asker, workflow, request, patience, refused);
        }
    }

    /// Works like `look_up_waiting`, but the catalog is asked after a pause.
    pub(super) fn look_up_waiting_later(&mut self, waits: RequestId, why: &str) {
        if let Some(wait) = self.unqueue(waits) {
            self.look_up_later(LookUp::of_wait(wait, None), Status::TimedOut, why);
        }
    }

    /// Asks the catalog which nodes have the items of this request. If this node has no lease, the request fails.
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
        let own = self.items.look_ups.iter().filter(|of| of.asker.connection == asker.connection).count();
        if !self.may_wait_for_node(asker, own) {
            return;
        }
        let names = keys(&request).iter().filter_map(|key| self.site_name(workflow, SegmentKind::Item, key));
        let open: BTreeSet<_> = names.collect();
        self.effects.extend(open.iter().map(|name| Effect::Site(SiteOrder::Find(name.clone()))));
        let phase = LookUpPhase::Asking { open, said: CatalogAnswers::new() };
        self.items.look_ups.push(LookUp { asker, workflow, request, patience, phase, refused });
    }

    /// Handles the catalog's answer about a name.
    pub(in crate::broker) fn name_looked_up(&mut self, name: &SiteName, outcome: &Result<Option<String>, String>) {
        let mut done = Vec::new();
        for mut of in std::mem::take(&mut self.items.look_ups) {
            if let LookUpPhase::Asking { open, said } = &mut of.phase {
                if let Some(name) = open.take(name) {
                    said.insert(name, outcome.clone());
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

    /// Decides what follows for a request after the catalog has answered about all of its items.
    fn looked_up(&mut self, of: LookUp, said: &CatalogAnswers) {
        let is_find = matches!(of.request, ItemRequest::Find { .. });
        if of.keys().iter().any(|key| self.serves_here(of.workflow, key, is_find)) {
            return self.serve_looked_up(of);
        }
        let own = self.own_node().unwrap_or_default().to_owned();
        let said_of = |key: &str| said.get(&self.site_name(of.workflow, SegmentKind::Item, key)?);
        let is_own = |key: &String| matches!(said_of(key), Some(Ok(Some(node))) if *node == own);
        let is_leaving = |key: &&String| {
            let item = self.lasting.items.of_key(of.workflow, key);
            item.is_some_and(|item| self.lasting.items.is_leaving(item))
        };
        let leaving: Vec<&String> = of.keys().iter().filter(is_leaving).collect();
        // If the catalog's answer names this node for an item that is leaving, the item was still on this node when the
        // catalog answered.
        let stays = leaving.iter().any(|key| is_own(key));
        let comes = of.keys().iter().any(is_own);
        let is_about_to_leave = !leaving.is_empty();
        let unknown = said.values().find_map(|said| said.as_ref().err().cloned());
        match (of.named_elsewhere(said, &own), unknown) {
            (Some((key, node)), _) => self.looked_up_at(of, &key, node),
            (None, Some(why)) => match of.silent_node().cloned() {
                Some(node) => {
                    let key = of.keys()[0].clone();
                    self.looked_up_at(of, &key, node);
                }
                None => {
                    let text = format!("the catalog of the site cannot be asked: {why}");
                    self.look_up_later(of, Status::Disconnected, &text);
                }
            },
            (None, None) if stays => self.serve_looked_up(of),
            (None, None) if is_about_to_leave => {
                self.look_up_later(of, Status::TimedOut, "it is about to leave this node");
            }
            (None, None) if comes => {
                let text = format!("it is on its way to this node ({own})");
                self.look_up_later(of, Status::TimedOut, &text);
            }
            // No node has the item. This node's own note that another node has the name is older than the catalog's
            // answer.
            (None, None) => {
                let (status, text) = match &of.request {
                    ItemRequest::Access { read, keys, .. } => self.not_yet(keys, of.workflow, *read),
                    _ => self.no_item(of.asker, of.workflow, &of.keys()[0]),
                };
                self.fail(of.asker, status, text);
            }
        }
    }

    /// Handles the catalog's answer that the item `key` of a request is on the node `node`. Asks that node, or lets the
    /// request ask the catalog again later, or fails the request.
    fn looked_up_at(&mut self, mut of: LookUp, key: &str, node: String) {
        let is_silent = of.silent_node().is_some();
        let is_find = matches!(of.request, ItemRequest::Find { .. });
        let is_known = of.keys().iter().any(|key| self.item_elsewhere(of.workflow, key).is_some());
        match of.refused.take() {
            Some((refused, NodeFailure { text, .. })) if refused == node && is_silent => {
                let text = format!("node {node}, which has item '{key}', does not answer: {text}");
                self.fail(of.asker, Status::Disconnected, text);
            }
            Some((refused, NodeFailure { text, .. })) if refused == node => {
                self.look_up_later(of, Status::TimedOut, &format!("it is on its way to or from node {node}: {text}"));
            }
            _ if is_find => self.find_elsewhere(of.asker, of.workflow, key, node, of.patience),
            _ if is_known => self.serve_looked_up(of),
            _ => self.look_up_later(of, Status::TimedOut, &format!("it is on its way to or from node {node}")),
        }
    }

    /// Serves a request again, because this node may now know where the request's items are.
    fn serve_looked_up(&mut self, of: LookUp) {
        let LookUp { asker, request, patience, .. } = of;
        let served = match request {
            ItemRequest::Find { key } => self.find_item(asker, &key, patience),
            ItemRequest::Access { read, wait_ms, keys } => self.access_item(asker, read, wait_ms, keys, patience),
            _ => Ok(()),
        };
        if let Err((status, text)) = served {
            self.fail(asker, status, text);
        }
    }

    /// Lets a request ask the catalog again after a pause. If the request's time is over, the request fails with
    /// `status` and the reason `why`.
    fn look_up_later(&mut self, mut of: LookUp, status: Status, why: &str) {
        let Patience { until, pause_ms } = of.patience;
        if self.now >= until {
            let text = format!("item '{}' was not found within {PATIENCE_MS} ms: {why}; try again", of.keys()[0]);
            return self.fail(of.asker, status, text);
        }
        let again = (self.now + pause_ms).min(until);
        of.patience.pause_ms = (pause_ms * 2).min(RETRY_MS);
        of.phase = LookUpPhase::Pausing { until: again };
        self.waits.expect(again, Due::LookUp);
        self.items.look_ups.push(of);
    }

    /// Asks the catalog again for the requests whose pause is over.
    pub(in crate::broker) fn look_up_again(&mut self) {
        for of in std::mem::take(&mut self.items.look_ups) {
            match of.phase {
                LookUpPhase::Pausing { until } if until <= self.now => {
                    let LookUp { asker, workflow, request, patience, refused, .. } = of;
                    if self.has_member(asker.connection, asker.member) {
                        self.look_up(asker, workflow, request, patience, refused);
                    }
                }
                LookUpPhase::Asking { .. } | LookUpPhase::Pausing { .. } => self.items.look_ups.push(of),
            }
        }
    }

    /// Serves the requests that wait for an item which has just come to this node.
    pub(super) fn serve_look_ups(&mut self, workflow: u64, key: &str) {
        let waits = |of: &LookUp| {
            let is_it = of.workflow == workflow && of.keys().iter().any(|other| other == key);
            is_it && matches!(of.phase, LookUpPhase::Pausing { .. })
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
        let item = workflow.and_then(|of| self.lasting.items.of_key(of, &sought.key));
        if item.is_some_and(|item| matches!(self.items.handovers.phase(item), Phase::Leaving { .. })) {
            // The item is about to leave this node. The next node may have the item already, and may have changed it.
            let text = format!("item '{}' is about to leave this node", sought.key);
            return Err(NodeFailure { status: Status::NotFound, text });
        }
        let Some(mut entry) = item.and_then(|item| self.item_entry(item, MemberId::NONE)) else {
            let text = format!("item '{}' is not there", sought.key);
            return Err(NodeFailure { status: Status::NotFound, text });
        };
        // Each node numbers its own members, and the asking node would take the holder's number for the number of one
        // of its own members. So the answer does not contain the holder.
        entry.holder = MemberId::NONE;
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
            // The asked node may have passed the item on or destroyed it, or the item may not have arrived there yet.
            // So the catalog is asked.
            Err(failure) => {
                let refused = Some((node, failure.clone()));
                self.look_up(asker, workflow, ItemRequest::Find { key }, patience, refused);
            }
        }
        true
    }
}
