//! The contents of a port's segment: header, table of end slots, ring of cells. `docs/memory-format-ports.md` has
//! pictures.
//!
//! Every reader must check what it reads. The comment of each field says which member writes the field, which member
//! reads it, and what happens if a reader gets an old value; `core::queue` has the protocol. Positions count messages
//! from 0 and never start again. The cell of a position is number `position % capacity`, and the position's lap is
//! `position / capacity`.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};

// With `--cfg loom` the same protocol code runs on the atomics of loom, a model checker that explores every
// interleaving.
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::WildWord;

mod sets;
pub mod state;

pub use sets::{Departure, Pattern, Side, Waiting};

/// The first word of a port's segment.
pub const PORT_MAGIC: u64 = u64::from_le_bytes(*b"xdockprt");
/// A number that changes with every change of the structs in this file. Builds with different fingerprints refuse each
/// other.
pub const PORT_FINGERPRINT: u32 = 0x0002_c0de;
/// The value of `init` in a formatted port. Before the port is formatted, `init` is first 0, and then the id of the
/// member that formats the port.
pub const PORT_READY: u64 = u64::MAX;
/// The bit of an end slot's `owner` word that says that the member in the other bits is healing the end.
pub const HEALING: u64 = 1 << 63;
/// The number of a port's end slots for producers.
pub const MAX_PRODUCERS: usize = 32;
/// The number of a port's end slots for consumers. In a cell's `pending`, each consumer has one of 32 bits, and the
/// last bit is [`RETAINED`]. So the number is 31.
pub const MAX_CONSUMERS: usize = 31;
/// The largest number of cells of a port.
pub const MAX_CAPACITY: u32 = 4096;
/// The bit of a cell's `pending` that says that the message was sent while there was no consumer. The message is kept
/// for the first consumer that joins the port.
pub const RETAINED: u32 = 1 << 31;
/// The largest number of data bytes that a message carries in itself, without a handle.
pub const INLINE_MAX: usize = 24;
/// The number of bytes for a task's name in an end slot. A longer name is shortened.
pub const NAME_BYTES: usize = 40;

/// The bit of a signal word that says that a member sleeps on the word, or is about to.
pub const SLEEPER: u32 = 1;
/// The number that each wake adds to a signal word. Bit 0 of the word is [`SLEEPER`], so the count of wakes begins at
/// bit 1.
pub const SIGNAL_STEP: u32 = 2;

/// The bits of the word `departed`, which says how members left one side of a port. Two bits are a [`Departure`]. The
/// bits above them count deaths, so that an end can tell deaths that happened after it joined from earlier deaths.
pub mod departure {
    use super::Departure;

    /// The bits of the word that say how the last member left: a [`Departure`] as a number.
    pub const HOW: u32 = 3;
    /// The number that is added to the word at each death, before the dead member's cells are changed. If the member
    /// that heals the dead member's end dies as well, the first death is counted twice. The count starts again from 0
    /// when it overflows.
    pub const DEATH: u32 = 4;

    /// Gives the new value of a word `departed` after a member has left in the way that `how` says. If the member
    /// died, `word` already counts its death.
    #[must_use]
    pub const fn after(word: u32, how: Departure) -> u32 {
        let most = if how as u32 > word & HOW { how as u32 } else { word & HOW };
        word & !HOW | most
    }
}

/// A wrapper that puts its contents on a cache line of their own, so that words of different writers never share a
/// line.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct CacheLine<T>(pub T);

impl<T> std::ops::Deref for CacheLine<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The identity of a port. The formatting member writes the identity once, before `init` becomes [`PORT_READY`]. After
/// that, members only read it.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct PortIdentity {
    /// The number [`PORT_MAGIC`].
    pub magic: AtomicU64,
    /// The version of the layout, `LAYOUT_VERSION`.
    pub version: AtomicU32,
    /// The fingerprint of the layout, [`PORT_FINGERPRINT`].
    pub fingerprint: AtomicU32,
    /// 0, then the id of the formatting member, then [`PORT_READY`] (Release, the last store of formatting). If the
    /// formatting member dies, another member takes the formatting over by a compare-and-swap of this word.
    pub init: AtomicU64,
    /// The port's pattern, a [`Pattern`] as a number.
    pub pattern: AtomicU32,
    /// The number of cells, a power of two.
    pub capacity: WildWord<AtomicU32>,
}

