//! The broker: a pure state machine, `(state, event) → (state, effects)`. It has no sockets, no clock and no system
//! calls.
//!
//! The host is the broker process, or the simulator in the tests. It gives events to the broker, and carries out the
//! broker's effects one after another. Lasting state changes only by records, and a record is written into the journal
//! before any client is told the consequences of the change. So if a broker is killed between two effects, the next
//! broker, which is made from the journal, keeps all that the killed one promised.

#[cfg(test)]
mod bench;
mod check;
mod departed;
mod event;
mod fuzz;
mod hello;
mod item;
mod lasting;
mod listing;
mod lost;
mod lost_segments;
mod members;
mod mirrors;
mod moves;
mod nodes;
mod observing;
mod open;
mod open_segments;
mod pages;
mod publishing;
mod record;
mod regions;
mod removal;
mod runs;
mod segments;
mod series;
mod site;
mod stored;
mod stripped;
mod succession;
mod text;
mod waits;
mod workflows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_layout::wire::{Answer, MemberEntry, Request, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};

pub use event::{Attachment, Connection, Descriptor, Effect, Event};
pub use fuzz::{fuzz, fuzz_in_site};
pub use item::{BytesSource, Item, ItemRecord, Residence, Verdict, memory_of};
pub use lasting::{
    Arrival, DEFAULT_WORKFLOW, Endpoint, Ghost, HandedOver, Lasting, MAIN_ENDPOINT, Member, Outcome, Segment, Workflow,
};
pub use nodes::{NodeEvent, NodeFailure, NodeOrder};
pub use record::{Cause, Peer, ProofScope, Record};
pub use series::{Part, Pin, Series};
pub use site::{Claimed, SiteEvent, SiteItem, SiteLimits, SiteLink, SiteName, SiteNode, SiteOrder};

use lost_segments::LostSegments;
use open::Making;
use open_segments::OpenSegments;
use pages::Pages;
use waits::{Due, WaitingRequest, Waits};

/// The settings that a broker gets when it starts. They do not change afterwards.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The daemon's own user, which may do everything through the main endpoint.
    pub uid: u32,
    /// The maximum number of bytes that all segments together may reserve.
    pub memory: u64,
    /// The maximum number of segments. Each segment takes a descriptor in the keeper and in the broker.
    pub segments: u64,
    /// The maximum number of connections at the same time.
    pub connections: usize,
    /// The maximum number of members that may connect through one endpoint.
    pub members: usize,
    /// How long a new connection may take to send its hello, in milliseconds.
    pub hello_ms: u64,
    /// A number that differs for each keeper. If it has changed, the descriptors of the former keeper are lost.
    pub incarnation: u64,
    /// A number that differs for each broker. The first broker of a keeper has the keeper's number.
    pub start: u64,
    /// The roll and the namespace by which this daemon proves deaths.
    pub era: ProofScope,
    /// The calendar time at which the broker's clock was 0, in milliseconds since 1970. It is only shown to people.
    pub began_ms: u64,
    /// The site to which this daemon belongs, if any.
    pub site: Option<SiteLimits>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            uid: 0,
            memory: u64::MAX,
            segments: 100_000,
            connections: 16_384,
            members: 3072,
            hello_ms: 5_000,
            incarnation: 1,
            start: 1,
            era: ProofScope::default(),
            began_ms: 0,
            site: None,
        }
    }
}

/// In a segment's id, the bits from this one on are the number of the node that gave out the id.
pub const NODE_SHIFT: u32 = 50;
/// The maximum number of requests of one connection that may wait at the same time.
const PARKED: usize = 64;
/// The maximum number of connections of one endpoint that have not said hello yet. If there is one connection more, the
/// broker closes the oldest one.
const SILENT: usize = 256;
/// The maximum number of dead members that the broker remembers, to name them in error messages.
const REMEMBERED: usize = 512;

#[derive(Clone, Debug)]
struct Link {
    endpoint: u64,
    peer: Peer,
    member: Option<MemberId>,
    parked: usize,
    hello_due: u64,
}

