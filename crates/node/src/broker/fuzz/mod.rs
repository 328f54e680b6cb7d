//! The functions by which the fuzzer tests the broker's state machine. They turn bytes into connections, messages of
//! any content, deaths, passing time and restarts. In a site, the bytes also become reports of the catalog, and
//! questions and answers of other nodes.

mod requests;
mod site;

use std::collections::BTreeSet;

use crossdock_layout::SegmentId;
use crossdock_layout::wire::{Answer, Request};

use super::{Attachment, Broker, Descriptor, Effect, Event, Lasting, Limits, MAIN_ENDPOINT, Peer, Verdict};
use crate::journal;
use requests::{hello, some_item_request, some_request};
use site::Site;

/// Drives a broker with events that the bytes describe. Checks that the broker never panics, never answers a connection
/// that it has closed, and never gives out a segment that the host does not hold. Also checks that its counters and
/// sums are right, and that its journal agrees with its memory.
pub fn fuzz(bytes: &[u8]) {
    World::new(None).run(bytes);
}

/// Works like [`fuzz`], but for the broker of a node in a site. Other nodes ask the broker questions, and answer its
/// questions truly or falsely. Also checks that the broker answers each question at most once, and gives other nodes
/// only files that the host holds.
pub fn fuzz_in_site(bytes: &[u8]) {
    World::new(Some(Site::default())).run(bytes);
}

struct World {
    broker: Broker,
    journal: Vec<u8>,
    held: BTreeSet<SegmentId>,
    listening: BTreeSet<u64>,
    open: BTreeSet<u64>,
    next: u64,
    now: u64,
    /// The copies that the broker has begun, each with its item and the file that gets the item's bytes.
    copies: Vec<(SegmentId, SegmentId)>,
    /// A number from which the kernel's next answers about items' files are chosen.
    verdicts: u8,
    /// The simulated catalog and the other nodes, if the broker belongs to a site.
    site: Option<Site>,
}

impl World {
    fn new(site: Option<Site>) -> Self {
        let mut world = Self {
            broker: Broker::new(Limits::default(), Lasting::default(), 1, &BTreeSet::new(), &BTreeSet::new(), 0).0,
            journal: Vec::new(),
            held: BTreeSet::new(),
            listening: BTreeSet::from([MAIN_ENDPOINT]),
            open: BTreeSet::new(),
            next: 1,
            now: 0,
            copies: Vec::new(),
            verdicts: 0,
            site,
        };
        world.restart();
        world
    }

    fn run(mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // The number of steps is limited, so that every input ends.
        for _ in 0..512 {
            let Some((op, tail)) = rest.split_first() else { break };
            rest = tail;
            self.step(*op, &mut rest);
        }
        self.check();
    }

    fn limits(&self) -> Limits {
        let site = self.site.as_ref().map(|_| site::limits());
        Limits { memory: 1 << 30, segments: 16, connections: 16, members: 8, site, ..Limits::default() }
    }

    fn restart(&mut self) {
        let mut lasting = Lasting::default();
        let good = journal::replay(&self.journal, |record| lasting.apply(&record));
        assert_eq!(good, self.journal.len(), "what was written can be read");
        self.open.clear();
        self.copies.clear();
        if let Some(site) = &mut self.site {
            site.forget();
        }
        let (broker, effects) = Broker::new(self.limits(), lasting, 1, &self.held, &self.listening, self.now);
        self.broker = broker;
        self.perform(effects);
    }

