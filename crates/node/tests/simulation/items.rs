//! Items in the simulation: clients that open files, some of which keep them open secretly; a kernel that answers
//! truthfully; and the check that no task gets an item while another task has it open.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, ItemLevel, ItemRequest, OnDeath, Party, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};
use crossdock_node::broker::{Attachment, Descriptor, Effect, Event, ItemRecord, Record, Verdict, memory_of};

use crate::client::Client;
use crate::model::Holders;
use crate::sabotage::Sabotage;
use crate::world::{NAMES, World};

/// An item that a client owns, according to the broker's answers.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub file: SegmentId,
    /// True if the client has the item's file open for writing.
    pub open: bool,
    pub shared: bool,
    /// True if a request of the client about the item has no answer yet.
    pub busy: bool,
}

/// What the broker has told clients about items.
#[derive(Default)]
pub struct ItemModel {
    /// For each item that must exist: its workflow, and the clients that can offer its memory if it was lost. Such an item
    /// was made, no request to destroy it was sent, and it does not end with its owner.
    pub promised: BTreeMap<SegmentId, (u64, Holders)>,
    /// Items that may have ended, because a request was sent that may end them.
    doubtful: BTreeSet<SegmentId>,
    gone: BTreeSet<SegmentId>,
    /// For each transferred item: its workflow, and its new owner. The journal must have this owner until a later
    /// record changes the owner.
    moved: BTreeMap<SegmentId, (u64, Party)>,
}

impl ItemModel {
    /// All items are lost with the daemon, except the cooperative ones. Only their memory has a number.
    pub fn daemon_lost(&mut self, numbers: &BTreeMap<SegmentId, u64>) {
        self.promised.retain(|item, _| numbers.get(item).is_some_and(|number| *number != 0));
        self.moved.clear();
    }

    pub fn workflow_ends(&mut self, number: u64) {
        self.promised.retain(|_, (workflow, _)| *workflow != number);
        self.moved.retain(|_, (workflow, _)| *workflow != number);
    }

    pub fn recorded(&mut self, record: &ItemRecord) {
        match record {
            ItemRecord::Owner { item, .. } => drop(self.moved.remove(item)),
            ItemRecord::Gone { item, .. } => {
                self.moved.remove(item);
                self.gone.insert(*item);
            }
            _ => {}
        }
    }

    pub fn delivered(&mut self, request: &ItemRequest) {
        match request {
            ItemRequest::Destroy { item } | ItemRequest::Policy { item, on_death: OnDeath::Destroy } => {
                self.promised.remove(item);
                self.doubtful.insert(*item);
            }
            _ => {}
        }
    }
}

impl World {
    /// Tells whether any process, other than that of the client `but`, has this file open, as the kernel would say.
    fn is_open(&self, file: SegmentId, but: Option<usize>) -> bool {
        let clings = self.clients.iter().enumerate().filter(|(n, c)| c.alive && Some(*n) != but).any(|(_, c)| {
            let own = c.items.values().any(|own| own.file == file && own.open);
            own || c.clings.contains(&file) || c.open.get(&file).is_some_and(|count| *count > 0)
        });
        clings || self.in_flight(file, but)
    }

    fn in_flight(&self, file: SegmentId, but: Option<usize>) -> bool {
        let pipes = self.pipes.values().filter(|p| self.clients[p.client].alive && !p.client_closed);
        let mut sent = pipes.filter(|p| Some(p.client) != but).flat_map(|p| &p.to_client);
        sent.any(|(_, with)| matches!(with, Attachment::Item { file: of, .. } if *of == file))
    }

    fn can_be_written(&self, file: SegmentId) -> bool {
        let mut alive = self.clients.iter().filter(|c| c.alive);
        alive.any(|c| c.clings.contains(&file) || c.items.values().any(|own| own.file == file && own.open))
    }

