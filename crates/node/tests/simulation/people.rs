//! What clients do: they connect, send requests, close objects, leave, die, and break the rules.

use std::collections::VecDeque;

use crossdock_layout::wire::{Grant, InUse, ListOf, OpenMode, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};
use crossdock_node::broker::{Descriptor, Event};

use crate::client::{Asked, Client};
use crate::sabotage::Sabotage;
use crate::world::{NAMES, Pipe, WORKFLOWS, World};

impl World {
    /// Begins half of the schedules with a launcher that makes a workflow, so that many events concern its workflow.
    pub fn set_up_workflow(&mut self) {
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

    pub fn new_client(&mut self) {
        let number = self.clients.len();
        // Most clients connect through the endpoint of a task in an existing workflow, the other clients through the
        // daemon's main endpoint.
        let open = self.model.endpoints.iter().filter(|(n, _)| self.listening.contains(n));
        let endpoints: Vec<_> = open.map(|(n, e)| (*n, e.workflow, e.name.clone())).collect();
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

    pub fn connect_a_client(&mut self) {
        let idle =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].connection.is_none());
        let idle: Vec<_> = idle.collect();
        if !idle.is_empty() {
            let client = self.random.pick(&idle);
            self.connect(client);
        }
    }

    pub fn connect(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if self.broker.is_none() || !self.listening.contains(&client.endpoint) {
            return;
        }
        // The client has read its former connection to the end, or has closed it.
        self.pipes.values_mut().filter(|p| p.client == number).for_each(|p| p.client_closed = true);
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

    pub fn ask_something(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return self.connect_a_client();
        }
        let number = self.random.pick(&ready);
        let (request, descriptors) = self.some_request(number);
        self.ask(number, request, descriptors);
    }

    pub fn ask(&mut self, number: usize, request: Request, descriptors: Vec<Descriptor>) {
        let client = &mut self.clients[number];
        let id = client.next;
        client.next += 1;
        client.asked.insert(
            id,
            Asked { request: request.clone(), descriptors: descriptors.clone(), due: None, cooperative: None },
        );
        let message = request.encode(id, client.settled());
        if let Some(pipe) = client.connection.and_then(|c| self.pipes.get_mut(&c)) {
            pipe.to_broker.push_back((message, descriptors));
        }
    }

    pub fn some_request(&mut self, number: usize) -> (Request, Vec<Descriptor>) {
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
                let (reserve, attribute) = (size >> r.below(4), r.number());
                let mode = r.pick(&modes);
                let wait_ms = if mode == OpenMode::OpenOnly && r.one_in(2) { 1 + r.below(200) as u64 } else { 0 };
                Request::Open { kind, mode, access, size, reserve, attribute, wait_ms, persistent: r.one_in(4), name }
            }
            9 => Request::Attach { segment: any_segment, access: Rights::ALL },
            10..=11 => {
                let open: Vec<_> = self.clients[number].open.keys().copied().collect();
                let segment = if open.is_empty() { any_segment } else { r.pick(&open) };
                Request::Reserve { segment, upto: (r.below(80) as u64) << 14 }
            }
            12..=13 => Request::Remove { kind, in_use: r.pick(&[InUse::Keep, InUse::Refuse, InUse::Force]), name },
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
            18 => Request::Describe { member: MemberId(r.number()) },
            _ => {
                let size = self.model.sizes.get(&any_segment).copied().unwrap_or(4096);
                let number = self.model.numbers.get(&any_segment).copied().unwrap_or(0);
                // The client offers memory of a wrong size, memory that is not the lost memory, or the right memory.
                let fd = match r.below(4) {
                    0 => Descriptor::Memory { size: size + 4096, number },
                    1 => Descriptor::Memory { size, number: number + 1 },
                    _ => Descriptor::Memory { size, number },
                };
                return (Request::Offer { segment: any_segment }, vec![fd]);
            }
        };
        match request {
            // With the planted bug, the broker gets a request for twice the quota that the model knows.
            Request::MakeWorkflow { quota, name } if self.sabotage == Sabotage::QuotaTwice => {
                (Request::MakeWorkflow { quota: quota * 2, name }, vec![])
            }
            request => (request, vec![]),
        }
    }

    pub fn release_something(&mut self) {
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

    pub fn kill_client(&mut self) {
        let alive: Vec<_> = (0..self.clients.len()).filter(|c| self.clients[*c].alive).collect();
        if !alive.is_empty() {
            let number = self.random.pick(&alive);
            self.clients[number].alive = false;
            self.model.left(&self.clients[number]);
        }
    }

    pub fn leave(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return;
        }
        let number = self.random.pick(&ready);
        let client = &mut self.clients[number];
        client.over = true;
        client.left = true;
        self.model.left(client);
        if let Some(pipe) = client.connection.and_then(|c| self.pipes.get_mut(&c)) {
            pipe.to_broker.push_back((Request::Bye.encode(client.next, 0), vec![]));
            pipe.client_closed = true;
        }
    }

    /// Lets a client break the rules in some way. The broker must drop this client, and no other client.
    pub fn lie(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return;
        }
        let number = self.random.pick(&ready);
        let length = self.random.below(64);
        let mut message: Vec<u8> = (0..length).map(|_| self.random.number() as u8).collect();
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
}
