//! Tasks of other nodes that want items of this one, and the questions by which this node's tasks ask.
//!
//! A node asks for an item by [`WANT`] for each request that waits for it, and asks again while the request waits. The answer
//! only says how it stands. If the item's owner is the task that waits, this node passes the item on; the other node
//! learns that from the catalog, so that a lost answer loses nothing. A want that is not repeated ends by itself.

use std::collections::BTreeMap;

use crossdock_layout::wire::{ItemLevel, Party, Reader, SegmentKind, Spells, Writer};
use crossdock_layout::{MemberId, SegmentId, Status, record};

use super::Phase;
use super::queue::{For, RequestId};
use crate::broker::site::SiteName;
use crate::broker::stored::Stored;
use crate::broker::waits::Due;
use crate::broker::{Broker, Effect, NodeFailure, NodeOrder};

/// The service by which nodes ask for items.
pub(in crate::broker) const WANT: u32 = 10;

/// How often a request that waits asks again.
const AGAIN_MS: u64 = 2_000;
/// The same after a question that failed.
const RETRY_MS: u64 = 300;
/// How long a want lasts that is not repeated.
const LASTS_MS: u64 = 6_000;
/// How long the answer to a question is waited for.
const ANSWER_MS: u64 = 5_000;
/// Most wants of one item.
const WANTS: usize = 1024;

record! {
    /// A task of another node wants to own an item.
    pub struct Wanted as Stored {
        version: u32,
        workflow: String,
        key: String,
        task: String,
        rank: u32,
        /// Numbers that the task has registered.
        numbers: Vec<u64>,
    }
}

record! {
    /// How it stands with what was wanted.
    pub struct Stands as Stored {
        /// 0: it comes; 1: not yet; 2: it is not here; 3: it never comes.
        code: u32,
        /// In words.
        text: String,
    }
}

const VERSION: u32 = 1;
const COMES: u32 = 0;
const NOT_YET: u32 = 1;
const NOT_HERE: u32 = 2;
const NEVER: u32 = 3;

fn encode<T>(value: &T) -> Vec<u8>
where
    Stored: Spells<T>,
{
    let mut writer = Writer(Vec::new());
    <Stored as Spells<T>>::write(value, &mut writer);
    writer.0
}

fn decode<T>(bytes: &[u8]) -> Option<T>
where
    Stored: Spells<T>,
{
    let mut reader = Reader::new(bytes);
    let value = <Stored as Spells<T>>::read(&mut reader, "question").ok()?;
    reader.end().ok()?;
    Some(value)
}

/// A task of another node, and until when it surely wants the item.
#[derive(Clone, Debug)]
pub(super) struct Want {
    node: String,
    task: String,
    rank: u32,
    numbers: Vec<u64>,
    until: u64,
    arrival: u64,
}

/// Wants by workflow and key, in order of arrival.
#[derive(Default)]
pub(super) struct Wants(BTreeMap<(u64, String), Vec<Want>>);

impl Wants {
    /// A node can be given nothing for now.
    pub(super) fn drop_node(&mut self, node: &str) {
        self.0.retain(|_, wants| {
            wants.retain(|want| want.node != node);
            !wants.is_empty()
        });
    }

    fn drop_old(&mut self, now: u64) {
        self.0.retain(|_, wants| {
            wants.retain(|want| want.until > now);
            !wants.is_empty()
        });
    }
}

/// A question that this node has asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    waits: RequestId,
    key: String,
    node: String,
}

/// Who has the item next.
pub(super) enum Taker {
    /// A request of this node.
    Here(RequestId),
    /// A task of that node.
    There(String),
}

impl Broker {
    /// Who has waited longest for the item, and may have it now.
    pub(super) fn next_taker(&self, item: SegmentId) -> Option<Taker> {
        let here = self.first_waiting(item, For::Owning);
        let found = self.lasting.items.all.get(&item)?;
        let there = self.first_want(item).filter(|_| found.level != ItemLevel::Cooperative);
        match (here, there) {
            (Some(id), Some(want)) if want.arrival < self.items.waits.arrival(id) => {
                Some(Taker::There(want.node.clone()))
            }
            (Some(id), _) => Some(Taker::Here(id)),
            (None, Some(want)) => Some(Taker::There(want.node.clone())),
            (None, None) => None,
        }
    }

