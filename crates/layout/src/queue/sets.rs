//! The closed sets of ports.

use super::{MAX_CONSUMERS, MAX_PRODUCERS};
use crate::closed_set;

closed_set! {
    /// Which tasks may send through a port, and which get each message.
    pub enum Pattern {
        /// One producer and one consumer. The order is kept.
        OneToOne = 0 "one-to-one",
        /// One producer. Each consumer (at most 31) gets each message that was sent since it came.
        FanOut = 1 "fan-out",
        /// Up to 32 producers and one consumer. The order of each producer is kept.
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
        /// The side that sends and gets credits back.
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
        /// Spins while that pays and a CPU is free, and then sleeps.
        Adaptive = 0 "adaptive",
        /// Spins until the deadline, for a task that has a CPU of its own.
        Spin = 1 "spin",
        /// Sleep at once.
        Block = 2 "block",
    }
}

closed_set! {
    /// How the last member left a side. The greater value wins until a member comes to that side again.
    pub enum Departure {
        /// No member has left since the last one came.
        None = 0 "none",
        /// The last member that left did so in order.
        Left = 1 "left",
        /// A member died, and no member has come since.
        Died = 2 "died",
    }
}
