//! Sends requests and reads the answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;
use std::time::Duration;

use crossdock_layout::wire::{Answer, Header, ItemRequest, MAX_MESSAGE, OpenMode, Request};
use crossdock_layout::{SegmentId, Status};
use crossdock_os::socket::{self, OwnSocket, Received};
use crossdock_os::{Deadline, OwnFile, event};

use super::open_list::is_owned;
use super::{Connection, State, room};
use crate::handshake::no_descriptor;
use crate::{Error, Reason, Result, interrupt};

/// While a call waits for an answer that the daemon may be preparing, the call asks after each pause of this length
/// whether the daemon still answers.
const PAUSE: Duration = Duration::from_millis(100);

/// While some messages are unsent because the socket was full, a thread that waits for an answer tries after each pause
/// of this length to send them.
const ROOM: Duration = Duration::from_millis(1);

/// An answer, and the descriptor that came with it.
pub(crate) type Answered = (Answer, Option<OwnFile>);

/// An answer, and all descriptors that came with it.
type AnsweredWith = (Answer, Vec<OwnFile>);

/// A request whose answer has not arrived yet, or has not yet been taken by the thread that sent the request.
pub(super) struct Pending {
    request: Request,
    descriptors: Vec<OwnFile>,
    /// The time until which the daemon may wait before it answers. Each time that this process sends the request, it
    /// puts the time that is left into the request.
    wait: Option<Deadline>,
    /// The number of the connection on which the request was sent; 0 if it was not sent yet.
    pub(super) sent_on: u64,
    answer: Option<AnsweredWith>,
    /// True if the request must be sent again on the next connection even if no thread waits for its answer. A request
    /// that makes something is sent again, because its answer tells the session what to remove. A request by which the
    /// session itself removes something by its id is sent again, too. If a program's own call to remove something has
    /// failed, its request is never sent again.
    pub(super) lasts: bool,
    /// For a request to transfer or destroy an item: the number of the request that opened the item.
    opening: Option<u64>,
    /// The number of places to reserve in the descriptor table, for the descriptors that the answer may bring.
    wants: usize,
    /// True if the descriptors of the first answer were lost, and the request was sent again.
    asked_again: bool,
}

impl Pending {
    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Tells whether the answer has arrived.
    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// The item that the success of this request ends for this member, and the number of the request that opened the
    /// item.
    pub(super) fn ends(&self) -> Option<(SegmentId, u64)> {
        ended_by(&self.request).zip(self.opening)
    }

    /// The number of descriptors that this request still expects.
    pub(super) fn room(&self) -> usize {
        if self.answer.is_none() { self.wants } else { 0 }
    }

    /// Tells whether this request can be sent a second time if this process could not keep the descriptors of the answer.
    /// That is so if a task asks for an item of its own: no other task can get the item meanwhile, so the daemon gives
    /// the same answer again.
    pub(super) fn may_ask_again(&self) -> bool {
        !self.asked_again && matches!(self.request, Request::Item(ItemRequest::Access { read: false, .. }))
    }

    /// Tells whether this request makes an object that stays until it is removed.
    pub(super) fn makes_something(&self) -> bool {
        match &self.request {
            Request::Open { mode, .. } => *mode != OpenMode::OpenOnly,
            Request::Publish { .. } | Request::MakeWorkflow { .. } | Request::Item(ItemRequest::Create { .. }) => true,
            _ => false,
        }
    }
}

impl Connection {
    /// Sends a request and waits for the answer until the deadline. `wait` is how long the daemon itself may wait.
    pub(crate) fn ask(
        &self,
        request: Request,
        descriptor: Option<OwnFile>,
        wait: Option<Duration>,
        deadline: Deadline,
    ) -> Result<Answered> {
        let (answer, descriptors) = self.ask_with(request, descriptor.into_iter().collect(), wait, deadline)?;
        Ok((answer, descriptors.into_iter().next()))
    }