/// The state machine of the daemon.
pub struct Broker {
    limits: Limits,
    lasting: Lasting,
    now: u64,
    free: u64,
    journal: Result<(), String>,
    links: BTreeMap<Connection, Link>,
    /// For each endpoint the connections that have not said hello yet, the oldest first.
    silent: BTreeMap<u64, BTreeSet<Connection>>,
    connected: BTreeMap<MemberId, Connection>,
    heard: BTreeMap<MemberId, u64>,
    /// For each member that reports progress: the number of steps that are done, and the number of all steps. Members
    /// report again after a restart of the broker.
    progress: BTreeMap<MemberId, (u64, u64)>,
    /// The members whose open objects this broker knows completely: new members, and members that have connected again
    /// and have listed what they have open.
    listed: BTreeSet<MemberId>,
    /// The members of a former broker that have not yet listed to this broker what they have open.
    unlisted: BTreeSet<MemberId>,
    open_segments: OpenSegments,
    /// For each region or port that no member except its maker has opened so far: the maker.
    unused: BTreeMap<SegmentId, MemberId>,
    /// The segments whose descriptors were lost with the keeper. A member that has such a segment may offer it again.
    lost: LostSegments,
    pages: Pages,
    /// The number that a welcome tells a member. A member that knows another number offers the daemon everything that it
    /// has. It is the keeper's number, or this broker's own number if the keeper did not have all descriptors when the
    /// broker started, because there was no room for one in the keeper.
    offers: u64,
    /// The endpoints whose listening sockets were lost with the keeper. No launcher has made these endpoints again yet.
    deaf: BTreeSet<u64>,
    waits: Waits,
    making: Option<Making>,
    /// The requests that no longer wait and are to be served again by `serve_again`.
    again: VecDeque<((Connection, u64), MemberId, Request)>,
    items: item::TransientItems,
    site: Option<site::Site>,
    /// How many requests about other nodes ([`NodeOrder`]) this broker has made. The id of the next request is computed
    /// from this number.
    node_orders: u64,
    mirrors: mirrors::Mirrors,
    /// Regions that come from other nodes or go to other nodes.
    regions: regions::Regions,
    /// This broker's questions about the outcome of regions' moves.
    moves: moves::Moves,
    /// The names of series that move from node to node.
    succession: succession::Succession,
    removals: removal::Removals,
    dead: VecDeque<(u64, MemberEntry)>,
    effects: Vec<Effect>,
}

impl Broker {
    /// Makes a broker from the state of a journal (`Lasting::default()` if there is none). The keeper has the
    /// descriptors of the segments `held` and of the endpoints `listening`. `now` is in milliseconds of a clock that
    /// never goes back. `base` is above every id that an earlier daemon can have given out.
    pub fn new(
        limits: Limits,
        lasting: Lasting,
        base: u64,
        held: &BTreeSet<SegmentId>,
        listening: &BTreeSet<u64>,
        now: u64,
    ) -> (Self, Vec<Effect>) {
        let site = limits.site.clone().map(|limits| site::Site::new(limits, now));
        let mut broker = Self {
            offers: limits.incarnation,
            limits,
            lasting,
            now,
            free: u64::MAX,
            journal: Ok(()),
            links: BTreeMap::new(),
            silent: BTreeMap::new(),
            connected: BTreeMap::new(),
            heard: BTreeMap::new(),
            progress: BTreeMap::new(),
            listed: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            open_segments: OpenSegments::default(),
            unused: BTreeMap::new(),
            lost: LostSegments::default(),
            pages: Pages::default(),
            deaf: BTreeSet::new(),
            waits: Waits::default(),
            making: None,
            again: VecDeque::new(),
            items: item::TransientItems::default(),
            site,
            node_orders: 0,
            mirrors: mirrors::Mirrors::default(),
            regions: regions::Regions::default(),
            moves: moves::Moves::default(),
            succession: succession::Succession::default(),
            removals: removal::Removals::default(),
            dead: VecDeque::new(),
            effects: Vec::new(),
        };
        broker.recover(base, held, listening);
        if !broker.lost.is_empty() || !broker.deaf.is_empty() || broker.pages.has_lost() {
            broker.offers = broker.limits.start;
        }
        broker.drop_mirrors();
        broker.recover_site();
        broker.look_for_moving();
        broker.settle_lost();
        broker.finish_items();
        broker.settle_site();
        let effects = std::mem::take(&mut broker.effects);
        (broker, effects)
    }

