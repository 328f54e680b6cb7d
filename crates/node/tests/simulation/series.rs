//! Series in the simulated world: what publishers and observers ask, and what must hold of pin pages.

use crossdock_layout::wire::{Answer, InUse, MAX_DESCRIPTORS, Request, SegmentKind};
use crossdock_layout::{Rights, SegmentId};
use crossdock_node::broker::Descriptor;

use crate::client::{Asked, Publishing};
use crate::sabotage::Sabotage;
use crate::world::{NAMES, World};

const PINS: u32 = 3;

impl World {
    pub fn some_series_request(&mut self, number: usize) -> (Request, Vec<Descriptor>) {
        // What was begun goes on, mostly.
        let torso = self.clients[number].series.iter().find(|(_, s)| s.there < s.pins);
        if let Some((segment, series)) = torso.filter(|_| !self.random.one_in(6)) {
            return pins(*segment, series.there, series.pins - series.there);
        }
        let r = &mut self.random;
        let name = r.pick(&NAMES).to_owned();
        let own: Vec<_> = self.clients[number].series.keys().copied().collect();
        let request = match r.below(12) {
            0..=3 => {
                let size = (1 + r.below(32) as u64) << 14;
                self.last_number += 1;
                let number = self.last_number;
                let fd =
                    if r.one_in(9) { Descriptor::Memory { size, number } } else { Descriptor::Pool { size, number } };
                let (reserved, attribute) = (size >> r.below(4), r.next());
                return (Request::Publish { size, reserved, attribute, pins: PINS, name }, vec![fd]);
            }
            4..=8 => {
                let wait_ms = if r.one_in(2) { 1 + r.below(200) as u64 } else { 0 };
                Request::Observe { wait_ms, former: r.one_in(2), name }
            }
            9 if !own.is_empty() => {
                let segment = r.pick(&own);
                self.clients[number].series.remove(&segment);
                Request::Unpublish { segment }
            }
            9 => Request::Unpublish { segment: SegmentId(r.below(40) as u64) },
            10 => {
                let segment = SegmentId(r.below(60) as u64);
                return pins(segment, r.below(4) as u32, 1 + r.below(4) as u32);
            }
            _ => Request::Remove { kind: SegmentKind::Series, in_use: InUse::Keep, name },
        };
        (request, vec![])
    }

    /// What a client learns of series.
    pub fn series_answered(&mut self, number: usize, asked: &Asked, answer: &Answer) {
        let request = &asked.request;
        match (request, answer) {
            (Request::Publish { name, size, pins, .. }, Answer::Done { value }) => {
                let segment = SegmentId(*value);
                let client = &self.clients[number];
                let rights = self.model.rights(client, SegmentKind::Series, name);
                assert!(rights.contains(Rights::PUBLISH), "series {name} is published with {}", rights.words());
                // While a publisher lives and goes on, no other one begins under its name.
                for other in self.clients.iter().filter(|c| c.can_act() && !self.model.may_be_dead(c)) {
                    let same = |(id, s): (&SegmentId, &Publishing)| {
                        *id != segment && s.name == *name && s.there == s.pins && !self.model.may_be_lost(*id)
                    };
                    let living = other.workflow == client.workflow && other.series.iter().any(same);
                    assert!(!living, "series {name} has two publishers, {} and {}", other.member, client.member);
                }
                let memory = match asked.descriptors[..] {
                    [Descriptor::Pool { number, .. }] => number,
                    _ => panic!("a series without a pool"),
                };
                let fresh = Publishing { name: name.clone(), size: *size, pins: *pins, there: 0, number: memory };
                let client = &mut self.clients[number];
                client.series.entry(segment).or_insert(fresh);
                *client.open.entry(segment).or_insert(0) += 1;
            }
            (Request::Pins { segment, .. }, Answer::Done { value }) => {
                let Some(series) = self.clients[number].series.get_mut(segment) else { return };
                series.there = series.there.max(*value as u32);
                let (name, complete) = (series.name.clone(), series.there == series.pins);
                let client = &self.clients[number];
                if complete {
                    self.model.promise_series(client, *segment, &name);
                }
            }
            (Request::Pins { segment, .. }, Answer::Failed { .. }) => {
                // Lost with the keeper before it was complete, or taken away.
                let torso = |s: &Publishing| s.there < s.pins;
                if self.clients[number].series.get(segment).is_some_and(torso) {
                    self.clients[number].series.remove(segment);
                }
            }
            (Request::Observe { name, .. }, Answer::Series(entry)) => {
                let client = &self.clients[number];
                let rights = self.model.rights(client, SegmentKind::Series, name);
                let any = Rights::PUBLISH.with(Rights::OBSERVE);
                assert!(rights.0 & any.0 != 0, "series {name} is observed with {}", rights.words());
                assert_eq!(entry.name, *name, "another series than was asked for");
                for other in self.clients.iter().filter(|c| c.can_act() && !self.model.may_be_dead(c)) {
                    let both = other.pins.contains_key(&entry.pin);
                    assert!(!both, "{} and {} have pin page {}", other.member, client.member, entry.pin);
                }
                let client = &mut self.clients[number];
                client.pins.insert(entry.pin, entry.segment);
                *client.open.entry(entry.segment).or_insert(0) += 1;
            }
            _ => {}
        }
    }

