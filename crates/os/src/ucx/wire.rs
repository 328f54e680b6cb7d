//! One connection over UCX.
//!
//! Every wire has a worker of its own. Only the thread that holds the lock of the wire's state calls the worker.
//! While threads wait, one of them *leads*: it sleeps in `poll` on the worker's descriptor without the lock, and then
//! lets UCX proceed for all of them. The others sleep on a condition variable.
//!
//! **Sign of life.** Each wire has a TCP connection beside it. When the peer's process ends, its kernel closes that
//! connection, so this side sees the loss without delay. A peer that ends the wire without an error first sends its
//! *farewell*, the number of its messages, on that connection. So this side can tell an end without an error from a
//! loss.
//!
//! **Borrowed memory.** UCX reads from and writes to the caller's memory until an operation is complete. An operation
//! that does not complete by its deadline therefore ends the wire: the worker is destroyed before the call returns.

use super::abi::{self, StartResult};
use super::inbox::UnreadMessage;
use super::library::Fabric;
use super::lock;
use super::worker::{SendMode, Worker};
use crate::deadline::Deadline;
use crate::turns::Turns;
use crate::{event, sys, tcp};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A part of a write with at least this many bytes is not copied. The receiving side gets such a part directly into its
/// place.
pub(super) const LARGE: usize = 32 << 10;
/// A large part is sent in pieces of at most this many bytes.
pub(super) const PIECE: usize = 1 << 20;
/// The number of messages that one call sends before it waits for the oldest of them.
const IN_FLIGHT: usize = 4;
/// How long a wire whose endpoint is lost waits for the peer's farewell, which comes on the TCP connection.
const GRACE: Duration = Duration::from_secs(2);

/// The reason why a call on a wire failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The deadline passed before anything happened. The wire can still be used.
    Late,
    /// The deadline passed in the middle of an operation, which ended the wire.
    Cut,
    /// The wire cannot be used any more, for this reason.
    Lost(String),
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The number of bytes that were read.
    Bytes(usize),
    /// The peer ended the wire without an error.
    End,
}

struct State {
    /// The UCX worker of this wire; `None` after the wire has ended.
    worker: Option<Worker>,
    /// True while a thread sleeps in `poll` on the worker's descriptor.
    leading: bool,
    /// True if the wire is ending or has ended, so that no call may begin to wait.
    ending: bool,
    /// The reason why the wire has ended.
    why: String,
    /// The number that the peer's wire was opened with. Each message to the peer has it in its header.
    token: u64,
    /// The number of messages that were sent.
    sent: u64,
    /// The number of messages that were read.
    taken: u64,
    /// A message of which a part was read, and the number of its bytes that were read.
    rest: (Vec<u8>, usize),
    /// The bytes of the peer's farewell that have arrived so far.
    farewell: Vec<u8>,
    /// The number of messages that the peer sent before it ended the wire, as its farewell says; `None` until the
    /// farewell has arrived.
    all: Option<u64>,
    /// The time at which UCX first reported to this side that the endpoint is lost; `None` if UCX has reported no loss.
    lost: Option<Instant>,
}

/// A connection over UCX. One thread may read while another one writes.
pub struct Wire {
    fabric: Arc<Fabric>,
    life: OwnedFd,
    /// The eventfd that wakes the leading thread, which sleeps in `poll`.
    bell: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
    reading: Mutex<()>,
    writers: Turns,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("fabric", &self.fabric).finish_non_exhaustive()
    }
}

impl Wire {
    /// Makes a wire that is not connected yet. `life` is a TCP connection to the peer. `token` is a number that only the
    /// peer learns.
    ///
    /// # Errors
    /// UCX's reason, as text for people.
    pub fn open(fabric: &Arc<Fabric>, life: OwnedFd, token: u64) -> Result<Self, String> {
        let bell = event::eventfd().map_err(|error| error.to_string())?;
        let state = State {
            worker: Some(Worker::new(fabric, token)?),
            leading: false,
            ending: false,
            why: String::new(),
            token: 0,
            sent: 0,
            taken: 0,
            rest: (Vec::new(), 0),
            farewell: Vec::new(),
            all: None,
            lost: None,
        };
        Ok(Self {
            fabric: Arc::clone(fabric),
            life,
            bell,
            state: Mutex::new(state),
            changed: Condvar::new(),
            reading: Mutex::new(()),
            writers: Turns::default(),
        })
    }

    /// The TCP connection beside the wire. The two sides tell each other their addresses and tokens on it before they
    /// connect.
    pub fn life(&self) -> &OwnedFd {
        &self.life
    }

