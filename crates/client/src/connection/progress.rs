//! How far this member is, told to the daemon at most every 20 ms, and never waited for.
//!
//! The call that finds the last message too young, or the socket full, leaves its numbers to the thread of `watching`.

use std::time::{Duration, Instant};

use crossdock_layout::wire::Request;
use crossdock_os::socket;

use super::{Connection, State};
use crate::Result;

/// Between two messages.
const PAUSE: Duration = Duration::from_millis(20);

/// What is to be told, and what was.
#[derive(Default)]
pub(super) struct Progress {
    /// The last that the program said: steps done, and steps in all.
    last: Option<(u64, u64)>,
    /// It was not told on the present connection yet.
    untold: bool,
    /// When the last message was sent.
    told_at: Option<Instant>,
}

impl Connection {
    pub(crate) fn progress(&self, done: u64, of: u64) -> Result<()> {
        self.check_process()?;
        let mut state = self.lock();
        if let Some(error) = &state.over {
            return Err(error.clone());
        }
        if state.progress.last == Some((done, of)) {
            return Ok(());
        }
        let first = state.progress.last.replace((done, of)).is_none();
        let was_untold = std::mem::replace(&mut state.progress.untold, true);
        // The thread knows of what was untold before.
        let waits = state.tell_progress(Instant::now()).is_some() && !was_untold;
        drop(state);
        if first {
            self.watch();
        }
        if waits {
            self.wake_watcher();
        }
        Ok(())
    }

    /// Tells it if the time has come; else when it will have come.
    pub(super) fn progress_due(&self, now: Instant) -> Option<Instant> {
        self.lock().tell_progress(now)
    }
}

impl State {
    /// Tells it if the time has come; else when it will have come.
    fn tell_progress(&mut self, now: Instant) -> Option<Instant> {
        let (done, of) = self.progress.last.filter(|_| self.progress.untold)?;
        // A new connection begins with all that is to be told.
        let socket = self.socket.clone()?;
        if let Some(due) = self.progress.told_at.map(|told| told + PAUSE).filter(|due| *due > now) {
            return Some(due);
        }
        self.progress.told_at = Some(now);
        let message = Request::Progress { done, of }.encode(0, self.settled());
        match socket::send(&*socket, &message, &[]) {
            Ok(true) => self.progress.untold = false,
            // The daemon is behind.
            Ok(false) => return Some(now + PAUSE),
            Err(_) => self.hang_up(),
        }
        None
    }

    /// On a new connection.
    pub(super) fn tell_progress_again(&mut self) {
        self.progress.untold = self.progress.last.is_some();
        self.progress.told_at = None;
        let _ = self.tell_progress(Instant::now());
    }
}
