//! The server to which the links of other nodes connect. It answers their questions and sends them bytes of segments.
//!
//! Every connection has a thread. If a peer does not greet in time, sends a wrong message, or is silent for too long,
//! the server closes its connection, and all other connections go on. The daemon's [`Serve`] gives the answers.

use crate::frame::{Frames, send};
use crate::peer::LastHeard;
use crate::workers::Workers;
use crate::{Accept, Arriving, Error, LinkOptions, LinkState, Node, Presence, Refusal, Result, SourceId, Stream};
use crossdock_layout::Status;
use crossdock_layout::link::{LINK_VERSION, MAX_BODY, NodeMessage, Purpose};
use crossdock_os::{Deadline, child};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// The maximum time from the arrival of a connection until the peer's greeting is complete.
const GREETING: Duration = Duration::from_secs(5);
/// The largest number of connections that may be in their greeting at the same time.
const GREETINGS: usize = 64;
/// The largest number of connections from one host that may be in their greeting at the same time. So programs of one
/// host that do not complete their greetings cannot keep other hosts from connecting.
const GREETINGS_OF_HOST: usize = 32;
/// The largest number of questions of one connection that are answered at the same time.
const QUESTIONS: usize = 64;
/// The largest number of threads that answer questions.
const WORKERS: usize = 256;
/// The number of bytes that are sent with one header. The bytes are copied, or their checksum is computed, just before
/// they are sent. The number is so small that the bytes are then still in the CPU's cache.
const CHUNK: u64 = 256 << 10;
/// A data connection that asks for no bytes during this time is closed. The peer makes another connection when it needs
/// one.
const IDLE: Duration = Duration::from_secs(60);
/// If a data connection asks for no bytes during this time, the memory of its buffer is freed.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time that an answer may take, even if the question allows more.
const ANSWER: Duration = Duration::from_secs(3600);
/// When the server stops, it waits at most this long for questions that are being answered.
const FAREWELL: Duration = Duration::from_secs(5);
/// The interval at which the thread that accepts connections checks whether it must stop.
const LOOK: Duration = Duration::from_millis(200);

/// A node that has connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The node's name and the number of its daemon's start. Under TLS, a certificate has proved the name.
    pub node: Node,
    /// The address that the node connects from.
    pub address: String,
}

/// The bytes of an object. They do not change while they are served.
pub trait Source: Send + Sync {
    /// Gives the length in bytes.
    fn length(&self) -> u64;
    /// Gives a part of the bytes: the bytes themselves, or a copy of them in `buffer`.
    ///
    /// # Errors
    /// The part is out of bounds, these bytes no longer exist, or it has turned out that they must not go to another
    /// node.
    fn bytes<'a>(&'a self, offset: u64, length: u64, buffer: &'a mut Buffer) -> std::result::Result<&'a [u8], Refusal>;
}

/// Memory for a copy of a source's bytes. The next copy uses the same memory, because new memory costs page faults.
#[derive(Debug, Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Gives `length` bytes of the memory, with any content.
    ///
    /// # Errors
    /// This process cannot address so many bytes.
    pub fn room(&mut self, length: u64) -> std::result::Result<&mut [u8], Refusal> {
        let length = usize::try_from(length).map_err(|_| Refusal::shorter())?;
        if self.0.len() < length {
            self.0.resize(length, 0);
        }
        Ok(&mut self.0[..length])
    }
}

impl Source for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, _: &'a mut Buffer) -> std::result::Result<&'a [u8], Refusal> {
        let range = || {
            let from = usize::try_from(offset).ok()?;
            self.get(from..from.checked_add(usize::try_from(length).ok()?)?)
        };
        range().ok_or_else(Refusal::shorter)
    }
}

impl Source for crossdock_os::Mapping {
    fn length(&self) -> u64 {
        self.length() as u64
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, _: &'a mut Buffer) -> std::result::Result<&'a [u8], Refusal> {
        self.settled_bytes(offset, length).ok_or_else(Refusal::shorter)
    }
}

/// The daemon's answers to other nodes. Several threads call these functions at the same time.
pub trait Serve: Send + Sync + 'static {
    /// Answers a question. If the answer is lost on the way, the peer may ask again, so answering a question twice must
    /// do no harm.
    ///
    /// # Errors
    /// The reason why the question is refused.
    fn answer(&self, peer: &Peer, service: u32, body: &[u8], by: Deadline) -> std::result::Result<Vec<u8>, Refusal>;

