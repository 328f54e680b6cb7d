//! Checks of the guarantees: what the broker has told clients must stay true.

use std::collections::BTreeSet;

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, SegmentId};
use crossdock_node::broker::{MAIN_ENDPOINT, Record};

use crate::world::{MEMORY, World};

impl World {
    /// Checks that the broker's state, the keeper, the liveness tables and the connections fulfil the guarantees.
    pub fn check(&mut self) {
        self.forget_holders();
        let Some(broker) = &self.broker else { return };
        broker.check_at_rest();
        let (lasting, model) = (broker.lasting(), &self.model);

        // No quota is exceeded, and each workflow counts exactly the bytes that its segments have reserved.
        let mut total = 0;
        for (number, workflow) in &lasting.workflows {
            let reserved: u64 = lasting.segments.values().filter(|s| s.workflow == *number).map(|s| s.reserved).sum();
            assert_eq!(reserved, workflow.reserved, "workflow {number} counts wrongly");
            let quota = model.workflows[number].quota;
            assert!(quota == 0 || reserved <= quota, "workflow {number} has {reserved} of {quota}");
            assert!(!model.ended.contains(number), "workflow {number} ended and is there");
            assert!(
                workflow.owner == MemberId::NONE || lasting.members.contains_key(&workflow.owner),
                "workflow {number} outlives its owner"
            );
            total += reserved;
        }
        assert_eq!(total, lasting.reserved);
        assert!(total <= MEMORY, "{total} of {MEMORY}");

        // Nothing belongs to a workflow that has ended. The keeper holds exactly the segments that have names.
        for (id, segment) in &lasting.segments {
            assert!(lasting.workflows.contains_key(&segment.workflow), "{id} outlives its workflow");
            let pages = segment.series.as_ref().map_or(0, crossdock_node::broker::Series::page_bytes);
            assert!(segment.reserved <= segment.size + pages, "{id} has reserved more than it has");
            let kept = lasting.descriptors_of(*id).iter().all(|id| self.kept.contains(id) || model.lost.contains(id));
            assert!(kept || segment.removed.is_some(), "{id} is not kept");
        }
        for id in &self.kept {
            let of = lasting.page_of(*id).map_or(*id, |(series, _)| series);
            assert!(lasting.segments.get(&of).is_some_and(|s| s.removed.is_none()), "{id} is kept without a name");
        }
        for endpoint in self.listening.iter().filter(|e| **e != MAIN_ENDPOINT) {
            assert!(lasting.endpoints.contains_key(endpoint), "endpoint {endpoint} is open after its workflow");
        }
        for (number, endpoint) in &lasting.endpoints {
            assert!(lasting.workflows.contains_key(&endpoint.workflow));
            assert!(self.listening.contains(number) || model.deaf.contains(number));
        }

        // Only living members have slots of pin pages.
        for (id, segment) in lasting.segments.iter().filter(|(_, s)| s.removed.is_none()) {
            for holder in segment.series.iter().flat_map(|s| s.pins.values()).map(|pin| pin.holder) {
                assert!(lasting.members.contains_key(&holder), "{holder} of {id} is gone and has a pin");
            }
        }

        let living: BTreeSet<_> = lasting.members.keys().chain(lasting.ghosts.keys()).copied().collect();
        self.check_lives();
        assert!(lasting.members.values().all(|m| lasting.workflows.contains_key(&m.workflow)));
        let slots: BTreeSet<_> = living.iter().map(|m| m.slot()).collect();
        assert_eq!(slots.len(), living.len(), "two members in one slot");

        // What the broker has told a client must still be true, however often the broker was killed since then.
        for (id, promise) in &model.promises {
            let found = lasting.segments.get(id).filter(|s| s.removed.is_none());
            let found = found.unwrap_or_else(|| panic!("{id} '{}' was lost", promise.name));
            assert_eq!((found.workflow, found.kind, &found.name), (promise.workflow, promise.kind, &promise.name));
            assert!(found.reserved >= promise.reserved, "{id} lost what was reserved");
        }
        self.check_items();
        self.check_answers();
    }

    /// Checks that every request that reached the broker is answered by its deadline.
    fn check_answers(&self) {
        for client in &self.clients {
            let Some(pipe) = client.connection.and_then(|c| self.pipes.get(&c)) else { continue };
            if pipe.broker_closed || !client.can_act() {
                continue;
            }
            for (number, asked) in client.asked.iter().chain(&client.offered) {
                let item = asked.cooperative.filter(|(item, _)| self.has_item(*item));
                if asked.due.into_iter().chain(item.map(|(_, due)| due)).any(|due| due < self.now) {
                    let is_it = |message: &[u8]| message[8..16] == number.to_le_bytes();
                    let waiting = pipe.to_client.iter().any(|(message, _)| is_it(message));
                    assert!(waiting, "request {number} of {} is overdue: {:?}", client.member, asked.request);
                }
            }
        }
    }

