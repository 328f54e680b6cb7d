//! What happens to items when a member closes one or dies, and when an item or a workflow ends. Also what a new broker
//! does about items when it starts.

use std::collections::BTreeSet;

use crossdock_layout::wire::{Answer, ItemLevel, ItemRequest, OnDeath, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};

use super::change::Change;
use super::{ItemRecord, Phase};
use crate::broker::{Broker, Cause, Effect, Outcome, Record, Requester};

impl Broker {
    /// Notes that a member has closed an item. The item still belongs to its task.
    pub(super) fn release_item(&mut self, member: MemberId, item: SegmentId) {
        if self.lasting.items.all.get(&item).is_none_or(|i| i.holder != member) {
            return;
        }
        self.abandon(item, "its owner closed it");
        self.items.handovers.set_former(item, member);
        self.change_owner(item, Change::Closed, Cause::NONE);
        self.serve_waiting(item);
    }

    /// Fails the owner's waiting request to share the item or to write it again, if there is such a request.
    fn abandon(&mut self, item: SegmentId, why: &str) {
        if let Some(asker) = self.items.handovers.drop_pending(item) {
            self.refuse_abandoned(asker, item, why);
        }
    }

    fn refuse_abandoned(&mut self, asker: Requester, item: SegmentId, why: &str) {
        self.unqueue((asker.connection, asker.number));
        if self.links.contains_key(&asker.connection) {
            self.fail(asker, Status::Denied, format!("item {} did not get there: {why}", item.0));
        }
    }

