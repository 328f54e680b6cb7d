//! Ports: bounded channels that carry handles and small values between tasks (after the Dhmem paper, section III-C; see
//! `docs/papers.md`).
//!
//! A port is a segment with a ring of cells. Both ends map it, and messages do not pass through the daemon. When a
//! consumer releases a message, the producer gets its cell back as a credit ([`Port::reclaim`]). So the producer can
//! use its buffers again, and never overwrites a buffer that a consumer still reads. Every wait has a deadline, and
//! ends at once when the last peer dies.

mod open;
mod poll_descriptor;
mod recent_regions;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossdock_core::queue;
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{Handle, SegmentId};

use poll_descriptor::PollDescriptor;
pub use queue::{
    EndInfo, INLINE_MAX, Inline, Message, Pattern, PortOptions, PortReport, PortStatistics, Shape, Side as End,
    Waiting, postpone_healing,
};
use recent_regions::RecentRegions;

use crate::{Error, Region, Result};

/// The time that a call waits if its timeout is `None`.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// One end of a port. Threads may share it. When this value is dropped, the member leaves the port properly. The calls
/// of [`queue::End`], which need no session, can be made on this value too.
#[derive(Debug)]
pub struct Port {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    end: queue::End,
    name: String,
    id: SegmentId,
    poll_descriptor: OnceLock<PollDescriptor>,
    recent_regions: RecentRegions,
}

impl Shared {
    /// Leaves the port properly, and drops the regions that were kept open for its messages.
    pub(crate) fn close(&self) {
        self.end.close();
        self.recent_regions.end();
    }

    /// Gives up the end without leaving properly, so the peers take this member for dead.
    pub(crate) fn abandon(&self) {
        self.end.abandon();
        self.recent_regions.end();
    }

    /// Keeps a region open for the next message, if the last message's handle points into this region.
    pub(crate) fn keep(&self, region: &Region) {
        self.recent_regions.keep(region);
    }
}

impl Port {
    /// The port's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Tells whether this member is a producer or a consumer of the port.
    #[must_use]
    pub fn end(&self) -> End {
        self.shared.end.side()
    }

