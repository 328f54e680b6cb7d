//! The simulated members: what they do with items, and the checks of what the brokers give them.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, FINGERPRINT, ItemLevel, ItemRequest, OnDeath, PROTOCOL_VERSION, Party, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId, Status};
use crossdock_node::broker::{Attachment, Event, MAIN_ENDPOINT, Peer};

use super::{Form, World};

/// A member: a process on a node.
pub struct Member {
    pub node: usize,
    pub task: String,
    token: u64,
    pub(super) id: MemberId,
    /// The number of the member's connection. It is 0 if the member has no connection, or was not welcomed yet.
    pub connection: u64,
    request: u64,
    /// The request for whose answer the member waits, with its number.
    pub pending: Option<(u64, Request)>,
    /// For each item that the member has open for writing: the item's file.
    pub open: BTreeMap<SegmentId, SegmentId>,
    /// Files that the member secretly keeps open after it gave their items away.
    clings: BTreeSet<SegmentId>,
    /// For each item that the member owns and shares: the item's file.
    pub shares: BTreeMap<SegmentId, SegmentId>,
    /// For each item that the member reads: its file, and the bytes that the file had when the member got it.
    pub reads: BTreeMap<SegmentId, (SegmentId, u64)>,
    /// When the member sent its pending request.
    asked: u64,
    /// The time for which the broker shall wait for the readers of a shared item, as the member asked when it took the
    /// item back.
    patience: u64,
    /// Items that the member has closed and has not reported as closed yet. It reports them after the host has carried
    /// out all effects of the present event.
    closes: Vec<SegmentId>,
    /// The key of the item that the member has asked for; `None` if the item did not exist then or has ended since
    /// then. While this is set, the answer must not be NOT_FOUND.
    pub(super) must_find: Option<String>,
    /// The key of the item that the member has asked for without waiting; `None` if an item of this key existed then or
    /// was made since then. While this is set, there is no such item. So the answer must be neither NOT_YET, which says
    /// that the item exists, nor a description of the item.
    pub(super) must_miss: Option<String>,
}

impl Member {
    /// Tells whether the member waits for the description of an item.
    pub(super) fn looks_up(&self) -> bool {
        matches!(self.pending, Some((_, Request::Item(ItemRequest::Find { .. }))))
    }

    pub fn new(node: usize, task: String, token: u64) -> Self {
        Self {
            node,
            task,
            token,
            id: MemberId::NONE,
            connection: 0,
            request: 1,
            pending: None,
            open: BTreeMap::new(),
            clings: BTreeSet::new(),
            shares: BTreeMap::new(),
            reads: BTreeMap::new(),
            asked: 0,
            patience: 0,
            closes: Vec::new(),
            must_find: None,
            must_miss: None,
        }
    }
}

impl World {
    /// Tells whether any member of the node has the file open, also secretly.
    pub(super) fn is_open(&self, node: usize, file: SegmentId) -> bool {
        let of_node = self.members.iter().filter(|member| member.node == node);
        of_node.into_iter().any(|m| {
            let opened = m.open.values().chain(m.shares.values()).chain(m.reads.values().map(|(of, _)| of));
            opened.into_iter().any(|of| *of == file) || m.clings.contains(&file)
        })
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
        let peer = Peer { pid: 1, birth: member.token, uid: 0 };
        self.event(node, Event::Connected { connection, endpoint: MAIN_ENDPOINT, peer });
        self.send(m, 1, &hello);
    }

    fn send(&mut self, m: usize, number: u64, request: &Request) {
        let (node, connection) = (self.members[m].node, self.members[m].connection);
        let bytes = request.encode(number, 0);
        self.event(node, Event::Message { connection, bytes: Some(&bytes), descriptors: &[] });
    }