/// The positions that producers advance.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct ProducerPositions {
    /// All positions below this value have been used for messages. If the port has only one producer, this producer
    /// stores the value after each message that it sends. Several producers advance the value by compare-and-swap. The
    /// value may be too small, but never too large. A value that is too small costs a few needless looks at cells.
    pub head: AtomicU64,
    /// At the positions below this value, no handle is left that a producer could take back. Only producers use this
    /// value. It may be too small by one lap.
    pub credit: AtomicU64,
}

/// The positions of consumers that share the messages, in the patterns fan-in and work queue.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct SharedConsumerPositions {
    /// Each position below this value was taken at least once. A consumer advances this value by compare-and-swap, and
    /// only past a cell whose message was taken.
    pub tail: AtomicU64,
    /// A counter that is incremented when messages below `tail` have become ready again, because their consumer died or
    /// left.
    pub returned: AtomicU64,
    /// The value that the counter `returned` had when a consumer last searched all cells for messages that are ready
    /// again, and found none.
    pub returned_seen: AtomicU64,
}

/// A word on which members sleep. Bit 0 is [`SLEEPER`], and the other bits count wakes.
///
/// A member that wants to sleep sets the bit, looks once more for a change, and then sleeps until the word changes. A
/// member that makes a change looks at the bit *after* the change, with a full fence between the change and the look.
/// If the bit is set, the member that made the change clears it, increments the count and wakes the sleeping members.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct Signal {
    /// A futex word: the bit [`SLEEPER`] and the count of wakes.
    pub word: AtomicU32,
}

/// The present and former members of one side of a port.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct SideMembers {
    /// How many ends have ever joined. After an overflow, the number starts again from 0.
    pub joined: AtomicU32,
    /// How members have left this side of the port, in the form that [`departure`] describes.
    pub departed: AtomicU32,
    /// The member that left last. Only error messages use it.
    pub last_member: AtomicU64,
    /// For the member in `last_member`: the time when it was last seen, in nanoseconds of the monotonic clock. Only
    /// error messages use it.
    pub last_seen: AtomicU64,
    /// The task name of the member in `last_member`. Only error messages use it.
    pub last_name: [AtomicU64; NAME_BYTES / 8],
}

/// Counters that rarely change, and the set of a fan-out's consumers.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct PortCounters {
    /// Fan-out: one bit for each consumer that gets messages. A consumer sets its bit while it joins, and clears it
    /// when it leaves. The producer loads the word once for each message.
    pub audience: AtomicU32,
    _pad: AtomicU32,
    /// The number of messages that became ready again because their consumer died or left.
    pub redelivered: AtomicU64,
    /// The number of messages that no consumer will get, because their producer died while it wrote them.
    pub voided: AtomicU64,
}

/// The header of a port's segment.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C, align(1024)))]
pub struct PortHeader {
    /// The identity and the shape of the port.
    pub identity: CacheLine<PortIdentity>,
    /// The positions that producers write.
    pub sending: CacheLine<ProducerPositions>,
    /// The positions that sharing consumers write.
    pub taking: CacheLine<SharedConsumerPositions>,
    /// The word on which consumers sleep until a message is sent.
    pub data: CacheLine<Signal>,
    /// The word on which producers sleep until a cell is free.
    pub space: CacheLine<Signal>,
    /// For each side of the port: the members that have joined and left.
    pub members: [CacheLine<SideMembers>; 2],
    /// Counters that rarely change.
    pub counters: CacheLine<PortCounters>,
}