    pub fn item_effect(&mut self, effect: Effect) {
        match effect {
            Effect::MakeItem { file, .. } => {
                let works = !self.random.one_in(8);
                if works {
                    self.keep_file(file);
                }
                let outcome = if works { Ok(0) } else { Err("no memory".to_owned()) };
                if self.fuse == Some(0) {
                    self.fuse = None;
                    return self.crash_broker();
                }
                self.event(Event::Made { outcome });
            }
            Effect::ProveItem { item, file, size, .. } => {
                assert!(self.kept.contains(&file), "{file} is to be proved and is not kept");
                let verdict = if self.random.one_in(30) {
                    Verdict::Unknown("no descriptor".into())
                } else if self.is_open(file, None) && self.sabotage != Sabotage::ProveAll {
                    Verdict::Clinging
                } else if self.random.one_in(10) {
                    Verdict::Reopenable
                } else if size.is_none() || self.random.one_in(10) {
                    Verdict::Incomplete
                } else {
                    Verdict::Alone
                };
                if self.fuse == Some(0) {
                    self.fuse = None;
                    return self.crash_broker();
                }
                if self.sabotage != Sabotage::LoseVerdicts || self.random.one_in(2) {
                    self.event(Event::Proved { item, file, verdict });
                }
            }
            Effect::CutItem { file, size } => assert!(self.kept.contains(&file) && size > 4096),
            Effect::CopyItem { item, to, size, from } => {
                assert!(self.kept.contains(&from) && size > 4096);
                self.keep_file(to);
                self.copies.push((item, to));
            }
            _ => {}
        }
    }

    /// Ends one or several of the copies of items that are in progress.
    pub fn end_copies(&mut self) {
        while !self.copies.is_empty() {
            let at = self.random.below(self.copies.len());
            let (item, to) = self.copies.swap_remove(at);
            let outcome = if self.random.one_in(10) { Err("no memory".to_owned()) } else { Ok(()) };
            self.event(Event::Copied { item, to, outcome });
            if self.random.one_in(3) {
                return;
            }
        }
    }

    /// Is called when the daemon gives an item's file to a client. Checks that no other process can write to the file.
    pub fn hand_item(&self, connection: u64, file: SegmentId, writable: bool) {
        assert!(self.kept.contains(&file), "{file} is given out but not kept");
        let Some(pipe) = self.pipes.get(&connection) else { return };
        if writable {
            assert!(!self.is_open(file, Some(pipe.client)), "{file} is given to a new owner while another has it open");
        } else {
            assert!(!self.can_be_written(file), "{file} is given to a reader while another task may write it");
        }
    }

    pub fn some_item_request(&mut self, number: usize) -> Option<(Request, Vec<Descriptor>)> {
        let r = &mut self.random;
        let key = r.pick(&NAMES).to_owned();
        let idle: Vec<_> = self.clients[number].items.iter().filter(|(_, own)| !own.busy).map(|(id, _)| *id).collect();
        let request = if idle.is_empty() || r.one_in(3) {
            match r.below(12) {
                0..=3 => ItemRequest::Create {
                    size: 1 + r.below(600_000) as u64,
                    level: r.pick(&[
                        ItemLevel::Verified,
                        ItemLevel::Verified,
                        ItemLevel::Strict,
                        ItemLevel::Cooperative,
                    ]),
                    on_death: r.pick(&[OnDeath::Keep, OnDeath::Return, OnDeath::Destroy]),
                    key,
                },
                4..=7 => {
                    let keys = (0..=r.below(2)).map(|_| r.pick(&NAMES).to_owned()).collect();
                    ItemRequest::Access { read: r.one_in(3), wait_ms: r.pick(&[0, 1, 50, 300]), keys }
                }
                8 => ItemRequest::Find { key },
                9 => ItemRequest::Register { number: r.below(3) as u64 },
                10 => ItemRequest::Word { party: Party::task("t") },
                // The client asks to transfer an item with a random number. The item may belong to another client, may
                // be open in no client, or may not exist.
                _ => ItemRequest::Transfer { item: SegmentId(1 + r.below(60) as u64), to: Party::task("t") },
            }
        } else {
            let item = r.pick(&idle);
            let to =
                [Party::task("t"), Party::task("program"), Party::rank("t", 0), Party::Number(1)][r.below(4)].clone();
            let choice = r.below(16);
            let (clings, own) = (r.one_in(5), self.clients[number].items[&item]);
            let request = match choice {
                0..=5 if !own.shared => ItemRequest::Transfer { item, to },
                6..=7 => ItemRequest::Destroy { item },
                8..=9 if !own.shared => ItemRequest::Share { item },
                0..=9 if own.shared => ItemRequest::Unshare { item, wait_ms: r.pick(&[0, 100]) },
                10 if !own.shared => ItemRequest::Resize { item, size: 1 + r.below(900_000) as u64 },
                11..=12 => {
                    self.release_item(number, item, clings);
                    return None;
                }
                13 => {
                    let on_death = r.pick(&[OnDeath::Keep, OnDeath::Return, OnDeath::Destroy]);
                    ItemRequest::Policy { item, on_death }
                }
                _ => ItemRequest::Reopen { item },
            };
            self.close(number, item, clings, &request);
            request
        };
        Some((Request::Item(request), vec![]))
    }