    fn ask(&mut self, m: usize, request: ItemRequest) {
        let key = match &request {
            ItemRequest::Find { key } => Some(key.clone()),
            ItemRequest::Access { keys, .. } => keys.first().cloned(),
            _ => None,
        };
        if key.as_ref().is_some_and(|key| self.is_in_transit(key)) {
            self.totals.sought_in_transit += 1;
        }
        let does_not_wait = matches!(request, ItemRequest::Find { .. } | ItemRequest::Access { wait_ms: 0, .. });
        let is_gone = |key: &String| does_not_wait && !self.possible.values().any(|other| other == key);
        self.members[m].must_miss = key.clone().filter(is_gone);
        self.members[m].must_find = key.filter(|key| self.alive.contains(key));
        let (request, now) = (Request::Item(request), self.now());
        let member = &mut self.members[m];
        member.asked = now;
        member.request += 1;
        let number = member.request;
        member.pending = Some((number, request.clone()));
        self.send(m, number, &request);
    }

    /// Sends a message that has no answer.
    fn tell(&mut self, m: usize, request: &Request) {
        self.send(m, 0, request);
    }

    pub(super) fn want(&mut self, m: usize, key: &str, wait_ms: u64) {
        self.ask(m, ItemRequest::Access { read: false, wait_ms, keys: vec![key.to_owned()] });
    }

