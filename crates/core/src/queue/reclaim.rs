//! Credits: the handles of released messages go back to the producers, the oldest first. A producer gets each handle
//! only once.

use crossdock_layout::Handle;
use crossdock_layout::queue::fence;
use crossdock_layout::queue::state::{Phase, State};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::error::{Attempt, corrupt};
use super::produce::CellAvailability;
use super::ring::Ring;

impl Ring {
    /// Takes the oldest handle that no consumer reads any more. The result is `Some(None)` if there is no such handle,
    /// and `None` ("not yet") if the cell for the next message is not free. The function does not wait.
    ///
    /// A credit is the right to use a message's buffer again. If a producer dies after it took a credit, the buffer is
    /// treated like the producer's other buffers: the region's heap frees them when it is healed. If a producer sends
    /// into a cell whose credit was not taken, the credit is dropped.
    pub(super) fn try_reclaim(&self, next: u64) -> Attempt<Option<Handle>> {
        let head = if self.shape.pattern.many_produce() {
            match self.free_position()? {
                Some((position, _)) => position,
                None => return Ok(None),
            }
        } else {
            match self.room(self.cell(next), self.lap(next))? {
                CellAvailability::Free(_) => next,
                CellAvailability::Full => return Ok(None),
                CellAvailability::Past => {
                    return Err(corrupt(format_args!("message {next} was sent by another member")));
                }
            }
        };
        Ok(Some(self.take_credit(head)))
    }

    fn take_credit(&self, head: u64) -> Option<Handle> {
        let hint = &self.header().sending.credit;
        let oldest = head.saturating_sub(self.capacity());
        let from = Some(hint.load(Relaxed)).filter(|from| (oldest..=head).contains(from)).unwrap_or(oldest);
        let mut settled = from;
        let mut found = None;
        for position in from..head {
            let (cell, lap) = (self.cell(position), self.lap(position));
            let seen = cell.state();
            if seen.lap() <= lap {
                continue; // not released yet: its credit is still to come
            }
            if seen.phase() == Some(Phase::Free) && seen.has_credit() && seen.lap() == lap + 1 {
                let handle = cell.handle();
                // The handle belongs to the state `seen` only if the cell still has that state after the handle was
                // read.
                fence(Acquire);
                if cell.change(seen, State::free(seen.lap(), false)) {
                    crate::fault_point!("queue.reclaim.taken");
                    found = Some(handle);
                }
            }
            if settled == position {
                settled += 1;
            }
            if found.is_some() {
                break;
            }
        }
        if settled != from {
            // The stored position is only a hint where to begin the next search. If several producers store it at the
            // same time, it may become smaller, which only makes the next search longer.
            hint.store(settled, Relaxed);
        }
        found
    }
}
