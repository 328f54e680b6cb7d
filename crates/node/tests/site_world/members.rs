//! Members: what they do with items, and what they were given.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, FINGERPRINT, ItemLevel, ItemRequest, OnDeath, PROTOCOL_VERSION, Party, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId};
use crossdock_node::broker::{Attachment, Event, MAIN_ENDPOINT, Peer};

use super::World;

/// A process on a node.
pub struct Member {
    pub node: usize,
    pub task: String,
    token: u64,
    pub(super) id: MemberId,
    /// 0: it has none, or was not welcomed yet.
    pub connection: u64,
    request: u64,
    /// What it waits for.
    pub pending: Option<(u64, Request)>,
    /// Its items, and their files.
    pub open: BTreeMap<SegmentId, SegmentId>,
    /// Files that it keeps open although it gave their items away.
    clings: BTreeSet<SegmentId>,
}

impl Member {
    pub fn new(node: usize, task: String, token: u64) -> Self {
        Self {
            node,
            task,
            token,
            id: MemberId::NOBODY,
            connection: 0,
            request: 1,
            pending: None,
            open: BTreeMap::new(),
            clings: BTreeSet::new(),
        }
    }
}

impl World {
    /// Has any process of the node the file open?
    pub(super) fn is_open(&self, node: usize, file: SegmentId) -> bool {
        let of_node = self.members.iter().filter(|member| member.node == node);
        of_node.into_iter().any(|m| m.open.values().any(|of| *of == file) || m.clings.contains(&file))
    }

