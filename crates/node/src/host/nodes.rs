//! Carries the broker's questions to other nodes, the answers to other nodes' questions, and the transfers of bytes
//! between nodes. For each of them a thread waits, so that the broker does not wait.
//!
//! The threads of the link's server bring the questions of other nodes. Such a thread puts its question into the queue
//! of the [`NodeQueues`], wakes the broker's thread, and waits for the answer until the deadline of the asking node. Other
//! threads, which this file starts, wait for the results of the broker's own questions and pulls, and put them into the
//! same queue.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crossdock_gateway::Nodes;
use crossdock_layout::Status;
use crossdock_link::{Peer, Refusal, Serve, Source, SourceId, Workers};
use crossdock_os::{Access, Deadline, Mapping, OsResult, child, event, file};
use crossdock_relay::{Relay, WantedEnd, WantedRegion, WantedSeries, serves};

use super::Host;
use crate::broker::{Event, NodeEvent, NodeFailure, NodeOrder};

/// The maximum number of questions and pulls of this node that may wait at the same time.
const WAITING: usize = 256;
/// The maximum number of ports, series and regions of other nodes that tasks of this node may be opening, copying or
/// moving at the same time. Each of these operations may wait as long as its task does.
const OPENING: usize = 256;

/// The broker's reply to another node's question.
enum Reply {
    Said(Vec<u8>),
    Bytes(Arc<dyn Source>),
}

#[derive(Default)]
struct QueuesState {
    next: u64,
    /// Questions and results that the broker has not read yet.
    news: VecDeque<NodeEvent>,
    /// The questions of other nodes that wait for a reply. The key is the question's id, the value is the reply as soon
    /// as it has come.
    waiting: HashMap<u64, Option<Result<Reply, Refusal>>>,
}

/// The queues through which the broker's thread exchanges questions and replies with other threads.
pub(super) struct NodeQueues {
    /// The relay, which answers other nodes' questions about ports and series without the broker.
    relay: OnceLock<Arc<Relay>>,
    state: Mutex<QueuesState>,
    answered: Condvar,
    /// A descriptor that is readable while a question or a result waits for the broker.
    pub bell: OwnedFd,
}