    /// Handles one entry of the list in which a returning member names the items that it has open. The entry 0 ends the
    /// list. Then all items that the member did not name count as closed by the member.
    pub(super) fn hold_item(&mut self, member: MemberId, item: SegmentId) {
        if item.0 != 0 {
            if self.lasting.items.all.get(&item).is_some_and(|found| found.holder == member) {
                self.items.resuming.entry(member).or_default().insert(item);
            }
            return;
        }
        let listed = self.items.resuming.remove(&member).unwrap_or_default();
        let held = self.lasting.items.all.iter().filter(|(id, i)| i.holder == member && !listed.contains(id));
        for item in held.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.release_item(member, item);
        }
    }

    /// Notes that a member has connected again and now lists the items that it has open.
    pub(in crate::broker) fn begin_list_of_items(&mut self, member: MemberId) {
        self.items.resuming.insert(member, BTreeSet::new());
    }

    /// Forgets which items a member has listed so far. The member begins a new list when it connects again.
    pub(in crate::broker) fn forget_listed_items(&mut self, member: MemberId) {
        self.items.resuming.remove(&member);
    }

    /// Applies the `on_death` policies to the items that a member owned, just before the member is removed.
    pub(in crate::broker) fn items_of_gone(&mut self, member: MemberId) {
        self.items.resuming.remove(&member);
        let Some(known) = self.lasting.members.get(&member) else { return };
        if known.peer.is_daemon() {
            // The daemon itself was this member: it used a port for a task of another node. The end of the member is
            // not the end of the task, so the task's items stay as they are.
            return;
        }
        let workflow = known.workflow;
        let of_workflow = self.lasting.items.all.iter().filter(|(_, i)| i.workflow == workflow);
        let hit = of_workflow.filter(|(id, i)| match i.level {
            // The daemon does nothing: the tasks that use a cooperative item see its holder in shared memory, and find
            // out themselves that the holder is dead.
            ItemLevel::Cooperative => false,
            // The item is about to go to another node, so its `on_death` policy is not applied on this node. If the
            // item stays on this node after all, the broker serves the requests that wait for it.
            _ if self.lasting.items.is_leaving(**id) => false,
            _ if i.holder == member => true,
            _ => {
                i.holder == MemberId::NONE
                    && i.on_death != OnDeath::Keep
                    && self.is_of(member, workflow, &i.owner)
                    && !self.lives(workflow, &i.owner, member)
            }
        });
        for item in hit.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.item_orphaned(item, member);
        }
    }

    fn item_orphaned(&mut self, item: SegmentId, member: MemberId) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        self.abandon(item, "its owner is gone");
        self.items.handovers.set_former(item, member);
        match found.on_death {
            OnDeath::Destroy => self.end_item(item, &format!("its owner, {}, is gone", found.owner), Cause::NONE),
            OnDeath::Return if found.owner != found.creator => {
                self.change_owner(item, Change::Transferred { to: found.creator }, Cause::NONE);
                self.serve_waiting(item);
                self.end_readiness(found.workflow, &found.key);
            }
            _ => {
                self.change_owner(item, Change::Closed, Cause::NONE);
                self.serve_waiting(item);
            }
        }
    }

    /// Ends an item. Its memory is freed when the last member closes it.
    pub(super) fn end_item(&mut self, item: SegmentId, why: &str, cause: Cause) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let (has_its_key, has_its_name) = (self.has_its_key(item), self.has_its_name(item));
        self.commit(Record::Item(ItemRecord::Gone { item, cause }));
        self.items.lost.forget(&(found.workflow, found.key.clone()));
        self.items.readers.end(item);
        self.forget_entry(item);
        if found.file.0 != 0 {
            self.drop_file(found.file, None);
        }
        let phase = self.items.handovers.end(item);
        if let Phase::Copying { to, .. } | Phase::Fetching { to } = phase {
            self.drop_file(to, None);
        }
        if let Some(asker) = phase.pending() {
            self.refuse_abandoned(asker, item, why);
        }
        // If the item's name belongs to another item in the site, the requests for the item's key wait for that other
        // item. So these requests do not fail here.
        if has_its_name {
            self.tell_waiting_of_end(found.workflow, &found.key, why);
        }
        if has_its_key {
            self.items.readers.forget_wanted(found.workflow, &found.key);
            self.tell_nodes_of_end(item, found.workflow, &found.key, why);
        }
    }

    /// Ends an item whose key belongs to another item now, unless a member has the first item open. No request can open
    /// the first item any more.
    pub(super) fn end_nameless(&mut self, item: SegmentId) {
        let Some(found) = self.lasting.items.all.get(&item).filter(|found| found.holder == MemberId::NONE) else {
            return;
        };
        if self.has_its_key(item) || self.lasting.items.is_leaving(item) {
            return;
        }
        // A cooperative item has no holder here: the members that have it open hand it over among themselves.
        if found.level == ItemLevel::Cooperative && self.item_users(item).is_some() {
            self.items.nameless.insert(item);
            return;
        }
        let why = "its name is another item's, which came from another node";
        self.effects.push(Effect::Log { line: format!("item {} ('{}') ends: {why}", item.0, found.key) });
        self.end_item(item, why, Cause::NONE);
    }

    /// Ends the cooperative items that have lost their keys to other items, if no member has them open any more.
    pub(in crate::broker) fn settle_nameless(&mut self) {
        for item in std::mem::take(&mut self.items.nameless) {
            self.end_nameless(item);
        }
    }

    /// Forgets all items of a workflow that is ending.
    pub(in crate::broker) fn forget_items_of(&mut self, workflow: u64) {
        let items = self.lasting.items.all.iter().filter(|(_, i)| i.workflow == workflow).map(|(id, _)| *id);
        for item in items.collect::<Vec<_>>() {
            self.items.handovers.end(item);
            self.items.readers.end(item);
        }
        self.items.readers.forget_workflow(workflow);
        self.items.lost.forget_workflow(workflow);
        self.forget_copies_of(workflow);
        for member in self.lasting.members_of(workflow) {
            self.items.resuming.remove(&member);
        }
    }

    /// Ends an item whose memory was lost with the keeper, and which no member can offer any more.
    pub(in crate::broker) fn item_lost(&mut self, file: SegmentId) {
        let Some(item) = self.lasting.items.files.get(&file).copied() else { return };
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let key = (found.workflow, found.key.clone());
        self.end_item(item, "its memory was lost with the daemon", Cause::NONE);
        self.items.lost.insert(item, key);
        self.forget_making(item);
    }

    /// Tells whether an item of this key was lost with a former daemon.
    pub(in crate::broker) fn was_lost_with_daemon(&self, workflow: u64, key: &str) -> bool {
        self.items.lost.has(&(workflow, key.to_owned()))
    }

    /// After the broker's start: ends items without memory, removes files without an item, and notes that the kernel
    /// has proved nothing about any item's file.
    pub(in crate::broker) fn recover_items(&mut self, held: &BTreeSet<SegmentId>) {
        let files = self.lasting.segments.iter();
        let files = files.filter(|(_, s)| s.kind == SegmentKind::Item && s.removed.is_none()).map(|(id, _)| *id);
        for file in files.collect::<Vec<_>>() {
            let item = self.lasting.items.files.get(&file).copied();
            let level = item.and_then(|i| self.lasting.items.all.get(&i)).map(|i| i.level);
            match level {
                // A file without an item belongs to an unfinished copy, or to an item that was not completed. The
                // broker keeps such a file only if another node has yet to pull its bytes.
                None if held.contains(&file) && self.lasting.items.is_left_behind(file) => {}
                None => self.drop_left_file(file),
                Some(ItemLevel::Cooperative) => {}
                Some(_) if !held.contains(&file) => self.item_lost(file),
                Some(_) => {}
            }
        }
        let known = |m: &MemberId| *m == MemberId::NONE || self.lasting.members.contains_key(m);
        let orphans = self.lasting.items.all.iter().filter(|(_, i)| !known(&i.holder));
        for (item, holder) in orphans.map(|(id, i)| (*id, i.holder)).collect::<Vec<_>>() {
            self.item_orphaned(item, holder);
        }
        for item in self.lasting.items.all.keys() {
            self.items.handovers.begin(*item, self.now);
        }
        self.recover_residences();
        for item in self.lasting.items.all.keys().copied().collect::<Vec<_>>() {
            self.end_nameless(item);
        }
    }

    /// Answers a repeated request about items, whose first answer was lost with the former broker.
    pub(in crate::broker) fn repeat_item(&mut self, asker: Requester, request: ItemRequest, outcome: Outcome) {
        let gives = matches!(
            request,
            ItemRequest::Create { .. }
                | ItemRequest::Access { .. }
                | ItemRequest::Share { .. }
                | ItemRequest::Unshare { .. }
                | ItemRequest::Resize { .. }
        );
        let done = matches!(
            request,
            ItemRequest::Transfer { .. }
                | ItemRequest::Destroy { .. }
                | ItemRequest::Policy { .. }
                | ItemRequest::Register { .. }
        );
        match (outcome, request) {
            (Outcome::Made(item), request) if gives => {
                let found = self.lasting.items.all.get(&item);
                let mine = found.is_some_and(|i| i.holder == asker.member || i.level == ItemLevel::Cooperative);
                match (mine, found.map(|i| i.key.clone()), request) {
                    // A request is repeated only if its first answer did not arrive. So the member does not know yet
                    // that it has made the item.
                    (true, _, ItemRequest::Create { .. }) => self.give_item(asker, item, true),
                    (true, ..) => self.give_item(asker, item, false),
                    // The member has connected again, and did not list this item among those that it has open. So the
                    // request is served anew.
                    (false, Some(key), ItemRequest::Create { .. }) => {
                        let access = ItemRequest::Access { read: false, wait_ms: 0, keys: vec![key] };
                        self.serve_item(asker, access);
                    }
                    (false, _, request @ ItemRequest::Access { .. }) => self.serve_item(asker, request),
                    (false, Some(_), _) => {
                        let text = format!("item {} is not open here any more", item.0);
                        self.fail(asker, Status::Denied, text);
                    }
                    (false, None, _) => {
                        let text = format!("item {} is not there any more: it was destroyed", item.0);
                        self.fail(asker, Status::NotFound, text);
                    }
                }
            }
            (Outcome::Done(value), _) if done => self.answer(asker, &Answer::Done { value }),
            _ => self.expel(asker.connection, "it used a request number for two requests"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::{Event, Limits, MAIN_ENDPOINT};
    use crossdock_layout::wire::{Answer, OnDeath, Request};

    #[test]
    fn a_list_of_items_that_the_member_does_not_hold_takes_no_memory() {
        let mut bench = Bench::new(Limits::default());
        let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
        let held = bench.create(1, "x", ItemLevel::Verified);
        for item in 0..1000 {
            bench.ask_item(1, ItemRequest::Hold { item: SegmentId(held.0 + item) });
        }
        assert_eq!(bench.broker.items.resuming[&member], BTreeSet::from([held]));
        bench.ask_item(1, ItemRequest::Hold { item: SegmentId(0) });
        assert_eq!(bench.broker.lasting.items.all[&held].holder, member);
    }

    #[test]
    fn a_request_to_make_an_item_that_is_repeated_before_the_members_list_ends_says_that_the_item_was_made() {
        for level in [ItemLevel::Cooperative, ItemLevel::Verified] {
            for restarts in [0, 1, 2] {
                let mut bench = Bench::new(Limits::default());
                let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
                let create = ItemRequest::Create { size: 5000, level, on_death: OnDeath::Keep, key: "x".into() };
                let create = Request::Item(create);
                let number = if restarts == 0 { 1000 } else { bench.say(1, &create) };
                // If `restarts` is 0, the broker is not restarted. Instead, the member's connection is lost before the
                // member's request `create` has arrived.
                let mut last = 1;
                for connection in (1..=restarts.max(1)).map(|restart| restart * 100 + 1) {
                    match restarts {
                        0 => bench.event(Event::Disconnected { connection: last }),
                        _ => bench.restart(),
                    }
                    assert_eq!(bench.hello(connection, MAIN_ENDPOINT, "t", 0, member), Some(member));
                    bench.say(connection, &Request::Hold { segment: SegmentId(0), count: 0 });
                    let message = create.encode(number, 0);
                    bench.event(Event::Message { connection, bytes: Some(&message), descriptors: &[] });
                    bench.ask_item(connection, ItemRequest::Hold { item: SegmentId(0) });
                    last = connection;
                }
                let Some(Answer::Item(given)) = bench.answer(last, number) else { panic!("no item") };
                assert!(given.created, "{level:?}, {restarts}");
                let held = level == ItemLevel::Verified;
                let holder = bench.broker.lasting.items.all[&given.item].holder;
                assert_eq!(holder == member, held, "{level:?}, {restarts}");
                let destroyed = bench.ask_item(last, ItemRequest::Destroy { item: given.item });
                assert!(matches!(destroyed, Some(Answer::Done { .. })), "{destroyed:?}");
            }
        }
    }

    #[test]
    fn a_repeated_request_to_make_an_item_says_that_the_item_was_made() {
        for level in [ItemLevel::Cooperative, ItemLevel::Verified] {
            let mut bench = Bench::new(Limits::default());
            let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
            let create = ItemRequest::Create { size: 5000, level, on_death: OnDeath::Keep, key: "x".into() };
            let number = bench.say(1, &Request::Item(create.clone()));
            let first = bench.answer(1, number);
            assert!(matches!(&first, Some(Answer::Item(given)) if given.created), "{first:?}");
            bench.restart();
            assert_eq!(bench.hello(101, MAIN_ENDPOINT, "t", 0, member), Some(member));
            let message = Request::Item(create).encode(number, 0);
            bench.event(Event::Message { connection: 101, bytes: Some(&message), descriptors: &[] });
            let second = bench.answer(101, number);
            assert!(matches!(&second, Some(Answer::Item(given)) if given.created), "{level:?}: {second:?}");
        }
    }
}
