//! The watching thread: it notices the end of a connection while no request is in flight. There is one in each process.
//!
//! The thread sleeps in `poll` on the sockets of all sessions. The end of a connection wakes the thread; messages do
//! not. When a daemon is gone, the thread connects again as soon as there is a new daemon, sends it the descriptors
//! that the session holds, and uses the new liveness table. If the daemon has no room for such a descriptor, the thread
//! sends the descriptor again after a pause. The thread also sends the progress reports that `progress` could not send
//! at once, and the messages that did not fit into a full socket. The thread starts with the first request that may
//! leave a session with something: from then on, a new daemon must assume that the session may have any object that was
//! lost, until the session has connected again. A session that only asks questions needs no thread. The thread ends
//! with the last session. It blocks all signals. A forked child does not have this thread; the child's own sessions
//! start another watching thread. If the thread cannot be started, the next request notices the end of the connection,
//! and later calls try to start the thread.
//!
//! A program may close all of its descriptors, also those that it does not know (`closefrom`), and open its own files
//! under the same numbers. This wakes the thread. Each time before the thread sleeps, it checks that its bell and the
//! sockets of all sessions are still open. It makes a new bell, and connects the sessions again.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossdock_os::bell::Bell;
use crossdock_os::fork::PerProcess;
use crossdock_os::socket::OwnSocket;
use crossdock_os::{Deadline, child, event};

use super::reconnecting::ConnectAttempt;
use super::{Connection, State};

/// The longest pause between two attempts to connect again: `PAUSE` during the time `A_WHILE` after the connection
/// broke, and `LONG_PAUSE` after that time.
const PAUSE: Duration = Duration::from_millis(50);
const LONG_PAUSE: Duration = Duration::from_millis(250);
const A_WHILE: Duration = Duration::from_secs(10);
/// The longest wait for a daemon that accepted the connection and has not answered yet.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two attempts to send the messages that did not fit into a full socket.
const ROOM: Duration = Duration::from_millis(20);
/// The pause between two attempts to send the daemon a descriptor that it lost. The daemon refused the descriptor
/// before because the daemon had no free place for it.
const REFUSED: Duration = Duration::from_millis(100);
/// The longest sleep. If a forked child still has the bell's descriptors when the program closes its own, nothing wakes
/// the thread before this time.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest sleep while the process has no free descriptors for a bell.
const WITHOUT_BELL: Duration = Duration::from_millis(100);
const STACK: usize = 128 << 10;

static WATCHER: PerProcess<Watcher> = PerProcess::new();

struct Watcher {
    /// The present bell; `None` if the program has closed the last one and no other could be made. No other lock is
    /// taken while this one is held.
    wake: Mutex<Option<Arc<Bell>>>,
    known: Mutex<WatchList>,
}

#[derive(Default)]
struct WatchList {
    sessions: Vec<Weak<Connection>>,
    running: bool,
}

/// A session that the thread watches.
struct WatchedSession {
    connection: Weak<Connection>,
    /// When the connection broke, and when the next attempt to connect is due; `None` while the connection works.
    broken: Option<Outage>,
    /// The time at which the session sends again the descriptors that the daemon refused; `None` if the daemon refused
    /// nothing.
    offer_due: Option<Instant>,
}

struct Outage {
    since: Instant,
    due: Instant,
    pause: Duration,
}

impl Connection {
    /// Makes the bell of the watching thread, if this process has none yet. So a process that runs out of descriptors
    /// later can still start the thread. If no bell can be made now, [`Self::watch`] tries again.
    pub(crate) fn prepare_to_watch(&self) {
        watcher();
    }

    /// Tells whether the watching thread watches this session.
    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Makes the watching thread watch this session.
    pub(crate) fn watch(&self) {
        if self.is_watched() || self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let watches = watcher().is_some_and(|watcher| watcher.add(self.this.clone()));
        self.watched.store(watches, Ordering::Relaxed);
    }

    /// Tells the watching thread that the session is over, so that it no longer watches the session.
    pub(super) fn watch_no_more(&self) {
        self.wake_watcher();
    }

    /// Wakes the watching thread if messages are left that did not fit into the full socket. The thread then sends
    /// them.
    pub(super) fn watch_untold(&self, state: &State) {
        if state.socket.is_some() && !state.untold.is_empty() {
            self.wake_watcher();
        }
    }

    /// Sends the messages that did not fit into the full socket. If some are left, gives the time of the next attempt.
    fn untold_due(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        (!state.send_untold() && state.socket.is_some()).then(|| now + ROOM)
    }

    /// Wakes the watching thread, which then looks at this session.
    pub(super) fn wake_watcher(&self) {
        if self.is_watched() {
            if let Some(watcher) = WATCHER.get() {
                watcher.ring();
            }
        }
    }
}

/// Gives the watcher of this process, which the first call makes. `None` if the process has no free descriptor for the
/// watcher.
fn watcher() -> Option<&'static Watcher> {
    WATCHER
        .get_or_make(|| Some(Watcher { wake: Mutex::new(Some(Arc::new(Bell::new().ok()?))), known: Mutex::default() }))
}

