//! Ports, series and regions across nodes. This page explains ports; the modules `series` and `region` explain the
//! rest.
//!
//! A task that opens a port of another node gets a *mirror*: a port of its own node with the same shape. The task opens
//! one end of the mirror, and the daemon of the task's node opens the other end. The daemon of the port's node opens an
//! end of the port on behalf of the task. Each daemon opens its end as a member of its own node. The daemon at one end
//! receives messages there, and the daemon at the other end sends these messages on (`channel`). Everything else works
//! as on one node: each node's ring keeps the order, credits and capacity, is healed after a death, and reports which
//! members closed.
//!
//! The object of a message is copied into a region of the other node (`object`), with the same rights. Mirrors are
//! named `.mirror/BY-NUMBER-ID/NAME`. A task may open a mirror if its grants allow it to open `NAME`.
//!
//! If one of the two daemons does not answer, the other one is not blocked. A request that gets no answer is sent
//! again. If the other daemon does not know a channel, or the lease of its node has ended, the channel ends as after a
//! death.

mod channel;
mod fuzz;
mod messages;
mod object;
mod region;
mod reports;
mod series;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, End, Error, InUse, Pattern, PortOptions, Result, SegmentId, SegmentKind, Session, Status,
};
use crossdock_gateway::Nodes;
use crossdock_layout::name::{self, MIRROR};
use crossdock_link::{Refusal, Source, SourceId};
use crossdock_os::Deadline;

use channel::{Channel, reached};
#[doc(hidden)]
pub use fuzz::fuzz_decode;
use messages::{BodyField, ChannelKey, ChannelKeys, Open, Opened, Released};
pub use region::WantedRegion;
pub use series::WantedSeries;
pub use series::fuzz::fuzz_mirror;

/// Tells whether this crate answers requests to this service.
#[must_use]
pub fn serves(service: u32) -> bool {
    (messages::OPEN..=messages::KNOWN).contains(&service)
        || series::SERVICES.contains(&service)
        || region::SERVICES.contains(&service)
}

/// The pause before a request is repeated because its answer was lost.
const AGAIN: Duration = Duration::from_millis(50);
/// How many keys of channels are remembered, in order to recognise repeated requests.
const SEEN: usize = 4096;
/// How often a daemon asks the other daemons whether they know the channels that they share with it.
const COMPARE: Duration = Duration::from_secs(1);
/// How many other daemons a daemon asks at the same time.
const AT_ONCE: usize = 32;
/// The deadline for a request to the daemon of this node.
const LOCAL: Duration = Duration::from_secs(10);
/// How long one request to open an end waits if all ends of the task's side are taken. If the task wants to wait
/// longer, several requests are sent. If the task wants to wait less, the request waits for this time all the same,
/// because an earlier end of the same task may be about to close.
const PLACE: Duration = Duration::from_secs(1);
/// The longest pause before a request to open an end is repeated because all ends of the task's side are taken.
const PLACE_PAUSE: Duration = Duration::from_millis(800);
/// How many requests of another node to open ends of one port may be in progress at the same time. The link answers
/// only a limited number of requests of a node at the same time. If requests that wait for a port took this whole
/// number, requests that bring messages would be held up.
const OPENS_OF_PORT: usize = 8;
/// How many requests of another node to open ends of any ports may be in progress at the same time.
const OPENS_OF_NODE: usize = 32;
/// How long the other daemon may take to open an end, in addition to the time for which the request waits while all
/// ends of the task's side are taken.
const REACH: Duration = Duration::from_secs(10);
/// Other nodes pull the objects of messages and the bytes of versions under ids. Each of these ids contains this
/// segment kind.
const KIND: SegmentKind = SegmentKind::Port;

/// A request by a task of this node for an end of a port of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedEnd {
    /// The node that has the port.
    pub node: String,
    /// The name of the port's workflow.
    pub workflow: String,
    /// The name of the port.
    pub port: String,
    /// The name of the task that opens the end.
    pub task: String,
    /// The rank of the task that opens the end.
    pub rank: u32,
    /// Whether the task sends messages. If not, it receives them.
    pub sends: bool,
    /// How long the task waits for an end of the port if all ends of its side are taken.
    pub wait: Duration,
}

/// The functions by which a relay reaches the relays of other nodes.
pub trait RelayNetwork: Send + Sync {
    /// Sends a request to a service of another node, and returns the answer. If the call fails with `TimedOut` or
    /// `Disconnected`, the other node may have carried out the request, or may still do it.
    ///
    /// # Errors
    /// The service's refusal, or the reason why no answer came.
    fn ask(&self, node: &str, service: u32, body: &[u8], by: Deadline) -> crossdock_link::Result<Vec<u8>>;

