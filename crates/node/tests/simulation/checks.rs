//! Checks of the guarantees: what the broker has told clients must stay true.

use std::collections::BTreeSet;

use crossdock_layout::{MemberId, SegmentId};
use crossdock_node::broker::MAIN_ENDPOINT;

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
                if asked.due.is_some_and(|due| due < self.now) {
                    let is_it = |message: &[u8]| message[8..16] == number.to_le_bytes();
                    let waiting = pipe.to_client.iter().any(|(message, _)| is_it(message));
                    assert!(waiting, "request {number} of {} is overdue: {:?}", client.member, asked.request);
                }
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
        // If a pin page was lost with a keeper and nobody had a descriptor of it any more, the series goes on without it.
        let is_there = |id: &SegmentId| self.kept.contains(id) || lasting.page_of(*id).is_none();
        let named: BTreeSet<_> = lasting.segments.keys().flat_map(|id| lasting.descriptors_of(*id)).collect();
        let named: BTreeSet<_> = named.into_iter().filter(is_there).collect();
        assert_eq!(self.kept, named, "the keeper holds something else than the default workflow's segments");
    }
}