impl Watcher {
    fn add(&'static self, session: Weak<Connection>) -> bool {
        let mut known = self.known();
        if !known.running {
            known.running = child::spawn_quiet("crossdock-watch", STACK, || self.run()).is_ok();
        }
        if known.running {
            known.sessions.push(session);
            self.ring();
        }
        known.running
    }

    fn known(&self) -> MutexGuard<'_, WatchList> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let bell = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Makes the bell silent and gives it. Makes another bell if the program has closed this one. Only the watching
    /// thread calls this.
    fn silent_bell(&self) -> Option<Arc<Bell>> {
        let present = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bell = present.filter(|bell| bell.silence()).or_else(|| Bell::new().ok().map(Arc::new));
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&bell);
        bell
    }

    fn run(&self) {
        let mut watched: Vec<WatchedSession> = Vec::new();
        loop {
            let bell = self.silent_bell();
            let fresh = std::mem::take(&mut self.known().sessions);
            watched.extend(fresh.into_iter().map(|connection| WatchedSession {
                connection,
                broken: None,
                offer_due: None,
            }));
            // This may drop the last reference to a connection, which takes some system calls. So `known` is not locked
            // here: a thread that connects waits for it.
            watched.retain(|session| session.connection.upgrade().is_some_and(|c| !c.is_over()));
            if watched.is_empty() {
                let mut known = self.known();
                if known.sessions.is_empty() {
                    known.running = false;
                    return;
                }
                continue;
            }
            watched.iter().filter_map(|session| session.connection.upgrade()).for_each(|c| c.check_socket());
            watched.iter_mut().for_each(WatchedSession::attend);
            let now = Instant::now();
            let due = watched.iter().filter_map(|session| session.due(now)).min();
            let longest = if bell.is_some() { LONGEST } else { WITHOUT_BELL };
            let sleep = due.map_or(longest, |due| due.saturating_duration_since(now)).min(longest);
            let sockets: Vec<_> = watched.iter().map(|s| s.connection.upgrade()?.socket_of()).collect();
            let open: Vec<_> = sockets.iter().flatten().map(|(socket, _)| socket.as_fd()).collect();
            let ended = event::wait_for_ends(bell.as_deref(), &open, Deadline::after(sleep));
            let present = watched.iter().zip(&sockets).filter_map(|(s, socket)| Some((s, socket.as_ref()?.1)));
            for ((session, generation), ended) in present.zip(ended) {
                if let Some(connection) = session.connection.upgrade().filter(|_| ended) {
                    connection.broke(generation);
                }
            }
        }
    }
}

impl WatchedSession {
    /// Gives the time at which the thread must next do something for this session.
    fn due(&self, now: Instant) -> Option<Instant> {
        let connection = self.connection.upgrade();
        let progress = connection.as_ref().and_then(|connection| connection.progress_due(now));
        let untold = connection.and_then(|connection| connection.untold_due(now));
        let broken = self.broken.as_ref().map(|broken| broken.due);
        broken.into_iter().chain(progress).chain(untold).chain(self.offer_due).min()
    }

    /// Tries to restore the connection, if it is broken and the next attempt is due.
    fn attend(&mut self) {
        let now = Instant::now();
        let Some(connection) = self.connection.upgrade() else { return };
        if connection.socket_of().is_some() {
            self.broken = None;
            if self.offer_due.is_none_or(|due| due <= now) {
                self.offer_due = connection.offer_again().then(|| Instant::now() + REFUSED);
            }
            return;
        }
        let broken = self.broken.get_or_insert(Outage { since: now, due: now, pause: Duration::from_micros(500) });
        if now < broken.due {
            return;
        }
        match connection.try_again(Deadline::after(PATIENCE)) {
            ConnectAttempt::Done => self.broken = None,
            ConnectAttempt::NotYet(_) => {
                let longest = if broken.since.elapsed() < A_WHILE { PAUSE } else { LONG_PAUSE };
                broken.pause = (broken.pause * 2).min(longest);
                broken.due = Instant::now() + broken.pause;
            }
        }
    }
}

impl Connection {
    fn is_over(&self) -> bool {
        let state = self.lock();
        state.over.is_some() || state.leaving
    }

    /// Gives the socket of the present connection, with the connection's number.
    fn socket_of(&self) -> Option<(Arc<OwnSocket>, u64)> {
        let state = self.lock();
        state.socket.clone().map(|socket| (socket, state.generation))
    }

    /// If the program has closed the descriptor of the connection, handles this as the end of the connection.
    fn check_socket(&self) {
        if let Some((_, generation)) = self.socket_of().filter(|(socket, _)| !socket.is_ours()) {
            self.broke(generation);
        }
    }

    /// Handles the end of a connection. If another thread is reading from the connection, that thread handles the end,
    /// after it has read what the daemon had sent.
    fn broke(&self, generation: u64) {
        let mut state = self.lock();
        if state.reading {
            drop(state);
            std::thread::sleep(Duration::from_millis(1));
        } else if state.generation == generation {
            state.socket = None;
        }
    }
}
