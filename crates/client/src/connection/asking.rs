//! Sending requests and reading the answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_layout::wire::{Answer, Header, ItemRequest, MAX_MESSAGE, Request};
use crossdock_os::socket::{self, Received};
use crossdock_os::{Deadline, event};

use super::{Connection, State, room};
use crate::handshake::no_descriptor;
use crate::{Error, Reason, Result};

/// An answer, and the descriptor that came with it.
pub(crate) type Answered = (Answer, Option<OwnedFd>);

/// An answer, and all descriptors that came with it.
type AnsweredWith = (Answer, Vec<OwnedFd>);

/// A request without an answer, or whose answer was not fetched yet.
pub(super) struct Pending {
    request: Request,
    descriptors: Vec<Arc<OwnedFd>>,
    /// The time at which the daemon's wait ends. The remaining time goes into the message each time it is sent.
    wait: Option<Deadline>,
    /// The number of the connection that the request was sent on; 0 if none yet.
    sent_on: u64,
    answer: Option<AnsweredWith>,
    /// The number of descriptors that the answer may bring, and one to keep.
    wants: usize,
}

impl Pending {
    /// The number of descriptors that are still expected.
    pub(super) fn room(&self) -> usize {
        if self.answer.is_none() { self.wants } else { 0 }
    }
}

impl Connection {
    /// Sends a request and waits for the answer until the deadline. `wait` is how long the daemon itself may wait.
    pub(crate) fn ask(
        &self,
        request: Request,
        descriptor: Option<Arc<OwnedFd>>,
        wait: Option<Duration>,
        deadline: Deadline,
    ) -> Result<Answered> {
        let (answer, descriptors) = self.ask_with(request, descriptor.into_iter().collect(), wait, deadline)?;
        Ok((answer, descriptors.into_iter().next()))
    }

    /// As `ask`, with any number of descriptors in both directions.
    pub(crate) fn ask_with(
        &self,
        request: Request,
        descriptors: Vec<Arc<OwnedFd>>,
        wait: Option<Duration>,
        deadline: Deadline,
    ) -> Result<AnsweredWith> {
        self.check_process()?;
        let wants = room::wanted(&request);
        let mut state = self.lock();
        state.make_room(wants)?;
        let number = state.next;
        state.next += 1;
        let pending =
            Pending { request, descriptors, wait: wait.map(Deadline::after), sent_on: 0, answer: None, wants };
        state.pending.insert(number, pending);
        loop {
            if let Some(error) = state.over.clone() {
                state.pending.remove(&number);
                return Err(error);
            }
            if state.pending.get(&number).is_some_and(|p| p.answer.is_some()) {
                let answer = state.pending.remove(&number).and_then(|p| p.answer);
                state.fit_room();
                drop(state);
                if wants > 0 {
                    self.watch();
                }
                return answer.map_or_else(|| Err(self.silent()), failures);
            }
            if deadline.passed() {
                let unsent = state.socket.is_none();
                let trouble = state.trouble.clone();
                state.pending.remove(&number);
                state.fit_room();
                return Err(if unsent { trouble.unwrap_or_else(|| self.unreachable()) } else { self.silent() });
            }
            state.send_unsent();
            if state.reading {
                let left = deadline.left().min(Duration::from_millis(100));
                state.asleep += 1;
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                state.asleep -= 1;
                continue;
            }
            state.reading = true;
            drop(state);
            // Whatever happens here, another thread must be able to read afterwards.
            let passed_on = PassOn(self);
            self.read_some(deadline);
            drop(passed_on);
            state = self.lock();
        }
    }

    /// For the reader: waits for one message, or for none to come, and hands it out.
    fn read_some(&self, deadline: Deadline) {
        let (socket, generation) = {
            let state = self.lock();
            (state.socket.clone(), state.generation)
        };
        let Some(socket) = socket else { return self.connect_again(deadline) };
        // The slice is short, because another thread's request may have found the socket full.
        let slice = deadline.at_most(Duration::from_millis(100));
        let mut buffer = [0; MAX_MESSAGE + 1];
        // A request nearly always has to wait. Looking for its answer first would be a needless system call.
        if !event::wait_readable(&*socket, slice).unwrap_or(true) {
            return;
        }
        // The places that were kept free for this are needed now.
        self.lock().room.clear();
        let received = socket::receive(&*socket, &mut buffer);
        let mut state = self.lock();
        match received {
            Ok(None) => {}
            // Another thread took the free descriptors. The message itself has arrived, so only its request fails.
            Ok(Some(Received::Stripped(length))) => self.hand_out_stripped(&mut state, &buffer[..length]),
            Ok(Some(Received::Message(length, fds))) => match Answer::decode(&buffer[..length], fds.len()) {
                Ok((number, answer)) => self.hand_out(&mut state, number, answer, fds),
                Err(_) if state.generation == generation => state.hang_up(),
                Err(_) => {}
            },
            // This is the end, or a message that no daemon sends. In both cases the connection is of no more use.
            _ if state.generation == generation => state.hang_up(),
            _ => {}
        }
        state.fit_room();
    }

