//! The lasting state: what a new broker finds after the former one was killed. It changes only through
//! [`Lasting::apply`], both in operation and when a journal is read. So the state of a new broker cannot differ from
//! the state of the former one.

#![allow(missing_docs, reason = "plain fields, named as in the records and on the wire")]

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::id::MAX_MEMBERS;
use crossdock_layout::wire::{Grant, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};

use super::item::Items;
use super::record::{Cause, Peer, ProofScope, Record};
use super::series::Series;

/// For how many finished requests of a member the results are remembered. A client never has so many unanswered
/// requests at the same time.
const OUTCOMES: usize = 256;

/// The endpoint that the daemon itself listens on.
pub const MAIN_ENDPOINT: u64 = 0;
/// The workflow of programs that name no workflow.
pub const DEFAULT_WORKFLOW: &str = "default";

/// The lasting state of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    pub name: String,
    pub quota: u64,
    pub owner: MemberId,
    /// The bytes that all segments of the workflow have reserved together.
    pub reserved: u64,
    /// The number of the workflow's segments, pin pages included.
    pub segments: u64,
    /// The number of the workflow's runs so far, including the present run.
    pub run: u64,
}

/// An endpoint that a launcher made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub workflow: u64,
    pub task: String,
    pub grants: Vec<Grant>,
}

/// The result of a request, kept until the member that sent the request has certainly got the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Made(SegmentId),
    Done(u64),
}

/// The lasting state of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub endpoint: u64,
    pub workflow: u64,
    pub task: String,
    pub rank: u32,
    pub peer: Peer,
    pub token: [u8; 16],
    /// True if the member only inspects the daemon's state, and is no part of a run.
    pub visitor: bool,
    /// False while the member has sent only requests that leave it with nothing ([`Request::may_give`]). Such a member
    /// has nothing open and made nothing, so nothing waits for it while its connection is lost.
    ///
    /// [`Request::may_give`]: crossdock_layout::wire::Request::may_give
    pub may_hold: bool,
    pub outcomes: BTreeMap<u64, Outcome>,
}

/// The lasting state of a member whose session is over, but which is not proved dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ghost {
    pub endpoint: u64,
    pub peer: Peer,
}

/// The lasting state of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub workflow: u64,
    pub kind: SegmentKind,
    pub name: String,
    pub size: u64,
    pub reserved: u64,
    pub attribute: u64,
    pub creator: MemberId,
    /// True if the segment stays when the run ends.
    pub persistent: bool,
    /// When the segment was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// Set when the segment's name was removed: each member that had the segment open at that moment, with the number
    /// of times that the member had opened it.
    pub removed: Option<Vec<(MemberId, u32)>>,
    /// True if the segment is a region that is about to move to another node. The other node may have the region's name
    /// already.
    pub moving: bool,
    /// Set if the segment is a region, and another node decides whether the region has moved to that node.
    pub handed_over: Option<HandedOver>,
    /// The state that only a series has; `None` for other kinds of segments.
    pub series: Option<Series>,
}

impl Segment {
    /// Tells whether the segment has its name and is about to move to another node, or was handed over to one.
    fn moves(&self) -> bool {
        self.removed.is_none() && (self.moving || self.handed_over.is_some())
    }
}

/// The move of a region about which another node decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The other node's name.
    pub node: String,
    /// The segment that the region becomes on the other node.
    pub becomes: SegmentId,
}

/// The move of a region to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The name of the node from which the region comes.
    pub node: String,
    /// The region's segment on the node `node`.
    pub former: SegmentId,
    /// The name of the region's workflow.
    pub workflow: String,
    /// The region's name.
    pub name: String,
    /// True if the region's name belongs to the segment on this node. In this case the move has happened.
    pub named: bool,
}

