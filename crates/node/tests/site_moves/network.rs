//! The network between the hosts. Messages wait, get lost, arrive twice and in any order; cuts stop them, and slow
//! links deliver them late. If no reply comes, the host that asked the question notices this when the question's
//! deadline passes.

use std::collections::BTreeMap;

use crate::host::{Question, Reply};
use crate::world::{NAMES, World};

#[derive(Clone, Debug)]
pub enum Message {
    Ask { id: u64, question: Question },
    Reply { id: u64, reply: Reply },
}

struct Sent {
    from: usize,
    to: usize,
    at: u64,
    due: u64,
    message: Message,
}

#[derive(Default)]
pub struct Network {
    messages: Vec<Sent>,
    /// Pairs of nodes. No message arrives that the first node of a pair sends to the second node.
    cuts: Vec<(usize, usize)>,
    /// For each slow link (its sender and its receiver): the delay of a message in milliseconds.
    slow: BTreeMap<(usize, usize), u64>,
    /// Used by the tests in `scripted.rs`: tells which messages get lost.
    pub loses: Option<fn(&Message) -> bool>,
    /// Used by the tests in `scripted.rs`: the messages that got lost, each with its sender and receiver.
    pub lost: Vec<(usize, usize, Message)>,
}

impl Network {
    /// Cuts the connection between two nodes, or only the direction from `a` to `b`. Ends all cuts instead if three
    /// directions are cut already, or if `a` and `b` are the same node.
    pub fn cut(&mut self, a: usize, b: usize, both: bool) {
        match self.cuts.len() < 3 && a != b {
            true => self.cuts.extend([(a, b), (b, a)].into_iter().take(1 + usize::from(both))),
            false => self.cuts.clear(),
        }
    }

    /// Cuts all links of a node.
    pub fn cut_off(&mut self, n: usize) {
        self.cuts = (0..NAMES.len()).filter(|other| *other != n).flat_map(|other| [(n, other), (other, n)]).collect();
    }

    /// Ends all cuts.
    pub fn end_cuts(&mut self) {
        self.cuts.clear();
    }

    /// Makes the links between two nodes slow. If `a` and `b` are the same node, makes all links fast again.
    pub fn slow_down(&mut self, a: usize, b: usize, delay_ms: u64) {
        match a == b {
            true => self.slow.clear(),
            false => self.slow.extend([((a, b), delay_ms), ((b, a), delay_ms)]),
        }
    }

    /// Ends all cuts and makes all links fast. Messages in flight are no longer delayed.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.slow.clear();
        self.loses = None;
        self.messages.iter_mut().for_each(|sent| sent.due = sent.at);
    }

    /// The broker of node `n` is gone: drops its questions that are in flight, and all messages to it.
    pub fn forget_node(&mut self, n: usize) {
        self.messages.retain(|sent| sent.to != n && !(sent.from == n && matches!(sent.message, Message::Ask { .. })));
    }
}

impl World {
    pub fn post(&mut self, from: usize, to: usize, message: Message) {
        let at = self.now();
        let delay = self.network.slow.get(&(from, to)).copied().unwrap_or(0);
        let is_part = matches!(message, Message::Reply { reply: Reply::Part { .. }, .. });
        // On a slow link, a part of a region takes up to six times as long as a small message.
        let delay = if is_part { delay * (1 + self.random.below(6) as u64) } else { delay };
        self.totals.slow_parts += u64::from(is_part && delay > 0);
        if from != to && matches!(message, Message::Ask { .. }) && self.random.one_in(8) {
            // The question is delivered twice. The second delivery may come long after the first delivery.
            let due = at + delay + self.random.pick(&[0, 0, 5000, 30_000]);
            self.network.messages.push(Sent { from, to, at, due, message: message.clone() });
        }
        self.network.messages.push(Sent { from, to, at, due: at + delay, message });
    }

    /// Lets one message arrive, or lets it get lost.
    pub fn network_step(&mut self, faults: bool) {
        let now = self.now();
        let due = self.network.messages.iter().enumerate().filter(|(_, sent)| sent.due <= now);
        let due: Vec<_> = due.map(|(at, _)| at).collect();
        if due.is_empty() {
            return;
        }
        let at = due[self.random.below(due.len())];
        let sent = self.network.messages.swap_remove(at);
        let Sent { from, to, .. } = sent;
        if self.nodes[to].stopped {
            return self.network.messages.push(sent);
        }
        if self.network.loses.is_some_and(|loses| loses(&sent.message)) {
            return self.network.lost.push((from, to, sent.message));
        }
        let is_cut = self.network.cuts.contains(&(from, to));
        let is_lost = is_cut || (faults && from != to && self.random.one_in(25));
        if is_lost || self.nodes[to].broker.is_none() {
            return;
        }
        match sent.message {
            Message::Ask { id, question } => {
                if let Some(reply) = self.answer(to, from, question) {
                    self.post(to, from, Message::Reply { id, reply });
                }
            }
            Message::Reply { id, reply } => self.replied(to, id, reply),
        }
    }
}
