//! The contents of a port's segment: header, table of ends, ring of cells. `docs/memory-format-ports.md` has pictures.
//!
//! Every reader must check what it reads. Each field says who writes it, who reads it, and what a stale value costs;
//! `core::queue` has the protocol. Positions count messages from 0 and never start again. A position's cell is
//! `position % capacity`, and its lap is `position / capacity`.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};

// Under `--cfg loom` the same protocol code runs on loom's atomics, which explore every interleaving.
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::WildWord;

mod sets;
pub mod state;

pub use sets::{Departure, Pattern, Side, Waiting};

/// First word of a port's segment.
pub const PORT_MAGIC: u64 = u64::from_le_bytes(*b"xdockprt");
/// Changes with every change of the structs in this file. Builds with different fingerprints refuse each other.
pub const PORT_FINGERPRINT: u32 = 0x0002_c0de;
/// The value of `init` in a formatted port. Before that, `init` is the member that formats the port, or 0.
pub const PORT_READY: u64 = u64::MAX;
/// Set in an end's `owner` while the member in the other bits heals the end.
pub const HEALING: u64 = 1 << 63;
/// The number of producers' ends of a port.
pub const MAX_PRODUCERS: usize = 32;
/// The number of consumers' ends of a port: one less than the bits of `pending`, whose last bit is [`RETAINED`].
pub const MAX_CONSUMERS: usize = 31;
/// The largest number of cells of a port.
pub const MAX_CAPACITY: u32 = 4096;
/// A bit of `pending`: the message was sent while there was no consumer, and is kept for the first one that comes.
pub const RETAINED: u32 = 1 << 31;
/// The largest number of bytes in a message itself.
pub const INLINE_MAX: usize = 24;
/// The bytes of a task's name that an end keeps. A longer name is cut.
pub const NAME_BYTES: usize = 40;

/// A bit of a signal word: a member sleeps on the word, or is about to.
pub const SLEEPER: u32 = 1;
/// Each wake adds this to a signal word.
pub const SIGNAL_STEP: u32 = 2;

/// The word that says how members left a side. Two bits are a [`Departure`]. Above them is a count of deaths, so that
/// an end can tell deaths after it joined from earlier ones.
pub mod departure {
    use super::Departure;

    /// The bits that say how the last member left.
    pub const HOW: u32 = 3;
    /// Each death adds this to the word; the count wraps.
    pub const DEATH: u32 = 4;

    /// The word after a member left like this.
    #[must_use]
    pub const fn after(word: u32, how: Departure) -> u32 {
        let most = if how as u32 > word & HOW { how as u32 } else { word & HOW };
        let deaths = if matches!(how, Departure::Died) { (word & !HOW).wrapping_add(DEATH) } else { word & !HOW };
        deaths | most
    }
}

/// The bytes of one cache line, so that words of different writers never share one.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct Line<T>(pub T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Written once, before `init` says ready; then only read.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Identity {
    /// [`PORT_MAGIC`].
    pub magic: AtomicU64,
    /// `LAYOUT_VERSION`.
    pub version: AtomicU32,
    /// [`PORT_FINGERPRINT`].
    pub fingerprint: AtomicU32,
    /// 0, then the formatting member's id, then [`PORT_READY`] (Release, the last store of formatting). Another member
    /// takes over from a dead one by compare-and-swap.
    pub init: AtomicU64,
    /// A [`Pattern`].
    pub pattern: AtomicU32,
    /// The number of cells, a power of two.
    pub capacity: WildWord<AtomicU32>,
}

/// Where producers are.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Sending {
    /// No position below it is free any more. A single producer stores it after publishing; several producers advance
    /// it by compare-and-swap. It may lag behind but never runs ahead. A stale value costs a few needless looks at
    /// cells.
    pub head: AtomicU64,
    /// No position below it has a handle that waits to be reclaimed. Only producers use it. It may lag behind by one
    /// lap.
    pub credit: AtomicU64,
}

/// The positions of consumers that share the messages (fan-in, work queue).
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Taking {
    /// Each position below it was taken at least once. A consumer advances it by compare-and-swap, only past a cell
    /// that it saw taken.
    pub tail: AtomicU64,
    /// Incremented after cells below `tail` became ready again.
    pub returned: AtomicU64,
    /// The value of `returned` at the last search of all cells that found no returned message.
    pub returned_seen: AtomicU64,
}

/// A word to sleep on: bit 0 [`SLEEPER`], above it a count of wakes.
///
/// A member that wants to sleep sets the bit, looks once more, and then sleeps while the word is unchanged. A member
/// that makes a change looks at the bit *after* the change, with a full fence between. If the bit is set, it clears the
/// bit, increments the count and wakes.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Signal {
    /// The futex word.
    pub word: AtomicU32,
}

