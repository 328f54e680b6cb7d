//! Tasks of other nodes that want items of this node; and the questions by which this node asks for items that its
//! tasks want.
//!
//! While a request waits for an item of another node, the node of the request asks that other node again and again with
//! [`OWN`]. The answer only says whether the asked node has the item, and whether the item comes to the asking node. If
//! the item's owner is the waiting task, the item's node passes the item on, and the asking node learns this from the
//! catalog. So if an answer is lost, no information is lost. If the node of a waiting task does not ask again, the
//! asked node forgets the task.
//!
//! When an item ends, its node reports this to the nodes that want it ([`ENDED`]). If this message is lost, their
//! requests wait until their deadlines.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{ItemLevel, Party, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status, record};

use super::Residence;
use super::keyed::by;
use super::queue::{RemoteReply, RequestId, WaitPurpose};
use super::readers::ReadReply;
use crate::broker::site::SiteName;
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::waits::Due;
use crate::broker::{Broker, NodeFailure};

/// The service by which a node asks for an item that one of its tasks wants.
pub(in crate::broker) const OWN: u32 = 10;
/// The number of the service by which one node reports to another node that an item has ended.
pub(in crate::broker) const ENDED: u32 = 11;

/// How often a node repeats its question to the item's node while a request waits for the item.
const AGAIN_MS: u64 = 2_000;
/// The pause before a node asks again after a failed question.
pub(super) const RETRY_MS: u64 = 300;
/// If another node does not repeat its question within this time, in milliseconds, this node forgets the other node's
/// waiting task.
pub(super) const LASTS_MS: u64 = 6_000;
/// The maximum number of tasks of other nodes that can wait for one item.
const REMOTE_WAITERS: usize = 1024;

record! {
    /// The question by which a node asks for an item: a task of the asking node wants to own this item.
    pub struct OwnershipRequest as Stored {
        version: u32,
        workflow: String,
        key: String,
        task: String,
        rank: u32,
        /// The numbers that the waiting rank has registered as parties. The rank owns an item whose owner is one of
        /// these numbers.
        numbers: Vec<u64>,
    }
}

record! {
    /// The answer to an `OwnershipRequest`: where the wanted item is, and whether it comes to the asking node.
    pub struct OwnershipReply as Stored {
        /// The item's id; 0 if the item is not on the asked node.
        item: u64,
        /// 0 if the item comes to the asking node, 1 if it does not come yet, 2 if it is not on the asked node, and 3
        /// if it never comes.
        code: u32,
        /// The explanation, as text for people.
        text: String,
    }
}

record! {
    /// The report that an item is gone.
    pub struct Ended as Stored {
        version: u32,
        workflow: String,
        key: String,
        item: u64,
        why: String,
    }
}

pub(super) const VERSION: u32 = 3;
pub(super) const COMES: u32 = 0;
pub(super) const NOT_YET: u32 = 1;
pub(super) const NOT_HERE: u32 = 2;
pub(super) const NEVER: u32 = 3;

pub(super) fn unreadable() -> NodeFailure {
    let text = "the question about an item cannot be read; run the same version of crossdock on all nodes";
    NodeFailure { status: Status::Incompatible, text: text.into() }
}

/// A task of another node that waits to own an item. This node forgets the task at the time `until`, unless the task's
/// node repeats its question before that time.
#[derive(Clone, Debug)]
pub(super) struct RemoteWaiter {
    node: String,
    task: String,
    rank: u32,
    numbers: Vec<u64>,
    until: u64,
    arrival: u64,
}

/// For each item of this node (workflow and item key), the tasks of other nodes that wait to own it, in the order of
/// arrival.
#[derive(Default)]
pub(super) struct RemoteWaiters(BTreeMap<(u64, String), Vec<RemoteWaiter>>);

impl RemoteWaiters {
    /// Forgets the tasks of the node `node` that wait, because no item can be passed to that node at present.
    pub(super) fn drop_node(&mut self, node: &str) {
        self.0.retain(|_, waiters| {
            waiters.retain(|waiter| waiter.node != node);
            !waiters.is_empty()
        });
    }

    fn drop_old(&mut self, now: u64) {
        self.0.retain(|_, waiters| {
            waiters.retain(|waiter| waiter.until > now);
            !waiters.is_empty()
        });
    }
}

