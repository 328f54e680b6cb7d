//! A node's connection to one other node, from the side that dials.
//!
//! A thread keeps the control connection. It dials, greets, sends the pulse, reads answers, and dials again when the
//! connection ends. The thread uses the best transport that works for this peer. A caller writes its question to the
//! connection without help of the thread, and waits until the thread has read the answer.

use crate::frame::{Frames, send};
use crate::greeting::{GreetedConnection, Route, greet, not_reached};
use crate::peer::LastHeard;
use crate::pull_transport::{OtherTransport, PullTransport, PullTransports};
use crate::transport_trials::TransportTrials;
use crate::{Error, LinkOptions, LinkState, Node, Presence, Result, Stream, Transport, bad_node_name};
use crossdock_layout::Status;
use crossdock_layout::link::{MAX_BODY, NodeMessage, Purpose};
use crossdock_os::Deadline;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first pause between two attempts to connect. Each further pause is twice as long, up to [`PAUSE_MOST`].
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// The least time for writing a question, even if the question's deadline is nearer.
const WRITE: Duration = Duration::from_secs(1);

/// The maximum time for sending the peer the message that the connection ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// The answer to one question that was sent to the peer; `None` until the answer has come.
type AnswerSlot = Option<Result<NodeMessage>>;

/// The state of a link.
enum Phase {
    /// There is no connection. The error is that of the last attempt to connect, if there was one.
    Dialing(Option<Error>),
    /// There is a connection to the other node.
    Connected(Connected),
    /// The link was closed by this node.
    Closed,
}

struct Connected {
    stream: Arc<dyn Stream>,
    session: [u8; 16],
    /// The number of this connection among all connections of the link.
    generation: u64,
    /// The index of the connection's transport in the link's list of transports.
    index: usize,
}

struct State {
    phase: Phase,
    heard: Option<LastHeard>,
    incarnation: Option<u64>,
    generation: u64,
    next_question: u64,
    questions: HashMap<u64, AnswerSlot>,
    /// For each transport of the link's list: why it did not work when it was tried last; `None` if no reason is known.
    refusals: Vec<Option<String>>,
}

/// What a data connection must know of the control connection to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlConnection {
    pub session: [u8; 16],
    pub incarnation: u64,
    /// The index of the control connection's transport in the link's list of transports.
    pub index: usize,
}

pub(crate) struct Shared {
    /// The transports that may be used, the best first.
    pub transports: Vec<Arc<dyn Transport>>,
    pub own: Node,
    pub peer: String,
    pub address: String,
    pub options: LinkOptions,
    state: Mutex<State>,
    changed: Condvar,
    /// The transports by which this link can pull bytes.
    pub pull_transports: PullTransports,
    /// Data connections that no pull uses at the moment, each with its transport and with the identifier of the control
    /// connection to which it belongs.
    pub idle: Mutex<Vec<([u8; 16], PullTransport, Frames)>>,
}

/// A connection to one other node. It dials again after every loss, until it is dropped.
pub struct Link {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("peer", &self.shared.peer).field("address", &self.shared.address).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Begins to connect to `peer` at `address` by one transport. [`Self::connected`] waits until there is a
    /// connection.
    ///
    /// # Errors
    /// One of the names cannot be the name of a node, or no thread can be started.
    pub fn open(
        transport: Arc<dyn Transport>,
        own: Node,
        peer: &str,
        address: &str,
        options: LinkOptions,
    ) -> Result<Self> {
        Self::negotiate(vec![transport], own, peer, address, options)
    }

    /// Begins to connect to `peer` at `address` by the first of `transports` that works. The best transport comes
    /// first. While a connection does not use the best transport, the better transports are tried again from time to
    /// time.
    ///
    /// # Errors
    /// As for [`Self::open`].
    ///
    /// # Panics
    /// Panics if `transports` is empty.
    pub fn negotiate(
        transports: Vec<Arc<dyn Transport>>,
        own: Node,
        peer: &str,
        address: &str,
        options: LinkOptions,
    ) -> Result<Self> {
        Self::negotiate_with(OtherTransport::none(""), transports, own, peer, address, options)
    }