    /// Notes that a client closes its item's file before it sends a request about the item. If `clings` is true, the
    /// client secretly keeps the file open.
    fn close(&mut self, number: usize, item: SegmentId, clings: bool, request: &ItemRequest) {
        let client = &mut self.clients[number];
        let own = client.items.get_mut(&item).expect("picked from these");
        own.busy = true;
        let file = own.file;
        match request {
            ItemRequest::Policy { .. } | ItemRequest::Reopen { .. } => {}
            ItemRequest::Unshare { .. } => {
                own.open = false;
                self.close_one(number, file);
            }
            _ => {
                if own.open && clings {
                    client.clings.insert(file);
                }
                own.open = false;
            }
        }
    }

    /// The client closes one of its openings of a file for reading, and tells the broker.
    fn close_one(&mut self, number: usize, file: SegmentId) {
        let client = &mut self.clients[number];
        let Some(count) = client.open.get_mut(&file) else { return };
        *count -= 1;
        if *count == 0 {
            client.open.remove(&file);
        }
        self.tell(number, &Request::Detach { segment: file, count: 1 });
    }

    fn release_item(&mut self, number: usize, item: SegmentId, clings: bool) {
        if let Some(own) = self.clients[number].items.remove(&item) {
            if own.open && clings {
                self.clients[number].clings.insert(own.file);
            }
            if own.shared {
                self.close_one(number, own.file);
            }
            self.tell(number, &Request::Item(ItemRequest::Release { item }));
        }
    }

    fn tell(&mut self, number: usize, request: &Request) {
        let client = &self.clients[number];
        if let Some(pipe) = client.connection.filter(|_| client.welcome).and_then(|c| self.pipes.get_mut(&c)) {
            pipe.to_broker.push_back((request.encode(0, 0), vec![]));
        }
    }

    /// Handles the answer to a client's request about items.
    pub fn item_answered(&mut self, number: usize, request: &Request, answer: &Answer) {
        let Request::Item(request) = request else { return };
        let rights = |client: &Client, key: &str| self.model.rights(client, SegmentKind::Item, key);
        match (request, answer) {
            (request, Answer::Item(given)) => {
                let client = &self.clients[number];
                let owns = rights(client, &given.key).contains(Rights::OWN);
                let reads = rights(client, &given.key).contains(Rights::READ) && !given.writable;
                assert!(owns || reads, "item {} without a grant", given.key);
                if let ItemRequest::Create { on_death, key, .. } = request {
                    assert_eq!(*key, given.key);
                    let known = self.model.items.doubtful.contains(&given.item) || self.model.may_end(client.workflow);
                    // Only the memory of a cooperative item can be offered.
                    let lost = (self.model.was_lost(given.item) || self.model.was_lost(given.file))
                        && (given.level != ItemLevel::Cooperative || self.model.items.gone.contains(&given.item));
                    if *on_death != OnDeath::Destroy && !known && !lost {
                        let holders = self.model.holders(given.item, number);
                        self.model.items.promised.insert(given.item, (client.workflow, holders));
                    }
                }
                let client = &mut self.clients[number];
                if given.level == ItemLevel::Cooperative || !given.writable {
                    *client.open.entry(given.file).or_insert(0) += 1;
                    if let Some(own) = client.items.get_mut(&given.item) {
                        (own.busy, own.shared, own.file) = (false, true, given.file);
                    }
                } else {
                    let own = Own { file: given.file, open: true, shared: false, busy: false };
                    client.items.insert(given.item, own);
                    // This client may have owned the item before, and may have kept the file open secretly since that
                    // time. Now the client owns the item again, so it is allowed to have the file open.
                    client.clings.remove(&given.file);
                }
            }
            (ItemRequest::Transfer { item, to }, Answer::Done { .. }) => {
                let had = self.clients[number].items.remove(item).is_some();
                // The journal has the new owner before the client gets this answer. If it has another owner now, a
                // later request has changed the owner, and the model expects nothing.
                let lasting = self.broker.as_ref().map(|b| b.lasting());
                let there = lasting.and_then(|l| l.items.all.get(item)).is_some_and(|i| i.owner == *to);
                if had && there {
                    let workflow = self.clients[number].workflow;
                    self.model.items.moved.insert(*item, (workflow, to.clone()));
                }
            }
            (ItemRequest::Destroy { item }, Answer::Done { .. }) => drop(self.clients[number].items.remove(item)),
            (ItemRequest::Policy { item, .. }, _) => self.idle(number, *item),
            (
                ItemRequest::Transfer { item, .. }
                | ItemRequest::Destroy { item }
                | ItemRequest::Share { item }
                | ItemRequest::Unshare { item, .. }
                | ItemRequest::Resize { item, .. }
                | ItemRequest::Reopen { item },
                Answer::Failed { status, .. },
            ) => {
                self.idle(number, *item);
                if matches!(status, Status::NotFound | Status::Denied) {
                    self.clients[number].items.remove(item);
                }
            }
            _ => {}
        }
    }

