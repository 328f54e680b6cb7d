//! The outcome of a region's move, on which the brokers of two nodes must agree.
//!
//! Node a has the region as segment S. Node b has filled its segment T with the region's bytes. No other segment of the
//! site ever gets the id T, so T names the move. In the diagram, the words in brackets are the records in the journals.
//!
//! ```text
//! broker of node a                           broker of node b
//!                                            notes the move                   [Arriving T]
//!                        <- HAND_OVER T
//! gives the decision away     [HandedOver S]
//!   done ->
//!                                            gives T its name: S has moved    [Renamed T]
//!                        <- MOVE_ENDED S, T, 1 it has moved or 0 it has not
//! removes S                        [Removed]
//! or opens it again         [Moving S: no]
//!   done ->
//!                                            forgets the move                 [ArrivalKnown T]
//! ```
//!
//! - Before [`Record::HandedOver`], node a decides: it may open S again at any time, and then refuses HAND_OVER.
//! - From [`Record::HandedOver`] on, node b decides. Node a opens S to no member until it knows the outcome, also after
//!   a restart of its broker, and whatever the catalog says about the region's name.
//! - The move happens with [`Record::Renamed`]. If T is removed without that record, the move has not happened. A broker
//!   that starts removes such segments.
//! - Node b takes the region's name between Arriving and HAND_OVER. If the move does not happen, node b gives the name
//!   back to node a, so that no third node gets it. Node b forgets the move only after the name has gone back.
//! - Node b repeats MOVE_ENDED until node a has answered. Node a answers when it has carried out the outcome, or when S
//!   was not handed over to T. In the second case it refuses a HAND_OVER of T that arrives later.
//! - Node a asks MOVE_STATE while it does not know the outcome. Node b has a record of the move until node a has
//!   answered MOVE_ENDED. So if node b has no record of T, node b's daemon has lost its whole state, and with it the
//!   region's bytes. Node b may have given T the region's name before, so node a does not open the old bytes again: it
//!   removes S, and logs that the region is lost.
//! - If node b does not answer, S stays closed. Requests for S fail, and the error says that node b decides. `remove`
//!   with force removes S without waiting for node b.
//! - A message about another move, or about another region of the same name, changes nothing, because each message names
//!   S and T.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, InUse, SegmentKind};
use crossdock_layout::{SegmentId, Status, record};

use super::lasting::Arrival;
use super::stored::{Stored, decode, encode};
use super::waits::Due;
use super::{Broker, Cause, Effect, NodeFailure, Record, Requester, SiteName, SiteOrder};

/// The service by which a region's former node is told whether the region has moved. The answer is empty.
pub(super) const MOVE_ENDED: u32 = 35;
/// The service by which a region's former node asks for the state of the move. The asked node is the one to which the
/// region was handed over. The answer is a `MoveStateReply`.
pub(super) const MOVE_STATE: u32 = 36;

/// How long the broker waits before it repeats a question about a move, in milliseconds.
const AGAIN_MS: u64 = 1_000;
/// The maximum number of questions about moves that wait for an answer at the same time.
const AT_ONCE: usize = 16;

record! {
    /// The body of MOVE_ENDED.
    struct MoveEnded as Stored {
        /// The region's segment on the node that gets this message.
        segment: SegmentId,
        /// The region's segment on the node that sends this message.
        becomes: SegmentId,
        /// 1 if the region has moved, otherwise 0.
        moved: u32,
    }
}

record! {
    /// The body of MOVE_STATE.
    struct MoveStateRequest as Stored {
        /// The region's segment on the node that gets this question.
        becomes: SegmentId,
    }
}

record! {
    /// The answer to MOVE_STATE.
    struct MoveStateReply as Stored {
        /// How far the move is: `UNKNOWN`, `MAKING`, `MOVED` or `NOT_MOVED`.
        state: u32,
    }
}

/// The node has no record of the move.
const UNKNOWN: u32 = 0;
/// The move has not happened yet. The node that answers MOVE_STATE has a complete copy of the region, but this copy
/// does not have the region's name yet.
const MAKING: u32 = 1;
const MOVED: u32 = 2;
const NOT_MOVED: u32 = 3;