/// The present and former members of one side.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Company {
    /// How many members ever joined; the count wraps. An end that joins increments it.
    pub joined: AtomicU32,
    /// See [`departure`].
    pub departed: AtomicU32,
    /// The member that left last, for error messages.
    pub last_member: AtomicU64,
    /// When that member was last seen, in nanoseconds of the monotonic clock, for error messages.
    pub last_seen: AtomicU64,
    /// The name of that member's task, for error messages.
    pub last_name: [AtomicU64; NAME_BYTES / 8],
}

/// Rare counters, and the audience of a fan-out.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Ledger {
    /// Fan-out: one bit for each consumer that gets messages. A consumer sets its bit when it has joined and clears it
    /// when it leaves. The producer loads the word once for each message.
    pub audience: AtomicU32,
    _pad: AtomicU32,
    /// Messages made ready again because their consumer died or left.
    pub redelivered: AtomicU64,
    /// Messages that no consumer will see, because their producer died while it wrote them.
    pub voided: AtomicU64,
}

/// The header of a port's segment.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C, align(1024)))]
pub struct PortHeader {
    /// What this is.
    pub identity: Line<Identity>,
    /// Written by producers.
    pub sending: Line<Sending>,
    /// Written by sharing consumers.
    pub taking: Line<Taking>,
    /// Consumers sleep here until something is sent.
    pub data: Line<Signal>,
    /// Producers sleep here until a cell is free.
    pub space: Line<Signal>,
    /// How members of both sides joined and left.
    pub company: [Line<Company>; 2],
    /// Rare counters.
    pub ledger: Line<Ledger>,
}

/// The holder of an end. Others read it only when they wait, join, heal or inspect.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Tenure {
    /// 0 if free; a member id; or [`HEALING`] with the healer's id. It changes only by compare-and-swap, except for the
    /// last store of the owner or healer, which stores 0. This is the claim, so if a member dies in any later step,
    /// others know which member it was.
    pub owner: AtomicU64,
    /// The member id. It stays while `owner` names a healer; for error messages.
    pub member: AtomicU64,
    /// 0 while the member joins or leaves, 1 while it is there.
    pub here: AtomicU32,
    _pad: AtomicU32,
    /// The task's name, zero-padded.
    pub name: [AtomicU64; NAME_BYTES / 8],
}

/// What an end did. Its owner alone writes it, with plain stores. The sums stay when the owner leaves.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Account {
    /// The next position of this end, for inspection and for counting what a successor gets again.
    pub cursor: AtomicU64,
    /// When the end last worked, in nanoseconds of the monotonic clock (mostly the coarse one). It is updated at each
    /// wait and wake, at each turn of an end that spins until its deadline, and at each sixteenth message.
    pub last_seen: AtomicU64,
    /// Messages sent or released.
    pub messages: AtomicU64,
    /// Bytes handed over.
    pub bytes: AtomicU64,
    /// Bytes copied at this end.
    pub copied: AtomicU64,
    /// Time waited.
    pub wait_ns: AtomicU64,
    /// How often the end went to sleep.
    pub sleeps: AtomicU32,
    /// How often the end woke others.
    pub wakes: AtomicU32,
    /// 1 while the end waits for a message or a cell. A work queue's consumer that waits does not keep the stream of
    /// other consumers from ending.
    pub waiting: AtomicU32,
    /// Incremented with each owner.
    pub tenancy: AtomicU32,
}

/// One end of a port.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct EndSlot {
    /// Who holds it.
    pub tenure: Line<Tenure>,
    /// What it did.
    pub account: Line<Account>,
}

/// One message: one cache line, so that a hand-over moves one line.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct Cell {
    /// Lap, end and phase: see [`state`]. The end that the state names may change the other fields of the cell.
    pub state: AtomicU64,
    /// Fan-out: one bit for each consumer that has not released the message, or [`RETAINED`].
    pub pending: AtomicU32,
    /// The number of valid bytes of `inline`, at most 24.
    pub inline_len: WildWord<AtomicU32>,
    /// Segment and offset.
    pub handle: [AtomicU64; 2],
    /// The sender's own.
    pub tag: AtomicU64,
    /// Small data.
    pub inline: [AtomicU64; 3],
}

/// The offset of the table of ends: the producers' slots, then the consumers' (one of them is never used).
pub const ENDS_AT: usize = 1024;
/// Slots in the end table.
pub const END_SLOTS: usize = 64;
/// Where the cells begin.
pub const CELLS_AT: usize = ENDS_AT + END_SLOTS * 128;

/// Bytes that a port of this capacity takes.
pub const fn port_size(capacity: u32) -> u64 {
    CELLS_AT as u64 + capacity as u64 * 64
}

#[cfg(all(test, not(loom)))]
mod frozen;
