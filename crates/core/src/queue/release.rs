//! A consumer gives a message's cell back to the producers, in any order.

use crossdock_layout::Status;
use crossdock_layout::queue::state::{Phase, State};

use super::Pattern;
use super::cell::CellRef;
use super::error::Error;
use super::ring::Ring;

impl Ring {
    /// Releases the message at `position`, which this end has received. The caller then wakes the producers. `next` is
    /// the consumer's own cursor, if the pattern gives it one. The result is `true` if the cell is free now. A
    /// fan-out's cell is free only after its last consumer.
    #[inline]
    pub(super) fn release(&self, position: u64, next: u64, end: u8) -> Result<bool, Error> {
        let (cell, lap) = (self.cell(position), self.lap(position));
        let seen = cell.state();
        let freed = match self.shape.pattern {
            Pattern::OneToOne => position < next && seen == State::ready(lap) && self.set_free(cell, seen),
            Pattern::FanIn | Pattern::WorkQueue => seen == State::taken(lap, end) && self.set_free(cell, seen),
            Pattern::FanOut => {
                let own = 1 << end;
                let mine = position < next && seen == State::ready(lap) && cell.shares() & own != 0;
                // The consumer that clears the last bit frees the cell. If it dies after it cleared the bit and before
                // it freed the cell, the cell stays ready without any bit. A publish never makes a ready cell without a
                // bit, so healing knows what happened.
                let before = if mine { cell.drop_share(own) } else { 0 };
                if before & own == 0 {
                    return Err(not_yours(position));
                }
                crate::fault_point!("queue.release.share");
                if before != own {
                    return Ok(false);
                }
                self.set_free(cell, seen);
                true
            }
        };
        if !freed {
            return Err(not_yours(position));
        }
        crate::fault_point!("queue.release.freed");
        Ok(true)
    }

    /// Frees a cell for the next lap, if its state is still `seen` (ready or taken). If the cell has a handle, the
    /// handle is a credit from now on.
    #[inline]
    pub(super) fn set_free(&self, cell: CellRef<'_>, seen: State) -> bool {
        debug_assert!(matches!(seen.phase(), Some(Phase::Ready | Phase::Taken)));
        cell.change(seen, State::free(seen.lap() + 1, cell.has_handle()))
    }
}

#[cold]
fn not_yours(position: u64) -> Error {
    Error::new(
        Status::Invalid,
        format!("message {position} was released already, or was never received at this end; release each once"),
    )
}