    /// The id of the port's segment.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.shared.id
    }

    /// Sends a message. If the port is full, waits for a free cell. A `timeout` of `None` waits up to [`DEFAULT_WAIT`];
    /// zero does not wait (`NOT_YET`).
    ///
    /// # Errors
    /// `TIMED_OUT` if no cell becomes free before the timeout (the text names the member that has the cells). If no
    /// cell is free and no consumer is left: `CLOSED` if the consumers left properly, `PEER_DIED` if one of them died.
    /// `CLOSED` also if this end is closed. `INVALID` at a consumer's end. `CORRUPT` if the port's memory holds what no
    /// correct member writes. After an error nothing was sent.
    #[inline]
    pub fn send(&self, message: &Message, timeout: Option<Duration>) -> Result<()> {
        self.send_sized(message, 0, timeout)
    }

    /// Works like [`Port::send`]. `bytes` is the amount of data that the handle stands for; it is only used for the
    /// statistics.
    ///
    /// # Errors
    /// As [`Port::send`].
    #[inline]
    pub fn send_sized(&self, message: &Message, bytes: u64, timeout: Option<Duration>) -> Result<()> {
        let sent = self.shared.end.send(message, bytes, timeout.unwrap_or(DEFAULT_WAIT));
        self.named(sent.map(|_position| ()))
    }

    /// For a producer: waits until the port has room for the next message. Then gives the handle of the oldest released
    /// message that was not reclaimed yet. No consumer reads the data of that handle any more. Each handle is given
    /// only once. Gives `None` if there is room but no such handle: in the first lap of the ring, or if the released
    /// message had no handle. If the producer sends a message without calling `reclaim` before, the handle that
    /// `reclaim` would have given is lost.
    ///
    /// # Errors
    /// As [`Port::send`].
    #[inline]
    pub fn reclaim(&self, timeout: Option<Duration>) -> Result<Option<Handle>> {
        let credit = self.named(self.shared.end.reclaim(timeout.unwrap_or(DEFAULT_WAIT)))?;
        if let Some(handle) = credit {
            self.shared.recent_regions.note(handle);
        }
        Ok(credit)
    }

    /// Receives a message. If there is no message, waits for a message. The message belongs to this consumer until it
    /// is released. A `timeout` of `None` waits up to [`DEFAULT_WAIT`]; zero does not wait (`NOT_YET`). Messages that a
    /// producer sent before it left or died are received first.
    ///
    /// # Errors
    /// `TIMED_OUT` if no message comes before the timeout (the text names the producers). If no producer is left:
    /// `CLOSED` if the producers left properly, `PEER_DIED` if one of them died. `CLOSED` also if this end is closed.
    /// `INVALID` at a producer's end. `CORRUPT` if the port's memory holds what no correct member writes.
    #[inline]
    pub fn receive(&self, timeout: Option<Duration>) -> Result<Message> {
        let mut message = Message::default();
        self.named(self.shared.end.receive_into(&mut message, timeout.unwrap_or(DEFAULT_WAIT)))?;
        self.shared.recent_regions.note(message.handle);
        Ok(message)
    }

    /// Releases a message: the producer may now use the message's cell and data again. Messages can be released in any
    /// order, each message once. The call never waits.
    ///
    /// # Errors
    /// `INVALID` if this end did not receive the message, or has released it already.
    #[inline]
    pub fn release(&self, message: &Message) -> Result<()> {
        self.named(self.shared.end.release(message.position))
    }

    /// Puts back a message that this end received and has not released. The next [`Port::receive`] of this end
    /// gives the message again. This call is for a program that cannot use the message now. This call never waits.
    ///
    /// # Errors
    /// `INVALID` if this end did not receive the message, has released it, or has put it back already. `CLOSED` if this
    /// end is closed. `DISCONNECTED` in a forked child.
    pub fn put_back(&self, message: &Message) -> Result<()> {
        self.named(self.shared.end.put_back(message.position))
    }

    /// Heals the session's regions, if a member of the port has died since this end last healed them. A caller of
    /// [`postpone_healing`] calls this function afterwards.
    pub fn heal(&self) {
        self.shared.end.heal();
    }

    /// A descriptor for `poll` and `epoll`. After a call of [`Port::arm`], the descriptor becomes readable when a
    /// message or a credit comes or a peer dies.
    ///
    /// # Errors
    /// `NO_SPACE` if this process has no free descriptor, `SYSTEM` if the kernel refuses the descriptor for another
    /// reason.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.poll_descriptor()?.as_fd())
    }

    /// Makes the descriptor become readable at the next event. Gives `true` if a message can be received or sent now;
    /// in this case the descriptor does not become readable. How to use the descriptor: call `arm`. When `arm` gives
    /// `true`, or when the descriptor becomes readable, receive or send with a timeout of zero until the result is
    /// `NOT_YET`. Then call `arm` again. The descriptor may become readable without an event, but no event is missed.
    ///
    /// # Errors
    /// `NO_SPACE` if this process has no free descriptor, `SYSTEM` if the kernel refuses the descriptor or the thread
    /// behind it. `DISCONNECTED` in a forked child.
    pub fn arm(&self) -> Result<bool> {
        self.named(self.shared.end.check_process())?;
        let poll_descriptor = self.poll_descriptor()?;
        poll_descriptor.silence();
        if self.shared.end.has_event() {
            return Ok(true);
        }
        poll_descriptor.arm(&self.shared)?;
        Ok(false)
    }

    /// Undoes [`Port::arm`]: until the next `arm`, the descriptor does not become readable. In a forked child nothing
    /// happens, because the descriptor belongs to its parent.
    pub fn disarm(&self) {
        if self.shared.end.check_process().is_err() {
            return;
        }
        if let Some(poll_descriptor) = self.shared.poll_descriptor.get() {
            poll_descriptor.silence();
        }
    }

    /// Waits until a living member has an end of the other side of the port open. `None` stands for the default
    /// timeout.
    ///
    /// # Errors
    /// `TIMED_OUT` if the timeout passes first; `NOT_YET` if the timeout is zero and no such member is there.
    pub fn wait_peer(&self, timeout: Option<Duration>) -> Result<()> {
        self.named(self.shared.end.wait_peer(timeout.unwrap_or(DEFAULT_WAIT)))
    }

    /// Leaves the port properly. Peers get all messages that were sent, and then `CLOSED`. Messages that this consumer
    /// received but did not release go to the next consumer. A thread that still waits on this `Port` gets `CLOSED`.
    pub fn close(self) {
        drop(self);
    }

    /// Works like [`Port::close`], for callers that share the port. Later calls on this `Port` give `CLOSED`.
    pub fn leave(&self) {
        self.shared.close();
    }

    fn poll_descriptor(&self) -> Result<&PollDescriptor> {
        if let Some(poll_descriptor) = self.shared.poll_descriptor.get() {
            return Ok(poll_descriptor);
        }
        let poll_descriptor = PollDescriptor::new().map_err(|error| self.name_it(error))?;
        Ok(self.shared.poll_descriptor.get_or_init(|| poll_descriptor))
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
        // A forked child does nothing here, because a thread of its parent may have held one of the locks that the code
        // below takes. In the child, such a lock stays locked for ever.
        if self.shared.end.check_process().is_err() {
            return;
        }
        // If the program has asked for a descriptor to poll, a thread signals it and keeps the port's memory mapped.
        // This thread must see that the port is closed, so that it ends.
        self.shared.close();
        if let Some(poll_descriptor) = self.shared.poll_descriptor.get() {
            poll_descriptor.dismiss();
        }
    }
}