/// A question about a move. It waits for its answer, or for the end of a pause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MoveQuestion {
    /// MOVE_ENDED, about a region that came to this node as this segment.
    Ended(SegmentId),
    /// MOVE_STATE, about a region of this node that was handed over, and about the segment that it becomes.
    State(SegmentId, SegmentId),
    /// A question to the catalog. The move of a region to this node has failed, and this node has given the region's
    /// name back. Has the catalog given the name to the region's node again?
    Name(SegmentId),
}

/// The questions about moves.
#[derive(Default)]
pub(super) struct Moves {
    /// The questions that wait for an answer. The key is the question's id.
    asked: BTreeMap<u64, MoveQuestion>,
    /// The questions that are asked when the present pause is over.
    paused: BTreeSet<MoveQuestion>,
    /// The segments of regions that have not moved to this node. The catalog has said that these regions' names have
    /// gone back to their nodes.
    given_back: BTreeSet<SegmentId>,
    /// Whether a deadline for the end of the pause is set.
    is_pause_set: bool,
}

/// For the fuzzed broker: makes a question about a move, chosen by `which`.
pub(super) fn question(segment: SegmentId, which: u8) -> (u32, Vec<u8>) {
    let becomes = SegmentId(u64::from(which / 2 % 2));
    match which % 2 {
        0 => (MOVE_STATE, encode(&MoveStateRequest { becomes })),
        _ => (MOVE_ENDED, encode(&MoveEnded { segment, becomes, moved: u32::from(which / 4 % 2) })),
    }
}

/// For the fuzzed broker: makes an answer to MOVE_STATE, chosen by `which`.
pub(super) fn answer(which: u8) -> Vec<u8> {
    encode(&MoveStateReply { state: u32::from(which % 5) })
}

impl Moves {
    /// Tells whether `id` is the id of a question about a move.
    pub fn has_asked(&self, id: u64) -> bool {
        self.asked.contains_key(&id)
    }
}

