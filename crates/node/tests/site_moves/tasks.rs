//! The simulated tasks: they make regions, write them part by part, move, copy and remove them.

use std::collections::BTreeMap;

use crossdock_layout::wire::{Answer, FINGERPRINT, InUse, OpenMode, PROTOCOL_VERSION, Request, SegmentKind};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Rights, SegmentId, Status};
use crossdock_node::broker::{Attachment, Event, MAIN_ENDPOINT, Peer};

use crate::host::{REMOVE, open_region};
use crate::world::{PARTS, Session, World};

/// A task: a process on a node.
pub struct Task {
    pub node: usize,
    pub name: String,
    token: u64,
    id: MemberId,
    /// The number of the task's connection. It is 0 if the task has no connection, or was not welcomed yet.
    pub connection: u64,
    /// The number of the last request.
    last: u64,
    /// The request for whose answer the task waits, with its number.
    pub pending: Option<(u64, Request)>,
    /// When the task sent its pending request.
    asked: u64,
    /// The regions that the task has open, each with its number in [`World::lines`].
    pub open: BTreeMap<SegmentId, u64>,
    /// A write that the task has begun but not finished: the region, the value, and the next part to write.
    writing: Option<(SegmentId, u64, usize)>,
}

impl Task {
    pub fn new(node: usize, name: String, token: u64) -> Self {
        Self {
            node,
            name,
            token,
            id: MemberId::NONE,
            connection: 0,
            last: 1,
            pending: None,
            asked: 0,
            open: BTreeMap::new(),
            writing: None,
        }
    }
}