    fn has_item(&self, item: SegmentId) -> bool {
        self.broker.as_ref().is_some_and(|broker| broker.lasting().items.all.contains_key(&item))
    }

    /// Checks that a new segment takes no name from an older object that a client still has: a region or a port that the
    /// client has open, or a series that it publishes. Names may be taken only if a client has asked to remove or to
    /// replace the older object, or if its run has ended.
    pub fn check_name(&self, record: &Record) {
        let (segment, key) = match record {
            Record::Segment {
                segment, workflow, kind: kind @ (SegmentKind::Region | SegmentKind::Port), name, ..
            } => (segment, (*workflow, *kind, name.clone())),
            Record::Series { segment, workflow, name, .. } => (segment, (*workflow, SegmentKind::Series, name.clone())),
            _ => return,
        };
        let model = &self.model;
        for client in self.clients.iter().filter(|c| c.can_act() && !model.may_be_dead(c)) {
            let has = |id: &SegmentId| key.1 != SegmentKind::Series || client.series.contains_key(id);
            let same = |id: &SegmentId| id != segment && model.names.get(id) == Some(&key);
            let older = client.open.keys().find(|id| same(id) && has(id) && !model.may_be_nameless.contains(id));
            assert!(older.is_none(), "{segment} takes name {key:?}, and {} has {older:?}", client.member);
        }
    }

    /// Is called when all messages have arrived. Checks that the daemon has everything that connected clients can offer.
    pub fn check_offered(&mut self) {
        self.forget_holders();
        let Some(broker) = &self.broker else { return };
        let lasting = broker.lasting();
        let is_there = |number: usize| {
            let client = &self.clients[number];
            let pipe = client.connection.and_then(|c| self.pipes.get(&c));
            client.can_act() && client.welcome && pipe.is_some_and(|pipe| !pipe.broker_closed)
        };
        for (id, holders) in self.model.lost_promises() {
            let holder = holders.into_iter().find(|number| is_there(*number)).map(|number| self.clients[number].member);
            assert_eq!(holder, None, "{id} was not offered again");
        }
        for client in (0..self.clients.len()).filter(|c| is_there(*c)).map(|c| &self.clients[c]) {
            for endpoint in client.endpoints.keys().filter(|number| lasting.endpoints.contains_key(number)) {
                assert!(self.listening.contains(endpoint), "endpoint {endpoint} was not offered again");
            }
            for (pin, (_, page, _)) in &client.pins {
                let holder =
                    lasting.pin_of(*pin).and_then(|(id, pin)| lasting.segments[&id].series.as_ref()?.pins.get(&pin));
                let named = lasting.page_of(*page).is_some_and(|(id, _)| lasting.segments[&id].removed.is_none());
                let there = !named || holder.is_none_or(|pin| pin.holder != client.member) || self.kept.contains(page);
                assert!(there, "pin page {page} was not offered again");
            }
        }
    }

    /// Checks that a member which the broker declares dead has really ended: the kernel has released its lock on the
    /// roll.
    pub fn check_death(&self, member: MemberId) {
        assert!(!self.is_on_roll(member), "{member} is alive and was declared dead");
    }

    /// Checks that nothing is left after all clients have ended.
    pub fn check_nothing_left(&self) {
        let Some(broker) = &self.broker else { panic!("no broker at the end") };
        let lasting = broker.lasting();
        assert!(lasting.members.is_empty(), "members are left: {:?}", lasting.members);
        assert_eq!(lasting.workflows.len(), 1, "workflows are left: {:?}", lasting.workflows);
        assert!(lasting.endpoints.is_empty(), "endpoints are left");
        assert_eq!(self.listening, BTreeSet::from([0]));
        assert!(lasting.ghosts.is_empty(), "ghosts are left: {:?}", lasting.ghosts);
        self.check_all_dead();
        assert_eq!(broker.connections(), 0, "connections are left");
        assert!(lasting.segments.values().all(|s| s.removed.is_none()), "removed segments are left");
        let pinned = lasting.segments.values().filter_map(|s| s.series.as_ref()).any(|s| !s.pins.is_empty());
        assert!(!pinned, "pin pages are left to the dead");
        let left: Vec<_> = self.pages.iter().filter(|((page, _), _)| self.kept.contains(page)).collect();
        assert!(left.is_empty(), "pin pages of the dead are not cleared: {left:?}");
        // A pin page may be lost with a keeper although no client can offer it. Then the series continues without the page.
        let is_there = |id: &SegmentId| self.kept.contains(id) || lasting.page_of(*id).is_none();
        let named: BTreeSet<_> = lasting.segments.keys().flat_map(|id| lasting.descriptors_of(*id)).collect();
        let named: BTreeSet<_> = named.into_iter().filter(is_there).collect();
        assert_eq!(self.kept, named, "the keeper holds something else than the default workflow's segments");
    }
}
