//! Messages between clients and the broker, and what their arrival causes.

use crossdock_layout::wire::{Answer, ItemRequest, Request, SegmentKind};
use crossdock_layout::{SegmentId, Status};
use crossdock_node::broker::{Attachment, Descriptor, Event};

use crate::client::Client;
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    pub fn deliver_to_broker(&mut self) {
        let pipes: Vec<_> = self.pipes.keys().copied().collect();
        if !pipes.is_empty() {
            let pipe = self.random.pick(&pipes);
            self.deliver_one_to_broker(pipe);
        }
    }

    pub fn deliver_one_to_broker(&mut self, id: u64) -> bool {
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
        let strips = !descriptors.is_empty() && !self.calm && !self.clients[client].lied;
        if strips && self.random.one_in(if self.lossy { 4 } else { 16 }) {
            // The daemon has no descriptor left for those that come with the message.
            self.event(Event::Stripped { connection: id, bytes: &message });
            return true;
        }
        self.note_delivery(client, id, &message);
        let seen = self.seen(&descriptors, &message);
        let event = Event::Message { connection: id, bytes: Some(&message), descriptors: &seen };
        let broker = self.broker.as_mut().expect("checked above");
        let effects = broker.handle(self.now, event);
        self.perform(effects, &descriptors);
        if let Some(pipe) = self.pipes.get(&id).filter(|_| self.clients[client].lied) {
            assert!(pipe.broker_closed || !pipe.to_broker.is_empty(), "a liar was not dropped");
        }
        true
    }

    /// Notes that a request has reached the broker. From now on the daemon must answer it by its deadline.
    pub fn note_delivery(&mut self, client: usize, pipe: u64, message: &[u8]) {
        let number = u64::from_le_bytes(message[8..16].try_into().expect("a header"));
        let present = self.clients[client].connection == Some(pipe);
        if let Some(offer) = self.clients[client].offered.get_mut(&number).filter(|_| present) {
            offer.due = Some(self.now);
        }
        let cooperative = self.cooperative_item(client, number);
        if let Some(asked) = self.clients[client].asked.get_mut(&number) {
            let wait = match asked.request {
                Request::Observe { wait_ms, .. } => wait_ms,
                // The request may have to wait until a member offers the segment's memory, which was lost with the
                // keeper.
                Request::Open { wait_ms, .. } => wait_ms.max(2000),
                Request::Attach { .. } => 2000,
                // The daemon may have to copy the item before it can give the item to the client.
                Request::Item(
                    ItemRequest::Create { .. }
                    | ItemRequest::Access { .. }
                    | ItemRequest::Share { .. }
                    | ItemRequest::Unshare { .. },
                ) => 61_000,
                _ => 0,
            };
            // If the client has given up this connection, the request has no deadline yet, because the client repeats
            // it on its next connection.
            if present {
                asked.cooperative = cooperative;
                asked.due = Some(self.now + wait);
            }
            let request = asked.request.clone();
            let living = self.clients.iter().filter(|c| c.can_act() && !self.model.may_be_dead(c));
            let has = |c: &&Client, id: &SegmentId| c.open.contains_key(id);
            let series = living.flat_map(|c| c.series.keys().filter(move |id| has(&c, id)).copied());
            let published = series.collect();
            self.model.delivered(&self.clients[client], number, &request, &published);
        }
    }

    pub fn deliver_to_client(&mut self) {
        let pipes: Vec<_> = self.pipes.keys().copied().collect();
        if !pipes.is_empty() {
            let pipe = self.random.pick(&pipes);
            self.deliver_one_to_client(pipe);
        }
    }

    pub fn deliver_one_to_client(&mut self, id: u64) -> bool {
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
                client.forget_deadlines();
            }
        }
        false
    }

    pub fn receive(&mut self, number: usize, id: u64, message: &[u8], with: Attachment) {
        let (request, answer) = Answer::decode(message, with.count()).expect("the broker's own words");
        if request == 1 {
            return self.greeted(number, id, &answer);
        }
        let client = &mut self.clients[number];
        assert!(client.answered.insert(request), "request {request} of {} was answered twice", client.member);
        if let Some(offer) = client.offered.remove(&request) {
            let refused = matches!(answer, Answer::Failed { status: Status::NoSpace, .. });
            if refused {
                let id = if let Request::Offer { segment } = offer.request { segment } else { SegmentId(0) };
                self.model.count("refused", id);
            }
            if refused && self.sabotage != Sabotage::ForgetRefused {
                client.refused.push(offer.request);
            }
            return;
        }
        let asked = client.asked.remove(&request).expect("only what was asked is answered");
        let writable = matches!(with, Attachment::Segment { writable: true, .. });
        let writable = writable || self.sabotage == Sabotage::WritableForAll;
        let writable = writable
            || self.sabotage == Sabotage::WritablePools
                && !matches!(answer, Answer::Segment { kind: SegmentKind::Region, .. });
        if let Answer::Segment { segment, .. } = answer {
            *client.open.entry(segment).or_insert(0) += 1;
        }
        self.series_answered(number, &asked, &answer, with);
        self.item_answered(number, &asked.request, &answer);
        self.model.answered(&self.clients[number], &asked.request, &answer, writable, request);
        if let (Request::MakeEndpoint { workflow, .. }, Answer::Done { .. }) = (&asked.request, &answer) {
            assert!(asked.descriptors == [Descriptor::Listener], "endpoint of {workflow} without a listening socket");
        }
        self.endpoints_answered(number, &asked.request, &answer);
    }

    pub fn greeted(&mut self, number: usize, id: u64, answer: &Answer) {
        let client = &mut self.clients[number];
        match answer {
            Answer::Welcome { member, resumed, incarnation, workflow, .. } => {
                self.model.welcomed(client, *member, *resumed, workflow);
                client.member = *member;
                client.welcome = true;
                let mut offers: Vec<_> = std::mem::take(&mut client.offered).into_values().map(|o| o.request).collect();
                offers.append(&mut client.refused);
                let another = client.incarnation != *incarnation;
                client.incarnation = *incarnation;
                if another {
                    offers = self.offers(number);
                }
                self.offer(number, offers);
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
}