/// The whole lasting state of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    pub next_member: u64,
    pub next_segment: u64,
    pub next_number: u64,
    pub workflows: BTreeMap<u64, Workflow>,
    pub endpoints: BTreeMap<u64, Endpoint>,
    pub members: BTreeMap<MemberId, Member>,
    /// Members whose session is over, but which are not proved dead. Their slots of the liveness table stay taken.
    pub ghosts: BTreeMap<MemberId, Ghost>,
    pub era: Option<ProofScope>,
    /// For each id of a segment or a pin page, the inode number of its memfd; 0 for an item's file.
    pub numbers: BTreeMap<SegmentId, u64>,
    pub segments: BTreeMap<SegmentId, Segment>,
    /// Names and their segments. Removed segments are not in this table.
    pub names: BTreeMap<(u64, SegmentKind, String), SegmentId>,
    pub workflow_names: BTreeMap<String, u64>,
    pub tokens: BTreeMap<[u8; 16], MemberId>,
    pub slots: BTreeSet<usize>,
    /// Bytes that all segments have reserved together.
    pub reserved: u64,
    pub items: Items,
    /// For each segment on this node to which a region moves or has moved from another node: that move. The move is
    /// kept until the other node knows the outcome.
    pub arrivals: BTreeMap<SegmentId, Arrival>,
    /// The segments that are about to move to another node, or were handed over to one, and have their names. The
    /// broker looks at them after each event, so they are listed here.
    moving: BTreeSet<SegmentId>,
}

