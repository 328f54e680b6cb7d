//! Restores a connection that broke.

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_os::Deadline;

use super::{Connection, ReaderTurn};
use crate::handshake::{self, HelloFailure, Welcome};
use crate::{Error, discovery};

/// If a private daemon (one that this library started) is gone for longer than this, the process starts it again.
const RESTART_AFTER: Duration = Duration::from_millis(200);

/// The result of one attempt to connect.
pub(super) enum ConnectAttempt {
    /// There is a connection, or the session is over.
    Done,
    /// Another attempt is needed. The flag is true if no daemon listens on the socket.
    NotYet(bool),
}

impl Connection {
    /// Tries to restore the broken connection until the deadline. Only the reader calls this.
    pub(super) fn connect_again(&self, deadline: Deadline) {
        let began = Deadline::after(RESTART_AFTER);
        let mut pause = Duration::from_micros(100);
        let mut started = false;
        loop {
            let unheard = match self.try_once(deadline) {
                ConnectAttempt::Done => return,
                ConnectAttempt::NotYet(unheard) => unheard && began.passed(),
            };
            if unheard {
                let mut state = self.lock();
                if state.leaving {
                    // This session is leaving, and there is no daemon that it could tell. So the session is over.
                    state.over = Some(self.unreachable());
                    return;
                }
                drop(state);
                if self.private && !started {
                    started = true;
                    let _ = discovery::start(&self.path, deadline);
                }
            }
            if deadline.passed() {
                return;
            }
            std::thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Tries once to connect again. Does nothing while another thread tries this, or reads.
    pub(super) fn try_again(&self, deadline: Deadline) -> ConnectAttempt {
        {
            let mut state = self.lock();
            if state.socket.is_some() || state.over.is_some() || state.leaving {
                return ConnectAttempt::Done;
            }
            if state.reading {
                return ConnectAttempt::NotYet(false);
            }
            state.reading = true;
        }
        let _passed_on = ReaderTurn(self);
        self.try_once(deadline)
    }

    fn try_once(&self, deadline: Deadline) -> ConnectAttempt {
        {
            let state = self.lock();
            if state.over.is_some() || state.socket.is_some() {
                return ConnectAttempt::Done;
            }
        }
        let failure = match handshake::greet(&self.path, &self.who, deadline) {
            Ok(welcome) => return self.resume(welcome),
            Err(failure) => failure,
        };
        let mut state = self.lock();
        match failure {
            HelloFailure::Final(error) if error.status != Status::TimedOut => {
                state.over = Some(error.during("the connection was lost and cannot be made again"));
                ConnectAttempt::Done
            }
            HelloFailure::NoRoom(error) => {
                state.trouble = Some(error);
                ConnectAttempt::NotYet(false)
            }
            other => {
                state.trouble = None;
                ConnectAttempt::NotYet(matches!(other, HelloFailure::NotListening(_)))
            }
        }
    }

    fn resume(&self, welcome: Welcome) -> ConnectAttempt {
        let mut state = self.lock();
        debug_assert_eq!(welcome.member, self.who.member, "a daemon that knows the token knows whose it is");
        let Welcome { socket, descriptors, incarnation, .. } = welcome;
        let another = incarnation != state.incarnation;
        // If the daemon has a new liveness table, the new table replaces the old one here. This member's lock on the
        // roll stays the same for all connections of the session.
        let replaced =
            if another || !self.liveness.sees_own_lock() { self.liveness.replace(descriptors) } else { Ok(true) };
        match replaced {
            Ok(true) => {}
            Ok(false) => {
                state.over = Some(Error::new(Status::Incompatible, "the restarted daemon has another liveness table"));
                return ConnectAttempt::Done;
            }
            Err(error) => {
                state.trouble = Some(Error::new(Status::NoSpace, error.to_string()));
                return ConnectAttempt::NotYet(false);
            }
        }
        let socket = Arc::new(socket);
        if another {
            state.give_back(&socket);
        }
        state.trouble = None;
        state.incarnation = incarnation;
        state.socket = Some(socket);
        state.generation += 1;
        state.tell_open();
        state.tell_progress_again();
        state.send_unsent();
        ConnectAttempt::Done
    }
}
