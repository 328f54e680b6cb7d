//! A model of the part of a daemon that carries out the broker's requests (the host). It does what
//! `crossdock_relay::region` does, in steps that take no time. The host sends requests to its own broker through its
//! own sessions, which end with the broker.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, InUse, OpenMode, Request, SegmentKind};
use crossdock_layout::{Rights, SegmentId, Status};
use crossdock_node::broker::{Event, NodeEvent, NodeFailure};

use crate::network::Message;
use crate::world::{NAMES, PARTS, Planted, World};

/// The longest time for the reply to a question, and for the answer about a name, in milliseconds. `PULL` is the
/// longest time for one pull.
const ANSWER: u64 = 5_000;
const PULL: u64 = 3_000;
/// The pause between two questions by which the region's node asks whether the copy is still being made.
const ASK: u64 = 1_000;
/// If the region's node did not reply, the pause before it is asked again to freeze the region.
const AGAIN: u64 = 100;
/// If the copying node does not reply for this time, the region's node ends the freeze.
const SILENT: u64 = 30_000;

/// The numbers of the broker's services that concern the outcome of moves.
pub const MOVE_ENDED: u32 = 35;
pub const MOVE_STATE: u32 = 36;
/// The number of the service by which a node asks another node to remove an object.
pub const REMOVE: u32 = 47;

#[derive(Clone, Debug)]
pub enum Question {
    /// Asks the region's node to freeze a region.
    Freeze { key: u64, name: String, moves: bool },
    /// Asks the region's node for one part of the frozen region's bytes.
    Part { key: u64, part: usize },
    /// Asks the region's node whether the region is still frozen.
    StillFrozen { key: u64 },
    /// Asks the region's node to hand the region over. The region becomes the segment `becomes` of the asking node.
    HandOver { key: u64, becomes: SegmentId },
    /// Tells the region's node that the making of the copy has ended.
    CopyEnded { key: u64 },
    /// Asks the copying node whether it still makes the copy.
    CopyState { key: u64 },
    /// A question that the asking node's broker has for the broker of the asked node.
    Broker { service: u32, body: Vec<u8> },
}

#[derive(Clone, Debug)]
pub enum Reply {
    Frozen { segment: SegmentId },
    Part { part: usize, value: u64, line: u64 },
    Nothing,
    IsBeingMade(bool),
    Broker(Vec<u8>),
    Refused(Status),
}

/// Which question a reply answers.
#[derive(Clone, Debug)]
enum Purpose {
    Freeze(u64),
    Part(u64),
    /// The question whether the region is still frozen. The host asks it after a pull that did not end in time.
    StillFrozen(u64),
    HandOver(u64),
    CopyState(u64),
    CopyEnded,
    /// A question of the broker: its id, and the service that it asks.
    Broker(u64, u32),
}

/// The broker's request to bring a region to this node.
pub struct CopyOrder {
    pub id: u64,
    /// The region's node, which may be this node itself.
    pub node: usize,
    pub name: String,
    pub copy: String,
    pub moves: bool,
    pub by: u64,
}

enum Stage {
    /// The region's node was asked to freeze the region.
    Freezing,
    /// The region's node is asked again at this time.
    Pausing {
        until: u64,
    },
    Filling,
    /// The host has sent the broker the request with this number: to claim the name, or to give the name to the copy.
    Adopting {
        number: u64,
        named: bool,
        until: u64,
    },
    /// The region's node was asked to hand the region over.
    HandingOver,
}

/// A copy that is being made.
pub struct Copying {
    order: CopyOrder,
    stage: Stage,
    session: u64,
    /// The segment that gets the bytes.
    pub segment: SegmentId,
    /// The region's segment on its node.
    from: SegmentId,
}

impl Copying {
    pub fn moves(&self) -> bool {
        self.order.moves
    }

    pub fn name(&self) -> String {
        self.order.copy.clone()
    }
}

/// A region of this node that is frozen, so that the node `peer` can copy its bytes.
struct Frozen {
    peer: usize,
    moves: bool,
    segment: SegmentId,
    session: u64,
    ended: bool,
    heard: u64,
    next_ask: u64,
}

