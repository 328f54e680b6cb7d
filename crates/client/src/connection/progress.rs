//! Reports of the task's progress. A report is sent to the daemon at most every 20 ms, and no call waits for it.
//!
//! If the last report was sent less than 20 ms ago, or if the socket is full, the watching thread sends the new report
//! later.

use std::time::{Duration, Instant};

use crossdock_layout::wire::Request;
use crossdock_os::socket;

use super::{Connection, State};
use crate::Result;

/// The shortest time between two messages that report the program's progress to the daemon.
const PAUSE: Duration = Duration::from_millis(20);

/// The last progress that the program has reported, and whether it was sent to the daemon.
#[derive(Default)]
pub(super) struct Progress {
    /// The last report of the program: the steps done, and the steps in all.
    last: Option<(u64, u64)>,
    /// True if the report has not been sent on the present connection yet.
    untold: bool,
    /// The time at which a report was last sent on the present connection.
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
        // If an earlier report is still unsent, the watching thread is already going to send the newest report, so it
        // need not be woken.
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

    /// Sends the report if it is due. Otherwise gives the time at which it will be due.
    pub(super) fn progress_due(&self, now: Instant) -> Option<Instant> {
        self.lock().tell_progress(now)
    }
}

impl State {
    /// Sends the report if it is due. Otherwise gives the time at which it will be due.
    fn tell_progress(&mut self, now: Instant) -> Option<Instant> {
        let (done, of) = self.progress.last.filter(|_| self.progress.untold)?;
        // Without a connection nothing is sent, because the next connection begins with this report.
        let socket = self.socket.clone()?;
        if let Some(due) = self.progress.told_at.map(|told| told + PAUSE).filter(|due| *due > now) {
            return Some(due);
        }
        self.progress.told_at = Some(now);
        let message = Request::Progress { done, of }.encode(0, self.settled());
        match socket::send(&*socket, &message, &[]) {
            Ok(true) => self.progress.untold = false,
            // The socket is full, because the daemon is slow. The report is sent after a pause.
            Ok(false) => return Some(now + PAUSE),
            Err(_) => self.hang_up(),
        }
        None
    }

    /// Sends the last report on a new connection.
    pub(super) fn tell_progress_again(&mut self) {
        self.progress.untold = self.progress.last.is_some();
        self.progress.told_at = None;
        let _ = self.tell_progress(Instant::now());
    }
}
