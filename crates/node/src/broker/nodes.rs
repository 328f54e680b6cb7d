//! Questions that the brokers of a site's nodes ask each other, and requests to the host that bring bytes from one node
//! to another.
//!
//! The broker gives a [`NodeOrder`] to the host and continues. The result comes later as a [`NodeEvent`] with the same
//! id. If the outcome of a question is `Disconnected` or `TimedOut`, the other node may have handled the question all
//! the same. The asking broker then asks again with the same body. In every service, a question that is asked twice has
//! the same effect as a question that is asked once.

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

use super::item::{AHEAD, ENDED, FIND, OWN, READ, SHARED, SHARING, WHERE};
use super::moves::{MOVE_ENDED, MOVE_STATE};
use super::removal::REMOVE;
use super::succession::GIVE_UP;
use super::{Broker, Effect, PARKED, Requester};

/// How long the broker waits for the answer to a question.
const ANSWER_MS: u64 = 5_000;
/// How many ports, series and regions of other nodes the members of one endpoint may be opening, copying or moving at
/// the same time. The host has threads for 256 of these operations, so one task cannot take all threads.
const OPENING_OF_ENDPOINT: usize = 192;

/// Why another node did not do what it was asked to do, or why it could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFailure {
    /// The kind of failure.
    pub status: Status,
    /// The reason, as text for people.
    pub text: String,
}

/// A request of the broker to the host, about other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Send a question to a service of another node's broker. The answer is [`NodeEvent::Answered`].
    Ask {
        /// The id that the broker gave to the question.
        id: u64,
        /// The node that is asked.
        node: String,
        /// The number of the service.
        service: u32,
        /// The body of the question, as the service defines it. At most 60 KiB.
        body: Vec<u8>,
        /// How long to wait for the answer, in milliseconds.
        wait_ms: u64,
    },
    /// Send a question to a service of another node's broker. The body of the question is `head`, followed by the first
    /// `size` bytes of a file. The answer is [`NodeEvent::Answered`].
    Send {
        /// The id that the broker gave to the question.
        id: u64,
        /// The node that is asked.
        node: String,
        /// The number of the service.
        service: u32,
        /// The first part of the body, as the service defines it.
        head: Vec<u8>,
        /// The file on this node whose bytes are sent. The host reads them before it carries out the next effect.
        file: SegmentId,
        /// How many bytes of the file follow the head. The whole body has at most 60 KiB.
        size: u64,
        /// How long to wait for the answer, in milliseconds.
        wait_ms: u64,
    },
    /// Send this answer to the question [`NodeEvent::Asked`].
    Answer {
        /// The question's id.
        id: u64,
        /// The body of the answer, as the service defines it. The error says why the question cannot be answered.
        outcome: Result<Vec<u8>, NodeFailure>,
    },
    /// Read the bytes of another node's object into memory that the host has. The answer is [`NodeEvent::Pulled`].
    Pull {
        /// The id that the broker gave to the pull.
        id: u64,
        /// The node that has the object.
        node: String,
        /// The kind of object on the other node.
        kind: SegmentKind,
        /// The object's id on the other node.
        object: u64,
        /// The object's epoch on the other node.
        epoch: u64,
        /// The existing segment or file on this node that gets the bytes.
        into: SegmentId,
        /// How many bytes to read, from the object's first byte on.
        size: u64,
        /// How long the pull may take, in milliseconds.
        wait_ms: u64,
    },
    /// Write bytes, which another node has sent before, into memory that the host has. The answer is
    /// [`NodeEvent::Pulled`].
    Fill {
        /// The id of this request. The report of its outcome has the same id.
        id: u64,
        /// The existing file on this node that gets the bytes.
        into: SegmentId,
        /// The bytes, from the file's first byte on.
        bytes: Vec<u8>,
    },
    /// Open an end of another node's port for a task of this node, and make its mirror here. The answer is
    /// [`NodeEvent::Mirrored`].
    Mirror {
        /// The id of this request. The report of its outcome has the same id.
        id: u64,
        /// The node that has the port.
        node: String,
        /// The name of the workflow.
        workflow: String,
        /// The name of the port.
        port: String,
        /// The task's name.
        task: String,
        /// The task's rank.
        rank: u32,
        /// True if the task sends messages to the port; false if it receives messages.
        sends: bool,
        /// How long to wait until the port has a free end slot, in milliseconds.
        wait_ms: u64,
    },
    /// Mirror a series of another node here, for all tasks of this node. The answer is [`NodeEvent::Mirrored`].
    MirrorSeries {
        /// The id of this request. The report of its outcome has the same id.
        id: u64,
        /// The node that has the series.
        node: String,
        /// The name of the workflow.
        workflow: String,
        /// The name of the series.
        series: String,
        /// True if a series of a former run is acceptable as well.
        former: bool,
        /// How long to wait for the series, in milliseconds.
        wait_ms: u64,
    },
    /// Copy or move a region to this node. The answer is [`NodeEvent::RegionCopied`].
    CopyRegion {
        /// The id of this request. The report of its outcome has the same id.
        id: u64,
        /// The node that has the region; `None` if this node has it.
        node: Option<String>,
        /// The name of the workflow.
        workflow: String,
        /// The name of the region.
        name: String,
        /// The name of the new copy on this node.
        copy: String,
        /// True for a move: this node then gets the region's name as well.
        moves: bool,
        /// How long the copying may take, in milliseconds.
        wait_ms: u64,
    },
    /// No member uses this mirror any more.
    MirrorLeft {
        /// The id of the mirror on this node.
        mirror: SegmentId,
        /// For the mirror of a port: true if the member that had the mirror died, false if the member closed it or left
        /// properly.
        died: bool,
    },
    /// The answer to [`NodeEvent::Opening`].
    Opened {
        /// The id that the host gave to the request, as in [`NodeEvent::Opening`].
        id: u64,
        /// The segment or file on this node whose bytes are sent. The error says why no bytes are sent.
        outcome: Result<SegmentId, NodeFailure>,
    },
}

