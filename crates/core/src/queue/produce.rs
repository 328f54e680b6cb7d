//! How a producer sends a message.

use crossdock_layout::Status;
use crossdock_layout::queue::state::{Phase, State};
use crossdock_layout::queue::{RETAINED, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::Pattern;
use super::cell::CellRef;
use super::error::{Attempt, Error, corrupt};
use super::message::Message;
use super::ring::Ring;

impl Ring {
    /// Puts a message into the next free cell and publishes it. Gives the message's position. After that, the caller
    /// wakes the consumers. If the port has only one producer, `next` is that producer's next position.
    #[inline]
    pub(super) fn try_send(&self, next: &mut u64, end: u8, message: &Message) -> Attempt<u64> {
        if self.shape.pattern.many_produce() {
            return self.try_send_among_many(end, message);
        }
        let position = *next;
        let (cell, lap) = (self.cell(position), self.lap(position));
        match self.room(cell, lap)? {
            CellAvailability::Free(_) => {}
            CellAvailability::Full => return Ok(None),
            CellAvailability::Past => {
                return Err(corrupt(format_args!("message {position} was sent by another member")));
            }
        }
        // A plain store is enough, because a port of this pattern has only one producer, and only producers write to
        // free cells. The state contains the number of this producer's end. If this member dies before it marks the
        // message as ready, the next producer finds the end's dead owner, heals the end and frees the cell.
        cell.claim_alone(State::claimed(lap, end));
        crate::fault_point!("queue.send.claimed");
        cell.put(message);
        if self.shape.pattern == Pattern::FanOut {
            let audience = self.header().counters.audience.load(SeqCst) & !RETAINED;
            cell.set_shares(audience);
        }
        crate::fault_point!("queue.send.filled");
        cell.publish_alone(State::ready(lap));
        crate::fault_point!("queue.send.ready");
        *next = position.wrapping_add(1);
        self.header().sending.head.store(*next, Release);
        crate::fault_point!("queue.send.counted");
        Ok(Some(position))
    }

    /// Sends a message to a port with several producers. A producer claims a cell by compare-and-swap. The cell's
    /// state then contains the number of the producer's end, so that other members can free the cell if the producer
    /// dies.
    fn try_send_among_many(&self, end: u8, message: &Message) -> Attempt<u64> {
        // A pass of this loop fails only if another producer claimed the cell first, or took the cell's credit. So at
        // least one producer makes progress in each pass, and this loop waits for none of them. The number of passes is
        // limited, because a faulty member could make each pass fail. After the last pass the caller waits, with its
        // deadline.
        for _ in 0..64 {
            let Some((position, free)) = self.free_position()? else { return Ok(None) };
            let (cell, lap) = (self.cell(position), self.lap(position));
            let claimed = State::claimed(lap, end);
            if !cell.change(free, claimed) {
                continue;
            }
            fence(Release);
            crate::fault_point!("queue.send.claimed");
            self.advance(position);
            cell.put(message);
            crate::fault_point!("queue.send.filled");
            if !cell.publish(claimed, State::ready(lap)) {
                // Another member has changed the cell that this thread claimed. Only a member that heals this end may
                // do that. So the daemon has declared this process dead although it still runs.
                return Err(Error::new(
                    Status::Disconnected,
                    "this member was declared dead while it was sending; connect again",
                ));
            }
            crate::fault_point!("queue.send.ready");
            return Ok(Some(position));
        }
        Ok(None)
    }

    /// Finds the first free position and its cell's state, for several producers. `None` if the ring is full.
    pub(super) fn free_position(&self) -> Attempt<(u64, State)> {
        let head = &self.header().sending.head;
        for _ in 0..4 * self.capacity() + 64 {
            let position = head.load(Acquire);
            match self.room(self.cell(position), self.lap(position))? {
                CellAvailability::Free(state) => return Ok(Some((position, state))),
                CellAvailability::Full => return Ok(None),
                CellAvailability::Past => self.advance(position),
            }
        }
        Ok(None)
    }

    /// Moves the head, which all producers share, past a position whose cell a producer has claimed.
    fn advance(&self, position: u64) {
        let _ = self.header().sending.head.compare_exchange(position, position.wrapping_add(1), AcqRel, Relaxed);
    }

    /// Says whether a producer can send its message of lap `lap` in this cell.
    #[inline]
    pub(super) fn room(&self, cell: CellRef<'_>, lap: u64) -> Result<CellAvailability, Error> {
        let seen = cell.state();
        if seen.is_free(lap) { Ok(CellAvailability::Free(seen)) } else { Self::no_room(seen, lap) }
    }

    fn no_room(seen: State, lap: u64) -> Result<CellAvailability, Error> {
        match seen.phase() {
            Some(Phase::Claimed | Phase::Ready | Phase::Taken) if seen.lap() + 1 == lap => Ok(CellAvailability::Full),
            Some(_) if seen.lap() >= lap => Ok(CellAvailability::Past),
            _ => Err(corrupt(format_args!("a cell's state is {:#x} where lap {lap} was due", seen.0))),
        }
    }
}

/// What a producer finds when it wants to use a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CellAvailability {
    /// The cell is free; this is its state word.
    Free(State),
    /// The message of the previous lap is still in the cell.
    Full,
    /// Another producer has already claimed the cell for this lap, or sent its message in it.
    Past,
}
