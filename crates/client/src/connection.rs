//! Requests and answers over one connection, for all threads of a process.
//!
//! Whoever waits for an answer while nobody reads becomes the reader, hands out what arrives to those it is for, and
//! passes the reading on when it has its own. There is no thread behind it. When the connection breaks (the broker was
//! restarted), the reader connects again with the session's token and sends again whatever has no answer yet: the
//! daemon remembers what it has done already, so that nothing happens twice.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossdock_core::liveness::Liveness;
use crossdock_layout::wire::{
    Answer, ItemGiven, ItemLevel, ItemRequest, MAX_DESCRIPTORS, MAX_MESSAGE, Request, SegmentKind,
};
use crossdock_layout::{SegmentId, Status};
use crossdock_os::socket::{self, Received};
use crossdock_os::{Deadline, event, fork};

use crate::discovery;
use crate::handshake::{self, Failure, Welcome, Who};
use crate::{Error, Result};

/// How long a dead private daemon is waited for before it is started again.
const RESTART_AFTER: Duration = Duration::from_millis(200);

/// How long a session that leaves tries to say so.
const FAREWELL: Duration = Duration::from_millis(500);

/// An answer, and the descriptor that came with it.
pub(crate) type Answered = (Answer, Option<OwnedFd>);

/// An answer, and all descriptors that came with it.
pub(crate) type AnsweredWith = (Answer, Vec<OwnedFd>);

struct Pending {
    request: Request,
    descriptors: Vec<Arc<OwnedFd>>,
    /// When what it waits for is given up; what is left goes into the message each time it is sent.
    wait: Option<Deadline>,
    /// The connection that it was sent on; 0 = none yet.
    sent_on: u64,
    answer: Option<AnsweredWith>,
}

/// A segment that is open here.
struct Leased {
    count: u32,
    kind: SegmentKind,
    /// To give back to a daemon that lost its own; only what can be written through is of use to it.
    descriptor: Option<OwnedFd>,
}

/// The memory of a series that this process publishes.
pub(crate) struct Offered {
    pub pool: Arc<OwnedFd>,
    pub pins: Vec<Arc<OwnedFd>>,
}

struct State {
    socket: Option<Arc<OwnedFd>>,
    /// Which connection of this session that is.
    generation: u64,
    next: u64,
    pending: BTreeMap<u64, Pending>,
    leases: BTreeMap<SegmentId, Leased>,
    /// Series that this session publishes.
    offered: BTreeMap<SegmentId, Arc<Offered>>,
    /// Items that this member has as their owner.
    items: BTreeSet<SegmentId>,
    /// Endpoints that this session made, with copies of their listening sockets.
    endpoints: Vec<(Request, Arc<OwnedFd>)>,
    reading: bool,
    /// It is saying goodbye: no daemon need be started for that.
    leaving: bool,
    /// Nothing can be asked any more, and why.
    over: Option<Error>,
    incarnation: u64,
}

/// The connection of a session.
pub(crate) struct Connection {
    path: PathBuf,
    private: bool,
    who: Who,
    liveness: Liveness,
    state: Mutex<State>,
    changed: Condvar,
    /// The process that made it; a child of it must not use it.
    process: u32,
}

