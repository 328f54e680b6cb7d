//! One thread of the process, which notices the end of a connection while no request is in flight.
//!
//! It sleeps in `poll` on the sockets of all sessions that have something open, and only for the sockets' ends:
//! messages do not wake it. When a daemon is gone, it connects again as soon as there is a new one, gives back what the
//! session holds, and takes over the new liveness table. It also sends the reports that `progress` left to it. It
//! starts when the first thing is opened or the first progress is reported, ends with the last session, and blocks all
//! signals. Forked children do not have it; their sessions start their own. If it cannot be started, the next request
//! notices the end, as it does in any case.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossdock_os::fork::PerProcess;
use crossdock_os::{Deadline, child, event};

use super::Connection;
use super::reconnecting::Tried;

/// The pauses between attempts to connect again. They grow up to the first value, and after a while up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const LONG_PAUSE: Duration = Duration::from_millis(250);
const A_WHILE: Duration = Duration::from_secs(10);
/// How long a daemon that accepted the connection may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
const STACK: usize = 128 << 10;

static WATCHER: PerProcess<Watcher> = PerProcess::new();

struct Watcher {
    bell: OwnedFd,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sessions: Vec<Weak<Connection>>,
    running: bool,
}

/// A session that the thread watches.
struct Watched {
    connection: Weak<Connection>,
    /// Since when the connection is broken, and when the next attempt follows.
    broken: Option<Broken>,
}

struct Broken {
    since: Instant,
    due: Instant,
    pause: Duration,
}

impl Connection {
    /// From now on the thread watches this session.
    pub(super) fn watch(&self) {
        if self.watched.load(Ordering::Relaxed) || self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let watches = watcher().is_some_and(|watcher| watcher.add(self.this.clone()));
        self.watched.store(watches, Ordering::Relaxed);
    }

    /// The session is over: the thread no longer watches it.
    pub(super) fn watch_no_more(&self) {
        self.wake_watcher();
    }

    /// Makes the thread look at this session now.
    pub(super) fn wake_watcher(&self) {
        if self.watched.load(Ordering::Relaxed) {
            if let Some(watcher) = WATCHER.get() {
                event::signal(&watcher.bell);
            }
        }
    }
}

/// This process's watcher, made with the first session. `None` if there is no descriptor for it.
fn watcher() -> Option<&'static Watcher> {
    WATCHER.get_or_make(|| Some(Watcher { bell: event::eventfd().ok()?, known: Mutex::default() }))
}

impl Watcher {
    fn add(&'static self, session: Weak<Connection>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.running {
            known.running = child::spawn_quiet("crossdock-watch", STACK, || self.run()).is_ok();
        }
        if known.running {
            known.sessions.push(session);
            event::signal(&self.bell);
        }
        known.running
    }

    fn run(&self) {
        let mut watched: Vec<Watched> = Vec::new();
        loop {
            event::clear(&self.bell);
            {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                watched.extend(known.sessions.drain(..).map(|connection| Watched { connection, broken: None }));
                watched.retain(|session| session.connection.upgrade().is_some_and(|c| !c.is_over()));
                if watched.is_empty() {
                    known.running = false;
                    return;
                }
            }
            watched.iter_mut().for_each(Watched::attend);
            let now = Instant::now();
            let due = watched.iter().filter_map(|session| session.due(now)).min();
            let sleep = due.map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(now));
            let sockets: Vec<_> = watched.iter().map(|s| s.connection.upgrade()?.socket_of()).collect();
            let open: Vec<_> = sockets.iter().flatten().map(|(socket, _)| socket.as_fd()).collect();
            let ended = event::wait_for_ends(&self.bell, &open, Deadline::after(sleep));
            let present = watched.iter().zip(&sockets).filter_map(|(s, socket)| Some((s, socket.as_ref()?.1)));
            for ((session, generation), ended) in present.zip(ended) {
                if let Some(connection) = session.connection.upgrade().filter(|_| ended) {
                    connection.broke(generation);
                }
            }
        }
    }
}

impl Watched {
    /// When the session next needs the thread.
    fn due(&self, now: Instant) -> Option<Instant> {
        let progress = self.connection.upgrade().and_then(|connection| connection.progress_due(now));
        self.broken.as_ref().map(|broken| broken.due).into_iter().chain(progress).min()
    }

    /// Restores the connection if it is broken and the time has come.
    fn attend(&mut self) {
        let now = Instant::now();
        let Some(connection) = self.connection.upgrade() else { return };
        if connection.socket_of().is_some() {
            self.broken = None;
            return;
        }
        let broken = self.broken.get_or_insert(Broken { since: now, due: now, pause: Duration::from_micros(500) });
        if now < broken.due {
            return;
        }
        match connection.try_again(Deadline::after(PATIENCE)) {
            Tried::Done => self.broken = None,
            Tried::NotYet(_) => {
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

    /// The socket, and the number of this connection of the session.
    fn socket_of(&self) -> Option<(Arc<OwnedFd>, u64)> {
        let state = self.lock();
        state.socket.clone().map(|socket| (socket, state.generation))
    }

    /// The daemon has ended this connection. A thread that reads gets what the daemon had sent before.
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
