//! Connecting again after the connection broke.

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_os::Deadline;

use super::Connection;
use crate::handshake::{self, Failure, Welcome};
use crate::{Error, discovery};

/// How long a dead private daemon is waited for before it is started again.
const RESTART_AFTER: Duration = Duration::from_millis(200);

impl Connection {
    /// As the reader: the connection is down, and is to stand again by the deadline.
    pub(super) fn connect_again(&self, deadline: Deadline) {
        let began = Deadline::after(RESTART_AFTER);
        let mut pause = Duration::from_micros(100);
        let mut started = false;
        loop {
            let (over, leaving) = {
                let state = self.lock();
                (state.over.is_some(), state.leaving)
            };
            if over {
                return;
            }
            match handshake::greet(&self.path, &self.who, deadline) {
                Ok(welcome) => return self.resume(welcome),
                Err(Failure::Final(error)) if error.status == Status::TimedOut => {}
                Err(Failure::Final(error)) => {
                    let text = format!("the connection was lost and is not to be had again: {}", error.message);
                    let mut state = self.lock();
                    state.over = Some(Error::new(error.status, text));
                    return;
                }
                // Nobody is there who would want to know.
                Err(Failure::Nobody(error)) if leaving && began.passed() => {
                    self.lock().over = Some(error);
                    return;
                }
                Err(Failure::Nobody(_)) if self.private && !leaving && began.passed() && !started => {
                    started = true;
                    let _ = discovery::start(&self.path, deadline);
                }
                Err(_) => {}
            }
            if deadline.passed() {
                return;
            }
            std::thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    fn resume(&self, welcome: Welcome) {
        let mut state = self.lock();
        if welcome.incarnation != state.incarnation && !self.liveness.replace(&welcome.table).unwrap_or(false) {
            state.over = Some(Error::new(Status::Incompatible, "the restarted daemon has another liveness table"));
            return;
        }
        let socket = Arc::new(welcome.socket);
        if welcome.incarnation != state.incarnation {
            state.give_back(&socket);
        }
        state.incarnation = welcome.incarnation;
        state.socket = Some(socket);
        state.generation += 1;
        state.tell_held();
        state.send_unsent();
    }
}
