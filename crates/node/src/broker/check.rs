//! The invariants of a broker, which hold between any two events.
//!
//! Debug builds check the invariants after every event, and the simulator checks them after every step. A broker that
//! violates an invariant has a defect, whatever its clients and its journal said.

use std::collections::BTreeSet;

use crossdock_layout::wire::PIN_SLOTS;

use super::{Broker, Due, Effect, Event, MAIN_ENDPOINT, Record};

impl Broker {
    /// Panics if an invariant is violated.
    pub fn check(&self) {
        self.check_links();
        self.check_waits();
        self.check_segments();
        self.lasting.check_moving();
        self.check_items();
        self.check_site();
        self.check_ids();
    }

    /// Panics if the effects of one event ask the host first to prove an item and later to make a segment. The host
    /// reports the outcome of the proof before it makes the segment. The outcome may begin a copy of the item, and the
    /// copy would take the id that was meant for the segment. Also panics if a segment is recorded under an id with
    /// which the host is asked to make another segment.
    fn check_ids(&self) {
        let mut behind_a_proof = false;
        let mut making = None;
        for effect in &self.effects {
            match effect {
                Effect::ProveItem { .. } => behind_a_proof = true,
                Effect::Make { segment: id, .. } | Effect::MakeItem { file: id, .. } => {
                    assert!(!behind_a_proof, "{id} is to be made behind a proof, which may take the same id");
                    making = Some(*id);
                }
                Effect::Record(Record::Segment { segment: id, .. }) => {
                    assert_ne!(making, Some(*id), "{id} is to be made, and is recorded as another segment");
                }
                _ => {}
            }
        }
    }

    /// Panics if an invariant is violated, or if the host has left an effect undone. Between two events the host has
    /// carried out all effects.
    pub fn check_at_rest(&self) {
        self.check();
        assert!(self.effects.is_empty(), "effects were left over");
        assert!(self.making.is_none(), "a segment was asked for and never made");
        self.pages.check_at_rest();
        self.check_items_at_rest();
    }

    /// Panics if the host reports another event although it has not yet answered the broker's requests to make memory,
    /// or not yet reported the kernel's answers about items.
    pub(super) fn check_before(&self, event: &Event<'_>) {
        if !matches!(event, Event::Proved { .. } | Event::Made { .. }) {
            assert!(!self.is_making(), "another event comes while memory is being made: {event:?}");
            self.check_items_at_rest();
        }
    }

    fn check_links(&self) {
        for (connection, link) in &self.links {
            match link.member {
                Some(member) => {
                    assert_eq!(self.connected.get(&member), Some(connection), "{member} is connected by another one");
                    assert!(self.lasting.members.contains_key(&member), "{member} is gone and connected");
                }
                None => {
                    let silent = self.silent.get(&link.endpoint).is_some_and(|s| s.contains(connection));
                    assert!(silent, "connection {connection} is no member's and is not waited for");
                    let due = Due::Hello(*connection);
                    assert!(
                        self.waits.expects(link.hello_due, due),
                        "connection {connection} has no deadline for its hello"
                    );
                }
            }
            let parked = self.waits.of_connection(*connection).len();
            let waiting = self.items.waiting_of(*connection);
            assert_eq!(link.parked, parked + waiting, "connection {connection} counts its waiting requests wrongly");
            let known = link.endpoint == MAIN_ENDPOINT || self.lasting.endpoints.contains_key(&link.endpoint);
            assert!(known, "connection {connection} outlives its endpoint");
        }
        for (member, connection) in &self.connected {
            let link = self.links.get(connection);
            assert!(link.is_some_and(|l| l.member == Some(*member)), "{member} is connected by nothing");
        }
        let silent: usize = self.silent.values().map(|s| s.len()).sum();
        assert_eq!(
            silent,
            self.links.values().filter(|l| l.member.is_none()).count(),
            "the silent are counted wrongly"
        );
        let lasting = &self.lasting;
        let holders = lasting.members.len() + lasting.ghosts.len();
        assert_eq!(lasting.slots.len(), holders, "two members have one slot, or a slot is kept for no member");
        for member in self.listed.iter().chain(&self.unlisted) {
            assert!(lasting.members.contains_key(member), "{member} is gone, and its list of what it has open counts");
        }
        for member in self.progress.keys() {
            assert!(self.lasting.members.contains_key(member), "{member} is gone and reports progress");
        }
        for member in self.heard.keys() {
            assert!(self.lasting.members.contains_key(member), "{member} is gone and was heard");
        }
    }

    fn check_waits(&self) {
        // While the host makes memory, the broker does not act on deadlines. So deadlines that have passed may still be
        // set.
        let done = if self.is_making() { 0 } else { self.now };
        self.waits.check(done, |at, due| match due {
            Due::Hello(connection) => self.links.get(&connection).is_some_and(|link| link.hello_due == at),
            Due::Item(connection, number) => self.items.waits_until(connection, number, at),
            Due::AskOwner(connection, number) => self.items.asks_at(connection, number, at),
            // A deadline of one of these kinds may remain after its purpose has ended, for example after a question was
            // answered. When it passes, the broker does nothing.
            Due::Serve(_) | Due::Readers(_) | Due::ReadAgain(..) | Due::LookUp | Due::Ahead | Due::Moves => true,
            Due::Parked(..) => false,
        });
        // A request ends with its connection. So the requests that wait on existing connections are all the requests
        // that wait.
        let of_links: usize = self.links.keys().map(|connection| self.waits.of_connection(*connection).len()).sum();
        assert_eq!(of_links, self.waits.parked(), "a request outlives its connection");
    }

    fn check_segments(&self) {
        self.open_segments.check(&self.lasting);
        self.pages.check(&self.lasting);
        self.check_lost();
        for segment in self.lost.all() {
            let there = self.lasting.of(segment).is_some_and(|(_, s)| s.removed.is_none());
            assert!(there, "{segment} is waited for and has no name");
        }
        for segment in self.unused.keys() {
            let there = self.lasting.segments.get(segment).is_some_and(|s| s.removed.is_none());
            assert!(there, "{segment} is unused and has no name");
        }
        for (id, found) in &self.lasting.segments {
            assert!(found.handed_over.is_none() || found.moving, "{id} was handed over and does not move");
            let Some(series) = &found.series else { continue };
            assert!(series.pages.len() <= series.observers as usize, "{id} has more pin pages than observers");
            assert!(
                series.pins.len() <= series.observers as usize,
                "{id} has more observers than it was published for"
            );
            let slots = series.pages.len() as u32 * PIN_SLOTS;
            assert!(series.pins.values().all(|pin| pin.slot < slots), "{id} has an observer without a page");
            let taken: BTreeSet<_> = series.pins.values().map(|pin| pin.slot).collect();
            assert_eq!(taken.len(), series.pins.len(), "two observers of {id} have one slot");
            assert!(series.pins.keys().all(|pin| *pin < series.observers), "an observer's number of {id} is too high");
        }
        for endpoint in &self.deaf {
            assert!(self.lasting.endpoints.contains_key(endpoint), "endpoint {endpoint} is gone and waited for");
        }
        for (segment, found) in self.lasting.segments.iter().filter(|(_, s)| s.removed.is_some()) {
            let held = self.open_segments.is_open(*segment);
            assert!(held, "{} {segment} is removed, no member has it open, and it counts", found.kind.word());
        }
    }
}