    /// Works like `ask`, with any number of descriptors in both directions.
    pub(crate) fn ask_with(
        &self,
        request: Request,
        descriptors: Vec<OwnFile>,
        wait: Option<Duration>,
        deadline: Deadline,
    ) -> Result<AnsweredWith> {
        let number = self.begin(request, descriptors, wait)?;
        self.await_answer(number, deadline).unwrap_or_else(|| self.give_up(number))
    }

    /// Works like `ask`, for a request whose answer the daemon may have to prepare, for example by a copy. The call
    /// waits at most until the deadline `prepared`. From the time `wait` on, the call regularly asks the daemon a
    /// second question, to learn whether the daemon still runs. If the daemon does not answer this question within the
    /// time `alive`, the call fails.
    pub(crate) fn ask_to_prepare(
        &self,
        request: Request,
        wait: Duration,
        alive: Duration,
        prepared: Deadline,
    ) -> Result<Answered> {
        let number = self.begin(request, Vec::new(), Some(wait).filter(|wait| !wait.is_zero()))?;
        let mut pause = wait.saturating_add(PAUSE);
        let (answer, descriptors) = loop {
            if let Some(answered) = self.await_answer(number, prepared.at_most(pause)) {
                break answered?;
            }
            if prepared.passed() || interrupt::is_interrupted() || !self.is_heard(prepared.at_most(alive)) {
                break self.give_up(number)?;
            }
            pause = PAUSE;
        };
        Ok((answer, descriptors.into_iter().next()))
    }

    /// Tells whether the daemon still answers requests: sends it a simple request, and waits for the answer until the
    /// deadline.
    fn is_heard(&self, deadline: Deadline) -> bool {
        let question = Request::Describe { member: self.who.member };
        let Ok(number) = self.begin(question, Vec::new(), None) else { return false };
        self.await_answer(number, deadline).is_some() || self.give_up(number).is_ok()
    }

    /// Adds a request to those that wait for an answer. Returns its number.
    fn begin(&self, request: Request, descriptors: Vec<OwnFile>, wait: Option<Duration>) -> Result<u64> {
        self.check_process()?;
        let wants = room::wanted(&request);
        let mut state = self.lock();
        state.make_room(wants)?;
        let number = state.next;
        state.next += 1;
        let opening = ended_by(&request).and_then(|item| state.open_list.opening_of(item));
        let pending = Pending {
            request,
            descriptors,
            wait: wait.map(Deadline::after),
            sent_on: 0,
            answer: None,
            lasts: false,
            opening,
            wants,
            asked_again: false,
        };
        state.pending.insert(number, pending);
        Ok(number)
    }

    /// Waits for the answer to a request. Returns `None` if the answer has not arrived at the deadline, or if the call
    /// was interrupted. In both cases the request stays among the pending requests, so its answer can still arrive.
    fn await_answer(&self, number: u64, deadline: Deadline) -> Option<Result<AnsweredWith>> {
        let mut state = self.lock();
        let mut has_waited = false;
        loop {
            if let Some(error) = state.refusal(number) {
                state.pending.remove(number);
                return Some(Err(error));
            }
            if state.pending.get(number).is_some_and(|p| p.answer.is_some()) {
                let pending = state.pending.remove(number)?;
                state.fit_room();
                return pending.answer.map(failures);
            }
            if deadline.passed() {
                return None;
            }
            if std::mem::take(&mut has_waited) && interrupt::is_checked() {
                drop(state);
                if interrupt::is_interrupted() {
                    return None;
                }
                state = self.lock();
                continue;
            }
            has_waited = true;
            state.send_unsent();
            if !self.is_watched() && state.pending.get(number).is_some_and(|pending| pending.request.may_give()) {
                // The thread starts while the daemon serves the request. Then this thread looks for the answer.
                drop(state);
                self.watch();
                state = self.lock();
            }
            if state.reading {
                let left = deadline.left().min(Duration::from_millis(100));
                state.asleep += 1;
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                state.asleep -= 1;
                continue;
            }
            state.reading = true;
            drop(state);
            // When this value is dropped at the end of the call, another thread can become the reader of the
            // connection.
            let passed_on = ReaderTurn(self);
            self.read_some(deadline);
            drop(passed_on);
            state = self.lock();
        }
    }

