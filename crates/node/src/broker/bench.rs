//! For the tests of the broker: a broker with an imitated host, which carries out each effect of the broker
//! immediately.

use std::collections::BTreeSet;

use crossdock_layout::wire::{Answer, FINGERPRINT, ItemLevel, ItemRequest, OnDeath, PROTOCOL_VERSION, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId, Status};

use super::{Broker, Claimed, Connection, Descriptor, Effect, Event, Lasting, Limits, MAIN_ENDPOINT, Peer, SiteEvent};
use super::{SiteLimits, SiteNode, SiteOrder, Verdict};

/// Gives the error status of an answer. Gives `None` if the request succeeded, or if there is no answer.
pub(super) fn status(answer: Option<Answer>) -> Option<Status> {
    match answer {
        Some(Answer::Failed { status, .. }) => Some(status),
        _ => None,
    }
}

pub(super) struct Bench {
    pub broker: Broker,
    pub now: u64,
    /// The answer that the imitated kernel gives when it is asked about an item's file.
    pub verdict: Verdict,
    /// The copies that the broker has begun, each with its item and the file that gets the item's bytes.
    pub copies: Vec<(SegmentId, SegmentId)>,
    /// All effects since the test cleared this list.
    pub effects: Vec<Effect>,
    answers: Vec<(Connection, u64, Answer)>,
    limits: Limits,
    held: BTreeSet<SegmentId>,
    pub listening: BTreeSet<u64>,
    number: u64,
}

impl Bench {
    pub fn new(limits: Limits) -> Self {
        let listening = BTreeSet::from([MAIN_ENDPOINT]);
        let (broker, effects) = Broker::new(limits.clone(), Lasting::default(), 1, &BTreeSet::new(), &listening, 0);
        let mut bench = Self {
            broker,
            now: 0,
            verdict: Verdict::Alone,
            copies: Vec::new(),
            effects: Vec::new(),
            answers: Vec::new(),
            limits,
            held: BTreeSet::new(),
            listening,
            number: 1,
        };
        bench.perform(effects);
        bench
    }

    /// Makes the broker of the node `here`, which has a lease. The nodes `b` and `c` have leases, too.
    pub fn in_site() -> Self {
        let site = SiteLimits { site: "s".into(), node: "here".into(), number: 1 };
        let mut bench = Self::new(Limits { site: Some(site), ..Limits::default() });
        bench.event(Event::Site(SiteEvent::Joined));
        for (node, number) in [("b", 2), ("c", 3)] {
            let node = SiteNode { node: node.into(), number, address: String::new() };
            bench.event(Event::Site(SiteEvent::Node(node)));
        }
        bench
    }

    /// Ends the broker and all connections, and makes the next broker from a compacted journal.
    pub fn restart(&mut self) {
        let mut lasting = Lasting::default();
        self.broker.lasting().snapshot().iter().for_each(|record| lasting.apply(record));
        assert_eq!(lasting, *self.broker.lasting(), "a compacted journal gives another state");
        let (broker, effects) = Broker::new(self.limits.clone(), lasting, 1, &self.held, &self.listening, self.now);
        self.broker = broker;
        self.perform(effects);
    }

    /// Loses all descriptors, as if the keeper had died.
    pub fn lose_all(&mut self) {
        self.held.clear();
    }

    /// Connects a new member of this task.
    pub fn join(&mut self, connection: Connection, endpoint: u64, task: &str, rank: u32) -> Option<MemberId> {
        self.hello(connection, endpoint, task, rank, MemberId::NONE)
    }

