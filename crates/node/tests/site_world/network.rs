//! The network between the brokers. Messages wait, get lost, arrive twice and in any order. A cut stops all messages
//! between two nodes, or the messages in one direction. A slow link delivers messages late, and an item's bytes much
//! later. So deadlines pass, leases end and brokers are killed while a transfer is in flight.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::{SegmentId, Status};
use crossdock_node::broker::{Event, NodeEvent, NodeFailure, NodeOrder};

use super::{NAMES, Planted, World};

#[derive(Clone)]
enum Message {
    Ask {
        from: usize,
        to: usize,
        id: u64,
        service: u32,
        body: Vec<u8>,
    },
    Answer {
        from: usize,
        to: usize,
        id: u64,
        outcome: Result<Vec<u8>, NodeFailure>,
    },
    Pull {
        from: usize,
        to: usize,
        id: u64,
        order: NodeOrder,
    },
    /// The bytes of `file`, which the node `to` pulls. The simulation reads them only when this message arrives.
    Bytes {
        from: usize,
        to: usize,
        id: u64,
        file: SegmentId,
        into: SegmentId,
    },
    /// The node fills a file with bytes that it already has.
    Filling {
        to: usize,
        id: u64,
        into: SegmentId,
        bytes: u64,
    },
    Failed {
        from: usize,
        to: usize,
        id: u64,
        failure: NodeFailure,
    },
    /// Tells the node `to` that the deadline of its question or pull has passed.
    Expired {
        to: usize,
        id: u64,
        is_pull: bool,
    },
}

/// A message, when it was sent, and when it arrives at the earliest.
struct Sent {
    at: u64,
    due: u64,
    message: Message,
}

/// A question, or a request to open a file, that a broker of another node has not answered yet. Its key in
/// [`Network::waiting`] is the node of the broker that must answer, and the id that this broker knows it by.
enum Waiting {
    Question { from: usize, id: u64 },
    Opening { from: usize, id: u64, into: SegmentId },
}

#[derive(Default)]
pub struct Network {
    messages: Vec<Sent>,
    waiting: BTreeMap<(usize, u64), Waiting>,
    /// Pairs of nodes. No message arrives that the first node of a pair sends to the second node.
    cuts: Vec<(usize, usize)>,
    /// The slow links, each with the delay of a small message in milliseconds.
    slow: BTreeMap<(usize, usize), u64>,
    /// The questions and pulls through slow links whose deadlines have not passed. For each: the node that sent the
    /// question or pull, and the id of the question or pull.
    expiring: BTreeSet<(usize, u64)>,
    /// The questions and pulls whose deadlines have passed. If an answer to one of them arrives now, it is dropped.
    expired: BTreeSet<(usize, u64)>,
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

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    /// Makes the links between two nodes slow.
    pub fn slow(&mut self, a: usize, b: usize, delay_ms: u64) {
        self.slow.insert((a, b), delay_ms);
        self.slow.insert((b, a), delay_ms);
    }

