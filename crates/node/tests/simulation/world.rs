//! The world round a broker: keeper, journal, liveness table, connections, clients; and the dice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_layout::wire::{Answer, Grant, ItemRequest, ListOf, OpenMode, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};
use crossdock_node::broker::{Attachment, Broker, Descriptor, Effect, Event, Lasting, Limits, Record};
use crossdock_node::journal::{decode, encode};

use crate::checks::Model;
use crate::client::{Asked, Client};
use crate::random::Random;

/// A bug between the broker and the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// Records of segments are not written down.
    ForgetSegments,
    /// Records of reserving are not written down.
    ForgetReserves,
    /// A workflow's end is not written down.
    ForgetEnds,
    /// Answers are sent before the records that they stand on.
    AnswerFirst,
    /// Removed segments stay with the keeper.
    KeepRemoved,
    /// Endpoints of ended workflows stay open.
    KeepListening,
    /// The dead stay alive in the table.
    KeepTheDead,
    /// A broker that starts again begins to count from its journal's first number.
    CountAgain,
    /// Some answers are sent twice.
    AnswerTwice,
    /// Some answers are not sent.
    LoseAnswers,
    /// Everybody gets a descriptor to write through.
    WritableForAll,
    /// Endpoints are given one grant too many.
    GrantTooMuch,
    /// Workflows are given twice their quota.
    QuotaTwice,
    /// Requests that were done before a restart are done again.
    ForgetOutcomes,
    /// The kernel says of every item that nobody has it open.
    ProveAll,
    /// Changes of items' owners are not written down.
    ForgetOwners,
    /// Pin pages are not cleared.
    KeepPins,
    /// Records of pin pages given to observers are not written down.
    ForgetPins,
    /// A pin page that is cleared is taken for one that nobody ever had.
    ForgetEndpoints,
    /// Pools can be written by those who observe.
    WritablePools,
}

impl Sabotage {
    pub const ALL: [Self; 20] = [
        Self::ForgetSegments,
        Self::ForgetReserves,
        Self::ForgetEnds,
        Self::AnswerFirst,
        Self::KeepRemoved,
        Self::KeepListening,
        Self::KeepTheDead,
        Self::CountAgain,
        Self::AnswerTwice,
        Self::LoseAnswers,
        Self::WritableForAll,
        Self::GrantTooMuch,
        Self::QuotaTwice,
        Self::ForgetOutcomes,
        Self::KeepPins,
        Self::ForgetPins,
        Self::ForgetEndpoints,
        Self::WritablePools,
        Self::ProveAll,
        Self::ForgetOwners,
    ];
}

pub struct Pipe {
    pub client: usize,
    pub to_broker: VecDeque<(Vec<u8>, Vec<Descriptor>)>,
    pub to_client: VecDeque<(Vec<u8>, Attachment)>,
    pub client_closed: bool,
    pub broker_closed: bool,
}

pub struct World {
    pub random: Random,
    pub sabotage: Sabotage,
    pub now: u64,
    pub broker: Option<Broker>,
    pub journal: Vec<Vec<u8>>,
    pub kept: BTreeSet<SegmentId>,
    pub listening: BTreeSet<u64>,
    pub table: BTreeSet<MemberId>,
    pub pipes: BTreeMap<u64, Pipe>,
    pub clients: Vec<Client>,
    pub model: Model,
    /// Who may have written what is in a pin page now.
    pub pages: BTreeMap<SegmentId, MemberId>,
    /// By which endpoint came whoever ever had a pin page.
    pub page_endpoints: BTreeMap<SegmentId, u64>,
    /// Copies of items under way: item and target.
    pub copies: Vec<(SegmentId, SegmentId)>,
    pub incarnation: u64,
    /// Kill the broker after so many more effects.
    pub fuse: Option<usize>,
    next_pipe: u64,
}

pub const NAMES: [&str; 4] = ["a", "b", "out/c", "out/d"];
pub const WORKFLOWS: [&str; 3] = ["w0", "w1", "w2"];
pub const MEMORY: u64 = 1 << 24;