    /// Gives up a request that has no answer in time. If the answer has arrived in the meantime, returns the answer.
    fn give_up(&self, number: u64) -> Result<AnsweredWith> {
        let mut state = self.lock();
        if state.pending.get(number).is_some_and(|pending| pending.answer.is_some()) {
            drop(state);
            return self.await_answer(number, Deadline::after(Duration::ZERO)).unwrap_or_else(|| Err(self.silent()));
        }
        let unsent = state.socket.is_none();
        let trouble = state.trouble.clone();
        state.give_up(number);
        state.fit_room();
        Err(if unsent { trouble.unwrap_or_else(|| self.unreachable()) } else { self.silent() })
    }

    /// Waits for one message and hands it to the thread that asked. Only the reader calls this.
    fn read_some(&self, deadline: Deadline) {
        let (socket, generation, untold) = {
            let state = self.lock();
            (state.socket.clone(), state.generation, !state.untold.is_empty())
        };
        let Some(socket) = socket else { return self.connect_again(deadline) };
        // If messages did not fit into the full socket, the wait is short, so that the thread can soon try to send
        // them.
        let slice = deadline.at_most(if untold { ROOM } else { Duration::from_millis(100) });
        self.read_message(&socket, generation, slice);
    }

    /// Waits for one message of this connection and hands it to the thread that asked. Only the reader calls this.
    pub(super) fn read_message(&self, socket: &OwnSocket, generation: u64, slice: Deadline) {
        let mut buffer = [0; MAX_MESSAGE + 1];
        // The answer has rarely arrived at this point. So the thread waits first; an immediate read would usually find
        // nothing and waste a system call.
        if !event::wait_readable_or_pause(socket, slice) {
            return;
        }
        self.lock().make_way();
        let received = socket::receive(socket, &mut buffer);
        let mut state = self.lock();
        match received {
            Ok(None) => {}
            // Another thread of this process has used the free descriptors, so the kernel dropped the message's
            // descriptors. The message itself has arrived, so only the request that it answers fails.
            Ok(Some(Received::Stripped(length))) => self.hand_out_stripped(&mut state, &buffer[..length]),
            Ok(Some(Received::Message(length, fds))) => match Answer::decode(&buffer[..length], fds.len()) {
                Ok((number, answer)) => self.hand_out(&mut state, number, answer, fds),
                Err(_) if state.generation == generation => state.hang_up(),
                Err(_) => {}
            },
            // Either the connection has ended, or the message is not valid. In both cases the connection is useless.
            _ if state.generation == generation => state.hang_up(),
            _ => {}
        }
        state.fit_room();
    }

    /// Handles an answer whose descriptors were lost.
    fn hand_out_stripped(&self, state: &mut State, message: &[u8]) {
        let decoded = Header::decode(message).and_then(|(h, _)| Answer::decode(message, usize::from(h.descriptors)));
        let Ok((number, answer)) = decoded else {
            state.hang_up();
            return;
        };
        state.hand_out_without_descriptors(number, &answer);
        self.wake_others(state);
    }

