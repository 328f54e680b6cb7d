//! Waiting for items: requests wait in the order of arrival, up to a deadline, for any of several items.

use crossdock_layout::wire::{ItemLevel, ItemRequest, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::find::Patience;
use super::handover::Purpose;
use super::queue::{RequestId, Wait, WaitPurpose};
use super::{Phase, Refusal};
use crate::broker::{Broker, Connection, Due, NodeFailure, PARKED, Requester};

/// A request whose member asked not to wait does not wait for the item's owner. But if the item must first be copied or
/// pulled from another node, the request waits up to this time, in milliseconds. All other requests end by their
/// deadlines; the copy or pull goes on without them.
const READY_MS: u64 = 60_000;
/// A request waits at most this much longer than the member asked for, if another node has not answered yet.
const GRACE_MS: u64 = 1_000;

impl Broker {
    pub(super) fn access_item(
        &mut self,
        asker: Requester,
        read: bool,
        wait_ms: u64,
        keys: Vec<String>,
        look_up: Patience,
    ) -> Result<(), Refusal> {
        let Some((_, workflow)) = self.place(asker) else { return Ok(()) };
        self.may_access(asker, read, &keys)?;
        let abroad = keys.iter().any(|key| self.item_elsewhere(workflow, key).is_some());
        let items: Vec<_> = keys.iter().filter_map(|k| self.key(workflow, k)).collect();
        let own = items.iter().filter(|i| self.lasting.items.all[i].holder == asker.member);
        if let Some(item) = own.copied().next().filter(|_| !read && items.len() == keys.len()) {
            let all = items.iter().all(|i| self.lasting.items.all[i].holder == asker.member);
            if all {
                let key = &self.lasting.items.all[&item].key;
                let text = format!("item '{key}' is open in this session already; one at a time may use it");
                return Err((Status::Busy, text));
            }
        }
        let what = if read { WaitPurpose::Reading } else { WaitPurpose::Owning };
        // An item that needs no proof comes first: the proof of another one may fail.
        let at_once = items.iter().copied().find(|item| !read && self.has_at_once(*item, asker.member));
        let ready = at_once.or_else(|| items.into_iter().find(|item| self.could_have(*item, what, asker.member)));
        if ready.is_none() && wait_ms == 0 && !abroad {
            return Err(self.not_yet(&keys, workflow, read));
        }
        // Even if the member asked not to wait, its request has to wait for the answer of the other node.
        let patience = if wait_ms == 0 { READY_MS } else { wait_ms };
        self.await_for(asker, what, patience, wait_ms, keys, look_up)?;
        match ready {
            Some(item) => self.serve_waiting(item),
            None => self.ask_for_items((asker.connection, asker.number)),
        }
        Ok(())
    }

    /// Tells whether the asking member's task may open these items.
    pub(super) fn may_access(&self, asker: Requester, read: bool, keys: &[String]) -> Result<(), Refusal> {
        for key in keys {
            if read && !self.item_rights(asker, key).contains(Rights::READ) {
                let rights = self.item_rights(asker, key).words();
                let text = format!("this task may not read item '{key}': its grant says {rights}");
                return Err((Status::Denied, text));
            }
            if !read {
                self.may_own(asker, key)?;
            }
        }
        Ok(())
    }

    /// Gives the item on this node that has this key, if the item's name belongs to this node.
    pub(super) fn key(&self, workflow: u64, key: &str) -> Option<SegmentId> {
        let item = self.lasting.items.of_key(workflow, key);
        item.filter(|_| !self.is_contested(workflow, key))
    }

    /// Tells whether this member may open the item now, or as soon as the item's transfer is proved.
    pub(super) fn could_have(&self, item: SegmentId, what: WaitPurpose, member: MemberId) -> bool {
        let Some(found) = self.lasting.items.all.get(&item) else { return false };
        let lost = self.lost.contains(found.file);
        match what {
            WaitPurpose::Reading => {
                let phase = self.items.handovers.phase(item);
                found.shared && !phase.ends_sharing() && !matches!(phase, Phase::Leaving { .. })
            }
            WaitPurpose::Owning if found.level == ItemLevel::Cooperative => !lost,
            WaitPurpose::Owning => found.holder == MemberId::NONE && self.is_of(member, found.workflow, &found.owner),
            WaitPurpose::Readers(_) => false,
        }
    }

    /// Tells whether this member can have the item without a proof, because the item is cooperative.
    pub(super) fn has_at_once(&self, item: SegmentId, member: MemberId) -> bool {
        let is_cooperative =
            self.lasting.items.all.get(&item).is_some_and(|found| found.level == ItemLevel::Cooperative);
        is_cooperative && self.could_have(item, WaitPurpose::Owning, member)
    }

    /// Tells whether the item's memory was lost with the keeper and was not offered again yet.
    pub(super) fn is_item_lost(&self, item: SegmentId) -> bool {
        self.lasting.items.all.get(&item).is_some_and(|found| self.lost.contains(found.file))
    }

    /// Gives the error for a request for an item whose memory was lost.
    fn lost_item(&self, item: SegmentId) -> Refusal {
        let found = &self.lasting.items.all[&item];
        (Status::Busy, self.why_lost(&(found.workflow, SegmentKind::Item, found.key.clone())))
    }

    /// Gives the error for a request that cannot be served now, and whose member asked not to wait.
    pub(super) fn not_yet(&self, keys: &[String], workflow: u64, read: bool) -> Refusal {
        let mut found = keys.iter().filter_map(|k| self.key(workflow, k));
        match found.next() {
            None => {
                let lost = self.departed_with(workflow, SegmentKind::Item, &keys[0]);
                (Status::NotFound, format!("there is no item '{}'{lost}", keys[0]))
            }
            Some(item) if self.is_item_lost(item) => self.lost_item(item),
            Some(item) => {
                let whose = self.whose(item, &self.lasting.items.all[&item]);
                let why = if read { "it is not shared: " } else { "" };
                (Status::NotYet, format!("{why}{whose}"))
            }
        }
    }

    pub(super) fn await_item(
        &mut self,
        asker: Requester,
        what: WaitPurpose,
        wait_ms: u64,
        keys: Vec<String>,
    ) -> Result<(), Refusal> {
        let look_up = Patience::new(self.now);
        self.await_for(asker, what, wait_ms, wait_ms, keys, look_up)
    }

    /// Works like `await_item`, but the request waits for `patience_ms`, which may be longer than `waited_ms`, the time
    /// for which the member asked to wait. If `waited_ms` is 0, `patience` limits the search for the node that has one
    /// of the items.
    fn await_for(
        &mut self,
        asker: Requester,
        what: WaitPurpose,
        patience_ms: u64,
        waited_ms: u64,
        keys: Vec<String>,
        patience: Patience,
    ) -> Result<(), Refusal> {
        let Some((_, workflow)) = self.place(asker) else { return Ok(()) };
        let id = (asker.connection, asker.number);
        let Some(link) = self.links.get_mut(&asker.connection) else { return Ok(()) };
        if link.parked >= PARKED || self.items.waits.contains(id) {
            let text = format!("this program has {PARKED} requests waiting already; let some end first");
            return Err((Status::Busy, text));
        }
        link.parked += 1;
        let deadline = self.now.saturating_add(patience_ms);
        self.waits.expect(deadline, Due::Item(id.0, id.1));
        let since = self.now;
        let (said, asks_at) = (None, None);
        self.items.waits.add(Wait { asker, what, workflow, keys, since, deadline, waited_ms, patience, said, asks_at });
        Ok(())
    }

    /// Removes a request from the waiting ones, and returns it.
    pub(super) fn unqueue(&mut self, id: (Connection, u64)) -> Option<Wait> {
        let wait = self.items.waits.remove(id)?;
        self.waits.is_over(wait.deadline, Due::Item(id.0, id.1));
        if let Some(at) = wait.asks_at {
            self.waits.is_over(at, Due::AskOwner(id.0, id.1));
        }
        if let Some(link) = self.links.get_mut(&id.0) {
            link.parked -= 1;
        }
        Some(wait)
    }

    pub(in crate::broker) fn forget_item_waits(&mut self, connection: Connection) {
        for id in self.items.waits.of_connection(connection) {
            self.unqueue(id);
        }
        for item in self.items.handovers.forget_connection(connection) {
            // If the owner's connection is lost, the owner keeps the item. The owner repeats its request when it
            // connects again.
            let kept = self.lasting.items.all.get(&item).is_some_and(|i| i.holder != MemberId::NONE);
            if let Phase::Copying { to, .. } = *self.items.handovers.phase(item) {
                if kept {
                    self.items.handovers.enter(item, Phase::Open);
                    self.drop_file(to, None);
                }
            }
            self.serve_readers(item);
        }
    }

    /// Gives a request more time for an item of another node, if that node has not answered yet. Returns whether the
    /// request got more time.
    fn wait_longer(&mut self, id: RequestId) -> bool {
        let Some(wait) = self.items.waits.get(id) else { return false };
        if wait.deadline != wait.until() || wait.said.is_some() || !self.is_asked_for(id) {
            return false;
        }
        let until = wait.deadline.saturating_add(GRACE_MS);
        self.items.waits.set_deadline(id, until);
        self.waits.expect(until, Due::Item(id.0, id.1));
        true
    }

    /// Is called when a member has opened the item of this key, or when the item has got another owner or has ended.
    /// Until now, a request for the item could wait longer than its member asked, because it waited only for the item's
    /// proof or copy. From now on this request would wait for another task. So the time that its member asked for
    /// counts again.
    pub(super) fn end_readiness(&mut self, workflow: u64, key: &str) {
        let is_patient = |wait: &&Wait| wait.what == WaitPurpose::Owning && wait.deadline > wait.until();
        let waits = &self.items.waits;
        let patient = waits.of_key(workflow, key).filter(|id| waits.get(*id).as_ref().is_some_and(is_patient));
        for id in patient.collect::<Vec<_>>() {
            let Some(wait) = self.items.waits.get(id).filter(is_patient) else { continue };
            let (asker, deadline, until) = (wait.asker, wait.deadline, wait.until());
            let mut here = wait.keys.iter().filter_map(|key| self.key(wait.workflow, key));
            let is_ready = here.any(|item| self.could_have(item, wait.what, asker.member));
            let comes = self.is_asked_for(id) || wait.said.as_ref().is_some_and(|said| said.comes);
            if is_ready || comes {
                continue;
            }
            if wait.waited_ms == 0 {
                if let Some(Wait { keys, .. }) = self.unqueue(id) {
                    self.serve_item(asker, ItemRequest::Access { read: false, wait_ms: 0, keys });
                }
                continue;
            }
            self.waits.is_over(deadline, Due::Item(id.0, id.1));
            self.items.waits.set_deadline(id, until);
            if until <= self.now {
                self.give_up_item(id.0, id.1);
                continue;
            }
            self.waits.expect(until, Due::Item(id.0, id.1));
            self.ask_for_items(id);
        }
    }

    /// Gives the error for a request whose time is over while another node has the item.
    pub(super) fn too_late(&self, wait: &Wait) -> Option<Refusal> {
        let elsewhere = || wait.keys.iter().find_map(|key| Some((key, self.item_elsewhere(wait.workflow, key)?)));
        let (key, text) = match &wait.said {
            Some(said) => (&said.key, format!("{} (on node {})", said.text, said.node)),
            None => {
                let (key, node) = elsewhere()?;
                (key, format!("node {node}, which has it, has not answered"))
            }
        };
        if wait.waited_ms == 0 {
            return Some((Status::NotYet, text));
        }
        let what = if wait.what == WaitPurpose::Reading { "shared with" } else { "given to" };
        let task = self.party(wait.asker.member).map_or_else(String::new, |p| p.to_string());
        let text = format!("item '{key}' was not {what} {task} within {} ms: {text}", wait.waited_ms);
        Some((Status::TimedOut, text))
    }

    /// Handles the deadline of a request that waits for items.
    pub(in crate::broker) fn give_up_item(&mut self, connection: Connection, number: u64) {
        if self.wait_longer((connection, number)) {
            return;
        }
        let Some(wait) = self.unqueue((connection, number)) else { return };
        if let WaitPurpose::Readers(item) = wait.what {
            // The owner has waited long enough for the readers. They keep the old bytes, and the owner gets a copy.
            return self.end_draining(item);
        }
        let found = wait.keys.iter().find_map(|key| self.key(wait.workflow, key));
        if let Some((_, text)) = self.too_late(&wait).filter(|_| found.is_none()) {
            let text = match wait.waited_ms {
                0 => format!("item '{}' did not come within {READY_MS} ms: {text}", wait.keys[0]),
                _ => text,
            };
            return self.fail(wait.asker, Status::TimedOut, text);
        }
        if let Some(item) = found.filter(|item| self.is_item_lost(*item)) {
            let (status, text) = self.lost_item(item);
            return self.fail(wait.asker, status, text);
        }
        let what = if wait.what == WaitPurpose::Reading { "shared" } else { "given" };
        let task = self.party(wait.asker.member).map_or_else(String::new, |p| p.to_string());
        let others = if wait.keys.len() > 1 { format!(" (nor {} others)", wait.keys.len() - 1) } else { String::new() };
        let text = match found {
            Some(item) => {
                let found = &self.lasting.items.all[&item];
                format!(
                    "item '{}'{others} was not {what} to {task} within {} ms: {}",
                    found.key,
                    wait.waited_ms,
                    self.whose(item, found)
                )
            }
            None => format!(
                "there was no item '{}'{others} within {} ms; is the task that makes it running?{}",
                wait.keys[0],
                wait.waited_ms,
                self.departed_with(wait.workflow, SegmentKind::Item, &wait.keys[0])
            ),
        };
        self.fail(wait.asker, Status::TimedOut, text);
    }

    /// Asks the catalog where a request's items are, if the member asked not to wait, and if this node knows no node
    /// from which one of the items could come.
    pub(super) fn look_up_if_nowhere(&mut self, waits: RequestId) {
        let Some(wait) = self.items.waits.get(waits).filter(|wait| wait.waited_ms == 0) else { return };
        let could_come = |key: &String| {
            let here = self.key(wait.workflow, key).filter(|item| self.could_have(*item, wait.what, wait.asker.member));
            here.is_some() || self.item_elsewhere(wait.workflow, key).is_some()
        };
        if !wait.keys.iter().any(could_come) && !self.is_asked_for(waits) {
            self.look_up_waiting(waits, None);
        }
    }

    /// Continues with a request whose member asked not to wait. The node `node` has answered that it does not have the
    /// item `key`, or it has not answered. Gives the error if the request fails now; `None` if it continues.
    pub(super) fn not_there(
        &mut self,
        waits: RequestId,
        node: String,
        key: &str,
        failure: NodeFailure,
    ) -> Option<Refusal> {
        self.items.waits.forget_said(waits, key);
        let wait = self.items.waits.get(waits).filter(|_| !self.is_asked_for(waits))?;
        if let Some(said) = &wait.said {
            // Another node has already answered about a different item of this request. If that item comes to this
            // node, the request goes on waiting.
            return if said.comes { None } else { self.too_late(wait) };
        }
        let here = wait.keys.iter().filter(|key| self.serves_here(wait.workflow, key, false));
        let here: Vec<_> = here.filter_map(|key| self.key(wait.workflow, key)).collect();
        if here.iter().any(|item| self.could_have(*item, wait.what, wait.asker.member)) {
            return None;
        }
        if here.is_empty() {
            self.look_up_waiting(waits, Some((node, failure)));
            return None;
        }
        Some(self.not_yet(&wait.keys, wait.workflow, wait.what == WaitPurpose::Reading))
    }

    /// Gives the first request that waits for this item and could be served now.
    pub(super) fn first_waiting(&self, item: SegmentId, what: WaitPurpose) -> Option<(Connection, u64)> {
        let found = self.lasting.items.all.get(&item)?;
        if !self.has_its_name(item) {
            return None;
        }
        self.items.waits.of_key(found.workflow, &found.key).find(|id| {
            let wait = self.items.waits.get(*id);
            wait.is_some_and(|w| w.what == what && self.could_have(item, what, w.asker.member))
        })
    }

    /// Fails the requests that wait only for this item, because the item is gone.
    pub(super) fn tell_waiting_of_end(&mut self, workflow: u64, key: &str, why: &str) {
        for id in self.items.waits.of_key(workflow, key).collect::<Vec<_>>() {
            let others = self.items.waits.get(id).is_some_and(|w| w.keys.iter().any(|k| k != key));
            if others {
                continue;
            }
            if let Some(wait) = self.unqueue(id) {
                self.fail(wait.asker, Status::NotFound, format!("item '{key}' is gone: {why}"));
            }
        }
        self.end_readiness(workflow, key);
    }

    /// Is called when a member has closed a file that it read. If the owner's request waited for the last reader, that
    /// request goes on.
    pub(in crate::broker) fn readers_left(&mut self, file: SegmentId) {
        if self.lasting.segments.get(&file).is_none_or(|s| s.kind != SegmentKind::Item) {
            return;
        }
        if self.copy_has_fewer_readers(file) {
            return;
        }
        let Some(item) = self.lasting.items.files.get(&file).copied() else { return };
        if !self.is_read(item, file) {
            self.end_draining(item);
        }
    }

    /// Begins the proof for an owner that wants to write the item again. The readers have closed the item, or the owner
    /// has waited long enough for them.
    pub(super) fn end_draining(&mut self, item: SegmentId) {
        let Phase::Draining { asker } = *self.items.handovers.phase(item) else { return };
        self.unqueue((asker.connection, asker.number));
        self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::Unshare(asker) });
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{Answer, Party, Request};

    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::{Event, Limits, MAIN_ENDPOINT};

    fn access(keys: &[&str], wait_ms: u64) -> Request {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Request::Item(ItemRequest::Access { read: false, wait_ms, keys })
    }

    /// Lets two ranks of task `w` ask for an item of this task while the item is being copied. Returns the item, and
    /// the numbers of the requests.
    fn two_wait_for_a_copy(bench: &mut Bench, wait_ms: u64) -> (SegmentId, u64, u64) {
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        bench.join(2, MAIN_ENDPOINT, "w", 1);
        bench.join(3, MAIN_ENDPOINT, "a", 0);
        let item = bench.create(3, "x", ItemLevel::Strict);
        bench.ask_item(3, ItemRequest::Transfer { item, to: Party::task("w") });
        let (first, second) = (bench.say(1, &access(&["x"], wait_ms)), bench.say(2, &access(&["x"], wait_ms)));
        assert_eq!((bench.answer(1, first), bench.answer(2, second)), (None, None));
        (item, first, second)
    }

    #[test]
    fn a_request_waits_no_longer_than_it_says_when_another_member_has_got_the_item() {
        for (wait_ms, status, lates) in [(0, Status::NotYet, [0, 200]), (100, Status::TimedOut, [0, 50])] {
            for late in lates {
                let mut bench = Bench::new(Limits::default());
                let (_, first, second) = two_wait_for_a_copy(&mut bench, wait_ms);
                bench.tick(late);
                let (item, to) = bench.copies.pop().unwrap();
                bench.event(Event::Copied { item, to, outcome: Ok(()) });
                assert!(matches!(bench.answer(1, first), Some(Answer::Item(_))));
                bench.tick(wait_ms.saturating_sub(late));
                let answer = bench.answer(2, second);
                assert!(matches!(&answer, Some(Answer::Failed { status: of, .. }) if *of == status), "{answer:?}");
            }
        }
    }

    #[test]
    fn a_wait_for_an_item_that_is_being_copied_ends_by_its_deadline_and_the_copy_is_there_later() {
        let mut bench = Bench::new(Limits::default());
        let (_, first, second) = two_wait_for_a_copy(&mut bench, 100);
        bench.tick(99);
        assert_eq!((bench.answer(1, first), bench.answer(2, second)), (None, None));
        bench.tick(1);
        for (connection, number) in [(1, first), (2, second)] {
            let answer = bench.answer(connection, number);
            assert!(matches!(answer, Some(Answer::Failed { status: Status::TimedOut, .. })), "{answer:?}");
        }
        let (item, to) = bench.copies.pop().unwrap();
        bench.event(Event::Copied { item, to, outcome: Ok(()) });
        let third = bench.say(1, &access(&["x"], 100));
        assert!(matches!(bench.answer(1, third), Some(Answer::Item(_))));
    }

    #[test]
    fn a_request_that_does_not_wait_is_answered_when_the_item_gets_another_owner() {
        let mut bench = Bench::new(Limits::default());
        let (item, first, second) = two_wait_for_a_copy(&mut bench, 0);
        bench.ask_item(1, ItemRequest::Transfer { item, to: Party::task("a") });
        for (connection, number) in [(1, first), (2, second)] {
            let answer = bench.answer(connection, number);
            assert!(matches!(answer, Some(Answer::Failed { status: Status::NotYet, .. })), "{answer:?}");
        }
    }

    #[test]
    fn a_request_that_does_not_wait_is_answered_when_one_of_its_items_ends() {
        let mut bench = Bench::new(Limits::default());
        let (item, ..) = two_wait_for_a_copy(&mut bench, 0);
        bench.create(3, "y", ItemLevel::Verified);
        bench.join(4, MAIN_ENDPOINT, "w", 2);
        let number = bench.say(4, &access(&["x", "y"], 0));
        assert_eq!(bench.answer(4, number), None);
        bench.ask_item(1, ItemRequest::Destroy { item });
        let answer = bench.answer(4, number);
        assert!(matches!(answer, Some(Answer::Failed { status: Status::NotYet, .. })), "{answer:?}");
    }
}