/// The holder of an end of a port. Other members read this struct only when they wait, join, heal or inspect.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct EndHolder {
    /// 0 if the end is free; otherwise the id of its member, or [`HEALING`] with the id of the member that heals it. A
    /// member claims the end by a compare-and-swap of this word. So if the member dies in a later step of joining,
    /// other members see which member had claimed the end. All other changes of this word are made by compare-and-swap,
    /// too, except the last one: the owner, or the member that heals the end, frees the end by a plain store of 0.
    pub owner: AtomicU64,
    /// The id of the end's member, for error messages. It stays the same while `owner` names a healing member.
    pub member: AtomicU64,
    /// 1 while the member is at the port; 0 while it is still joining, or already leaving.
    pub here: AtomicU32,
    _pad: AtomicU32,
    /// The name of the task whose member has the end. The rest of the field is zero.
    pub name: [AtomicU64; NAME_BYTES / 8],
}

/// Counters of what an end of a port has done. Only the member that owns the end writes them, with plain stores. When
/// the owner leaves, the counts stay, and the next owner of the end adds to them.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct EndCounters {
    /// The next position that this end will use. Tools show this value to users. In a port with one consumer and one
    /// producer, it also serves to count the messages that are delivered again: those that the end's former owner
    /// received, and that its new owner receives again.
    pub cursor: AtomicU64,
    /// The time when the end last did something, in nanoseconds of the monotonic clock. It is mostly read from the
    /// kernel's coarse clock, which is exact to a few milliseconds. This value is updated at each wait and wake, at
    /// each iteration of an end that spins until its deadline, and at each sixteenth message.
    pub last_seen: AtomicU64,
    /// The number of messages that this end sent (as a producer) or released (as a consumer).
    pub messages: AtomicU64,
    /// The number of bytes of data in the messages that this end sent. The sender states this number for each message.
    pub bytes: AtomicU64,
    /// The number of bytes that this end's owner had to copy, as it reports them (`note_copied`).
    pub copied: AtomicU64,
    /// The total time, in nanoseconds, that the end waited.
    pub wait_ns: AtomicU64,
    /// The number of times that the end went to sleep.
    pub sleeps: AtomicU32,
    /// The number of times that the end woke sleeping members at other ends.
    pub wakes: AtomicU32,
    /// 1 while the end waits for a message or a free cell. If a consumer of a work queue has unreleased messages and
    /// waits, the other consumers do not wait for these messages: they can get CLOSED or PEER_DIED.
    pub waiting: AtomicU32,
    /// The number of owners that the end has had. It is incremented each time that the end gets a new owner.
    pub tenancy: AtomicU32,
}

/// One end of a port.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C))]
pub struct EndSlot {
    /// The member that holds the end.
    pub holder: CacheLine<EndHolder>,
    /// The counters of what the end has done.
    pub counters: CacheLine<EndCounters>,
}

/// One message. It takes exactly one cache line, so that only one line moves from the producer to the consumer.
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct Cell {
    /// The lap, end and phase of the cell, in the form that [`state`] describes. Only the end that this word names may
    /// change the other fields of the cell.
    pub state: AtomicU64,
    /// Fan-out: one bit for each consumer that has not released the message yet, or [`RETAINED`].
    pub pending: AtomicU32,
    /// The number of valid bytes of `inline`, at most 24.
    pub inline_len: WildWord<AtomicU32>,
    /// The handle of the data: segment and offset.
    pub handle: [AtomicU64; 2],
    /// A number that the sender chose.
    pub tag: AtomicU64,
    /// Small data in the message itself.
    pub inline: [AtomicU64; 3],
}

/// The offset of the table of end slots. The table has the producers' slots first, and then the consumers' slots, of
/// which the last one is never used.
pub const ENDS_AT: usize = 1024;
/// The number of slots in the table of ends.
pub const END_SLOTS: usize = 64;
/// The offset of the first cell.
pub const CELLS_AT: usize = ENDS_AT + END_SLOTS * 128;

/// The size in bytes of a port of this capacity.
pub const fn port_size(capacity: u32) -> u64 {
    CELLS_AT as u64 + capacity as u64 * 64
}

#[cfg(all(test, not(loom)))]
mod frozen;
