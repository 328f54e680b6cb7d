//! Gives an item to a member. First the kernel is asked whether another process has the item's file open. If one has,
//! the item is copied. Then the member gets the file's descriptor.

use crossdock_layout::wire::{Answer, ItemGiven, ItemLevel, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};

use super::change::Change;
use super::handover::Purpose;
use super::ownership::NextUser;
use super::queue::WaitPurpose;
use super::{ItemRecord, Phase, Verdict, memory_of};
use crate::broker::{Attachment, Broker, Cause, Due, Effect, Record, Requester};

/// After an item could not be opened for one request, the broker waits this long, in milliseconds, before it tries to
/// open the item for the next request.
pub(super) const AGAIN_MS: u64 = 300;

impl Broker {
    /// Gives the item to the waiting requests that can have it now, in the order of their arrival.
    pub(in crate::broker) fn serve_waiting(&mut self, item: SegmentId) {
        self.serve_readers(item);
        while let Some(user) = self.next_user(item) {
            let id = match user {
                NextUser::Here(id) => id,
                NextUser::There(node) => return self.serve_other_node(item, &node),
            };
            let cooperative = self.lasting.items.all[&item].level == ItemLevel::Cooperative;
            if cooperative {
                if let Some(wait) = self.unqueue(id) {
                    self.give_item(wait.asker, item, false);
                }
                continue;
            }
            match self.items.handovers.phase(item) {
                Phase::Open => {
                    self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::NextOwner });
                    return;
                }
                Phase::Away => return self.fetch_item(item),
                Phase::Draining { .. }
                | Phase::Proving { .. }
                | Phase::Copying { .. }
                | Phase::Fetching { .. }
                | Phase::Leaving { .. } => return,
                Phase::Proved => {}
            }
            // From now on the member whose request waited longest is the item's holder, until this member closes or
            // transfers the item.
            let Some(wait) = self.unqueue(id) else { return };
            if let Err((status, text)) = self.journalled() {
                self.fail(wait.asker, status, text);
                continue;
            }
            let Some(by) = self.party(wait.asker.member) else { continue };
            let cause = Cause { member: wait.asker.member, request: wait.asker.number };
            self.change_owner(item, Change::Opened { by, holder: wait.asker.member }, cause);
            self.give_item(wait.asker, item, false);
            if let Some(found) = self.lasting.items.all.get(&item) {
                let (workflow, key) = (found.workflow, found.key.clone());
                self.end_readiness(workflow, &key);
            }
            return;
        }
    }

    /// Begins the proof of an item whose next user is a task of another node. If no process can have the item's file
    /// open, passes the item to that node.
    fn serve_other_node(&mut self, item: SegmentId, node: &str) {
        match self.items.handovers.phase(item) {
            Phase::Open => drop(self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::NextOwner })),
            // The item can be passed on even if its bytes are still on another node. The next node then pulls the bytes
            // from that node.
            Phase::Proved | Phase::Away | Phase::Fetching { .. } => self.pass_item(item, node),
            Phase::Draining { .. } | Phase::Proving { .. } | Phase::Copying { .. } | Phase::Leaving { .. } => {}
        }
    }

    pub(super) fn serve_readers(&mut self, item: SegmentId) {
        if self.lasting.items.all.get(&item).is_none_or(|found| !found.shared) {
            return;
        }
        self.tell_nodes_of_sharing(item);
        while let Some(id) = self.first_waiting(item, WaitPurpose::Reading) {
            if let Some(wait) = self.unqueue(id) {
                self.give_item(wait.asker, item, false);
            }
        }
    }

    /// Sends the item's memory to a member that may have it.
    pub(super) fn give_item(&mut self, asker: Requester, item: SegmentId, created: bool) {
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        if self.lost.contains(found.file) {
            let text = self.why_lost(&(found.workflow, SegmentKind::Item, found.key.clone()));
            return self.fail(asker, Status::Busy, text);
        }
        let cooperative = found.level == ItemLevel::Cooperative;
        let mut given = ItemGiven {
            item,
            file: found.file,
            size: found.size,
            level: found.level,
            on_death: found.on_death,
            writable: !found.shared,
            created,
            words: [0; 2],
            creator: 0,
            key: found.key.clone(),
        };
        let (file, writable) = (given.file, given.writable);
        if cooperative {
            let (workflow, creator) = (found.workflow, found.creator.clone());
            match self.owner_words(asker.member, workflow, &creator) {
                Ok([own, any, creator]) => (given.words, given.creator) = ([own, any], creator),
                Err((status, text)) => return self.fail(asker, status, text),
            }
        }
        if cooperative || !writable {
            self.open_segments.open(file, asker.member);
        } else if let Some(listed) = self.items.resuming.get_mut(&asker.member) {
            // The member is still listing the items that it has open. The member gets this item only now, so the item
            // is added to its list here.
            listed.insert(item);
        }
        if matches!(self.items.handovers.phase(item), Phase::Proved) {
            self.items.handovers.enter(item, Phase::Open);
        }
        let with = if cooperative {
            Attachment::Segment { segment: file, writable: true }
        } else {
            Attachment::Item { file, writable }
        };
        let message = Answer::Item(given).encode(asker.opcode, asker.number);
        self.effects.push(Effect::Send { connection: asker.connection, message, with });
    }

    /// Handles the kernel's answer to the question whether any process has the item's file open.
    pub(in crate::broker) fn proved(&mut self, item: SegmentId, file: SegmentId, verdict: &Verdict) {
        let Some(found) = self.lasting.items.all.get(&item).filter(|i| i.file == file) else { return };
        let Phase::Proving { purpose } = *self.items.handovers.phase(item) else { return };
        match verdict {
            Verdict::Alone if found.level != ItemLevel::Strict => self.ready(item, purpose),
            Verdict::Incomplete if found.level != ItemLevel::Strict => self.give_incomplete(item, purpose),
            Verdict::Alone | Verdict::Incomplete | Verdict::Reopenable | Verdict::Pulled => {
                self.start_copy(item, purpose, false);
            }
            Verdict::Clinging => {
                let line = format!(
                    "item '{}' of workflow '{}': a former user clings to its memory; {} gets a copy",
                    found.key,
                    self.lasting.workflows.get(&found.workflow).map_or("", |w| &w.name),
                    found.owner
                );
                self.effects.push(Effect::Log { line });
                self.start_copy(item, purpose, true);
            }
            Verdict::Unknown(why) => self.cannot_give(item, &format!("its memory could not be checked: {why}")),
        }
    }

    /// Continues after the kernel proved that no other process has the item's file open. Answers the request that asked
    /// for the proof, and then the waiting requests.
    fn ready(&mut self, item: SegmentId, purpose: Purpose) {
        self.items.handovers.enter(item, Phase::Proved);
        let (asker, change) = match purpose {
            Purpose::NextOwner => return self.serve_waiting(item),
            Purpose::Share(asker) => (asker, Change::Shared),
            Purpose::Unshare(asker) => (asker, Change::Unshared),
        };
        debug_assert_eq!(self.lasting.items.all.get(&item).map(|i| i.holder), Some(asker.member), "not its owner's");
        self.change_owner(item, change, Cause { member: asker.member, request: asker.number });
        self.give_item(asker, item, false);
        self.serve_waiting(item);
    }

    /// Continues after the proof of a file of which some memory is or may be missing. A member that opens the file as the
    /// item's owner allocates the missing memory itself. Readers and other nodes do not, so they get a copy.
    fn give_incomplete(&mut self, item: SegmentId, purpose: Purpose) {
        match (purpose, self.next_user(item)) {
            (Purpose::Unshare(_), _) => self.ready(item, purpose),
            (Purpose::NextOwner, Some(NextUser::Here(_))) if self.journal.is_ok() => self.ready(item, purpose),
            // The file is proved anew as soon as there is a next user.
            (Purpose::NextOwner, None) => drop(self.items.handovers.enter(item, Phase::Open)),
            (Purpose::NextOwner | Purpose::Share(_), _) => self.start_copy(item, purpose, false),
        }
    }

    fn start_copy(&mut self, item: SegmentId, purpose: Purpose, clung: bool) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let what = format!("a copy of item '{}'", found.key);
        let memory = memory_of(found.size);
        let room = self.fits(found.workflow, memory, &what).and_then(|()| self.room(found.workflow, memory, &what));
        let room = room.and_then(|()| self.descriptors(found.workflow, 1, &what));
        let room = room.and_then(|()| self.journal.clone().map_err(|why| format!("the journal is full ({why})")));
        if let Err(why) = room {
            return self.cannot_give(item, &why);
        }
        let to = SegmentId(self.lasting.next_segment);
        self.file_record(to, found.workflow, &found.key, found.size, Cause::NONE);
        self.items.handovers.enter(item, Phase::Copying { to, clung, purpose });
        self.effects.push(Effect::CopyItem { item, from: found.file, to, size: memory });
    }

    /// Ends an attempt to prove or copy the item, because it failed. The request that needed the attempt fails. After a
    /// pause, the next request for the item tries again.
    fn cannot_give(&mut self, item: SegmentId, why: &str) {
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let text = format!("item '{}' cannot be opened anew: {why}", found.key);
        let asker = self.items.handovers.enter(item, Phase::Open).pending().or_else(|| {
            let id = self.first_waiting(item, WaitPurpose::Owning)?;
            self.unqueue(id).map(|wait| wait.asker)
        });
        if let Some(asker) = asker {
            self.fail(asker, Status::NoSpace, text);
        }
        self.serve_readers(item);
        self.serve_later(item);
    }

    /// If another request of this node waits for the item, serves it after a pause.
    pub(super) fn serve_later(&mut self, item: SegmentId) {
        if self.first_waiting(item, WaitPurpose::Owning).is_some() {
            self.waits.expect(self.now + AGAIN_MS, Due::Serve(item));
        }
    }

    /// Handles the host's report that an item's bytes were copied to the file `to`, or that the copying failed.
    pub(in crate::broker) fn copied(&mut self, item: SegmentId, to: SegmentId, outcome: Result<(), String>) {
        let Phase::Copying { to: target, clung, purpose } = *self.items.handovers.phase(item) else { return };
        if target != to {
            return;
        }
        if let Err(why) = outcome {
            self.drop_file(to, None);
            return self.cannot_give(item, &why);
        }
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let (old, size) = (found.file, found.size);
        self.commit(Record::Item(ItemRecord::Memory { item, file: to, size, clung, cause: Cause::NONE }));
        // If a former user still has the old file open, the file's memory stays allocated, so it still counts as used.
        // It counts as used by the file's known readers, or, if there are none, by the member that had the item open
        // last.
        let read = self.open_segments.is_open(old);
        let former = self.items.handovers.former(item).filter(|_| clung && !read);
        self.ready(item, purpose);
        // The old file is dropped after the answers, because members wait for the answers. If the broker is killed
        // before it drops the file, the next broker does it, because then the file belongs to no item.
        self.drop_file(old, former);
    }

    /// Closes a file that no item needs any more. Its memory counts against the quota as long as a member is known to
    /// have the file open.
    pub(super) fn drop_file(&mut self, file: SegmentId, clings: Option<MemberId>) {
        if let Some(member) = clings.filter(|m| self.lasting.members.contains_key(m)) {
            self.open_segments.open_once(file, member);
        }
        let holders = self.open_segments.of(file).collect();
        self.lost.remove(file);
        self.commit(Record::Removed { segment: file, holders, cause: Cause::NONE });
        self.effects.push(Effect::Forget { segment: file });
        self.release_if_unused(file);
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{ItemRequest, Party, Request};

    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{Event, Limits, MAIN_ENDPOINT};

    #[test]
    fn an_item_that_could_not_be_copied_for_one_request_is_copied_for_the_next_one() {
        let mut bench = Bench::new(Limits::default());
        for rank in 0..2 {
            bench.join(u64::from(rank) + 1, MAIN_ENDPOINT, "w", rank);
        }
        bench.join(3, MAIN_ENDPOINT, "a", 0);
        let item = bench.create(3, "x", ItemLevel::Strict);
        bench.ask_item(3, ItemRequest::Transfer { item, to: Party::task("w") });
        let access = Request::Item(ItemRequest::Access { read: false, wait_ms: 60_000, keys: vec!["x".into()] });
        let (first, second) = (bench.say(1, &access), bench.say(2, &access));
        let (item, to) = bench.copies.pop().unwrap();
        bench.event(Event::Copied { item, to, outcome: Err("no memory".into()) });
        assert_eq!(status(bench.answer(1, first)), Some(Status::NoSpace));
        assert_eq!(bench.answer(2, second), None);
        bench.tick(AGAIN_MS);
        let (item, to) = bench.copies.pop().expect("the item is copied again");
        bench.event(Event::Copied { item, to, outcome: Ok(()) });
        assert!(matches!(bench.answer(2, second), Some(Answer::Item(_))));
    }

    #[test]
    fn a_member_that_could_not_keep_the_descriptor_of_its_item_gets_the_item_again() {
        for level in [ItemLevel::Verified, ItemLevel::Cooperative] {
            let mut bench = Bench::new(Limits::default());
            let [_, b] = [(1, "a"), (2, "b")].map(|(c, task)| bench.join(c, MAIN_ENDPOINT, task, 0).unwrap());
            let item = bench.create(1, "x", level);
            if level != ItemLevel::Cooperative {
                bench.ask_item(1, ItemRequest::Transfer { item, to: Party::task("b") });
            }
            let access = Request::Item(ItemRequest::Access { read: false, wait_ms: 0, keys: vec!["x".into()] });
            let number = bench.say(2, &access);
            let first = bench.answer(2, number);
            let Some(Answer::Item(given)) = &first else { panic!("{first:?}") };
            bench.event(Event::Message {
                connection: 2,
                bytes: Some(&access.encode(number, number)),
                descriptors: &[],
            });
            assert_eq!(bench.answer(2, number), first);
            if level == ItemLevel::Cooperative {
                // The member closes what it has got twice, and keeps it once.
                bench.say(2, &Request::Detach { segment: given.file, count: 1 });
                assert!(bench.broker.open_segments.has(given.file, b));
                bench.say(2, &Request::Detach { segment: given.file, count: 1 });
                assert!(!bench.broker.open_segments.has(given.file, b));
            }
        }
    }

    #[test]
    fn a_file_that_lacks_memory_is_copied_only_for_users_that_take_none_themselves() {
        let mut bench = Bench::new(Limits::default());
        for (connection, task) in [(1, "a"), (2, "b"), (3, "c")] {
            bench.join(connection, MAIN_ENDPOINT, task, 0);
        }
        let item = bench.create(1, "x", ItemLevel::Verified);
        let access = || ItemRequest::Access { read: false, wait_ms: 1000, keys: vec!["x".into()] };
        bench.verdict = Verdict::Incomplete;
        // At the first transfer, no task waits for the item. At the second transfer, a task does.
        let to = |task: &str| ItemRequest::Transfer { item, to: Party::task(task) };
        assert!(matches!(bench.ask_item(1, to("b")), Some(Answer::Done { .. })));
        assert!(matches!(bench.ask_item(2, access()), Some(Answer::Item(_))));
        let waiting = bench.say(3, &Request::Item(access()));
        assert!(matches!(bench.ask_item(2, to("c")), Some(Answer::Done { .. })));
        assert!(matches!(bench.answer(3, waiting), Some(Answer::Item(_))));
        assert_eq!(bench.copies, []);
        let sharing = bench.say(3, &Request::Item(ItemRequest::Share { item }));
        assert_eq!(bench.answer(3, sharing), None, "the item is copied first");
        let (item, to) = bench.copies.pop().expect("a copy for the readers");
        bench.event(Event::Copied { item, to, outcome: Ok(()) });
        assert!(matches!(bench.answer(3, sharing), Some(Answer::Item(_))));
        let unshared = bench.ask_item(3, ItemRequest::Unshare { item, wait_ms: 0 });
        assert!(matches!(unshared, Some(Answer::Item(_))), "{unshared:?}");
        assert_eq!(bench.copies, []);
    }

    #[test]
    fn an_item_is_not_opened_while_the_journal_has_no_room() {
        let mut bench = Bench::new(Limits::default());
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        let item = bench.create(1, "x", ItemLevel::Verified);
        bench.ask_item(1, ItemRequest::Release { item });
        bench.event(Event::Journal(Err("the disk is full".into())));
        let access = || ItemRequest::Access { read: false, wait_ms: 1000, keys: vec!["x".into()] };
        bench.effects.clear();
        assert_eq!(status(bench.ask_item(1, access())), Some(Status::NoSpace));
        assert!(!bench.effects.iter().any(|effect| matches!(effect, Effect::Record(_))), "{:?}", bench.effects);
        bench.event(Event::Journal(Ok(())));
        assert!(matches!(bench.ask_item(1, access()), Some(Answer::Item(_))));
    }
}