    /// Reads the bytes of another node's object from `offset` on, until `memory` is full.
    ///
    /// # Errors
    /// The reason why the bytes did not come.
    fn pull(
        &self,
        node: &str,
        source_id: &SourceId,
        offset: u64,
        memory: &mut [u8],
        by: Deadline,
    ) -> crossdock_link::Result<()>;
}

impl RelayNetwork for Nodes {
    fn ask(&self, node: &str, service: u32, body: &[u8], by: Deadline) -> crossdock_link::Result<Vec<u8>> {
        Self::ask(self, node, service, body, by)
    }

    fn pull(
        &self,
        node: &str,
        source_id: &SourceId,
        offset: u64,
        memory: &mut [u8],
        by: Deadline,
    ) -> crossdock_link::Result<()> {
        Self::pull(self, node, source_id, offset, memory, by).map(drop)
    }
}

/// The functions of the relay that its channels and mirrors use.
trait Peers: Sync {
    fn ask(&self, node: &str, service: u32, body: &[u8], wait: Duration) -> Result<Vec<u8>>;
    /// Pulls bytes that `node` offers under the number `ticket`, from `offset` on, until `memory` is full.
    fn pull_into(&self, node: &str, ticket: u64, offset: u64, memory: &mut [u8], wait: Duration) -> Result<()>;
    /// Lets other nodes pull these bytes. Returns the ticket: the number by which the other nodes name the bytes.
    fn offer(&self, bytes: Arc<dyn Source>) -> u64;
    fn withdraw(&self, ticket: u64);
    /// Removes mirrors, each given by its kind and name, through a new session.
    fn remove(&self, workflow: &str, names: Vec<(SegmentKind, String)>);
    fn log(&self, line: &str);
}

/// Looks for the channel or mirror with this key by calling `find`. If there is none, the error tells whether `opening`
/// has the key. A key leaves `opening` only when `find` can find its channel, so this function reads `opening` first.
fn find_or_opening<T>(
    opening: &Mutex<BTreeSet<ChannelKey>>,
    key: ChannelKey,
    find: impl FnOnce() -> Option<T>,
) -> std::result::Result<T, bool> {
    let is_opening = lock(opening).contains(&key);
    find().ok_or(is_opening)
}

/// Gives the name of the mirror of the port, series or region `name`. `number` distinguishes the mirrors of one
/// channel.
fn mirror_name(key: ChannelKey, number: u64, name: &str) -> Result<String> {
    let mirror = format!("{MIRROR}{:x}-{:x}-{number:x}/{}", key.by, key.number, name::mirrored(name));
    name::check(&mirror).map_err(|bad| {
        Error::new(Status::Invalid, format!("'{name}' is too long for a port across nodes: its mirror's name: {bad}"))
    })?;
    Ok(mirror)
}

/// The requests to open an end of a port that this node is carrying out for other nodes. Each entry is the node that
/// asks, the workflow and the port.
#[derive(Default)]
struct OpensInProgress(Mutex<Vec<(String, String, String)>>);

/// A request to open an end that is in progress until this value is dropped.
struct OpenInProgress<'a>(&'a OpensInProgress, (String, String, String));

impl OpensInProgress {
    /// Notes a request of a node. If too many requests of the node are in progress, the call fails with `Busy`, and the
    /// node tries again.
    fn begin(&self, node: &str, open: &Open) -> Result<OpenInProgress<'_>> {
        let own = (node.to_owned(), open.workflow.clone(), open.port.clone());
        let mut all = lock(&self.0);
        let of_port = all.iter().filter(|other| **other == own).count();
        let of_node = all.iter().filter(|other| other.0 == node).count();
        if of_port >= OPENS_OF_PORT || of_node >= OPENS_OF_NODE {
            let text = format!(
                "port '{}': {of_node} tasks of node {node} wait for ends of ports, {of_port} of them for this one",
                open.port
            );
            return Err(Error::new(Status::Busy, text));
        }
        all.push(own.clone());
        drop(all);
        Ok(OpenInProgress(self, own))
    }
}

impl Drop for OpenInProgress<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.0.0);
        if let Some(at) = all.iter().position(|other| *other == self.1) {
            all.swap_remove(at);
        }
    }
}