    /// Gives the lasting state of this broker.
    pub fn lasting(&self) -> &Lasting {
        &self.lasting
    }

    /// Gives the time of the next deadline. At this time the host must report [`Event::Tick`].
    pub fn next_due(&self) -> Option<u64> {
        self.waits.next_due()
    }

    /// Gives the members that may be dead but are not proved dead: members without connection, and members whose
    /// session is over.
    pub fn unproved(&self) -> impl Iterator<Item = MemberId> {
        let away = self.lasting.members.keys().filter(|member| !self.connected.contains_key(member));
        away.chain(self.lasting.ghosts.keys()).copied()
    }

    /// Gives the number of connections.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Handles one event. The host carries out the returned effects one after another.
    pub fn handle(&mut self, now: u64, event: Event<'_>) -> Vec<Effect> {
        if cfg!(debug_assertions) {
            self.check_before(&event);
        }
        self.now = self.now.max(now);
        match event {
            Event::Connected { connection, endpoint, peer } => self.connected(connection, endpoint, peer),
            Event::Message { connection, bytes, descriptors } => self.message(connection, bytes, descriptors),
            Event::Stripped { connection, bytes } => self.stripped(connection, bytes),
            Event::Disconnected { connection } => self.disconnected(connection),
            Event::ProcessDied { member } => self.died(member),
            Event::Made { outcome } => self.made(outcome),
            Event::Proved { item, file, verdict } => self.proved(item, file, &verdict),
            Event::Copied { item, to, outcome } => self.copied(item, to, outcome),
            Event::Site(news) => self.site_news(news),
            Event::Nodes(news) => self.node_news(news),
            Event::Free(bytes) => self.free = bytes,
            Event::Journal(state) => self.journal = state,
            Event::Tick => {}
        }
        // The host is making memory for a segment id. If the broker acted on a deadline now, it could give the same id
        // to another segment. So deadlines wait until the host has answered, which is the next event.
        if !self.is_making() {
            self.run_due();
        }
        self.settle_lost();
        self.settle_nameless();
        self.finish_items();
        self.serve_again();
        self.settle_mirrors();
        self.settle_regions();
        self.settle_site();
        self.settle_moves();
        if cfg!(debug_assertions) {
            self.check();
        }
        std::mem::take(&mut self.effects)
    }

    /// Makes a lasting change, and adds the effect that writes it into the journal.
    fn commit(&mut self, record: Record) {
        self.touch_names(&record);
        self.lasting.apply(&record);
        self.effects.push(Effect::Record(record));
    }

    fn connected(&mut self, connection: Connection, endpoint: u64, peer: Peer) {
        if self.links.len() >= self.limits.connections {
            self.close(connection, "there are too many connections");
            return;
        }
        if endpoint != MAIN_ENDPOINT && !self.lasting.endpoints.contains_key(&endpoint) {
            self.close(connection, "its endpoint is gone");
            return;
        }
        let hello_due = self.now + self.limits.hello_ms;
        self.links.insert(connection, Link { endpoint, peer, member: None, parked: 0, hello_due });
        self.waits.expect(hello_due, Due::Hello(connection));
        let silent = self.silent.entry(endpoint).or_default();
        silent.insert(connection);
        if silent.len() > SILENT {
            if let Some(oldest) = silent.first().copied() {
                self.drop_link(oldest, "it said no hello while too many others came");
            }
        }
    }