    fn step(&mut self, op: u8, rest: &mut &[u8]) {
        let argument = take(rest, 1).first().copied().unwrap_or(0);
        let connection = self.open.iter().copied().nth(usize::from(argument) % self.open.len().max(1)).unwrap_or(1);
        if self.site.is_some() && op >= 192 {
            return self.site_step(op, argument, rest);
        }
        match op % 12 {
            0 => {
                let endpoint = self.listening.iter().copied().nth(usize::from(argument) % self.listening.len());
                let peer = Peer { pid: argument.into(), birth: u64::from(argument % 3), uid: 0 };
                let connection = self.next;
                self.next += 1;
                self.open.insert(connection);
                self.event(Event::Connected { connection, endpoint: endpoint.unwrap_or(MAIN_ENDPOINT), peer });
                if argument & 1 == 0 {
                    self.say(connection, &hello(argument / 16), &[]);
                }
            }
            1 => {
                let length = usize::from(argument);
                self.say(connection, take(rest, length), &[Descriptor::Listener][..usize::from(op / 10 % 2)]);
            }
            2..=5 => {
                // A message that is nearly valid, with a few bytes changed.
                let mut message = some_request(argument).encode(u64::from(op / 10) + 2, 0);
                for change in take(rest, usize::from(op / 10 % 3) * 2).chunks(2) {
                    let at = usize::from(change[0]) * 2 % message.len();
                    message[at] ^= change.get(1).copied().unwrap_or(1);
                }
                let descriptors: &[Descriptor] = match some_request(argument) {
                    Request::MakeEndpoint { .. } | Request::Listen { .. } => &[Descriptor::Listener],
                    Request::Offer { .. } if argument & 128 != 0 => &[Descriptor::Pool { size: 65_536, number: 1 }],
                    Request::Offer { .. } => &[Descriptor::Memory { size: 4096, number: 1 }],
                    Request::Publish { .. } => &[Descriptor::Pool { size: 65_536, number: 1 }],
                    _ => &[],
                };
                if op >= 240 {
                    self.event(Event::Stripped { connection, bytes: &message });
                } else {
                    self.say(connection, &message, descriptors);
                }
            }
            6 => {
                self.open.remove(&connection);
                self.event(Event::Disconnected { connection });
            }
            7 => {
                let lasting = self.broker.lasting();
                let members: Vec<_> = lasting.members.keys().chain(lasting.ghosts.keys()).copied().collect();
                if let Some(member) = members.get(usize::from(argument) % members.len().max(1)) {
                    self.event(Event::ProcessDied { member: *member });
                }
            }
            10 => self.end_copy(argument),
            11 => {
                let message = Request::Item(some_item_request(argument)).encode(u64::from(op / 12) + 2, 0);
                self.say(connection, &message, &[]);
            }
            8 => {
                self.now += u64::from(argument) * 50;
                // In half of the cases no tick follows. Then the broker gets the next event after deadlines have
                // passed, and must handle these deadlines with that event.
                if op < 128 {
                    self.event(Event::Tick);
                }
            }
            _ => {
                if argument & 1 == 1 {
                    self.held.clear();
                    self.listening = BTreeSet::from([MAIN_ENDPOINT]);
                }
                self.restart();
            }
        }
    }

    fn say(&mut self, connection: u64, bytes: &[u8], descriptors: &[Descriptor]) {
        self.event(Event::Message { connection, bytes: Some(bytes), descriptors });
    }