    /// Works like [`Self::negotiate`], but pulls of bytes may also use the transport `other`, which carries only pulls.
    ///
    /// # Errors
    /// As for [`Self::open`].
    ///
    /// # Panics
    /// Panics if `transports` is empty.
    pub fn negotiate_with(
        other: OtherTransport,
        transports: Vec<Arc<dyn Transport>>,
        own: Node,
        peer: &str,
        address: &str,
        options: LinkOptions,
    ) -> Result<Self> {
        assert!(!transports.is_empty(), "a link needs a transport");
        for name in [&own.name, peer] {
            if let Some(bad) = bad_node_name(name) {
                return Err(Error::new(Status::Invalid, format!("link to node '{name}'"), bad));
            }
        }
        let state = State {
            phase: Phase::Dialing(None),
            heard: None,
            incarnation: None,
            generation: 0,
            next_question: 1,
            questions: HashMap::new(),
            refusals: vec![None; transports.len()],
        };
        let shared = Arc::new(Shared {
            transports,
            own,
            peer: peer.to_owned(),
            address: address.to_owned(),
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            pull_transports: PullTransports::new(other),
            idle: Mutex::default(),
        });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("crossdock-link".into()).spawn(move || shared.keep())
        };
        let thread = thread.map_err(|error| Error::new(Status::System, "start a link", error.to_string()))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until there is a connection; returns the incarnation of the other daemon, which is the number of its
    /// start.
    ///
    /// # Errors
    /// There was no connection by the deadline. The error has the reason of the last attempt.
    pub fn connected(&self, deadline: Deadline) -> Result<u64> {
        self.shared.control_connection(deadline).map(|control| control.incarnation)
    }

    /// Closes the link for good. A question that waits for its answer fails immediately. A pull fails when it next uses
    /// its connection.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Tells whether the link was closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Gives the state of the connection to the other node.
    #[must_use]
    pub fn seen(&self) -> LinkState {
        self.shared.seen(&lock(&self.shared.state))
    }

    /// Asks a service of the other node and waits for the answer, at most until the deadline.
    ///
    /// # Errors
    /// The service's refusal, if the other node's service refuses the question. `Busy` if the service refuses with this
    /// status, or if other questions were still being sent at the deadline; in the second case, this question was not
    /// sent. `TimedOut` if no answer came by the deadline. `Disconnected` if the connection ended before the answer.
    /// After `TimedOut` or `Disconnected`, the other node may have carried out the question, or may still do it. So
    /// repeat only questions that may be carried out twice.
    pub fn ask(&self, service: u32, body: &[u8], deadline: Deadline) -> Result<Vec<u8>> {
        let shared = &*self.shared;
        let tried = || format!("ask service {service}");
        if body.len() > MAX_BODY {
            let reason = format!("the question has {} bytes; {MAX_BODY} fit", body.len());
            return Err(shared.name(Error::new(Status::Invalid, tried(), reason)));
        }
        shared.control_connection(deadline).map_err(|error| error.trying(tried()))?;
        let (stream, generation, number) = {
            let mut state = lock(&shared.state);
            let Phase::Connected(up) = &state.phase else {
                return Err(shared.gone(&state, "the connection has just ended; nothing was asked").trying(tried()));
            };
            let (stream, generation) = (up.stream.clone(), up.generation);
            let number = state.next_question;
            state.next_question += 1;
            state.questions.insert(number, None);
            (stream, generation, number)
        };
        let wait_ms = u32::try_from(deadline.left().as_millis()).unwrap_or(u32::MAX);
        let question = NodeMessage::Ask { service, wait_ms, body: body.to_vec() };
        // If a question is cut off in the middle, the connection is lost for all callers. So a question whose deadline
        // is near still gets the time `WRITE`. It needs that time only if the peer does not read and the kernel's
        // buffers are full.
        let by = deadline.max(Deadline::after(WRITE)).at_most(shared.options.give_up());
        let sent = send(&*stream, &question, number, by);
        if let Err(error) = sent {
            if error.status != Status::Busy {
                shared.drop_connection(generation);
            }
            lock(&shared.state).questions.remove(&number);
            return Err(shared.name(error).trying(tried()));
        }
        let mut state = lock(&shared.state);
        loop {
            if let Some(Some(_)) = state.questions.get(&number) {
                let answer = state.questions.remove(&number).flatten().expect("it was there");
                return match answer.map_err(|error| error.trying(tried()))? {
                    NodeMessage::Said(body) => Ok(body),
                    NodeMessage::Failed { status, text } => Err(shared.name(Error::new(status, tried(), text))),
                    other => unreachable!("only answers are put there, not {other:?}"),
                };
            }
            if deadline.passed() {
                state.questions.remove(&number);
                let reason = format!("no answer by the deadline; {}", shared.seen(&state));
                return Err(shared.name(Error::new(Status::TimedOut, tried(), reason)));
            }
            state = shared.wait(state, deadline);
        }
    }
}