impl World {
    /// Connects a process to its broker, and says hello.
    pub fn connect(&mut self, n: usize, connection: u64, token: u64, member: MemberId, task: &str, visitor: bool) {
        self.nodes[n].sessions.insert(connection, Session { member, last: 1, answers: BTreeMap::new() });
        let mut bytes = [1; 16];
        bytes[..8].copy_from_slice(&token.to_le_bytes());
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token: bytes,
            member,
            rank: 0,
            visitor,
            task: Some(task.to_owned()),
            workflow: None,
        };
        let peer = Peer { pid: 1, birth: token, uid: 0 };
        self.event(n, Event::Connected { connection, endpoint: MAIN_ENDPOINT, peer });
        let bytes = hello.encode(1, 0);
        self.event(n, Event::Message { connection, bytes: Some(&bytes), descriptors: &[] });
    }

    pub fn connect_task(&mut self, t: usize) {
        let connection = self.fresh();
        let Task { node, token, id, ref name, .. } = self.tasks[t];
        let name = name.clone();
        self.tasks[t].connection = connection;
        self.connect(node, connection, token, id, &name, false);
    }

    /// Tells whether the process of this member is alive on the node `n`.
    pub fn is_alive(&self, n: usize, member: MemberId) -> bool {
        self.tasks.iter().any(|task| task.node == n && task.id == member)
            || self.nodes[n].sessions.values().any(|session| session.member == member)
    }

    fn send(&mut self, t: usize, number: u64, request: &Request) {
        let Task { node, connection, .. } = self.tasks[t];
        if let Request::Remove { name, .. } = request {
            self.may_be_removed(node, name);
        }
        let bytes = request.encode(number, 0);
        self.event(node, Event::Message { connection, bytes: Some(&bytes), descriptors: &[] });
    }

    pub fn ask(&mut self, t: usize, request: Request) {
        let now = self.now();
        let task = &mut self.tasks[t];
        task.last += 1;
        (task.asked, task.pending) = (now, Some((task.last, request.clone())));
        let number = task.last;
        self.send(t, number, &request);
    }

    /// Lets a task open a region.
    pub fn want(&mut self, t: usize, name: &str) {
        self.ask(t, open_region(name, OpenMode::OpenOnly, Rights::READ.with(Rights::WRITE)));
    }

    /// Kills the process of a task. A write that the process had begun is completed, as healing would do. A new process
    /// takes the place of the killed process.
    pub fn replace_task(&mut self, t: usize) {
        self.finish_write(t);
        let token = self.fresh();
        let Task { node, id, connection, ref name, .. } = self.tasks[t];
        self.tasks[t] = Task::new(node, name.clone(), token);
        self.nodes[node].sessions.remove(&connection);
        if self.nodes[node].broker.is_some() {
            self.event(node, Event::ProcessDied { member: id });
            self.event(node, Event::Disconnected { connection });
            self.connect_task(t);
        }
    }

    /// Lets a task of this node open the region. If the task has a region open already, lets it write the region's next
    /// part.
    pub fn use_region(&mut self, n: usize, name: &str) {
        let Some(t) = self.tasks.iter().position(|task| task.node == n && task.connection != 0) else { return };
        match self.tasks[t].open.is_empty() {
            _ if self.tasks[t].pending.is_some() => {}
            true => self.want(t, name),
            false => self.write(t),
        }
    }

    pub fn act(&mut self) {
        let t = self.random.below(self.tasks.len());
        let node = self.tasks[t].node;
        if self.nodes[node].stopped || self.nodes[node].broker.is_none() {
            return;
        }
        if self.random.one_in(30) {
            return self.replace_task(t);
        }
        if self.tasks[t].pending.is_some() || self.tasks[t].connection == 0 {
            return;
        }
        if !self.tasks[t].open.is_empty() {
            return match self.random.below(10) {
                0..6 => self.write(t),
                _ => self.close_all(t),
            };
        }
        let name = self.random.pick(&["x", "y"]);
        let wait_ms = self.random.pick(&[500, 3000, 20_000]);
        let copy = self.random.pick(&["copy/x", "copy/y"]);
        match self.random.below(20) {
            0..4 => self.ask(t, open_region(name, OpenMode::CreateOnly, Rights::READ.with(Rights::WRITE))),
            4..6 => self.want(t, name),
            6 => self.want(t, copy),
            7..14 => self.ask(t, Request::CopyRegion { wait_ms, moves: true, name: name.into(), copy: name.into() }),
            14..17 => self.ask(t, Request::CopyRegion { wait_ms, moves: false, name: name.into(), copy: copy.into() }),
            17..19 => self.remove(t, copy),
            _ => self.remove(t, name),
        }
    }

    pub fn remove(&mut self, t: usize, name: &str) {
        self.ask(t, Request::Remove { kind: SegmentKind::Region, in_use: InUse::Refuse, name: name.to_owned() });
    }

    /// If this question, which another node sends to the node `n`, asks to remove a region, notes that the region may
    /// be removed.
    pub fn note_removal(&mut self, n: usize, service: u32, body: &[u8]) {
        if service != REMOVE {
            return;
        }
        self.totals.removals_asked += 1;
        // The question ends with the length of the name and the name.
        for name in ["x", "y", "copy/x", "copy/y"] {
            let field = [&(name.len() as u32).to_le_bytes(), name.as_bytes()].concat();
            if body.ends_with(&field) {
                self.may_be_removed(n, name);
            }
        }
    }

    /// Notes that a region of this name on the node `n` may be removed.
    fn may_be_removed(&mut self, n: usize, name: &str) {
        for (_, line) in self.named(n, name) {
            if let Some(truth) = self.lines.get_mut(&line) {
                truth.may_be_removed = true;
            }
        }
    }

    /// The task writes the next part of a region. A write of a value is complete when all parts of the region have the
    /// value.
    pub fn write(&mut self, t: usize) {
        let Some(segment) = self.tasks[t].open.keys().next().copied() else { return };
        let fresh = self.fresh();
        let (segment, value, part) = self.tasks[t].writing.unwrap_or((segment, fresh, 0));
        let n = self.tasks[t].node;
        // A task writes the same value into all parts of a region, one part after another, and finishes this before it
        // closes the region or ends. Only one task at a time does so. So when no task has the region open, all its
        // parts have the same value.
        let by_another = |(u, task): (usize, &Task)| u != t && task.writing.is_some_and(|(of, ..)| of == segment);
        if self.tasks.iter().enumerate().any(by_another) {
            return;
        }
        let Some(bytes) = self.nodes[n].memory.get_mut(&segment) else { return };
        bytes.parts[part] = value;
        let (line, parts) = (bytes.line, bytes.parts);
        if let Some(truth) = self.lines.get_mut(&line) {
            truth.parts = parts;
        }
        self.tasks[t].writing = Some((segment, value, part + 1)).filter(|_| part + 1 < PARTS);
    }

    fn finish_write(&mut self, t: usize) {
        for _ in 0..PARTS {
            if self.tasks[t].writing.is_some() {
                self.write(t);
            }
        }
    }

    pub fn close_all(&mut self, t: usize) {
        self.finish_write(t);
        for segment in std::mem::take(&mut self.tasks[t].open).into_keys() {
            self.send(t, 0, &Request::Detach { segment, count: 1 });
        }
    }

    /// Delivers an answer of the broker to the task or the host that has this connection.
    pub fn deliver(&mut self, n: usize, connection: u64, message: &[u8], with: Attachment) {
        let (number, answer) = Answer::decode(message, with.count()).expect("the broker's own words");
        let Some(session) = self.nodes[n].sessions.get_mut(&connection) else { return };
        if let Answer::Welcome { member, .. } = answer {
            session.member = member;
        }
        let task = self.tasks.iter().position(|task| task.node == n && task.connection == connection);
        match (task, answer) {
            (None, answer) => drop(session.answers.insert(number, answer)),
            (Some(t), Answer::Welcome { member, .. }) => {
                self.tasks[t].id = member;
                self.come_back(t);
            }
            (Some(t), answer) => self.answered(t, number, answer),
        }
    }

    /// Is called when the task has connected again: the task lists what it has open, and repeats its unanswered
    /// request.
    fn come_back(&mut self, t: usize) {
        for segment in self.tasks[t].open.keys().copied().collect::<Vec<_>>() {
            self.send(t, 0, &Request::Hold { segment, count: 1 });
        }
        self.send(t, 0, &Request::Hold { segment: SegmentId(0), count: 0 });
        if let Some((number, request)) = self.tasks[t].pending.clone() {
            self.send(t, number, &request);
        }
    }

    fn answered(&mut self, t: usize, number: u64, answer: Answer) {
        if self.tasks[t].pending.as_ref().is_none_or(|(of, _)| *of != number) {
            return;
        }
        let Some((_, request)) = self.tasks[t].pending.take() else { return };
        if let Request::CopyRegion { wait_ms, .. } = request {
            // The answer may come after the task's deadline, because the host may still wait for a name or for replies.
            let late = self.now().saturating_sub(self.tasks[t].asked + wait_ms);
            if self.calm && late > 20_000 {
                self.fail(format!("{request:?} was answered {late} ms after its deadline"));
            }
        }
        match (answer, request) {
            (Answer::Segment { segment, .. }, _) => self.opened(t, segment),
            (Answer::Failed { status: Status::Corrupt | Status::Incompatible | Status::Denied, text, .. }, request) => {
                self.fail(format!("{request:?} is answered by: {text}"));
            }
            (Answer::Failed { text, .. }, _) => self.refusal = text,
            _ => {}
        }
    }

    /// Checks a region at the moment when a task opens it.
    fn opened(&mut self, t: usize, segment: SegmentId) {
        let (n, name) = (self.tasks[t].node, self.tasks[t].name.clone());
        let Some(bytes) = self.nodes[n].memory.get(&segment).cloned() else {
            return self.fail(format!("{segment} is given to {name} and not held"));
        };
        self.tasks[t].open.insert(segment, bytes.line);
        let Some(truth) = self.lines.get(&bytes.line) else { return };
        self.totals.checked += 1;
        if bytes.parts != truth.parts {
            let (parts, of) = (bytes.parts, truth.parts);
            return self.fail(format!("{name} opens {segment} with {parts:?}, and {of:?} were written last"));
        }
        let there = |task: &&crate::tasks::Task| task.node != n && task.open.values().any(|line| *line == bytes.line);
        if let Some(other) = self.tasks.iter().find(there) {
            let other = other.name.clone();
            self.fail(format!("{name} opens {segment} while {other}, on another node, has the same region open"));
        }
    }
}