/// A question of this node to another node, about an item.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) waits: RequestId,
    pub(super) workflow: u64,
    pub(super) key: String,
    pub(super) node: String,
    /// True if the waiting request wants to read the item, false if it wants to own the item.
    pub(super) reads: bool,
}

/// The next user of an item.
pub(super) enum NextUser {
    /// A waiting request of a member of this node.
    Here(RequestId),
    /// A task of this other node.
    There(String),
}

impl Broker {
    /// Gives the request or task that has waited longest for the item among those that may have it now.
    pub(super) fn next_user(&self, item: SegmentId) -> Option<NextUser> {
        let here = self.first_waiting(item, WaitPurpose::Owning);
        let found = self.lasting.items.all.get(&item)?;
        let there = self.first_remote_waiter(item).filter(|_| found.level != ItemLevel::Cooperative);
        match (here, there) {
            (Some(id), Some(waiter)) if waiter.arrival < self.items.waits.arrival(id) => {
                Some(NextUser::There(waiter.node.clone()))
            }
            (Some(id), _) => Some(NextUser::Here(id)),
            (None, Some(waiter)) => Some(NextUser::There(waiter.node.clone())),
            (None, None) => None,
        }
    }

    fn first_remote_waiter(&self, item: SegmentId) -> Option<&RemoteWaiter> {
        let found = self.lasting.items.all.get(&item)?;
        let site = self.site.as_ref().filter(|site| site.is_in())?;
        if found.holder != MemberId::NONE || !self.has_its_name(item) {
            return None;
        }
        let waiters = self.items.remote_waiters.0.get(by(&(found.workflow, &found.key)))?;
        waiters.iter().find(|waiter| {
            waiter.until > self.now
                && site.is_there(&waiter.node)
                && self.is_owner(found.workflow, &found.owner, waiter)
        })
    }

    /// Tells whether the waiting task is the item's owner.
    fn is_owner(&self, workflow: u64, owner: &Party, waiter: &RemoteWaiter) -> bool {
        let is = |party: &Party| match party {
            Party::Task { task, rank } => *task == waiter.task && rank.is_none_or(|rank| rank == waiter.rank),
            Party::Number(_) => false,
        };
        match owner {
            Party::Number(number) => {
                waiter.numbers.contains(number) || self.lasting.items.numbers.get(&(workflow, *number)).is_some_and(is)
            }
            party => is(party),
        }
    }

    /// Answers the question of a node that wants an item for one of its tasks.
    pub(in crate::broker) fn ownership_requested(&mut self, node: &str, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(request) = decode::<OwnershipRequest>(body).filter(|request| request.version == VERSION) else {
            return Err(unreadable());
        };
        let reply = |item: u64, code, text: String| Ok(encode(&OwnershipReply { item, code, text }));
        let workflow = self.lasting.workflow_names.get(&request.workflow).copied();
        let found = workflow.and_then(|of| Some((of, self.lasting.items.of_key(of, &request.key)?)));
        let Some((workflow, item)) = found else {
            return reply(0, NOT_HERE, format!("item '{}' is not there", request.key));
        };
        if self.lasting.items.all[&item].level == ItemLevel::Cooperative {
            let text = format!(
                "item '{}' is cooperative: it stays on node {}; make it verified or strict to pass it to other nodes",
                request.key,
                self.own_node().unwrap_or("?")
            );
            return reply(item.0, NEVER, text);
        }
        self.items.remote_waiters.drop_old(self.now);
        let (until, arrival) = (self.now + LASTS_MS, self.items.waits.next_arrival());
        let waiters = self.items.remote_waiters.0.entry((workflow, request.key)).or_default();
        let (task, rank, numbers) = (request.task, request.rank, request.numbers);
        let waiter = RemoteWaiter { node: node.to_owned(), task, rank, numbers, until, arrival };
        let is_same =
            |of: &&mut RemoteWaiter| (&of.node, &of.task, of.rank) == (&waiter.node, &waiter.task, waiter.rank);
        let is_full = waiters.len() >= REMOTE_WAITERS;
        match waiters.iter_mut().find(is_same) {
            Some(known) => (known.until, known.numbers) = (until, waiter.numbers.clone()),
            None if is_full => {
                let text = format!("{REMOTE_WAITERS} tasks of other nodes wait for this item already");
                return Err(NodeFailure { status: Status::Busy, text });
            }
            None => waiters.push(waiter.clone()),
        }
        self.serve_waiting(item);
        let Some(found) = self.lasting.items.all.get(&item) else {
            return reply(0, NOT_HERE, format!("item {} is not there", item.0));
        };
        let code = match self.lasting.items.residences.get(&item) {
            Some(Residence::Leaving { to, .. }) if to == node && self.is_owner(workflow, &found.owner, &waiter) => {
                COMES
            }
            // The item is about to leave this node. The next node may have the item already, and only the next node can
            // say more about the item.
            Some(Residence::Leaving { .. }) => NOT_HERE,
            _ => match self.next_user(item) {
                Some(NextUser::There(next)) if next == node && self.is_owner(workflow, &found.owner, &waiter) => COMES,
                _ => NOT_YET,
            },
        };
        reply(item.0, code, self.whose(item, found))
    }

