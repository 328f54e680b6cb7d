//! Questions between the brokers of a site's nodes, and bytes that one of them brings from another.
//!
//! The broker gives a [`NodeOrder`] and continues. Its result is a later [`NodeNews`] with the same id. If the outcome
//! of a question is `Disconnected` or `TimedOut`, the question may have been carried out. The asking broker then asks
//! again with the same body, and services are made so that the second question changes nothing.

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

use super::item::{ENDED, FIND, READ, SHARED, SHARING, WANT};
use super::succession::GIVE_UP;
use super::{Asker, Broker, Effect, PARKED};

/// How long the answer to a question is waited for.
const ANSWER_MS: u64 = 5_000;

/// Why another node did not do what it was asked to, or why it could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFailure {
    /// As a number.
    pub status: Status,
    /// For people.
    pub text: String,
}

/// An order to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Ask a service of another node's broker. Answered by [`NodeNews::Answered`].
    Ask {
        /// The broker's number for the question.
        id: u64,
        /// Which node.
        node: String,
        /// Which service.
        service: u32,
        /// The body, which the service defines; at most 60 KiB.
        body: Vec<u8>,
        /// How long to wait for the answer.
        wait_ms: u64,
    },
    /// The answer to [`NodeNews::Asked`].
    Answer {
        /// The question's id.
        id: u64,
        /// The body of the answer, which the service defines, or why there is none.
        outcome: Result<Vec<u8>, NodeFailure>,
    },
    /// Read the bytes of another node's object into memory that the host has. The answer is [`NodeNews::Pulled`].
    Pull {
        /// The broker's number for the pull.
        id: u64,
        /// Which node.
        node: String,
        /// The kind of object on the other node.
        kind: SegmentKind,
        /// Its id there.
        object: u64,
        /// Its epoch there.
        epoch: u64,
        /// The segment or file on this node that gets the bytes. It was made before.
        into: SegmentId,
        /// The number of bytes, from the first on.
        size: u64,
        /// How long the pull may take.
        wait_ms: u64,
    },
    /// Open an end of another node's port for a task of this node, and make its mirror here. Answered by
    /// [`NodeNews::Mirrored`].
    Mirror {
        /// The broker's number for the question.
        id: u64,
        /// Which node has the port.
        node: String,
        /// The workflow.
        workflow: String,
        /// The port.
        port: String,
        /// The task's name.
        task: String,
        /// The task's rank.
        rank: u32,
        /// The task sends; else it receives.
        sends: bool,
        /// How long a place is waited for.
        wait_ms: u64,
    },
    /// Mirror a series of another node here, for all tasks of this node. Answered by [`NodeNews::Mirrored`].
    MirrorSeries {
        /// The broker's number for the question.
        id: u64,
        /// Which node has the series.
        node: String,
        /// The workflow.
        workflow: String,
        /// The series.
        series: String,
        /// Also a series of a former run.
        former: bool,
        /// How long the series is waited for.
        wait_ms: u64,
    },
    /// The members that had this mirror have it no more.
    MirrorLeft {
        /// Which mirror.
        mirror: SegmentId,
        /// Of a port: its member died; else it left in order.
        died: bool,
    },
    /// The answer to [`NodeNews::Opening`].
    Opened {
        /// The id of the request to open.
        id: u64,
        /// The segment or file on this node whose bytes are sent, or why none are.
        outcome: Result<SegmentId, NodeFailure>,
    },
}

