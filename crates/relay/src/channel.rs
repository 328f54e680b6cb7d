//! A channel: how a task of one node uses an end of a port of another node.
//!
//! A channel has two sides, one in each daemon. The *source* is a consumer: it receives messages from the ring of its
//! node, and brings them to the other daemon. It holds each message until the other side reports that the message was
//! released. The *sink* is a producer: it sends the messages into the ring of its own node, and reports to the source
//! which of them were released. If the task consumes, the source is at the port and the sink at the task's mirror. If
//! the task produces, the source is at the mirror and the sink at the port. So credits, capacity and the order of
//! messages are those of the port.
//!
//! Each side ends in the way in which the members at the other side's ring have ended. If they all closed their ends
//! properly, the side closes its own end properly. If one of them died, the side abandons its own end, as a member that
//! dies does. A death is reported only after all messages that were sent before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crossdock_client::{
    Error, Handle, InUse, Inline, Message, Mode, Pattern, Port, Region, Result, SegmentId, SegmentKind, Session, Status,
};
use crossdock_core::queue::End;
use crossdock_link::{Refusal, Source};

use crate::messages::{
    BodyField, ChannelKey, DELIVER, Deliver, ENDED, EndReason, Ended, MessageObject, RELEASED, RelayedMessage, Released,
};
use crate::object::{Made, Making, Object};
use crate::reports::{AGAIN, ReportOutcome, Reporter, may_pass, tell};
use crate::{Peers, mirror_name};