impl NodeQueues {
    pub fn new() -> OsResult<Arc<Self>> {
        Ok(Arc::new(Self {
            relay: OnceLock::new(),
            state: Mutex::default(),
            answered: Condvar::new(),
            bell: event::eventfd()?,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, QueuesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self) -> VecDeque<NodeEvent> {
        event::clear(&self.bell);
        std::mem::take(&mut self.lock().news)
    }

    fn put(&self, news: NodeEvent) {
        self.lock().news.push_back(news);
        event::signal(&self.bell);
    }

    /// Puts a question into the broker's queue, and waits for the reply.
    fn ask(&self, by: Deadline, question: impl FnOnce(u64) -> NodeEvent) -> Result<Reply, Refusal> {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.waiting.insert(id, None);
        state.news.push_back(question(id));
        event::signal(&self.bell);
        loop {
            if let Some(Some(_)) = state.waiting.get(&id) {
                return state.waiting.remove(&id).flatten().expect("it was there");
            }
            if by.passed() {
                state.waiting.remove(&id);
                return Err(Refusal::new(Status::TimedOut, "this node's broker has not answered by the deadline"));
            }
            state = self.answered.wait_timeout(state, by.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Stores the reply to another node's question. If no thread waits for the reply any more, drops the reply.
    fn reply(&self, id: u64, reply: Result<Reply, Refusal>) {
        if let Some(slot) = self.lock().waiting.get_mut(&id) {
            *slot = Some(reply);
            self.answered.notify_all();
        }
    }
}

impl Serve for NodeQueues {
    fn answer(&self, peer: &Peer, service: u32, body: &[u8], by: Deadline) -> Result<Vec<u8>, Refusal> {
        if let Some(relay) = self.relay.get().filter(|_| serves(service)) {
            return relay.answer(&peer.node.name, service, body);
        }
        let node = peer.node.name.clone();
        match self.ask(by, |id| NodeEvent::Asked { id, node, service, body: body.to_vec() })? {
            Reply::Said(body) => Ok(body),
            Reply::Bytes(_) => Err(Refusal::new(Status::Corrupt, "a question was answered by an object")),
        }
    }

    fn open(&self, peer: &Peer, source_id: &SourceId) -> Result<Arc<dyn Source>, Refusal> {
        /// How long a request to open an object waits for the broker's reply.
        const OPEN: Duration = Duration::from_secs(10);
        if let Some(source) = self.relay.get().and_then(|relay| relay.source(source_id)) {
            return Ok(source);
        }
        let (node, SourceId { kind, object, epoch }) = (peer.node.name.clone(), *source_id);
        match self.ask(Deadline::after(OPEN), |id| NodeEvent::Opening { id, node, kind, object, epoch })? {
            Reply::Bytes(source) => Ok(source),
            Reply::Said(_) => Err(Refusal::new(Status::Corrupt, "a request to open was answered by words")),
        }
    }
}

/// The broker's access to other nodes: the queue for questions and replies, the links, the threads that wait, and the
/// relay.
pub(super) struct NodeAccess {
    pub queues: Arc<NodeQueues>,
    nodes: Arc<Nodes>,
    workers: Arc<Workers>,
    /// The threads for operations that may wait as long as a task does. Questions and pulls have other threads, so that
    /// waiting tasks do not hold them up.
    openers: Arc<Workers>,
    spare: SpareThread,
    relay: Arc<Relay>,
}

/// A thread for jobs that must be done even if all workers are busy. It does one job after another.
struct SpareThread(Sender<Box<dyn FnOnce() + Send>>);

impl SpareThread {
    /// Starts the thread. It ends when this value is dropped and all jobs are done.
    fn start() -> std::io::Result<Self> {
        let (sender, jobs) = channel::<Box<dyn FnOnce() + Send>>();
        thread::Builder::new().name("site-spare".into()).spawn(move || jobs.into_iter().for_each(|job| job()))?;
        Ok(Self(sender))
    }

    /// Does the job in a worker. If all workers are busy, this thread does the job.
    fn run(&self, workers: &Arc<Workers>, job: impl FnOnce() + Clone + Send + 'static) {
        if !workers.run(Box::new(job.clone())) {
            // The thread takes jobs as long as this value exists, so it receives this job.
            self.0.send(Box::new(job)).ok();
        }
    }
}

impl NodeAccess {
    /// Starts the relay. `socket` is this daemon's own socket, because the relay's ends of ports are members of this
    /// daemon.
    pub fn new(queues: Arc<NodeQueues>, nodes: Arc<Nodes>, socket: PathBuf) -> Result<Self, String> {
        let token = child::random().map(u64::from_le_bytes).map_err(|error| error.to_string())?;
        let log = |line: &str| eprintln!("crossdock broker: {line}");
        let relay = Relay::new(token, Arc::clone(&nodes) as Arc<dyn crossdock_relay::RelayNetwork>, socket, log);
        let relay = Arc::new(relay.map_err(|error| format!("no thread for ports and series of other nodes: {error}"))?);
        queues.relay.get_or_init(|| Arc::clone(&relay));
        let spare = SpareThread::start().map_err(|error| format!("no thread for lost nodes: {error}"))?;
        let (workers, openers) = (Workers::new(WAITING), Workers::new(OPENING));
        Ok(Self { queues, nodes, workers, openers, spare, relay })
    }

    /// Tells the relay that a node's lease has ended.
    pub fn gone(&self, node: &str) {
        // Another thread ends the lost objects, perhaps only later, when a thread is free. The node may have a new
        // lease by then, and may share new objects with this node. So the relay notes now which objects are lost.
        let lost = self.relay.lost(node);
        // To end the lost objects, the relay sends requests to this daemon. The broker's thread must not wait for
        // itself, so another thread ends the objects.
        self.spare.run(&self.workers, move || lost.end());
    }

    /// Runs `call` in a thread, which puts the result into the broker's queue. Returns whether there was a thread for
    /// it.
    fn wait_for(&self, call: impl FnOnce(&Nodes) -> NodeEvent + Send + 'static) -> bool {
        let (queues, nodes) = (Arc::clone(&self.queues), Arc::clone(&self.nodes));
        self.workers.run(Box::new(move || queues.put(call(&nodes))))
    }

    /// Runs `call`, which calls a function of the relay, in another thread, because that function may last as long as a
    /// task waits. `event` makes the report to the broker from the outcome. If too many such calls are running already,
    /// `call` is not run, and the outcome is an error.
    fn open<T>(
        &self,
        call: impl FnOnce(&Relay) -> Result<T, (Status, String)> + Send + 'static,
        event: impl Fn(Result<T, NodeFailure>) -> NodeEvent + Copy + Send + 'static,
    ) {
        let failure = |(status, text)| NodeFailure { status, text };
        if !self.wait_to_open(move |relay| event(call(relay).map_err(failure))) {
            self.queues.put(event(Err(busy_opening())));
        }
    }

    /// Works like [`Self::wait_for`], but for a call that may last as long as a task waits.
    fn wait_to_open(&self, call: impl FnOnce(&Relay) -> NodeEvent + Send + 'static) -> bool {
        let (queues, relay) = (Arc::clone(&self.queues), Arc::clone(&self.relay));
        self.openers.run(Box::new(move || queues.put(call(&relay))))
    }
}

fn failure(error: &crossdock_link::Error) -> NodeFailure {
    NodeFailure { status: error.status, text: error.to_string() }
}

fn busy() -> NodeFailure {
    let text = format!("{WAITING} questions of this node to others wait already; try again");
    NodeFailure { status: Status::Busy, text }
}

fn busy_opening() -> NodeFailure {
    let text = format!("{OPENING} tasks of this node wait for ports, series and regions of other nodes; try again");
    NodeFailure { status: Status::Busy, text }
}

fn refusal(failure: NodeFailure) -> Refusal {
    Refusal::new(failure.status, failure.text)
}

impl Host<'_> {
    /// Handles all questions and results that other nodes have sent since the last call.
    pub(super) fn node_news(&mut self) {
        let Some(membership) = &self.membership else { return };
        for news in membership.reach.queues.news() {
            self.feed(Event::Nodes(news));
        }
    }

    pub(super) fn node_order(&mut self, order: NodeOrder) {
        let Some(reach) = self.membership.as_ref().map(|membership| &membership.reach) else { return };
        match order {
            NodeOrder::Ask { id, node, service, body, wait_ms } => {
                let by = Deadline::after(Duration::from_millis(wait_ms));
                let asked = reach.wait_for(move |nodes| {
                    let outcome = nodes.ask(&node, service, &body, by).map_err(|error| failure(&error));
                    NodeEvent::Answered { id, outcome }
                });
                if !asked {
                    reach.queues.put(NodeEvent::Answered { id, outcome: Err(busy()) });
                }
            }
            NodeOrder::Send { id, node, service, head: mut body, file, size, wait_ms } => {
                let by = Deadline::after(Duration::from_millis(wait_ms));
                let read = self.segments.get(&file.0).map(|fd| {
                    let head = body.len();
                    body.resize(head + usize::try_from(size).unwrap_or(0), 0);
                    file::read_all_at(fd, &mut body[head..], 0)
                });
                let lost = || NodeFailure { status: Status::NotFound, text: "the file could not be read".into() };
                let outcome = match read {
                    Some(Ok(_)) => {
                        let asked = reach.wait_for(move |nodes| {
                            let outcome = nodes.ask(&node, service, &body, by).map_err(|error| failure(&error));
                            NodeEvent::Answered { id, outcome }
                        });
                        if asked { return } else { Err(busy()) }
                    }
                    _ => Err(lost()),
                };
                reach.queues.put(NodeEvent::Answered { id, outcome });
            }
            NodeOrder::Fill { id, into, bytes } => {
                let outcome = match self.segments.get(&into.0) {
                    Some(target) => file::write_all_at(target, &bytes, 0).map_err(|error| error.to_string()),
                    None => Err("the daemon has lost its descriptor".to_owned()),
                };
                let outcome = outcome.map_err(|text| NodeFailure { status: Status::NoSpace, text });
                reach.queues.put(NodeEvent::Pulled { id, outcome });
            }
            NodeOrder::Answer { id, outcome } => reach.queues.reply(id, outcome.map(Reply::Said).map_err(refusal)),
            NodeOrder::Pull { id, node, kind, object, epoch, into, size, wait_ms } => {
                let by = Deadline::after(Duration::from_millis(wait_ms));
                let source_id = SourceId { kind, object, epoch };
                let begun = match self.segments.get(&into.0).map(file::duplicate) {
                    Some(Ok(target)) => reach.wait_for(move |nodes| NodeEvent::Pulled {
                        id,
                        outcome: pull(nodes, &node, &source_id, &target, size, by),
                    }),
                    _ => false,
                };
                if !begun {
                    reach.queues.put(NodeEvent::Pulled { id, outcome: Err(busy()) });
                }
            }
            NodeOrder::Mirror { id, node, workflow, port, task, rank, sends, wait_ms } => {
                let wait = Duration::from_millis(wait_ms);
                let want = WantedEnd { node, workflow, port, task, rank, sends, wait };
                reach.open(move |relay| relay.open(&want), move |outcome| NodeEvent::Mirrored { id, outcome });
            }
            NodeOrder::MirrorSeries { id, node, workflow, series, former, wait_ms } => {
                let wait = Duration::from_millis(wait_ms);
                let want = WantedSeries { node, workflow, series, former, wait };
                reach.open(move |relay| relay.open_series(&want), move |outcome| NodeEvent::Mirrored { id, outcome });
            }
            NodeOrder::CopyRegion { id, node, workflow, name, copy, moves, wait_ms } => {
                let wait = Duration::from_millis(wait_ms);
                let want = WantedRegion { order: id, node, workflow, name, copy, moves, wait };
                reach.open(
                    move |relay| relay.copy_region(&want),
                    move |outcome| NodeEvent::RegionCopied { id, outcome },
                );
            }
            NodeOrder::MirrorLeft { mirror, died } => reach.relay.left(mirror, died),
            NodeOrder::Opened { id, outcome } => {
                let queues = Arc::clone(&reach.queues);
                let opened = outcome.map_err(refusal).and_then(|segment| self.source(segment.0));
                queues.reply(id, opened.map(Reply::Bytes));
            }
        }
    }

    /// Reports that a pull failed because its file could not be made.
    pub(super) fn pull_failed(&self, order: &NodeOrder, text: String) {
        let (Some(membership), NodeOrder::Pull { id, .. } | NodeOrder::Fill { id, .. }) = (&self.membership, order)
        else {
            return;
        };
        let outcome = Err(NodeFailure { status: Status::NoSpace, text });
        membership.reach.queues.put(NodeEvent::Pulled { id: *id, outcome });
    }

    /// Gives the bytes of a segment or file, for another node to pull.
    fn source(&mut self, id: u64) -> Result<Arc<dyn Source>, Refusal> {
        let system = |error: crossdock_os::OsError| Refusal::new(Status::System, error.to_string());
        let Some(fd) = self.segments.get(&id) else {
            return Err(Refusal::new(Status::NotFound, "the daemon has lost its descriptor"));
        };
        let (length, _) = file::sizes(fd).map_err(system)?;
        let length = usize::try_from(length).map_err(|_| Refusal::new(Status::Invalid, "it is too large"))?;
        let mapping = Arc::new(Mapping::for_huge_pages(fd, length, Access::Read).map_err(system)?);
        self.files.note_pull(id, &mapping);
        Ok(mapping)
    }
}

/// Reads all bytes of another node's object into a segment or file.
fn pull(
    nodes: &Nodes,
    node: &str,
    source_id: &SourceId,
    target: &OwnedFd,
    size: u64,
    by: Deadline,
) -> Result<(), NodeFailure> {
    let system = |error: crossdock_os::OsError| NodeFailure { status: Status::System, text: error.to_string() };
    if size == 0 {
        return Ok(());
    }
    let length = usize::try_from(size).map_err(|_| NodeFailure {
        status: Status::Invalid,
        text: format!("{size} bytes are more than this machine can address"),
    })?;
    // The memory is reserved before it is used. So if the node has no memory left, `reserve` fails with an error.
    // Without `reserve`, the first store would end the process with a signal.
    crossdock_os::memfd::reserve(target, 0, size).map_err(|error| NodeFailure {
        status: Status::NoSpace,
        text: format!("the node has no memory for {size} bytes: {error}"),
    })?;
    let mut memory = Mapping::for_huge_pages(target, length, Access::ReadWrite).map_err(system)?;
    nodes.pull(node, source_id, 0, memory.fresh_bytes(), by).map(|_| ()).map_err(|error| failure(&error))
}

#[cfg(test)]
mod tests {
    use crossdock_gateway::{CatalogAddress, Gateway, GatewayOptions};

    use super::*;

    #[test]
    fn tasks_that_wait_for_ports_of_other_nodes_do_not_hold_up_questions() {
        let folder = tempfile::tempdir().unwrap();
        let at = CatalogAddress::Keep("127.0.0.1:0".into());
        let options = GatewayOptions::new("here", "a", at, folder.path().join("catalog"));
        let queues = NodeQueues::new().unwrap();
        let gateway = Gateway::start(&options, Arc::clone(&queues) as Arc<dyn Serve>).unwrap();
        let reach = NodeAccess::new(queues, gateway.nodes(), folder.path().join("socket")).unwrap();
        let (release, blocked) = channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let answered = |id| NodeEvent::Answered { id, outcome: Ok(Vec::new()) };
        let mut opening = 0;
        while reach.wait_to_open({
            let blocked = Arc::clone(&blocked);
            move |_| {
                assert!(blocked.lock().unwrap().recv().is_err());
                answered(1)
            }
        }) {
            opening += 1;
        }
        assert_eq!(opening, OPENING);
        assert!(reach.wait_for(move |_| answered(2)), "no node gets an answer while {OPENING} tasks wait");
        drop(release);
    }

    #[test]
    fn a_job_that_must_be_done_is_done_while_all_workers_are_busy() {
        let (workers, spare) = (Workers::new(1), SpareThread::start().unwrap());
        let (release, blocked) = channel::<()>();
        assert!(workers.run(Box::new(move || assert!(blocked.recv().is_err()))));
        let (done, outcome) = channel();
        for number in 0..3 {
            let done = done.clone();
            spare.run(&workers, move || done.send(number).unwrap());
        }
        for number in 0..3 {
            assert_eq!(outcome.recv_timeout(Duration::from_secs(60)), Ok(number));
        }
        drop(release);
    }
}