    /// Sends the hello of a member on a new connection. The member's token is made from the number `connection % 100`,
    /// so that all connections of one member have the same token.
    pub fn hello(
        &mut self,
        connection: Connection,
        endpoint: u64,
        task: &str,
        rank: u32,
        member: MemberId,
    ) -> Option<MemberId> {
        let peer = Peer { pid: 1000, birth: 1, uid: 0 };
        self.event(Event::Connected { connection, endpoint, peer });
        let mut token = [1; 16];
        token[..8].copy_from_slice(&(connection % 100).to_le_bytes());
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token,
            member,
            rank,
            task: Some(task.into()),
            workflow: None,
            visitor: false,
        };
        match self.ask(connection, hello) {
            Some(Answer::Welcome { member, .. }) => Some(member),
            _ => None,
        }
    }

    /// Sends a request. Returns the request's number.
    pub fn say(&mut self, connection: Connection, request: &Request) -> u64 {
        let descriptors = match request {
            Request::MakeEndpoint { .. } | Request::Listen { .. } => vec![Descriptor::Listener],
            _ => vec![],
        };
        self.say_with(connection, request, &descriptors)
    }

    /// Sends a request with descriptors. Returns the request's number.
    pub fn say_with(&mut self, connection: Connection, request: &Request, descriptors: &[Descriptor]) -> u64 {
        self.number += 1;
        let number = if request.wants_answer() { self.number } else { 0 };
        let message = request.encode(number, 0);
        self.event(Event::Message { connection, bytes: Some(&message), descriptors });
        number
    }

    /// Sends a request. Returns its answer, or `None` if the broker does not answer immediately.
    pub fn ask(&mut self, connection: Connection, request: Request) -> Option<Answer> {
        let number = self.say(connection, &request);
        self.answer(connection, number)
    }

    pub fn ask_item(&mut self, connection: Connection, request: ItemRequest) -> Option<Answer> {
        self.ask(connection, Request::Item(request))
    }

    /// Takes the answer to this request.
    pub fn answer(&mut self, connection: Connection, number: u64) -> Option<Answer> {
        let at = self.answers.iter().position(|(to, of, _)| (*to, *of) == (connection, number))?;
        Some(self.answers.remove(at).2)
    }

    /// Lets a member create an item. Returns the item's id.
    pub fn create(&mut self, connection: Connection, key: &str, level: ItemLevel) -> SegmentId {
        let create = ItemRequest::Create { size: 5000, level, on_death: OnDeath::Keep, key: key.into() };
        match self.ask_item(connection, create) {
            Some(Answer::Item(given)) => given.item,
            other => panic!("no item, but {other:?}"),
        }
    }

    pub fn tick(&mut self, ms: u64) {
        self.now += ms;
        self.event(Event::Tick);
    }

    pub fn event(&mut self, event: Event<'_>) {
        let effects = self.broker.handle(self.now, event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.effects.push(effect.clone());
            match effect {
                Effect::Make { segment: id, .. } | Effect::MakePage { page: id, .. } => self.make(id, 1),
                Effect::MakeItem { file, .. } => self.make(file, 0),
                Effect::ProveItem { item, file, size, .. } => {
                    let unseen = size.is_none() && self.verdict == Verdict::Alone;
                    let verdict = if unseen { Verdict::Incomplete } else { self.verdict.clone() };
                    self.event(Event::Proved { item, file, verdict });
                }
                Effect::CopyItem { item, to, .. } => {
                    self.held.insert(to);
                    self.copies.push((item, to));
                }
                Effect::FetchItem { to, .. } => drop(self.held.insert(to)),
                Effect::Adopt { segment } => drop(self.held.insert(segment)),
                Effect::Forget { segment } => drop(self.held.remove(&segment)),
                Effect::Site(SiteOrder::Claim(name)) => {
                    self.event(Event::Site(SiteEvent::Claimed { name, outcome: Claimed::Ours }));
                }
                Effect::Listen { endpoint } => drop(self.listening.insert(endpoint)),
                Effect::Unlisten { endpoint } => drop(self.listening.remove(&endpoint)),
                Effect::Send { connection, message, with } => {
                    let (number, answer) = Answer::decode(&message, with.count()).expect("the broker's own words");
                    self.answers.push((connection, number, answer));
                }
                _ => {}
            }
        }
    }

    fn make(&mut self, id: SegmentId, number: u64) {
        self.held.insert(id);
        self.event(Event::Made { outcome: Ok(number) });
    }
}
