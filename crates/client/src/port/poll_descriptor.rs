//! A port's descriptor for event loops: a bell, and a thread that waits at the port in place of the event loop.
//!
//! The first `arm` starts the thread. The thread sleeps on the same counters in shared memory as every waiting member,
//! so it makes no difference to the peers whether a member uses a descriptor. A peer's death makes the descriptor
//! readable, as a message does. Programs that never ask for a descriptor have no such thread. If the
//! program has closed the descriptor and its number belongs to another file, that file is left alone.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crossdock_core::liveness::LOOK;
use crossdock_os::bell::Bell;

use super::Shared;

use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct PollDescriptor {
    bell: Bell,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    armed: bool,
    dismissed: bool,
}

impl PollDescriptor {
    pub fn new() -> Result<Self> {
        let bell = Bell::new().map_err(|error| Error::os(&error))?;
        Ok(Self { bell, state: Mutex::default(), changed: Condvar::new() })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Lets the thread signal the next event. The thread checks the port before it sleeps, so it does not miss an event
    /// that came after the caller's check.
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

    /// Stops the thread from signalling, and clears a signal that has not been read.
    pub fn silence(&self) {
        let mut state = self.state();
        state.armed = false;
        // If the program has closed the bell, it waits for nothing that could be silenced.
        let _ = self.bell.silence();
    }

    /// Tells the thread that the port is closed, so that it ends.
    pub fn dismiss(&self) {
        self.state().dismissed = true;
        self.changed.notify_all();
    }

    fn ring(&self) {
        let mut state = self.state();
        if state.armed {
            state.armed = false;
            self.bell.ring();
        }
    }

    /// Waits until a caller arms the descriptor. Gives `false` when the port is closed.
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
    let Some(poll_descriptor) = shared.poll_descriptor.get() else { return };
    while poll_descriptor.wait_for_arming() {
        // A message or a credit ends this wait at once. When the port is closed, the wait ends at once, too, because
        // leaving wakes both sides. A death does not always wake this thread, so the thread checks after each pause of
        // `LOOK` whether a peer has died.
        if shared.end.wait_for_event(LOOK) || shared.end.is_closed() {
            poll_descriptor.ring();
        }
    }
}