    fn first_want(&self, item: SegmentId) -> Option<&Want> {
        let found = self.lasting.items.all.get(&item)?;
        let site = self.site.as_ref().filter(|site| site.is_in())?;
        if found.holder != MemberId::NOBODY || !self.has_its_name(item) {
            return None;
        }
        let wants = self.items.wants.0.get(&(found.workflow, found.key.clone()))?;
        wants.iter().find(|want| {
            want.until > self.now && site.is_there(&want.node) && self.wants_as(found.workflow, &found.owner, want)
        })
    }

    /// Is the task that wants it the one that owns it?
    fn wants_as(&self, workflow: u64, owner: &Party, want: &Want) -> bool {
        let is = |party: &Party| match party {
            Party::Task { task, rank } => *task == want.task && rank.is_none_or(|rank| rank == want.rank),
            Party::Number(_) => false,
        };
        match owner {
            Party::Number(number) => {
                want.numbers.contains(number) || self.lasting.items.numbers.get(&(workflow, *number)).is_some_and(is)
            }
            party => is(party),
        }
    }

    /// A node asks for an item of this one.
    pub(in crate::broker) fn item_wanted(&mut self, node: &str, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(wanted) = decode::<Wanted>(body).filter(|wanted| wanted.version == VERSION) else {
            let text = "the question for an item cannot be read; run the same version of crossdock on all nodes";
            return Err(NodeFailure { status: Status::Incompatible, text: text.into() });
        };
        let stands = |code, text: String| Ok(encode(&Stands { code, text }));
        let workflow = self.lasting.workflow_names.get(&wanted.workflow).copied();
        let found = workflow.and_then(|of| Some((of, *self.lasting.items.keys.get(&(of, wanted.key.clone()))?)));
        let Some((workflow, item)) = found else {
            return stands(
                NOT_HERE,
                format!("item '{}' is not on node {}", wanted.key, self.own_node().unwrap_or("?")),
            );
        };
        if self.lasting.items.all[&item].level == ItemLevel::Cooperative {
            let text = format!(
                "item '{}' is cooperative: it stays on node {}; make it verified or strict to pass it to other nodes",
                wanted.key,
                self.own_node().unwrap_or("?")
            );
            return stands(NEVER, text);
        }
        self.items.wants.drop_old(self.now);
        let (until, arrival) = (self.now + LASTS_MS, self.items.waits.next_arrival());
        let wants = self.items.wants.0.entry((workflow, wanted.key)).or_default();
        let is_same = |want: &&mut Want| want.node == node && want.task == wanted.task && want.rank == wanted.rank;
        let is_full = wants.len() >= WANTS;
        match wants.iter_mut().find(is_same) {
            Some(want) => (want.until, want.numbers) = (until, wanted.numbers),
            None if is_full => {
                let text = format!("{WANTS} tasks of other nodes wait for this item already");
                return Err(NodeFailure { status: Status::Busy, text });
            }
            None => {
                let (task, rank, numbers) = (wanted.task, wanted.rank, wanted.numbers);
                wants.push(Want { node: node.to_owned(), task, rank, numbers, until, arrival });
            }
        }
        self.serve_waiting(item);
        let whose = self.lasting.items.all.get(&item).map(|found| self.whose(item, found));
        let comes = matches!(self.next_taker(item), Some(Taker::There(of)) if of == node)
            || matches!(self.items.handovers.phase(item), Phase::Leaving);
        stands(if comes { COMES } else { NOT_YET }, whose.unwrap_or_default())
    }

