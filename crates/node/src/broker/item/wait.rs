//! Waiting for items: by order of arrival, up to a deadline, for any of several.

use crossdock_layout::wire::{ItemLevel, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::{For, Refusal, Wait};
use crate::broker::{Asker, Broker, Connection, Due, PARKED};

/// How long a free item may take to be made ready (copied) for somebody who would not wait for its owner.
const READY_MS: u64 = 60_000;

impl Broker {
    pub(super) fn access_item(
        &mut self,
        asker: Asker,
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
        let what = if read { For::Reading } else { For::Owning };
        let ready = items.into_iter().find(|item| self.could_have(*item, what, asker.member));
        if ready.is_none() && wait_ms == 0 {
            return Err(self.not_yet(&keys, workflow, read));
        }
        let patience = if ready.is_some() { wait_ms.max(READY_MS) } else { wait_ms };
        self.await_item(asker, what, patience, keys)?;
        if let Some(wait) = self.desk.waits.get_mut(&(asker.connection, asker.number)) {
            wait.waited_ms = wait_ms;
        }
        if let Some(item) = ready {
            self.serve_waiting(item);
        }
        Ok(())
    }

    fn key(&self, workflow: u64, key: &str) -> Option<SegmentId> {
        self.lasting.items.keys.get(&(workflow, key.to_owned())).copied()
    }

    /// Is the item this member's to open, at once or as soon as it is proved?
    pub(super) fn could_have(&self, item: SegmentId, what: For, member: MemberId) -> bool {
        let Some(found) = self.lasting.items.all.get(&item) else { return false };
        let lost = self.lost.contains(&found.file);
        match what {
            For::Reading => found.shared && !self.desk.unsharing.contains_key(&item),
            For::Owning if found.level == ItemLevel::Cooperative => !lost,
            For::Owning => found.holder == MemberId::NOBODY && self.is_of(member, found.workflow, &found.owner),
            For::Readers(_) => false,
        }
    }

    /// Why somebody who does not wait gets nothing.
    fn not_yet(&self, keys: &[String], workflow: u64, read: bool) -> Refusal {
        let mut found = keys.iter().filter_map(|k| self.key(workflow, k));
        match found.next() {
            None => (Status::NotFound, format!("there is no item '{}'", keys[0])),
            Some(item) => {
                let whose = self.whose(item, &self.lasting.items.all[&item]);
                let why = if read { "nobody shares it: " } else { "" };
                (Status::NotYet, format!("{why}{whose}"))
            }
        }
    }

    pub(super) fn await_item(
        &mut self,
        asker: Asker,
        what: For,
        wait_ms: u64,
        keys: Vec<String>,
    ) -> Result<(), Refusal> {
        let Some((_, workflow)) = self.place(asker) else { return Ok(()) };
        let id = (asker.connection, asker.number);
        let Some(link) = self.links.get_mut(&asker.connection) else { return Ok(()) };
        if link.parked >= PARKED || self.desk.waits.contains_key(&id) {
            let text = format!("this program has {PARKED} requests waiting already; let some end first");
            return Err((Status::Busy, text));
        }
        link.parked += 1;
        let deadline = self.now.saturating_add(wait_ms);
        self.desk.arrivals += 1;
        let arrival = self.desk.arrivals;
        self.due.insert((deadline, Due::Item(id.0, id.1)));
        for key in &keys {
            self.desk.queues.entry((workflow, key.clone())).or_default().insert((arrival, id.0, id.1));
        }
        self.desk.waits.insert(id, Wait { asker, what, workflow, keys, deadline, waited_ms: wait_ms, arrival });
        Ok(())
    }

    /// A request waits for items no longer, for whatever reason.
    pub(super) fn unqueue(&mut self, id: (Connection, u64)) -> Option<Wait> {
        let wait = self.desk.waits.remove(&id)?;
        self.due.remove(&(wait.deadline, Due::Item(id.0, id.1)));
        for key in &wait.keys {
            let of = (wait.workflow, key.clone());
            if let Some(queue) = self.desk.queues.get_mut(&of) {
                queue.remove(&(wait.arrival, id.0, id.1));
                if queue.is_empty() {
                    self.desk.queues.remove(&of);
                }
            }
        }
        if let Some(link) = self.links.get_mut(&id.0) {
            link.parked -= 1;
        }
        Some(wait)
    }

    pub(in crate::broker) fn forget_item_waits(&mut self, connection: Connection) {
        let waits = self.desk.waits.range((connection, 0)..=(connection, u64::MAX));
        for id in waits.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.unqueue(id);
        }
        let gone = |asker: &Asker| asker.connection != connection;
        self.desk.sharing.retain(|_, asker| gone(asker));
        self.desk.unsharing.retain(|_, asker| gone(asker));
    }

    /// The deadline of a request that waits for items.
    pub(in crate::broker) fn give_up_item(&mut self, connection: Connection, number: u64) {
        let Some(wait) = self.unqueue((connection, number)) else { return };
        if let For::Readers(item) = wait.what {
            // They keep the bytes as they were; the owner gets its own.
            self.desk.to_prove.insert(item);
            return;
        }
        let found = wait.keys.iter().find_map(|key| self.key(wait.workflow, key));
        let what = if wait.what == For::Reading { "shared" } else { "given" };
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
                "there was no item '{}'{others} within {} ms; is the task that makes it running?",
                wait.keys[0], wait.waited_ms
            ),
        };
        self.fail(wait.asker, Status::TimedOut, text);
    }

    /// The first who waits for this item and may have it now.
    pub(super) fn first_waiting(&self, item: SegmentId, what: For) -> Option<(Connection, u64)> {
        let found = self.lasting.items.all.get(&item)?;
        let queue = self.desk.queues.get(&(found.workflow, found.key.clone()))?;
        let ids = queue.iter().map(|(_, connection, number)| (*connection, *number));
        ids.into_iter().find(|id| {
            self.desk.waits.get(id).is_some_and(|w| w.what == what && self.could_have(item, what, w.asker.member))
        })
    }

    /// Whoever waits only for what is gone now is told.
    pub(super) fn tell_waiting_of_end(&mut self, workflow: u64, key: &str, why: &str) {
        let queue = self.desk.queues.get(&(workflow, key.to_owned())).into_iter().flatten();
        for id in queue.map(|(_, connection, number)| (*connection, *number)).collect::<Vec<_>>() {
            let others = self.desk.waits.get(&id).is_some_and(|w| w.keys.iter().any(|k| k != key));
            if others {
                continue;
            }
            if let Some(wait) = self.unqueue(id) {
                self.fail(wait.asker, Status::NotFound, format!("item '{key}' is gone: {why}"));
            }
        }
    }

    /// Readers of a file have become fewer: somebody may wait for that.
    pub(in crate::broker) fn readers_left(&mut self, file: SegmentId) {
        if self.lasting.segments.get(&file).is_none_or(|s| s.kind != SegmentKind::Item) {
            return;
        }
        if self.holds.get(&file).is_some_and(|readers| !readers.is_empty()) {
            return;
        }
        let Some(item) = self.lasting.items.files.get(&file).copied() else { return };
        let waits = self.desk.waits.iter().find(|(_, w)| w.what == For::Readers(item)).map(|(id, _)| *id);
        if let Some(id) = waits {
            self.unqueue(id);
            self.desk.to_prove.insert(item);
        }
    }
}