struct Shared {
    token: u64,
    nodes: Arc<dyn RelayNetwork>,
    socket: PathBuf,
    /// The number that the next new key gets.
    next: AtomicU64,
    /// The next ticket. The first ticket has the value of `token`, which is a new random number at each start of the
    /// broker. So this broker does not give tickets that an earlier broker of this node has given.
    next_ticket: AtomicU64,
    channels: Mutex<BTreeMap<ChannelKey, Arc<Channel>>>,
    series: series::SeriesRelays,
    regions: region::RegionTransfers,
    /// Keys of channels and mirrors that are being opened.
    opening: Mutex<BTreeSet<ChannelKey>>,
    /// Keys of channels and supplies that other nodes have asked this node to open. The newest key is the last.
    seen: Mutex<VecDeque<ChannelKey>>,
    /// The keys in `seen` whose requests this node is carrying out.
    serving: Mutex<BTreeSet<ChannelKey>>,
    opens: OpensInProgress,
    offered: Mutex<HashMap<u64, Arc<dyn Source>>>,
    stop: AtomicBool,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// A daemon's relay: all of its channels, mirrors and supplies.
pub struct Relay {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What a relay shared with a node at the time when the node's lease ended. The node may get a new lease later, and the
/// relay may then open other channels and mirrors with the node. They are not lost, so they are not part of this value.
#[derive(Clone)]
pub struct LostNode {
    channels: Vec<Arc<Channel>>,
    supplies: Vec<Arc<series::Supply>>,
    mirrors: Vec<Arc<series::Mirror>>,
    frozen: Vec<Arc<region::Frozen>>,
}

impl LostNode {
    /// Ends everything that was shared with the node, as after a death. The copies of regions that the node was making
    /// count as failed.
    pub fn end(&self) {
        self.supplies.iter().for_each(|supply| supply.finish());
        self.mirrors.iter().for_each(|mirror| mirror.gone());
        self.frozen.iter().for_each(|frozen| frozen.end());
        self.channels.iter().for_each(|channel| channel.unknown());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// Makes the relay of the daemon at `socket`. `token` must be a new random number at each start of a broker.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(
        token: u64,
        nodes: Arc<dyn RelayNetwork>,
        socket: PathBuf,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            token,
            nodes,
            socket,
            next: AtomicU64::new(1),
            next_ticket: AtomicU64::new(token),
            channels: Mutex::default(),
            series: series::SeriesRelays::default(),
            regions: region::RegionTransfers::default(),
            opening: Mutex::default(),
            seen: Mutex::default(),
            serving: Mutex::default(),
            opens: OpensInProgress::default(),
            offered: Mutex::default(),
            stop: AtomicBool::new(false),
            log: Box::new(log),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("site-relay".into()).spawn(move || own.compare())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Opens an end of a port of another node for a task, and returns the mirror's id. Blocks until the other node has
    /// answered.
    ///
    /// # Errors
    /// The errors of opening a port, as the other node reports them. `DISCONNECTED` or `TIMED_OUT` if that node cannot
    /// be reached.
    pub fn open(&self, want: &WantedEnd) -> std::result::Result<SegmentId, (Status, String)> {
        self.shared.open_again(want).map_err(|error| (error.status, error.to_string()))
    }

    /// Opens a series of another node for tasks of this node, and returns the mirror's id. Blocks until the other node
    /// has answered.
    ///
    /// # Errors
    /// The errors of observing a series, as the other node reports them. `DISCONNECTED` or `TIMED_OUT` if that node
    /// cannot be reached.
    pub fn open_series(&self, want: &WantedSeries) -> std::result::Result<SegmentId, (Status, String)> {
        self.shared.open_series(want).map_err(|error| (error.status, error.to_string()))
    }

    /// Copies or moves a region to this node, and returns the id of the copy. Blocks until the copy has its name.
    ///
    /// # Errors
    /// `BUSY` if a task has the region open; the errors of opening and making regions; `DISCONNECTED` or `TIMED_OUT` if
    /// the other node cannot be reached. After an error there is no copy.
    pub fn copy_region(&self, want: &WantedRegion) -> std::result::Result<SegmentId, (Status, String)> {
        self.shared.copy_region(want).map_err(|error| (error.status, error.to_string()))
    }

    /// Notes that no member uses this mirror any more. `died` says whether the last member that used it died.
    pub fn left(&self, mirror: SegmentId, died: bool) {
        if self.shared.series.left(mirror) {
            return;
        }
        let how = if died { messages::EndReason::Died } else { messages::EndReason::Closed };
        for channel in self.shared.all() {
            if !channel.at_home && channel.port.id() == mirror {
                channel.left(how);
            }
        }
    }

    /// Notes that the lease of a node has ended. The node's ports, series and regions count as lost.
    pub fn gone(&self, node: &str) {
        self.lost(node).end();
    }

    /// Gives the channels, supplies and mirrors that join this node with the node `node` now, and the regions that are
    /// frozen for that node. The call does not wait for anything.
    #[must_use]
    pub fn lost(&self, node: &str) -> LostNode {
        let mut channels = self.shared.all();
        channels.retain(|channel| channel.peer == node);
        let (supplies, mirrors) = self.shared.series.of_node(node);
        LostNode { channels, supplies, mirrors, frozen: self.shared.regions.of_node(node) }
    }

    /// Answers a request that another node sent to a service of this crate.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub fn answer(&self, node: &str, service: u32, body: &[u8]) -> std::result::Result<Vec<u8>, Refusal> {
        self.shared.answer(node, service, body)
    }