    /// Asks the nodes that have the items that a request waits for.
    pub(in crate::broker) fn ask_for_items(&mut self, waits: RequestId) {
        let Some(wait) = self.items.waits.get(waits).filter(|wait| wait.what == For::Owning).cloned() else { return };
        let Some(known) = self.lasting.members.get(&wait.asker.member) else { return };
        let (task, rank) = (known.task.clone(), known.rank);
        let Some(workflow) = self.lasting.workflows.get(&wait.workflow).map(|of| of.name.clone()) else { return };
        let own = Party::rank(&task, rank);
        let numbers = self.lasting.items.numbers.iter();
        let numbers = numbers.filter(|((of, _), party)| *of == wait.workflow && **party == own);
        let numbers: Vec<u64> = numbers.map(|((_, number), _)| *number).collect();
        let mut asked = false;
        for key in &wait.keys {
            let Some(node) = self.item_elsewhere(wait.workflow, key) else { continue };
            asked = true;
            let question = Question { waits, key: key.clone(), node: node.clone() };
            let is_asked = |other: &Question| other.waits == waits && other.key == *key && other.node == node;
            if self.items.asked.values().any(is_asked) {
                continue;
            }
            let body = Wanted {
                version: VERSION,
                workflow: workflow.clone(),
                key: key.clone(),
                task: task.clone(),
                rank,
                numbers: numbers.clone(),
            };
            let id = self.node_order_id();
            self.items.asked.insert(id, question);
            let (service, body, wait_ms) = (WANT, encode(&body), ANSWER_MS);
            self.effects.push(Effect::Nodes(NodeOrder::Ask { id, node, service, body, wait_ms }));
        }
        if asked {
            self.ask_later(waits, AGAIN_MS);
        }
    }

    fn ask_later(&mut self, waits: RequestId, ms: u64) {
        self.waits.expect(self.now + ms, Due::Want(waits.0, waits.1));
    }

    /// An answer to a question of this node.
    pub(in crate::broker) fn item_question_answered(&mut self, id: u64, outcome: Result<Vec<u8>, NodeFailure>) {
        let Some(Question { waits, key, node }) = self.items.asked.remove(&id) else { return };
        let Some(wait) = self.items.waits.get(waits) else { return };
        // A request that does not wait gets the answer, if it is about the last of its items.
        let is_last = wait.waited_ms == 0 && !self.items.asked.values().any(|other| other.waits == waits);
        let stands = outcome.map(|body| {
            decode::<Stands>(&body).unwrap_or(Stands { code: NEVER, text: format!("node {node} gave no answer to it") })
        });
        let refusal = match stands {
            Ok(Stands { code: COMES, .. }) => None,
            Ok(Stands { code: NOT_YET, text }) => is_last.then(|| (Status::NotYet, format!("{text} (on node {node})"))),
            Ok(Stands { code: NOT_HERE, text }) => {
                // The catalog tells where it is, if it is anywhere.
                self.ask_later(waits, RETRY_MS);
                is_last.then_some((Status::NotYet, text))
            }
            Ok(Stands { text, .. }) => Some((Status::Denied, text)),
            Err(NodeFailure { status, text }) => {
                self.ask_later(waits, RETRY_MS);
                let text = format!("node {node}, which has item '{key}', does not answer: {text}");
                is_last.then_some((if status == Status::NotYet { Status::Disconnected } else { status }, text))
            }
        };
        if let Some((status, text)) = refusal {
            if let Some(wait) = self.unqueue(waits) {
                self.fail(wait.asker, status, text);
            }
        }
    }

    /// An item is on another node: requests that wait for it ask there.
    pub(in crate::broker) fn item_is_elsewhere(&mut self, name: &SiteName) {
        debug_assert_eq!(name.kind, SegmentKind::Item);
        let Some(workflow) = self.lasting.workflow_names.get(&name.workflow).copied() else { return };
        if self.lasting.items.keys.contains_key(&(workflow, name.name.clone())) {
            return;
        }
        for waits in self.items.waits.of_key(workflow, &name.name).collect::<Vec<_>>() {
            self.ask_for_items(waits);
        }
    }
}