    /// Reports the end of an item to the nodes whose tasks wait for the item.
    pub(super) fn tell_nodes_of_end(&mut self, item: SegmentId, workflow: u64, key: &str, why: &str) {
        let waiters = self.items.remote_waiters.0.remove(by(&(workflow, key))).unwrap_or_default();
        let nodes: BTreeSet<_> =
            waiters.into_iter().filter(|waiter| waiter.until > self.now).map(|waiter| waiter.node).collect();
        let Some(workflow) = self.lasting.workflow_name(workflow) else { return };
        let (key, why) = (key.to_owned(), why.to_owned());
        let body = encode(&Ended { version: VERSION, workflow, key, item: item.0, why });
        for node in nodes {
            self.ask_node(&node, ENDED, body.clone());
        }
    }

    /// Handles another node's report that an item is gone: requests that wait only for this item fail.
    pub(in crate::broker) fn item_ended_elsewhere(&mut self, node: &str, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(Ended { workflow, key, item, why, .. }) = decode::<Ended>(body).filter(|of| of.version == VERSION)
        else {
            return Err(unreadable());
        };
        let Some(workflow) = self.lasting.workflow_names.get(&workflow).copied() else { return Ok(Vec::new()) };
        for waits in self.items.waits.of_key(workflow, &key).collect::<Vec<_>>() {
            let Some(wait) = self.items.waits.get(waits) else { continue };
            let is_it = |said: &RemoteReply| said.item == item && said.node == node && said.key == key;
            if wait.keys.len() == 1 && wait.said.as_ref().is_some_and(is_it) {
                if let Some(wait) = self.unqueue(waits) {
                    self.fail(wait.asker, Status::NotFound, format!("item '{key}' is gone: {why}"));
                }
            }
        }
        Ok(Vec::new())
    }

    /// Tells whether a question to another node is still unanswered for this request.
    pub(super) fn is_asked_for(&self, waits: RequestId) -> bool {
        self.items.asked.values().any(|question| question.waits == waits)
    }

    /// Tells whether a question about this key to this node is still unanswered for the request.
    pub(super) fn is_asked(&self, waits: RequestId, key: &str, node: &str) -> bool {
        let is_it = |other: &Question| other.waits == waits && other.key == key && other.node == node;
        self.items.asked.values().any(is_it)
    }

    /// Gives the workflow of a waiting request, and those of its items that other nodes have: each item's key and node.
    pub(super) fn wanted_elsewhere(&self, waits: RequestId) -> Option<(u64, Vec<(String, String)>)> {
        let wait = self.items.waits.get(waits)?;
        let elsewhere =
            wait.keys.iter().filter_map(|key| Some((key.clone(), self.item_elsewhere(wait.workflow, key)?)));
        Some((wait.workflow, elsewhere.collect()))
    }