#[derive(Default)]
pub struct Host {
    frozen: BTreeMap<u64, Frozen>,
    pub making: BTreeMap<u64, Copying>,
    /// The questions that have no reply yet: for each its deadline, and which question it is.
    asked: BTreeMap<u64, (u64, Purpose)>,
    seen: BTreeSet<u64>,
    /// The broker's answers to questions of other brokers.
    pub answers: BTreeMap<u64, Result<Vec<u8>, Status>>,
}

impl Host {
    pub fn is_idle(&self) -> bool {
        self.frozen.is_empty() && self.making.is_empty()
    }

    /// Notes that the lease of a node has ended.
    pub fn gone(&mut self, node: usize) {
        self.frozen.values_mut().filter(|frozen| frozen.peer == node).for_each(|frozen| frozen.ended = true);
    }
}

impl World {
    fn ask_host(&mut self, n: usize, to: usize, question: Question, wait: u64, purpose: Purpose) {
        let (id, by) = (self.fresh(), self.now() + wait);
        self.nodes[n].host.asked.insert(id, (by, purpose));
        // A question of a host to itself needs no message: the host answers it at once.
        if n == to {
            let reply = self.answer(n, n, question).unwrap_or(Reply::Refused(Status::TimedOut));
            return self.replied(n, id, reply);
        }
        self.post(n, to, Message::Ask { id, question });
    }

    /// Opens a session of the host with its own broker.
    pub fn host_session(&mut self, n: usize) -> u64 {
        let (connection, token) = (self.fresh(), self.fresh());
        self.connect(n, connection, token, crossdock_layout::MemberId::NONE, "copies", true);
        connection
    }

    /// Sends a request of the host to its broker. Returns the answer if the broker answers at once; otherwise `None`.
    fn host_call(&mut self, n: usize, session: u64, request: &Request) -> Option<Answer> {
        let number = self.host_send(n, session, request)?;
        self.host_answer(n, session, number)
    }

    fn host_send(&mut self, n: usize, session: u64, request: &Request) -> Option<u64> {
        let of = self.nodes[n].sessions.get_mut(&session)?;
        of.last += 1;
        let number = of.last;
        let bytes = request.encode(number, 0);
        self.event(n, Event::Message { connection: session, bytes: Some(&bytes), descriptors: &[] });
        Some(number)
    }

    /// Tells the broker that the host has closed a segment. The broker does not answer this message.
    fn host_close(&mut self, n: usize, session: u64, segment: SegmentId) {
        let bytes = Request::Detach { segment, count: 1 }.encode(0, 0);
        self.event(n, Event::Message { connection: session, bytes: Some(&bytes), descriptors: &[] });
    }

    fn host_answer(&mut self, n: usize, session: u64, number: u64) -> Option<Answer> {
        self.nodes[n].sessions.get_mut(&session)?.answers.remove(&number)
    }

    pub fn host_leave(&mut self, n: usize, session: u64) {
        self.host_call(n, session, &Request::Bye);
        self.nodes[n].sessions.remove(&session);
    }

    fn host_open(&mut self, n: usize, session: u64, name: &str, mode: OpenMode) -> Result<SegmentId, Status> {
        let open = open_region(name, mode, Rights::READ.with(Rights::WRITE));
        match self.host_call(n, session, &open) {
            Some(Answer::Segment { segment, .. }) => Ok(segment),
            Some(Answer::Failed { status, .. }) => Err(status),
            // The broker has not answered: the region's memory was lost and waits for a member that offers it, or the
            // broker was killed.
            _ => Err(Status::Busy),
        }
    }

    pub fn host_remove(&mut self, n: usize, session: u64, name: &str) {
        let remove = Request::Remove { kind: SegmentKind::Region, in_use: InUse::Force, name: name.to_owned() };
        self.host_call(n, session, &remove);
    }

    /// Gives the segment of the region of this name on this node, if the host can open the region.
    fn region_named(&mut self, n: usize, name: &str) -> Result<SegmentId, Status> {
        let session = self.host_session(n);
        let found = self.host_open(n, session, name, OpenMode::OpenOnly);
        self.host_leave(n, session);
        found
    }

    /// Begins to carry out the broker's request to bring a region to this node.
    pub fn bring_region(&mut self, n: usize, order: CopyOrder) {
        let key = self.fresh();
        let nothing = SegmentId(0);
        let copying = Copying { order, stage: Stage::Freezing, session: 0, segment: nothing, from: nothing };
        self.nodes[n].host.making.insert(key, copying);
        self.ask_to_freeze(n, key);
    }