    fn event(&mut self, event: Event<'_>) {
        let effects = self.broker.handle(self.now, event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Record(record) => self.journal.extend(journal::frame(&record)),
                Effect::Make { segment, .. } => {
                    self.held.insert(segment);
                    self.event(Event::Made { outcome: Ok(1) });
                }
                Effect::MakePage { page, .. } => {
                    self.held.insert(page);
                    self.event(Event::Made { outcome: Ok(1) });
                }
                Effect::TellOfPage { .. } => {}
                Effect::MakeItem { file, .. } => {
                    self.held.insert(file);
                    self.event(Event::Made { outcome: Ok(0) });
                }
                Effect::ProveItem { item, file, .. } => {
                    assert!(self.held.contains(&file), "a file is to be proved that is not held");
                    self.verdicts = self.verdicts.wrapping_mul(5).wrapping_add(1);
                    let verdict = match self.verdicts / 32 {
                        0 => Verdict::Clinging,
                        1 => Verdict::Unknown("lost".into()),
                        2 => Verdict::Reopenable,
                        3 => Verdict::Pulled,
                        4 => Verdict::Incomplete,
                        _ => Verdict::Alone,
                    };
                    self.event(Event::Proved { item, file, verdict });
                }
                Effect::CopyItem { item, to, .. } => {
                    self.held.insert(to);
                    self.copies.push((item, to));
                }
                Effect::FetchItem { to, pull, .. } => {
                    self.held.insert(to);
                    self.node_order(pull);
                }
                Effect::Site(order) => self.site_order(order),
                Effect::Nodes(order) => self.node_order(order),
                Effect::Log { .. } | Effect::CutItem { .. } => {}
                Effect::Adopt { segment } => drop(self.held.insert(segment)),
                Effect::Forget { segment } => drop(self.held.remove(&segment)),
                Effect::Listen { endpoint } => drop(self.listening.insert(endpoint)),
                Effect::Unlisten { endpoint } => drop(self.listening.remove(&endpoint)),
                Effect::ClearPins { page, .. } => assert!(self.held.contains(&page), "{page} is cleared but not held"),
                Effect::Alive { .. } | Effect::Dead { .. } => {}
                Effect::Send { connection, message, with } => {
                    assert!(self.open.contains(&connection), "an answer to a connection that is closed");
                    let (segment, pin) = match with {
                        Attachment::Segment { segment, .. } | Attachment::Item { file: segment, .. } => {
                            (Some(segment), None)
                        }
                        Attachment::Series { pool, page, .. } => (Some(pool), Some(page)),
                        Attachment::Nothing | Attachment::Papers { .. } => (None, None),
                    };
                    for segment in segment.into_iter().chain(pin) {
                        assert!(self.held.contains(&segment), "{segment} is given out but not held");
                    }
                    Answer::decode(&message, with.count()).expect("the broker's own words");
                }
                Effect::Close { connection, .. } => drop(self.open.remove(&connection)),
            }
        }
    }

    fn end_copy(&mut self, argument: u8) {
        if let Some((item, to)) = self.copies.pop() {
            let outcome = if argument % 4 == 0 { Err("no memory".to_owned()) } else { Ok(()) };
            self.event(Event::Copied { item, to, outcome });
        }
    }

    fn check(&mut self) {
        let lasting = self.broker.lasting().clone();
        let sum: u64 = lasting.segments.values().map(|s| s.reserved).sum();
        assert_eq!(sum, lasting.reserved);
        assert!(sum <= self.limits().memory);
        assert!(lasting.segments.values().all(|s| lasting.workflows.contains_key(&s.workflow)));
        let mut again = Lasting::default();
        journal::replay(&self.journal, |record| again.apply(&record));
        // When a member has confirmed an answer, the broker forgets the outcome of the member's request without a
        // record in the journal. So this check does not compare the outcomes in memory with those in the journal.
        let plain = |mut lasting: Lasting| {
            lasting.members.values_mut().for_each(|m| m.outcomes.clear());
            lasting
        };
        assert_eq!(plain(again), plain(lasting.clone()), "journal and memory differ");
        let mut compacted = Lasting::default();
        lasting.snapshot().iter().for_each(|record| compacted.apply(record));
        assert_eq!(compacted, lasting, "a compacted journal gives another state");
    }
}

fn take<'a>(rest: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, tail) = rest.split_at(most.min(rest.len()));
    *rest = tail;
    taken
}

#[cfg(test)]
mod tests {
    /// Gives `inputs` random inputs of `length` bytes to a fuzz target. The same seed gives the same inputs.
    fn try_random(mut state: u64, inputs: usize, length: usize, target: fn(&[u8])) {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for _ in 0..inputs {
            let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
            target(&bytes);
        }
    }

    #[test]
    fn inputs_that_once_found_a_defect_do_no_harm() {
        super::fuzz(include_bytes!("../../../../../fuzz/corpus/broker/number-of-a-create-used-again"));
        super::fuzz(include_bytes!("../../../../../fuzz/corpus/broker/number-of-a-create-used-for-a-publish"));
        super::fuzz_in_site(include_bytes!("../../../../../fuzz/corpus/site/proof-of-a-request-that-waited"));
        super::fuzz_in_site(include_bytes!("../../../../../fuzz/corpus/site/place-of-an-item-that-never-left"));
        super::fuzz_in_site(include_bytes!("../../../../../fuzz/corpus/site/mirror-that-was-removed-at-once"));
        super::fuzz_in_site(include_bytes!("../../../../../fuzz/corpus/site/mirror-that-was-lost-at-once"));
        super::fuzz_in_site(include_bytes!("../../../../../fuzz/corpus/site/cooperative-item-that-came"));
        super::fuzz_in_site(include_bytes!("../../../../../fuzz/corpus/site/contested-name-that-came-back"));
        super::fuzz_in_site(include_bytes!(
            "../../../../../fuzz/corpus/site/bytes-that-were-lost-after-their-item-left"
        ));
    }

    #[test]
    fn a_hundred_thousand_random_inputs_do_no_harm() {
        try_random(1, if cfg!(debug_assertions) { 20_000 } else { 100_000 }, 200, super::fuzz);
    }

    #[test]
    fn other_nodes_with_random_words_do_no_harm() {
        try_random(2, if cfg!(debug_assertions) { 10_000 } else { 100_000 }, 300, super::fuzz_in_site);
    }
}
