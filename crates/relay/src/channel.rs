//! One end of a port that a task of another node has.
//!
//! A channel has two sides, one in each daemon. The *source* is a consumer: it receives messages from a ring, holds them,
//! and brings them to the other daemon. The *sink* is a producer: it sends them into another ring, and says which ones were
//! released; the source then releases them too. If the task consumes, the source is at the port and the sink at the task's
//! mirror; if it produces, the other way round. So credits, capacity and the order of messages are those of the port.
//!
//! A side ends as its peers end: it leaves its ring in order, or gives it up as a death would. A death is passed on only
//! after all messages before it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crossdock_client::{
    Error, Handle, InUse, Inline, Message, Mode, Pattern, Port, Region, Result, SegmentId, SegmentKind, Session, Status,
};
use crossdock_core::queue::End;
use crossdock_link::Refusal;

use crate::object::{Made, Object};
use crate::tell::{AGAIN, Side, Told, may_pass, tell};
use crate::words::{Cargo, DELIVER, Deliver, ENDED, Ended, How, Key, Parcel, RELEASED, Released, Word};
use crate::{Peers, mirror_name};

/// How long threads wait at a stretch; only a bound, since what happens wakes them.
const SLICE: Duration = Duration::from_millis(200);
/// A question's body has room for so many bytes of messages.
const BATCH: usize = 48 << 10;
/// Objects of more bytes are pulled.
const SMALL: usize = 16 << 10;
/// Most messages of one question.
const MOST: usize = 256;
/// How long one pull may take before it is tried again.
const PULL: Duration = Duration::from_secs(60);
/// How often a work queue is looked at while the task works on a message of it.
const LOOK: Duration = Duration::from_millis(5);
/// A sink at a port whose producer has left keeps the objects of its messages while a consumer is there, and so long beyond.
const KEEP: Duration = Duration::from_secs(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a source has received and not released.
#[derive(Default)]
struct Held {
    messages: BTreeMap<u64, (Message, Option<u64>)>,
    /// Of a work queue: delivered, and not taken by the task yet.
    untaken: usize,
}

/// What a sink has got.
#[derive(Default)]
struct Inbox {
    parcels: VecDeque<Parcel>,
    /// The number of the next message.
    next: u64,
    /// How many messages there are in all, and how the source ended.
    end: Option<(How, u64)>,
}

/// A message that a sink has sent.
struct Sent {
    /// Where it is in the source's ring.
    origin: u64,
    taken: bool,
    made: Option<Made>,
}

/// What a sink has found taken or released, and has not told the source yet: places in the source's ring.
#[derive(Default)]
struct Found {
    taken: Vec<u64>,
    released: Vec<u64>,
    /// The objects of what was released.
    made: Vec<Made>,
}

/// One side of a channel.
pub struct Channel {
    pub key: Key,
    /// The other node.
    pub peer: String,
    /// Does this daemon have the port itself, and not the mirror?
    pub at_home: bool,
    workflow: String,
    session: Session,
    pub port: Port,
    held: Mutex<Held>,
    inbox: Mutex<Inbox>,
    sent: Mutex<BTreeMap<u64, Sent>>,
    /// How many lists of releases are on their way to the source. A sink's end goes behind them: the source gives what it does not
    /// know as released to another consumer.
    untold: AtomicUsize,
    regions: Mutex<BTreeMap<u64, Region>>,
    /// Names to remove at the end.
    names: Mutex<Vec<(SegmentKind, String)>>,
    /// The task of this node that had the mirror has it no more: how it went.
    left: Mutex<Option<How>>,
    over: AtomicBool,
    /// The other node's daemon does not know this channel any more, or is gone.
    lost: AtomicBool,
    /// Is the member of this end alive? Each piece of work on shared memory holds this for reading, so that the member ends
    /// between two of them.
    alive: RwLock<bool>,
    changed: Condvar,
}

impl Side for Channel {
    fn stopped(&self) -> Option<Told> {
        if self.is_over() {
            return Some(Told::Over);
        }
        self.is_lost().then_some(Told::Unknown)
    }

    fn pause(&self, time: Duration) {
        let inbox = lock(&self.inbox);
        if !self.is_over() {
            drop(self.changed.wait_timeout(inbox, time));
        }
    }
}

impl Channel {
    pub fn new(key: Key, peer: &str, at_home: bool, session: Session, port: Port, mirror: Option<String>) -> Arc<Self> {
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

    /// What the daemon says of this end's port.
    pub fn port_report(&self) -> Result<crossdock_client::PortReport> {
        self.session.port_report(self.port.id())
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// For a piece of work on shared memory; `None` if the member has ended.
    fn work(&self) -> Option<RwLockReadGuard<'_, bool>> {
        Some(self.alive.read().unwrap_or_else(PoisonError::into_inner)).filter(|alive| **alive)
    }

    /// The member dies: its end stays as it is, for others to heal.
    fn die(&self) {
        // Threads that wait at the end return, so that the member does not die in the middle of their work.
        self.end().abandon();
        let mut alive = self.alive.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *alive, false) {
            self.session.abandon();
        }
    }

    /// The daemon ends: nothing is asked of it any more.
    pub fn drop_now(&self) {
        self.over.store(true, Ordering::Release);
        self.die();
        self.changed.notify_all();
    }

    /// The other side does not know this channel any more, or its node is gone. What has come from it is still given out.
    pub fn unknown(&self) {
        if self.port.end() == crossdock_client::End::Consumer {
            return self.finish(How::Died);
        }
        let mut inbox = lock(&self.inbox);
        if inbox.end.is_some() {
            // The source has ended before, and needs to know nothing more.
            return;
        }
        inbox.end = Some((How::Died, inbox.next));
        drop(inbox);
        self.lost.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Ends this side: `Closed` leaves the ring in order, `Died` gives it up.
    pub fn finish(&self, how: How) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        for (kind, name) in lock(&self.names).drain(..) {
            // Members that have it open keep it. What cannot be removed now goes with the daemon's next start.
            let _ = self.session.remove(kind, &name, InUse::Keep);
        }
        match how {
            How::Closed => self.port.leave(),
            How::Died => self.die(),
        }
        lock(&self.regions).clear();
        lock(&self.sent).clear();
        self.changed.notify_all();
    }

    /// No member of this node has the mirror any more.
    pub fn left(&self, how: How) {
        lock(&self.left).get_or_insert(how);
        self.changed.notify_all();
    }

    fn has_left(&self) -> Option<How> {
        *lock(&self.left)
    }

    /// Says it to the other side, again and again until it is heard.
    fn tell(&self, peers: &dyn Peers, service: u32, body: &[u8]) -> Told {
        tell(self, peers, &self.peer, service, body)
    }

    fn tell_end(&self, peers: &dyn Peers, how: How, count: u64) -> Told {
        self.tell(peers, ENDED, &Ended { key: self.key, how, count }.encode())
    }

    /// What the other side could pull and has not released.
    pub fn tickets(&self) -> Vec<u64> {
        lock(&self.held).messages.values().filter_map(|(_, ticket)| *ticket).collect()
    }

    // The source.

    /// The thread of a source: receives, and brings what it received to the other side.
    pub fn ship(&self, peers: &dyn Peers) {
        // The only consumer of a mirror takes all: other consumers are at the port itself.
        let is_shared = self.at_home && self.end().shape().pattern == Pattern::WorkQueue;
        let mut count = 0;
        let how = loop {
            if self.is_over() {
                return;
            }
            if is_shared && lock(&self.held).untaken > 0 {
                // Another consumer of the queue may be free before this one: it takes one message at a time.
                self.pause(SLICE);
                continue;
            }
            let Some(work) = self.work() else { return };
            // A consumer of a work queue that waits does not count as one that works, and what it holds would not be waited
            // for at the end. So while the task works on a message, this end only looks now and then.
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
                    Status::Closed => break How::Closed,
                    _ => break How::Died,
                },
            };
            let mut parcels = vec![self.pack(peers, first)];
            let mut bytes = parcels[0].encode().len();
            while !is_shared && parcels.len() < MOST && bytes < BATCH - SMALL - 1024 {
                let Ok(next) = self.port.receive(Some(Duration::ZERO)) else { break };
                parcels.push(self.pack(peers, next));
                bytes += parcels.last().map_or(0, |parcel| parcel.encode().len());
            }
            drop(work);
            if is_shared {
                lock(&self.held).untaken += parcels.len();
            }
            let more = parcels.len() as u64;
            let body = Deliver { key: self.key, first: count, parcels }.encode();
            match self.tell(peers, DELIVER, &body) {
                Told::Yes => count += more,
                Told::Over => return,
                Told::Unknown => return self.finish(How::Died),
            }
        };
        if self.is_over() {
            return;
        }
        match self.tell_end(peers, how, count) {
            Told::Yes if self.at_home => {
                // The task still has messages, and releases them; its side says when it has left.
                while !self.is_over() {
                    self.pause(SLICE);
                }
            }
            Told::Yes => {
                // The other side still pulls these objects.
                while !self.is_over() && lock(&self.held).messages.values().any(|(_, ticket)| ticket.is_some()) {
                    self.pause(SLICE);
                }
                self.finish(how);
            }
            Told::Unknown => self.finish(how),
            Told::Over => {}
        }
    }

    /// A message for the way. Its object stays as it is until the message is released.
    fn pack(&self, peers: &dyn Peers, message: Message) -> Parcel {
        let (mut cargo, mut region, mut ticket) = (Cargo::None, (0, 0, String::new()), None);
        if !message.handle.is_none() {
            let read = self.session.region_of(message.handle).and_then(|from| {
                region = (from.id().0, from.capacity(), from.name().to_owned());
                Object::read(&from, message.handle)
            });
            cargo = match read {
                Ok(object) if object.bytes.len() <= SMALL => Cargo::Here(object),
                Ok(mut object) => {
                    let bytes = std::mem::take(&mut object.bytes);
                    let length = bytes.len() as u64;
                    let number = peers.offer(Arc::new(bytes));
                    ticket = Some(number);
                    Cargo::Pull { object, ticket: number, length }
                }
                Err(error) => {
                    peers.log(&format!("port '{}': {error}", self.port.name()));
                    Cargo::Left
                }
            };
        }
        lock(&self.held).messages.insert(message.position, (message, ticket));
        Parcel { position: message.position, tag: message.tag, inline: message.inline.to_vec(), cargo, region }
    }

    /// The other side says what was taken and released.
    pub fn released(&self, peers: &dyn Peers, body: Released) {
        let work = self.work();
        let mut held = lock(&self.held);
        held.untaken = held.untaken.saturating_sub(body.taken.len());
        for position in body.released {
            // One that is not there was told of before.
            let Some((message, ticket)) = held.messages.remove(&position) else { continue };
            if let Some(ticket) = ticket {
                peers.withdraw(ticket);
            }
            // At an end that has left, the message has gone to a successor.
            let _ = self.port.release(&message);
        }
        drop(held);
        drop(work);
        self.changed.notify_all();
    }

    // The sink.

    /// Messages have come. Those that came before are the same.
    pub fn deliver(&self, body: Deliver) -> std::result::Result<(), Refusal> {
        let mut inbox = lock(&self.inbox);
        let known = usize::try_from(inbox.next.saturating_sub(body.first)).unwrap_or(usize::MAX);
        if body.first > inbox.next || inbox.parcels.len() > self.end().shape().capacity as usize {
            return Err(Refusal::new(Status::Corrupt, "messages of this channel are missing"));
        }
        for parcel in body.parcels.into_iter().skip(known) {
            inbox.parcels.push_back(parcel);
            inbox.next += 1;
        }
        drop(inbox);
        self.changed.notify_all();
        Ok(())
    }

    /// The other side has ended. A source's end comes behind all of its messages.
    pub fn peer_ended(&self, body: &Ended) {
        if self.port.end() == crossdock_client::End::Consumer {
            return self.finish(body.how);
        }
        lock(&self.inbox).end.get_or_insert((body.how, body.count));
        self.changed.notify_all();
    }

    /// The thread of a sink that sends what has come.
    pub fn put(&self, peers: &dyn Peers) {
        let mut number = 0u64;
        loop {
            let parcel = {
                let mut inbox = lock(&self.inbox);
                loop {
                    if self.is_over() {
                        return;
                    }
                    if let Some(parcel) = inbox.parcels.pop_front() {
                        break parcel;
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
            if !self.put_one(peers, &parcel, number) {
                if self.is_lost() && !self.is_over() {
                    // Its object was only on the other node. So is everything behind it.
                    self.drain(peers, How::Died);
                }
                return;
            }
        }
    }

    fn put_one(&self, peers: &dyn Peers, parcel: &Parcel, number: u64) -> bool {
        let (handle, made, bytes) = match self.unpack(peers, parcel, number) {
            Ok(unpacked) => unpacked,
            Err(error) => {
                if !self.is_over() && !self.is_lost() {
                    peers.log(&format!("port '{}': a message of node {}: {error}", self.port.name(), self.peer));
                    self.finish(How::Died);
                    let _ = self.tell_end(peers, How::Died, 0);
                }
                return false;
            }
        };
        let inline = Inline::new(&parcel.inline).unwrap_or_default();
        let message = Message { inline, ..Message::new(handle, parcel.tag) };
        let mut sent = Some(Sent { origin: parcel.position, taken: false, made });
        loop {
            if self.is_over() {
                return false;
            }
            let Some(work) = self.work() else { return false };
            if !self.at_home && self.port.wait_peer(Some(SLICE)).is_err() {
                // The task has not taken its end of the mirror yet.
                if self.has_left().is_some() {
                    return true;
                }
                continue;
            }
            // Until it is noted, it must not be looked for.
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
                            let how = if status == Status::Closed { How::Closed } else { How::Died };
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

    fn unpack(&self, peers: &dyn Peers, parcel: &Parcel, number: u64) -> Result<(Handle, Option<Made>, u64)> {
        let pulled;
        let object = match &parcel.cargo {
            Cargo::None => return Ok((Handle::NONE, None, 0)),
            Cargo::Left => return Ok((Handle { segment: SegmentId::LEFT_BEHIND.0, offset: 0 }, None, 0)),
            Cargo::Here(object) => object,
            Cargo::Pull { object, ticket, length } => {
                let bytes = loop {
                    match peers.pull(&self.peer, *ticket, *length, PULL) {
                        Ok(bytes) => break bytes,
                        Err(error) if self.is_over() || self.is_lost() => return Err(error),
                        Err(error) if !may_pass(error.status) => return Err(error),
                        Err(_) => self.pause(AGAIN),
                    }
                };
                pulled = Object { bytes, ..object.clone() };
                &pulled
            }
        };
        let (id, capacity, name) = &parcel.region;
        let over = || Error::new(Status::Closed, "this end of the port has ended");
        let _work = self.work().ok_or_else(over)?;
        let region = self.region(*id, *capacity, name)?;
        let (handle, made) = object.make(&region, &format!("message-{number}"))?;
        Ok((handle, Some(made), object.bytes.len() as u64))
    }

    /// The region here that holds objects of that region of the other node.
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

    /// The thread of a sink that tells what was released, and when the consumers are gone.
    pub fn watch(&self, peers: &dyn Peers) {
        let is_shared = !self.at_home && self.end().shape().pattern == Pattern::WorkQueue;
        let mut pause = Duration::from_micros(200);
        while !self.is_over() && !self.end().is_closed() {
            let mut found = Found::default();
            let untaken = is_shared && lock(&self.sent).values().any(|sent| !sent.taken);
            // No word changes when a message is taken.
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
                Err(error) if error.status == Status::Closed => Some(How::Closed),
                Err(error) if error.status == Status::PeerDied => Some(How::Died),
                Err(_) => self.has_left(),
            };
            // At the port itself, another consumer may come.
            if let Some(how) = gone.filter(|_| !self.at_home && !self.end().is_closed()) {
                self.tell_end_behind_releases(peers, how);
                return self.finish(How::Closed);
            }
            if gone.is_some() && self.at_home {
                self.pause(Duration::from_millis(20));
            }
        }
    }

    /// Collects what was taken and released; gives whether there is anything to tell.
    fn look(&self, is_shared: bool, found: &mut Found) -> bool {
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

    /// Tells the source what was found; gives whether there was anything.
    fn tell_released(&self, peers: &dyn Peers, Found { taken, released, .. }: Found) -> bool {
        if taken.is_empty() && released.is_empty() {
            return false;
        }
        let is_counted = !released.is_empty();
        let body = Released { key: self.key, taken, released }.encode();
        if matches!(self.tell(peers, RELEASED, &body), Told::Unknown) {
            self.unknown();
        }
        if is_counted {
            self.untold.fetch_sub(1, Ordering::AcqRel);
            self.changed.notify_all();
        }
        true
    }

    /// Tells the source how the ring's consumers ended, behind all that they released before.
    fn tell_end_behind_releases(&self, peers: &dyn Peers, how: How) {
        let mut last = Found::default();
        self.look(false, &mut last);
        self.tell_released(peers, last);
        while self.untold.load(Ordering::Acquire) > 0 && self.stopped().is_none() {
            self.pause(AGAIN);
        }
        let _ = self.tell_end(peers, how, 0);
    }

    /// All messages are in the ring and the source has ended: the ring's consumers learn it behind the last message. What they
    /// have of it stays until they have released it, or are gone.
    fn drain(&self, peers: &dyn Peers, how: How) {
        match how {
            How::Closed => self.port.leave(),
            How::Died => self.die(),
        }
        let mut alone: Option<Instant> = None;
        while !self.is_over() {
            let mut found = Found::default();
            self.look(false, &mut found);
            self.tell_released(peers, found);
            let done = if self.at_home {
                // A consumer may still come for the messages that are left.
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
                    self.tell_end_behind_releases(peers, self.has_left().unwrap_or(How::Closed));
                }
                peers.remove(&self.workflow, std::mem::take(&mut *lock(&self.names)));
                return self.finish(How::Closed);
            }
            self.pause(Duration::from_millis(5));
        }
    }
}

/// The error of another crate's call, for messages about ports.
pub fn reached(error: &crossdock_link::Error) -> Error {
    Error::new(error.status, error.to_string())
}