    /// A page goes out: no other member's data may be in it, and no other member may be able to write it.
    pub fn hand_page(&mut self, connection: u64, pool: SegmentId, pin: SegmentId) {
        assert!(self.kept.contains(&pool) && self.kept.contains(&pin), "{pin} of {pool} is given out but not kept");
        let Some(pipe) = self.pipes.get(&connection) else { return };
        let client = &self.clients[pipe.client];
        let before = self.pages.insert(pin, client.member).filter(|m| *m != client.member);
        assert!(before.is_none(), "page {pin} goes from {before:?} to {} uncleared", client.member);
        let mut endpoint = client.endpoint;
        if self.sabotage == Sabotage::ForgetEndpoints {
            endpoint = self.random.below(2) as u64;
        }
        let before = self.page_endpoints.insert(pin, endpoint).filter(|e| *e != endpoint);
        assert!(before.is_none(), "page {pin} goes from endpoint {before:?} to {endpoint}");
    }

    pub fn clear_pin(&mut self, pin: SegmentId) {
        assert!(self.kept.contains(&pin), "{pin} is cleared but not kept");
        for client in self.clients.iter().filter(|c| c.can_act() && !self.model.may_be_dead(c)) {
            assert!(!client.pins.contains_key(&pin), "page {pin} is cleared while {} has it", client.member);
        }
        if self.sabotage != Sabotage::KeepPins {
            self.pages.remove(&pin);
        }
    }

    pub fn end_observing(&mut self) {
        let holders: Vec<_> = (0..self.clients.len())
            .filter(|c| self.clients[*c].can_act() && !self.clients[*c].pins.is_empty())
            .collect();
        if holders.is_empty() {
            return;
        }
        let number = self.random.pick(&holders);
        let client = &mut self.clients[number];
        let Some((pin, pool)) = client.pins.pop_first() else { return };
        if let Some(left) = client.open.get_mut(&pool) {
            *left -= 1;
            if *left == 0 {
                client.open.remove(&pool);
            }
        }
        if let Some(pipe) = client.connection.filter(|_| client.welcome).and_then(|c| self.pipes.get_mut(&c)) {
            for segment in [pin, pool] {
                pipe.to_broker.push_back((Request::Detach { segment, count: 1 }.encode(0, 0), vec![]));
            }
        }
    }

    /// After the keeper's end a publisher offers what it has.
    pub fn offer_series(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let mut offers = Vec::new();
        for (segment, series) in client.series.iter().filter(|(_, s)| s.there == s.pins) {
            offers.push((
                Request::Offer { segment: *segment },
                vec![Descriptor::Pool { size: series.size, number: series.number }],
            ));
            offers.push(pins(*segment, 0, series.pins));
        }
        for (request, descriptors) in offers {
            let id = client.next;
            client.next += 1;
            // They go out with whatever else has no answer yet.
            client.asked.insert(id, Asked { request, descriptors, due: None });
        }
    }
}

/// Of the memory of a pin page.
fn page_number(segment: SegmentId, pin: u32) -> u64 {
    1 << 40 | segment.0 << 8 | u64::from(pin)
}

fn pins(segment: SegmentId, from: u32, count: u32) -> (Request, Vec<Descriptor>) {
    let count = count.clamp(1, MAX_DESCRIPTORS as u32);
    (
        Request::Pins { segment, from, count },
        (from..from + count).map(|pin| Descriptor::Memory { size: 4096, number: page_number(segment, pin) }).collect(),
    )
}
