//! Restores a connection that broke.

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_layout::wire::{Answer, MAX_MESSAGE};
use crossdock_os::socket::{self, OwnSocket, Received};
use crossdock_os::{Deadline, event};

use super::{Connection, ReaderTurn, State};
use crate::handshake::{self, HelloFailure, Welcome};
use crate::{Error, discovery, interrupt};

/// If no daemon has listened on the socket of a private daemon (a daemon that this library started) for this long, the
/// process starts the private daemon again.
const RESTART_AFTER: Duration = Duration::from_millis(200);

/// The pause before the next attempt to start the private daemon, after the first attempt. Each further pause is twice
/// as long as the one before, up to `LONGEST_START_PAUSE`. A call may wait for hours, so one failed attempt must not be
/// the last one.
const START_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_START_PAUSE: Duration = Duration::from_secs(10);

/// The longest time of one attempt to connect, and of one attempt to start the private daemon. A call may wait for hours,
/// and a daemon that is stuck must not keep the call from the next attempt.
const ATTEMPT: Duration = Duration::from_secs(15);

/// The largest number of unanswered requests that offer lost descriptors to the daemon. There is a limit because the
/// daemon hangs up if its answers do not fit into the socket.
const UNANSWERED: usize = 64;
/// The longest wait for the daemon's answers to the requests that offer it lost descriptors.
const MOMENT: Duration = Duration::from_millis(500);

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
        let mut start_due = Deadline::after(RESTART_AFTER);
        let mut start_pause = START_PAUSE;
        let mut pause = Duration::from_micros(100);
        loop {
            let unheard = match self.try_once(deadline.at_most(ATTEMPT)) {
                ConnectAttempt::Done => return,
                ConnectAttempt::NotYet(unheard) => unheard && start_due.passed(),
            };
            if unheard {
                let mut state = self.lock();
                if state.leaving {
                    // This session is leaving, and there is no daemon that it could tell. So the session is over.
                    state.over = Some(self.unreachable());
                    return;
                }
                drop(state);
                if self.private {
                    let _ = discovery::start(&self.path, deadline.at_most(ATTEMPT));
                    start_due = Deadline::after(start_pause);
                    start_pause = (start_pause * 2).min(LONGEST_START_PAUSE);
                }
            }
            if deadline.passed() || interrupt::is_interrupted() {
                return;
            }
            std::thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Tries once to connect again. Does nothing if another thread is connecting already, or is reading.
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
            Ok(welcome) => return self.resume(welcome, deadline),
            Err(failure) => failure,
        };
        let mut state = self.lock();
        match failure {
            HelloFailure::Final(error) if error.status != Status::TimedOut => {
                state.over = Some(error.during("the connection was lost and cannot be made again"));
                ConnectAttempt::Done
            }
            HelloFailure::NoRoom(error) | HelloFailure::Foreign(error) => {
                state.trouble = Some(error);
                ConnectAttempt::NotYet(false)
            }
            other => {
                state.trouble = None;
                ConnectAttempt::NotYet(matches!(other, HelloFailure::NotListening(_)))
            }
        }
    }

    fn resume(&self, welcome: Welcome, deadline: Deadline) -> ConnectAttempt {
        let mut state = self.lock();
        if welcome.member != self.who.member {
            // A daemon knows which member has the token, so this is no daemon. Under another member id, the other members
            // would take what this session has in shared memory for free.
            let text = format!("what listens at {} gave this session another member id", self.path.display());
            state.over = Some(Error::new(Status::Incompatible, text));
            return ConnectAttempt::Done;
        }
        let Welcome { socket, descriptors, incarnation, .. } = welcome;
        let another = incarnation != state.incarnation;
        // If the daemon has a new liveness table, the new table replaces the old table in this process. This member's
        // lock on the roll stays the same for all connections of the session.
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
        state.trouble = None;
        let unanswered = std::mem::take(&mut state.offered);
        let refused = std::mem::take(&mut state.refused);
        state.not_given_back.extend(unanswered.into_values().chain(refused));
        if another {
            state.not_given_back = state.open_list.offers().into();
            state.incarnation = incarnation;
        }
        let socket = Arc::new(OwnSocket::new(socket));
        while state.offer_some(&socket) {
            drop(state);
            if !self.is_answered(&socket, deadline.at_most(MOMENT)) {
                return ConnectAttempt::NotYet(false);
            }
            state = self.lock();
        }
        if state.over.is_some() {
            return ConnectAttempt::Done;
        }
        state.socket = Some(socket.clone());
        state.generation += 1;
        // The program may have closed the descriptors that keep places reserved.
        state.room.retain(OwnSocket::is_ours);
        state.fit_room();
        // The answers to the given-up requests were lost with the former connection. Only the requests that must be
        // sent again are kept.
        state.given_up.retain(|pending| pending.lasts);
        state.held_back = Deadline::after(MOMENT);
        // Messages that were not sent on the former connection are dropped; the list of everything that is open
        // replaces them.
        state.untold.clear();
        state.tell_open();
        state.tell_progress_again();
        state.send_unsent();
        let generation = state.generation;
        drop(state);
        self.await_offered(&socket, generation, deadline.at_most(MOMENT));
        ConnectAttempt::Done
    }

    /// Waits until the daemon has answered two kinds of requests: those by which this session offers the daemon the
    /// descriptors that the daemon has lost, and those in `given_up`, which were sent again although no thread waits
    /// for their answers. This thread reads the answers itself, because perhaps no other thread reads from the
    /// connection for a long time. A request that is never answered is sent again on the next connection.
    fn await_offered(&self, socket: &OwnSocket, generation: u64, deadline: Deadline) {
        let waits = || {
            let state = self.lock();
            let unanswered = !state.offered.is_empty() || !state.given_up.is_empty();
            state.generation == generation && state.socket.is_some() && unanswered
        };
        while waits() && !deadline.passed() {
            self.read_message(socket, generation, deadline);
        }
    }

    /// Sends again the requests in `refused`, which the daemon refused because it had no free descriptor, and waits a
    /// moment for the answers. Does nothing while another thread reads. Returns whether refused requests are left.
    pub(super) fn offer_again(&self) -> bool {
        let mut state = self.lock();
        if state.refused.is_empty() {
            return false;
        }
        let Some(socket) = state.socket.clone().filter(|_| !state.reading) else { return true };
        state.reading = true;
        let refused = std::mem::take(&mut state.refused);
        state.not_given_back.extend(refused);
        state.offer_some(&socket);
        let unsent = std::mem::take(&mut state.not_given_back);
        state.refused.extend(unsent);
        let generation = state.generation;
        drop(state);
        let passed_on = ReaderTurn(self);
        self.await_offered(&socket, generation, Deadline::after(MOMENT));
        drop(passed_on);
        !self.lock().refused.is_empty()
    }

    /// Waits for the answer to one of the requests in `offered`, on a connection that no other thread uses yet. Tells
    /// whether an answer came before the deadline. An error counts as an answer, too: another member may have offered
    /// the same descriptor first.
    fn is_answered(&self, socket: &OwnSocket, deadline: Deadline) -> bool {
        let mut buffer = [0; MAX_MESSAGE + 1];
        loop {
            match socket::receive(socket, &mut buffer) {
                Ok(Some(Received::Message(length, fds))) => {
                    let answer = Answer::decode(&buffer[..length], fds.len());
                    return answer.is_ok_and(|(number, answer)| self.lock().take_answer_to_offer(number, &answer));
                }
                Ok(None) if !deadline.passed() => drop(event::wait_readable_or_pause(socket, deadline)),
                _ => return false,
            }
        }
    }
}

impl State {
    /// If the answer with this number is to a request of `offered`, notes that this request is answered, and returns
    /// true. If the daemon refused the request because it had no free descriptor, the request is sent again later.
    pub(super) fn take_answer_to_offer(&mut self, number: u64, answer: &Answer) -> bool {
        let Some(offer) = self.offered.remove(&number) else { return false };
        if matches!(answer, Answer::Failed { status: Status::NoSpace, .. }) {
            self.refused.push(offer);
        }
        true
    }

    /// Sends requests of `not_given_back`. Returns whether requests are left; these must wait until the daemon has
    /// answered some of those that were sent.
    fn offer_some(&mut self, socket: &OwnSocket) -> bool {
        while self.offered.len() < UNANSWERED {
            let Some(offer) = self.not_given_back.pop_front() else { return false };
            // If this process has closed the object meanwhile, it has no descriptor to offer.
            let Some(descriptor) = self.open_list.descriptor_of(&offer) else { continue };
            if !matches!(socket::send(socket, &offer.encode(self.next, 0), &[descriptor]), Ok(true)) {
                self.not_given_back.push_front(offer);
                return true;
            }
            self.offered.insert(self.next, offer);
            self.next += 1;
        }
        !self.not_given_back.is_empty()
    }
}
