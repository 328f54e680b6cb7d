//! How a consumer takes a message from the ring.

use crossdock_layout::queue::state::{Phase, State};
use crossdock_layout::queue::{RETAINED, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use super::Pattern;
use super::cell::CellRef;
use super::error::{Attempt, Error, corrupt};
use super::message::Message;
use super::ring::Ring;

/// A limit for one attempt to take a message. A consumer skips a message that its producer is still writing, and goes
/// back to it when the producer has finished. After this many steps back, the attempt ends without a message.
const MOST_STEPS_BACK: u32 = 64;

impl Ring {
    /// Puts the next message for this consumer into `out` and gives the message's position. `next` is the consumer's
    /// own cursor, in the patterns in which each consumer has one.
    #[inline]
    pub(super) fn try_receive(&self, next: &mut u64, end: u8, out: &mut Message) -> Attempt<u64> {
        match self.shape.pattern {
            Pattern::OneToOne | Pattern::FanOut => self.read_next(next, end, out),
            Pattern::FanIn | Pattern::WorkQueue => self.take_any(end, out),
        }
    }

    /// Reads the messages one after the other, for the patterns one-to-one and fan-out. A message stays ready until its
    /// consumer releases it. If a consumer dies, its successor begins one lap (the number of cells) back, and so finds
    /// the messages that the dead consumer had not released.
    #[inline]
    fn read_next(&self, next: &mut u64, end: u8, out: &mut Message) -> Attempt<u64> {
        let position = *next;
        let cell = self.cell(position);
        // In most cases the cell at `next` has the message, so this function looks at this cell only. Otherwise
        // `look_for_next` searches.
        let ready = cell.state() == State::ready(self.lap(position));
        if ready && self.shape.pattern == Pattern::OneToOne {
            cell.get(out)?;
            *next = position.wrapping_add(1);
            return Ok(Some(position));
        }
        self.look_for_next(next, end, out)
    }

    fn look_for_next(&self, next: &mut u64, end: u8, out: &mut Message) -> Attempt<u64> {
        for _ in 0..2 * self.capacity() + 2 {
            let position = *next;
            let (cell, lap) = (self.cell(position), self.lap(position));
            let seen = cell.state();
            let alone = self.shape.pattern == Pattern::OneToOne;
            match seen.phase() {
                // The cell is still in use for the message of the lap before. So no producer has written a message at
                // this position yet: the ring is full, and this consumer has read all messages in it.
                Some(phase) if seen.lap() + 1 == lap && phase != Phase::Free => return Ok(None),
                Some(Phase::Free | Phase::Claimed) if seen.lap() == lap => return Ok(None),
                Some(Phase::Ready) if seen.lap() == lap => {
                    if alone || self.is_for(cell, seen, end) {
                        cell.get(out)?;
                        *next = position.wrapping_add(1);
                        return Ok(Some(position));
                    }
                }
                // This consumer skips the cell, for one of three reasons: a former consumer in the same end slot
                // released the message; the message was made void, because its producer died or left before the message
                // was complete; or (fan-out) the message was never for this consumer. If several producers died while
                // they wrote to this cell, the cell's lap is more than one greater than `lap`.
                Some(_) if seen.lap() > lap => {}
                _ => return Err(wrong(position, seen)),
            }
            *next = position.wrapping_add(1);
        }
        Ok(None)
    }

    /// Fan-out: tells whether the message in this cell is for this consumer. The cell was ready when its state was
    /// `seen`. A message that was sent while there was no consumer goes to the first consumer that comes.
    fn is_for(&self, cell: CellRef<'_>, seen: State, end: u8) -> bool {
        let own = 1 << end;
        let shares = cell.shares();
        // If this consumer's bit is not set, a producer may reuse the cell at any moment. In this case `shares` belongs
        // to the message only if the cell's state is the same before and after `shares` was read. If the bit is set,
        // the cell cannot be reused until this consumer releases it.
        let same = || cell.state() == seen;
        if !same() {
            return false;
        }
        shares & own != 0 || (shares == RETAINED && cell.adopt_retained(own) && same())
    }

    /// Takes the oldest message that is ready, for the patterns fan-in and work queue. Messages that are still being
    /// written are skipped, so that a producer that was stopped while writing delays no consumer.
    ///
    /// While this call looks at the cells after a skipped message, the producer of that message may finish it and also
    /// a later one. So before this call takes a message, it looks at the skipped cells once more, and takes a finished
    /// one first. In this way the messages of one producer keep their order.
    fn take_any(&self, end: u8, out: &mut Message) -> Attempt<u64> {
        let taking = &self.header().taking;
        let returned = taking.returned.load(Acquire);
        if returned != taking.returned_seen.load(Acquire) {
            if let Some(taken) = self.take_returned(end, out)? {
                return Ok(Some(taken));
            }
            taking.returned_seen.fetch_max(returned, AcqRel);
        }
        let mut position = taking.tail.load(Acquire);
        let mut all_taken = true;
        let mut skipped = None;
        // After each step back, the search may go through the whole ring again. A correct producer causes a step back
        // only by finishing a message. A faulty producer could cause steps back for ever, so their number is limited.
        let all = 2 * self.capacity() + 2;
        let (mut left, mut steps_back) = (all, 0);
        while left > 0 && steps_back < MOST_STEPS_BACK {
            left -= 1;
            let (cell, lap) = (self.cell(position), self.lap(position));
            let seen = cell.state();
            match seen.phase() {
                Some(phase) if seen.lap() + 1 == lap && phase != Phase::Free => return Ok(None),
                Some(Phase::Free) if seen.lap() == lap => return Ok(None),
                Some(Phase::Claimed) if seen.lap() == lap => {
                    all_taken = false;
                    skipped = skipped.or(Some(position));
                }
                Some(Phase::Ready) if seen.lap() == lap => {
                    let ready = |position: &u64| self.cell(*position).state() == State::ready(self.lap(*position));
                    if let Some(finished) = skipped.and_then(|first| (first..position).find(ready)) {
                        position = finished;
                        (left, steps_back) = (all, steps_back + 1);
                        continue;
                    }
                    if !self.take(cell, lap, end) {
                        continue;
                    }
                    if all_taken {
                        self.advance_tail(position);
                    }
                    cell.get(out)?;
                    return Ok(Some(position));
                }
                Some(phase) if seen.lap() >= lap => {
                    if all_taken {
                        self.advance_tail(position);
                        if phase == Phase::Taken {
                            self.look_again(position);
                        }
                    }
                }
                _ => return Err(wrong(position, seen)),
            }
            position = position.wrapping_add(1);
        }
        Ok(None)
    }

    /// Takes a message at a position before the ring's tail. Such a message became ready again because the consumer
    /// that had taken it died or left.
    #[cold]
    fn take_returned(&self, end: u8, out: &mut Message) -> Attempt<u64> {
        // This fence pairs with the fences in `look_again` and `give_back_taken`. Either the load below sees the tail
        // that another consumer moved, or that consumer sees that the message is ready again, and increments
        // `returned`.
        fence(SeqCst);
        let tail = self.header().taking.tail.load(Acquire);
        for position in tail.saturating_sub(self.capacity())..tail {
            let (cell, lap) = (self.cell(position), self.lap(position));
            if cell.state() == State::ready(lap) && self.take(cell, lap, end) {
                cell.get(out)?;
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Tells whether there is a message to take, for the patterns fan-in and work queue.
    pub(super) fn anything_ready(&self) -> bool {
        self.cells().any(|cell| cell.state().phase() == Some(Phase::Ready))
    }

    fn take(&self, cell: CellRef<'_>, lap: u64, end: u8) -> bool {
        let won = cell.change(State::ready(lap), State::taken(lap, end));
        if won {
            crate::fault_point!("queue.receive.taken");
        }
        won
    }

    /// Moves the ring's tail past a cell whose message was taken or released. The tail never moves back. If a message
    /// at a position before the tail becomes ready again, because its consumer died or left, the counter `returned`
    /// changes, and the tail stays where it is.
    fn advance_tail(&self, position: u64) {
        let _ = self.header().taking.tail.compare_exchange(position, position.wrapping_add(1), AcqRel, Relaxed);
    }

    /// Looks again at a cell whose message another consumer had when this call moved the tail past the cell. The
    /// message may have become ready again just before the tail moved, and the counter `returned` was then incremented.
    /// A third consumer that noticed this may have searched only the positions before the old tail, and so missed the
    /// message. So if the message is ready, this function increments `returned` a second time.
    fn look_again(&self, position: u64) {
        fence(SeqCst);
        if self.cell(position).state() == State::ready(self.lap(position)) {
            self.header().taking.returned.fetch_add(1, SeqCst);
        }
    }
}

#[cold]
fn wrong(position: u64, seen: State) -> Error {
    corrupt(format_args!("the cell of message {position} has state {:#x}", seen.0))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{End, Pattern, Ring, Shape, Side};
    use super::*;
    use crate::Host;
    use crate::host::StandaloneHost;
    use crossdock_layout::MemberId;
    use crossdock_os::{Access, Deadline, Mapping, memfd};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_cell_in_which_two_producers_died_one_after_the_other_is_skipped() {
        let shape = Shape { pattern: Pattern::OneToOne, capacity: 1 };
        let memory = memfd::create("port", shape.size()).unwrap();
        let host = Arc::new(StandaloneHost::default());
        let member = |number: u64| MemberId::new(number, number as usize);
        let open = |number| {
            let mapping = Mapping::new(&memory, shape.size() as usize, Access::ReadWrite).unwrap();
            Ring::open(mapping, shape, member(number), host.liveness(), Deadline::after(Duration::from_secs(5)))
                .unwrap()
        };
        let end =
            |number, side| End::open(open(number), side, member(number), "end", host.clone(), Duration::ZERO).unwrap();
        let consumer = end(1, Side::Consumer);
        for dead in 2..4 {
            let ring = open(dead);
            let joined = ring.join(Side::Producer, member(dead), "dead", host.liveness(), true).unwrap();
            // Acts as a producer that is killed after it has claimed the cell. Then acts as the member that heals this
            // producer's end: makes the message void and frees the end.
            ring.cell(joined.next).claim_alone(State::claimed(ring.lap(joined.next), joined.slot));
            ring.settle(Side::Producer, joined.slot);
            ring.slot(ring.slot_index(Side::Producer, joined.slot)).free();
        }
        let producer = end(4, Side::Producer);
        producer.send(&Message { tag: 7, ..Message::default() }, 0, Duration::ZERO).unwrap();
        assert_eq!(consumer.receive(Duration::from_millis(100)).unwrap().1.tag, 7);
    }
}
