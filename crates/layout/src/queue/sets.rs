//! The closed sets of ports.

use super::{MAX_CONSUMERS, MAX_PRODUCERS};
use crate::closed_set;

closed_set! {
    /// Who may send through a port, and who gets what.
    pub enum Pattern {
        /// One producer, one consumer; order kept.
        OneToOne = 0 "one-to-one",
        /// One producer; each consumer (at most 31) sees each message sent since it came.
        FanOut = 1 "fan-out",
        /// Up to 32 producers, one consumer; each producer's order kept.
        FanIn = 2 "fan-in",
        /// Up to 32 producers, up to 31 consumers; each message goes to one of them.
        WorkQueue = 3 "work-queue",
    }
}

impl Pattern {
    /// Do several producers share the sending side?
    #[must_use]
    pub const fn many_produce(self) -> bool {
        matches!(self, Self::FanIn | Self::WorkQueue)
    }

    /// Do several consumers share the receiving side?
    #[must_use]
    pub const fn many_consume(self) -> bool {
        matches!(self, Self::FanOut | Self::WorkQueue)
    }

    /// Ends that a side has.
    #[must_use]
    pub const fn places(self, side: Side) -> usize {
        match side {
            Side::Producer if self.many_produce() => MAX_PRODUCERS,
            Side::Consumer if self.many_consume() => MAX_CONSUMERS,
            _ => 1,
        }
    }
}

closed_set! {
    /// The two sides of a port.
    pub enum Side {
        /// Sends, and gets credits back.
        Producer = 0 "producer",
        /// Receives, and releases.
        Consumer = 1 "consumer",
    }
}

impl Side {
    /// The opposite one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Producer => Self::Consumer,
            Self::Consumer => Self::Producer,
        }
    }
}

closed_set! {
    /// How an end of a port waits.
    pub enum Waiting {
        /// Spin while it pays and a CPU is to spare, then sleep.
        Adaptive = 0 "adaptive",
        /// Spin until the deadline (for a CPU of one's own).
        Spin = 1 "spin",
        /// Sleep at once.
        Block = 2 "block",
    }
}

closed_set! {
    /// How the last member left a side. Greater wins until a member comes to that side again.
    pub enum Departure {
        /// No member left since the last one came.
        None = 0 "none",
        /// The last one that left did so in order.
        Left = 1 "left",
        /// One died, and none came after it.
        Died = 2 "died",
    }
}
