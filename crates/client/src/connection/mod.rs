//! One connection to the daemon, over which all threads of a process send requests and get answers.
//!
//! If no thread reads from the connection, a thread that waits for an answer becomes the reader. The reader hands each
//! message to the thread that waits for this message. When the reader has its own answer, it lets another thread read.
//! If the connection breaks, for example because the broker was restarted, the reader connects again with the session's
//! token and sends all unanswered requests again. The daemon remembers what it has done already, so nothing happens
//! twice. While no request is in flight, one watching thread of the process notices the end of a connection and
//! connects again. So a new daemon soon learns what all living members have open, and a member that sends no requests
//! still learns from the new daemon which members are dead.
//!
//! The submodules: `asking` sends requests and hands out the answers; `leaving` ends the session properly; `numbered`
//! is a list of requests; `open_list` lists what this process has open; `progress` reports the task's progress; `room` reserves descriptors for the
//! answers; `reconnecting` connects again; `watching` is the watching thread.

mod asking;
mod leaving;
mod numbered;
mod open_list;
mod progress;
mod reconnecting;
mod room;
#[cfg(test)]
mod testing;
mod watching;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crossdock_core::liveness::Liveness;
use crossdock_layout::Status;
use crossdock_layout::wire::Request;
use crossdock_os::socket::{self, OwnSocket};
use crossdock_os::{Deadline, fork};

pub(crate) use self::asking::Answered;
pub(crate) use self::leaving::StillOpen;

use self::asking::{Pending, ReaderTurn};
use self::numbered::Numbered;
use self::open_list::OpenList;
use self::progress::Progress;
use crate::handshake::{ClientIdentity, Welcome};
use crate::{Error, Reason, Result};

struct State {
    socket: Option<Arc<OwnSocket>>,
    /// The number of the present connection. It grows with each reconnection.
    generation: u64,
    next: u64,
    pending: Numbered<Pending>,
    /// Messages that were not sent yet because the socket was full, with their request numbers. No thread waits for an
    /// answer to them.
    untold: VecDeque<(u64, Request)>,
    /// The requests for whose answers no thread waits. Either the thread that sent the request has given up, or the
    /// session itself sent the request, so that the daemon removes something. If the connection is lost, some of them
    /// are sent again (see the field `lasts` of [`Pending`]).
    given_up: Numbered<Pending>,
    /// On a new connection, the requests in `given_up` are sent first. All other requests are held back until the
    /// daemon has answered the requests in `given_up`, or until this deadline has passed. The reason is that such an
    /// answer may tell the session to remove an object, and a later request may need the name of that object.
    held_back: Deadline,
    /// Copies of descriptors. Each copy only keeps a place in the descriptor table free for a descriptor that an answer
    /// will bring.
    room: Vec<OwnSocket>,
    open_list: OpenList,
    progress: Progress,
    reading: bool,
    /// The number of threads that wait for the reading thread.
    asleep: usize,
    /// The number of threads that check at this moment whether the session can leave. While this number is not 0, no
    /// call may begin to take an end of a port or a cooperative item.
    closing: usize,
    /// True if the session is leaving. Then the farewell is the only possible request, and a daemon that is gone is not
    /// started again.
    leaving: bool,
    /// The error with which every request fails; `None` while requests are possible.
    over: Option<Error>,
    /// The number of the daemon's keeper. A daemon whose keeper has another number has lost all descriptors.
    incarnation: u64,
    /// The requests by which this session offers the daemon the descriptors that the daemon has lost. The requests in
    /// this list were not sent on the present connection yet.
    not_given_back: VecDeque<Request>,
    /// The requests of the same kind that were sent on the present connection, and that the daemon has not answered
    /// yet.
    offered: BTreeMap<u64, Request>,
    /// The requests of the same kind that the daemon refused because it had no free descriptor. They are sent again
    /// after a pause.
    refused: Vec<Request>,
    /// The error of the last failed attempt to connect again.
    trouble: Option<Error>,
}

/// The connection of a session.
pub(crate) struct Connection {
    path: PathBuf,
    private: bool,
    who: ClientIdentity,
    liveness: Liveness,
    state: Mutex<State>,
    changed: Condvar,
    /// The process that made the connection. Its forked children must not use the connection.
    process: fork::ProcessToken,
    /// True if the watching thread watches this connection.
    watched: AtomicBool,
    /// The number of calls that take an end of a port or a cooperative item at this moment, see [`leaving::Taking`]. It
    /// grows only under the lock of `state`.
    taking: AtomicUsize,
    /// The number of cooperative items that this session holds.
    held: AtomicUsize,
    this: Weak<Self>,
}

impl State {
    /// The state of a session that has connected for the first time and has made no request.
    fn new(socket: Option<Arc<OwnSocket>>, incarnation: u64) -> Self {
        Self {
            socket,
            generation: 1,
            next: 2,
            pending: Numbered::new(),
            untold: VecDeque::new(),
            given_up: Numbered::new(),
            held_back: Deadline::after(Duration::ZERO),
            room: Vec::new(),
            trouble: None,
            open_list: OpenList::default(),
            progress: Progress::default(),
            reading: false,
            asleep: 0,
            closing: 0,
            leaving: false,
            over: None,
            incarnation,
            not_given_back: VecDeque::new(),
            offered: BTreeMap::new(),
            refused: Vec::new(),
        }
    }
}

impl Connection {
    pub(crate) fn new(path: PathBuf, private: bool, mut who: ClientIdentity, welcome: Welcome) -> Result<Arc<Self>> {
        let entered = Liveness::enter(welcome.descriptors, welcome.member);
        let liveness =
            entered.map_err(|error| Error::os(&error).during("this process cannot become a member of the node"))?;
        let Some(liveness) = liveness else {
            let text = format!("the daemon at {} sent no liveness table of this layout", path.display());
            return Err(Error::new(Status::Incompatible, text));
        };
        // When this session connects again, its hello names this member id, so that the daemon gives the session the
        // same id. Only a daemon of the same user gets this hello.
        who.member = welcome.member;
        let server = socket::peer_user(&welcome.socket);
        who.server = Some(server.map_err(|error| Error::new(Status::System, error.to_string()))?);
        let state = State::new(Some(Arc::new(OwnSocket::new(welcome.socket))), welcome.incarnation);
        Ok(Arc::new_cyclic(|this| Self {
            path,
            private,
            who,
            liveness,
            state: Mutex::new(state),
            changed: Condvar::new(),
            process: fork::ProcessToken::current(),
            watched: AtomicBool::new(false),
            taking: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            this: this.clone(),
        }))
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Tells whether this process made the connection.
    fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    /// Fails in a forked child of the process that made the connection.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        Err(Error::because(Status::Disconnected, Reason::Forked))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for the reader. Usually no thread waits. So this function makes a system call only
    /// if a thread waits.
    fn wake_others(&self, state: &State) {
        if state.asleep > 0 {
            self.changed.notify_all();
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("path", &self.path).field("member", &self.who.member).finish_non_exhaustive()
    }
}