    /// Sends a question that this node's broker has for the broker of another node.
    pub fn ask_for_broker(&mut self, n: usize, to: usize, id: u64, (service, body): (u32, Vec<u8>), wait: u64) {
        if service == MOVE_ENDED && self.planted == Planted::RecordForgotten {
            let answered = NodeEvent::Answered { id, outcome: Ok(Vec::new()) };
            return self.event(n, Event::Nodes(answered));
        }
        self.ask_host(n, to, Question::Broker { service, body }, wait, Purpose::Broker(id, service));
    }

    fn ask_to_freeze(&mut self, n: usize, key: u64) {
        let now = self.now();
        let Some(copying) = self.nodes[n].host.making.get_mut(&key) else { return };
        copying.stage = Stage::Freezing;
        let CopyOrder { node, ref name, moves, by, .. } = copying.order;
        let question = Question::Freeze { key, name: name.clone(), moves };
        self.ask_host(n, node, question, by.saturating_sub(now).clamp(1000, ANSWER), Purpose::Freeze(key));
    }

    /// Answers the question of another node's host.
    pub fn answer(&mut self, n: usize, peer: usize, question: Question) -> Option<Reply> {
        Some(match question {
            Question::Freeze { key, name, moves } => self.freeze(n, peer, key, &name, moves),
            Question::Part { key, part } => match self.nodes[n].host.frozen.get(&key).filter(|f| f.peer == peer) {
                Some(Frozen { segment, session, .. }) => {
                    let (segment, session) = (*segment, *session);
                    let bytes = self.nodes[n].memory.get(&segment)?;
                    let (value, line) = (bytes.parts[part], bytes.line);
                    if self.planted == Planted::RemovedEarly && part == PARTS - 1 {
                        let name = self.name_of(n, segment)?;
                        self.host_remove(n, session, &name);
                    }
                    Reply::Part { part, value, line }
                }
                None => Reply::Refused(Status::Closed),
            },
            Question::StillFrozen { key } => {
                let frozen = self.nodes[n].host.frozen.get(&key);
                match frozen.filter(|frozen| frozen.peer == peer && !frozen.ended) {
                    Some(_) => Reply::Nothing,
                    None => Reply::Refused(Status::Closed),
                }
            }
            Question::HandOver { key, becomes } => {
                let frozen = self.nodes[n].host.frozen.get(&key);
                let Some(frozen) = frozen.filter(|of| of.peer == peer && of.moves && !of.ended) else {
                    return Some(Reply::Refused(Status::Closed));
                };
                let (session, segment) = (frozen.session, frozen.segment);
                let hand_over = Request::HandOver { segment, becomes, node: NAMES[peer].to_owned() };
                match self.host_call(n, session, &hand_over) {
                    Some(Answer::Done { .. }) => {
                        self.totals.handed_over += 1;
                        self.end_freeze(n, key);
                        Reply::Nothing
                    }
                    Some(Answer::Failed { status, .. }) => Reply::Refused(status),
                    _ => Reply::Refused(Status::Disconnected),
                }
            }
            Question::CopyEnded { key } => {
                if self.nodes[n].host.frozen.get(&key).is_some_and(|frozen| frozen.peer == peer) {
                    self.end_freeze(n, key);
                }
                Reply::Nothing
            }
            Question::CopyState { key } => {
                self.totals.asked_again += 1;
                Reply::IsBeingMade(self.nodes[n].host.making.contains_key(&key))
            }
            Question::Broker { service, body } => {
                let id = self.fresh();
                self.planted_defects(n, service, &body);
                self.note_removal(n, service, &body);
                let node = NAMES[peer].to_owned();
                self.event(n, Event::Nodes(NodeEvent::Asked { id, node, service, body }));
                match self.nodes[n].host.answers.remove(&id)? {
                    Ok(body) => Reply::Broker(body),
                    Err(status) => Reply::Refused(status),
                }
            }
        })
    }

    fn end_freeze(&mut self, n: usize, key: u64) {
        if let Some(frozen) = self.nodes[n].host.frozen.get_mut(&key) {
            frozen.ended = true;
        }
    }