    /// The descriptors of an answer were lost. What the answer gave is given back, and the asking thread gets an error.
    fn hand_out_stripped(&self, state: &mut State, message: &[u8]) {
        let decoded = Header::decode(message).and_then(|(h, _)| Answer::decode(message, usize::from(h.descriptors)));
        let Ok((number, answer)) = decoded else {
            state.hang_up();
            return;
        };
        state.held.take(&answer, None);
        let pending = state.pending.get_mut(&number).filter(|pending| pending.answer.is_none());
        // An item that was open before stays open; its owner asks for it again.
        let stays = pending.as_ref().is_some_and(|pending| keeps_item(&pending.request, &answer));
        if let Some(pending) = pending {
            let error = no_descriptor();
            let failed = Answer::Failed { status: error.status, text: error.to_string() };
            pending.answer = Some((failed, Vec::new()));
        }
        if !stays {
            state.refuse(&answer);
        }
        self.wake_others(state);
    }

    fn hand_out(&self, state: &mut State, number: u64, answer: Answer, descriptors: Vec<OwnedFd>) {
        state.held.take(&answer, descriptors.last());
        match state.pending.get_mut(&number) {
            Some(pending) if pending.answer.is_none() => pending.answer = Some((answer, descriptors)),
            // The asking thread gave up, so what came too late is given back.
            _ => state.refuse(&answer),
        }
        self.wake_others(state);
    }

    pub(super) fn unreachable(&self) -> Error {
        let text = format!(
            "the node daemon at {} cannot be reached; what is mapped goes on, new requests have to wait for it",
            self.path.display()
        );
        Error::new(Status::Disconnected, text)
    }

    fn silent(&self) -> Error {
        Error::new(Status::TimedOut, format!("the node daemon at {} did not answer in time", self.path.display()))
    }
}

impl State {
    /// Sends a message that has no answer, if there is a connection.
    pub(super) fn tell(&mut self, request: &Request) {
        self.tell_as(0, request);
    }

    /// Sends a request without waiting for the answer.
    pub(super) fn tell_to_do(&mut self, request: &Request) {
        let number = self.next;
        self.next += 1;
        self.tell_as(number, request);
    }

    fn tell_as(&mut self, number: u64, request: &Request) {
        let Some(socket) = self.socket.clone() else { return };
        let message = request.encode(number, self.settled());
        if !matches!(socket::send(&*socket, &message, &[]), Ok(true)) {
            // The message follows from the list of what is open, which the next connection sends again.
            self.hang_up();
        }
    }

    /// Gives this connection up. The thread that watches its end notices that and connects again.
    pub(super) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket::shut_down(&*socket);
        }
    }

    /// Sends all requests that were not sent on the present connection.
    pub(super) fn send_unsent(&mut self) {
        let Some(socket) = self.socket.clone() else { return };
        let (generation, settled) = (self.generation, self.settled());
        for (number, pending) in &mut self.pending {
            if pending.sent_on == generation || pending.answer.is_some() {
                continue;
            }
            if let (Some(until), Some(wait_ms)) = (pending.wait, wait_of(&mut pending.request)) {
                *wait_ms = until.left_ms().unsigned_abs().into();
            }
            let message = pending.request.encode(*number, settled);
            let descriptors: Vec<BorrowedFd<'_>> = pending.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match socket::send(&*socket, &message, &descriptors) {
                Ok(true) => pending.sent_on = generation,
                // The daemon is slow. The next attempt follows after the next answer, or in a moment.
                Ok(false) => return,
                Err(_) => {
                    self.hang_up();
                    return;
                }
            }
        }
    }

    /// All requests below this number have been answered or given up.
    pub(super) fn settled(&self) -> u64 {
        self.pending.first_key_value().map_or(self.next, |(number, _)| *number)
    }
}

/// Did this process have the item of this answer open before it asked for it?
fn keeps_item(request: &Request, answer: &Answer) -> bool {
    let of_open = matches!(
        request,
        Request::Item(ItemRequest::Resize { .. } | ItemRequest::Unshare { .. } | ItemRequest::Reopen { .. })
    );
    of_open && matches!(answer, Answer::Item(given) if given.writable)
}

/// How long the daemon may wait before it answers this request.
fn wait_of(request: &mut Request) -> Option<&mut u64> {
    match request {
        Request::Open { wait_ms, .. }
        | Request::Observe { wait_ms, .. }
        | Request::Item(ItemRequest::Access { wait_ms, .. } | ItemRequest::Unshare { wait_ms, .. }) => Some(wait_ms),
        _ => None,
    }
}

/// Lets another thread read.
pub(super) struct PassOn<'a>(pub(super) &'a Connection);

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reading = false;
        self.0.wake_others(&state);
    }
}

fn failures((answer, descriptors): AnsweredWith) -> Result<AnsweredWith> {
    match answer {
        Answer::Failed { status, text } => Err(Error::because(status, Reason::Daemon(text))),
        answer => Ok((answer, descriptors)),
    }
}
