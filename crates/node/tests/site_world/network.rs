//! The network between the brokers. Messages wait, get lost, arrive twice and in any order. Cuts stop all messages
//! between two nodes, or those of one direction.

use std::collections::BTreeMap;

use crossdock_layout::{SegmentId, Status};
use crossdock_node::broker::{Event, NodeFailure, NodeNews, NodeOrder};

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
    /// A transfer of the bytes of `file`. The bytes are read when the message arrives.
    Bytes {
        from: usize,
        to: usize,
        id: u64,
        file: SegmentId,
        into: SegmentId,
    },
    /// The bytes of an order to fill a file. They are on the node already.
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
}

/// A question or request that waits for a broker's reply. It is stored under the id that this broker knows.
enum Waiting {
    Question { from: usize, id: u64 },
    Opening { from: usize, id: u64, into: SegmentId },
}

#[derive(Default)]
pub struct Network {
    messages: Vec<Message>,
    waiting: BTreeMap<(usize, u64), Waiting>,
    /// Nothing passes from the first node of each pair to the second one.
    cuts: Vec<(usize, usize)>,
}

impl Network {
    /// Cuts the connection between two nodes, or one direction of it. If there are cuts already, heals them instead.
    pub fn cut(&mut self, a: usize, b: usize, both: bool) {
        match self.cuts.len() < 3 && a != b {
            true => self.cuts.extend([(a, b), (b, a)].into_iter().take(1 + usize::from(both))),
            false => self.cuts.clear(),
        }
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b))
    }

    /// Tells whether bytes of this file are on their way to another node.
    pub fn is_pulled(&self, n: usize, of: SegmentId) -> bool {
        let bytes =
            |message: &Message| matches!(message, Message::Bytes { from, file, .. } if (*from, *file) == (n, of));
        self.messages.iter().any(bytes)
    }

    /// Notes that a broker is gone. Results of its own orders do not reach it any more, and questions to it are not
    /// answered.
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
        self.messages.extend(lost);
        self.messages.retain(|message| match message {
            Message::Answer { to, .. }
            | Message::Failed { to, .. }
            | Message::Bytes { to, .. }
            | Message::Filling { to, .. } => *to != n,
            Message::Ask { from, .. } | Message::Pull { from, .. } => *from != n,
        });
    }
}