    fn freeze(&mut self, n: usize, peer: usize, key: u64, name: &str, moves: bool) -> Reply {
        if let Some(frozen) = self.nodes[n].host.frozen.get(&key).filter(|frozen| frozen.peer == peer) {
            return Reply::Frozen { segment: frozen.segment };
        }
        if !self.nodes[n].host.seen.insert(key) {
            return Reply::Refused(Status::Disconnected);
        }
        let session = self.host_session(n);
        let segment = self.host_open(n, session, name, OpenMode::OpenOnly);
        let frozen = segment.and_then(|segment| {
            if self.planted == Planted::FreezeSkipped {
                return Ok(segment);
            }
            match self.host_call(n, session, &Request::Freeze { segment, moves }) {
                Some(Answer::Done { .. }) => Ok(segment),
                Some(Answer::Failed { status, .. }) => Err(status),
                _ => Err(Status::Disconnected),
            }
        });
        match frozen {
            Ok(segment) if self.nodes[n].sessions.contains_key(&session) => {
                let now = self.now();
                let next_ask = now + ASK;
                let frozen = Frozen { peer, moves, segment, session, ended: false, heard: now, next_ask };
                self.nodes[n].host.frozen.insert(key, frozen);
                Reply::Frozen { segment }
            }
            Ok(_) => Reply::Refused(Status::Disconnected),
            Err(status) => {
                self.totals.refused += u64::from(status == Status::Busy);
                self.nodes[n].host.seen.remove(&key);
                self.host_leave(n, session);
                Reply::Refused(status)
            }
        }
    }

    /// Handles the reply to a question. If the question's deadline has passed, the reply says so.
    pub fn replied(&mut self, n: usize, id: u64, reply: Reply) {
        let Some((_, purpose)) = self.nodes[n].host.asked.remove(&id) else { return };
        let is_silent = matches!(reply, Reply::Refused(Status::TimedOut | Status::Disconnected));
        let now = self.now();
        match (purpose, reply) {
            (Purpose::Freeze(key), Reply::Frozen { segment }) => self.frozen(n, key, segment),
            (Purpose::Freeze(key), Reply::Refused(status)) => {
                let Some(copying) = self.nodes[n].host.making.get_mut(&key) else { return };
                match is_silent && now < copying.order.by {
                    true => copying.stage = Stage::Pausing { until: now + AGAIN },
                    false => self.ended(n, key, Err(status)),
                }
            }
            (Purpose::Part(key), Reply::Part { part, value, line }) => self.part_came(n, key, part, value, line),
            (Purpose::Part(key), Reply::Refused(status)) => {
                let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
                let (by, node) = (copying.order.by, copying.order.node);
                match is_silent && now < by {
                    true => self.ask_host(n, node, Question::StillFrozen { key }, ANSWER, Purpose::StillFrozen(key)),
                    false => self.ended(n, key, Err(status)),
                }
            }
            (Purpose::StillFrozen(key), Reply::Refused(status)) if !is_silent => self.ended(n, key, Err(status)),
            (Purpose::StillFrozen(key), _) => self.next_part(n, key),
            (Purpose::HandOver(key), Reply::Nothing) => self.adopt(n, key, true),
            (Purpose::HandOver(key), Reply::Refused(status)) => self.ended(n, key, Err(status)),
            (Purpose::CopyState(key), reply) => {
                let Some(frozen) = self.nodes[n].host.frozen.get_mut(&key) else { return };
                frozen.next_ask = now + ASK;
                match reply {
                    Reply::IsBeingMade(true) => frozen.heard = now,
                    Reply::IsBeingMade(false) => frozen.ended = true,
                    _ => {}
                }
            }
            (Purpose::Broker(id, service), reply) => {
                let outcome = match reply {
                    Reply::Broker(body) => Ok(self.planted_answer(service, body)),
                    Reply::Refused(status) => Err(NodeFailure { status, text: "no answer".into() }),
                    _ => unreachable!("only a broker answers a broker"),
                };
                self.event(n, Event::Nodes(NodeEvent::Answered { id, outcome }));
            }
            _ => {}
        }
    }