impl World {
    pub fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            sabotage,
            now: 0,
            broker: None,
            journal: Vec::new(),
            kept: BTreeSet::new(),
            listening: BTreeSet::from([0]),
            table: BTreeSet::new(),
            pipes: BTreeMap::new(),
            clients: Vec::new(),
            model: Model::default(),
            pages: BTreeMap::new(),
            page_endpoints: BTreeMap::new(),
            copies: Vec::new(),
            incarnation: 1,
            fuse: None,
            next_pipe: 1,
        };
        world.model.planted_grant = sabotage == Sabotage::GrantTooMuch;
        world.model.planted_quota = sabotage == Sabotage::QuotaTwice;
        world.start_broker();
        if seed % 2 == 0 {
            world.set_up_workflow();
        }
        world
    }

    /// Half of the schedules begin with a launcher's usual work, so that much happens in workflows, too.
    fn set_up_workflow(&mut self) {
        self.clients.push(Client::new(0, 0, 1, "default"));
        self.connect(0);
        self.settle();
        let name = WORKFLOWS[0].to_owned();
        let quota = self.random.pick(&[0, 1 << 20, 1 << 21]);
        let quota = if self.sabotage == Sabotage::QuotaTwice { quota * 2 } else { quota };
        self.ask(0, Request::MakeWorkflow { quota, name: name.clone() }, vec![]);
        self.settle();
        let reading = Rights::READ.with(Rights::CONSUME).with(Rights::OBSERVE);
        for rights in [Rights::ALL, reading, reading.with(Rights::WRITE)] {
            let grant = |kind| Grant { pattern: "*".into(), kind, rights };
            let kinds = [SegmentKind::Region, SegmentKind::Port, SegmentKind::Series, SegmentKind::Item];
            let mut grants: Vec<_> = kinds.map(grant).into();
            if self.sabotage == Sabotage::GrantTooMuch {
                grants.push(Grant { rights: Rights::ALL, ..grants[0].clone() });
            }
            let request = Request::MakeEndpoint { workflow: name.clone(), task: "t".into(), grants };
            self.ask(0, request, vec![Descriptor::Listener]);
            self.settle();
        }
    }

    pub fn step(&mut self) {
        match self.random.below(200) {
            0..=15 if self.clients.iter().filter(|c| c.can_act()).count() < 10 => self.new_client(),
            0..=49 => self.ask_something(),
            50..=99 => self.deliver_to_broker(),
            100..=149 => self.deliver_to_client(),
            150..=165 => self.pass_time(),
            166 if self.random.one_in(2) => self.kill_client(),
            167 if self.random.one_in(4) => self.leave(),
            168..=169 => self.crash_broker(),
            170..=171 => self.fuse = Some(self.random.below(6)),
            172 if self.random.one_in(8) => self.crash_daemon(),
            173 if self.random.one_in(3) => self.lie(),
            174..=177 => self.release_something(),
            178..=179 => self.shift_limits(),
            180..=181 => self.settle(),
            182..=185 => self.end_copies(),
            186..=187 => self.end_observing(),
            _ => self.connect_somebody(),
        }
        if self.broker.is_none() && self.random.one_in(2) {
            self.start_broker();
        }
        self.check();
    }

    /// Everybody goes, and nothing may be left.
    pub fn wind_down(&mut self) {
        self.fuse = None;
        if self.broker.is_none() {
            self.start_broker();
        }
        self.event(Event::Journal(Ok(())));
        for client in 0..self.clients.len() {
            self.clients[client].alive = false;
        }
        self.settle();
        self.now += 1_000_000;
        self.event(Event::Tick);
        self.check();
        self.check_nothing_left();
    }

    /// Lets everything that is on its way arrive.
    pub fn settle(&mut self) {
        for _ in 0..3 {
            for pipe in self.pipes.keys().copied().collect::<Vec<_>>() {
                while self.deliver_one_to_broker(pipe) {}
                while self.deliver_one_to_client(pipe) {}
            }
            self.notice_deaths();
        }
    }

    pub fn start_broker(&mut self) {
        let mut lasting = Lasting::default();
        for bytes in &self.journal {
            let record = decode(bytes).expect("what was written can be read");
            if self.sabotage == Sabotage::CountAgain && matches!(record, Record::Counters { .. }) {
                lasting.apply(&record);
                continue;
            }
            lasting.apply(&record);
        }
        if self.sabotage == Sabotage::CountAgain {
            lasting.next_segment = lasting.segments.keys().next_back().map_or(1, |s| s.0 + 1);
            lasting.next_member = lasting.members.keys().next_back().map_or(1, |m| m.counter() + 1);
        }
        if self.sabotage == Sabotage::ForgetOutcomes {
            lasting.members.values_mut().for_each(|m| m.outcomes.clear());
        }
        // A compacted journal must say the same.
        if self.random.one_in(3) {
            let snapshot = lasting.snapshot();
            let mut again = Lasting::default();
            snapshot.iter().for_each(|record| again.apply(record));
            assert_eq!(again, lasting, "a compacted journal says something else");
            self.journal = snapshot.iter().map(encode).collect();
        }
        let limits = Limits {
            uid: 5,
            memory: MEMORY,
            segments: 40,
            connections: 64,
            members: 20,
            incarnation: self.incarnation,
            ..Limits::default()
        };
        let (broker, effects) = Broker::new(limits, lasting, 1, &self.kept, &self.listening, self.now);
        self.broker = Some(broker);
        self.perform(effects, &[]);
        if self.broker.is_some() {
            self.notice_deaths();
        }
        if let Some(broker) = &self.broker {
            let living = broker.lasting().members.keys().copied().collect::<BTreeSet<_>>();
            self.table.retain(|member| living.contains(member));
            self.table.extend(living);
        }
    }

    pub fn event(&mut self, event: Event<'_>) {
        let Some(broker) = &mut self.broker else { return };
        let effects = broker.handle(self.now, event);
        self.perform(effects, &[]);
    }

    pub fn perform(&mut self, effects: Vec<Effect>, descriptors: &[Descriptor]) {
        let mut effects = effects;
        if self.sabotage == Sabotage::AnswerFirst {
            effects.sort_by_key(|effect| !matches!(effect, Effect::Send { .. }));
        }
        let mut came = descriptors.iter();
        for effect in effects {
            if let Some(left) = self.fuse {
                if left == 0 {
                    self.fuse = None;
                    return self.crash_broker();
                }
                self.fuse = Some(left - 1);
            }
            match effect {
                Effect::Record(record) => self.write_down(&record),
                Effect::Make { segment, .. } => {
                    let works = !self.random.one_in(8);
                    if works {
                        self.kept.insert(segment);
                    }
                    let outcome = if works { Ok(()) } else { Err("no memory".to_owned()) };
                    if self.fuse == Some(0) {
                        self.fuse = None;
                        return self.crash_broker();
                    }
                    self.event(Event::Made { outcome });
                }
                Effect::MakeItem { .. } | Effect::ProveItem { .. } | Effect::CopyItem { .. } | Effect::Log { .. } => {
                    self.item_effect(effect);
                    if self.broker.is_none() {
                        return;
                    }
                }
                Effect::Adopt { segment } => {
                    let memory = matches!(came.next(), Some(Descriptor::Memory(_) | Descriptor::Pool(_)));
                    assert!(memory, "only offered memory is adopted");
                    self.kept.insert(segment);
                }
                Effect::Listen { endpoint } => {
                    assert_eq!(descriptors, [Descriptor::Listener], "only a listening socket is listened on");
                    self.listening.insert(endpoint);
                }
                Effect::Unlisten { endpoint } => {
                    if self.sabotage != Sabotage::KeepListening {
                        self.listening.remove(&endpoint);
                    }
                }
                Effect::Forget { segment } => {
                    if self.sabotage != Sabotage::KeepRemoved {
                        self.kept.remove(&segment);
                        self.pages.remove(&segment);
                    }
                }
                Effect::ClearPin { pin } => self.clear_pin(pin),
                Effect::Alive { member, .. } => {
                    self.table.insert(member);
                }
                Effect::Dead { member } => {
                    self.check_death(member);
                    if self.sabotage != Sabotage::KeepTheDead {
                        self.table.remove(&member);
                    }
                }
                Effect::Send { connection, message, with } => self.send(connection, message, with),
                Effect::Close { connection, .. } => {
                    if let Some(pipe) = self.pipes.get_mut(&connection) {
                        pipe.broker_closed = true;
                        pipe.to_broker.clear();
                    }
                }
            }
        }
    }

    fn write_down(&mut self, record: &Record) {
        self.model.recorded(record);
        let forgotten = match record {
            Record::Segment { .. } => self.sabotage == Sabotage::ForgetSegments,
            Record::Reserved { .. } => self.sabotage == Sabotage::ForgetReserves,
            Record::WorkflowEnd { .. } => self.sabotage == Sabotage::ForgetEnds,
            Record::PinTaken { .. } => self.sabotage == Sabotage::ForgetPins,
            _ => false,
        };
        if !forgotten && !crate::items::forgotten(self.sabotage, record) {
            self.journal.push(encode(record));
        }
    }

    fn send(&mut self, connection: u64, message: Vec<u8>, with: Attachment) {
        if let Attachment::Segment { segment, .. } = with {
            assert!(self.kept.contains(&segment), "{segment} is given out but not kept");
        }
        if let Attachment::Series { pool, pin } = with {
            self.hand_page(connection, pool, pin);
        }
        if let Attachment::Item { file, writable } = with {
            self.hand_item(connection, file, writable);
        }
        let twice = self.sabotage == Sabotage::AnswerTwice && self.random.one_in(5);
        if self.sabotage == Sabotage::LoseAnswers && self.random.one_in(10) {
            return;
        }
        if let Some(pipe) = self.pipes.get_mut(&connection) {
            assert!(!pipe.broker_closed, "an answer after the end of its connection");
            pipe.to_client.push_back((message.clone(), with));
            if twice {
                pipe.to_client.push_back((message, with));
            }
        }
    }

    fn new_client(&mut self) {
        let number = self.clients.len();
        // Some by the endpoints of workflows that there are, the others by the main one.
        let endpoints: Vec<_> = self.model.endpoints.iter().map(|(n, e)| (*n, e.workflow, e.name.clone())).collect();
        let client = if !endpoints.is_empty() && !self.random.one_in(6) {
            let (endpoint, workflow, name) = endpoints[self.random.below(endpoints.len())].clone();
            Client::new(number, endpoint, workflow, &name)
        } else if self.clients.iter().filter(|c| c.can_act() && c.endpoint == 0).count() < 4 {
            Client::new(number, 0, 1, "default")
        } else {
            return self.ask_something();
        };
        self.clients.push(client);
        self.connect(number);
    }

    fn connect_somebody(&mut self) {
        let idle =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].connection.is_none());
        let idle: Vec<_> = idle.collect();
        if !idle.is_empty() {
            let client = self.random.pick(&idle);
            self.connect(client);
        }
    }

    fn connect(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if self.broker.is_none() || !self.listening.contains(&client.endpoint) {
            return;
        }
        let id = self.next_pipe;
        self.next_pipe += 1;
        client.connection = Some(id);
        client.welcome = false;
        let mut pipe = Pipe {
            client: number,
            to_broker: VecDeque::new(),
            to_client: VecDeque::new(),
            client_closed: false,
            broker_closed: false,
        };
        pipe.to_broker.push_back((client.hello(), Vec::new()));
        self.pipes.insert(id, pipe);
        let (endpoint, peer) = (client.endpoint, client.peer);
        self.event(Event::Connected { connection: id, endpoint, peer });
    }

    fn ask_something(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return self.connect_somebody();
        }
        let number = self.random.pick(&ready);
        let (request, descriptors) = self.some_request(number);
        self.ask(number, request, descriptors);
    }

    fn ask(&mut self, number: usize, request: Request, descriptors: Vec<Descriptor>) {
        let client = &mut self.clients[number];
        let id = client.next;
        client.next += 1;
        client.asked.insert(id, Asked { request: request.clone(), descriptors: descriptors.clone(), due: None });
        let message = request.encode(id, client.settled());
        if let Some(pipe) = client.connection.and_then(|c| self.pipes.get_mut(&c)) {
            pipe.to_broker.push_back((message, descriptors));
        }
    }

    fn some_request(&mut self, number: usize) -> (Request, Vec<Descriptor>) {
        let r = &mut self.random;
        let name = r.pick(&NAMES).to_owned();
        if r.one_in(4) {
            return self.some_series_request(number);
        }
        if r.one_in(3) {
            if let Some(asked) = self.some_item_request(number) {
                return asked;
            }
        }
        let r = &mut self.random;
        let kind = if r.one_in(3) { SegmentKind::Port } else { SegmentKind::Region };
        let access = match kind {
            SegmentKind::Region => r.pick(&[Rights::READ, Rights::WRITE, Rights::READ.with(Rights::WRITE)]),
            SegmentKind::Port | SegmentKind::Series | SegmentKind::Item => r.pick(&[Rights::PRODUCE, Rights::CONSUME]),
        };
        let known = self.model.living_workflows();
        let workflow = if known.is_empty() || r.one_in(4) {
            r.pick(&WORKFLOWS).to_owned()
        } else {
            known[r.below(known.len())].clone()
        };
        let any_segment = {
            let told: Vec<_> = self.model.told_segments.iter().copied().collect();
            if told.is_empty() { SegmentId(1) } else { r.pick(&told) }
        };
        let request = match r.below(20) {
            0..=8 => {
                let modes = [OpenMode::CreateOnly, OpenMode::OpenOnly, OpenMode::OpenOrCreate, OpenMode::Recreate];
                let size = (1 + r.below(64) as u64) << 14;
                let (reserve, attribute) = (size >> r.below(4), r.next());
                let mode = r.pick(&modes);
                let wait_ms = if mode == OpenMode::OpenOnly && r.one_in(2) { 1 + r.below(200) as u64 } else { 0 };
                Request::Open { kind, mode, access, size, reserve, attribute, wait_ms, name }
            }
            9 => Request::Attach { segment: any_segment, access: Rights::ALL },
            10..=11 => {
                let open: Vec<_> = self.clients[number].open.keys().copied().collect();
                let segment = if open.is_empty() { any_segment } else { r.pick(&open) };
                Request::Reserve { segment, upto: (r.below(80) as u64) << 14 }
            }
            12..=13 => Request::Remove { kind, name },
            14 => {
                let name = r.pick(&WORKFLOWS).to_owned();
                Request::MakeWorkflow { quota: r.pick(&[0, 1 << 20, 1 << 22]), name }
            }
            15..=16 => {
                let rights = [
                    Rights::ALL,
                    Rights::ALL,
                    Rights::READ,
                    Rights::WRITE.with(Rights::CREATE),
                    Rights::CONSUME,
                    Rights::OBSERVE,
                ];
                let patterns = ["*", "*", "a", "out/*"];
                let grants = (0..1 + r.below(3)).map(|_| Grant {
                    pattern: r.pick(&patterns).to_owned(),
                    kind: r.pick(&[SegmentKind::Port, SegmentKind::Region, SegmentKind::Series, SegmentKind::Item]),
                    rights: r.pick(&rights),
                });
                let mut grants: Vec<_> = grants.collect();
                if self.sabotage == Sabotage::GrantTooMuch {
                    grants.push(Grant { pattern: "*".into(), kind: SegmentKind::Region, rights: Rights::ALL });
                }
                let fd = if r.one_in(9) { Descriptor::Other } else { Descriptor::Listener };
                return (Request::MakeEndpoint { workflow, task: "t".into(), grants }, vec![fd]);
            }
            17 if r.one_in(6) => Request::EndWorkflow { name: workflow },
            17 => Request::List { of: ListOf::Segments, after: 0, workflow: None },
            18 => Request::Describe { member: MemberId(r.next()) },
            _ => {
                let size = self.model.sizes.get(&any_segment).copied().unwrap_or(4096);
                let fd = if r.one_in(4) { Descriptor::Memory(size + 4096) } else { Descriptor::Memory(size) };
                return (Request::Offer { segment: any_segment }, vec![fd]);
            }
        };
        match request {
            // Twice what was meant, which the model knows.
            Request::MakeWorkflow { quota, name } if self.sabotage == Sabotage::QuotaTwice => {
                (Request::MakeWorkflow { quota: quota * 2, name }, vec![])
            }
            request => (request, vec![]),
        }
    }

    fn deliver_to_broker(&mut self) {
        let pipes: Vec<_> = self.pipes.keys().copied().collect();
        if !pipes.is_empty() {
            let pipe = self.random.pick(&pipes);
            self.deliver_one_to_broker(pipe);
        }
    }

    fn deliver_one_to_broker(&mut self, id: u64) -> bool {
        let Some(pipe) = self.pipes.get_mut(&id) else { return false };
        if self.broker.is_none() || pipe.broker_closed {
            return false;
        }
        let client = pipe.client;
        let Some((message, descriptors)) = pipe.to_broker.pop_front() else {
            if pipe.client_closed || !self.clients[client].alive {
                pipe.broker_closed = true;
                self.event(Event::Disconnected { connection: id });
                return true;
            }
            return false;
        };
        self.note_delivery(client, &message);
        let event = Event::Message { connection: id, bytes: Some(&message), descriptors: &descriptors };
        let broker = self.broker.as_mut().expect("checked above");
        let effects = broker.handle(self.now, event);
        self.perform(effects, &descriptors);
        if let Some(pipe) = self.pipes.get(&id).filter(|_| self.clients[client].lied) {
            assert!(pipe.broker_closed || !pipe.to_broker.is_empty(), "a liar was not dropped");
        }
        true
    }

    /// From here on the daemon owes an answer by the deadline.
    fn note_delivery(&mut self, client: usize, message: &[u8]) {
        let number = u64::from_le_bytes(message[8..16].try_into().expect("a header"));
        if let Some(asked) = self.clients[client].asked.get_mut(&number) {
            let wait = match asked.request {
                Request::Open { wait_ms, .. } | Request::Observe { wait_ms, .. } => wait_ms,
                // What is free may have to be copied first.
                Request::Item(
                    ItemRequest::Create { .. }
                    | ItemRequest::Access { .. }
                    | ItemRequest::Share { .. }
                    | ItemRequest::Unshare { .. },
                ) => 61_000,
                _ => 0,
            };
            asked.due = Some(self.now + wait);
            let request = asked.request.clone();
            self.model.delivered(&self.clients[client], &request);
        }
    }

    fn deliver_to_client(&mut self) {
        let pipes: Vec<_> = self.pipes.keys().copied().collect();
        if !pipes.is_empty() {
            let pipe = self.random.pick(&pipes);
            self.deliver_one_to_client(pipe);
        }
    }

    fn deliver_one_to_client(&mut self, id: u64) -> bool {
        let Some(pipe) = self.pipes.get_mut(&id) else { return false };
        let number = pipe.client;
        if !self.clients[number].alive || pipe.client_closed {
            if pipe.broker_closed {
                self.pipes.remove(&id);
            }
            return false;
        }
        if let Some((message, with)) = pipe.to_client.pop_front() {
            self.receive(number, id, &message, with);
            return true;
        }
        if pipe.broker_closed {
            self.pipes.remove(&id);
            let client = &mut self.clients[number];
            if client.connection == Some(id) {
                client.connection = None;
                client.welcome = false;
                client.asked.values_mut().for_each(|a| a.due = None);
            }
        }
        false
    }

    fn receive(&mut self, number: usize, id: u64, message: &[u8], with: Attachment) {
        let (request, answer) = Answer::decode(message, with.count()).expect("the broker's own words");
        if request == 1 {
            return self.greeted(number, id, &answer);
        }
        let client = &mut self.clients[number];
        assert!(client.answered.insert(request), "request {request} of {} was answered twice", client.member);
        let asked = client.asked.remove(&request).expect("only what was asked is answered");
        let writable = matches!(with, Attachment::Segment { writable: true, .. });
        let writable = writable || self.sabotage == Sabotage::WritableForAll;
        let writable = writable
            || self.sabotage == Sabotage::WritablePools
                && !matches!(answer, Answer::Segment { kind: SegmentKind::Region, .. });
        if let Answer::Segment { segment, .. } = answer {
            *client.open.entry(segment).or_insert(0) += 1;
        }
        self.series_answered(number, &asked.request, &answer);
        self.item_answered(number, &asked.request, &answer);
        self.model.answered(&self.clients[number], &asked.request, &answer, writable, request);
        if let (Request::MakeEndpoint { workflow, .. }, Answer::Done { .. }) = (&asked.request, &answer) {
            assert!(asked.descriptors == [Descriptor::Listener], "endpoint of {workflow} without a listening socket");
        }
    }

    fn greeted(&mut self, number: usize, id: u64, answer: &Answer) {
        let client = &mut self.clients[number];
        match answer {
            Answer::Welcome { member, resumed, incarnation, workflow, .. } => {
                self.model.welcomed(client, *member, *resumed, workflow);
                client.member = *member;
                client.welcome = true;
                if client.incarnation != *incarnation {
                    client.incarnation = *incarnation;
                    self.offer_series(number);
                }
                let held = self.held_items(number);
                let client = &mut self.clients[number];
                let Some(pipe) = self.pipes.get_mut(&id) else { return };
                for pin in client.pins.keys() {
                    let hold = Request::Hold { segment: *pin, count: 1 };
                    pipe.to_broker.push_back((hold.encode(0, 0), vec![]));
                }
                for (segment, count) in &client.open {
                    let hold = Request::Hold { segment: *segment, count: *count };
                    pipe.to_broker.push_back((hold.encode(0, 0), vec![]));
                }
                let all = Request::Hold { segment: SegmentId(0), count: 0 };
                pipe.to_broker.push_back((all.encode(0, 0), vec![]));
                for hold in held {
                    pipe.to_broker.push_back((hold.encode(0, 0), vec![]));
                }
                for (request, asked) in &client.asked {
                    pipe.to_broker
                        .push_back((asked.request.encode(*request, client.settled()), asked.descriptors.clone()));
                }
            }
            Answer::Failed { status, .. } => {
                if *status == Status::Disconnected {
                    self.model.refused(client);
                }
                client.over = *status != Status::NoSpace;
            }
            other => panic!("greeted by {other:?}"),
        }
    }

    fn release_something(&mut self) {
        let holders: Vec<_> = (0..self.clients.len())
            .filter(|c| self.clients[*c].can_act() && !self.clients[*c].open.is_empty())
            .collect();
        if holders.is_empty() {
            return;
        }
        let number = self.random.pick(&holders);
        let client = &mut self.clients[number];
        let open: Vec<_> = client.open.keys().copied().collect();
        let segment = self.random.pick(&open);
        let left = client.open.get_mut(&segment).expect("picked from the keys");
        *left -= 1;
        if *left == 0 {
            client.open.remove(&segment);
        }
        if let Some(pipe) = client.connection.filter(|_| client.welcome).and_then(|c| self.pipes.get_mut(&c)) {
            pipe.to_broker.push_back((Request::Detach { segment, count: 1 }.encode(0, 0), vec![]));
        }
    }

    fn pass_time(&mut self) {
        self.now += 1 + self.random.below(120) as u64;
        self.notice_deaths();
        self.event(Event::Tick);
    }

    /// The pidfds of the dead become readable.
    fn notice_deaths(&mut self) {
        let Some(broker) = &self.broker else { return };
        let watched = broker.lasting().members.iter().filter(|(_, m)| m.peer.started != 0);
        let dead: Vec<_> = watched
            .filter(|(_, m)| !self.clients.iter().any(|c| c.alive && c.peer == m.peer))
            .map(|(id, _)| *id)
            .collect();
        for member in dead {
            self.event(Event::ProcessDied { member });
        }
    }

    fn kill_client(&mut self) {
        let alive: Vec<_> = (0..self.clients.len()).filter(|c| self.clients[*c].alive).collect();
        if !alive.is_empty() {
            let number = self.random.pick(&alive);
            self.clients[number].alive = false;
            self.model.left(&self.clients[number]);
        }
    }

    fn leave(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return;
        }
        let number = self.random.pick(&ready);
        let client = &mut self.clients[number];
        client.over = true;
        self.model.left(client);
        if let Some(pipe) = client.connection.and_then(|c| self.pipes.get_mut(&c)) {
            pipe.to_broker.push_back((Request::Bye.encode(client.next, 0), vec![]));
            pipe.client_closed = true;
        }
    }

    /// Breaks the rules in some way; the liar, and nobody else, has to be dropped.
    fn lie(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return;
        }
        let number = self.random.pick(&ready);
        let length = self.random.below(64);
        let mut message: Vec<u8> = (0..length).map(|_| self.random.next() as u8).collect();
        if self.random.one_in(2) {
            message = self.clients[number].hello();
        }
        self.clients[number].lied = true;
        self.model.left(&self.clients[number]);
        if let Some(pipe) = self.clients[number].connection.and_then(|c| self.pipes.get_mut(&c)) {
            let header_only = message.len() < 16;
            if header_only {
                message.resize(16, 0);
            }
            pipe.to_broker.push_back((message, vec![Descriptor::Other; usize::from(header_only)]));
        }
    }

    fn shift_limits(&mut self) {
        let event = match self.random.below(8) {
            0 => Event::Journal(Err("disk full".into())),
            1..=5 => Event::Journal(Ok(())),
            _ => Event::Free(self.random.below(1 << 22) as u64 + (1 << 20)),
        };
        self.event(event);
    }

    pub fn crash_broker(&mut self) {
        self.broker = None;
        self.copies.clear();
        for pipe in self.pipes.values_mut() {
            pipe.broker_closed = true;
            pipe.to_broker.clear();
        }
        for client in &mut self.clients {
            client.asked.values_mut().for_each(|a| a.due = None);
        }
    }

    /// The keeper is killed too: descriptors are lost, the journal's file stays.
    fn crash_daemon(&mut self) {
        self.crash_broker();
        self.kept.clear();
        self.listening = BTreeSet::from([0]);
        self.table.clear();
        self.incarnation += 1;
        self.model.daemon_lost();
    }
}