impl Lasting {
    /// Makes the change that a record describes. A record that does not fit the state (from a journal that was tampered
    /// with) changes nothing.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Counters { member, segment, number } => {
                self.next_member = self.next_member.max(*member);
                self.next_segment = self.next_segment.max(*segment);
                self.next_number = self.next_number.max(*number);
            }
            Record::Era(era) => {
                if self.era.is_some_and(|former| former.processes != era.processes) {
                    let members = self.members.values_mut().map(|m| &mut m.peer);
                    let ghosts = self.ghosts.values_mut().map(|ghost| &mut ghost.peer);
                    members.chain(ghosts).for_each(|peer| peer.birth = 0);
                }
                self.era = Some(*era);
            }
            Record::Ghost { member, peer } => {
                self.next_member = self.next_member.max(member.counter().saturating_add(1));
                self.make_ghost(*member, *peer);
            }
            Record::GhostEndpoint { member, endpoint } => {
                if let Some(ghost) = self.ghosts.get_mut(member) {
                    ghost.endpoint = *endpoint;
                }
            }
            Record::Numbers { segment, numbers } => {
                let ids = (segment.0..).map(SegmentId);
                self.numbers.extend(ids.zip(numbers.iter().copied()));
            }
            Record::Workflow { number, quota, owner, name, cause } => {
                if self.workflow_names.contains_key(name) || self.workflows.contains_key(number) {
                    return;
                }
                self.next_number = self.next_number.max(number.saturating_add(1));
                self.workflow_names.insert(name.clone(), *number);
                // A workflow with an owner is one run, which ends with the workflow.
                let run = u64::from(*owner != MemberId::NONE);
                let (name, quota, owner) = (name.clone(), *quota, *owner);
                let fresh = Workflow { name, quota, owner, reserved: 0, segments: 0, run };
                self.workflows.insert(*number, fresh);
                self.remember(*cause, Outcome::Done(0));
            }
            Record::WorkflowEnd { number, cause } => {
                self.end_workflow(*number);
                self.remember(*cause, Outcome::Done(0));
            }
            Record::Endpoint { number, workflow, task, grants, cause } => {
                if !self.workflows.contains_key(workflow) {
                    return;
                }
                self.next_number = self.next_number.max(number.saturating_add(1));
                let fresh = Endpoint { workflow: *workflow, task: task.clone(), grants: grants.clone() };
                self.endpoints.insert(*number, fresh);
                self.remember(*cause, Outcome::Done(*number));
            }
            Record::Grants { endpoint, grants, cause } => {
                if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
                    endpoint.grants.extend(grants.iter().cloned());
                }
                self.remember(*cause, Outcome::Done(*endpoint));
            }
            Record::Run { workflow, run } => {
                if let Some(workflow) = self.workflows.get_mut(workflow) {
                    workflow.run = workflow.run.max(*run);
                }
            }
            Record::Member { member, endpoint, workflow, task, rank, peer, token, visitor } => {
                let counter = member.counter().saturating_add(1);
                self.next_member = self.next_member.max(counter);
                self.tokens.insert(*token, *member);
                self.slots.insert(member.slot());
                let fresh = Member {
                    endpoint: *endpoint,
                    workflow: *workflow,
                    task: task.clone(),
                    rank: *rank,
                    peer: *peer,
                    token: *token,
                    visitor: *visitor,
                    may_hold: false,
                    outcomes: BTreeMap::new(),
                };
                self.members.insert(*member, fresh);
            }
            Record::MayHold { member } => {
                if let Some(member) = self.members.get_mut(member) {
                    member.may_hold = true;
                }
            }
            Record::MemberGone { member } => self.forget_member(*member),
            Record::Segment {
                segment,
                workflow,
                kind,
                name,
                size,
                reserved,
                attribute,
                persistent,
                since_ms,
                cause,
            } => {
                let fresh = Segment {
                    workflow: *workflow,
                    kind: *kind,
                    name: name.clone(),
                    size: *size,
                    reserved: *reserved,
                    attribute: *attribute,
                    creator: cause.member,
                    persistent: *persistent,
                    since_ms: *since_ms,
                    removed: None,
                    moving: false,
                    handed_over: None,
                    series: None,
                };
                self.add_segment(*segment, fresh, *cause);
            }
            Record::Reserved { segment, upto } => {
                let Some(found) = self.segments.get_mut(segment) else { return };
                let more = upto.saturating_sub(found.reserved);
                found.reserved += more;
                self.reserved = self.reserved.saturating_add(more);
                if let Some(workflow) = self.workflows.get_mut(&found.workflow) {
                    workflow.reserved = workflow.reserved.saturating_add(more);
                }
            }
            Record::Removed { segment, holders, cause } => {
                if let Some(found) = self.segments.get_mut(segment) {
                    found.removed = Some(holders.clone());
                    let key = (found.workflow, found.kind, found.name.clone());
                    if self.names.get(&key) == Some(segment) {
                        self.names.remove(&key);
                    }
                }
                self.note_move(*segment);
                self.remember(*cause, Outcome::Done(0));
            }
            Record::Released { segment } => self.forget_segment(*segment),
            Record::Moving { segment, moves } => {
                if let Some(found) = self.segments.get_mut(segment) {
                    found.moving = *moves;
                    found.handed_over = None;
                }
                self.note_move(*segment);
            }
            Record::HandedOver { segment, becomes, node } => {
                if let Some(found) = self.segments.get_mut(segment) {
                    found.handed_over = Some(HandedOver { node: node.clone(), becomes: *becomes });
                }
                self.note_move(*segment);
            }
            Record::Arriving { segment, former, node, workflow, name, named } => {
                let (node, workflow, name) = (node.clone(), workflow.clone(), name.clone());
                self.arrivals.insert(*segment, Arrival { node, former: *former, workflow, name, named: *named });
            }
            Record::ArrivalKnown { segment } => drop(self.arrivals.remove(segment)),
            Record::Renamed { segment, name, cause } => {
                let Some(found) = self.segments.get_mut(segment).filter(|found| found.removed.is_none()) else {
                    return;
                };
                let key = (found.workflow, found.kind, std::mem::replace(&mut found.name, name.clone()));
                found.persistent = true;
                let renamed = (key.0, key.1, name.clone());
                if self.names.get(&key) == Some(segment) {
                    self.names.remove(&key);
                }
                self.names.insert(renamed, *segment);
                if let Some(arrival) = self.arrivals.get_mut(segment) {
                    arrival.named = true;
                }
                self.remember(*cause, Outcome::Made(*segment));
            }
            Record::Series { .. }
            | Record::PinPage { .. }
            | Record::PinTaken { .. }
            | Record::PinFreed { .. }
            | Record::Unpublished { .. } => self.apply_series(record),
            Record::Item(record) => self.apply_item(record),
            Record::Undone { made } => {
                for member in self.members.values_mut() {
                    member.outcomes.retain(|_, outcome| *outcome != Outcome::Made(*made));
                }
            }
            Record::Outcome { cause, made, value } => {
                let outcome = if *made { Outcome::Made(SegmentId(*value)) } else { Outcome::Done(*value) };
                self.remember(*cause, outcome);
            }
        }
    }

    pub(super) fn remember(&mut self, cause: Cause, outcome: Outcome) {
        if let Some(member) = self.members.get_mut(&cause.member) {
            member.outcomes.insert(cause.request, outcome);
            // Removes the outcome of the request with the smallest number. The outcome that was just added stays even
            // if its request has the smallest number. In this case the request has waited longer than all the others,
            // and its member does not have the answer yet.
            while member.outcomes.len() > OUTCOMES {
                let mut requests = member.outcomes.keys().copied();
                let Some(oldest) = requests.find(|request| *request != cause.request) else { return };
                member.outcomes.remove(&oldest);
            }
        }
    }

    fn forget_member(&mut self, member: MemberId) {
        if let Some(gone) = self.members.remove(&member) {
            self.tokens.remove(&gone.token);
        }
        self.ghosts.remove(&member);
        // A slot of the liveness table is free only after the member that had it was proved dead.
        if self.slot_holder(member.slot()).is_none() {
            self.slots.remove(&member.slot());
        }
    }

    /// Ends the session of a member that is not proved dead. The member's slot of the liveness table stays taken.
    fn make_ghost(&mut self, member: MemberId, peer: Peer) {
        let endpoint = self.members.get(&member).map_or(MAIN_ENDPOINT, |known| known.endpoint);
        self.forget_member(member);
        self.slots.insert(member.slot());
        self.ghosts.insert(member, Ghost { endpoint, peer });
    }

    /// Tells whether this member has nothing open and has made nothing, because it has asked for nothing yet.
    pub fn holds_nothing(&self, member: MemberId) -> bool {
        self.members.get(&member).is_some_and(|known| !known.may_hold)
    }

    /// Counts the members that connected through this endpoint and are not proved dead.
    pub fn members_through(&self, endpoint: u64) -> usize {
        let members = self.members.values().filter(|member| member.endpoint == endpoint).count();
        members + self.ghosts.values().filter(|ghost| ghost.endpoint == endpoint).count()
    }

    /// Gives the member that has this slot of the liveness table. A member that is proved dead has no slot.
    pub fn slot_holder(&self, slot: usize) -> Option<MemberId> {
        self.members.keys().chain(self.ghosts.keys()).copied().find(|member| member.slot() == slot)
    }

    pub(super) fn add_segment(&mut self, id: SegmentId, fresh: Segment, cause: Cause) {
        let Some(workflow) = self.workflows.get_mut(&fresh.workflow) else { return };
        workflow.segments += fresh.descriptors();
        workflow.reserved = workflow.reserved.saturating_add(fresh.reserved);
        self.reserved = self.reserved.saturating_add(fresh.reserved);
        self.next_segment = self.next_segment.max(id.0.saturating_add(fresh.ids()));
        // An item's memory has no name of its own, because it is found through the item.
        if fresh.kind != SegmentKind::Item {
            self.names.insert((fresh.workflow, fresh.kind, fresh.name.clone()), id);
        }
        self.segments.insert(id, fresh);
        self.note_move(id);
        self.remember(cause, Outcome::Made(id));
    }

    fn forget_segment(&mut self, segment: SegmentId) {
        let Some(gone) = self.segments.remove(&segment) else { return };
        self.moving.remove(&segment);
        for id in segment.0..segment.0.saturating_add(gone.descriptors()) {
            self.numbers.remove(&SegmentId(id));
        }
        self.reserved = self.reserved.saturating_sub(gone.reserved);
        if let Some(workflow) = self.workflows.get_mut(&gone.workflow) {
            workflow.reserved = workflow.reserved.saturating_sub(gone.reserved);
            workflow.segments = workflow.segments.saturating_sub(gone.descriptors());
        }
        let key = (gone.workflow, gone.kind, gone.name);
        if self.names.get(&key) == Some(&segment) {
            self.names.remove(&key);
        }
    }

    fn end_workflow(&mut self, number: u64) {
        for segment in self.segments_of(number) {
            self.forget_segment(segment);
        }
        for member in self.members_of(number) {
            let peer = self.members[&member].peer;
            self.make_ghost(member, peer);
        }
        self.items.end_workflow(number);
        self.endpoints.retain(|_, e| e.workflow != number);
        if let Some(gone) = self.workflows.remove(&number) {
            self.workflow_names.remove(&gone.name);
        }
    }

    /// Puts the segment into the list of moving segments, or removes it from the list.
    fn note_move(&mut self, segment: SegmentId) {
        if self.segments.get(&segment).is_some_and(Segment::moves) {
            self.moving.insert(segment);
        } else {
            self.moving.remove(&segment);
        }
    }

    /// Gives the segments that are about to move to another node, or were handed over to one, and have their names.
    pub fn moving_segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.moving.iter().filter_map(|segment| Some((*segment, self.segments.get(segment)?)))
    }

    /// Panics if the list of moving segments is wrong.
    pub(super) fn check_moving(&self) {
        let moving: BTreeSet<_> = self.segments.iter().filter(|(_, s)| s.moves()).map(|(id, _)| *id).collect();
        assert_eq!(self.moving, moving, "the list of moving segments");
    }

    /// Gives all segments of a workflow, removed ones included.
    pub fn segments_of(&self, workflow: u64) -> Vec<SegmentId> {
        self.segments.iter().filter(|(_, s)| s.workflow == workflow).map(|(id, _)| *id).collect()
    }

    /// Gives the name of the workflow of this number.
    pub fn workflow_name(&self, number: u64) -> Option<String> {
        self.workflows.get(&number).map(|workflow| workflow.name.clone())
    }

    /// Gives the members of a workflow.
    pub fn members_of(&self, workflow: u64) -> Vec<MemberId> {
        self.members.iter().filter(|(_, m)| m.workflow == workflow).map(|(id, _)| *id).collect()
    }

    /// Gives the rights that a member of this endpoint has for this name.
    pub fn rights(&self, endpoint: u64, kind: SegmentKind, name: &str) -> Rights {
        if endpoint == MAIN_ENDPOINT {
            return Rights::ALL;
        }
        let grants = self.endpoints.get(&endpoint).map_or(&[][..], |e| &e.grants);
        grants.iter().filter(|g| g.fits(kind, name)).fold(Rights::NONE, |sum, g| sum.with(g.rights))
    }

    /// Tells whether a member of this endpoint may own any item.
    pub fn may_have_items(&self, endpoint: u64) -> bool {
        let own = |g: &Grant| g.kind == SegmentKind::Item && g.rights.contains(Rights::OWN);
        endpoint == MAIN_ENDPOINT || self.endpoints.get(&endpoint).is_some_and(|e| e.grants.iter().any(own))
    }

    /// Gives a slot of the liveness table that no member has.
    pub fn free_slot(&self) -> Option<usize> {
        // The loop goes through the sorted set of taken slots. The first gap in this set is the lowest free slot.
        let mut free = 0;
        for slot in &self.slots {
            if *slot != free {
                break;
            }
            free += 1;
        }
        (free < MAX_MEMBERS).then_some(free)
    }

    /// Gives the shortest list of records that makes this state from nothing. A compacted journal consists of these
    /// records.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records =
            vec![Record::Counters { member: self.next_member, segment: self.next_segment, number: self.next_number }];
        records.extend(self.era.map(Record::Era));
        for (member, Ghost { endpoint, peer }) in &self.ghosts {
            records.push(Record::Ghost { member: *member, peer: *peer });
            records.push(Record::GhostEndpoint { member: *member, endpoint: *endpoint });
        }
        records.extend(self.numbers.iter().map(|(id, n)| Record::Numbers { segment: *id, numbers: vec![*n] }));
        records.extend(self.workflows.iter().map(|(number, w)| Record::Workflow {
            number: *number,
            quota: w.quota,
            owner: w.owner,
            name: w.name.clone(),
            cause: Cause::NONE,
        }));
        let runs = self.workflows.iter().filter(|(_, w)| w.run > 0);
        records.extend(runs.map(|(number, w)| Record::Run { workflow: *number, run: w.run }));
        records.extend(self.endpoints.iter().map(|(number, e)| Record::Endpoint {
            number: *number,
            workflow: e.workflow,
            task: e.task.clone(),
            grants: e.grants.clone(),
            cause: Cause::NONE,
        }));
        // A removed segment may have had a name that later belonged to another segment with a smaller id. So the
        // records of the removed segments come first.
        let (removed, named): (Vec<_>, Vec<_>) = self.segments.iter().partition(|(_, s)| s.removed.is_some());
        for (id, s) in removed.into_iter().chain(named) {
            match &s.series {
                Some(series) => series.snapshot(*id, s, &mut records),
                None => records.push(Record::Segment {
                    segment: *id,
                    workflow: s.workflow,
                    kind: s.kind,
                    name: s.name.clone(),
                    size: s.size,
                    reserved: s.reserved,
                    attribute: s.attribute,
                    persistent: s.persistent,
                    since_ms: s.since_ms,
                    cause: Cause { member: s.creator, request: 0 },
                }),
            }
            if s.moving {
                records.push(Record::Moving { segment: *id, moves: true });
            }
            if let Some(HandedOver { node, becomes }) = &s.handed_over {
                records.push(Record::HandedOver { segment: *id, becomes: *becomes, node: node.clone() });
            }
            if let Some(holders) = &s.removed {
                let holders = holders.clone();
                records.push(Record::Removed { segment: *id, holders, cause: Cause::NONE });
            }
        }
        records.extend(self.items.snapshot().into_iter().map(Record::Item));
        records.extend(self.arrivals.iter().map(|(segment, arrival)| {
            let Arrival { node, former, workflow, name, named } = arrival.clone();
            Record::Arriving { segment: *segment, former, node, workflow, name, named }
        }));
        // The records of members come last. If a member's record came earlier, applying a later record could add an
        // outcome to that member.
        for (id, m) in &self.members {
            records.push(Record::Member {
                member: *id,
                endpoint: m.endpoint,
                workflow: m.workflow,
                task: m.task.clone(),
                rank: m.rank,
                peer: m.peer,
                token: m.token,
                visitor: m.visitor,
            });
            records.extend(m.may_hold.then_some(Record::MayHold { member: *id }));
            records.extend(m.outcomes.iter().map(|(request, outcome)| {
                let (made, value) = match outcome {
                    Outcome::Made(segment) => (true, segment.0),
                    Outcome::Done(value) => (false, *value),
                };
                Record::Outcome { cause: Cause { member: *id, request: *request }, made, value }
            }));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{ItemLevel, OnDeath, Party};

    use super::*;
    use crate::broker::{Item, ItemRecord};

    /// Tells whether a compacted journal gives the same state as these records.
    fn is_kept(records: &[Record]) -> bool {
        let (mut lasting, mut compacted) = (Lasting::default(), Lasting::default());
        records.iter().for_each(|record| lasting.apply(record));
        lasting.snapshot().iter().for_each(|record| compacted.apply(record));
        compacted == lasting
    }

    fn region(segment: u64, name: &str) -> Record {
        Record::Segment {
            segment: SegmentId(segment),
            workflow: 1,
            kind: SegmentKind::Region,
            name: name.into(),
            size: 4096,
            reserved: 4096,
            attribute: 0,
            persistent: true,
            since_ms: 0,
            cause: Cause::NONE,
        }
    }

    #[test]
    fn a_name_that_an_older_segment_got_after_a_newer_one_stays_in_a_compacted_journal() {
        let name = DEFAULT_WORKFLOW.to_owned();
        let (removed, holders) = (SegmentId(101), vec![(MemberId(1), 1)]);
        assert!(is_kept(&[
            Record::Workflow { number: 1, quota: 0, owner: MemberId::NONE, name, cause: Cause::NONE },
            region(100, "hidden"),
            region(101, "y"),
            Record::Removed { segment: removed, holders, cause: Cause::NONE },
            Record::Renamed { segment: SegmentId(100), name: "y".into(), cause: Cause::NONE },
        ]));
    }

    #[test]
    fn the_outcome_of_the_oldest_request_is_remembered_although_it_comes_last() {
        let (mut lasting, member) = (Lasting::default(), MemberId(1));
        let peer = Peer { pid: 1, birth: 1, uid: 0 };
        let (task, rank, token, visitor) = ("a".to_owned(), 0, [1; 16], false);
        let endpoint = MAIN_ENDPOINT;
        lasting.apply(&Record::Member { member, endpoint, workflow: 1, task, rank, peer, token, visitor });
        for request in (2..OUTCOMES as u64 + 2).chain([1]) {
            lasting.apply(&Record::Outcome { cause: Cause { member, request }, made: false, value: 0 });
        }
        let outcomes = &lasting.members[&member].outcomes;
        assert_eq!((outcomes.len(), outcomes.contains_key(&1)), (OUTCOMES, true));
    }

    #[test]
    fn an_item_that_came_to_the_name_of_a_newer_one_keeps_the_name_in_a_compacted_journal() {
        let name = DEFAULT_WORKFLOW.to_owned();
        let made = |item: u64| {
            let state = Item {
                workflow: 1,
                key: "x".into(),
                file: SegmentId(0),
                size: 1,
                level: ItemLevel::Verified,
                on_death: OnDeath::Keep,
                creator: Party::task("a"),
                owner: Party::task("a"),
                holder: MemberId::NONE,
                shared: false,
                transfers: 0,
                copies: 0,
            };
            Record::Item(ItemRecord::Made { item: SegmentId(item), state, cause: Cause::NONE })
        };
        assert!(is_kept(&[
            Record::Workflow { number: 1, quota: 0, owner: MemberId::NONE, name, cause: Cause::NONE },
            made(200),
            made(100),
        ]));
    }
}
