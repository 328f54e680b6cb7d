//! The closed sets that describe ports: patterns, sides, ways to wait, departures.

use super::{MAX_CONSUMERS, MAX_PRODUCERS};
use crate::closed_set;

closed_set! {
    /// Which tasks may send through a port, and which get each message.
    pub enum Pattern {
        /// One producer and one consumer; messages keep their order.
        OneToOne = 0 "one-to-one",
        /// One producer, up to 31 consumers; each message goes to all present consumers.
        FanOut = 1 "fan-out",
        /// Up to 32 producers and one consumer. The messages of each producer keep their order.
        FanIn = 2 "fan-in",
        /// Up to 32 producers, up to 31 consumers; each message goes to one consumer.
        WorkQueue = 3 "work-queue",
    }
}

impl Pattern {
    /// Tells whether a port of this pattern may have several producers.
    #[must_use]
    pub const fn many_produce(self) -> bool {
        matches!(self, Self::FanIn | Self::WorkQueue)
    }

    /// Tells whether several consumers share the messages on the receiving side.
    #[must_use]
    pub const fn many_consume(self) -> bool {
        matches!(self, Self::FanOut | Self::WorkQueue)
    }

    /// The number of end slots that a side has.
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
        /// The side that sends messages and gets credits back.
        Producer = 0 "producer",
        /// The side that receives messages and releases them.
        Consumer = 1 "consumer",
    }
}

impl Side {
    /// Gives the opposite side.
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
        /// Spins while spinning saves time and a CPU is free, and then sleeps.
        Adaptive = 0 "adaptive",
        /// Spins until the deadline, for a task that has a CPU of its own.
        Spin = 1 "spin",
        /// Sleeps immediately, without spinning.
        Block = 2 "block",
    }
}

closed_set! {
    /// How the last member left one side of a port. If a member of the side died, the value is `Died`. It remains
    /// `Died` when other members then close their ends, until a member joins that side again.
    pub enum Departure {
        /// No member has left this side since a member last joined it.
        None = 0 "none",
        /// The last member that left this side has closed its end.
        Left = 1 "left",
        /// A member of this side died, and no member has joined this side since.
        Died = 2 "died",
    }
}