/// A report to the broker about other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The result of [`NodeOrder::Ask`].
    Answered {
        /// The id that the broker gave to the question.
        id: u64,
        /// The body of the answer. The error says why there is no answer.
        outcome: Result<Vec<u8>, NodeFailure>,
    },
    /// Another node's broker asks a question. The broker answers with [`NodeOrder::Answer`], at once or later.
    Asked {
        /// The id that the host gave to the question.
        id: u64,
        /// The node that asks. Under TLS its certificate has proved the name.
        node: String,
        /// The number of the service.
        service: u32,
        /// The body of the question, as the service defines it.
        body: Vec<u8>,
    },
    /// The result of [`NodeOrder::Pull`] or [`NodeOrder::Fill`].
    Pulled {
        /// The id that the broker gave to the pull or the fill.
        id: u64,
        /// `Ok` if all bytes have arrived. The error says why they have not arrived.
        outcome: Result<(), NodeFailure>,
    },
    /// The result of [`NodeOrder::Mirror`] or [`NodeOrder::MirrorSeries`].
    Mirrored {
        /// The id that the broker gave to its order.
        id: u64,
        /// The mirror's id. The error says why there is no mirror.
        outcome: Result<SegmentId, NodeFailure>,
    },
    /// The result of [`NodeOrder::CopyRegion`].
    RegionCopied {
        /// The id that the broker gave to its order.
        id: u64,
        /// The id of the region on this node. The error says why the region was not copied.
        outcome: Result<SegmentId, NodeFailure>,
    },
    /// Another node wants the bytes of an object. The broker answers with [`NodeOrder::Opened`]. The bytes must not
    /// change while they are sent.
    Opening {
        /// The id that the host gave to the request.
        id: u64,
        /// The node that asks. Under TLS its certificate has proved the name.
        node: String,
        /// The kind of the wanted object.
        kind: SegmentKind,
        /// The object's id on this node.
        object: u64,
        /// The object's epoch on this node.
        epoch: u64,
    },
}

impl Broker {
    /// Gives a new id for a [`NodeOrder`]. A broker uses no id twice.
    pub fn node_order_id(&mut self) -> u64 {
        self.node_orders += 1;
        self.node_orders
    }

    /// Asks a service of another node. Returns the question's id.
    pub(super) fn ask_node(&mut self, node: &str, service: u32, body: Vec<u8>) -> u64 {
        let id = self.node_order_id();
        let ask = NodeOrder::Ask { id, node: node.to_owned(), service, body, wait_ms: ANSWER_MS };
        self.effects.push(Effect::Nodes(ask));
        id
    }

    /// Tells whether this request may wait for another node. `own` is the number of requests of its connection that
    /// already wait for other nodes. If that number has reached its limit, the request fails.
    pub(super) fn may_wait_for_node(&mut self, asker: Requester, own: usize) -> bool {
        if own >= PARKED {
            let text = format!("{own} requests of this program wait for other nodes already; let some end first");
            self.fail(asker, Status::Busy, text);
        }
        own < PARKED
    }

    /// Tells whether this request may wait for a port, series or region of another node. `own` is the number of such
    /// requests of its connection that already wait. If a limit is reached, the request fails.
    pub(super) fn may_open_elsewhere(&mut self, asker: Requester, own: usize) -> bool {
        let Some((endpoint, _)) = self.place(asker) else { return false };
        let of_endpoint = self.mirrors.opening_of(endpoint) + self.regions.coming_to(endpoint);
        if of_endpoint >= OPENING_OF_ENDPOINT {
            let text = format!(
                "{of_endpoint} requests of this task wait for ports, series and regions of other nodes already; let some \
                 end first"
            );
            self.fail(asker, Status::Busy, text);
            return false;
        }
        self.may_wait_for_node(asker, own)
    }