    /// Opens an object for reading. Its bytes must not change while the returned source is held.
    ///
    /// # Errors
    /// The object does not exist (any more), or this peer may not read it.
    fn open(&self, peer: &Peer, source_id: &SourceId) -> std::result::Result<Arc<dyn Source>, Refusal>;

    /// Serves a connection to the catalog. The connection's thread stays in this call until the connection ends.
    fn catalog(&self, _peer: &Peer, stream: Arc<dyn Stream>) {
        stream.close();
    }

    /// The server calls this function when a control connection of this peer has begun.
    fn joined(&self, _peer: &Peer) {}

    /// The server calls this function when a control connection of this peer has ended. The peer is not known to be
    /// dead.
    fn left(&self, _peer: &Peer, _why: &str) {}

    /// The server calls this function when it has refused a connection, or when a connection has ended with an error.
    /// The daemon logs the error.
    fn refused(&self, _error: &Error) {}
}

/// Counters of a server, for metrics and tests.
#[derive(Debug, Default)]
pub struct Counts {
    /// How many connections arrived.
    pub arrived: AtomicU64,
    /// How many connections were refused before their greeting was complete, or closed because of what the peer sent.
    pub refused: AtomicU64,
    /// How many bytes of objects were sent.
    pub sent: AtomicU64,
}

struct Session {
    peer: Peer,
    heard: LastHeard,
    transport: &'static str,
}

/// A connection after its greeting: its messages, its peer, its purpose, and the identifier of its control connection.
type Greeted = (Frames, Peer, Purpose, [u8; 16]);

struct Shared {
    own: Node,
    options: LinkOptions,
    serve: Arc<dyn Serve>,
    workers: Arc<Workers>,
    counts: Counts,
    stopping: AtomicBool,
    /// For each host: how many of its connections are in their greeting.
    greeting: Arc<Places>,
    /// For each node: how many data connections it has.
    data: Arc<Places>,
    /// For each node: how many of its greeted connections are not data connections.
    others: Arc<Places>,
    /// Maps the identifier of each control connection to its session. A data connection names the identifier of its
    /// control connection.
    sessions: Mutex<HashMap<[u8; 16], Session>>,
    /// The stream of every connection whose stream is established. When the server stops, it closes these streams.
    streams: Mutex<HashMap<u64, Arc<dyn Stream>>>,
}

/// A server that answers other nodes until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For each host or node: how many connections it has.
#[derive(Default)]
struct Places(Mutex<HashMap<String, usize>>);

/// One connection that [`Places`] counts until this value is dropped.
struct Place {
    of: Arc<Places>,
    name: String,
}

impl Places {
    /// Counts a connection of `name`, if `name` has fewer than `of_one` connections and all names together have fewer
    /// than `of_all` connections.
    ///
    /// # Errors
    /// There are too many connections. The error says how many there are, as text.
    fn take(self: &Arc<Self>, name: &str, of_one: usize, of_all: usize) -> std::result::Result<Place, String> {
        let mut taken = lock(&self.0);
        let (own, all) = (taken.get(name).copied().unwrap_or(0), taken.values().sum::<usize>());
        if own >= of_one || all >= of_all {
            return Err(format!("there are {all} such connections, {own} of them from '{name}'"));
        }
        taken.insert(name.to_owned(), own + 1);
        Ok(Place { of: self.clone(), name: name.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.of.0);
        match taken.get_mut(&self.name) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.name)),
        }
    }
}

/// Gives the host of an address with a port.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// A value that decrements this counter when it is dropped, also after a panic.
struct CounterGuard<'a>(&'a AtomicUsize);