/// News from other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeNews {
    /// The result of [`NodeOrder::Ask`].
    Answered {
        /// The broker's number for the pull.
        id: u64,
        /// The answer.
        outcome: Result<Vec<u8>, NodeFailure>,
    },
    /// Another node's broker asks a question. The answer is [`NodeOrder::Answer`], at once or later.
    Asked {
        /// The host's number for the question.
        id: u64,
        /// The node that asks. Under TLS its name is proved.
        node: String,
        /// Which service.
        service: u32,
        /// The body, which the service defines.
        body: Vec<u8>,
    },
    /// The result of [`NodeOrder::Pull`].
    Pulled {
        /// The broker's number for it.
        id: u64,
        /// All bytes have arrived, or why not.
        outcome: Result<(), NodeFailure>,
    },
    /// What came of [`NodeOrder::Mirror`] or [`NodeOrder::MirrorSeries`].
    Mirrored {
        /// The broker's number for it.
        id: u64,
        /// The mirror, or why there is none.
        outcome: Result<SegmentId, NodeFailure>,
    },
    /// Another node wants the bytes of an object. The answer is [`NodeOrder::Opened`]. The bytes must not change while
    /// they are sent.
    Opening {
        /// The host's number for the request.
        id: u64,
        /// The node that asks. Under TLS its name is proved.
        node: String,
        /// The kind of object.
        kind: SegmentKind,
        /// Its id here.
        object: u64,
        /// Its epoch.
        epoch: u64,
    },
}

impl Broker {
    /// A number for an order to other nodes. No broker uses a number twice.
    pub fn node_order_id(&mut self) -> u64 {
        self.node_orders += 1;
        self.node_orders
    }

    /// Asks a service of another node; gives the question's number.
    pub(super) fn ask_node(&mut self, node: &str, service: u32, body: Vec<u8>) -> u64 {
        let id = self.node_order_id();
        let ask = NodeOrder::Ask { id, node: node.to_owned(), service, body, wait_ms: ANSWER_MS };
        self.effects.push(Effect::Nodes(ask));
        id
    }

    /// May a request wait for another node, beside `own` requests of its connection that do already? It fails if not.
    pub(super) fn may_wait_for_node(&mut self, asker: Asker, own: usize) -> bool {
        if own >= PARKED {
            let text = format!("{own} requests of this program wait for other nodes already; let some end first");
            self.fail(asker, Status::Busy, text);
        }
        own < PARKED
    }

    /// Handles news from another node.
    pub(super) fn node_news(&mut self, news: NodeNews) {
        match news {
            NodeNews::Mirrored { id, outcome } => self.mirrored(id, outcome),
            NodeNews::Answered { id, outcome } if self.succession.has_asked(id) => {
                self.series_name_given_up(id, outcome);
            }
            NodeNews::Answered { id, outcome } => self.item_question_answered(id, outcome),
            NodeNews::Pulled { id, outcome } => self.item_pulled(id, outcome),
            NodeNews::Asked { id, service: GIVE_UP, body, .. } => self.series_name_wanted(id, &body),
            NodeNews::Asked { id, node, service, body } => {
                let outcome = match service {
                    WANT => self.item_wanted(&node, &body),
                    ENDED => self.item_ended_elsewhere(&node, &body),
                    READ => self.reading_wanted(&node, &body),
                    SHARED => self.item_shared_elsewhere(&body),
                    FIND => self.item_sought(&body),
                    _ => {
                        let text = format!(
                            "this node has no service {service}; run the same version of crossdock on all nodes"
                        );
                        Err(NodeFailure { status: Status::Incompatible, text })
                    }
                };
                self.effects.push(Effect::Nodes(NodeOrder::Answer { id, outcome }));
            }
            NodeNews::Opening { id, kind: SegmentKind::Item, object, epoch, .. } if epoch & SHARING != 0 => {
                self.open_item_shared(id, SegmentId(object), epoch);
            }
            NodeNews::Opening { id, kind: SegmentKind::Item, object, epoch, .. } => {
                self.open_item_left(id, SegmentId(object), epoch);
            }
            NodeNews::Opening { id, kind, object, .. } => {
                let text = format!("{} {object} is not served to other nodes", kind.word());
                let outcome = Err(NodeFailure { status: Status::NotFound, text });
                self.effects.push(Effect::Nodes(NodeOrder::Opened { id, outcome }));
            }
        }
    }
}