    fn hand_out(&self, state: &mut State, number: u64, answer: Answer, descriptors: Vec<OwnedFd>) {
        if state.take_answer_to_offer(number, &answer) && !state.refused.is_empty() {
            self.wake_watcher();
        }
        state.forget_endpoints(number, &answer);
        state.forget_item(number, &answer);
        match state.pending.get_mut(number) {
            Some(pending) if pending.answer.is_none() => {
                let own = if is_closed_soon(&answer) { OwnFile::short_lived } else { OwnFile::from };
                let descriptors: Vec<_> = descriptors.into_iter().map(own).collect();
                let opened_by = (!keeps_item(&pending.request, &answer)).then_some(number);
                state.open_list.take(opened_by, &answer, descriptors.last());
                state.open_list.take_made(&pending.request, &pending.descriptors, &answer);
                pending.answer = Some((answer, descriptors));
            }
            _ => state.handle_late(number, &answer),
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
    /// Sends a message now, or as soon as the socket has room. The message has no answer. Does nothing if there is no
    /// connection: the next connection begins with the list of everything that is open, which replaces this message.
    pub(super) fn tell(&mut self, request: Request) {
        self.tell_as(0, request);
    }

    /// Sends a request now, or as soon as the socket has room. No thread waits for its answer. If the connection is
    /// lost before the answer, a request that removes something by its id is sent again on the next connection.
    pub(super) fn tell_to_do(&mut self, request: Request) {
        let number = self.next;
        self.next += 1;
        let sent_on = if self.socket.is_some() { self.generation } else { 0 };
        let lasts = matches!(request, Request::Unpublish { .. } | Request::Item(ItemRequest::Destroy { .. }));
        let pending = Pending {
            request: request.clone(),
            descriptors: Vec::new(),
            wait: None,
            sent_on,
            answer: None,
            lasts,
            opening: None,
            wants: 0,
            asked_again: false,
        };
        self.given_up.insert(number, pending);
        self.tell_as(number, request);
    }

    fn tell_as(&mut self, number: u64, request: Request) {
        if self.socket.is_some() {
            self.untold.push_back((number, request));
            self.send_untold();
        }
    }

    /// Sends the messages of `untold` until the socket is full. Returns true if no message is left.
    pub(super) fn send_untold(&mut self) -> bool {
        let Some(socket) = self.socket.clone() else { return false };
        let settled = self.settled();
        while let Some((number, request)) = self.untold.front() {
            match socket::send(&*socket, &request.encode(*number, settled), &[]) {
                Ok(true) => drop(self.untold.pop_front()),
                // The socket is full, because the daemon is slow. The rest is sent later.
                Ok(false) => return false,
                Err(_) => {
                    self.hang_up();
                    return false;
                }
            }
        }
        true
    }

    /// Gives up this connection. The watching thread notices the end of the connection and connects again.
    pub(super) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.shut_down();
        }
    }

