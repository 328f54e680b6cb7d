//! Series in the simulated world: the requests of publishers and observers, and what must hold for pin pages.

use std::collections::BTreeMap;

use crossdock_layout::wire::{Answer, InUse, Request, SegmentKind, series_ids};
use crossdock_layout::{Rights, SegmentId};
use crossdock_node::broker::{Attachment, Descriptor};

use crate::client::{Asked, Publishing};
use crate::sabotage::Sabotage;
use crate::world::{NAMES, World};

const OBSERVERS: u32 = 3;

impl World {
    pub fn some_series_request(&mut self, number: usize) -> (Request, Vec<Descriptor>) {
        let r = &mut self.random;
        let name = r.pick(&NAMES).to_owned();
        let own: Vec<_> = self.clients[number].series.keys().copied().collect();
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != number);
        let others: Vec<_> = others.flat_map(|(_, client)| client.series.keys().copied()).collect();
        let request = match r.below(12) {
            0..=3 => {
                let size = (1 + r.below(32) as u64) << 14;
                self.last_number += 1;
                let number = self.last_number;
                let fd =
                    if r.one_in(9) { Descriptor::Memory { size, number } } else { Descriptor::Pool { size, number } };
                let (reserved, attribute) = (size >> r.below(4), r.number());
                return (Request::Publish { size, reserved, attribute, observers: OBSERVERS, name }, vec![fd]);
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
            // The client asks to end a series of another member, or a series that does not exist.
            9 => Request::Unpublish { segment: others.first().copied().unwrap_or(SegmentId(0)) },
            10 if !own.is_empty() => {
                let segment = r.pick(&own);
                Request::Pins { segment, from: self.clients[number].series[&segment].next }
            }
            10 => Request::Pins { segment: SegmentId(r.below(600) as u64), from: r.below(4) as u32 },
            _ => Request::Remove { kind: SegmentKind::Series, in_use: InUse::Keep, name },
        };
        (request, vec![])
    }

    /// Handles the answer to a client's request about series.
    pub fn series_answered(&mut self, number: usize, asked: &Asked, answer: &Answer, with: Attachment) {
        let page = match with {
            Attachment::Series { pool, page, .. } => Some((pool, page)),
            _ => None,
        };
        let request = &asked.request;
        match (request, answer) {
            (Request::Publish { name, size, .. }, Answer::Done { value }) => {
                let segment = SegmentId(*value);
                let client = &self.clients[number];
                let rights = self.model.rights(client, SegmentKind::Series, name);
                assert!(rights.contains(Rights::PUBLISH), "series {name} is published with {}", rights.words());
                // While a publisher is alive, no other member becomes the publisher of the same name. A client that has
                // broken the rules does not count as a publisher here: such a client may still read an answer that was
                // sent before the broker dropped the client, and the name may have another publisher by then.
                let present = client.can_act();
                for other in self.clients.iter().filter(|c| present && c.can_act() && !self.model.may_be_dead(c)) {
                    let same = |(id, s): (&SegmentId, &Publishing)| {
                        let kept = !self.model.was_lost(*id) || self.can_offer(other.index(), *id);
                        *id != segment && s.name == *name && kept
                    };
                    let living = other.workflow == client.workflow && other.series.iter().any(same);
                    assert!(!living, "series {name} has two publishers, {} and {}", other.member, client.member);
                }
                let memory = match asked.descriptors[..] {
                    [Descriptor::Pool { number, .. }] => number,
                    _ => panic!("a series without a pool"),
                };
                let fresh =
                    Publishing { name: name.clone(), size: *size, pages: BTreeMap::new(), next: 0, number: memory };
                let client = &mut self.clients[number];
                client.series.entry(segment).or_insert(fresh);
                *client.open.entry(segment).or_insert(0) += 1;
                self.model.promise_series(&self.clients[number], segment, name);
            }
            (Request::Pins { segment, .. }, Answer::Pins(entry)) => {
                let memory = self.model.numbers.get(&entry.page).copied().unwrap_or(0);
                let Some(series) = self.clients[number].series.get_mut(segment) else { return };
                series.next = entry.next;
                series.pages.insert(entry.page, memory);
            }
            (Request::Observe { name, .. }, Answer::Series(entry)) => {
                let client = &self.clients[number];
                let rights = self.model.rights(client, SegmentKind::Series, name);
                let any = Rights::PUBLISH.with(Rights::OBSERVE);
                assert!(rights.0 & any.0 != 0, "series {name} is observed with {}", rights.words());
                assert_eq!(entry.name, *name, "another series than was asked for");
                // If this client has left before the answer arrives, it does not use the slot. So another client may
                // have the same slot.
                let present = client.can_act() && !self.model.may_be_dead(client);
                for other in self.clients.iter().filter(|c| present && c.can_act() && !self.model.may_be_dead(c)) {
                    let both = other.pins.contains_key(&entry.pin);
                    assert!(!both, "{} and {} have slot {}", other.member, client.member, entry.pin);
                }
                let client = &mut self.clients[number];
                let (_, page) = page.expect("a series comes with a page");
                client.pins.insert(entry.pin, (entry.segment, page, entry.slot));
                *client.open.entry(entry.segment).or_insert(0) += 1;
            }
            _ => {}
        }
    }

    /// Checks a slot of a pin page that an observer gets: the publisher can see in the liveness table that the page
    /// exists, no other member's pins are in the slot, and no other task can write to the page.
    pub fn hand_page(&mut self, connection: u64, pool: SegmentId, page: SegmentId, slot: u32) {
        assert!(self.kept.contains(&pool) && self.kept.contains(&page), "{page} of {pool} is given out but not kept");
        assert!(self.told_of.contains(&page), "{page} of {pool} is given out and its publisher was not told of it");
        let Some(pipe) = self.pipes.get(&connection) else { return };
        let client = &self.clients[pipe.client];
        let before = self.pages.insert((page, slot), client.member).filter(|m| *m != client.member);
        assert!(before.is_none(), "slot {slot} of {page} goes from {before:?} to {} uncleared", client.member);
        let mut endpoint = client.endpoint;
        if self.sabotage == Sabotage::ForgetEndpoints {
            endpoint = self.random.below(2) as u64;
        }
        let before = self.page_endpoints.insert(page, endpoint).filter(|e| *e != endpoint);
        assert!(before.is_none(), "page {page} goes from endpoint {before:?} to {endpoint}");
    }

    /// Notes that the liveness table now tells every publisher to ask for its new pin pages.
    pub fn tell_of_pages(&mut self) {
        if self.sabotage != Sabotage::TellNoPublisher {
            self.told_of.extend(self.kept.iter().copied());
        }
    }

    pub fn clear_pins(&mut self, page: SegmentId, from: u32, count: u32) {
        assert!(self.kept.contains(&page), "{page} is cleared but not kept");
        for slot in from..from + count {
            for client in self.clients.iter().filter(|c| c.can_act() && !self.model.may_be_dead(c)) {
                let has = client.pins.values().any(|(_, of, own)| (*of, *own) == (page, slot));
                assert!(!has, "slot {slot} of {page} is cleared while {} has it", client.member);
            }
            if self.sabotage != Sabotage::KeepPins {
                self.pages.remove(&(page, slot));
            }
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
        let Some((pin, (pool, ..))) = client.pins.pop_first() else { return };
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
}

/// Gives the last id in the range of ids of a series.
pub fn last_id(segment: SegmentId) -> u64 {
    segment.0 + series_ids(OBSERVERS) - 1
}