/// Joins two reasons, of which either may be empty, into one text.
fn both(one: &str, other: &str) -> String {
    if one.is_empty() || other.is_empty() { format!("{one}{other}") } else { format!("{one}; {other}") }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its message has been printed already, so the panic is ignored here.
            let _ = thread.join();
        }
    }
}

impl Shared {
    pub fn name(&self, error: Error) -> Error {
        error.with(&self.peer, &self.address)
    }

    /// Tells how to reach the peer by the transport at this index of the list.
    pub fn route(&self, index: usize) -> Route<'_> {
        Route {
            transport: &*self.transports[index],
            own: &self.own,
            peer: &self.peer,
            address: &self.address,
            options: &self.options,
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, deadline: Deadline) -> MutexGuard<'a, State> {
        // The wait may end early without a reason, so callers check their condition again.
        let (state, _) = self.changed.wait_timeout(state, deadline.left()).unwrap_or_else(PoisonError::into_inner);
        state
    }

    fn seen(&self, state: &State) -> LinkState {
        let why = match &state.phase {
            Phase::Dialing(Some(error)) => Some(error.reason.clone()),
            Phase::Closed => Some("this node closed the link".to_owned()),
            Phase::Dialing(None) | Phase::Connected(_) => None,
        };
        let (pulls, other) = self.pull_transports.seen();
        let (transport, better) = match &state.phase {
            Phase::Connected(up) => (up.stream.transport(), Some(both(&self.better(state, up.index), &other))),
            Phase::Dialing(_) | Phase::Closed => (self.transports[0].name(), None),
        };
        LinkState {
            node: self.peer.clone(),
            address: self.address.clone(),
            transport,
            presence: state.heard.map_or(Presence::Unmet, |heard| heard.presence(&self.options)),
            heard: state.heard.map(|heard| heard.0.elapsed()),
            incarnation: state.incarnation,
            why,
            better,
            pulls,
        }
    }

    /// Tells why the connection uses no transport that is better than the one at `index`. The text has the refusal of
    /// each transport that comes before `index` in the list, which begins with the best one.
    fn better(&self, state: &State, index: usize) -> String {
        let refusal = |index: usize| {
            let why = state.refusals[index].as_deref().unwrap_or("it was not tried again since");
            format!("{}: {why}", self.transports[index].name())
        };
        let refusals: Vec<_> = (0..index).map(refusal).collect();
        if refusals.is_empty() { self.transports[index].why_not_better().to_owned() } else { refusals.join("; ") }
    }

    fn gone(&self, state: &State, what: &str) -> Error {
        self.name(Error::new(Status::Disconnected, "connect", format!("{what}; {}", self.seen(state))))
    }

    /// Waits until there is a control connection.
    pub fn control_connection(&self, deadline: Deadline) -> Result<ControlConnection> {
        let mut state = lock(&self.state);
        loop {
            match &state.phase {
                Phase::Connected(up) => {
                    let incarnation = state.incarnation.expect("a connection that is up has met the other daemon");
                    return Ok(ControlConnection { session: up.session, incarnation, index: up.index });
                }
                Phase::Closed => return Err(self.gone(&state, "the link is closed")),
                Phase::Dialing(last) if deadline.passed() => {
                    let mut error = match last {
                        // The error of the last attempt says more than "timed out".
                        Some(error) => error.clone(),
                        None => self.name(Error::new(Status::TimedOut, "connect", "the deadline passed")),
                    };
                    let seen = LinkState { why: None, ..self.seen(&state) };
                    error.reason = format!("{}; {seen}", error.reason);
                    return Err(error);
                }
                Phase::Dialing(_) => {}
            }
            state = self.wait(state, deadline);
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Closed)
    }

    fn close(&self) {
        let phase = std::mem::replace(&mut lock(&self.state).phase, Phase::Closed);
        self.changed.notify_all();
        if let Phase::Connected(up) = phase {
            let _ = send(&*up.stream, &NodeMessage::Bye, 0, Deadline::after(FAREWELL));
            up.stream.close();
        }
        for (.., frames) in lock(&self.idle).drain(..) {
            frames.stream().close();
        }
    }

    /// Closes the connection with this number, if the link still uses the connection. The link's thread notices the end
    /// and dials again.
    fn drop_connection(&self, generation: u64) {
        if let Phase::Connected(up) = &lock(&self.state).phase
            && up.generation == generation
        {
            up.stream.close();
        }
    }

    /// Does the work of the link's thread: connects, reads messages until the connection ends, and connects again.
    fn keep(self: &Arc<Self>) {
        let mut pause = PAUSE;
        let mut index = 0;
        while !self.is_closed() {
            let error = match self.greet_by_any(index) {
                Ok((by, (mut frames, incarnation, session))) => {
                    pause = PAUSE;
                    index = by;
                    if !self.up(&frames, incarnation, session, index) {
                        frames.stream().close();
                        return;
                    }
                    let mut trials = TransportTrials::than(index, session);
                    let ended = self.listen(&mut frames, &mut trials);
                    frames.stream().close();
                    index = trials.found().unwrap_or(index);
                    ended
                }
                Err(error) => not_reached(error),
            };
            let mut state = self.down(error);
            let until = Deadline::after(pause);
            while !until.passed() && !matches!(state.phase, Phase::Closed) {
                state = self.wait(state, until);
            }
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    /// Connects to the peer by the first transport that works, and gives the index of this transport in the list. The
    /// transport that worked last is tried first. If none works, the error is that of the transport that was tried
    /// first.
    fn greet_by_any(&self, last: usize) -> Result<(usize, GreetedConnection)> {
        let others = (0..self.transports.len()).filter(|index| *index != last);
        let mut first = None;
        for index in std::iter::once(last).chain(others) {
            match self.try_transport(index, Purpose::Control, [0; 16]) {
                Ok(greeted) => return Ok((index, greeted)),
                Err(error) => {
                    // If the other node itself refuses the connection, this node has reached it, so another transport
                    // would not help.
                    let reached = !matches!(
                        error.status,
                        Status::Disconnected | Status::TimedOut | Status::Corrupt | Status::Denied
                    );
                    let error = first.get_or_insert(error);
                    if reached || self.is_closed() {
                        return Err(error.clone());
                    }
                }
            }
        }
        Err(first.expect("a link has at least one transport"))
    }

    /// Connects and greets by the transport at this index of the list, and notes whether it worked.
    pub fn try_transport(&self, index: usize, purpose: Purpose, session: [u8; 16]) -> Result<GreetedConnection> {
        let attempt = Deadline::after(self.options.away.max(Duration::from_secs(1)));
        let greeted = greet(&self.route(index), purpose, session, attempt);
        lock(&self.state).refusals[index] = greeted.as_ref().err().map(|error| error.reason.clone());
        greeted
    }

    /// Ends the connection in favour of a better transport, unless a question waits for its answer. Callers wait until
    /// the next connection is there. Returns `true` if the connection was ended.
    fn retire(&self) -> bool {
        let mut state = lock(&self.state);
        let idle = state.questions.is_empty() && matches!(state.phase, Phase::Connected(_));
        if idle {
            state.phase = Phase::Dialing(None);
        }
        idle
    }

    /// Notes the new connection. Returns `false` if the link was closed meanwhile.
    fn up(&self, frames: &Frames, incarnation: u64, session: [u8; 16], index: usize) -> bool {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Closed) {
            return false;
        }
        state.generation += 1;
        let generation = state.generation;
        state.phase = Phase::Connected(Connected { stream: frames.stream().clone(), session, generation, index });
        state.heard = Some(LastHeard::now());
        state.incarnation = Some(incarnation);
        self.changed.notify_all();
        true
    }

    /// Notes that the connection is lost. All callers that wait for an answer get an
    /// error with the reason of `error`.
    fn down(&self, error: Error) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        let reason = format!(
            "the connection ended before the answer came, so it may have been done or not ({}); {}",
            error.reason,
            self.seen(&state)
        );
        let lost = self.name(Error::new(Status::Disconnected, "ask", reason));
        for slot in state.questions.values_mut() {
            slot.get_or_insert_with(|| Err(lost.clone()));
        }
        if !matches!(state.phase, Phase::Closed) {
            state.phase = Phase::Dialing(Some(error));
        }
        self.changed.notify_all();
        state
    }

    /// Reads messages and sends the pulse until the connection ends; returns the reason.
    fn listen(self: &Arc<Self>, frames: &mut Frames, trials: &mut TransportTrials) -> Error {
        let (mut heard, mut said, mut pulses) = (Instant::now(), Instant::now(), 0);
        let give_up = self.options.give_up();
        let disconnected = |reason: String| Error::new(Status::Disconnected, "listen to the peer", reason);
        loop {
            if said.elapsed() >= self.options.pulse {
                let pulse = NodeMessage::Pulse { count: pulses };
                if let Err(error) = send(&**frames.stream(), &pulse, 0, Deadline::after(give_up)) {
                    return self.name(error);
                }
                pulses += 1;
                said = Instant::now();
            }
            if trials.works(self) && self.retire() {
                let _ = send(&**frames.stream(), &NodeMessage::Bye, 0, Deadline::after(FAREWELL));
                return self.name(disconnected("a better transport works by now".to_owned()));
            }
            let message = match frames.next(Deadline::after(self.options.pulse.saturating_sub(said.elapsed()))) {
                Err(error) if error.status == Status::TimedOut && heard.elapsed() < give_up => continue,
                Err(error) if error.status == Status::TimedOut => {
                    return self.name(disconnected(format!("the peer was silent for {:.1?}", heard.elapsed())));
                }
                Err(error) => return self.name(error),
                Ok(None | Some((_, NodeMessage::Bye))) => {
                    return self.name(disconnected("the other daemon closed the connection".to_owned()));
                }
                Ok(Some(message)) => message,
            };
            heard = Instant::now();
            let mut state = lock(&self.state);
            state.heard = Some(LastHeard(heard));
            match message {
                (_, NodeMessage::Pulse { .. }) => {}
                (number, answer @ (NodeMessage::Said(_) | NodeMessage::Failed { .. })) => {
                    // If no entry has this number, the deadline of the question has passed and its caller waits no
                    // longer. Then the answer is dropped.
                    if let Some(slot) = state.questions.get_mut(&number) {
                        slot.get_or_insert(Ok(answer));
                        self.changed.notify_all();
                    }
                }
                (_, other) => {
                    let reason = format!("a message that does not belong here: number {}", other.number());
                    return self.name(Error::new(Status::Corrupt, "listen to the peer", reason));
                }
            }
        }
    }
}