    /// Sends all messages and requests that were not sent on the present connection yet. The messages go first, because
    /// a later request may depend on them. Then come the given-up requests of a former connection.
    pub(super) fn send_unsent(&mut self) {
        if !self.send_untold() {
            return;
        }
        let Some(socket) = self.socket.clone() else { return };
        let (generation, settled) = (self.generation, self.settled());
        let holds_back = !self.given_up.is_empty() && !self.held_back.passed();
        let others = self.pending.iter_mut().filter(|(_, p)| !holds_back || matches!(p.request, Request::Bye));
        let mut is_broken = false;
        for (number, pending) in self.given_up.iter_mut().chain(others) {
            if pending.sent_on == generation || pending.answer.is_some() {
                continue;
            }
            if let (Some(until), Some(wait_ms)) = (pending.wait, wait_of(&mut pending.request)) {
                *wait_ms = until.left_ms().unsigned_abs().into();
            }
            let message = pending.request.encode(number, settled);
            let descriptors: Vec<BorrowedFd<'_>> = pending.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match socket::send(&*socket, &message, &descriptors) {
                Ok(true) => pending.sent_on = generation,
                // The socket is full, because the daemon is slow. The unsent requests are sent after the next answer,
                // or a moment later.
                Ok(false) => break,
                Err(_) => {
                    is_broken = true;
                    break;
                }
            }
        }
        if is_broken {
            self.hang_up();
        }
    }

    /// Gives the error with which a request fails because the session is over or leaving. The farewell of a leaving
    /// session does not fail.
    fn refusal(&self, number: u64) -> Option<Error> {
        let farewell = || self.pending.get(number).is_some_and(|pending| matches!(pending.request, Request::Bye));
        self.check_open().err().filter(|_| self.over.is_some() || !farewell())
    }

    /// Takes a request from `pending`, because its asking thread no longer waits. If the daemon may still answer, or
    /// may have made something for the request, moves the request to `given_up`.
    fn give_up(&mut self, number: u64) {
        if let Some(mut pending) = self.pending.remove(number) {
            let is_sent = self.socket.is_some() && pending.sent_on == self.generation;
            pending.lasts = pending.sent_on != 0 && pending.makes_something();
            if is_sent || pending.lasts {
                self.given_up.insert(number, pending);
            }
        }
    }

    /// Handles an answer whose descriptors this process cannot keep. Tells the daemon to close what the answer opened,
    /// and gives the asking thread an error.
    fn hand_out_without_descriptors(&mut self, number: u64, answer: &Answer) {
        let Some(pending) = self.pending.get_mut(number).filter(|pending| pending.answer.is_none()) else {
            return self.handle_late(number, answer);
        };
        if pending.may_ask_again() && self.ask_again(number, answer) {
            return;
        }
        let Some(pending) = self.pending.get_mut(number) else { return };
        let error = no_descriptor();
        let failed = Answer::Failed { status: error.status, text: error.to_string() };
        pending.answer = Some((failed, Vec::new()));
        let request = pending.request.clone();
        self.return_opened(number, Some(&request), answer);
    }

    /// Sends a request again, because the descriptors of its answer were lost while a place was reserved for them. The
    /// place is given up before the next answer is read. Returns `false` if the request cannot be sent now.
    fn ask_again(&mut self, number: u64, answer: &Answer) -> bool {
        let Some(pending) = self.pending.get_mut(number) else { return false };
        (pending.asked_again, pending.sent_on) = (true, 0);
        self.send_unsent();
        let is_sent = self.pending.get(number).is_some_and(|pending| pending.sent_on == self.generation);
        if self.socket.is_some() && !is_sent {
            return false;
        }
        // The daemon counts each answer that gives a segment. If the connection was lost, it counts anew.
        if let Answer::Item(given) = answer
            && !is_owned(given)
        {
            self.tell(Request::Detach { segment: given.file, count: 1 });
        }
        true
    }

    /// Handles an answer that came after the asking thread had given up: tells the daemon to close or remove what the
    /// answer opened.
    fn handle_late(&mut self, number: u64, answer: &Answer) {
        let request = self.given_up.remove(number).map(|pending| pending.request);
        match (&request, answer) {
            (Some(Request::Publish { .. }), Answer::Done { value }) => self.refuse_series(SegmentId(*value)),
            (Some(Request::MakeWorkflow { name, .. }), Answer::Done { .. }) => self.refuse_workflow(name),
            _ => {}
        }
        self.return_opened(number, request.as_ref(), answer);
    }

    /// Tells the daemon to close or remove what this answer opened, because no thread waits for the answer any more. An
    /// item that this process had open before it sent the request is an exception: this function does not close the
    /// item, because the call that sent the request asks the daemon for the item again, or closes the item itself.
    fn return_opened(&mut self, number: u64, request: Option<&Request>, answer: &Answer) {
        if !request.is_some_and(|request| keeps_item(request, answer)) {
            self.open_list.take(Some(number), answer, None);
            self.refuse(answer);
        }
    }

    /// The number of the oldest request whose outcome the daemon must keep. All requests with smaller numbers were
    /// answered, or were given up and will not be sent again.
    pub(super) fn settled(&self) -> u64 {
        let made = self.given_up.iter().find(|(_, pending)| pending.lasts).map(|(number, _)| number);
        self.pending.first().into_iter().chain(made).min().unwrap_or(self.next)
    }
}

/// Gives the item that this member no longer has open if the request succeeds.
fn ended_by(request: &Request) -> Option<SegmentId> {
    match request {
        Request::Item(ItemRequest::Transfer { item, .. } | ItemRequest::Destroy { item }) => Some(*item),
        _ => None,
    }
}

/// Tells whether the item in the answer is one that this process had open before it sent the request.
fn keeps_item(request: &Request, answer: &Answer) -> bool {
    let of_open = matches!(
        request,
        Request::Item(ItemRequest::Resize { .. } | ItemRequest::Unshare { .. } | ItemRequest::Reopen { .. })
    );
    of_open && matches!(answer, Answer::Item(given) if given.writable)
}

/// Tells whether this process closes the descriptor of the answer as soon as it has mapped the file: it does so with the
/// file of an item that only it has open.
fn is_closed_soon(answer: &Answer) -> bool {
    matches!(answer, Answer::Item(given) if is_owned(given))
}