impl Connection {
    pub(crate) fn new(path: PathBuf, private: bool, mut who: Who, welcome: Welcome) -> Result<Self> {
        let liveness = Liveness::map(&welcome.table).map_err(|e| Error::new(Status::System, e.to_string()))?;
        let Some(liveness) = liveness else {
            let text = format!("the daemon at {} sent no liveness table of this layout", path.display());
            return Err(Error::new(Status::Incompatible, text));
        };
        // Coming back, it has to be the same member or none.
        who.member = welcome.member;
        let state = State {
            socket: Some(Arc::new(welcome.socket)),
            generation: 1,
            next: 2,
            pending: BTreeMap::new(),
            leases: BTreeMap::new(),
            offered: BTreeMap::new(),
            items: BTreeSet::new(),
            endpoints: Vec::new(),
            reading: false,
            leaving: false,
            over: None,
            incarnation: welcome.incarnation,
        };
        Ok(Self {
            path,
            private,
            who,
            liveness,
            state: Mutex::new(state),
            changed: Condvar::new(),
            process: fork::token(),
        })
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Is this the process that connected?
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process == fork::token() {
            return Ok(());
        }
        let text = "this session belongs to the process that this one was forked from; connect anew in the child";
        Err(Error::new(Status::Disconnected, text))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer until the deadline. `wait` is how long the daemon itself may wait.
    pub(crate) fn ask(
        &self,
        request: Request,
        descriptor: Option<Arc<OwnedFd>>,
        wait: Option<Duration>,
        deadline: Deadline,
    ) -> Result<Answered> {
        let (answer, descriptors) = self.ask_with(request, descriptor.into_iter().collect(), wait, deadline)?;
        Ok((answer, descriptors.into_iter().next()))
    }

    /// As `ask`, with any number of descriptors both ways.
    pub(crate) fn ask_with(
        &self,
        request: Request,
        descriptors: Vec<Arc<OwnedFd>>,
        wait: Option<Duration>,
        deadline: Deadline,
    ) -> Result<AnsweredWith> {
        self.check_process()?;
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let pending = Pending { request, descriptors, wait: wait.map(Deadline::after), sent_on: 0, answer: None };
        state.pending.insert(number, pending);
        loop {
            if let Some(error) = state.over.clone() {
                state.pending.remove(&number);
                return Err(error);
            }
            if state.pending.get(&number).is_some_and(|p| p.answer.is_some()) {
                let answer = state.pending.remove(&number).and_then(|p| p.answer);
                drop(state);
                return answer.map_or_else(|| Err(self.silent()), failures);
            }
            if deadline.passed() {
                let unsent = state.socket.is_none();
                state.pending.remove(&number);
                return Err(if unsent { self.unreachable() } else { self.silent() });
            }
            self.send_unsent(&mut state);
            if state.reading {
                let left = deadline.left().min(Duration::from_millis(100));
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.reading = true;
            drop(state);
            // Whatever happens in there, the reading must be passed on.
            let passed_on = PassOn(self);
            self.read_some(deadline);
            drop(passed_on);
            state = self.lock();
        }
    }

    /// Says something that has no answer, if the connection stands.
    fn tell_locked(&self, state: &mut State, request: &Request) {
        let Some(socket) = state.socket.clone() else { return };
        let message = request.encode(0, state.settled());
        if !matches!(socket::send(&*socket, &message, &[]), Ok(true)) {
            // What was to be said follows from the leases, which are told again with the next connection.
            state.socket = None;
        }
    }

    /// Sends whatever was not sent on the present connection.
    fn send_unsent(&self, state: &mut State) {
        let Some(socket) = state.socket.clone() else { return };
        let (generation, settled) = (state.generation, state.settled());
        for (number, pending) in &mut state.pending {
            if pending.sent_on == generation || pending.answer.is_some() {
                continue;
            }
            if let (Some(until), Some(wait_ms)) = (pending.wait, wait_of(&mut pending.request)) {
                *wait_ms = until.left_ms().unsigned_abs().into();
            }
            let message = pending.request.encode(*number, settled);
            let descriptors: Vec<BorrowedFd<'_>> = pending.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match socket::send(&*socket, &message, &descriptors) {
                Ok(true) => pending.sent_on = generation,
                // The daemon is behind; it is tried again after the next answer, or in a moment.
                Ok(false) => return,
                Err(_) => {
                    state.socket = None;
                    return;
                }
            }
        }
    }

    /// As the reader: waits for one message (or the lack of one), and hands it out.
    fn read_some(&self, deadline: Deadline) {
        let (socket, generation) = {
            let state = self.lock();
            (state.socket.clone(), state.generation)
        };
        let Some(socket) = socket else { return self.connect_again(deadline) };
        // Not longer than a moment: another thread's request may have found the socket full.
        let slice = deadline.at_most(Duration::from_millis(100));
        let mut buffer = [0; MAX_MESSAGE + 1];
        // Whoever asks waits nearly always: looking for an answer first would be a call to the kernel for nothing.
        if !event::wait_readable(&*socket, slice).unwrap_or(true) {
            return;
        }
        let received = socket::receive(&*socket, &mut buffer);
        let mut state = self.lock();
        match received {
            Ok(None) => {}
            Ok(Some(Received::Message(length, fds))) => match Answer::decode(&buffer[..length], fds.len()) {
                Ok((number, answer)) => self.hand_out(&mut state, number, answer, fds),
                Err(_) if state.generation == generation => state.socket = None,
                Err(_) => {}
            },
            // The end, or what no daemon sends: either way this connection is of no more use.
            _ if state.generation == generation => state.socket = None,
            _ => {}
        }
    }

    fn hand_out(&self, state: &mut State, number: u64, answer: Answer, descriptors: Vec<OwnedFd>) {
        state.take(&answer, descriptors.first());
        match state.pending.get_mut(&number) {
            Some(pending) if pending.answer.is_none() => pending.answer = Some((answer, descriptors)),
            // Whoever asked has gone; a segment that came too late is given back.
            _ => match answer {
                Answer::Segment { segment, .. } => self.release_locked(state, segment),
                Answer::Series(entry) => {
                    self.release_locked(state, entry.pin);
                    self.release_locked(state, entry.segment);
                }
                Answer::Item(given) if is_owned(&given) => self.release_item_locked(state, given.item),
                Answer::Item(given) => self.release_locked(state, given.file),
                _ => {}
            },
        }
        self.changed.notify_all();
    }

    /// One opening of a segment is closed.
    pub(crate) fn release(&self, segment: SegmentId) {
        if self.process != fork::token() {
            return;
        }
        let mut state = self.lock();
        self.release_locked(&mut state, segment);
    }

    fn release_locked(&self, state: &mut State, segment: SegmentId) {
        if let Some(leased) = state.leases.get_mut(&segment) {
            leased.count -= 1;
            if leased.count == 0 {
                state.leases.remove(&segment);
            }
        }
        self.tell_locked(state, &Request::Detach { segment, count: 1 });
    }

    /// An item is open here no longer; it stays this task's.
    pub(crate) fn release_item(&self, item: SegmentId) {
        if self.process != fork::token() {
            return;
        }
        let mut state = self.lock();
        self.release_item_locked(&mut state, item);
    }

    fn release_item_locked(&self, state: &mut State, item: SegmentId) {
        if state.items.remove(&item) {
            self.tell_locked(state, &Request::Item(ItemRequest::Release { item }));
        }
    }

    /// An item is this task's no longer.
    pub(crate) fn forget_item(&self, item: SegmentId) {
        self.lock().items.remove(&item);
    }

    /// How many items this session has open as their owner.
    pub(crate) fn items(&self) -> usize {
        self.lock().items.len()
    }

    /// Remembers an endpoint, for a daemon that forgets it.
    pub(crate) fn keep_endpoint(&self, request: Request, listener: Arc<OwnedFd>) {
        self.lock().endpoints.push((request, listener));
    }

    /// Remembers a series that this session publishes, for a daemon that forgets it, and that its pool is open here.
    pub(crate) fn keep_series(&self, segment: SegmentId, series: Arc<Offered>) {
        let mut state = self.lock();
        state.lease(segment, SegmentKind::Series, None);
        state.offered.insert(segment, series);
    }

    /// This session publishes it no longer, and has its pool closed.
    pub(crate) fn forget_series(&self, segment: SegmentId) {
        if self.process != fork::token() {
            return;
        }
        let mut state = self.lock();
        if state.offered.remove(&segment).is_some() {
            self.release_locked(&mut state, segment);
        }
    }

    /// Forgets the endpoints of a workflow that ended: their sockets must not stay open.
    pub(crate) fn forget_endpoints(&self, of: &str) {
        let other = |request: &Request| !matches!(request, Request::MakeEndpoint { workflow, .. } if workflow == of);
        self.lock().endpoints.retain(|(request, _)| other(request));
    }

    /// How many regions this session has open.
    pub(crate) fn regions(&self) -> usize {
        self.lock().leases.values().filter(|leased| leased.kind == SegmentKind::Region).count()
    }

    /// As the reader: the connection is down, and is to stand again by the deadline.
    fn connect_again(&self, deadline: Deadline) {
        let began = Deadline::after(RESTART_AFTER);
        let mut pause = Duration::from_micros(100);
        let mut started = false;
        loop {
            let (over, leaving) = {
                let state = self.lock();
                (state.over.is_some(), state.leaving)
            };
            if over {
                return;
            }
            match handshake::greet(&self.path, &self.who, deadline) {
                Ok(welcome) => return self.resume(welcome),
                Err(Failure::Final(error)) if error.status == Status::TimedOut => {}
                Err(Failure::Final(error)) => {
                    let text = format!("the connection was lost and is not to be had again: {}", error.message);
                    let mut state = self.lock();
                    state.over = Some(Error::new(error.status, text));
                    return;
                }
                // Nobody is there who would want to know.
                Err(Failure::Nobody(error)) if leaving && began.passed() => {
                    self.lock().over = Some(error);
                    return;
                }
                Err(Failure::Nobody(_)) if self.private && !leaving && began.passed() && !started => {
                    started = true;
                    let _ = discovery::start(&self.path, deadline);
                }
                Err(_) => {}
            }
            if deadline.passed() {
                return;
            }
            std::thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    fn resume(&self, welcome: Welcome) {
        let mut state = self.lock();
        if welcome.incarnation != state.incarnation && !self.liveness.replace(&welcome.table).unwrap_or(false) {
            state.over = Some(Error::new(Status::Incompatible, "the restarted daemon has another liveness table"));
            return;
        }
        let socket = Arc::new(welcome.socket);
        if welcome.incarnation != state.incarnation {
            give_back(&mut state, &socket);
        }
        state.incarnation = welcome.incarnation;
        state.socket = Some(socket);
        state.generation += 1;
        let leases: Vec<_> = state.leases.iter().map(|(segment, leased)| (*segment, leased.count)).collect();
        for (segment, count) in leases {
            self.tell_locked(&mut state, &Request::Hold { segment, count });
        }
        self.tell_locked(&mut state, &Request::Hold { segment: SegmentId(0), count: 0 });
        let items: Vec<_> = state.items.iter().copied().collect();
        for item in items.into_iter().chain([SegmentId(0)]) {
            self.tell_locked(&mut state, &Request::Item(ItemRequest::Hold { item }));
        }
        self.send_unsent(&mut state);
    }

    /// Leaves in order, if the daemon is to be had soon; nothing can be asked afterwards. A daemon that does not hear
    /// of it takes the member for alive until its process ends.
    pub(crate) fn end(&self) {
        if self.process != fork::token() {
            return;
        }
        {
            let mut state = self.lock();
            if state.over.is_some() {
                return;
            }
            state.leaving = true;
        }
        let _ = self.ask(Request::Bye, None, None, Deadline::after(FAREWELL));
        let mut state = self.lock();
        state.over = Some(Error::new(Status::Closed, "this session was closed; connect anew"));
        state.socket = None;
        drop(state);
        self.changed.notify_all();
    }

    fn unreachable(&self) -> Error {
        let text = format!(
            "the node daemon at {} cannot be reached; what is mapped goes on, new requests have to wait for it",
            self.path.display()
        );
        Error::new(Status::Disconnected, text)
    }

    fn silent(&self) -> Error {
        Error::new(Status::TimedOut, format!("the node daemon at {} did not answer in time", self.path.display()))
    }
}

impl State {
    /// Notes what the daemon counts when it gives this: openings of memory, or an item of one's own.
    fn take(&mut self, answer: &Answer, descriptor: Option<&OwnedFd>) {
        match answer {
            Answer::Segment { segment, kind, writable, .. } => {
                self.lease(*segment, *kind, descriptor.filter(|_| *writable));
            }
            Answer::Series(entry) => {
                self.lease(entry.segment, SegmentKind::Series, None);
                self.lease(entry.pin, SegmentKind::Series, None);
            }
            Answer::Item(given) if is_owned(given) => {
                self.items.insert(given.item);
            }
            Answer::Item(given) => {
                self.lease(given.file, SegmentKind::Item, descriptor.filter(|_| given.writable));
            }
            _ => {}
        }
    }

    /// One more opening of a segment; a copy of the descriptor is kept, unless there is one.
    fn lease(&mut self, segment: SegmentId, kind: SegmentKind, writable: Option<&OwnedFd>) {
        let leased = self.leases.entry(segment).or_insert(Leased { count: 0, kind, descriptor: None });
        leased.count += 1;
        if leased.descriptor.is_none() {
            leased.descriptor = writable.and_then(|fd| fd.try_clone().ok());
        }
    }

    /// All requests below this number have been answered or given up.
    fn settled(&self) -> u64 {
        self.pending.first_key_value().map_or(self.next, |(number, _)| *number)
    }
}

/// How long the daemon may wait before it answers this.
fn wait_of(request: &mut Request) -> Option<&mut u64> {
    match request {
        Request::Open { wait_ms, .. }
        | Request::Observe { wait_ms, .. }
        | Request::Item(ItemRequest::Access { wait_ms, .. } | ItemRequest::Unshare { wait_ms, .. }) => Some(wait_ms),
        _ => None,
    }
}

/// Is this member its owner's, and the only one that has it?
fn is_owned(given: &ItemGiven) -> bool {
    given.writable && given.level != ItemLevel::Cooperative
}

/// A daemon that lost its descriptors with its keeper gets those that this process has. Nobody waits for the answers:
/// another member may have been first.
fn give_back(state: &mut State, socket: &OwnedFd) {
    let State { leases, offered, endpoints, next, .. } = state;
    let segments = leases.iter().filter_map(|(id, leased)| Some((*id, leased.descriptor.as_ref()?)));
    let segments = segments.map(|(segment, fd)| (Request::Offer { segment }, fd.as_fd()));
    let endpoints = endpoints.iter().map(|(request, fd)| (request.clone(), fd.as_fd()));
    let pools = offered.iter().map(|(id, series)| (Request::Offer { segment: *id }, series.pool.as_fd()));
    let single = endpoints.chain(segments).chain(pools).map(|(request, fd)| (request, vec![fd]));
    let pages = offered.iter().flat_map(|(id, series)| {
        series.pins.chunks(MAX_DESCRIPTORS).zip(0..).map(|(part, number)| {
            let (from, count) = (number * MAX_DESCRIPTORS as u32, part.len() as u32);
            (Request::Pins { segment: *id, from, count }, part.iter().map(|fd| fd.as_fd()).collect())
        })
    });
    for (request, fds) in single.chain(pages) {
        let message = request.encode(*next, 0);
        *next += 1;
        // The daemon may be behind; it is given a moment for each.
        while let Ok(false) = socket::send(socket, &message, &fds) {
            if !event::wait_writable(socket.as_fd(), Deadline::after(RESTART_AFTER)).unwrap_or(false) {
                break;
            }
        }
    }
}

/// Lets another thread read.
struct PassOn<'a>(&'a Connection);

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        self.0.lock().reading = false;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("path", &self.path).field("member", &self.who.member).finish_non_exhaustive()
    }
}

fn failures((answer, descriptors): AnsweredWith) -> Result<AnsweredWith> {
    match answer {
        Answer::Failed { status, text } => Err(Error::new(status, text)),
        answer => Ok((answer, descriptors)),
    }
}