    /// If this request of the client asks for a single item, which is cooperative: gives the item, and the time by which
    /// the broker must answer. Such an item needs no proof and no copy.
    pub fn cooperative_item(&self, client: usize, request: u64) -> Option<(SegmentId, u64)> {
        let Request::Item(ItemRequest::Access { keys, wait_ms, .. }) =
            &self.clients[client].asked.get(&request)?.request
        else {
            return None;
        };
        let [key] = &keys[..] else { return None };
        let items = &self.broker.as_ref()?.lasting().items;
        let item = items.keys.get(&(self.clients[client].workflow, key.clone()))?;
        (items.all[item].level == ItemLevel::Cooperative).then_some((*item, self.now + wait_ms))
    }

    fn idle(&mut self, number: usize, item: SegmentId) {
        if let Some(own) = self.clients[number].items.get_mut(&item) {
            own.busy = false;
        }
    }

    /// Gives the messages by which a client that connects again lists the items that it has open.
    pub fn held_items(&self, number: usize) -> Vec<Request> {
        let items = self.clients[number].items.keys().copied().chain([SegmentId(0)]);
        items.map(|item| Request::Item(ItemRequest::Hold { item })).collect()
    }

    /// Checks that the broker's state, and the files that clients have open, fulfil the guarantees about items.
    pub fn check_items(&self) {
        let Some(broker) = &self.broker else { return };
        let lasting = broker.lasting();
        let items = &lasting.items;
        assert_eq!(items.keys.len(), items.all.len(), "two items of one key");
        for (id, item) in &items.all {
            assert_eq!(items.keys.get(&(item.workflow, item.key.clone())), Some(id));
            assert_eq!(items.files.get(&item.file), Some(id));
            assert!(lasting.workflows.contains_key(&item.workflow), "item {id} outlives its workflow");
            let file = lasting.segments.get(&item.file).unwrap_or_else(|| panic!("item {id} has no memory"));
            assert!(file.removed.is_none() && file.reserved == memory_of(item.size), "item {id} counts wrongly");
            let Some(holder) = lasting.members.get(&item.holder) else {
                assert_eq!(item.holder, MemberId::NONE, "item {id} is held by the dead");
                continue;
            };
            assert_eq!(
                item.owner,
                Party::rank(&holder.task, holder.rank),
                "item {id} is held by another than its owner"
            );
            let client = self.clients.iter().position(|c| c.member == item.holder);
            let has = |n: &usize| self.clients[*n].alive && self.clients[*n].items.get(id).is_some_and(|own| own.open);
            if let Some(client) = client.filter(has).filter(|_| !item.shared) {
                assert!(!self.is_open(item.file, Some(client)), "two have item {id} open");
            }
        }
        for (id, (workflow, _)) in &self.model.items.promised {
            let found = items.all.get(id).is_some_and(|i| i.workflow == *workflow);
            assert!(found, "item {id} was lost");
        }
        for (id, (_, to)) in &self.model.items.moved {
            let owner = items.all.get(id).map(|i| &i.owner);
            assert_eq!(owner, Some(to), "the transfer of item {id} was forgotten");
        }
    }
}

/// Tells whether the planted bug makes the journal lose this record.
pub fn forgotten(sabotage: Sabotage, record: &Record) -> bool {
    matches!(record, Record::Item(ItemRecord::Owner { .. })) && sabotage == Sabotage::ForgetOwners
}