/// Gives the field of the request in which the daemon is told how long it may wait before it answers; `None` if the
/// request has no such field.
fn wait_of(request: &mut Request) -> Option<&mut u64> {
    match request {
        Request::Open { wait_ms, .. }
        | Request::Observe { wait_ms, .. }
        | Request::CopyRegion { wait_ms, .. }
        | Request::Item(ItemRequest::Access { wait_ms, .. } | ItemRequest::Unshare { wait_ms, .. }) => Some(wait_ms),
        _ => None,
    }
}

/// When this value is dropped, this thread's turn as the reader ends, so that another thread can read.
pub(super) struct ReaderTurn<'a>(pub(super) &'a Connection);

impl Drop for ReaderTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reading = false;
        self.0.wake_others(&state);
        self.0.watch_untold(&state);
    }
}

fn failures((answer, descriptors): AnsweredWith) -> Result<AnsweredWith> {
    match answer {
        Answer::Failed { status, text } => Err(Error::because(status, Reason::Daemon(text))),
        answer => Ok((answer, descriptors)),
    }
}

#[cfg(test)]
mod tests {

    use crossdock_layout::Rights;
    use crossdock_layout::wire::{ItemGiven, ItemLevel, OnDeath, Party};

    use super::super::testing;
    use super::*;

    /// The state of a session that has just connected again.
    fn connected_again() -> State {
        State { generation: 2, next: 100, ..State::new(None, 1) }
    }

    #[test]
    fn requests_that_may_have_made_items_are_sent_again_before_the_lists_end() {
        let create = |key: &str| {
            let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
            Request::Item(ItemRequest::Create { size: 1, level, on_death, key: key.into() })
        };
        let pending = |request, sent_on| Pending {
            request,
            descriptors: Vec::new(),
            wait: None,
            sent_on,
            answer: None,
            lasts: false,
            opening: None,
            wants: 1,
            asked_again: false,
        };
        let numbers_after = |given_up: &[(u64, Request)]| {
            let mut state = connected_again();
            for (number, request) in given_up {
                state.given_up.insert(*number, pending(request.clone(), 1));
            }
            state.pending.insert(5, pending(create("x"), 1));
            state.pending.insert(6, pending(create("not-sent"), 0));
            state.pending.insert(7, pending(create("y"), 1));
            state.pending.insert(8, pending(create("answered"), 1));
            state.pending.get_mut(8).unwrap().answer = Some((Answer::Done { value: 0 }, Vec::new()));
            state.tell_open();
            let end = Request::Item(ItemRequest::Hold { item: SegmentId(0) });
            assert_eq!(state.untold.back(), Some(&(0, end)));
            let numbers: Vec<u64> = state.untold.iter().map(|(number, _)| *number).filter(|n| *n != 0).collect();
            for (number, pending) in state.given_up.iter().chain(state.pending.iter()) {
                assert_eq!(pending.sent_on == 2, numbers.contains(&number), "request {number}");
            }
            numbers
        };
        assert_eq!(numbers_after(&[]), [5, 7]);
        // Request 3 was given up, but may have made the item `x`. The session must first destroy that item, so request
        // 5, which also makes `x`, is not sent again yet.
        assert_eq!(numbers_after(&[(3, create("x"))]), [3, 7]);
        let destroy = Request::Item(ItemRequest::Destroy { item: SegmentId(9) });
        assert_eq!(numbers_after(&[(3, create("z")), (4, destroy)]), [3]);
    }

