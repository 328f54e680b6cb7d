//! Ports: bounded channels that carry handles and small values between tasks (Dhmem, section III-C; design 3.3).
//!
//! A port is a segment with a ring of cells; both ends map it and the daemon is not on the way. What a consumer releases
//! comes back to the producer as a credit ([`Port::reclaim`]), so buffers are used again and nothing is overwritten
//! while it is read. Every wait has a deadline, and ends at once when the last peer dies.

mod types;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crossdock_layout::{Handle, SegmentId};

pub use types::{
    DEFAULT_WAIT, End, EndInfo, INLINE_MAX, Inline, Message, Pattern, PortOptions, PortReport, PortStatistics, Waiting,
};

use crate::{Result, Session};

/// One end of a port. Threads may share it; dropping it leaves in order.
#[derive(Debug)]
pub struct Port {
    _shared: (),
}

impl Session {
    /// Opens one end of a port; whoever comes first makes it, so producer and consumer may start in any order.
    /// Waits for nobody, but for a place at a taken end: up to `timeout` (`None` = do not wait).
    ///
    /// # Errors
    /// `INVALID` (name, capacity, or options that differ from the port's: the text prints both), `BUSY` (names who
    /// holds the end), `DENIED`, `NO_SPACE`.
    pub fn port(&self, _name: &str, _end: End, _options: &PortOptions, _timeout: Option<Duration>) -> Result<Port> {
        todo!()
    }

    /// Takes a port's name away; members that have it open keep it.
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`.
    pub fn remove_port(&self, _name: &str) -> Result<()> {
        todo!()
    }

    /// What goes on in a port, read without taking an end of it (launcher, `inspect`).
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`, `WRONG_TYPE` (not a port), `CORRUPT`.
    pub fn port_report(&self, _id: SegmentId) -> Result<PortReport> {
        todo!()
    }
}

impl Port {
    /// The port's name.
    #[must_use]
    pub fn name(&self) -> &str {
        todo!()
    }

    /// Which end this is.
    #[must_use]
    pub fn end(&self) -> End {
        todo!()
    }

    /// The options that the port was made with.
    #[must_use]
    pub fn options(&self) -> PortOptions {
        todo!()
    }

    /// The port's segment.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        todo!()
    }

    /// Sends; waits for a free cell. `None` waits up to [`DEFAULT_WAIT`], zero polls (`NOT_YET`).
    ///
    /// # Errors
    /// `TIMED_OUT` (names who holds the place), `CLOSED` and `PEER_DIED` (no consumer is left and no cell is free),
    /// `INVALID` (a consumer's end), `CORRUPT`. On error nothing was sent.
    pub fn send(&self, message: &Message, timeout: Option<Duration>) -> Result<()> {
        self.send_sized(message, 0, timeout)
    }

    /// As [`Port::send`]; `bytes` is how much data the handle stands for, for the statistics.
    ///
    /// # Errors
    /// As [`Port::send`].
    pub fn send_sized(&self, _message: &Message, _bytes: u64, _timeout: Option<Duration>) -> Result<()> {
        todo!()
    }

    /// Producer: waits until the next send finds a free cell, and gives back a handle whose message was released: nobody
    /// reads its data any more. Each handle comes back once, oldest first. `None`: there is room, and no handle waits
    /// to come back (at first, or when messages carried none).
    ///
    /// # Errors
    /// As [`Port::send`].
    pub fn reclaim(&self, _timeout: Option<Duration>) -> Result<Option<Handle>> {
        todo!()
    }

    /// Receives; waits for a message, which stays this consumer's until it is released. `None` waits up to
    /// [`DEFAULT_WAIT`], zero polls (`NOT_YET`). What was sent before a producer left or died is received first.
    ///
    /// # Errors
    /// `TIMED_OUT` (names the producers), `CLOSED` (all producers left in order), `PEER_DIED`, `INVALID`, `CORRUPT`.
    pub fn receive(&self, _timeout: Option<Duration>) -> Result<Message> {
        todo!()
    }

    /// Gives a message's cell, and with it its data, back to the producer; any order, each message once. Never waits.
    ///
    /// # Errors
    /// `INVALID` for a message that was not received here or is released already.
    pub fn release(&self, _message: &Message) -> Result<()> {
        todo!()
    }

    /// A descriptor for `poll`/`epoll` that becomes readable after [`Port::arm`] when something came, or a peer died.
    ///
    /// # Errors
    /// `SYSTEM`, `DISCONNECTED`.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        todo!()
    }

    /// Asks for the descriptor to become readable at the next event. `true`: there is something to do right now, and
    /// nothing was armed. Protocol: arm; when ready or readable, poll with zero timeouts until `NOT_YET`; arm again.
    /// There are false alarms; none is missed.
    ///
    /// # Errors
    /// As [`Port::descriptor`].
    pub fn arm(&self) -> Result<bool> {
        todo!()
    }

    /// Takes [`Port::arm`] back.
    pub fn disarm(&self) {
        todo!()
    }

    /// Waits until somebody living is at the other end.
    ///
    /// # Errors
    /// `TIMED_OUT`, `CORRUPT`.
    pub fn wait_peer(&self, _timeout: Option<Duration>) -> Result<()> {
        todo!()
    }

    /// Counts bytes that had to be copied at this end (out of or into memory that no region holds).
    pub fn note_copied(&self, _bytes: u64) {
        todo!()
    }

    /// Counters of the port as a whole. They lie in shared memory: a lying member can falsify them.
    #[must_use]
    pub fn statistics(&self) -> PortStatistics {
        todo!()
    }

    /// How this end waits; [`Waiting::Adaptive`] unless told.
    pub fn set_waiting(&self, _waiting: Waiting) {
        todo!()
    }

    /// Leaves in order: peers get what was sent, then `CLOSED`; messages not released go to a successor.
    pub fn close(self) {
        todo!()
    }
}