impl World {
    pub(super) fn node_order(&mut self, n: usize, order: NodeOrder) {
        let index = |node: &str| NAMES.iter().position(|name| *name == node).expect("a node of the site");
        match order {
            NodeOrder::Ask { id, node, service, mut body, .. } => {
                // The positions of the fields `sharing` and `readers` in the body of a question that asks to read an
                // item.
                let (sharing, readers) = (body.len().wrapping_sub(20), body.len().wrapping_sub(12));
                if self.planted == Planted::ReadersDenied && service == 20 && body[sharing..readers] != [0; 8] {
                    body[readers..readers + 4].fill(0);
                }
                let ask = Message::Ask { from: n, to: index(&node), id, service, body };
                if self.random.one_in(8) {
                    self.network.messages.push(ask.clone());
                }
                self.network.messages.push(ask);
            }
            NodeOrder::Send { id, node, service, head: mut body, file, size, .. } => {
                // The number that stands for the file's bytes is the beginning of the bytes that are sent.
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
                    self.network.messages.push(ask.clone());
                }
                self.network.messages.push(ask);
            }
            NodeOrder::Fill { id, into, bytes } => {
                self.totals.ahead += 1;
                let bytes = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                self.network.messages.push(Message::Filling { to: n, id, into, bytes });
            }
            NodeOrder::Pull { id, ref node, .. } => {
                let to = index(node);
                self.network.messages.push(Message::Pull { from: n, to, id, order });
            }
            NodeOrder::Mirror { .. }
            | NodeOrder::MirrorSeries { .. }
            | NodeOrder::MirrorLeft { .. }
            | NodeOrder::CopyRegion { .. }
            | NodeOrder::RegionLeft { .. } => {
                unreachable!("no member opens a port or a series, or copies a region")
            }
            NodeOrder::Answer { id, outcome } => {
                if let Some(Waiting::Question { from, id }) = self.network.waiting.remove(&(n, id)) {
                    self.network.messages.push(Message::Answer { from: n, to: from, id, outcome });
                }
            }
            NodeOrder::Opened { id, outcome } => {
                if let Some(Waiting::Opening { from, id, into }) = self.network.waiting.remove(&(n, id)) {
                    self.network.messages.push(match outcome {
                        Ok(file) => Message::Bytes { from: n, to: from, id, file, into },
                        Err(failure) => Message::Failed { from: n, to: from, id, failure },
                    });
                }
            }
        }
    }

    /// Lets one message arrive, or lets it get lost.
    pub(super) fn network_step(&mut self, faults: bool) {
        if self.network.messages.is_empty() {
            return;
        }
        let at = self.random.below(self.network.messages.len());
        let message = self.network.messages.swap_remove(at);
        let (from, to) = match &message {
            Message::Ask { from, to, .. }
            | Message::Pull { from, to, .. }
            | Message::Bytes { from, to, .. }
            | Message::Answer { from, to, .. }
            | Message::Failed { from, to, .. } => (*from, *to),
            Message::Filling { to, .. } => (*to, *to),
        };
        if self.nodes[to].stopped {
            return self.network.messages.push(message);
        }
        let is_lost =
            self.network.is_cut(from, to) || self.nodes[to].broker.is_none() || (faults && self.random.one_in(10));
        if is_lost {
            let failure = NodeFailure { status: Status::TimedOut, text: "nothing came".into() };
            return match message {
                Message::Ask { from, id, .. } => {
                    // The asking node notices by itself that no answer comes. No message passes the cut.
                    self.network.messages.push(Message::Answer { from, to: from, id, outcome: Err(failure) });
                }
                Message::Pull { from, id, .. } => {
                    self.network.messages.push(Message::Failed { from, to: from, id, failure })
                }
                Message::Bytes { to, id, .. } | Message::Filling { to, id, .. } => {
                    self.network.messages.push(Message::Failed { from: to, to, id, failure })
                }
                // If an answer is lost, the asking broker gets a failure.
                Message::Answer { to, id, .. } => {
                    self.event(to, Event::Nodes(NodeNews::Answered { id, outcome: Err(failure) }));
                }
                Message::Failed { to, id, failure, .. } => {
                    self.event(to, Event::Nodes(NodeNews::Pulled { id, outcome: Err(failure) }));
                }
            };
        }
        match message {
            Message::Ask { from, to, id, service, body } => {
                let question = self.fresh();
                self.network.waiting.insert((to, question), Waiting::Question { from, id });
                let node = NAMES[from].to_owned();
                self.event(to, Event::Nodes(NodeNews::Asked { id: question, node, service, body }));
            }
            Message::Answer { to, id, outcome, .. } => {
                self.event(to, Event::Nodes(NodeNews::Answered { id, outcome }));
            }
            Message::Pull { from, to, id, order } => {
                let NodeOrder::Pull { kind, object, epoch, into, .. } = order else { unreachable!() };
                let question = self.fresh();
                self.network.waiting.insert((to, question), Waiting::Opening { from, id, into });
                let node = NAMES[from].to_owned();
                self.event(to, Event::Nodes(NodeNews::Opening { id: question, node, kind, object, epoch }));
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
                self.event(to, Event::Nodes(NodeNews::Pulled { id, outcome }));
            }
            Message::Filling { to, id, into, bytes } => {
                if let Some(target) = self.nodes[to].files.get_mut(&into) {
                    *target = bytes;
                }
                self.event(to, Event::Nodes(NodeNews::Pulled { id, outcome: Ok(()) }));
            }
            Message::Failed { to, id, failure, .. } => {
                self.event(to, Event::Nodes(NodeNews::Pulled { id, outcome: Err(failure) }));
            }
        }
    }
}