    /// For a request that waits to own items of other nodes, asks these nodes for the items.
    pub(super) fn ask_for_items(&mut self, waits: RequestId) {
        if self.site.is_none() {
            return;
        }
        let Some(wait) = self.items.waits.get(waits) else { return };
        match wait.what {
            WaitPurpose::Owning => {}
            WaitPurpose::Reading => return self.ask_to_read(waits),
            WaitPurpose::Readers(_) => return,
        }
        let member = wait.asker.member;
        let Some((of, elsewhere)) = self.wanted_elsewhere(waits) else { return };
        if elsewhere.is_empty() {
            return self.look_up_if_nowhere(waits);
        }
        let Some(known) = self.lasting.members.get(&member) else { return };
        let (task, rank) = (known.task.clone(), known.rank);
        let Some(workflow) = self.lasting.workflow_name(of) else { return };
        let own = Party::rank(&task, rank);
        let numbers = self.lasting.items.numbers.iter().filter(|((n, _), party)| *n == of && **party == own);
        let numbers: Vec<u64> = numbers.map(|((_, number), _)| *number).collect();
        for (key, node) in elsewhere {
            if self.is_asked(waits, &key, &node) {
                continue;
            }
            let body = OwnershipRequest {
                version: VERSION,
                workflow: workflow.clone(),
                key: key.clone(),
                task: task.clone(),
                rank,
                numbers: numbers.clone(),
            };
            let id = self.ask_node(&node, OWN, encode(&body));
            self.items.asked.insert(id, Question { waits, workflow: of, key, node, reads: false });
        }
        self.ask_later(waits, AGAIN_MS);
    }

    /// Asks again after a pause for the items of a waiting request, unless the broker asks for them earlier anyway.
    pub(super) fn ask_later(&mut self, waits: RequestId, ms: u64) {
        let (at, due) = (self.now + ms, Due::AskOwner(waits.0, waits.1));
        match self.items.waits.get(waits).map(|wait| wait.asks_at) {
            None => return,
            Some(Some(earlier)) if earlier <= at => return,
            Some(Some(later)) => self.waits.is_over(later, due),
            Some(None) => {}
        }
        self.items.waits.set_next_question(waits, Some(at));
        self.waits.expect(at, due);
    }

    /// Asks for the items of a waiting request, because the time for it has come.
    pub(in crate::broker) fn ask_again_for_items(&mut self, waits: RequestId) {
        self.items.waits.set_next_question(waits, None);
        self.ask_for_items(waits);
    }

    /// Handles another node's answer to this node's question about an item.
    pub(in crate::broker) fn item_question_answered(&mut self, id: u64, outcome: Result<Vec<u8>, NodeFailure>) {
        if self.item_found(id, &outcome) || self.place_told(id, &outcome) {
            return;
        }
        let Some(question) = self.items.asked.remove(&id) else { return };
        let read = question.reads.then(|| (question.workflow, question.key.clone()));
        self.question_answered(question, outcome);
        if let Some((workflow, key)) = read {
            self.copies_unread(workflow, &key);
        }
    }

    fn question_answered(&mut self, question: Question, outcome: Result<Vec<u8>, NodeFailure>) {
        let readable = outcome.as_ref().ok().filter(|_| question.reads).and_then(|body| decode::<ReadReply>(body));
        if let Some(readable) = readable.as_ref().filter(|readable| readable.code == COMES) {
            return self.item_readable(question, readable);
        }
        let Question { waits, key, node, .. } = question;
        let Some(wait) = self.items.waits.get(waits) else { return };
        // A request whose time is over fails with this answer, unless another question for the request is still
        // unanswered.
        let (is_over, waits_at_all) = (self.now >= wait.until(), wait.waited_ms > 0);
        let is_last = is_over && !self.is_asked_for(waits);
        let another_comes = !waits_at_all && wait.said.as_ref().is_some_and(|said| said.comes && said.key != key);
        let reply = outcome.map(|body| {
            if let Some(ReadReply { item, code, text, .. }) = readable {
                return OwnershipReply { item, code, text };
            }
            let none = || OwnershipReply { item: 0, code: NEVER, text: format!("node {node} gave no answer to it") };
            decode::<OwnershipReply>(&body).unwrap_or_else(none)
        });
        let refusal = match reply {
            Ok(OwnershipReply { code: NEVER, text, .. }) => Some((Status::Denied, text)),
            // The other node does not have the item, so this node was wrong about where the item is. If the member
            // asked not to wait, the catalog is asked where the item is.
            Ok(OwnershipReply { code: NOT_HERE, text, .. }) if !waits_at_all => {
                let failure = NodeFailure { status: Status::NotFound, text };
                self.not_there(waits, node, &key, failure)
            }
            // The member asked not to wait, but another item of its request is on its way to this node. So the request
            // does not fail yet.
            Ok(OwnershipReply { code: NOT_YET, .. }) if another_comes => None,
            Ok(OwnershipReply { item, code, text }) => {
                if code == NOT_HERE {
                    // If another node has the item now, the catalog reports this soon. So after a moment, this node
                    // asks the node that the catalog then names.
                    self.ask_later(waits, RETRY_MS);
                }
                let comes = code == COMES;
                self.items.waits.say(waits, RemoteReply { node, key, item, comes, text });
                let wait = self.items.waits.get(waits).filter(|_| is_last && !comes);
                wait.and_then(|wait| self.too_late(wait))
            }
            Err(NodeFailure { text, .. }) if waits_at_all => {
                self.ask_later(waits, RETRY_MS);
                let text = format!("item '{key}' did not come: node {node}, which has it, does not answer: {text}");
                is_last.then_some((Status::TimedOut, text))
            }
            // The other node was reached, but it cannot answer the question.
            Err(NodeFailure { status: status @ (Status::Busy | Status::Incompatible), text }) => {
                let text = format!("node {node}, which has item '{key}', does not answer: {text}");
                is_last.then_some((status, text))
            }
            Err(failure) => self.not_there(waits, node, &key, failure),
        };
        if let Some((status, text)) = refusal {
            if let Some(wait) = self.unqueue(waits) {
                self.fail(wait.asker, status, text);
            }
        }
    }