impl Broker {
    /// Handles the request to let another node decide whether a region has moved. The request comes from the member
    /// that has frozen the region. This member belongs to this node's host.
    pub(super) fn hand_over(&mut self, asker: Requester, segment: SegmentId, becomes: SegmentId, node: String) {
        let found = self.lasting.segments.get(&segment).filter(|found| found.removed.is_none());
        let may = found.is_some_and(|found| found.moving && found.handed_over.is_none())
            && self.is_admin(asker.connection)
            && self.open_segments.has(segment, asker.member)
            && self.is_frozen_for(segment, asker.member, becomes)
            && self.site.is_some();
        let name = found.and_then(|found| self.site_name(found.workflow, found.kind, &found.name));
        let is_lost = name.is_some_and(|name| self.is_contested_by_another(&name, &node));
        if !may || is_lost {
            return self.fail(asker, Status::Closed, "the region is not kept for this node any more; try again");
        }
        if !self.journal_works(asker) {
            return;
        }
        self.commit(Record::HandedOver { segment, becomes, node });
        // This node asks the other node for the outcome only after a pause, because the other node usually reports the
        // outcome before that.
        self.moves.paused.insert(MoveQuestion::State(segment, becomes));
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Gives the error for a member that wants to open or remove a region that was handed over to another node.
    pub(super) fn decided_elsewhere(&self, segment: SegmentId) -> Option<String> {
        let found = self.lasting.segments.get(&segment)?;
        let (name, node) = (&found.name, &found.handed_over.as_ref()?.node);
        let since = self.site.as_ref().and_then(|site| site.gone_since(node));
        let gone = since.map_or(String::new(), |since| {
            let ago = self.now.saturating_sub(since) as f64 / 1000.0;
            format!(", which has been gone for {ago:.1} s")
        });
        Some(format!(
            "region '{name}' was moving to node {node}{gone}. Only that node knows whether the region has moved; try again \
             when the node answers, or remove the region with --force to give it up"
        ))
    }

    /// Gives the error if a request with this `in_use` may not remove the region. If the region was handed over, only
    /// `InUse::Force` removes it.
    pub(super) fn why_not_removed(&self, segment: SegmentId, in_use: InUse) -> Option<String> {
        self.decided_elsewhere(segment).filter(|_| in_use != InUse::Force)
    }

    /// Gives the state of a region that came to this node as the segment `becomes`.
    fn move_state(&self, becomes: SegmentId) -> u32 {
        match self.lasting.arrivals.get(&becomes) {
            None => UNKNOWN,
            Some(Arrival { named: true, .. }) => MOVED,
            Some(_) if self.lasting.segments.get(&becomes).is_some_and(|found| found.removed.is_none()) => MAKING,
            Some(_) => NOT_MOVED,
        }
    }

    /// Gives the moves to this node that are in this state, and whose regions have this name.
    fn arrivals_of(&self, name: &SiteName, state: u32) -> impl DoubleEndedIterator<Item = (&SegmentId, &Arrival)> {
        let fits = move |arrival: &Arrival| {
            name.kind == SegmentKind::Region && arrival.workflow == name.workflow && arrival.name == name.name
        };
        let all = self.lasting.arrivals.iter();
        all.filter(move |(becomes, arrival)| fits(arrival) && self.move_state(**becomes) == state)
    }

    /// Tells whether a region is moving to this node and is about to get this name here.
    fn is_arriving(&self, name: &SiteName) -> bool {
        self.arrivals_of(name, MAKING).next().is_some()
    }

    /// If the move of a region of this name to this node has failed, gives the node to which the name goes back.
    fn came_from(&self, name: &SiteName) -> Option<String> {
        self.arrivals_of(name, NOT_MOVED).next_back().map(|(_, arrival)| arrival.node.clone())
    }

    /// Gives the error for a request to make a new region, if a move needs the region's name; otherwise `None`. A
    /// region of this name may be moving to this node. Or its move has failed, and the catalog has not yet said that
    /// the name is back at the other node. A new region would keep the name on this node, and no member could open the
    /// region on the other node.
    pub(super) fn needed_by_move(&self, name: &SiteName) -> Option<String> {
        let region = &name.name;
        if self.is_arriving(name) {
            return Some(format!("region '{region}' is moving to this node; try again"));
        }
        let mut back =
            self.arrivals_of(name, NOT_MOVED).filter(|(becomes, _)| !self.moves.given_back.contains(becomes));
        let node = &back.next_back()?.1.node;
        Some(format!(
            "region '{region}' has not moved to this node, and its name is going back to node {node}; try again"
        ))
    }

    /// Gives the request to the catalog by which this node gives up a name. If the name was taken from another node,
    /// the name goes back to that node. Otherwise the name becomes free.
    pub(super) fn way_back(&self, name: SiteName) -> SiteOrder {
        match self.came_from(&name) {
            Some(to) => SiteOrder::GiveBack { name, to },
            None => SiteOrder::Release(name),
        }
    }

    /// Gives names back to the nodes from which this node has taken them, because the regions of these names have not
    /// moved to this node.
    pub(super) fn give_names_back(&mut self) {
        let Some(site) = &self.site else { return };
        let names = self.lasting.arrivals.values().map(region_name);
        let unused: BTreeSet<_> = names.filter(|name| !site.has_or_claims(name)).collect();
        let orders = unused.into_iter().filter_map(|name| {
            let to = self.came_from(&name)?;
            Some(Effect::Site(SiteOrder::GiveBack { name, to }))
        });
        let orders: Vec<_> = orders.collect();
        self.effects.extend(orders);
    }

    /// Gives back the names of regions that have not moved to this node, and asks the catalog whether the names have
    /// gone back. This node forgets a move only after the catalog has confirmed that the name is back at the other
    /// node. A broker that starts before this confirmation gives the name back once more.
    fn settle_names_of_moves(&mut self) {
        let Some(site) = self.site.as_ref().filter(|site| site.is_in()) else { return };
        let back = self.lasting.arrivals.iter().filter(|(becomes, arrival)| {
            self.move_state(**becomes) == NOT_MOVED
                && !self.moves.given_back.contains(becomes)
                && !self.moves.paused.contains(&MoveQuestion::Name(**becomes))
                && !site.has_or_claims(&region_name(arrival))
        });
        for (becomes, arrival) in back.map(|(becomes, arrival)| (*becomes, arrival.clone())).collect::<Vec<_>>() {
            let name = region_name(&arrival);
            self.effects.push(Effect::Site(SiteOrder::GiveBack { name: name.clone(), to: arrival.node }));
            self.effects.push(Effect::Site(SiteOrder::Find(name)));
            self.moves.paused.insert(MoveQuestion::Name(becomes));
        }
    }

    /// Notes which node has the name of a region, as the catalog has said after this node had given the name back.
    pub(super) fn name_of_move_is_at(&mut self, name: &SiteName, node: Option<&str>) {
        if node == self.own_node() {
            return;
        }
        let back = self
            .lasting
            .arrivals
            .iter()
            .filter(|(becomes, arrival)| self.move_state(**becomes) == NOT_MOVED && region_name(arrival) == *name);
        let back: Vec<_> = back.map(|(becomes, _)| *becomes).collect();
        self.moves.given_back.extend(back);
    }

    /// Tells whether this node needs a region's name although that region has not moved to this node: another region of
    /// this name is here or is about to come.
    fn needs_name(&self, arrival: &Arrival) -> bool {
        let name = region_name(arrival);
        self.is_here(&name) || self.is_arriving(&name)
    }

    /// Asks those questions about moves that are due now.
    pub(super) fn settle_moves(&mut self) {
        if self.site.is_none() {
            return;
        }
        self.settle_names_of_moves();
        let ended = self.lasting.arrivals.iter().filter(|(becomes, arrival)| match self.move_state(**becomes) {
            MAKING => false,
            NOT_MOVED => self.moves.given_back.contains(becomes) || self.needs_name(arrival),
            _ => true,
        });
        let ended = ended.map(|(becomes, arrival)| {
            let moved = u32::from(arrival.named);
            let body = encode(&MoveEnded { segment: arrival.former, becomes: *becomes, moved });
            (MoveQuestion::Ended(*becomes), arrival.node.clone(), MOVE_ENDED, body)
        });
        let unsure = self.lasting.moving_segments().filter_map(|(segment, found)| {
            let to = found.handed_over.as_ref()?;
            let body = encode(&MoveStateRequest { becomes: to.becomes });
            Some((MoveQuestion::State(segment, to.becomes), to.node.clone(), MOVE_STATE, body))
        });
        let waits: BTreeSet<_> = self.moves.asked.values().collect();
        let is_due = |question: &MoveQuestion| !waits.contains(question) && !self.moves.paused.contains(question);
        let due = ended.chain(unsure).filter(|(question, ..)| is_due(question));
        for (question, node, service, body) in due.take(AT_ONCE.saturating_sub(waits.len())).collect::<Vec<_>>() {
            let id = self.ask_node(&node, service, body);
            self.moves.asked.insert(id, question);
        }
        if !self.moves.paused.is_empty() && !self.moves.is_pause_set {
            self.moves.is_pause_set = true;
            self.waits.expect(self.now + AGAIN_MS, Due::Moves);
        }
    }

    /// Ends the pause before questions about moves are repeated.
    pub(super) fn ask_about_moves_again(&mut self) {
        self.moves.paused.clear();
        self.moves.is_pause_set = false;
    }

    /// Handles the answer to a question about a move.
    pub(super) fn move_question_answered(&mut self, id: u64, outcome: Result<Vec<u8>, NodeFailure>) {
        let Some(question) = self.moves.asked.remove(&id) else { return };
        let is_done = match (question, outcome) {
            (_, Err(_)) => false,
            (MoveQuestion::Name(_), Ok(_)) => true,
            (MoveQuestion::Ended(becomes), Ok(_)) => {
                let works = self.journal.is_ok();
                if works {
                    self.moves.given_back.remove(&becomes);
                    self.commit(Record::ArrivalKnown { segment: becomes });
                }
                works
            }
            (MoveQuestion::State(segment, becomes), Ok(body)) => {
                let state = decode(&body).map_or(MAKING, |MoveStateReply { state }| state);
                match state {
                    _ if self.handed_over_as(segment) != Some(becomes) => true,
                    MOVED => self.move_is_over(segment, true).is_ok(),
                    NOT_MOVED => self.move_is_over(segment, false).is_ok(),
                    UNKNOWN => self.region_is_lost(segment),
                    _ => false,
                }
            }
        };
        if !is_done {
            self.moves.paused.insert(question);
        }
    }

    /// Gives the id that the region `segment` gets on the node to which the region was handed over. `None` if the
    /// region was removed, or was not handed over.
    fn handed_over_as(&self, segment: SegmentId) -> Option<SegmentId> {
        let found = self.lasting.segments.get(&segment).filter(|found| found.removed.is_none())?;
        found.handed_over.as_ref().map(|to| to.becomes)
    }

    /// Handles a report from the node `node`: a move has ended.
    pub(super) fn move_ended(&mut self, node: &str, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let MoveEnded { segment, becomes, moved } = decode(body).ok_or_else(unreadable)?;
        let found = self.lasting.segments.get(&segment).filter(|_| self.handed_over_as(segment) == Some(becomes));
        if found.and_then(|found| found.handed_over.as_ref()).is_some_and(|to| to.node == node) {
            self.move_is_over(segment, moved != 0)?;
        } else {
            // A HAND_OVER request that names the segment `becomes` may still be on its way. It must be refused.
            self.refuse_hand_over(segment, becomes);
        }
        Ok(Vec::new())
    }

    /// Answers another node's question about the state of a move to this node.
    pub(super) fn move_state_wanted(&self, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let MoveStateRequest { becomes } = decode(body).ok_or_else(unreadable)?;
        Ok(encode(&MoveStateReply { state: self.move_state(becomes) }))
    }

    /// Carries out the outcome of a move: removes the region if it has moved, otherwise lets members open it again.
    fn move_is_over(&mut self, segment: SegmentId, moved: bool) -> Result<(), NodeFailure> {
        self.check_journal()?;
        if moved {
            self.take_name(segment, Cause::NONE);
            return Ok(());
        }
        let name = self.lasting.segments.get(&segment).map(|found| (found.workflow, found.name.clone()));
        self.commit(Record::Moving { segment, moves: false });
        let name = name.and_then(|(workflow, name)| self.site_name(workflow, SegmentKind::Region, &name));
        if let Some(name) = name.filter(|name| self.may_claim_again(name)) {
            // The catalog may have no entry of the region's name, or an entry that gives the name to the other node. So
            // this node claims the name again.
            self.effects.push(Effect::Site(SiteOrder::Claim(name)));
        }
        Ok(())
    }

    /// Removes a region because the daemon of the node to which it was handed over has lost its state. Returns whether
    /// the region is removed.
    fn region_is_lost(&mut self, segment: SegmentId) -> bool {
        let Some(found) = self.lasting.segments.get(&segment).filter(|_| self.journal.is_ok()) else { return false };
        let node = found.handed_over.as_ref().map_or("", |to| &to.node);
        let line = format!(
            "region '{}' was moving to node {node}, and the daemon of that node has lost its state: the region is lost",
            found.name
        );
        self.effects.push(Effect::Log { line });
        self.take_name(segment, Cause::NONE);
        true
    }
}

fn region_name(arrival: &Arrival) -> SiteName {
    SiteName { workflow: arrival.workflow.clone(), kind: SegmentKind::Region, name: arrival.name.clone() }
}

fn unreadable() -> NodeFailure {
    let text = "the question about a region's move cannot be read; run the same version of crossdock on all nodes";
    NodeFailure { status: Status::Incompatible, text: text.into() }
}
