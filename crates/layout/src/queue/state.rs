//! The state word of a port's cell.
//!
//! ```text
//! 63                                              12 11         4  3  2   0
//! +-------------------------------------------------+------------+--+-----+
//! |                       lap                       |    end     |C |phase|
//! +-------------------------------------------------+------------+--+-----+
//! ```
//!
//! | phase | meaning | next phase |
//! |---|---|---|
//! | 0 free | free for the lap `lap`; C: a producer can take back the handle in the cell | claimed, by a producer |
//! | 1 claimed | the producer `end` is writing the message | ready, by this producer |
//! | 2 ready | the message is complete | taken (fan-in, work queue) or free for the next lap, by a consumer |
//! | 3 taken | the consumer `end` has the message (fan-in, work queue) | free for the next lap, by this consumer |
//!
//! If the producer of a claimed cell is dead, healing makes the cell free for the next lap. If the consumer of a taken
//! cell is gone, healing makes the cell ready again. A producer that takes a handle back clears the bit C (credit).
//!
//! In zeroed memory all cells are free and have lap 0. A cell's lap never decreases.

const END_SHIFT: u32 = 4;
const LAP_SHIFT: u32 = 12;
const CREDIT: u64 = 1 << 3;

/// The phase of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The cell is free, and a producer may claim it.
    Free,
    /// A producer is writing the message.
    Claimed,
    /// The message is complete, and a consumer may take it.
    Ready,
    /// A consumer has taken the message.
    Taken,
}

/// The value of a state word, for decoding. The value is a copy of the word, so changing it does not change the cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(pub u64);

impl State {
    /// The state of a free cell of this lap. With `credit`, the handle of the previous lap's message can still be taken
    /// back by a producer.
    pub const fn free(lap: u64, credit: bool) -> Self {
        Self(lap << LAP_SHIFT | if credit { CREDIT } else { 0 })
    }

    /// The state of a cell into which the producer at this end is writing a message.
    pub const fn claimed(lap: u64, end: u8) -> Self {
        Self(lap << LAP_SHIFT | (end as u64) << END_SHIFT | 1)
    }

    /// The state of a cell with a complete message of this lap.
    pub const fn ready(lap: u64) -> Self {
        Self(lap << LAP_SHIFT | 2)
    }

    /// The state of a cell whose message the consumer at this end has taken.
    pub const fn taken(lap: u64, end: u8) -> Self {
        Self(lap << LAP_SHIFT | (end as u64) << END_SHIFT | 3)
    }

    /// The lap of the cell, 52 bits.
    pub const fn lap(self) -> u64 {
        self.0 >> LAP_SHIFT
    }

    /// The end that claimed or took the cell.
    pub const fn end(self) -> u8 {
        (self.0 >> END_SHIFT) as u8
    }

    /// Tells whether the cell is free for this lap, with or without a credit.
    pub const fn is_free(self, lap: u64) -> bool {
        self.0 & !CREDIT == Self::free(lap, false).0
    }

    /// Tells whether the cell's handle is a credit, which a producer can take back.
    pub const fn has_credit(self) -> bool {
        self.0 & CREDIT != 0
    }

    /// The phase of the cell; `None` for a word that no correct member writes.
    pub const fn phase(self) -> Option<Phase> {
        match (self.0 & 7, self.has_credit(), self.end()) {
            (0, _, 0) => Some(Phase::Free),
            (1, false, _) => Some(Phase::Claimed),
            (2, false, 0) => Some(Phase::Ready),
            (3, false, _) => Some(Phase::Taken),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_lap_end_and_phase() {
        let lap = (1 << 52) - 1;
        for (state, phase, end) in [
            (State::free(lap, false), Phase::Free, 0),
            (State::free(lap, true), Phase::Free, 0),
            (State::claimed(lap, 31), Phase::Claimed, 31),
            (State::ready(lap), Phase::Ready, 0),
            (State::taken(lap, 30), Phase::Taken, 30),
        ] {
            assert_eq!((state.lap(), state.phase(), state.end()), (lap, Some(phase), end), "{state:?}");
        }
        assert!(State::free(1, true).has_credit() && !State::free(1, false).has_credit());
    }

    #[test]
    fn zeroed_memory_is_a_free_cell_of_lap_0() {
        assert_eq!(State(0), State::free(0, false));
    }

    #[test]
    fn words_that_no_member_writes_have_no_phase() {
        for word in [4, 5, 6, 7, 8 | 1, 8 | 2, 8 | 3, 1 << 4, 1 << 4 | 2] {
            assert_eq!(State(word).phase(), None, "{word:#x}");
        }
    }
}