    /// The address that the peer needs to connect.
    ///
    /// # Errors
    /// UCX's reason, as text for people.
    pub fn address(&self) -> Result<Vec<u8>, String> {
        lock(&self.state).worker.as_ref().ok_or("the wire has ended")?.address()
    }

    /// Waits until bytes can be sent in both directions. Both sides call it at the same time, after [`Self::connect`]:
    /// UCX connects only while both sides let it proceed. Afterwards a small write does not wait for the peer.
    ///
    /// # Errors
    /// UCX does not reach the peer by the deadline, or the wire has ended.
    pub fn meet(&self, deadline: Deadline) -> Result<(), WireError> {
        self.write(&[&[0]], deadline)?;
        match self.read(&mut [0], deadline)? {
            Received::Bytes(_) => Ok(()),
            Received::End => Err(WireError::Lost("the peer has ended the connection".to_owned())),
        }
    }

    /// Prepares the connection to the wire with this address. `token` is the number that the peer's wire was opened with.
    ///
    /// # Errors
    /// UCX's reason, as text for people: for example, that the two machines share no transport.
    pub fn connect(&self, address: &[u8], token: u64) -> Result<(), String> {
        let mut state = lock(&self.state);
        state.token = token;
        state.worker.as_mut().ok_or("the wire has ended")?.connect(address)
    }