impl Drop for CounterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// Starts the threads that accept and serve connections.
    ///
    /// # Errors
    /// No thread can be started for accepting connections.
    pub fn start(accept: Box<dyn Accept>, own: Node, serve: Arc<dyn Serve>, options: LinkOptions) -> Result<Self> {
        let address = accept.address();
        let shared = Arc::new(Shared {
            own,
            options,
            serve,
            workers: Workers::new(WORKERS),
            counts: Counts::default(),
            stopping: AtomicBool::new(false),
            greeting: Arc::default(),
            data: Arc::default(),
            others: Arc::default(),
            sessions: Mutex::default(),
            streams: Mutex::default(),
        });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("crossdock-nodes".into()).spawn(move || shared.take_all(&*accept))
        };
        let thread = thread.map_err(|error| Error::new(Status::System, "start a server", error.to_string()))?;
        Ok(Self { shared, address, thread: Some(thread) })
    }

    /// Gives the address to which other nodes connect.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Gives the counters so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Gives the nodes that have a control connection to this server now.
    #[must_use]
    pub fn peers(&self) -> Vec<LinkState> {
        let sessions = lock(&self.shared.sessions);
        let seen = |session: &Session| LinkState {
            node: session.peer.node.name.clone(),
            address: session.peer.address.clone(),
            transport: session.transport,
            presence: session.heard.presence(&self.shared.options),
            heard: Some(session.heard.0.elapsed()),
            incarnation: Some(session.peer.node.incarnation),
            why: None,
            better: None,
            pulls: None,
        };
        sessions.values().map(seen).collect()
    }

    /// Tells whether the node `node` has a control connection to this server, and whether its last message on this
    /// connection came within the last [`LinkOptions::away`].
    #[must_use]
    pub fn presence(&self, node: &str) -> Presence {
        let seen = self.peers().into_iter().filter(|seen| seen.node == node);
        seen.min_by_key(|seen| seen.heard).map_or(Presence::Unmet, |seen| seen.presence)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        let streams: Vec<_> = lock(&self.shared.streams).values().cloned().collect();
        for stream in streams {
            stream.close();
        }
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its message has been printed already, so the panic is ignored here.
            let _ = thread.join();
        }
        self.shared.workers.stop(FAREWELL);
    }
}

