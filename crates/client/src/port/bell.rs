//! A descriptor for event loops: an eventfd, and a thread that sleeps at the port in place of the loop.
//!
//! The first `arm` starts the thread. It sleeps on the same words as every waiting member, so peers know nothing of
//! descriptors, and a peer's death makes the descriptor readable as a message does. Programs that never ask for a
//! descriptor have no such thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crossdock_os::event;

use super::Shared;

use crate::{Error, Result};

/// The longest sleep of the thread. It is only a bound: every event wakes the thread.
const STRETCH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Bell {
    eventfd: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    armed: bool,
    dismissed: bool,
}

impl Bell {
    pub fn new() -> Result<Self> {
        let eventfd = event::eventfd().map_err(|error| Error::os(&error))?;
        Ok(Self { eventfd, state: Mutex::default(), changed: Condvar::new() })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    /// Lets the thread signal the next event. The thread looks before it sleeps, so it sees what came since the caller
    /// looked.
    pub fn arm(&self, shared: &Arc<Shared>) -> Result<()> {
        let mut state = self.state();
        state.armed = true;
        if !state.started {
            let watched = shared.clone();
            std::thread::Builder::new()
                .name("crossdock-bell".into())
                .stack_size(64 << 10)
                .spawn(move || watch(&watched))
                .map_err(|error| Error::system("starting the thread behind a port's descriptor", &error))?;
            state.started = true;
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// From now on the thread signals nothing, and a signal that is left over is removed.
    pub fn silence(&self) {
        let mut state = self.state();
        state.armed = false;
        event::clear(&self.eventfd);
    }

    /// The port is closed: the thread ends.
    pub fn dismiss(&self) {
        self.state().dismissed = true;
        self.changed.notify_all();
    }

    fn ring(&self) {
        let mut state = self.state();
        if state.armed {
            state.armed = false;
            event::signal(&self.eventfd);
        }
    }

    /// Waits until a caller arms; `false` when the port is closed.
    fn wait_for_arming(&self) -> bool {
        let idle = |state: &mut State| !state.armed && !state.dismissed;
        let state = self.changed.wait_while(self.state(), idle).unwrap_or_else(std::sync::PoisonError::into_inner);
        !state.dismissed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn watch(shared: &Arc<Shared>) {
    let Some(bell) = shared.bell.get() else { return };
    while bell.wait_for_arming() {
        // It ends at once when the port is closed, because leaving wakes both sides.
        if shared.end.wait_for_event(STRETCH) || shared.end.is_closed() {
            bell.ring();
        }
    }
}
