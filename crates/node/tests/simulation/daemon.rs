//! The simulated daemon around the broker: it carries out the broker's effects, writes the journal, and is killed.

use std::collections::BTreeSet;

use crossdock_layout::SegmentId;
use crossdock_layout::wire::Request;
use crossdock_node::broker::{Attachment, Broker, Descriptor, Effect, Event, Lasting, Limits, Record};
use crossdock_node::journal::{decode, encode};

use crate::client::Client;
use crate::sabotage::Sabotage;
use crate::world::{MEMORY, World};

impl World {
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
        // A compacted journal must give the same state as the journal from which it was made.
        if self.random.one_in(3) {
            let snapshot = lasting.snapshot();
            let mut again = Lasting::default();
            snapshot.iter().for_each(|record| again.apply(record));
            assert_eq!(again, lasting, "a compacted journal says something else");
            self.journal = snapshot.iter().map(encode).collect();
        }
        self.starts += 1;
        let limits = Limits {
            uid: 5,
            memory: MEMORY,
            segments: 40,
            connections: 64,
            members: 20,
            incarnation: self.incarnation,
            start: if self.sabotage == Sabotage::OneNumber { self.incarnation } else { self.starts },
            ..Limits::default()
        };
        let (broker, effects) = Broker::new(limits, lasting, 1, &self.kept, &self.listening, self.now);
        self.broker = Some(broker);
        self.perform(effects, &[]);
        // When a broker starts, it changes the counts of pin pages in the liveness table. This tells every publisher to
        // ask for its pin pages again. So `told_of` gets all pages.
        self.told_of.extend(self.kept.iter().copied());
        self.begin_table();
        self.notice_deaths();
    }

    pub fn event(&mut self, event: Event<'_>) {
        let Some(broker) = &mut self.broker else { return };
        let effects = broker.handle(self.now, event);
        self.perform(effects, &[]);
    }

    /// Gives the descriptors of a client's message as the broker sees them. With the planted bug
    /// [`Sabotage::AdoptAnything`], any offered memory appears to have the inode number of the segment's lost memory.
    pub fn seen(&self, descriptors: &[Descriptor], message: &[u8]) -> Vec<Descriptor> {
        let offer = Request::decode(message, descriptors.len()).ok().map(|(_, request)| request);
        match (offer, descriptors) {
            (Some(Request::Offer { segment }), [Descriptor::Memory { size, .. }])
                if self.sabotage == Sabotage::AdoptAnything =>
            {
                let number = self.model.numbers.get(&segment).copied().unwrap_or(0);
                vec![Descriptor::Memory { size: *size, number }]
            }
            _ => descriptors.to_vec(),
        }
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
                Effect::Make { segment, .. } | Effect::MakePage { page: segment, .. } => {
                    let works = !self.random.one_in(8);
                    if works {
                        self.keep(segment);
                    }
                    self.last_number += 1;
                    let outcome = if works { Ok(self.last_number) } else { Err("no memory".to_owned()) };
                    if self.fuse == Some(0) {
                        self.fuse = None;
                        return self.crash_broker();
                    }
                    self.event(Event::Made { outcome });
                }
                Effect::Site(_) | Effect::Nodes(_) | Effect::FetchItem { .. } => {
                    panic!("this daemon is no node of a site")
                }
                Effect::TellOfPage { .. } => self.tell_of_pages(),
                Effect::MakeItem { .. }
                | Effect::ProveItem { .. }
                | Effect::CutItem { .. }
                | Effect::CopyItem { .. }
                | Effect::Log { .. } => {
                    self.item_effect(effect);
                    if self.broker.is_none() {
                        return;
                    }
                }
                Effect::Adopt { segment } => {
                    let Some(Descriptor::Memory { number, .. } | Descriptor::Pool { number, .. }) = came.next() else {
                        panic!("only offered memory is adopted");
                    };
                    let known = self.model.sizes.contains_key(&segment);
                    let before = self.model.numbers.get(&segment).filter(|before| known && *before != number);
                    assert!(before.is_none(), "{segment} is other memory than it was");
                    if self.model.lost.contains(&segment) {
                        self.model.count("offered again", segment);
                    }
                    self.keep(segment);
                }
                Effect::Listen { endpoint } => {
                    assert_eq!(descriptors, [Descriptor::Listener], "only a listening socket is listened on");
                    self.listening.insert(endpoint);
                    if !self.starved {
                        self.keeper_listening.insert(endpoint);
                    }
                    self.model.deaf.remove(&endpoint);
                }
                Effect::Unlisten { endpoint } => {
                    if self.sabotage != Sabotage::KeepListening {
                        self.listening.remove(&endpoint);
                        self.keeper_listening.remove(&endpoint);
                    }
                }
                Effect::Forget { segment } => {
                    if self.sabotage != Sabotage::KeepRemoved {
                        self.kept.remove(&segment);
                        self.keeper.remove(&segment);
                        self.folder.remove(&segment);
                        // A client may still have the memory of a segment that was recorded. Without a record, the
                        // id is given out anew.
                        if !self.model.names.contains_key(&segment) {
                            self.model.numbers.remove(&segment);
                        }
                    }
                }
                Effect::ClearPins { page, from, count } => self.clear_pins(page, from, count),
                Effect::Alive { member } => self.set_alive(member),
                Effect::Dead { member } => {
                    self.check_death(member);
                    if self.sabotage != Sabotage::KeepTheDead {
                        self.set_dead(member);
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

    pub fn write_down(&mut self, record: &Record) {
        self.model.replaced(record);
        self.check_name(record);
        self.model.recorded(record);
        if let (Sabotage::FreeGhosts, Record::Ghost { member, .. }) = (self.sabotage, record) {
            return self.journal.push(encode(&Record::MemberGone { member: *member }));
        }
        let forgotten = match record {
            Record::Segment { .. } => self.sabotage == Sabotage::ForgetSegments,
            Record::Reserved { .. } => self.sabotage == Sabotage::ForgetReserves,
            Record::WorkflowEnd { .. } => self.sabotage == Sabotage::ForgetEnds,
            Record::PinTaken { .. } => self.sabotage == Sabotage::ForgetPins,
            Record::MayHold { .. } => self.sabotage == Sabotage::ForgetHolders,
            _ => false,
        };
        if !forgotten && !crate::items::forgotten(self.sabotage, record) {
            self.journal.push(encode(record));
        }
    }

    pub fn send(&mut self, connection: u64, message: Vec<u8>, with: Attachment) {
        if let Attachment::Segment { segment, .. } = with {
            assert!(self.kept.contains(&segment), "{segment} is given out but not kept");
        }
        if let Attachment::Series { pool, page, slot } = with {
            self.hand_page(connection, pool, page, slot);
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

    pub fn shift_limits(&mut self) {
        let event = match self.random.below(8) {
            0 => Event::Journal(Err("disk full".into())),
            1..=5 => Event::Journal(Ok(())),
            _ => Event::Free(self.random.below(1 << 22) as u64 + (1 << 20)),
        };
        self.event(event);
    }

    /// The broker keeps a new descriptor, and gives the keeper a copy, unless the keeper has no room for it.
    pub fn keep(&mut self, id: SegmentId) {
        self.kept.insert(id);
        self.model.kept(id);
        if !self.starved {
            self.keeper.insert(id);
        }
    }

    /// Keeps an item's new file, which has a name in the daemon's folder.
    pub fn keep_file(&mut self, file: SegmentId) {
        self.folder.insert(file);
        self.keep(file);
    }

    pub fn crash_broker(&mut self) {
        self.broker = None;
        self.copies.clear();
        for pipe in self.pipes.values_mut() {
            pipe.broker_closed = true;
            pipe.to_broker.clear();
        }
        self.clients.iter_mut().for_each(Client::forget_deadlines);
        self.lose_unheld();
    }

    /// Loses the descriptors that only the broker had. The next broker opens the items' files by their names.
    fn lose_unheld(&mut self) {
        for file in self.folder.clone() {
            self.keep(file);
        }
        let left: BTreeSet<_> = self.keeper.union(&self.folder).copied().collect();
        let lost: Vec<_> = self.kept.difference(&left).copied().collect();
        self.kept = left;
        for id in lost {
            let holders: BTreeSet<_> = (0..self.clients.len()).filter(|c| self.can_offer(*c, id)).collect();
            self.model.count(if holders.is_empty() { "lost for good" } else { "lost" }, id);
            self.model.lose(id, holders);
        }
        self.model.deaf.extend(self.listening.difference(&self.keeper_listening));
        self.listening = self.keeper_listening.clone();
    }

    /// Kills the broker and the keeper. All descriptors are lost, but the journal stays.
    pub fn crash_daemon(&mut self) {
        self.keeper.clear();
        self.folder.clear();
        self.keeper_listening = BTreeSet::from([0]);
        self.crash_broker();
        self.tables.push(crate::lives::Table::new());
        self.incarnation += 1;
        self.model.items.daemon_lost(&self.model.numbers);
    }
}
