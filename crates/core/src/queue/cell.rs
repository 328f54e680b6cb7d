//! The only code that loads and stores the words of a port's cells. All of them are in shared memory, and any member
//! can overwrite them.
//!
//! The state word is compared and never trusted: an end acts on a cell only if the word has the value that the end
//! expects, and any other value gives an error. The length of the inline bytes is checked before it is used.

use crossdock_layout::Handle;
use crossdock_layout::queue::state::State;
use crossdock_layout::queue::{AtomicU64, Cell, RETAINED, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::error::Error;
use super::message::{InlineLength, Message};

/// A cell of a port that this process has mapped.
#[derive(Clone, Copy)]
pub(super) struct CellRef<'a>(&'a Cell);

impl<'a> CellRef<'a> {
    #[inline]
    pub(super) fn new(cell: &'a Cell) -> Self {
        Self(cell)
    }

    /// Loads the cell's state with Acquire ordering. So what the state's writer wrote before it stored the state is
    /// visible after this call.
    #[inline]
    pub(super) fn state(self) -> State {
        State(self.0.state.load(Acquire))
    }

    /// The state word, for an end that spins until the word changes.
    #[inline]
    pub(super) fn watched(self) -> &'a AtomicU64 {
        &self.0.state
    }

    /// Replaces the state `from` by `to`, unless another member was faster. Gives `true` if the state was replaced.
    #[inline]
    pub(super) fn change(self, from: State, to: State) -> bool {
        self.0.state.compare_exchange(from.0, to.0, AcqRel, Relaxed).is_ok()
    }

    /// Stores the state `claimed` in a port with one producer. A plain store is enough, because only the producer
    /// writes to a free cell.
    #[inline]
    pub(super) fn claim_alone(self, claimed: State) {
        self.0.state.store(claimed.0, Relaxed);
        fence(Release);
    }

    /// Stores the state `ready` after the message was written, in a port with one producer.
    #[inline]
    pub(super) fn publish_alone(self, ready: State) {
        self.0.state.store(ready.0, Release);
    }

    /// Replaces the state `claimed` by `ready` after the message was written, in a port with several producers. Gives
    /// `false` if another member has changed the state.
    #[inline]
    pub(super) fn publish(self, claimed: State, ready: State) -> bool {
        self.0.state.compare_exchange(claimed.0, ready.0, Release, Relaxed).is_ok()
    }

    /// Writes a message into a cell that the caller's end has claimed. After that, the caller publishes the message.
    #[inline]
    pub(super) fn put(self, message: &Message) {
        let Handle { segment, offset } = message.handle;
        self.0.handle[0].store(segment, Relaxed);
        self.0.handle[1].store(offset, Relaxed);
        crate::fault_point!("queue.send.half");
        self.0.tag.store(message.tag, Relaxed);
        message.inline.store(&self.0.inline_len, &self.0.inline);
    }

    /// Reads the message from a cell that [`Self::state`] showed as ready. No other member changes the cell until the
    /// caller's end releases the message. The caller sets the message's position.
    #[inline]
    pub(super) fn get(self, message: &mut Message) -> Result<(), Error> {
        let length = InlineLength::check(self.0.inline_len.load(Relaxed))?;
        message.handle = self.handle();
        message.tag = self.0.tag.load(Relaxed);
        message.inline.load(length, &self.0.inline);
        Ok(())
    }

    /// The handle in the cell. If the cell is free and its state has the bit for a credit, this is the handle of the
    /// previous lap's message, which consumers have released.
    #[inline]
    pub(super) fn handle(self) -> Handle {
        Handle { segment: self.0.handle[0].load(Relaxed), offset: self.0.handle[1].load(Relaxed) }
    }

    /// Tells whether the message has a handle.
    #[inline]
    pub(super) fn has_handle(self) -> bool {
        self.0.handle[0].load(Relaxed) != 0
    }

    /// Fan-out: the consumers that have not released the message yet, one bit for each. The value is [`RETAINED`] if
    /// the message was sent while there was no consumer.
    #[inline]
    pub(super) fn shares(self) -> u32 {
        self.0.pending.load(Acquire)
    }

    /// Fan-out: stores the consumers that are to receive the message, one bit for each. The caller has claimed the
    /// cell, and publishes the message after this call.
    #[inline]
    pub(super) fn set_shares(self, audience: u32) {
        self.0.pending.store(if audience == 0 { RETAINED } else { audience }, Relaxed);
    }

    /// Fan-out: clears a consumer's bit. Returns the bits that were set before.
    #[inline]
    pub(super) fn drop_share(self, own: u32) -> u32 {
        self.0.pending.fetch_and(!own, AcqRel)
    }

    /// Fan-out: if the message was sent while there was no consumer, gives the message to the consumer with the bit
    /// `own`. Returns `false` if another consumer was faster.
    #[inline]
    pub(super) fn adopt_retained(self, own: u32) -> bool {
        self.0.pending.compare_exchange(RETAINED, own, AcqRel, Acquire).is_ok()
    }
}