    #[test]
    fn what_a_session_has_made_is_offered_to_the_next_daemon_although_the_asking_thread_has_not_gone_on() {
        let (connection, _daemon) = testing::connect();
        let publish = Request::Publish { size: 1, reserved: 0, attribute: 0, observers: 1, name: "s".into() };
        let endpoint = Request::MakeEndpoint { workflow: "w".into(), task: "t".into(), grants: Vec::new() };
        let mut state = connection.lock();
        for (number, request) in [(7, publish), (8, endpoint)] {
            let pending = Pending {
                request,
                descriptors: vec![event::eventfd().unwrap().into()],
                wait: None,
                sent_on: 1,
                answer: None,
                lasts: false,
                opening: None,
                wants: 0,
                asked_again: false,
            };
            state.pending.insert(number, pending);
            connection.hand_out(&mut state, number, Answer::Done { value: 70 + number }, Vec::new());
        }
        let offers = [Request::Listen { endpoint: 78 }, Request::Offer { segment: SegmentId(77) }];
        assert_eq!(state.open_list.offers(), offers);
        assert!(offers.iter().all(|offer| state.open_list.descriptor_of(offer).is_some()));
        assert_eq!(state.open_list.count(crossdock_layout::wire::SegmentKind::Series), 1);
    }

    /// Lets a thread give up its item 5, and then its request 7 to transfer this item, whose answer has not come. Tells
    /// which requests the daemon has got after `answers` were read, and which request has the item open.
    fn after_given_up_transfer(answers: Vec<(u64, Answer)>) -> (Vec<Request>, Option<u64>) {
        let (connection, daemon) = testing::connect();
        let item = SegmentId(5);
        let pending = |request, opening| Pending {
            request: Request::Item(request),
            descriptors: Vec::new(),
            wait: None,
            sent_on: 1,
            answer: None,
            lasts: false,
            opening,
            wants: 0,
            asked_again: false,
        };
        let mut state = connection.lock();
        state.open_list.take(Some(6), &given(item), None);
        state.given_up.insert(7, pending(ItemRequest::Transfer { item, to: Party::task("b") }, Some(6)));
        let access = ItemRequest::Access { wait_ms: 0, read: false, keys: vec!["x".into()] };
        state.pending.insert(8, pending(access, None));
        drop(state);
        connection.release_opening(item, Some(6));
        assert_eq!(testing::requests(&daemon), [], "the answer to the transfer decides");
        let mut state = connection.lock();
        for (number, answer) in answers {
            connection.hand_out(&mut state, number, answer, Vec::new());
        }
        (testing::requests(&daemon), state.open_list.opening_of(item))
    }

    fn given(item: SegmentId) -> Answer {
        Answer::Item(ItemGiven {
            item,
            file: SegmentId(9),
            size: 4096,
            level: ItemLevel::Verified,
            on_death: OnDeath::Keep,
            writable: true,
            created: false,
            words: [0; 2],
            creator: 0,
            key: "x".into(),
        })
    }

    /// Sends a request for an item of this task, and loses the descriptors of its answer `times` times. Gives what the
    /// daemon has got since the first answer, and whether the request has failed.
    fn after_lost_descriptors(read: bool, answer: &Answer, times: usize) -> (Vec<Request>, bool) {
        let (connection, daemon) = testing::connect();
        let access = ItemRequest::Access { wait_ms: 60_000, read, keys: vec!["x".into()] };
        let number = connection.begin(Request::Item(access), Vec::new(), None).unwrap();
        let mut state = connection.lock();
        state.send_unsent();
        assert_eq!(testing::requests(&daemon).len(), 1);
        for _ in 0..times {
            state.hand_out_without_descriptors(number, answer);
        }
        let is_answered = state.pending.get(number).unwrap().is_answered();
        (testing::requests(&daemon), is_answered)
    }

    #[test]
    fn a_request_for_an_own_item_is_sent_once_more_if_its_descriptor_found_no_place() {
        let access = |read| Request::Item(ItemRequest::Access { wait_ms: 60_000, read, keys: vec!["x".into()] });
        let owned = given(SegmentId(5));
        let released = Request::Item(ItemRequest::Release { item: SegmentId(5) });
        assert_eq!(after_lost_descriptors(false, &owned, 1), (vec![access(false)], false));
        assert_eq!(after_lost_descriptors(false, &owned, 2), (vec![access(false), released], true));
        let Answer::Item(given) = owned else { unreachable!() };
        let detached = Request::Detach { segment: given.file, count: 1 };
        // The daemon counts a cooperative item once for each answer.
        let cooperative = Answer::Item(ItemGiven { level: ItemLevel::Cooperative, ..given.clone() });
        let again = vec![access(false), detached.clone()];
        assert_eq!(after_lost_descriptors(false, &cooperative, 1), (again.clone(), false));
        let failed = [again, vec![detached.clone()]].concat();
        assert_eq!(after_lost_descriptors(false, &cooperative, 2), (failed, true));
        let shared = Answer::Item(ItemGiven { writable: false, ..given });
        assert_eq!(after_lost_descriptors(true, &shared, 1), (vec![detached], true), "a reader's place is given up");
    }