impl Shared {
    /// Does the work of the thread that accepts connections.
    fn take_all(self: &Arc<Self>, accept: &dyn Accept) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let mut number = 0;
        while !self.stopping.load(Ordering::Acquire) {
            let arriving = match accept.accept(Deadline::after(LOOK)) {
                Ok(Some(arriving)) => arriving,
                Ok(None) => continue,
                Err(error) => {
                    // `accept` failed, for example because this process has no descriptors left. A connection that has
                    // arrived waits in the kernel until the next attempt.
                    self.serve.refused(&error);
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            threads.retain(|thread| !thread.is_finished());
            self.counts.arrived.fetch_add(1, Ordering::Relaxed);
            let greeting = match self.greeting.take(host(arriving.address()), GREETINGS_OF_HOST, GREETINGS) {
                _ if threads.len() >= self.options.connections => Err(format!("{} connections stand", threads.len())),
                Err(why) => Err(format!("too many connections are in their greeting: {why}")),
                Ok(greeting) => Ok(greeting),
            };
            let greeting = match greeting {
                Ok(greeting) => greeting,
                Err(reason) => {
                    self.refuse(&Error::new(Status::Busy, "accept", reason).at(arriving.address()));
                    continue;
                }
            };
            number += 1;
            let (shared, key) = (self.clone(), number);
            let thread = std::thread::Builder::new().name("crossdock-node".into()).spawn(move || {
                shared.take(arriving, key, greeting);
                lock(&shared.streams).remove(&key);
            });
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => self.refuse(&Error::new(Status::System, "start a thread", error.to_string())),
            }
        }
        // Closes the connections that were established while the server's `drop` closed the others.
        for stream in lock(&self.streams).values() {
            stream.close();
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn refuse(&self, error: &Error) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.serve.refused(error);
    }

    /// Serves one connection, from its arrival to its end.
    fn take(self: &Arc<Self>, arriving: Box<dyn Arriving>, key: u64, greeting: Place) {
        let greeted = self.greet(arriving, key);
        drop(greeting);
        let (greeted, _place) = match greeted {
            Ok((greeted, place)) => (Ok(greeted), Some(place)),
            Err(error) => (Err(error), None),
        };
        let ended = match greeted {
            Ok((mut frames, peer, Purpose::Control, session)) => {
                let ended = self.control(&mut frames, &peer, session);
                lock(&self.sessions).remove(&session);
                let why = ended.as_ref().map_or_else(|error| error.reason.clone(), |()| "it closed in order".into());
                self.serve.left(&peer, &why);
                frames.stream().close();
                ended
            }
            Ok((mut frames, peer, Purpose::Data, _)) => {
                let ended = self.data(&mut frames, &peer);
                frames.stream().close();
                ended
            }
            Ok((frames, peer, Purpose::Catalog, _)) => {
                self.serve.catalog(&peer, frames.stream().clone());
                Ok(())
            }
            Err(error) => {
                if let Some(stream) = lock(&self.streams).get(&key) {
                    stream.close();
                }
                Err(error)
            }
        };
        if let Err(error) = ended {
            // If the peer has closed the connection itself, the error is logged, but not counted as a refusal.
            if matches!(error.status, Status::Disconnected) { self.serve.refused(&error) } else { self.refuse(&error) }
        }
    }

    /// Greets a peer. The connection is counted as long as the returned [`Place`] lives.
    fn greet(&self, arriving: Box<dyn Arriving>, key: u64) -> Result<(Greeted, Place)> {
        let by = Deadline::after(GREETING);
        let stream = arriving.establish(by)?;
        lock(&self.streams).insert(key, stream.clone());
        if self.stopping.load(Ordering::Acquire) {
            stream.close();
        }
        let mut frames = Frames::new(stream.clone());
        let wrong = |status, reason: String| {
            let error = Error::new(status, "greet", reason).at(stream.address());
            let text = Refusal::new(status, error.reason.clone()).text;
            let _ = send(&*stream, &NodeMessage::Failed { status, text }, 1, by);
            error
        };
        let (node, to, purpose, incarnation, named) = match frames.next(by) {
            Ok(Some((_, NodeMessage::Hello { node, to, purpose, incarnation, session, .. }))) => {
                (node, to, purpose, incarnation, session)
            }
            Ok(Some(_)) => return Err(wrong(Status::Corrupt, "the first message is not Hello".into())),
            Ok(None) => return Err(Error::new(Status::Disconnected, "greet", "the peer closed").at(stream.address())),
            Err(error) if error.status == Status::Incompatible => return Err(wrong(error.status, error.reason)),
            Err(error) => return Err(error),
        };
        if to != self.own.name {
            let reason = format!("this is node '{}', not '{to}'; correct the address", self.own.name);
            return Err(wrong(Status::NotFound, reason));
        }
        if !stream.may_be(&node) {
            return Err(wrong(Status::Denied, format!("the peer's certificate is not that of node '{node}'")));
        }
        // The limit for one node leaves connections for the other nodes. The lower limit for data connections leaves
        // connections for other purposes.
        let most = self.options.connections;
        let (places, of_all) =
            if purpose == Purpose::Data { (&self.data, most - most / 4) } else { (&self.others, most) };
        let place = places.take(&node, (most / 8).max(1), of_all);
        let place =
            place.map_err(|why| wrong(Status::Busy, format!("too many connections: {why}; ask again later")))?;
        let peer = Peer { node: Node { name: node, incarnation }, address: stream.address().to_owned() };
        let session = match purpose {
            Purpose::Control => {
                let session: [u8; 16] =
                    child::random().map_err(|error| Error::new(Status::System, "greet", error.to_string()))?;
                let begun = Session { peer: peer.clone(), heard: LastHeard::now(), transport: stream.transport() };
                lock(&self.sessions).insert(session, begun);
                session
            }
            Purpose::Data => {
                let known = lock(&self.sessions).get(&named).is_some_and(|session| session.peer.node == peer.node);
                if !known {
                    let reason = "the data connection names no control connection of this node";
                    return Err(wrong(Status::Disconnected, reason.into()));
                }
                named
            }
            Purpose::Catalog => named,
        };
        let welcome = NodeMessage::Welcome {
            version: LINK_VERSION,
            incarnation: self.own.incarnation,
            session,
            pulse_ms: self.options.pulse_ms(),
            away_ms: self.options.away_ms(),
            node: self.own.name.clone(),
        };
        if let Err(error) = send(&*stream, &welcome, 0, by) {
            // A control connection has a session of its own, which ends here. A data connection only names the session
            // of its control connection, which goes on.
            if purpose == Purpose::Control {
                lock(&self.sessions).remove(&session);
            }
            return Err(error);
        }
        Ok(((frames, peer, purpose, session), place))
    }

    /// Serves a control connection: answers questions until the peer closes it, is silent for too long, or sends a
    /// wrong message.
    fn control(self: &Arc<Self>, frames: &mut Frames, peer: &Peer, session: [u8; 16]) -> Result<()> {
        self.serve.joined(peer);
        let open = Arc::new(AtomicUsize::new(0));
        let (mut heard, mut said, mut pulses) = (Instant::now(), Instant::now(), 0);
        let give_up = self.options.give_up();
        loop {
            if said.elapsed() >= self.options.pulse {
                send(&**frames.stream(), &NodeMessage::Pulse { count: pulses }, 0, Deadline::after(give_up))?;
                pulses += 1;
                said = Instant::now();
            }
            let message = match frames.next(Deadline::after(self.options.pulse.saturating_sub(said.elapsed()))) {
                Err(error) if error.status == Status::TimedOut && heard.elapsed() < give_up => continue,
                Err(error) if error.status == Status::TimedOut => {
                    let reason = format!("the peer was silent for {:.1?}", heard.elapsed());
                    return Err(Error::new(Status::Disconnected, "listen to the peer", reason)
                        .with(&peer.node.name, &peer.address));
                }
                other => other?,
            };
            heard = Instant::now();
            if let Some(session) = lock(&self.sessions).get_mut(&session) {
                session.heard = LastHeard(heard);
            }
            match message {
                None | Some((_, NodeMessage::Bye)) => return Ok(()),
                Some((_, NodeMessage::Pulse { .. })) => {}
                Some((number, NodeMessage::Ask { service, wait_ms, body })) => {
                    self.hand_over(frames.stream(), peer, &open, (number, service, wait_ms, body))?;
                }
                Some((_, other)) => return Err(unexpected(&other, peer)),
            }
        }
    }

    /// Gives a question to a worker thread, which sends the answer.
    fn hand_over(
        self: &Arc<Self>,
        stream: &Arc<dyn Stream>,
        peer: &Peer,
        open: &Arc<AtomicUsize>,
        (number, service, wait_ms, body): (u64, u32, u32, Vec<u8>),
    ) -> Result<()> {
        let busy = |what: &str| {
            let refused = Refusal::new(Status::Busy, format!("node '{}' {what}; ask again later", self.own.name));
            let message = NodeMessage::Failed { status: refused.status, text: refused.text };
            send(&**stream, &message, number, Deadline::after(self.options.give_up()))
        };
        if open.fetch_add(1, Ordering::AcqRel) >= QUESTIONS {
            open.fetch_sub(1, Ordering::AcqRel);
            return busy("answers 64 questions of this peer already");
        }
        let by = Deadline::after(Duration::from_millis(wait_ms.into()).min(ANSWER));
        let (shared, stream_of, peer, open_of) = (self.clone(), stream.clone(), peer.clone(), open.clone());
        let started = self.workers.run(Box::new(move || {
            let _counted = CounterGuard(&open_of);
            let answer = match shared.serve.answer(&peer, service, &body, by) {
                Ok(body) if body.len() <= MAX_BODY => NodeMessage::Said(body),
                Ok(body) => {
                    let text = format!("the answer of service {service} has {} bytes; {MAX_BODY} fit", body.len());
                    NodeMessage::Failed { status: Status::NoSpace, text }
                }
                Err(refusal) => NodeMessage::Failed { status: refusal.status, text: refusal.text },
            };
            if send(&*stream_of, &answer, number, Deadline::after(shared.options.give_up())).is_err() {
                stream_of.close();
            }
        }));
        if started {
            return Ok(());
        }
        open.fetch_sub(1, Ordering::AcqRel);
        busy("has no thread left for questions")
    }

    /// Serves a data connection: sends bytes of objects until the peer closes it, or asks for none for too long.
    fn data(&self, frames: &mut Frames, peer: &Peer) -> Result<()> {
        let mut buffer = Buffer::default();
        let mut asked = Instant::now();
        loop {
            match frames.next(Deadline::after(PAUSE.min(IDLE.saturating_sub(asked.elapsed())))) {
                Err(error) if error.status == Status::TimedOut && asked.elapsed() < IDLE => buffer = Buffer::default(),
                Err(error) if error.status == Status::TimedOut => return Ok(()),
                Err(error) => return Err(error),
                Ok(None | Some((_, NodeMessage::Bye))) => return Ok(()),
                Ok(Some((number, NodeMessage::Fetch { kind, checked, object, epoch, offset, length }))) => {
                    let source_id = SourceId { kind, object, epoch };
                    self.send_bytes(
                        &**frames.stream(),
                        peer,
                        number,
                        (source_id, checked, offset, length),
                        &mut buffer,
                    )?;
                    asked = Instant::now();
                }
                Ok(Some((_, other))) => return Err(unexpected(&other, peer)),
            }
        }
    }

    fn send_bytes(
        &self,
        stream: &dyn Stream,
        peer: &Peer,
        number: u64,
        (source_id, checked, offset, length): (SourceId, bool, u64, u64),
        buffer: &mut Buffer,
    ) -> Result<()> {
        let soon = || Deadline::after(self.options.give_up());
        let source = match self.serve.open(peer, &source_id) {
            Ok(source) => source,
            Err(Refusal { status, text }) => {
                return send(stream, &NodeMessage::Failed { status, text }, number, soon());
            }
        };
        let (mut at, end) = (offset, offset.saturating_add(length));
        if end > source.length() {
            let text = format!("{source_id} has {} bytes; bytes {offset} to {end} were asked for", source.length());
            return send(stream, &NodeMessage::Failed { status: Status::Invalid, text }, number, soon());
        }
        while at < end {
            let length = (end - at).min(CHUNK);
            let bytes = match source.bytes(at, length, buffer) {
                Ok(bytes) => bytes,
                Err(Refusal { status, text }) => {
                    let text = format!("{source_id}: {text}");
                    return send(stream, &NodeMessage::Failed { status, text }, number, soon());
                }
            };
            let sum = if checked { XxHash3_64::oneshot(bytes) } else { 0 };
            let chunk = NodeMessage::Chunk { offset: at, length, sum }.encode(number);
            stream.write(&[&chunk, bytes], soon())?;
            self.counts.sent.fetch_add(length, Ordering::Relaxed);
            at += length;
        }
        Ok(())
    }
}

fn unexpected(message: &NodeMessage, peer: &Peer) -> Error {
    let reason = format!("a message that does not belong here: number {}", message.number());
    Error::new(Status::Corrupt, "listen to the peer", reason).with(&peer.node.name, &peer.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_or_node_does_not_take_the_places_of_all_others() {
        let places = Arc::new(Places::default());
        let mut taken: Vec<_> = (0..2).map(|_| places.take("a", 2, 3).unwrap()).collect();
        assert!(places.take("a", 2, 3).is_err_and(|why| why.contains("2 of them from 'a'")));
        taken.push(places.take("b", 2, 3).unwrap());
        assert!(places.take("c", 2, 3).is_err());
        taken.remove(0);
        assert!(places.take("c", 2, 3).is_ok());
        drop(taken);
        assert!(lock(&places.0).is_empty());
        assert_eq!([host("10.0.0.1:7"), host("[::1]:7"), host("?")], ["10.0.0.1", "[::1]", "?"]);
    }
}