    fn message(&mut self, connection: Connection, bytes: Option<&[u8]>, descriptors: &[Descriptor]) {
        let Some(link) = self.links.get(&connection) else { return };
        let member = link.member;
        let decoded = match bytes {
            None => Err("its message was longer than any message may be".to_owned()),
            Some(bytes) => match Request::decode(bytes, descriptors.len()) {
                Ok(decoded) => Ok(decoded),
                // A client of another build has sent its hello. The broker sends the client the versions of both sides,
                // and then closes the connection.
                Err(_) if member.is_none() && self.refuse_version(connection, bytes) => return,
                Err(malformed) => Err(malformed.to_string()),
            },
        };
        let (header, request) = match decoded {
            Ok(decoded) => decoded,
            Err(why) => return self.expel(connection, &why),
        };
        match (member, request) {
            (None, request @ Request::Hello { .. }) => self.hello(connection, header.request, request),
            (None, _) => self.expel(connection, "its first message was no hello"),
            (Some(_), Request::Hello { .. }) => self.expel(connection, "it said hello twice"),
            (Some(member), request) => {
                self.heard.insert(member, self.now);
                self.settle(member, header.word);
                self.serve(connection, member, header.request, request, descriptors);
            }
        }
    }

    /// Gives the present time, in milliseconds since 1970.
    fn calendar_ms(&self) -> u64 {
        self.limits.began_ms.saturating_add(self.now)
    }

    /// Forgets the outcomes of the requests up to `settled`, whose answers the member has received.
    fn settle(&mut self, member: MemberId, settled: u64) {
        if let Some(member) = self.lasting.members.get_mut(&member) {
            while member.outcomes.first_key_value().is_some_and(|(request, _)| *request < settled) {
                member.outcomes.pop_first();
            }
        }
    }

    fn serve(
        &mut self,
        connection: Connection,
        member: MemberId,
        number: u64,
        request: Request,
        descriptors: &[Descriptor],
    ) {
        let opcode = request.number();
        let asker = Requester { connection, member, number, opcode };
        // A request of this member with the same number was served before, and its answer was lost with a former
        // broker. The repeated request gets the same answer, and nothing happens twice.
        let outcome = self.lasting.members.get(&member).and_then(|m| m.outcomes.get(&number)).copied();
        if let Some(outcome) = outcome.filter(|o| !self.forgotten(asker, &request, *o)) {
            return self.repeat(asker, &request, outcome, descriptors);
        }
        if request.may_give() && self.lasting.holds_nothing(member) {
            // The record is in the journal before the member gets an answer. So a later broker knows which members may
            // hold something.
            if !self.journal_works(asker) {
                return;
            }
            self.commit(Record::MayHold { member });
        }
        match request {
            Request::Hello { .. } => {}
            Request::Open { .. } => self.open(asker, request),
            Request::Attach { segment, access } => self.attach(asker, segment, access),
            Request::Reserve { segment, upto } => self.reserve(asker, segment, upto),
            Request::Detach { segment, count } => self.detach(member, segment, count),
            Request::Hold { segment, count } => self.hold(member, segment, count),
            Request::Remove { kind, in_use, name } => self.remove(asker, kind, in_use, &name),
            Request::MakeWorkflow { quota, name } => self.make_workflow(asker, quota, name),
            Request::MakeEndpoint { workflow, task, grants } => {
                self.make_endpoint(asker, &workflow, task, grants, descriptors);
            }
            Request::Listen { endpoint } => self.listen(asker, endpoint, descriptors),
            Request::AddGrants { endpoint, grants } => self.add_grants(asker, endpoint, grants),
            Request::EndWorkflow { name } => self.end_workflow(asker, &name),
            Request::List { of, after, workflow } => self.list(asker, of, after, workflow.as_deref()),
            Request::Describe { member: whom } => self.describe(asker, whom),
            Request::Offer { segment } => self.offer(asker, segment, descriptors),
            Request::Bye => self.bye(asker),
            Request::Progress { done, of } => self.progress(member, done, of),
            request @ Request::CopyRegion { .. } => self.copy_region(asker, request),
            Request::Freeze { segment, moves } => self.freeze(asker, segment, moves),
            Request::Adopt { order, named, segment, former } => self.adopt(asker, order, (segment, former), named),
            Request::HandOver { segment, becomes, node } => self.hand_over(asker, segment, becomes, node),
            request @ Request::Publish { .. } => self.publish(asker, request, descriptors),
            Request::Pins { segment, from } => self.pins(asker, segment, from),
            Request::Observe { wait_ms, former, name } => self.observe(asker, wait_ms, former, name),
            Request::Unpublish { segment } => self.unpublish(asker, segment),
            Request::Item(request) => self.serve_item(asker, request),
        }
    }