    /// Handles a report about other nodes.
    pub(super) fn node_news(&mut self, news: NodeEvent) {
        match news {
            NodeEvent::Mirrored { id, outcome } => self.mirrored(id, outcome),
            NodeEvent::RegionCopied { id, outcome } => self.region_copied(id, outcome),
            NodeEvent::Answered { id, outcome } if self.succession.has_asked(id) => {
                self.series_name_given_up(id, outcome);
            }
            NodeEvent::Answered { id, outcome } if self.removals.has_asked(id) => self.removed_elsewhere(id, outcome),
            NodeEvent::Answered { id, outcome } if self.moves.has_asked(id) => self.move_question_answered(id, outcome),
            NodeEvent::Answered { id, outcome } => self.item_question_answered(id, outcome),
            NodeEvent::Pulled { id, outcome } => self.item_pulled(id, outcome),
            NodeEvent::Asked { id, service: GIVE_UP, body, .. } => self.series_name_wanted(id, &body),
            NodeEvent::Asked { id, node, service, body } => {
                let outcome = match service {
                    OWN => self.ownership_requested(&node, &body),
                    AHEAD => self.bytes_came_ahead(&node, &body),
                    ENDED => self.item_ended_elsewhere(&node, &body),
                    READ => self.reading_wanted(&node, &body),
                    SHARED => self.item_shared_elsewhere(&body),
                    FIND => self.item_sought(&body),
                    WHERE => self.place_wanted(&body),
                    REMOVE => self.removal_wanted(&body),
                    MOVE_ENDED => self.move_ended(&node, &body),
                    MOVE_STATE => self.move_state_wanted(&body),
                    _ => {
                        let text = format!(
                            "this node has no service {service}; run the same version of crossdock on all nodes"
                        );
                        Err(NodeFailure { status: Status::Incompatible, text })
                    }
                };
                debug_assert!(!is_not_yet(&outcome), "a link carries no 'not yet': {outcome:?}");
                self.effects.push(Effect::Nodes(NodeOrder::Answer { id, outcome }));
            }
            NodeEvent::Opening { id, kind: SegmentKind::Item, object, epoch, .. } if epoch & SHARING != 0 => {
                self.open_item_shared(id, SegmentId(object), epoch);
            }
            NodeEvent::Opening { id, kind: SegmentKind::Item, object, epoch, .. } => {
                self.open_item_left(id, SegmentId(object), epoch);
            }
            NodeEvent::Opening { id, kind, object, .. } => {
                let text = format!("{} {object} is not served to other nodes", kind.word());
                let outcome = Err(NodeFailure { status: Status::NotFound, text });
                self.effects.push(Effect::Nodes(NodeOrder::Opened { id, outcome }));
            }
        }
    }
}

fn is_not_yet(outcome: &Result<Vec<u8>, NodeFailure>) -> bool {
    matches!(outcome, Err(NodeFailure { status: Status::NotYet, .. }))
}

#[cfg(test)]
mod tests {
    use crossdock_layout::Rights;
    use crossdock_layout::wire::{Answer, OpenMode, Request};

    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{Event, MAIN_ENDPOINT, SiteEvent, SiteName};

    fn open(bench: &mut Bench, connection: u64) -> Option<Status> {
        let open = Request::Open {
            kind: SegmentKind::Port,
            mode: OpenMode::OpenOnly,
            access: Rights::CONSUME,
            size: 0,
            reserve: 0,
            attribute: 0,
            wait_ms: 3_600_000,
            persistent: false,
            name: "q".into(),
        };
        let answer = bench.ask(connection, open);
        status(answer)
    }

    #[test]
    fn the_members_of_one_endpoint_leave_room_for_those_of_others_that_open_ports_of_other_nodes() {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "launcher", 0);
        let (workflow, task) = ("default".to_owned(), "t".to_owned());
        let grants = vec![crossdock_layout::wire::Grant {
            kind: SegmentKind::Port,
            rights: Rights::CONSUME,
            pattern: "*".into(),
        }];
        let made = bench.ask(1, Request::MakeEndpoint { workflow, task, grants });
        let Some(Answer::Done { value: endpoint }) = made else { panic!("{made:?}") };
        let name = SiteName { workflow: "default".into(), kind: SegmentKind::Port, name: "q".into() };
        bench.event(Event::Site(SiteEvent::Named { name, node: "b".into() }));
        let mut waiting = 0;
        for connection in 2..8 {
            bench.join(connection, endpoint, "t", 0).unwrap();
            let waits = (0..PARKED).filter(|_| open(&mut bench, connection).is_none()).count();
            waiting += waits;
        }
        assert_eq!(waiting, OPENING_OF_ENDPOINT);
        assert_eq!(open(&mut bench, 2), Some(Status::Busy));
        assert_eq!(open(&mut bench, 1), None, "a member of another endpoint is refused");
    }
}