    pub(super) fn connect(&mut self, m: usize) {
        let connection = self.fresh();
        let member = &mut self.members[m];
        member.connection = connection;
        let node = member.node;
        let mut token = [1; 16];
        token[..8].copy_from_slice(&member.token.to_le_bytes());
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token,
            member: member.id,
            rank: 0,
            visitor: false,
            task: Some(member.task.clone()),
            workflow: None,
        };
        let peer = Peer { pid: 1, started: member.token, uid: 0 };
        self.event(node, Event::Connected { connection, endpoint: MAIN_ENDPOINT, peer });
        self.send(m, 1, &hello);
    }

    fn send(&mut self, m: usize, number: u64, request: &Request) {
        let (node, connection) = (self.members[m].node, self.members[m].connection);
        let bytes = request.encode(number, 0);
        self.event(node, Event::Message { connection, bytes: Some(&bytes), descriptors: &[] });
    }

    fn ask(&mut self, m: usize, request: ItemRequest) {
        let request = Request::Item(request);
        let member = &mut self.members[m];
        member.request += 1;
        let number = member.request;
        member.pending = Some((number, request.clone()));
        self.send(m, number, &request);
    }

    /// Nothing answers this.
    fn tell(&mut self, m: usize, request: &Request) {
        self.send(m, 0, request);
    }

    pub(super) fn want(&mut self, m: usize, key: &str, wait_ms: u64) {
        self.ask(m, ItemRequest::Access { read: false, wait_ms, keys: vec![key.to_owned()] });
    }

    /// The process is killed; another one takes its place.
    pub(super) fn replace_member(&mut self, m: usize) {
        let token = self.fresh();
        let (node, id, connection) = (self.members[m].node, self.members[m].id, self.members[m].connection);
        self.members[m] = Member::new(node, self.members[m].task.clone(), token);
        if self.nodes[node].broker.is_some() {
            self.event(node, Event::ProcessDied { member: id });
            self.event(node, Event::Disconnected { connection });
            self.connect(m);
        }
    }

    pub(super) fn act(&mut self) {
        let m = self.random.below(self.members.len());
        let node = self.members[m].node;
        if self.nodes[node].stopped || self.nodes[node].broker.is_none() {
            return;
        }
        if self.random.one_in(25) {
            return self.replace_member(m);
        }
        if self.members[m].pending.is_some() || self.members[m].connection == 0 {
            return;
        }
        let key = ["x", "y", "z/1"][self.random.below(3)].to_owned();
        let owned = self.members[m].open.iter().next().map(|(item, file)| (*item, *file));
        let Some((item, file)) = owned else {
            return match self.random.below(4) {
                0 => {
                    let level = [ItemLevel::Verified, ItemLevel::Verified, ItemLevel::Strict][self.random.below(3)];
                    self.ask(m, ItemRequest::Create { size: 5000, level, on_death: OnDeath::Keep, key });
                }
                _ => {
                    let wait_ms = [0, 3000, 20_000][self.random.below(3)];
                    self.want(m, &key, wait_ms);
                }
            };
        };
        match self.random.below(20) {
            0..6 => self.write(node, item, file),
            6..15 => {
                let to = ["t0", "t1", "t2", "any"][self.random.below(4)];
                let member = &mut self.members[m];
                member.open.remove(&item);
                if self.random.one_in(4) {
                    member.clings.insert(file);
                }
                self.ask(m, ItemRequest::Transfer { item, to: Party::task(to) });
            }
            15..18 => self.let_go(m, item),
            18 => {
                self.members[m].open.remove(&item);
                if let Some(known) = self.items.get_mut(&item) {
                    known.doubtful = true;
                }
                self.ask(m, ItemRequest::Destroy { item });
            }
            _ => {
                // It clings no longer.
                self.members[m].clings.clear();
            }
        }
    }

    fn write(&mut self, node: usize, item: SegmentId, file: SegmentId) {
        let bytes = self.fresh();
        self.nodes[node].files.insert(file, bytes);
        if let Some(known) = self.items.get_mut(&item) {
            known.written = bytes;
        }
    }

    fn let_go(&mut self, m: usize, item: SegmentId) {
        self.members[m].open.remove(&item);
        self.tell(m, &Request::Item(ItemRequest::Release { item }));
    }

    /// Every member closes what it has, and waits for nothing.
    pub(super) fn let_all_go(&mut self) {
        for m in 0..self.members.len() {
            self.members[m].clings.clear();
            for item in self.members[m].open.keys().copied().collect::<Vec<_>>() {
                self.let_go(m, item);
            }
        }
    }

    /// A connection was closed by the broker.
    pub(super) fn closed(&mut self, n: usize, connection: u64) {
        for member in self.members.iter_mut().filter(|m| m.node == n && m.connection == connection) {
            member.connection = 0;
        }
    }

    /// An answer reaches its member at once.
    pub(super) fn deliver(&mut self, n: usize, connection: u64, message: &[u8], with: Attachment) {
        let (number, answer) = Answer::decode(message, with.count()).expect("the broker's own words");
        let Some(m) = self.members.iter().position(|m| m.node == n && m.connection == connection) else { return };
        if let Answer::Welcome { member, .. } = answer {
            self.members[m].id = member;
            return self.come_back(m);
        }
        let Some((of, request)) = self.members[m].pending.clone().filter(|(of, _)| *of == number) else { return };
        debug_assert_eq!(of, number);
        self.members[m].pending = None;
        match (answer, request) {
            (Answer::Item(given), Request::Item(request)) => {
                let created = matches!(request, ItemRequest::Create { .. });
                self.given(m, given.item, given.file, created);
            }
            // It was not given away: it is closed, and stays the task's.
            (
                Answer::Failed { .. },
                Request::Item(ItemRequest::Transfer { item, .. } | ItemRequest::Destroy { item }),
            ) => {
                self.tell(m, &Request::Item(ItemRequest::Release { item }));
            }
            _ => {}
        }
    }

    /// After a broker's restart: what it has open, and what was not answered.
    fn come_back(&mut self, m: usize) {
        for item in self.members[m].open.keys().copied().collect::<Vec<_>>() {
            self.tell(m, &Request::Item(ItemRequest::Hold { item }));
        }
        // What is being given away is held until that is done.
        if let Some((_, Request::Item(ItemRequest::Transfer { item, .. } | ItemRequest::Destroy { item }))) =
            self.members[m].pending.clone()
        {
            self.tell(m, &Request::Item(ItemRequest::Hold { item }));
        }
        self.tell(m, &Request::Item(ItemRequest::Hold { item: SegmentId(0) }));
        self.tell(m, &Request::Hold { segment: SegmentId(0), count: 0 });
        if let Some((number, request)) = self.members[m].pending.clone() {
            self.send(m, number, &request);
        }
    }

    /// The guarantee, at the moment when it could be broken.
    fn given(&mut self, m: usize, item: SegmentId, file: SegmentId, created: bool) {
        let node = self.members[m].node;
        if let Some(other) = self.members.iter().find(|member| member.open.contains_key(&item)) {
            let (node, task) = (super::NAMES[other.node], other.task.clone());
            return self.fail(format!("{item} is opened while {task} on node {node} has it open"));
        }
        if self.is_open(node, file) {
            return self.fail(format!("{file} of {item} is opened while a former owner has it open"));
        }
        let Some(bytes) = self.nodes[node].files.get(&file).copied() else {
            return self.fail(format!("{file} of {item} is given out and not held"));
        };
        self.totals.made += u64::from(created && !self.items.contains_key(&item));
        let written = self.known(item).written;
        if bytes != written {
            return self.fail(format!("{item} has bytes {bytes} and its last owner wrote {written}"));
        }
        self.totals.opened += 1;
        self.members[m].open.insert(item, file);
        self.write(node, item, file);
    }
}
