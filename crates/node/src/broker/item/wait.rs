//! Waiting for items: requests wait in the order of arrival, up to a deadline, for any of several items.

use crossdock_layout::wire::{ItemLevel, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::handover::Purpose;
use super::queue::{RequestId, Wait, WaitPurpose};
use super::{Phase, Refusal};
use crate::broker::{Broker, Connection, Due, PARKED, Requester};

/// A request with a waiting time of 0 does not wait for the item's owner. It waits this long if the item must first be
/// copied.
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
    ) -> Result<(), Refusal> {
        let Some((_, workflow)) = self.place(asker) else { return Ok(()) };
        for key in &keys {
            if read && !self.item_rights(asker, key).contains(Rights::READ) {
                let rights = self.item_rights(asker, key).words();
                let text = format!("this task may not read item '{key}': its grant says {rights}");
                return Err((Status::Denied, text));
            }
            if !read {
                self.may_own(asker, key)?;
            }
        }
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
        let ready = items.into_iter().find(|item| self.could_have(*item, what, asker.member));
        if ready.is_none() && wait_ms == 0 && !abroad {
            return Err(self.not_yet(&keys, workflow, read));
        }
        // Even a request that does not wait has to wait for the answer of the other node.
        let patience = if ready.is_some() || wait_ms == 0 { wait_ms.max(READY_MS) } else { wait_ms };
        self.await_for(asker, what, patience, wait_ms, keys)?;
        match ready {
            Some(item) => self.serve_waiting(item),
            None => self.ask_for_items((asker.connection, asker.number)),
        }
        Ok(())
    }

    fn key(&self, workflow: u64, key: &str) -> Option<SegmentId> {
        let item = self.lasting.items.keys.get(&(workflow, key.to_owned())).copied();
        item.filter(|_| !self.is_contested(workflow, key))
    }

    /// Tells whether this member may open the item, at once or as soon as it is proved.
    pub(super) fn could_have(&self, item: SegmentId, what: WaitPurpose, member: MemberId) -> bool {
        let Some(found) = self.lasting.items.all.get(&item) else { return false };
        let lost = self.lost.contains(&found.file);
        match what {
            WaitPurpose::Reading => found.shared && !self.items.handovers.phase(item).ends_sharing(),
            WaitPurpose::Owning if found.level == ItemLevel::Cooperative => !lost,
            WaitPurpose::Owning => found.holder == MemberId::NOBODY && self.is_of(member, found.workflow, &found.owner),
            WaitPurpose::Readers(_) => false,
        }
    }

    /// Gives the error for a request that does not wait and cannot be served now.
    fn not_yet(&self, keys: &[String], workflow: u64, read: bool) -> Refusal {
        let mut found = keys.iter().filter_map(|k| self.key(workflow, k));
        match found.next() {
            None => {
                let lost = self.departed_with(workflow, SegmentKind::Item, &keys[0]);
                (Status::NotFound, format!("there is no item '{}'{lost}", keys[0]))
            }
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
        self.await_for(asker, what, wait_ms, wait_ms, keys)
    }

    /// Works as `await_item`, but the request waits for `patience_ms`. `waited_ms` is the time that the member asked
    /// for.
    fn await_for(
        &mut self,
        asker: Requester,
        what: WaitPurpose,
        patience_ms: u64,
        waited_ms: u64,
        keys: Vec<String>,
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
        self.items.waits.add(Wait { asker, what, workflow, keys, since: self.now, deadline, waited_ms, said: None });
        Ok(())
    }

    /// Removes a request from the waiting ones, and returns it.
    pub(super) fn unqueue(&mut self, id: (Connection, u64)) -> Option<Wait> {
        let wait = self.items.waits.remove(id)?;
        self.waits.is_over(wait.deadline, Due::Item(id.0, id.1));
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
            // An owner that is away keeps the item. It repeats its request when it is back.
            let kept = self.lasting.items.all.get(&item).is_some_and(|i| i.holder != MemberId::NOBODY);
            if let Phase::Copying { to, .. } = *self.items.handovers.phase(item) {
                if kept {
                    self.items.handovers.enter(item, Phase::Open);
                    self.drop_file(to, None);
                }
            }
            self.serve_readers(item);
        }
    }

    /// Gives a request more time for an item of another node, if the other node has not answered yet, or if the item is
    /// on its way. Returns whether the request got more time.
    fn wait_longer(&mut self, id: RequestId) -> bool {
        let Some(wait) = self.items.waits.get(id) else { return false };
        if wait.deadline != wait.since + wait.waited_ms {
            return false;
        }
        let more = match &wait.said {
            Some(said) if said.comes => READY_MS,
            None if self.is_asked_for(id) => GRACE_MS,
            _ => return false,
        };
        let until = wait.deadline + more;
        self.items.waits.set_deadline(id, until);
        self.waits.expect(until, Due::Item(id.0, id.1));
        true
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
        if let Some((status, text)) = self.too_late(&wait).filter(|_| found.is_none()) {
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

    /// Handles that an item is gone: requests that wait only for this item fail.
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
    }

    /// Handles that a file has fewer readers. The item's owner may be waiting for this.
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

    /// Begins the proof for an owner that wants to write again: its readers are gone, or it has waited long enough for
    /// them.
    pub(super) fn end_draining(&mut self, item: SegmentId) {
        let Phase::Draining { asker } = *self.items.handovers.phase(item) else { return };
        self.unqueue((asker.connection, asker.number));
        self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::Unshare(asker) });
    }
}