/// The longest time for which a thread of a channel sleeps before it looks at the channel's state again. Events wake
/// the thread earlier.
const SLICE: Duration = Duration::from_millis(200);
/// The maximum size, in bytes, of the messages in one request to the other daemon.
const BATCH: usize = 48 << 10;
/// An object of more bytes than this is not part of the request that brings its message: the other side pulls the
/// object.
const SMALL: u64 = 16 << 10;
/// The maximum number of messages in one request to the other daemon.
const MOST: usize = 256;
/// The size of the first piece of an object that is pulled, in bytes. The piece is read directly into shared memory, so
/// this side of the channel cannot end before the piece has come.
const PIECE: usize = 8 << 20;
/// The maximum size of a piece, in bytes. If a piece came in a tenth of [`PULL`], the next piece is twice as large.
const PIECE_MOST: usize = 64 << 20;
/// The minimum size of a piece, in bytes. If a piece did not come in time, the next piece is half as large.
const PIECE_LEAST: usize = 64 << 10;
/// A piece of an object that has not come within this time is pulled again.
const PULL: Duration = Duration::from_secs(1);
/// How often a source looks for the next message of a work queue while its task still works on an earlier message.
const LOOK: Duration = Duration::from_millis(5);
/// A sink on the port's node keeps the objects of its messages as long as the port has a consumer. If the producing
/// task on the other node has left and the port has no consumer, the sink keeps the objects for this long.
const KEEP: Duration = Duration::from_secs(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The messages that a source has received and not released yet.
#[derive(Default)]
struct UnreleasedMessages {
    messages: BTreeMap<u64, (Message, Option<u64>)>,
    /// For a work queue: the positions of the delivered messages that the task has not taken yet.
    untaken: BTreeSet<u64>,
}

impl UnreleasedMessages {
    /// Notes that these messages of a work queue were delivered to the sink.
    fn delivered(&mut self, messages: &[RelayedMessage]) {
        self.untaken.extend(messages.iter().map(|message| message.position));
    }

    /// Notes that the task has taken the messages at these positions. A repeated report changes nothing.
    fn taken(&mut self, positions: &[u64]) {
        for position in positions {
            self.untaken.remove(position);
        }
    }
}

/// What a sink has received from its source.
#[derive(Default)]
struct Inbox {
    relayed_messages: VecDeque<RelayedMessage>,
    /// The number of messages that have come so far. Messages are counted from 0, so this is also the number of the
    /// next message.
    next: u64,
    /// How the source ended, and how many messages it has sent in total.
    end: Option<(EndReason, u64)>,
}

/// A message that a sink has sent into the ring of its node.
struct RingMessage {
    /// The position of the message in the source's ring.
    origin: u64,
    taken: bool,
    made: Option<Made>,
}

/// Messages that were taken or released. The sink has noticed this, but has not reported it to the source yet. A
/// message is named by its position in the source's ring.
#[derive(Default)]
struct UnreportedReleases {
    taken: Vec<u64>,
    released: Vec<u64>,
    /// The objects of the released messages, which can be freed.
    made: Vec<Made>,
}

/// One side of a channel, source or sink.
pub struct Channel {
    pub key: ChannelKey,
    /// The name of the other node.
    pub peer: String,
    /// Whether the port itself is on this node. If not, the mirror is.
    pub at_home: bool,
    workflow: String,
    session: Session,
    pub port: Port,
    held: Mutex<UnreleasedMessages>,
    inbox: Mutex<Inbox>,
    sent: Mutex<BTreeMap<u64, RingMessage>>,
    /// The number of release reports that the source has not confirmed yet. When a sink reports its end, its source
    /// gives every message for which it has no release report to another consumer. So the sink reports its end only
    /// after the source has confirmed all release reports.
    untold: AtomicUsize,
    regions: Mutex<BTreeMap<u64, Region>>,
    /// The mirrors (kind and name) that are removed when this side ends.
    names: Mutex<Vec<(SegmentKind, String)>>,
    /// How the task of this node that used the mirror has left; `None` while the task uses the mirror.
    left: Mutex<Option<EndReason>>,
    over: AtomicBool,
    /// True if the other node is lost, or if its daemon does not know this channel any more.
    lost: AtomicBool,
    /// Whether this side's member in the daemon is alive. Every access to shared memory holds this lock for reading, so
    /// the member cannot end during an access.
    alive: RwLock<bool>,
    changed: Condvar,
}

impl Reporter for Channel {
    fn stopped(&self) -> Option<ReportOutcome> {
        if self.is_over() {
            return Some(ReportOutcome::Ended);
        }
        self.is_lost().then_some(ReportOutcome::Unknown)
    }

    fn pause(&self, time: Duration) {
        let inbox = lock(&self.inbox);
        if !self.is_over() {
            drop(self.changed.wait_timeout(inbox, time));
        }
    }
}

impl Channel {
    pub fn new(
        key: ChannelKey,
        peer: &str,
        at_home: bool,
        session: Session,
        port: Port,
        mirror: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            peer: peer.to_owned(),
            at_home,
            workflow: session.workflow().to_owned(),
            session,
            port,
            held: Mutex::default(),
            inbox: Mutex::default(),
            sent: Mutex::default(),
            untold: AtomicUsize::new(0),
            regions: Mutex::default(),
            names: Mutex::new(mirror.into_iter().map(|name| (SegmentKind::Port, name)).collect()),
            left: Mutex::default(),
            over: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            alive: RwLock::new(true),
            changed: Condvar::new(),
        })
    }

    fn end(&self) -> &End {
        &self.port
    }

    /// Gives the daemon's report about the port of this side.
    pub fn port_report(&self) -> Result<crossdock_client::PortReport> {
        self.session.port_report(self.port.id())
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Tells whether this side has ended, or will end because the other side is lost.
    pub fn has_ended(&self) -> bool {
        self.is_over() || self.is_lost()
    }

    /// Begins an access to shared memory. Returns `None` if this side's member has ended.
    fn work(&self) -> Option<RwLockReadGuard<'_, bool>> {
        Some(self.alive.read().unwrap_or_else(PoisonError::into_inner)).filter(|alive| **alive)
    }

    /// Ends this side's member as if its process had died. The member's end of the port stays as it is, and other
    /// members heal the end.
    fn die(&self) {
        // `abandon` makes the threads that wait at this end return, so the member does not end in the middle of their
        // access.
        self.end().abandon();
        let mut alive = self.alive.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *alive, false) {
            self.session.abandon();
        }
    }

    /// Makes the threads of this side end soon, because the daemon ends.
    pub fn stop(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Ends this side because the daemon ends. Sends no more requests to the daemon. If a piece of an object is being
    /// pulled, waits until the piece has come or its deadline has passed.
    pub fn drop_now(&self) {
        self.stop();
        self.die();
    }

    /// Notes that the other side does not know this channel any more, or that the other side's node is lost. Messages
    /// that the other side sent earlier are still put into the ring.
    pub fn unknown(&self) {
        if self.port.end() == crossdock_client::End::Consumer {
            return self.finish(EndReason::Died);
        }
        let mut inbox = lock(&self.inbox);
        let next = inbox.next;
        // If the source has reported already how it ended, this report stays, and `Died` does not replace it. In this
        // case only those objects are lost that this node has not pulled yet.
        inbox.end.get_or_insert((EndReason::Died, next));
        drop(inbox);
        self.lost.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Ends this side. With `Closed` the side closes its end of the ring properly; with `Died` it abandons this end.
    pub fn finish(&self, how: EndReason) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        for (kind, name) in lock(&self.names).drain(..) {
            // Members that have the mirror open can still use it. If the name cannot be removed now, the daemon removes
            // it at its next start.
            let _ = self.session.remove(kind, &name, InUse::Keep);
        }
        match how {
            EndReason::Closed => self.port.leave(),
            EndReason::Died => self.die(),
        }
        lock(&self.regions).clear();
        lock(&self.sent).clear();
        self.changed.notify_all();
    }

    /// Notes that no member of this node uses the mirror any more. `how` says how the last of these members left.
    pub fn left(&self, how: EndReason) {
        lock(&self.left).get_or_insert(how);
        self.changed.notify_all();
    }

    fn has_left(&self) -> Option<EndReason> {
        *lock(&self.left)
    }

    /// Sends a report to the other side and repeats it until the other side confirms it.
    fn tell(&self, peers: &dyn Peers, service: u32, body: &[u8]) -> ReportOutcome {
        tell(self, peers, &self.peer, service, body)
    }

    fn tell_end(&self, peers: &dyn Peers, how: EndReason, count: u64) -> ReportOutcome {
        self.tell(peers, ENDED, &Ended { key: self.key, how, count }.encode())
    }

    /// Gives the tickets of the objects that the other side may still pull. A ticket is the number under which a relay
    /// offers bytes.
    pub fn tickets(&self) -> Vec<u64> {
        lock(&self.held).messages.values().filter_map(|(_, ticket)| *ticket).collect()
    }

    // The functions of a source follow.

    /// Runs the thread of a source: receives messages, and brings them to the other side.
    pub fn ship(&self, peers: &dyn Peers) {
        // The port itself can have several consumers. A mirror has only one consumer, this source, which takes all
        // messages.
        let is_shared = self.at_home && self.end().shape().pattern == Pattern::WorkQueue;
        let mut count = 0;
        let how = loop {
            if self.is_over() {
                return;
            }
            if is_shared && !lock(&self.held).untaken.is_empty() {
                // Take no second message of the work queue before the task has taken the first one, because another
                // consumer may be ready for the second message earlier than this task.
                self.pause(SLICE);
                continue;
            }
            let Some(work) = self.work() else { return };
            // In a work queue, a consumer that blocks in `receive` counts as idle. If the queue ended while this source
            // blocks, the other consumers would not wait for the messages that the source still holds. So while the
            // task works on a message, this thread does not block in `receive`, but looks for a message at intervals.
            let works = is_shared && !lock(&self.held).messages.is_empty();
            let first = match self.port.receive(Some(if works { Duration::ZERO } else { SLICE })) {
                Ok(message) => message,
                Err(error) => match error.status {
                    Status::TimedOut | Status::NotYet => match self.has_left() {
                        Some(how) => break how,
                        None => {
                            drop(work);
                            self.pause(if works { LOOK } else { Duration::ZERO });
                            continue;
                        }
                    },
                    Status::Closed => break EndReason::Closed,
                    _ => break EndReason::Died,
                },
            };
            let mut relayed_messages = vec![self.pack(peers, first)];
            let mut bytes = relayed_messages[0].encode().len();
            while !is_shared && relayed_messages.len() < MOST && bytes < BATCH - SMALL as usize - 1024 {
                let Ok(next) = self.port.receive(Some(Duration::ZERO)) else { break };
                relayed_messages.push(self.pack(peers, next));
                bytes += relayed_messages.last().map_or(0, |relayed| relayed.encode().len());
            }
            drop(work);
            if is_shared {
                lock(&self.held).delivered(&relayed_messages);
            }
            let more = relayed_messages.len() as u64;
            let body = Deliver { key: self.key, first: count, relayed_messages }.encode();
            match self.tell(peers, DELIVER, &body) {
                ReportOutcome::Yes => count += more,
                ReportOutcome::Ended => return,
                ReportOutcome::Unknown => return self.finish(EndReason::Died),
            }
        };
        if self.is_over() {
            return;
        }
        match self.tell_end(peers, how, count) {
            ReportOutcome::Yes if self.at_home => {
                // The remote task may still hold messages, and this source passes their releases on to the port. The
                // sink reports when the task has left.
                while !self.is_over() {
                    self.pause(SLICE);
                }
            }
            ReportOutcome::Yes => {
                // Wait until the other side has released every message whose object it must still pull.
                while !self.is_over() && lock(&self.held).messages.values().any(|(_, ticket)| ticket.is_some()) {
                    self.pause(SLICE);
                }
                self.finish(how);
            }
            ReportOutcome::Unknown => self.finish(how),
            ReportOutcome::Ended => {}
        }
    }

    /// Packs a message for a request to the other side. The message's object stays unchanged until the message is
    /// released.
    fn pack(&self, peers: &dyn Peers, message: Message) -> RelayedMessage {
        let (mut cargo, mut region, mut ticket) = (MessageObject::None, (0, 0, String::new()), None);
        if !message.handle.is_none() {
            let read = self.session.region_of(message.handle).and_then(|from| {
                region = (from.id().0, from.capacity(), from.name().to_owned());
                let (mut object, original) = Object::find(&from, message.handle)?;
                let length = original.length();
                if length > SMALL {
                    let number = peers.offer(Arc::new(original));
                    ticket = Some(number);
                    return Ok(MessageObject::Pull { object, ticket: number, length });
                }
                object.bytes = original.bytes()?;
                Ok(MessageObject::Here(object))
            });
            cargo = match read {
                Ok(cargo) => cargo,
                Err(error) => {
                    peers.log(&format!("port '{}': {error}", self.port.name()));
                    MessageObject::Left
                }
            };
        }
        lock(&self.held).messages.insert(message.position, (message, ticket));
        RelayedMessage { position: message.position, tag: message.tag, inline: message.inline.to_vec(), cargo, region }
    }

    /// Handles a report of the sink about messages that were taken or released.
    pub fn released(&self, peers: &dyn Peers, body: Released) {
        let work = self.work();
        let mut held = lock(&self.held);
        held.taken(&body.taken);
        for position in body.released {
            // If the message is not held any more, an earlier report has released it.
            let Some((message, ticket)) = held.messages.remove(&position) else { continue };
            if let Some(ticket) = ticket {
                peers.withdraw(ticket);
            }
            // `release` fails if this end of the port is closed already. In this case the port has given the message to
            // another consumer, so the failure is ignored.
            let _ = self.port.release(&message);
        }
        drop(held);
        drop(work);
        self.changed.notify_all();
    }

    // The functions of a sink follow.

    /// Takes messages from the source. A repeated request brings messages that have come already; they are skipped.
    pub fn deliver(&self, body: Deliver) -> std::result::Result<(), Refusal> {
        let mut inbox = lock(&self.inbox);
        let known = usize::try_from(inbox.next.saturating_sub(body.first)).unwrap_or(usize::MAX);
        if body.first > inbox.next || inbox.relayed_messages.len() > self.end().shape().capacity as usize {
            return Err(Refusal::new(Status::Corrupt, "messages of this channel are missing"));
        }
        for relayed in body.relayed_messages.into_iter().skip(known) {
            inbox.relayed_messages.push_back(relayed);
            inbox.next += 1;
        }
        drop(inbox);
        self.changed.notify_all();
        Ok(())
    }

    /// Handles the report that the other side has ended. A sink ends only after it has handled all messages of the
    /// source.
    pub fn peer_ended(&self, body: &Ended) {
        if self.port.end() == crossdock_client::End::Consumer {
            return self.finish(body.how);
        }
        lock(&self.inbox).end.get_or_insert((body.how, body.count));
        self.changed.notify_all();
    }

    /// Runs the first thread of a sink: puts the messages that the source has sent into the ring of this node.
    pub fn put(&self, peers: &dyn Peers) {
        let mut number = 0u64;
        loop {
            let relayed = {
                let mut inbox = lock(&self.inbox);
                loop {
                    if self.is_over() {
                        return;
                    }
                    if let Some(relayed) = inbox.relayed_messages.pop_front() {
                        break relayed;
                    }
                    if let Some((how, count)) = inbox.end.filter(|(_, count)| *count <= inbox.next) {
                        drop(inbox);
                        debug_assert!(count == number, "messages of a channel were lost");
                        return self.drain(peers, how);
                    }
                    inbox = self.changed.wait_timeout(inbox, SLICE).unwrap_or_else(PoisonError::into_inner).0;
                }
            };
            number += 1;
            if !self.put_one(peers, &relayed, number) {
                if self.is_lost() && !self.is_over() {
                    // The message's object was only on the lost node. So this message and all later ones are lost.
                    self.drain(peers, EndReason::Died);
                }
                return;
            }
        }
    }

    fn put_one(&self, peers: &dyn Peers, relayed: &RelayedMessage, number: u64) -> bool {
        let (handle, made, bytes) = match self.unpack(peers, relayed, number) {
            Ok(unpacked) => unpacked,
            Err(error) => {
                if !self.is_over() && !self.is_lost() {
                    peers.log(&format!("port '{}': a message of node {}: {error}", self.port.name(), self.peer));
                    self.finish(EndReason::Died);
                    let _ = self.tell_end(peers, EndReason::Died, 0);
                }
                return false;
            }
        };
        let inline = Inline::new(&relayed.inline).unwrap_or_default();
        let message = Message { inline, ..Message::new(handle, relayed.tag) };
        let mut sent = Some(RingMessage { origin: relayed.position, taken: false, made });
        loop {
            if self.is_over() {
                return false;
            }
            let Some(work) = self.work() else { return false };
            if !self.at_home && self.port.wait_peer(Some(SLICE)).is_err() {
                // The task has not opened its end of the mirror yet. If the task has left, it will never open this end,
                // and the message is dropped.
                if self.has_left().is_some() {
                    return true;
                }
                continue;
            }
            // The lock `sent` is held until the message is noted. Otherwise the thread of `watch` could miss the
            // release of the message.
            let mut all = lock(&self.sent);
            match self.end().send(&message, bytes, Duration::ZERO) {
                Ok(position) => {
                    all.extend(sent.take().map(|sent| (position, sent)));
                    return true;
                }
                Err(error) => {
                    drop(all);
                    match error.status {
                        Status::NotYet | Status::TimedOut => {
                            let _ = self.end().reclaim(SLICE);
                        }
                        status => {
                            drop(work);
                            let how = if status == Status::Closed { EndReason::Closed } else { EndReason::Died };
                            if !self.is_over() {
                                self.tell_end_behind_releases(peers, how);
                                self.finish(how);
                            }
                            return false;
                        }
                    }
                }
            }
        }
    }

    fn unpack(&self, peers: &dyn Peers, relayed: &RelayedMessage, number: u64) -> Result<(Handle, Option<Made>, u64)> {
        let left = (Handle { segment: SegmentId::LEFT_BEHIND.0, offset: 0 }, None, 0);
        let (object, pulled) = match &relayed.cargo {
            MessageObject::None => return Ok((Handle::NONE, None, 0)),
            MessageObject::Left => return Ok(left),
            MessageObject::Here(object) => (object, None),
            MessageObject::Pull { object, ticket, length } => (object, Some((*ticket, *length))),
        };
        let (id, capacity, name) = &relayed.region;
        let (region, own) = {
            let _work = self.work().ok_or_else(over)?;
            (self.region(*id, *capacity, name)?, format!("message-{number}"))
        };
        let Some((ticket, length)) = pulled else {
            let _work = self.work().ok_or_else(over)?;
            let (handle, made) = object.make(&region, &own)?;
            return Ok((handle, Some(made), object.bytes.len() as u64));
        };
        let mut making = {
            let _work = self.work().ok_or_else(over)?;
            Making::begin(object, &region, &own, length)?
        };
        let filled = self.fill(peers, ticket, &mut making);
        // If this side's member has ended meanwhile, this function stops here: other members heal the end of the port
        // that this member had, and free the memory of the object.
        let _work = self.work().ok_or_else(over)?;
        match filled {
            Ok(()) => making.finish().map(|(handle, made)| (handle, Some(made), length)),
            Err(error) => {
                making.give_up();
                if error.status != Status::Invalid {
                    return Err(error);
                }
                // The source has found a container among the bytes, so the object cannot move by value.
                peers.log(&format!("port '{}': a message of node {}: {error}", self.port.name(), self.peer));
                Ok(left)
            }
        }
    }

    /// Pulls the bytes of an object, piece by piece, into the memory that `making` has for them.
    fn fill(&self, peers: &dyn Peers, ticket: u64, making: &mut Making<'_>) -> Result<()> {
        let (mut at, mut piece) = (0, PIECE);
        loop {
            let work = self.work().filter(|_| !self.is_over()).ok_or_else(over)?;
            let place = making.bytes()?;
            if at == place.len() {
                return Ok(());
            }
            let end = place.len().min(at + piece);
            let asked = Instant::now();
            let pulled = peers.pull_into(&self.peer, ticket, at as u64, &mut place[at..end], PULL);
            drop(work);
            match pulled {
                Ok(()) => {
                    at = end;
                    if asked.elapsed() < PULL / 10 {
                        piece = (piece * 2).min(PIECE_MOST);
                    }
                }
                Err(error) if self.is_over() || self.is_lost() || !may_pass(error.status) => return Err(error),
                Err(error) => {
                    if error.status == Status::TimedOut {
                        piece = (piece / 2).max(PIECE_LEAST);
                    }
                    self.pause(AGAIN);
                }
            }
        }
    }

    /// Returns the region on this node that holds copies of the objects from region `id` of the other node. Makes the
    /// region at the first call.
    fn region(&self, id: u64, capacity: u64, name: &str) -> Result<Region> {
        if let Some(region) = lock(&self.regions).get(&id) {
            return Ok(region.clone());
        }
        let own = mirror_name(self.key, id, name)?;
        let region = self.session.region(&own, Mode::CreateOnly, capacity, None)?;
        lock(&self.names).push((SegmentKind::Region, own));
        lock(&self.regions).insert(id, region.clone());
        Ok(region)
    }

    /// Runs the second thread of a sink. The thread reports to the source which messages were released, and when the
    /// consumers have left.
    pub fn watch(&self, peers: &dyn Peers) {
        let is_shared = !self.at_home && self.end().shape().pattern == Pattern::WorkQueue;
        let mut pause = Duration::from_micros(200);
        while !self.is_over() && !self.end().is_closed() {
            let mut found = UnreportedReleases::default();
            let untaken = is_shared && lock(&self.sent).values().any(|sent| !sent.taken);
            // A consumer that takes a message does not wake `wait_for_releases`. So this thread looks again after a
            // short pause.
            pause = if untaken { (pause * 2).min(Duration::from_millis(4)) } else { Duration::from_micros(200) };
            let slice = if untaken { pause } else { SLICE };
            let Some(work) = self.work() else { return };
            let waited = self.end().wait_for_releases(slice, &mut || self.look(is_shared, &mut found));
            found.made.drain(..).for_each(Made::free);
            drop(work);
            if self.tell_released(peers, found) {
                pause = Duration::from_micros(200);
            }
            let gone = match waited {
                Ok(()) => None,
                Err(error) if error.status == Status::Closed => Some(EndReason::Closed),
                Err(error) if error.status == Status::PeerDied => Some(EndReason::Died),
                Err(_) => self.has_left(),
            };
            // A mirror is made for one task that opens the port. So if all consumers of a mirror are gone, the mirror
            // gets no other consumer, and this side ends. The port itself may still get another consumer, so on the
            // port's node this side goes on.
            if let Some(how) = gone.filter(|_| !self.at_home && !self.end().is_closed()) {
                self.tell_end_behind_releases(peers, how);
                return self.finish(EndReason::Closed);
            }
            if gone.is_some() && self.at_home {
                self.pause(Duration::from_millis(20));
            }
        }
    }

    /// Collects the messages that were taken or released since the last call. Returns whether there are any.
    fn look(&self, is_shared: bool, found: &mut UnreportedReleases) -> bool {
        let was_empty = found.released.is_empty();
        let mut sent = lock(&self.sent);
        sent.retain(|position, sent| {
            let is_released = self.end().is_released(*position);
            if is_shared && !sent.taken && (is_released || !self.end().is_untaken(*position)) {
                sent.taken = true;
                found.taken.push(sent.origin);
            }
            if is_released {
                found.released.push(sent.origin);
                found.made.extend(sent.made.take());
            }
            !is_released
        });
        if was_empty && !found.released.is_empty() {
            self.untold.fetch_add(1, Ordering::AcqRel);
        }
        !found.taken.is_empty() || !found.released.is_empty()
    }

    /// Reports to the source which messages the consumers have taken or released. Returns whether there were any such
    /// messages.
    fn tell_released(&self, peers: &dyn Peers, UnreportedReleases { taken, released, .. }: UnreportedReleases) -> bool {
        if taken.is_empty() && released.is_empty() {
            return false;
        }
        let is_counted = !released.is_empty();
        let body = Released { key: self.key, taken, released }.encode();
        if matches!(self.tell(peers, RELEASED, &body), ReportOutcome::Unknown) {
            self.unknown();
        }
        if is_counted {
            self.untold.fetch_sub(1, Ordering::AcqRel);
            self.changed.notify_all();
        }
        true
    }

    /// Reports to the source how the ring's consumers ended. Before that, reports all messages that the consumers have
    /// released.
    fn tell_end_behind_releases(&self, peers: &dyn Peers, how: EndReason) {
        let mut last = UnreportedReleases::default();
        self.look(false, &mut last);
        self.tell_released(peers, last);
        while self.untold.load(Ordering::Acquire) > 0 && self.stopped().is_none() {
            self.pause(AGAIN);
        }
        let _ = self.tell_end(peers, how, 0);
    }

    /// Ends a sink whose source has ended. All of the source's messages are in the ring. The ring's consumers find the
    /// end after the last message. The messages' objects stay until the consumers have released them or have left.
    fn drain(&self, peers: &dyn Peers, how: EndReason) {
        match how {
            EndReason::Closed => self.port.leave(),
            EndReason::Died => self.die(),
        }
        let mut alone: Option<Instant> = None;
        while !self.is_over() {
            let mut found = UnreportedReleases::default();
            self.look(false, &mut found);
            self.tell_released(peers, found);
            let done = if self.at_home {
                // A consumer may still join and receive the remaining messages.
                if self.end().wait_peer(Duration::ZERO).is_ok() {
                    alone = None
                } else {
                    alone = alone.or(Some(Instant::now()))
                }
                lock(&self.sent).is_empty() || alone.is_some_and(|since| since.elapsed() > KEEP)
            } else {
                self.has_left().is_some()
            };
            if done {
                if !self.at_home {
                    self.tell_end_behind_releases(peers, self.has_left().unwrap_or(EndReason::Closed));
                }
                peers.remove(&self.workflow, std::mem::take(&mut *lock(&self.names)));
                return self.finish(EndReason::Closed);
            }
            self.pause(Duration::from_millis(5));
        }
    }
}

fn over() -> Error {
    Error::new(Status::Closed, "this end of the port has ended")
}

/// Turns an error of a link into an error of the port.
pub fn reached(error: &crossdock_link::Error) -> Error {
    Error::new(error.status, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_report_of_a_taken_message_does_not_count_for_the_next_message() {
        let message = |position| RelayedMessage {
            position,
            tag: 0,
            inline: Vec::new(),
            cargo: MessageObject::None,
            region: (0, 0, String::new()),
        };
        let mut held = UnreleasedMessages::default();
        held.delivered(&[message(1)]);
        held.taken(&[1]);
        held.delivered(&[message(2)]);
        held.taken(&[1]);
        assert!(
            !held.untaken.is_empty(),
            "the source would bring a third message before the task has taken the second"
        );
        held.taken(&[2]);
        assert!(held.untaken.is_empty());
    }
}