    /// The region has just been frozen: makes the segment for its copy, and begins to pull the bytes.
    fn frozen(&mut self, n: usize, key: u64, from: SegmentId) {
        let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
        let mirror = mirror(key, &copying.order.copy);
        let session = self.host_session(n);
        let made = self.host_open(n, session, &mirror, OpenMode::CreateOnly);
        let Some(copying) = self.nodes[n].host.making.get_mut(&key) else { return };
        (copying.from, copying.session, copying.stage) = (from, session, Stage::Filling);
        match made {
            Ok(segment) => {
                copying.segment = segment;
                self.next_part(n, key);
            }
            Err(status) => self.ended(n, key, Err(status)),
        }
    }

    /// Pulls the next part that the copy does not have yet.
    fn next_part(&mut self, n: usize, key: u64) {
        let now = self.now();
        let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
        let (node, by, segment) = (copying.order.node, copying.order.by, copying.segment);
        if now >= by {
            return self.ended(n, key, Err(Status::TimedOut));
        }
        let part = self.nodes[n].memory.get(&segment).map_or(0, |of| of.came);
        self.ask_host(n, node, Question::Part { key, part }, PULL, Purpose::Part(key));
    }

    fn part_came(&mut self, n: usize, key: u64, part: usize, value: u64, line: u64) {
        let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
        let (segment, moves, is_here) = (copying.segment, copying.order.moves, copying.order.node == n);
        let Some(bytes) = self.nodes[n].memory.get_mut(&segment).filter(|of| of.came == part) else { return };
        bytes.parts[part] = value;
        bytes.came += 1;
        if bytes.came < PARTS {
            return self.next_part(n, key);
        }
        bytes.line = line;
        self.adopt(n, key, !moves || is_here);
    }

    /// Asks the broker to claim, in the catalog, the name that the copy is to have. If `named` is true, the broker also
    /// gives this name to the copy's segment.
    fn adopt(&mut self, n: usize, key: u64, named: bool) {
        let now = self.now();
        let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
        let (session, segment, former, order) = (copying.session, copying.segment, copying.from, copying.order.id);
        let until = now + copying.order.by.saturating_sub(now).max(ANSWER);
        let number = self.host_send(n, session, &Request::Adopt { order, named, segment, former });
        if let (Some(copying), Some(number)) = (self.nodes[n].host.making.get_mut(&key), number) {
            copying.stage = Stage::Adopting { number, named, until };
        }
    }

    /// Ends a copy, and tells the broker and the region's node what became of it.
    fn ended(&mut self, n: usize, key: u64, outcome: Result<(), Status>) {
        let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
        let (session, segment, copy) = (copying.session, copying.segment, copying.order.copy.clone());
        let mut outcome = outcome.map(|()| segment);
        if outcome.is_err() && segment.0 != 0 {
            self.host_close(n, session, segment);
            self.host_remove(n, session, &mirror(key, &copy));
            // Perhaps the broker has given the copy its name, and only the answer was lost. Then the copy was
            // successful.
            if self.region_named(n, &copy) == Ok(segment) {
                outcome = Ok(segment);
            }
        }
        if session != 0 {
            self.host_leave(n, session);
        }
        let Some(Copying { order, .. }) = self.nodes[n].host.making.remove(&key) else { return };
        match (&outcome, order.moves) {
            (Ok(_), true) => self.totals.moved += 1,
            (Ok(_), false) => self.totals.copied += 1,
            (Err(_), _) => self.totals.ended += 1,
        }
        if outcome.is_err() || !order.moves {
            self.ask_host(n, order.node, Question::CopyEnded { key }, ANSWER, Purpose::CopyEnded);
        }
        let failure = |status| NodeFailure { status, text: "the copy failed".into() };
        let outcome = outcome.map_err(failure);
        self.event(n, Event::Nodes(NodeEvent::RegionCopied { id: order.id, outcome }));
    }

    /// When the broker gets this question, does what a broker with the planted defect would do.
    fn planted_defects(&mut self, n: usize, service: u32, body: &[u8]) {
        if service != MOVE_ENDED || self.planted != Planted::NameMeansRegion {
            return;
        }
        let [segment, becomes, moved] = move_ended(body);
        let is_there = self.nodes[n].memory.contains_key(&SegmentId(segment));
        let name = self.moved_names.get(&SegmentId(becomes)).cloned().filter(|_| moved == 1 && !is_there);
        if let Some(name) = name {
            let session = self.host_session(n);
            self.host_remove(n, session, &name);
            self.host_leave(n, session);
        }
    }