    /// Answers a repeated request, whose first answer was lost with the former broker.
    fn repeat(&mut self, asker: Requester, request: &Request, outcome: Outcome, descriptors: &[Descriptor]) {
        if let Request::Item(request) = request {
            return self.repeat_item(asker, request.clone(), outcome);
        }
        if matches!(request, Request::CopyRegion { .. }) {
            return self.copied_before(asker, outcome);
        }
        match (outcome, request) {
            (Outcome::Made(segment), Request::Open { kind, .. }) if !self.is_of_other_kind(segment, *kind) => {
                match self.lasting.segments.get(&segment) {
                    Some(found) if found.removed.is_none() && self.lost.contains(segment) => {
                        self.await_offer(asker, segment, request.clone(), 0);
                    }
                    Some(found) if found.removed.is_none() => self.give(asker, segment, open::OpenOutcome::Created),
                    _ => self.fail(asker, Status::NotFound, format!("{segment} was removed again by another task")),
                }
            }
            (Outcome::Made(pin), Request::Observe { .. }) => {
                if let Some((series, number)) = self.lasting.pin_of(pin) {
                    self.give_pin(asker, series, number);
                }
            }
            (Outcome::Made(segment), Request::Publish { .. })
                if !self.is_of_other_kind(segment, SegmentKind::Series) =>
            {
                self.published_again(asker, segment);
            }
            (Outcome::Done(endpoint), Request::MakeEndpoint { .. }) => {
                if descriptors == [Descriptor::Listener] {
                    self.hear(endpoint);
                }
                self.answer(asker, &Answer::Done { value: endpoint });
            }
            (
                Outcome::Done(value),
                Request::Remove { .. }
                | Request::MakeWorkflow { .. }
                | Request::AddGrants { .. }
                | Request::EndWorkflow { .. }
                | Request::Unpublish { .. },
            ) => self.answer(asker, &Answer::Done { value }),
            _ => self.expel(asker.connection, "it used a request number for two requests"),
        }
    }

    /// Tells whether the segment exists and is of another kind than the request asks for. If so, the member has sent an
    /// earlier request with the same number, and that earlier request made the segment. The caller must not give the
    /// segment to the member, because the member may have lost its right to the segment since then: for example, the
    /// segment may be an item that has another owner now.
    fn is_of_other_kind(&self, segment: SegmentId, kind: SegmentKind) -> bool {
        self.lasting.segments.get(&segment).is_some_and(|found| found.kind != kind)
    }

    fn answer(&mut self, asker: Requester, answer: &Answer) {
        let message = answer.encode(asker.opcode, asker.number);
        self.effects.push(Effect::Send { connection: asker.connection, message, with: Attachment::Nothing });
    }

    fn fail(&mut self, asker: Requester, status: Status, text: impl Into<String>) {
        self.answer(asker, &Answer::Failed { status, text: text.into() });
    }

    /// Refuses a request if the journal accepts no records, because the broker could not promise a lasting change.
    fn journal_works(&mut self, asker: Requester) -> bool {
        match self.check_journal() {
            Ok(()) => true,
            Err(NodeFailure { status, text }) => {
                self.fail(asker, status, text);
                false
            }
        }
    }

    /// Fails if the journal accepts no records. The error is the answer to a request that needs the journal.
    fn check_journal(&self) -> Result<(), NodeFailure> {
        self.journal.as_ref().copied().map_err(|why| NodeFailure {
            status: Status::NoSpace,
            text: format!("the daemon's journal cannot be written ({why}); make room and try again"),
        })
    }

    fn is_admin(&self, connection: Connection) -> bool {
        self.links.get(&connection).is_some_and(|l| l.endpoint == MAIN_ENDPOINT)
    }
}

/// The member that sent a request, and what the broker needs to send it the answer.
#[derive(Clone, Copy, Debug)]
struct Requester {
    connection: Connection,
    member: MemberId,
    number: u64,
    opcode: u16,
}
