//! How a consumer releases a message: it gives the message's cell back to the producers. It may release its messages
//! in any order.

use crossdock_layout::Status;
use crossdock_layout::queue::state::{Phase, State};

use super::Pattern;
use super::cell::CellRef;
use super::error::Error;
use super::message::Message;
use super::ring::Ring;

impl Ring {
    /// Releases the message at `position`, which this end has received. `next` is the consumer's own cursor, in the
    /// patterns in which each consumer has one. If the result is `true`, the cell is free now, and the caller wakes
    /// the producers. A cell of a fan-out becomes free when the last of its consumers releases it.
    #[inline]
    pub(super) fn release(&self, position: u64, next: u64, end: u8) -> Result<bool, Error> {
        let (cell, seen) = self.received(position, next, end)?;
        if self.shape.pattern == Pattern::FanOut {
            // The consumer that clears the last bit frees the cell. If that consumer dies between these two steps, the
            // cell stays ready without any bit. A producer never makes such a cell, so the member that heals the port
            // knows that it has to free the cell.
            let own = 1 << end;
            let before = cell.drop_share(own);
            if before & own == 0 {
                return Err(not_yours(position));
            }
            crate::fault_point!("queue.release.share");
            if before != own {
                return Ok(false);
            }
            self.set_free(cell, seen);
        } else if !self.set_free(cell, seen) {
            return Err(not_yours(position));
        }
        crate::fault_point!("queue.release.freed");
        Ok(true)
    }

    /// Reads again a message that this end has received and not released. `next` has the same meaning as for `release`.
    pub(super) fn read_again(&self, position: u64, next: u64, end: u8, out: &mut Message) -> Result<(), Error> {
        self.received(position, next, end)?.0.get(out)
    }

    /// Gives the cell of a message, and the cell's state, if this end has received the message and not released it.
    #[inline]
    fn received(&self, position: u64, next: u64, end: u8) -> Result<(CellRef<'_>, State), Error> {
        let (cell, lap) = (self.cell(position), self.lap(position));
        let seen = cell.state();
        let is_own = match self.shape.pattern {
            Pattern::OneToOne => position < next && seen == State::ready(lap),
            Pattern::FanIn | Pattern::WorkQueue => seen == State::taken(lap, end),
            Pattern::FanOut => position < next && seen == State::ready(lap) && cell.shares() & (1 << end) != 0,
        };
        if is_own { Ok((cell, seen)) } else { Err(not_yours(position)) }
    }

    /// Frees a cell for the next lap, if its state is still `seen` (ready or taken). If the message had a handle, the
    /// handle stays in the cell as a credit, which a producer can take.
    #[inline]
    pub(super) fn set_free(&self, cell: CellRef<'_>, seen: State) -> bool {
        debug_assert!(matches!(seen.phase(), Some(Phase::Ready | Phase::Taken)));
        cell.change(seen, State::free(seen.lap() + 1, cell.has_handle()))
    }
}

#[cold]
pub(super) fn not_yours(position: u64) -> Error {
    Error::new(
        Status::Invalid,
        format!("message {position} was released already, or was never received at this end; release each once"),
    )
}