    #[test]
    fn a_place_stays_reserved_while_an_answer_is_read_that_can_be_asked_for_again() {
        let (connection, _daemon) = testing::connect();
        let access = |read| Request::Item(ItemRequest::Access { wait_ms: 0, read, keys: vec!["x".into()] });
        let reserved = |state: &mut State| {
            state.make_way();
            state.room.len()
        };
        let own = connection.begin(access(false), Vec::new(), None).unwrap();
        assert_eq!(reserved(&mut connection.lock()), 1);
        let reads = connection.begin(access(true), Vec::new(), None).unwrap();
        assert_eq!(connection.lock().room.len(), 2);
        assert_eq!(reserved(&mut connection.lock()), 0, "the answer for the reader may come next");
        let mut state = connection.lock();
        state.pending.remove(reads);
        state.fit_room();
        assert_eq!(reserved(&mut state), 1);
        state.pending.remove(own);
        state.fit_room();
        assert_eq!(state.room.len(), 1, "for the next item");
    }

    #[test]
    fn a_call_that_gave_up_a_transfer_does_not_close_the_item_for_another_thread_that_got_it_back() {
        let item = SegmentId(5);
        let answers = vec![(7, Answer::Done { value: 0 }), (8, given(item))];
        assert_eq!(after_given_up_transfer(answers), (vec![], Some(8)));
    }

    #[test]
    fn an_item_whose_transfer_was_given_up_is_closed_after_the_transfer_has_failed() {
        let failed = || Answer::Failed { status: Status::NotFound, text: String::new() };
        let released = Request::Item(ItemRequest::Release { item: SegmentId(5) });
        assert_eq!(after_given_up_transfer(vec![(7, failed()), (8, failed())]), (vec![released], None));
    }

    #[test]
    fn an_item_whose_transfer_was_given_up_is_not_in_the_list_for_a_new_daemon() {
        let (connection, _daemon) = testing::connect();
        let mut state = connection.lock();
        state.open_list.take(Some(6), &given(SegmentId(5)), None);
        state.open_list.close_later(SegmentId(5));
        state.untold.clear();
        state.tell_open();
        let held = |request: &Request| matches!(request, Request::Item(ItemRequest::Hold { item }) if item.0 == 5);
        assert!(!state.untold.iter().any(|(_, request)| held(request)));
        assert_eq!(state.open_list.opening_of(SegmentId(5)), None);
    }

    #[test]
    fn a_session_needs_the_watching_thread_from_the_first_request_that_may_leave_it_with_something() {
        let (connection, _daemon) = testing::connect();
        let unanswered = |request| {
            let asked = connection.ask(request, None, None, Deadline::after(Duration::from_millis(10)));
            assert_eq!(asked.map(|_| ()).unwrap_err().status, Status::TimedOut);
            connection.is_watched()
        };
        assert!(!unanswered(Request::Describe { member: connection.who.member }));
        assert!(unanswered(Request::Attach { segment: SegmentId(5), access: Rights::WRITE }));
    }

    #[test]
    fn a_request_that_is_sent_again_lets_the_daemon_wait_for_the_time_that_is_left() {
        let name = || "r".to_owned();
        let copy = Request::CopyRegion { wait_ms: 60_000, moves: false, name: name(), copy: "s".into() };
        let observe = Request::Observe { wait_ms: 60_000, former: false, name: name() };
        for mut request in [copy, observe] {
            assert_eq!(wait_of(&mut request).copied(), Some(60_000), "{request:?}");
        }
    }
}