    /// Gives the bytes that this relay offers under the number in `source_id`; `None` if it offers no such bytes.
    pub fn source(&self, source_id: &SourceId) -> Option<Arc<dyn Source>> {
        if source_id.kind != KIND {
            return None;
        }
        lock(&self.shared.offered).get(&source_id.object).cloned()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // First ask every channel to stop, and only then wait for each of them. So all channels stop at the same time.
        let channels = self.shared.all();
        channels.iter().for_each(|channel| channel.stop());
        channels.iter().for_each(|channel| channel.drop_now());
        self.shared.series.drop_now();
        self.shared.regions.drop_now();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Shared {
    fn all(&self) -> Vec<Arc<Channel>> {
        lock(&self.channels).values().cloned().collect()
    }

    fn session(&self, workflow: &str, task: &str, rank: u32, visitor: bool) -> Result<Session> {
        Session::connect(&ConnectOptions {
            socket: Some(self.socket.clone()),
            task: Some(task.to_owned()),
            rank: Some(rank),
            workflow: Some(workflow.to_owned()),
            timeout: LOCAL,
            private_daemon: false,
            visitor,
        })
    }

    /// Calls `open` with a new key. Until `open` returns, messages of the other node about this key are refused with
    /// `Busy`.
    fn opening<T>(&self, open: impl FnOnce(ChannelKey) -> Result<T>) -> Result<T> {
        let key = self.new_key();
        lock(&self.opening).insert(key);
        let opened = open(key);
        lock(&self.opening).remove(&key);
        opened
    }

    fn new_key(&self) -> ChannelKey {
        ChannelKey { by: self.token, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// Opens an end of a port of another node. If the answer about the opened end is lost, and the end has ended before
    /// this node can ask again, opens another end.
    fn open_again(self: &Arc<Self>, want: &WantedEnd) -> Result<SegmentId> {
        let began = Instant::now();
        loop {
            let wait = want.wait.saturating_sub(began.elapsed());
            if let Some(mirror) = self.opening(|key| self.open(key, want, wait))? {
                return Ok(mirror);
            }
            if wait.is_zero() {
                let WantedEnd { node, port, .. } = want;
                let text = format!("the end of port '{port}' on node {node} was lost before its opening was confirmed");
                return Err(Error::new(Status::Disconnected, text));
            }
        }
    }

    /// Opens an end with this key. Returns `None` if the other node has opened an end with this key, but this end has
    /// ended before this node knew of the end. The caller then needs another key.
    fn open(self: &Arc<Self>, key: ChannelKey, want: &WantedEnd, wait: Duration) -> Result<Option<SegmentId>> {
        let WantedEnd { node, workflow, port, task, rank, sends, .. } = want;
        let question = Open {
            key,
            workflow: workflow.clone(),
            port: port.clone(),
            task: task.clone(),
            rank: *rank,
            sends: *sends,
            // `ask_to_open` sets the time of each request.
            wait_ms: 0,
        };
        let Some(body) = self.ask_to_open(node, &question, wait)? else { return Ok(None) };
        let opened = Opened::decode(&body).map_err(|refusal| Error::new(refusal.status, refusal.text))?;
        let pattern = Pattern::from_number(opened.pattern)
            .ok_or_else(|| Error::new(Status::Corrupt, format!("node {node} has a port of an unknown pattern")))?;
        let options = PortOptions { pattern: Some(pattern), capacity: opened.capacity, persistent: false };
        // If the task at the port's other end is known, the session gets that task's name, so that errors name this
        // task.
        let peer = if name::check(&opened.peer).is_ok() { &opened.peer } else { "a-task" };
        let session = self.session(workflow, &format!("{peer}.on.{node}"), 0, false)?;
        let mirror = mirror_name(key, 0, port)?;
        let side = if *sends { End::Consumer } else { End::Producer };
        let end = session.port(&mirror, side, &options, None)?;
        let id = end.id();
        self.begin(Channel::new(key, node, false, session, end, Some(mirror)))?;
        Ok(Some(id))
    }

    /// Asks the other node to open an end. Asks again if the connection was lost before the answer came, and as long as
    /// all ends of the task's side are taken and the task still waits. The other node keeps nothing of a request that
    /// it has refused, so the task may stop waiting at any time. Returns `None` if the answer to an earlier request was
    /// lost, that request has opened an end, and this end has ended since then.
    fn ask_to_open(&self, node: &str, question: &Open, wait: Duration) -> Result<Option<Vec<u8>>> {
        let (by, until) = (Deadline::after(REACH.saturating_add(wait)), Deadline::after(wait.max(PLACE)));
        let (mut pause, mut is_answer_lost) = (AGAIN, false);
        loop {
            let asked = Instant::now();
            let wait_ms = u64::try_from(until.left().min(PLACE).as_millis()).unwrap_or(u64::MAX);
            let body = Open { wait_ms, ..question.clone() }.encode();
            let outcome = self.ask(node, messages::OPEN, &body, by.left());
            let failed = outcome.as_ref().err().map(|error| error.status);
            if is_answer_lost && failed == Some(Status::Closed) {
                return Ok(None);
            }
            is_answer_lost |= matches!(failed, Some(Status::Disconnected | Status::TimedOut));
            match outcome {
                Err(error) if error.status == Status::Disconnected && !by.passed() => thread::sleep(AGAIN),
                Err(error) if matches!(error.status, Status::Busy | Status::TimedOut) && !until.passed() => {
                    // If too many requests are waiting on the other node, the other node refuses immediately; then this
                    // node pauses before it asks again. If the request has waited on the other node, this node asks
                    // again without a pause, so that it does not miss an end that becomes free.
                    if asked.elapsed() < PLACE / 2 {
                        thread::sleep(pause.min(until.left()));
                        pause = (pause * 2).min(PLACE_PAUSE);
                    } else {
                        pause = AGAIN;
                    }
                }
                outcome => return outcome.map(Some),
            }
        }
    }

    /// Opens an end of a port of this node for a task of another node. A repeated request gets the same answer.
    fn open_for(self: &Arc<Self>, node: &str, open: Open) -> Result<Opened> {
        let key = open.key;
        let is_seen = || lock(&self.seen).contains(&key);
        // A request with a new key puts the key first into `serving` and then into `seen`. If the request succeeds, the
        // request puts the channel into `channels`, and then removes the key from `serving`; the key stays in `seen`.
        // If the request fails, the request removes the key first from `seen` and then from `serving`. So a key that
        // stays in `seen` while it is neither in `serving` nor in `channels` belongs to an end that has ended.
        let was_seen = is_seen();
        match find_or_opening(&self.serving, key, || lock(&self.channels).get(&key).cloned()) {
            Ok(channel) if channel.peer == node && !channel.has_ended() => return Ok(Self::opened(&channel)),
            Ok(_) | Err(false) if was_seen && is_seen() => {
                return Err(Error::new(Status::Closed, "this end of a port has ended"));
            }
            Ok(_) | Err(_) => {}
        }
        self.open_once(key, "this end of a port is being opened", || {
            let _in_progress = self.opens.begin(node, &open)?;
            self.open_first(node, &open)
        })
    }

    /// Calls `open` for the first request with this key. If a request with the same key comes again, `open` is not
    /// called, and the call fails with the reason `why`. The node that sent the request then tries again, if it still
    /// needs an answer. If `open` failed, a request with the same key may come again. This node remembers only the
    /// newest [`SEEN`] keys.
    fn open_once<T>(&self, key: ChannelKey, why: &'static str, open: impl FnOnce() -> Result<T>) -> Result<T> {
        {
            let mut seen = lock(&self.seen);
            if seen.contains(&key) {
                return Err(Error::new(Status::Disconnected, why));
            }
            if seen.len() >= SEEN {
                seen.pop_front();
            }
            lock(&self.serving).insert(key);
            seen.push_back(key);
        }
        let opened = open();
        if opened.is_err() {
            lock(&self.seen).retain(|seen| *seen != key);
        }
        lock(&self.serving).remove(&key);
        opened
    }

    fn opened(channel: &Channel) -> Opened {
        let port = &channel.port;
        let shape = port.shape();
        let ends = channel.port_report().map(|report| report.ends).unwrap_or_default();
        let peer = ends.into_iter().find(|found| found.alive && found.end != port.end());
        let peer = peer.map_or_else(String::new, |found| found.task.replace('@', "-"));
        Opened { pattern: shape.pattern as u32, capacity: shape.capacity, peer }
    }

    fn open_first(self: &Arc<Self>, node: &str, open: &Open) -> Result<Opened> {
        let session = self.session(&open.workflow, &open.task, open.rank, false)?;
        let side = if open.sends { End::Producer } else { End::Consumer };
        let wait = Duration::from_millis(open.wait_ms).min(PLACE);
        let port = session.port(&open.port, side, &PortOptions::default(), Some(wait))?;
        let channel = Channel::new(open.key, node, true, session, port, None);
        let opened = Self::opened(&channel);
        self.begin(channel)?;
        Ok(opened)
    }

    /// Adds the channel to the list and starts its threads.
    fn begin(self: &Arc<Self>, channel: Arc<Channel>) -> Result<()> {
        lock(&self.channels).insert(channel.key, Arc::clone(&channel));
        type Work = fn(&Channel, &dyn Peers);
        let work: &[(&str, Work)] = match channel.port.end() {
            End::Consumer => &[("port-ship", |channel, peers| channel.ship(peers))],
            End::Producer => &[
                ("port-put", |channel, peers| channel.put(peers)),
                ("port-watch", |channel, peers| channel.watch(peers)),
            ],
        };
        for (name, run) in work {
            let (own, of) = (Arc::clone(self), Arc::clone(&channel));
            let started = thread::Builder::new().name((*name).into()).spawn(move || {
                run(&of, &*own);
                own.forget(&of);
            });
            if let Err(error) = started {
                channel.finish(messages::EndReason::Died);
                return Err(Error::system("starting a thread for a port of another node", &error));
            }
        }
        Ok(())
    }

    /// Removes the channel from the list if it has ended.
    fn forget(&self, channel: &Arc<Channel>) {
        if channel.is_over() {
            channel.tickets().into_iter().for_each(|ticket| self.withdraw(ticket));
            let mut channels = lock(&self.channels);
            if channels.get(&channel.key).is_some_and(|known| Arc::ptr_eq(known, channel)) {
                channels.remove(&channel.key);
            }
        }
    }

    fn answer(self: &Arc<Self>, node: &str, service: u32, body: &[u8]) -> std::result::Result<Vec<u8>, Refusal> {
        let channel = |key: ChannelKey| {
            let find = || lock(&self.channels).get(&key).filter(|channel| channel.peer == node).cloned();
            find_or_opening(&self.opening, key, find).map_err(|is_opening| match is_opening {
                true => Refusal::new(Status::Busy, "this end of a port is being opened; ask again"),
                false => Refusal::new(Status::Closed, "this end of a port is not there any more"),
            })
        };
        match service {
            messages::OPEN => {
                let opened = self.open_for(node, Open::decode(body)?);
                // The port's name is not added to the error, because the error's text contains it already.
                opened.map(|opened| opened.encode()).map_err(|error| Refusal::new(error.status, error.to_string()))
            }
            messages::DELIVER => {
                let body = messages::Deliver::decode(body)?;
                channel(body.key)?.deliver(body).map(|()| Vec::new())
            }
            messages::RELEASED => {
                let body = Released::decode(body)?;
                channel(body.key)?.released(&**self, body);
                Ok(Vec::new())
            }
            messages::ENDED => {
                let body = messages::Ended::decode(body)?;
                channel(body.key)?.peer_ended(&body);
                Ok(Vec::new())
            }
            messages::KNOWN => {
                let ChannelKeys(asked) = ChannelKeys::decode(body)?;
                let unknown = asked.into_iter().filter(|key| {
                    let find = || {
                        let is_channel = lock(&self.channels).get(key).is_some_and(|channel| channel.peer == node);
                        (is_channel || self.series.knows(node, *key)).then_some(())
                    };
                    find_or_opening(&self.opening, *key, find) == Err(false)
                });
                Ok(ChannelKeys(unknown.collect()).encode())
            }
            service if region::SERVICES.contains(&service) => self.answer_region(node, service, body),
            other => self.answer_series(node, other, body),
        }
    }

    /// Runs the thread that asks the other daemons, at regular times, whether they still know the channels that they
    /// share with this daemon.
    fn compare(&self) {
        let mut waited = Duration::ZERO;
        let slice = Duration::from_millis(100);
        while !self.stop.load(Ordering::Acquire) {
            thread::sleep(slice);
            waited += slice;
            if waited < COMPARE {
                continue;
            }
            waited = Duration::ZERO;
            let mut by_peer: BTreeMap<String, Vec<ChannelKey>> = BTreeMap::new();
            let channels = self.all().into_iter().map(|channel| (channel.peer.clone(), channel.key));
            for (peer, key) in channels.chain(self.series.keys()) {
                by_peer.entry(peer).or_default().push(key);
            }
            self.compare_with(by_peer);
            for channel in self.all() {
                self.forget(&channel);
            }
        }
    }
}

impl Shared {
    /// Asks each daemon in `by_peer` which of its channels the daemon still knows, and ends the channels that the
    /// daemon does not know. A daemon that does not answer does not hold up the questions to the other daemons.
    fn compare_with(&self, by_peer: BTreeMap<String, Vec<ChannelKey>>) {
        let peers: Vec<_> = by_peer.into_iter().collect();
        for some in peers.chunks(AT_ONCE) {
            thread::scope(|scope| {
                let (first, others) = some.split_first().expect("a chunk has an element");
                for (peer, keys) in others {
                    let started = thread::Builder::new()
                        .name("site-compare".into())
                        .spawn_scoped(scope, || self.compare_with_peer(peer, keys));
                    if started.is_err() {
                        self.compare_with_peer(peer, keys);
                    }
                }
                self.compare_with_peer(&first.0, &first.1);
            });
        }
    }

    fn compare_with_peer(&self, peer: &str, keys: &[ChannelKey]) {
        // The body of one request has room for about 3800 keys. This request names at most 3000 keys, so that they fit
        // with a margin. This daemon asks about the remaining keys later, when some channels have ended.
        let keys = keys[..keys.len().min(3000)].to_vec();
        let Ok(body) = self.ask(peer, messages::KNOWN, &ChannelKeys(keys).encode(), COMPARE) else { return };
        let Ok(ChannelKeys(unknown)) = ChannelKeys::decode(&body) else { return };
        for key in unknown {
            let channel = lock(&self.channels).get(&key).cloned();
            channel.inspect(|channel| channel.unknown());
            self.series.unknown(peer, key);
        }
    }
}

impl Peers for Shared {
    fn ask(&self, node: &str, service: u32, body: &[u8], wait: Duration) -> Result<Vec<u8>> {
        self.nodes.ask(node, service, body, Deadline::after(wait)).map_err(|error| reached(&error))
    }

    fn pull_into(&self, node: &str, ticket: u64, offset: u64, memory: &mut [u8], wait: Duration) -> Result<()> {
        let source_id = SourceId { kind: KIND, object: ticket, epoch: 0 };
        let pulled = self.nodes.pull(node, &source_id, offset, memory, Deadline::after(wait));
        pulled.map_err(|error| reached(&error))
    }

    fn offer(&self, bytes: Arc<dyn Source>) -> u64 {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        lock(&self.offered).insert(ticket, bytes);
        ticket
    }

    fn withdraw(&self, ticket: u64) {
        lock(&self.offered).remove(&ticket);
    }

    fn remove(&self, workflow: &str, names: Vec<(SegmentKind, String)>) {
        if names.is_empty() {
            return;
        }
        let Ok(session) = self.session(workflow, "mirrors", 0, true) else { return };
        for (kind, name) in names {
            // If a mirror cannot be removed now, the daemon removes it at its next start. `Force` is needed because the
            // broker may still see a publisher of the mirror: this relay's own member, which the relay has just
            // abandoned.
            let _ = session.remove(kind, &name, InUse::Force);
        }
    }

    fn log(&self, line: &str) {
        (self.log)(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_one_port_leave_room_for_other_ports_and_other_nodes() {
        let opens = OpensInProgress::default();
        let begin = |node: &str, port: &str| opens.begin(node, &open(port));
        let mut held: Vec<_> = (0..OPENS_OF_PORT).map(|_| begin("a", "p").unwrap()).collect();
        let refused = |node: &str, port: &str| begin(node, port).err().map(|error| error.status);
        assert_eq!(refused("a", "p"), Some(Status::Busy));
        assert_eq!((refused("b", "p"), refused("a", "q")), (None, None));
        held.pop();
        assert_eq!(refused("a", "p"), None);
        held.extend((held.len()..OPENS_OF_NODE).map(|number| begin("a", &format!("p{number}")).unwrap()));
        assert_eq!((refused("a", "q"), refused("b", "q")), (Some(Status::Busy), None));
    }

    /// Plays another node in a test. During the first `refusals` requests, all ends of the node's port are taken: the
    /// node waits as long as the request allows, and then answers that the port is full.
    struct FullPort {
        refusals: usize,
        asked: Mutex<Vec<Open>>,
    }

    impl RelayNetwork for FullPort {
        fn ask(&self, _: &str, service: u32, body: &[u8], _: Deadline) -> crossdock_link::Result<Vec<u8>> {
            assert_eq!(service, messages::OPEN);
            let open = Open::decode(body).unwrap();
            thread::sleep(Duration::from_millis(open.wait_ms));
            let mut asked = lock(&self.asked);
            asked.push(open);
            if asked.len() > self.refusals {
                return Ok(b"opened".to_vec());
            }
            Err(crossdock_link::Error::new(Status::Busy, "ask", "its end is taken"))
        }

        fn pull(&self, _: &str, _: &SourceId, _: u64, _: &mut [u8], _: Deadline) -> crossdock_link::Result<()> {
            Err(crossdock_link::Error::new(Status::NotFound, "pull", "there is nothing"))
        }
    }

    #[test]
    fn a_long_wait_for_a_place_is_many_requests_with_one_key_and_ends_in_time() {
        let ask = |refusals: usize, wait: Duration| {
            let nodes = Arc::new(FullPort { refusals, asked: Mutex::default() });
            let network = Arc::clone(&nodes) as Arc<dyn RelayNetwork>;
            let relay = Relay::new(1, network, PathBuf::from("/nowhere"), |_| {}).unwrap();
            let began = Instant::now();
            let outcome = relay.shared.ask_to_open("b", &open("p"), wait);
            let took = began.elapsed();
            let asked = std::mem::take(&mut *lock(&nodes.asked));
            assert!(asked.iter().all(|request| request.key == open("p").key && request.wait_ms <= 1000), "{asked:?}");
            (outcome.map_err(|error| error.status), asked.len(), took)
        };
        let (outcome, requests, _) = ask(3, Duration::from_secs(60));
        assert_eq!((outcome, requests), (Ok(Some(b"opened".to_vec())), 4));
        let (outcome, requests, took) = ask(usize::MAX, Duration::from_millis(1500));
        assert_eq!(outcome, Err(Status::Busy));
        assert!(requests <= 4 && took >= Duration::from_millis(1500), "{requests} requests took {took:?}");
        assert!(took < Duration::from_secs(10), "the task waited for {took:?}");
    }

    /// Nodes of which only the node `z` answers. A request to any other node takes until its deadline.
    struct Silent(Mutex<Vec<String>>);

    impl RelayNetwork for Silent {
        fn ask(&self, node: &str, _: u32, body: &[u8], by: Deadline) -> crossdock_link::Result<Vec<u8>> {
            if node != "z" {
                thread::sleep(by.left());
                return Err(crossdock_link::Error::new(Status::TimedOut, "ask", "no answer"));
            }
            lock(&self.0).push(node.to_owned());
            Ok(body.to_vec())
        }

        fn pull(&self, _: &str, _: &SourceId, _: u64, _: &mut [u8], _: Deadline) -> crossdock_link::Result<()> {
            Err(crossdock_link::Error::new(Status::NotFound, "pull", "there is nothing"))
        }
    }

    #[test]
    fn silent_nodes_do_not_hold_up_the_questions_to_other_nodes() {
        let nodes = Arc::new(Silent(Mutex::default()));
        let network = Arc::clone(&nodes) as Arc<dyn RelayNetwork>;
        let relay = Relay::new(1, network, PathBuf::from("/nowhere"), |_| {}).unwrap();
        let key = ChannelKey { by: 1, number: 2 };
        let silent = (0..60).map(|number| format!("n{number}"));
        let began = Instant::now();
        relay.shared.compare_with(silent.chain(["z".to_owned()]).map(|node| (node, vec![key])).collect());
        assert_eq!(*lock(&nodes.0), ["z"]);
        assert!(began.elapsed() < COMPARE * 20, "the questions took {:?}", began.elapsed());
    }

    fn open(port: &str) -> Open {
        Open {
            key: ChannelKey { by: 1, number: 2 },
            workflow: "w".into(),
            port: port.into(),
            task: "t".into(),
            rank: 0,
            sends: false,
            wait_ms: 0,
        }
    }

    /// Bytes that all have this value.
    struct Same(u8);

    impl Source for Same {
        fn length(&self) -> u64 {
            8
        }

        fn bytes<'a>(
            &'a self,
            _: u64,
            length: u64,
            buffer: &'a mut crossdock_link::Buffer,
        ) -> std::result::Result<&'a [u8], Refusal> {
            let bytes = buffer.room(length)?;
            bytes.fill(self.0);
            Ok(bytes)
        }
    }

    #[test]
    fn a_ticket_of_an_earlier_broker_gives_no_bytes_of_a_later_one() {
        let offer = |token: u64, value: u8| {
            let nodes = Arc::new(FullPort { refusals: 0, asked: Mutex::default() });
            let relay = Relay::new(token, nodes, PathBuf::from("/nowhere"), |_| {}).unwrap();
            let tickets = [(); 3].map(|()| relay.shared.offer(Arc::new(Same(value))));
            (relay, tickets)
        };
        let source_id = |ticket: u64| SourceId { kind: KIND, object: ticket, epoch: 0 };
        let (earlier, tickets) = offer(u64::MAX - 1, 1);
        assert!(tickets.iter().all(|ticket| earlier.source(&source_id(*ticket)).is_some()));
        drop(earlier);
        let (later, _) = offer(0x1234_5678_9abc_def0, 2);
        let found = tickets.iter().filter(|ticket| later.source(&source_id(**ticket)).is_some()).count();
        assert_eq!(found, 0, "another node would get the bytes of another object");
    }

    #[test]
    fn a_key_that_leaves_opening_during_the_look_for_its_channel_is_not_unknown() {
        let key = ChannelKey { by: 1, number: 2 };
        let (opening, channels) = (Mutex::new(BTreeSet::from([key])), Mutex::new(BTreeSet::new()));
        let found = find_or_opening(&opening, key, || {
            let found = lock(&channels).get(&key).copied();
            // Here the test does what another thread might do at this moment: it finishes opening the channel.
            lock(&channels).insert(key);
            lock(&opening).remove(&key);
            found
        });
        assert_eq!(found, Err(true), "the other node would end the channel");
        assert_eq!(find_or_opening(&opening, key, || lock(&channels).get(&key).copied()), Ok(key));
        assert_eq!(find_or_opening(&opening, key, || None::<()>), Err(false));
    }
}