    /// Kills the process of a member. A new process of the same task takes its place.
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
        if self.form == Form::Whole && self.is_in_transit(&key) && self.random.one_in(2) {
            // An item that is on its way between two nodes is looked up more often than other items.
            return self.ask(m, ItemRequest::Find { key });
        }
        if !self.members[m].reads.is_empty() && self.random.one_in(2) {
            return self.stop_reading(m);
        }
        if let Some((item, file)) = self.members[m].shares.iter().next().map(|(item, file)| (*item, *file)) {
            if self.random.one_in(3) {
                self.unshare(m, item, file);
            }
            return;
        }
        if self.form == Form::Whole && self.random.one_in(5) {
            return self.ask(m, ItemRequest::Find { key });
        }
        let owned = self.members[m].open.iter().next().map(|(item, file)| (*item, *file));
        let Some((item, file)) = owned else {
            return match self.random.below(6) {
                3..6 if self.members[m].reads.is_empty() => {
                    let wait_ms = [0, 3000, 60_000][self.random.below(3)];
                    self.ask(m, ItemRequest::Access { read: true, wait_ms, keys: vec![key] });
                }
                0 => {
                    let level = [ItemLevel::Verified, ItemLevel::Verified, ItemLevel::Strict][self.random.below(3)];
                    // Only the bytes of small items are sent before the next node asks for them. The next node of a
                    // large item must pull its bytes.
                    let is_large = self.form == Form::Whole && self.random.one_in(2);
                    let size = if is_large { 100_000 } else { 5000 };
                    self.ask(m, ItemRequest::Create { size, level, on_death: OnDeath::Keep, key });
                }
                _ => {
                    let wait_ms = [0, 3000, 60_000][self.random.below(3)];
                    self.want(m, &key, wait_ms);
                }
            };
        };
        match self.random.below(20) {
            0..4 => self.write(node, item, file),
            4..9 => {
                self.members[m].open.remove(&item);
                self.ask(m, ItemRequest::Share { item });
            }
            9..15 => {
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
                // The member closes the files that it had secretly kept open.
                self.members[m].clings.clear();
            }
        }
    }

    fn write(&mut self, node: usize, item: SegmentId, file: SegmentId) {
        let bytes = self.fresh();
        self.nodes[node].files.insert(file, bytes);
        let now = self.now();
        if let Some(known) = self.items.get_mut(&item) {
            known.written = bytes;
            known.shared.values_mut().filter(|until| **until == u64::MAX).for_each(|until| *until = now);
        }
    }

    fn stop_reading(&mut self, m: usize) {
        for (_, (segment, _)) in std::mem::take(&mut self.members[m].reads) {
            self.tell(m, &Request::Detach { segment, count: 1 });
        }
    }

    fn unshare(&mut self, m: usize, item: SegmentId, segment: SegmentId) {
        let wait_ms = [0, 2000, 60_000][self.random.below(3)];
        self.members[m].shares.remove(&item);
        self.members[m].patience = wait_ms;
        self.tell(m, &Request::Detach { segment, count: 1 });
        self.ask(m, ItemRequest::Unshare { item, wait_ms });
    }

    /// Lets the members of a node report the items that they have closed.
    pub(super) fn say_closed(&mut self, n: usize) {
        for m in 0..self.members.len() {
            if self.members[m].node == n && self.members[m].connection != 0 {
                for item in std::mem::take(&mut self.members[m].closes) {
                    self.tell(m, &Request::Item(ItemRequest::Release { item }));
                }
            }
        }
    }

    fn let_go(&mut self, m: usize, item: SegmentId) {
        self.members[m].open.remove(&item);
        self.tell(m, &Request::Item(ItemRequest::Release { item }));
    }

    /// Lets every member close everything that it has open.
    pub(super) fn let_all_go(&mut self) {
        for m in 0..self.members.len() {
            self.members[m].clings.clear();
            self.stop_reading(m);
            for (item, segment) in std::mem::take(&mut self.members[m].shares) {
                self.tell(m, &Request::Detach { segment, count: 1 });
                self.tell(m, &Request::Item(ItemRequest::Release { item }));
            }
            for item in self.members[m].open.keys().copied().collect::<Vec<_>>() {
                self.let_go(m, item);
            }
        }
    }

    /// Notes that the broker has closed a connection.
    pub(super) fn closed(&mut self, n: usize, connection: u64) {
        for member in self.members.iter_mut().filter(|m| m.node == n && m.connection == connection) {
            member.connection = 0;
        }
    }

    /// Delivers an answer to its member without a delay.
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
        let must_find = self.members[m].must_find.take();
        if let (Answer::Failed { status: Status::NotFound, text, .. }, Some(key)) = (&answer, must_find) {
            // If the catalog has no entry for the name, the item's node has lost its lease. Then NOT_FOUND is right.
            if self.catalog_node(&key).is_some() {
                let node = super::NAMES[self.members[m].node];
                return self.fail(format!("a task of node {node} gets NOT_FOUND for '{key}', which exists: {text}"));
            }
        }
        if let Some(key) = self.members[m].must_miss.take() {
            let why = match &answer {
                Answer::Failed { status: Status::NotYet, text, .. } => format!("gets NOT_YET: {text}"),
                Answer::ItemInfo(_) => "gets a description".to_owned(),
                _ => String::new(),
            };
            if !why.is_empty() {
                let node = super::NAMES[self.members[m].node];
                return self.fail(format!("a task of node {node} asks for '{key}', which does not exist, and {why}"));
            }
            self.totals.missed += u64::from(matches!(answer, Answer::Failed { status: Status::NotFound, .. }));
        }
        match (answer, request) {
            (Answer::ItemInfo(_), _) => self.totals.found += 1,
            (Answer::Item(given), Request::Item(request)) => {
                let created = matches!(request, ItemRequest::Create { .. });
                match request {
                    ItemRequest::Share { .. } => {
                        self.members[m].shares.insert(given.item, given.file);
                        let known = self.known(given.item);
                        known.shared.insert(known.written, u64::MAX);
                    }
                    ItemRequest::Access { read: true, .. } => self.given_to_read(m, given.item, given.file),
                    ItemRequest::Unshare { .. } => {
                        self.check_unshared(m, given.item);
                        self.given(m, given.item, given.file, created);
                    }
                    _ => self.given(m, given.item, given.file, created),
                }
            }
            // The request failed, so the item still belongs to the member's task. The member has closed the item, and
            // must report this.
            (
                Answer::Failed { .. },
                Request::Item(
                    ItemRequest::Transfer { item, .. }
                    | ItemRequest::Destroy { item }
                    | ItemRequest::Share { item }
                    | ItemRequest::Unshare { item, .. },
                ),
            ) => self.members[m].closes.push(item),
            _ => {}
        }
    }

    /// Is called when the member has connected again: the member lists what it has open, and repeats its unanswered
    /// request.
    fn come_back(&mut self, m: usize) {
        let own = self.members[m].open.keys().chain(self.members[m].shares.keys()).copied();
        for item in own.collect::<Vec<_>>() {
            self.tell(m, &Request::Item(ItemRequest::Hold { item }));
        }
        // If a request to give an item away has no answer yet, the member still has the item, so it lists this item,
        // too.
        if let Some((
            _,
            Request::Item(
                ItemRequest::Transfer { item, .. }
                | ItemRequest::Destroy { item }
                | ItemRequest::Share { item }
                | ItemRequest::Unshare { item, .. },
            ),
        )) = self.members[m].pending.clone()
        {
            self.tell(m, &Request::Item(ItemRequest::Hold { item }));
        }
        self.tell(m, &Request::Item(ItemRequest::Hold { item: SegmentId(0) }));
        let read = self.members[m].shares.values().chain(self.members[m].reads.values().map(|(file, _)| file));
        for segment in read.copied().collect::<Vec<_>>() {
            self.tell(m, &Request::Hold { segment, count: 1 });
        }
        self.tell(m, &Request::Hold { segment: SegmentId(0), count: 0 });
        if let Some((number, request)) = self.members[m].pending.clone() {
            self.send(m, number, &request);
        }
    }

    /// A member gets an item for reading. Checks that the file has the bytes that the owner shared, and that the
    /// reader's node has only one copy of the item.
    fn given_to_read(&mut self, m: usize, item: SegmentId, file: SegmentId) {
        let node = self.members[m].node;
        let Some(bytes) = self.nodes[node].files.get(&file).copied() else {
            return self.fail(format!("{file} of {item} is given to a reader and not held"));
        };
        let (asked, is_open) =
            (self.members[m].asked, self.members.iter().any(|member| member.open.contains_key(&item)));
        let known = self.known(item);
        // The test notes which bytes an owner shared when the owner gets the answer. But an owner may have shared the
        // bytes that were written last, and have been killed before it got the answer. So a reader may also get the
        // bytes that were written last.
        let is_last = !is_open && bytes == known.written;
        if !is_last && known.shared.get(&bytes).is_none_or(|until| *until < asked) {
            let (written, shared) = (known.written, known.shared.clone());
            return self
                .fail(format!("a reader of {item} gets bytes {bytes}; {written} were written, {shared:?} shared"));
        }
        let here = self.members.iter().filter(|member| member.node == node);
        let other = here.filter_map(|member| member.reads.get(&item)).find(|(of, held)| *of != file && *held == bytes);
        // On the item's own node, members may read the item from two files. A reader may still have had the old file
        // open when the item was to get its next owner. Then the daemon copied the item into a new file for the next
        // owner, and the next owner may have ended since then.
        if other.is_some() && self.calm && self.home(item) != Some(node) {
            return self.fail(format!("node {} has two copies of {item}", super::NAMES[node]));
        }
        self.totals.read += 1;
        self.totals.read_elsewhere += u64::from(self.home(item) != Some(node));
        self.members[m].reads.insert(item, (file, bytes));
    }

    /// The owner has got the answer to its request to end the sharing of an item. If the answer has come before the
    /// request's timeout, checks that no member of the site still reads what this owner shared last. Members that still
    /// read an earlier sharing are allowed; they have other bytes.
    fn check_unshared(&mut self, m: usize, item: SegmentId) {
        if self.now() >= self.members[m].asked + self.members[m].patience {
            return;
        }
        self.totals.waited += 1;
        let shared = self.known(item).written;
        let reads = |member: &&Member| member.reads.get(&item).is_some_and(|(_, bytes)| *bytes == shared);
        if let Some(reader) = self.members.iter().find(reads) {
            let node = super::NAMES[reader.node];
            if self.calm {
                self.fail(format!("the owner of {item} writes again while {} on node {node} reads it", reader.task));
            }
        }
    }

    /// Checks that the bytes of the items that members read have not changed.
    pub(super) fn check_reads(&mut self) {
        let mut wrong = None;
        for member in &self.members {
            for (item, (file, bytes)) in &member.reads {
                let now = self.nodes[member.node].files.get(file).copied();
                if now.is_some_and(|now| now != *bytes) {
                    wrong = Some(format!("what {} reads of {item} changed to {now:?}", member.task));
                }
            }
        }
        if let Some(why) = wrong {
            self.fail(why);
        }
    }

    /// Checks the main guarantee when a member gets an item for writing: no other member has it open, and its bytes are
    /// those that the last owner wrote.
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
