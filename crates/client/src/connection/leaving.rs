//! Ends the session properly, so that the other members do not take its member for dead.
//!
//! After a member has left, the other members treat everything that it had in shared memory as free. So the session
//! leaves only if it has nothing open that the program may still use. From the moment at which the session begins to
//! leave, no thread of this process can open anything through it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_layout::wire::{Request, SegmentKind};
use crossdock_os::Deadline;

use super::{Connection, State};
use crate::{Error, Result};

/// The longest time that a leaving session tries to tell the daemon that it leaves.
const FAREWELL: Duration = Duration::from_millis(500);
/// The longest time for which a session that is closing waits for other threads' calls that are taking an end of a port
/// or a cooperative item. Such a call checks at least every 50 ms whether the session is closing, and then fails.
const STOPPING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(1);

/// What keeps a session from leaving.
pub(crate) enum StillOpen {
    /// A series that the session publishes or observes, or a version of such a series.
    Series,
    /// This number of items.
    Items(usize),
    /// This number of regions.
    Regions(usize),
    /// A call of another thread that takes an end of a port or a cooperative item.
    Call,
}

/// Shows that a call takes something in shared memory that the daemon does not count: an end of a port, or a
/// cooperative item. As long as the value exists, the session does not leave.
pub(crate) struct Taking<'a>(&'a Connection);

impl Taking<'_> {
    /// Fails if another thread closes the session.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.is_closing() { Err(closed()) } else { Ok(()) }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.taking.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connection {
    /// Begins a call that takes an end of a port or a cooperative item. Fails if the session is closed or being
    /// closed.
    pub(crate) fn begin_taking(&self) -> Result<Taking<'_>> {
        self.check_process()?;
        let state = self.lock();
        state.check_open()?;
        if state.closing > 0 {
            return Err(closed());
        }
        self.taking.fetch_add(1, Ordering::AcqRel);
        Ok(Taking(self))
    }

    /// Tells whether the session is being closed. While it is, no call may take an end of a port or a cooperative
    /// item.
    pub(crate) fn is_closing(&self) -> bool {
        let state = self.lock();
        state.closing > 0 || state.leaving || state.over.is_some()
    }

    /// Closes the ports by calling `close_ports`. Then, if nothing else is open, ends the session as
    /// [`Connection::end`] does.
    pub(crate) fn leave(&self, close_ports: impl FnOnce()) -> std::result::Result<(), StillOpen> {
        self.lock().closing += 1;
        let deadline = Deadline::after(STOPPING);
        let mut taking = true;
        while taking && !deadline.passed() {
            taking = self.taking.load(Ordering::Acquire) > 0;
            if taking {
                std::thread::sleep(PAUSE);
            }
        }
        // A call of another thread may still be about to get an end of a port, so the ports and the session stay open.
        if !taking {
            close_ports();
        }
        let mut state = self.lock();
        state.closing -= 1;
        if let Some(open) = self.still_open(&state).or(taking.then_some(StillOpen::Call)) {
            return Err(open);
        }
        // This thread has held the lock since it checked what is open. So no answer to a request can open anything
        // before the session leaves.
        let first = !std::mem::replace(&mut state.leaving, true);
        drop(state);
        if first {
            self.take_leave();
        }
        Ok(())
    }

    fn still_open(&self, state: &State) -> Option<StillOpen> {
        // A call that takes an item counts the item before it ends. So this count is read first.
        let is_taking = self.taking.load(Ordering::Acquire) > 0;
        if state.open_list.count(SegmentKind::Series) > 0 {
            return Some(StillOpen::Series);
        }
        let items = state.open_list.items() + self.held.load(Ordering::Acquire);
        if items > 0 {
            return Some(StillOpen::Items(items));
        }
        match state.open_list.count(SegmentKind::Region) {
            0 => is_taking.then_some(StillOpen::Call),
            regions => Some(StillOpen::Regions(regions)),
        }
    }

    /// Ends the session properly, and tells the daemon about it if the daemon answers soon. No request is possible
    /// afterwards. If the daemon does not get the message, the member counts as alive until its process ends.
    pub(crate) fn end(&self) {
        if self.is_ours() && !std::mem::replace(&mut self.lock().leaving, true) {
            self.take_leave();
        }
    }

    fn take_leave(&self) {
        if self.lock().over.is_none() {
            let _ = self.ask(Request::Bye, None, None, Deadline::after(FAREWELL));
            self.part();
        }
    }

    /// Ends the connection without a message to the daemon. The daemon then treats the member as dead.
    pub(crate) fn abandon(&self) {
        if self.is_ours() {
            self.liveness.resign();
            self.part();
        }
    }

    fn part(&self) {
        let mut state = self.lock();
        state.over = Some(closed());
        state.socket = None;
        state.room.clear();
        self.wake_others(&state);
        drop(state);
        self.watch_no_more();
    }
}

impl State {
    /// Fails if the session is over or leaving.
    pub(super) fn check_open(&self) -> Result<()> {
        match &self.over {
            Some(error) => Err(error.clone()),
            None if self.leaving => Err(closed()),
            None => Ok(()),
        }
    }
}

fn closed() -> Error {
    Error::new(Status::Closed, "this session was closed; connect anew")
}