    /// Handles the report that an item is on another node: requests that wait for the item ask that node.
    pub(in crate::broker) fn item_is_elsewhere(&mut self, name: &SiteName) {
        debug_assert_eq!(name.kind, SegmentKind::Item);
        let Some(workflow) = self.lasting.workflow_names.get(&name.workflow).copied() else { return };
        if self.lasting.items.of_key(workflow, &name.name).is_some() {
            return;
        }
        for waits in self.items.waits.of_key(workflow, &name.name).collect::<Vec<_>>() {
            self.ask_for_items(waits);
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{ItemRequest, Request};

    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::{Effect, Event, MAIN_ENDPOINT, NodeEvent, NodeOrder, SiteEvent};

    /// Makes the broker of a node with a member of task `w`. The item `x` is on the node `b`.
    fn item_on_b() -> Bench {
        let mut bench = Bench::in_site();
        bench.tick(1);
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        named_at_b(&mut bench);
        bench
    }

    fn named_at_b(bench: &mut Bench) {
        let name = SiteName { workflow: "default".into(), kind: SegmentKind::Item, name: "x".into() };
        bench.event(Event::Site(SiteEvent::Named { name, node: "b".into() }));
    }

    /// Gives the ids of the questions that the broker has asked since the test cleared the effects.
    fn asked(bench: &Bench) -> Vec<u64> {
        let ids = bench.effects.iter().filter_map(|effect| match effect {
            Effect::Nodes(NodeOrder::Ask { id, service: OWN, .. }) => Some(*id),
            _ => None,
        });
        ids.collect()
    }

    #[test]
    fn a_waiting_request_asks_a_node_that_does_not_have_its_item_a_few_times_a_second() {
        let mut bench = item_on_b();
        let access = ItemRequest::Access { read: false, wait_ms: 60_000, keys: vec!["x".into()] };
        bench.say(1, &Request::Item(access));
        for second in 0..30 {
            let mut questions = 0;
            for _ in 0..1000 {
                for id in asked(&bench) {
                    questions += 1;
                    let reply = OwnershipReply { item: 0, code: NOT_HERE, text: "it is not there".into() };
                    bench.effects.clear();
                    bench.event(Event::Nodes(NodeEvent::Answered { id, outcome: Ok(encode(&reply)) }));
                }
                bench.tick(1);
            }
            named_at_b(&mut bench);
            assert!((1..=5).contains(&questions), "{questions} questions in second {second}");
        }
    }

    #[test]
    fn a_request_without_a_deadline_waits_on_after_an_answer() {
        let mut bench = item_on_b();
        let access = ItemRequest::Access { read: false, wait_ms: u64::MAX, keys: vec!["x".into()] };
        let number = bench.say(1, &Request::Item(access));
        let reply = OwnershipReply { item: 5, code: NOT_YET, text: "it is open".into() };
        let id = *asked(&bench).first().expect("the item's node is asked");
        bench.event(Event::Nodes(NodeEvent::Answered { id, outcome: Ok(encode(&reply)) }));
        assert_eq!(bench.answer(1, number), None);
    }
}