    /// Makes all links fast again. Messages in flight are no longer delayed; deadlines stay as they are.
    pub fn speed_up(&mut self) {
        self.slow.clear();
        for sent in self.messages.iter_mut().filter(|sent| !matches!(sent.message, Message::Expired { .. })) {
            sent.due = sent.at;
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b))
    }

    /// Tells whether another node is pulling the bytes of this file; a planted defect may hide this.
    pub fn is_pulled(&self, n: usize, of: SegmentId, planted: Planted) -> bool {
        let is_unseen = |sent: &Sent| match planted {
            Planted::PullUnseen => true,
            Planted::SlowPullUnseen => sent.due > sent.at,
            _ => false,
        };
        let bytes = |sent: &Sent| matches!(sent.message, Message::Bytes { from, file, .. } if (from, file) == (n, of));
        self.messages.iter().any(|sent| bytes(sent) && !is_unseen(sent))
    }

    /// Notes that the broker of node `n` is gone. The broker gets no more answers to its questions and pulls, and
    /// questions to it fail.
    pub fn forget_node(&mut self, n: usize) {
        let failure = || NodeFailure { status: Status::Disconnected, text: "the broker is gone".into() };
        let mut lost = Vec::new();
        self.waiting.retain(|(node, _), waiting| {
            if *node == n {
                let (Waiting::Question { from, id } | Waiting::Opening { from, id, .. }) = *waiting;
                lost.push(match waiting {
                    Waiting::Question { .. } => Message::Answer { from: n, to: from, id, outcome: Err(failure()) },
                    Waiting::Opening { .. } => Message::Failed { from: n, to: from, id, failure: failure() },
                });
            }
            let (Waiting::Question { from, .. } | Waiting::Opening { from, .. }) = waiting;
            *node != n && *from != n
        });
        self.messages.extend(lost.into_iter().map(|message| Sent { at: 0, due: 0, message }));
        self.expiring.retain(|(node, _)| *node != n);
        self.expired.retain(|(node, _)| *node != n);
        self.messages.retain(|sent| match &sent.message {
            Message::Answer { to, .. }
            | Message::Failed { to, .. }
            | Message::Bytes { to, .. }
            | Message::Filling { to, .. }
            | Message::Expired { to, .. } => *to != n,
            Message::Ask { from, .. } | Message::Pull { from, .. } => *from != n,
        });
    }
}

impl World {
    /// Sends a message. The message arrives late if the link to its receiver is slow.
    fn post(&mut self, message: Message) {
        let at = self.now();
        let (from, to) = ends(&message);
        let delay = self.network.slow.get(&(from, to)).copied().unwrap_or(0);
        let delay = match message {
            Message::Expired { .. } | Message::Filling { .. } => 0,
            // On a slow link, the bytes of an object take 3 to 12 times as long as a small message.
            Message::Bytes { .. } if delay > 0 => delay * (3 + self.random.below(10)),
            _ => delay,
        };
        self.totals.slowed += u64::from(delay > 0);
        self.network.messages.push(Sent { at, due: at + delay, message });
    }

    /// Sends a question or a pull that has a deadline. The deadline can pass before the answer comes only on a slow
    /// link. So the test watches the deadline only on a slow link.
    fn post_order(&mut self, message: Message, id: u64, wait_ms: u64) {
        let (from, to) = ends(&message);
        if self.network.slow.contains_key(&(from, to)) {
            let (at, is_pull) = (self.now(), matches!(message, Message::Pull { .. }));
            self.network.expiring.insert((from, id));
            let message = Message::Expired { to: from, id, is_pull };
            self.network.messages.push(Sent { at, due: at + wait_ms, message });
        }
        self.post(message);
    }