    /// A defect may be planted by which a node misreads the answer to a broker's question. With this defect, the
    /// function returns the misread answer. Without the defect, it returns the answer unchanged.
    fn planted_answer(&self, service: u32, body: Vec<u8>) -> Vec<u8> {
        const UNKNOWN: u32 = 0;
        const NOT_MOVED: u32 = 3;
        let is_unknown = service == MOVE_STATE && body == UNKNOWN.to_le_bytes();
        match is_unknown && self.planted == Planted::UnknownIsNotMoved {
            true => NOT_MOVED.to_le_bytes().to_vec(),
            false => body,
        }
    }

    /// Lets the host do all that is due.
    pub fn host_step(&mut self, n: usize) {
        let now = self.now();
        let late: Vec<_> =
            self.nodes[n].host.asked.iter().filter(|(_, (by, _))| *by <= now).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.replied(n, id, Reply::Refused(Status::TimedOut)));
        for key in self.nodes[n].host.making.keys().copied().collect::<Vec<_>>() {
            self.making_step(n, key);
        }
        for key in self.nodes[n].host.frozen.keys().copied().collect::<Vec<_>>() {
            self.frozen_step(n, key);
        }
    }

    fn making_step(&mut self, n: usize, key: u64) {
        let now = self.now();
        let Some(copying) = self.nodes[n].host.making.get(&key) else { return };
        let (session, node, moves) = (copying.session, copying.order.node, copying.order.moves);
        match copying.stage {
            Stage::Pausing { until } if until <= now => self.ask_to_freeze(n, key),
            Stage::Adopting { number, named, until } => match self.host_answer(n, session, number) {
                Some(Answer::Done { .. }) if named => self.ended(n, key, Ok(())),
                Some(Answer::Done { .. }) => {
                    debug_assert!(moves && node != n, "only a move to another node claims its name first");
                    if self.planted == Planted::HandOverSkipped {
                        return self.adopt(n, key, true);
                    }
                    let Some(copying) = self.nodes[n].host.making.get_mut(&key) else { return };
                    copying.stage = Stage::HandingOver;
                    let becomes = copying.segment;
                    self.ask_host(n, node, Question::HandOver { key, becomes }, ANSWER, Purpose::HandOver(key));
                }
                Some(Answer::Failed { status, .. }) => self.ended(n, key, Err(status)),
                _ if until <= now => self.ended(n, key, Err(Status::TimedOut)),
                _ => {}
            },
            _ => {}
        }
    }

    /// Ends the freeze of a region if the copy has ended, or if the copying node has not replied for too long.
    /// Otherwise asks the copying node from time to time whether it still makes the copy.
    fn frozen_step(&mut self, n: usize, key: u64) {
        let now = self.now();
        let Some(frozen) = self.nodes[n].host.frozen.get_mut(&key) else { return };
        frozen.ended |= frozen.peer != n && now - frozen.heard > SILENT;
        let (session, segment) = (frozen.session, frozen.segment);
        if frozen.ended {
            self.host_close(n, session, segment);
            self.host_leave(n, session);
            self.nodes[n].host.frozen.remove(&key);
        } else if frozen.peer != n && frozen.next_ask <= now {
            frozen.next_ask = u64::MAX;
            let peer = frozen.peer;
            self.ask_host(n, peer, Question::CopyState { key }, ANSWER, Purpose::CopyState(key));
        }
    }
}

/// Reads the body of MOVE_ENDED: the region's segment on its former node, its segment on the next node, and whether the
/// region has moved.
pub fn move_ended(body: &[u8]) -> [u64; 3] {
    let number = |at: usize, bytes: usize| {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(&body[at..at + bytes]);
        u64::from_le_bytes(number)
    };
    [number(0, 8), number(8, 8), number(16, 4)]
}

pub fn open_region(name: &str, mode: OpenMode, access: Rights) -> Request {
    Request::Open {
        kind: SegmentKind::Region,
        mode,
        access,
        persistent: true,
        size: 65_536,
        reserve: 4096,
        attribute: 0,
        wait_ms: 0,
        name: name.to_owned(),
    }
}

fn mirror(key: u64, copy: &str) -> String {
    format!("{}{key:x}/{copy}", crossdock_layout::name::MIRROR)
}

/// Gives the index of a node of the site.
pub fn index(node: &str) -> usize {
    NAMES.iter().position(|name| *name == node).expect("a node of the site")
}