    /// Waits for bytes, and reads at least one into `buffer`, which must not be empty.
    ///
    /// # Errors
    /// [`WireError::Late`]: nothing came by the deadline; a later call may read more. After the other errors the wire has
    /// ended.
    pub fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<Received, WireError> {
        assert!(!buffer.is_empty(), "a read into nothing cannot be told from the end");
        let _turn = lock(&self.reading);
        let mut state = self.hold();
        if state.rest.1 < state.rest.0.len() {
            return Ok(Received::Bytes(state.copy_rest(buffer)));
        }
        let next = |state: &mut State| {
            let message = state.worker.as_ref()?.inbox.take(state.taken);
            state.taken += u64::from(message.is_some());
            let end = message.is_none() && state.all == Some(state.taken);
            if end { Some(None) } else { message.map(Some) }
        };
        let message = match self.wait(&mut state, deadline, GRACE, next) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(Received::End),
            Err(WireError::Late) => return Err(WireError::Late),
            Err(error) => return Err(self.end(state, error)),
        };
        let (description, length) = match message {
            UnreadMessage::Small(bytes) => {
                state.rest = (bytes, 0);
                return Ok(Received::Bytes(state.copy_rest(buffer)));
            }
            UnreadMessage::Large(description, length) => (description, length),
        };
        let direct = length <= buffer.len();
        let place = if direct {
            buffer.as_mut_ptr()
        } else {
            state.rest = (vec![0; length], length);
            state.rest.0.as_mut_ptr()
        };
        let Some(worker) = &state.worker else { return Err(WireError::Lost(state.why.clone())) };
        // SAFETY: the worker's inbox gave the description just now. The place has room for `length` bytes, and belongs to
        // this call until the operation is complete or the wire has ended.
        let started = unsafe { worker.receive(description, place, length) };
        if let Err(error) = self.complete(&mut state, started, deadline) {
            return Err(self.end(state, error));
        }
        if direct {
            return Ok(Received::Bytes(length));
        }
        state.rest.1 = 0;
        Ok(Received::Bytes(state.copy_rest(buffer)))
    }

    /// Writes all parts, one after another. When the call returns, the parts are not used any more.
    ///
    /// # Errors
    /// `Late` if other writers kept their turn until the deadline; then nothing was written, and the wire can still be
    /// used. Every other error means that the wire has ended, because the deadline passed during the write, or because
    /// the peer is lost or has ended the wire.
    pub fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<(), WireError> {
        let Some(_turn) = self.writers.take(deadline) else { return Err(WireError::Late) };
        let messages = messages(parts);
        let mut state = self.hold();
        let headers: Vec<[u64; 2]> =
            (0..messages.len() as u64).map(|number| [state.token, state.sent + number]).collect();
        state.sent += headers.len() as u64;
        let mut in_flight = VecDeque::new();
        let (mut outcome, mut begun) = (Ok(()), 0);
        for (message, header) in messages.iter().zip(&headers) {
            if in_flight.len() == IN_FLIGHT {
                outcome = self.complete(&mut state, in_flight.pop_front().expect("several"), deadline);
            }
            let may_send = !state.ending && state.all.is_none();
            let worker = state.worker.as_ref().filter(|worker| may_send && worker.is_connected());
            let (Ok(()), Some(worker)) = (&outcome, worker) else { break };
            let (bytes, way) = match message {
                OutgoingMessage::Small(bytes) => (&bytes[..], SendMode::Copied),
                OutgoingMessage::Large(bytes) => (*bytes, SendMode::Fetched),
            };
            // SAFETY: the worker is connected. The function around this send returns only when the operation is complete
            // or the wire has ended. Until then it changes neither the header nor the bytes.
            in_flight.push_back(unsafe { worker.send(header, bytes, way) });
            begun += 1;
        }
        while let (Ok(()), Some(started)) = (&outcome, in_flight.pop_front()) {
            outcome = self.complete(&mut state, started, deadline);
        }
        if outcome.is_ok() && begun < messages.len() {
            let why = if state.all.is_some() { "the peer has ended the connection" } else { &state.why };
            outcome = Err(WireError::Lost(why.to_owned()));
        }
        outcome.map_err(|error| self.end(state, error))
    }

    /// Ends the wire without an error: the peer can read all messages that were sent, and then gets [`Received::End`].
    /// Calls that wait in other threads end too.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        if state.ending {
            return;
        }
        state.ending = true;
        "this side has closed the connection".clone_into(&mut state.why);
        self.wake();
        if let Some(worker) = &state.worker {
            worker.flush();
        }
        let sent = state.sent.to_le_bytes();
        drop(state);
        let _ = tcp::send(&self.life, &[&sent], Deadline::after(Duration::ZERO));
        tcp::shut_down(&self.life);
    }

    /// Waits until an operation is complete.
    fn complete<'a>(
        &'a self,
        state: &mut StateGuard<'a>,
        started: StartResult,
        deadline: Deadline,
    ) -> Result<(), WireError> {
        let status = match started {
            StartResult::Done => abi::OK,
            StartResult::Failed(status) => status,
            StartResult::Goes(request) => {
                // SAFETY: the request belongs to this worker and is freed only below. If the worker was destroyed, the
                // closure returns before it makes this call.
                let check = |state: &mut State| unsafe { state.worker.as_ref()?.status(request) };
                let status = match self.wait(state, deadline, Duration::ZERO, check) {
                    Err(WireError::Late) => return Err(WireError::Cut),
                    status => status?,
                };
                if let Some(worker) = &state.worker {
                    // SAFETY: the request is complete, and not used again.
                    unsafe { worker.free(request) };
                }
                status
            }
        };
        if status == abi::OK { Ok(()) } else { Err(WireError::Lost(self.fabric.library.text(status))) }
    }

    /// Lets UCX proceed until `done` gives a value. If UCX reports that the endpoint is lost, the call goes on for the
    /// time `grace` before it fails, because messages or the peer's farewell may still be on their way.
    fn wait<'a, T>(
        &'a self,
        state: &mut StateGuard<'a>,
        deadline: Deadline,
        grace: Duration,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, WireError> {
        loop {
            let Some(worker) = state.worker.as_ref().filter(|_| !state.ending) else {
                return Err(WireError::Lost(state.why.clone()));
            };
            if worker.progress() {
                // UCX has proceeded, and may have completed operations for which other threads wait. So these threads
                // are woken.
                self.changed.notify_all();
                if state.leading {
                    event::signal(&self.bell);
                }
            }
            if let Some(value) = done(state) {
                return Ok(value);
            }
            let Some(worker) = &state.worker else { continue };
            if let Some(wrong) = worker.inbox.wrong() {
                return Err(WireError::Lost(wrong.to_owned()));
            }
            let (lost, event_fd) = (worker.inbox.lost(), worker.event_fd());
            let mut by = deadline;
            if lost != abi::OK {
                let text = worker.text(lost);
                if state.lost.get_or_insert_with(Instant::now).elapsed() >= grace {
                    return Err(WireError::Lost(text));
                }
                by = deadline.at_most(grace);
            }
            if deadline.passed() {
                return Err(WireError::Late);
            }
            if state.leading {
                // The leading thread signals `changed` each time UCX has proceeded, so this thread can sleep until
                // then.
                state.without(|guard| {
                    self.changed.wait_timeout(guard, by.left()).unwrap_or_else(PoisonError::into_inner).0
                });
                continue;
            }
            match state.worker.as_ref().map(Worker::arm) {
                Some(Ok(true)) => {}
                Some(Err(status)) => return Err(WireError::Lost(self.fabric.library.text(status))),
                Some(Ok(false)) | None => continue,
            }
            state.leading = true;
            let alive = state.all.is_none();
            let mut ended = false;
            state.without(|guard| {
                drop(guard);
                ended = self.sleep(event_fd, alive, by);
                lock(&self.state)
            });
            state.leading = false;
            self.changed.notify_all();
            if ended && !state.ending {
                self.hear_farewell(state)?;
            }
        }
    }

    /// Sleeps until UCX has an event, another thread signals the eventfd `bell`, or something happens on the TCP
    /// connection that is the sign of life. Gives `true` if something happened on that connection.
    fn sleep(&self, event_fd: c_int, alive: bool, by: Deadline) -> bool {
        // SAFETY: the descriptor belongs to the worker. The worker is not destroyed while `leading` is true, and the
        // caller sets `leading` for the time of this call.
        let events = unsafe { BorrowedFd::borrow_raw(event_fd) };
        let mut watched = vec![PollFd::new(&events, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        if alive {
            watched.push(PollFd::new(&self.life, PollFlags::IN));
        }
        let left = by.left();
        let timeout =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        // If the call fails, for example because of a signal, the thread wakes without events.
        let _ = sys::event::poll(&mut watched, Some(&timeout));
        let ended = watched.get(2).is_some_and(|life| !life.revents().is_empty());
        event::clear(&self.bell);
        ended
    }

    /// Reads the TCP connection that is the sign of life. Notes the peer's farewell, or gives an error if the
    /// connection ended without one.
    fn hear_farewell(&self, state: &mut State) -> Result<(), WireError> {
        let mut bytes = [0; 8];
        let wanted = bytes.len() - state.farewell.len();
        match tcp::try_receive(&self.life, &mut bytes[..wanted]) {
            Ok(None) => {}
            Ok(Some(read @ 1..)) => {
                state.farewell.extend(&bytes[..read]);
                state.all = state.farewell[..].try_into().ok().map(u64::from_le_bytes);
            }
            Ok(Some(0)) => return Err(WireError::Lost("the connection was cut without a farewell".to_owned())),
            Err(error) => return Err(WireError::Lost(error.reason().to_string())),
        }
        Ok(())
    }

    fn hold(&self) -> StateGuard<'_> {
        StateGuard(Some(lock(&self.state)))
    }

    fn wake(&self) {
        event::signal(&self.bell);
        self.changed.notify_all();
    }

    /// Ends the wire: destroys the worker, so that UCX uses no memory of a caller any more. Returns `error`.
    fn end<'a>(&'a self, mut state: StateGuard<'a>, error: WireError) -> WireError {
        if !state.ending {
            state.ending = true;
            state.why = match &error {
                WireError::Lost(why) => why.clone(),
                WireError::Late | WireError::Cut => "a deadline passed in the middle of a message".to_owned(),
            };
        }
        while state.leading {
            self.wake();
            state.without(|guard| self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
        if let Some(worker) = state.worker.take() {
            drop(worker);
            tcp::shut_down(&self.life);
        }
        drop(state);
        self.wake();
        error
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.end(self.hold(), WireError::Lost("the wire was dropped".to_owned()));
    }
}

/// The lock of the state. A thread that waits releases the lock, and takes it again after the wait.
struct StateGuard<'a>(Option<MutexGuard<'a, State>>);