    pub(super) fn node_order(&mut self, n: usize, order: NodeOrder) {
        let index = |node: &str| NAMES.iter().position(|name| *name == node).expect("a node of the site");
        match order {
            NodeOrder::Ask { id, node, service, mut body, wait_ms } => {
                // The positions of the fields `sharing` and `readers` in the body of service 20, which asks to read an
                // item.
                let (sharing, readers) = (body.len().wrapping_sub(20), body.len().wrapping_sub(12));
                if self.planted == Planted::ReadersDenied && service == 20 && body[sharing..readers] != [0; 8] {
                    body[readers..readers + 4].fill(0);
                }
                let ask = Message::Ask { from: n, to: index(&node), id, service, body };
                if self.random.one_in(8) {
                    self.post(ask.clone());
                }
                self.post_order(ask, id, wait_ms);
            }
            NodeOrder::Send { id, node, service, head: mut body, file, size, wait_ms } => {
                // In this simulation a number stands for the bytes of a file. This number is put at the beginning of
                // the bytes that the message carries.
                let Some(bytes) = self.nodes[n].files.get(&file).copied() else {
                    return self.fail(format!("{file} is sent to node {node} and not held"));
                };
                if self.is_open(n, file) && self.planted == Planted::Nothing {
                    return self.fail(format!("{file} is sent to node {node} while a member has it open"));
                }
                let head = body.len();
                if self.planted == Planted::StampIgnored {
                    body[head - 8..].copy_from_slice(&1u64.to_le_bytes());
                }
                body.resize(head + size as usize, 0);
                body[head..head + 8].copy_from_slice(&bytes.to_le_bytes());
                let ask = Message::Ask { from: n, to: index(&node), id, service, body };
                if self.random.one_in(8) {
                    self.post(ask.clone());
                }
                self.post_order(ask, id, wait_ms);
            }
            NodeOrder::Fill { id, into, bytes } => {
                self.totals.ahead += 1;
                let bytes = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                self.post(Message::Filling { to: n, id, into, bytes });
            }
            NodeOrder::Pull { id, ref node, wait_ms, .. } => {
                let to = index(node);
                if self.may_fail() && self.random.one_in(3) {
                    // The link to the node that has the bytes becomes slow, so that the pulled bytes are in flight for
                    // a long time.
                    self.network.slow(n, to, 1500);
                }
                self.post_order(Message::Pull { from: n, to, id, order }, id, wait_ms);
            }
            NodeOrder::Mirror { .. }
            | NodeOrder::MirrorSeries { .. }
            | NodeOrder::MirrorLeft { .. }
            | NodeOrder::CopyRegion { .. } => {
                unreachable!("no member opens a port or a series, or copies a region")
            }
            NodeOrder::Answer { id, outcome } => {
                if let Some(Waiting::Question { from, id }) = self.network.waiting.remove(&(n, id)) {
                    self.post(Message::Answer { from: n, to: from, id, outcome });
                }
            }
            NodeOrder::Opened { id, outcome } => {
                if let Some(Waiting::Opening { from, id, into }) = self.network.waiting.remove(&(n, id)) {
                    self.post(match outcome {
                        Ok(file) => Message::Bytes { from: n, to: from, id, file, into },
                        Err(failure) => Message::Failed { from: n, to: from, id, failure },
                    });
                }
            }
        }
    }

