//! Ports: bounded channels that carry handles and small values between tasks (Dhmem, section III-C; design 3.3).
//!
//! A port is a segment with a ring of cells. Both ends map it, and messages do not pass through the daemon. What a
//! consumer releases comes back to the producer as a credit ([`Port::reclaim`]), so buffers are used again and nothing
//! is overwritten while it is read. Every wait has a deadline, and ends at once when the last peer dies.

mod bell;
mod kept;
mod open;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossdock_core::queue;
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{Handle, SegmentId};

use bell::Bell;
use kept::Kept;
pub use queue::{
    EndInfo, INLINE_MAX, Inline, Message, Pattern, PortOptions, PortReport, PortStatistics, Shape, Side as End, Waiting,
};

use crate::{Error, Region, Result};

/// How long a call with timeout `None` waits.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// One end of a port. Threads may share it. Dropping it leaves the port in order. The calls that need no session are
/// those of [`queue::End`].
#[derive(Debug)]
pub struct Port {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    end: queue::End,
    name: String,
    id: SegmentId,
    bell: OnceLock<Bell>,
    kept: Kept,
}

impl Shared {
    /// Leaves the port in order, and drops what was kept for the messages.
    pub(crate) fn close(&self) {
        self.end.close();
        self.kept.end();
    }

    /// Gives the end up as a death would.
    pub(crate) fn abandon(&self) {
        self.end.abandon();
        self.kept.end();
    }

    /// Keeps a region that a handle named, if the port's messages are about it.
    pub(crate) fn keep(&self, region: &Region) {
        self.kept.keep(region);
    }
}

impl Port {
    /// The port's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The side of this end.
    #[must_use]
    pub fn end(&self) -> End {
        self.shared.end.side()
    }

    /// The port's segment.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.shared.id
    }

    /// Sends a message; waits for room. `None` waits up to [`DEFAULT_WAIT`], zero polls (`NOT_YET`).
    ///
    /// # Errors
    /// `TIMED_OUT` (names the member that has the cells), `CLOSED` and `PEER_DIED` (no consumer is left and no cell is
    /// free), `INVALID` (a consumer's end), `CORRUPT`. After an error nothing was sent.
    #[inline]
    pub fn send(&self, message: &Message, timeout: Option<Duration>) -> Result<()> {
        self.send_sized(message, 0, timeout)
    }

    /// As [`Port::send`]. `bytes` is the amount of data that the handle stands for, for the statistics.
    ///
    /// # Errors
    /// As [`Port::send`].
    #[inline]
    pub fn send_sized(&self, message: &Message, bytes: u64, timeout: Option<Duration>) -> Result<()> {
        let sent = self.shared.end.send(message, bytes, timeout.unwrap_or(DEFAULT_WAIT));
        self.named(sent.map(|_position| ()))
    }

    /// For a producer: waits until the next send would find room, and gives a handle whose message was released, so
    /// that no consumer reads its data any more. Each handle comes back once, the oldest first. `None` if there is room
    /// and no handle waits to come back (at first, or when messages carried none). A send without this call drops the
    /// credit of its cell.
    ///
    /// # Errors
    /// As [`Port::send`].
    #[inline]
    pub fn reclaim(&self, timeout: Option<Duration>) -> Result<Option<Handle>> {
        let credit = self.named(self.shared.end.reclaim(timeout.unwrap_or(DEFAULT_WAIT)))?;
        if let Some(handle) = credit {
            self.shared.kept.note(handle);
        }
        Ok(credit)
    }

    /// Receives a message; waits for one. The message stays this consumer's until it is released. `None` waits up to
    /// [`DEFAULT_WAIT`], zero polls (`NOT_YET`). What was sent before a producer left or died is received first.
    ///
    /// # Errors
    /// `TIMED_OUT` (names the producers), `CLOSED` (all producers left in order), `PEER_DIED`, `INVALID`, `CORRUPT`.
    #[inline]
    pub fn receive(&self, timeout: Option<Duration>) -> Result<Message> {
        let mut message = Message::default();
        self.named(self.shared.end.receive_into(&mut message, timeout.unwrap_or(DEFAULT_WAIT)))?;
        self.shared.kept.note(message.handle);
        Ok(message)
    }

    /// Gives a message's cell, and with it the data, back to the producer. Any order is allowed, each message once. It
    /// never waits.
    ///
    /// # Errors
    /// `INVALID` if the message was not received here or was released already.
    #[inline]
    pub fn release(&self, message: &Message) -> Result<()> {
        self.named(self.shared.end.release(message.position))
    }

    /// A descriptor for `poll`/`epoll`. After [`Port::arm`] it becomes readable when something comes or a peer dies.
    ///
    /// # Errors
    /// `SYSTEM`.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.bell()?.as_fd())
    }

    /// Asks for the descriptor to become readable at the next event. `true` if there is something to do now; then
    /// nothing was armed. How to use it: arm; when ready or readable, poll with zero timeouts until `NOT_YET`; arm
    /// again. There are false alarms, but no event is missed.
    ///
    /// # Errors
    /// `SYSTEM`.
    pub fn arm(&self) -> Result<bool> {
        let bell = self.bell()?;
        bell.silence();
        if self.shared.end.has_event() {
            return Ok(true);
        }
        bell.arm(&self.shared)?;
        Ok(false)
    }

    /// Undoes [`Port::arm`] and makes the descriptor unreadable.
    pub fn disarm(&self) {
        if let Some(bell) = self.shared.bell.get() {
            bell.silence();
        }
    }

    /// Waits until the other end has a living member.
    ///
    /// # Errors
    /// `TIMED_OUT`, `NOT_YET` (with zero).
    pub fn wait_peer(&self, timeout: Option<Duration>) -> Result<()> {
        self.named(self.shared.end.wait_peer(timeout.unwrap_or(DEFAULT_WAIT)))
    }

    /// Leaves the port in order: peers get what was sent, and then `CLOSED`. Messages that were not released go to a
    /// successor. Another thread that still waits at this end gets `CLOSED`.
    pub fn close(self) {
        drop(self);
    }

    /// As [`Port::close`], for callers that share the port. Later calls at this end give `CLOSED`.
    pub fn leave(&self) {
        self.shared.close();
    }

    fn bell(&self) -> Result<&Bell> {
        if let Some(bell) = self.shared.bell.get() {
            return Ok(bell);
        }
        let bell = Bell::new().map_err(|error| self.name_it(error))?;
        Ok(self.shared.bell.get_or_init(|| bell))
    }

    #[inline]
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.name_it(error))
    }

    #[cold]
    #[inline(never)]
    fn name_it(&self, error: Error) -> Error {
        error.about(SegmentKind::Port, &self.shared.name)
    }
}

impl std::ops::Deref for Port {
    type Target = queue::End;
    fn deref(&self) -> &queue::End {
        &self.shared.end
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // The watching thread, if there is one, holds the other parts until it sees this.
        self.shared.close();
        if let Some(bell) = self.shared.bell.get() {
            bell.dismiss();
        }
    }
}
