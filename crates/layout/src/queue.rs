//! What lies in a port's segment: header, end table, ring of cells. Drawn in `docs/memory-format-ports.md`.
//!
//! Everything is wild to its reader. Each field says who writes it, who reads it, and what a stale value costs;
//! `core::queue` has the protocol. Positions count messages from 0 for ever; a position's cell is `position % capacity`
//! and its lap `position / capacity`.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};

// Under `--cfg loom` the very same protocol code runs on loom's atomics, which explore every interleaving.
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

mod sets;
pub mod state;

pub use sets::{Departure, Pattern, Side, Waiting};

/// First word of a port's segment.
pub const PORT_MAGIC: u64 = u64::from_le_bytes(*b"xdockprt");
/// Changes with every change of this file's structs; builds that differ refuse each other.
pub const PORT_FINGERPRINT: u32 = 0x0002_c0de;
/// `init` of a formatted port; below it, the member that is formatting it; 0 before any member did.
pub const PORT_READY: u64 = u64::MAX;
/// Set in an end's `owner` while the member in the other bits heals the end.
pub const HEALING: u64 = 1 << 63;
/// Producers' ends of a port.
pub const MAX_PRODUCERS: usize = 32;
/// Consumers' ends of a port; one less than bits in `pending`, whose last says [`RETAINED`].
pub const MAX_CONSUMERS: usize = 31;
/// Most cells of a port.
pub const MAX_CAPACITY: u32 = 4096;
/// In `pending`: sent while no consumer was there, kept for the first that comes.
pub const RETAINED: u32 = 1 << 31;
/// Most bytes that a message carries itself.
pub const INLINE_MAX: usize = 24;
/// Bytes of a task's name that an end keeps; a longer name is cut.
pub const NAME_BYTES: usize = 40;

/// In a signal word: a member sleeps on it, or is about to.
pub const SLEEPER: u32 = 1;
/// A signal word's count goes up by this at each wake.
pub const SIGNAL_STEP: u32 = 2;

/// The word that says how members left a side: two bits are a [`Departure`], above them is a count of deaths, so that an end can
/// tell deaths that it was there for from earlier ones.
pub mod departure {
    use super::Departure;

    /// The bits that say how.
    pub const HOW: u32 = 3;
    /// The count of deaths goes up by this; it wraps.
    pub const DEATH: u32 = 4;

    /// The word after a member left like this.
    #[must_use]
    pub const fn after(word: u32, how: Departure) -> u32 {
        let most = if how as u32 > word & HOW { how as u32 } else { word & HOW };
        let deaths = if matches!(how, Departure::Died) { (word & !HOW).wrapping_add(DEATH) } else { word & !HOW };
        deaths | most
    }
}

/// Bytes of one cache line, so that words of different writers never share one.
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
    /// 0 → the formatting member's id → [`PORT_READY`] (Release, the last store of formatting). A dead formatter is
    /// taken over by compare-and-swap.
    pub init: AtomicU64,
    /// A [`Pattern`].
    pub pattern: AtomicU32,
    /// Cells; a power of two.
    pub capacity: AtomicU32,
}

/// Where producers are.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Sending {
    /// No position below it is free any more. A single producer stores it after publishing, many advance it by
    /// compare-and-swap; it may lag behind, never run ahead. Stale: a few cells looked at in vain.
    pub head: AtomicU64,
    /// No position below it has a handle that waits to be reclaimed. Producers only; may lag behind by a lap.
    pub credit: AtomicU64,
}

/// Where the consumers are that share the messages (fan-in, work queue).
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Taking {
    /// Each position below it was taken at least once. Advanced by compare-and-swap, only past a cell seen taken.
    pub tail: AtomicU64,
    /// Counted up after cells below `tail` were made ready again.
    pub returned: AtomicU64,
    /// The value of `returned` at the last search of all cells that found no returned message.
    pub returned_seen: AtomicU64,
}

/// A word to sleep on: bit 0 [`SLEEPER`], above it a count of wakes.
///
/// A sleeper sets the bit, looks once more, then sleeps while the word is unchanged. A member that changes something sleepers
/// wait for looks at the bit *after* the change (a full fence between); if it is set it clears it, counts up and wakes.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Signal {
    /// The futex word.
    pub word: AtomicU32,
}

/// Who is and was at one side.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Company {
    /// How many ever came, complete; wraps. An end that joins counts it up.
    pub joined: AtomicU32,
    /// See [`departure`].
    pub departed: AtomicU32,
    /// The member that left last; for messages to people.
    pub last_member: AtomicU64,
    /// When it was last seen, nanoseconds of the monotonic clock; for messages to people.
    pub last_seen: AtomicU64,
    /// Its task's name; for messages to people.
    pub last_name: [AtomicU64; NAME_BYTES / 8],
}

/// Rare counters, and the audience of a fan-out.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Ledger {
    /// Fan-out: a bit for each consumer that messages are for. Consumers set it when they have come, clear it when they
    /// leave; the producer loads it once for each message.
    pub audience: AtomicU32,
    _pad: AtomicU32,
    /// Messages made ready again because their consumer died or left.
    pub redelivered: AtomicU64,
    /// Messages that no consumer will see because their producer died while it wrote them.
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
    /// Producers' and consumers' comings and goings.
    pub company: [Line<Company>; 2],
    /// Rare counters.
    pub ledger: Line<Ledger>,
}

/// Who holds an end. Read by others only when they wait, join, heal or inspect.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Tenure {
    /// 0 free; a member id; or [`HEALING`] with the healer's id. Changes by compare-and-swap only, save for the owner's
    /// or healer's last store, 0. This is the claim, so a member that dies in any later step is known.
    pub owner: AtomicU64,
    /// The member id, kept while `owner` says healing; for messages to people.
    pub member: AtomicU64,
    /// 0 coming or going, 1 here.
    pub here: AtomicU32,
    _pad: AtomicU32,
    /// The task's name, zero-padded.
    pub name: [AtomicU64; NAME_BYTES / 8],
}

/// What an end did. Written by its owner alone, with plain stores; sums survive the owner.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Account {
    /// The next position of this end, for inspection and for counting what a successor gets again.
    pub cursor: AtomicU64,
    /// When it last worked, nanoseconds of the monotonic clock (mostly the coarse one): at each wait and wake, each turn of
    /// one that spins for good, and each sixteenth message.
    pub last_seen: AtomicU64,
    /// Messages sent or released.
    pub messages: AtomicU64,
    /// Bytes handed over.
    pub bytes: AtomicU64,
    /// Bytes copied at this end.
    pub copied: AtomicU64,
    /// Time waited.
    pub wait_ns: AtomicU64,
    /// Times gone to sleep, and times that it woke others.
    pub sleeps: AtomicU32,
    /// Times it woke others.
    pub wakes: AtomicU32,
    /// 1 while it waits for a message or a cell. A work queue's consumer that waits delays no other consumer's end of stream.
    pub waiting: AtomicU32,
    /// Counted up with each owner.
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
    /// Lap, end and phase: see [`state`]. Everything else in the cell belongs to whom it says.
    pub state: AtomicU64,
    /// Fan-out: a bit for each consumer that has not released the message, or [`RETAINED`].
    pub pending: AtomicU32,
    /// Bytes of `inline` that count, at most 24.
    pub inline_len: AtomicU32,
    /// Segment and offset.
    pub handle: [AtomicU64; 2],
    /// The sender's own.
    pub tag: AtomicU64,
    /// Small data.
    pub inline: [AtomicU64; 3],
}

/// Where the end table begins: producers' slots, then consumers' (one of them never used).
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