    /// Lets one message arrive, or lets it get lost.
    pub(super) fn network_step(&mut self, faults: bool) {
        let now = self.now();
        let due = self.network.messages.iter().enumerate().filter(|(_, sent)| sent.due <= now);
        let due: Vec<_> = due.map(|(at, _)| at).collect();
        if due.is_empty() {
            return;
        }
        let at = due[self.random.below(due.len())];
        let Sent { at: sent, due, message } = self.network.messages.swap_remove(at);
        let (from, to) = ends(&message);
        if self.nodes[to].stopped {
            return self.network.messages.push(Sent { at: sent, due, message });
        }
        if let Message::Answer { id, .. }
        | Message::Failed { id, .. }
        | Message::Bytes { id, .. }
        | Message::Filling { id, .. } = message
        {
            if self.network.expired.contains(&(to, id)) {
                return;
            }
            self.network.expiring.remove(&(to, id));
        }
        if let Message::Expired { to, id, is_pull } = message {
            return self.expire(to, id, is_pull);
        }
        self.totals.slow_pulls += u64::from(due > sent && matches!(message, Message::Bytes { .. }));
        let is_lost =
            self.network.is_cut(from, to) || self.nodes[to].broker.is_none() || (faults && self.random.one_in(10));
        if is_lost {
            let failure = NodeFailure { status: Status::TimedOut, text: "nothing came".into() };
            return match message {
                Message::Ask { from, id, .. } => {
                    // No message passes the cut. This failure stands for the asking node's own timeout.
                    self.notice(Message::Answer { from, to: from, id, outcome: Err(failure) });
                }
                Message::Pull { from, id, .. } => self.notice(Message::Failed { from, to: from, id, failure }),
                Message::Bytes { to, id, .. } | Message::Filling { to, id, .. } => {
                    self.notice(Message::Failed { from: to, to, id, failure })
                }
                Message::Expired { .. } => unreachable!("a deadline is not lost"),
                // If an answer is lost, the asking broker gets a failure instead.
                Message::Answer { to, id, .. } => {
                    self.event(to, Event::Nodes(NodeEvent::Answered { id, outcome: Err(failure) }));
                }
                Message::Failed { to, id, failure, .. } => {
                    self.event(to, Event::Nodes(NodeEvent::Pulled { id, outcome: Err(failure) }));
                }
            };
        }
        match message {
            Message::Ask { from, to, id, service, body } => {
                let question = self.fresh();
                self.network.waiting.insert((to, question), Waiting::Question { from, id });
                let node = NAMES[from].to_owned();
                self.event(to, Event::Nodes(NodeEvent::Asked { id: question, node, service, body }));
            }
            Message::Answer { to, id, outcome, .. } => {
                self.event(to, Event::Nodes(NodeEvent::Answered { id, outcome }));
            }
            Message::Pull { from, to, id, order } => {
                let NodeOrder::Pull { kind, object, epoch, into, .. } = order else { unreachable!() };
                let question = self.fresh();
                self.network.waiting.insert((to, question), Waiting::Opening { from, id, into });
                let node = NAMES[from].to_owned();
                self.event(to, Event::Nodes(NodeEvent::Opening { id: question, node, kind, object, epoch }));
            }
            Message::Bytes { from, to, id, file, into } => {
                let bytes = self.nodes[from].files.get(&file).copied();
                let outcome = match (bytes, self.nodes[to].files.get_mut(&into)) {
                    (Some(bytes), Some(target)) => {
                        *target = bytes;
                        Ok(())
                    }
                    _ => Err(NodeFailure { status: Status::Closed, text: "it is not held any more".into() }),
                };
                self.event(to, Event::Nodes(NodeEvent::Pulled { id, outcome }));
            }
            Message::Filling { to, id, into, bytes } => {
                if let Some(target) = self.nodes[to].files.get_mut(&into) {
                    *target = bytes;
                }
                self.event(to, Event::Nodes(NodeEvent::Pulled { id, outcome: Ok(()) }));
            }
            Message::Failed { to, id, failure, .. } => {
                self.event(to, Event::Nodes(NodeEvent::Pulled { id, outcome: Err(failure) }));
            }
            Message::Expired { .. } => unreachable!("it was handled before"),
        }
    }

    /// Tells a node at once that its question has failed, as its own timeout would. This message does not go over the
    /// link, so a cut or slow link does not stop it.
    fn notice(&mut self, message: Message) {
        let at = self.now();
        self.network.messages.push(Sent { at, due: at, message });
    }

    /// The deadline of a question or pull has passed: reports this to the broker of node `n`, which asked, if the
    /// answer has not come yet.
    fn expire(&mut self, n: usize, id: u64, is_pull: bool) {
        if !self.network.expiring.remove(&(n, id)) {
            return;
        }
        self.network.expired.insert((n, id));
        self.totals.expired += 1;
        let outcome = NodeFailure { status: Status::TimedOut, text: "the link is too slow".into() };
        self.event(
            n,
            Event::Nodes(match is_pull {
                true => NodeEvent::Pulled { id, outcome: Err(outcome) },
                false => NodeEvent::Answered { id, outcome: Err(outcome) },
            }),
        );
    }
}

/// Gives the sender and the receiver of a message.
fn ends(message: &Message) -> (usize, usize) {
    match message {
        Message::Ask { from, to, .. }
        | Message::Pull { from, to, .. }
        | Message::Bytes { from, to, .. }
        | Message::Answer { from, to, .. }
        | Message::Failed { from, to, .. } => (*from, *to),
        Message::Filling { to, .. } | Message::Expired { to, .. } => (*to, *to),
    }
}