impl<'a> StateGuard<'a> {
    fn without(&mut self, wait: impl FnOnce(MutexGuard<'a, State>) -> MutexGuard<'a, State>) {
        self.0 = self.0.take().map(wait);
    }
}

impl std::ops::Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("the lock is held between two waits")
    }
}

impl std::ops::DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("the lock is held between two waits")
    }
}

impl State {
    /// Copies the next unread bytes of the partly read message into `buffer`. Gives the number of copied bytes.
    fn copy_rest(&mut self, buffer: &mut [u8]) -> usize {
        let (bytes, from) = &mut self.rest;
        let length = buffer.len().min(bytes.len() - *from);
        buffer[..length].copy_from_slice(&bytes[*from..*from + length]);
        *from += length;
        length
    }
}

/// A message to be sent.
enum OutgoingMessage<'a> {
    /// The bytes of one or more small parts, copied into one message.
    Small(Vec<u8>),
    /// A piece of a large part.
    Large(&'a [u8]),
}

fn messages<'a>(parts: &[&'a [u8]]) -> Vec<OutgoingMessage<'a>> {
    let (mut all, mut gathered) = (Vec::new(), Vec::new());
    for part in parts {
        if part.len() < LARGE {
            gathered.extend_from_slice(part);
        }
        if gathered.len() >= LARGE || (part.len() >= LARGE && !gathered.is_empty()) {
            all.push(OutgoingMessage::Small(std::mem::take(&mut gathered)));
        }
        if part.len() >= LARGE {
            all.extend(part.chunks(PIECE).map(OutgoingMessage::Large));
        }
    }
    if !gathered.is_empty() {
        all.push(OutgoingMessage::Small(gathered));
    }
    all
}
