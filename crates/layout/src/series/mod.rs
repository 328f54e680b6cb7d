//! The contents of a series' pool, and of the page in which observers note the versions that they use (pin page).
//! `docs/memory-format-series.md` has pictures.
//!
//! Only the publisher writes to the pool, and the kernel enforces that (F_SEAL_FUTURE_WRITE). An observer writes only
//! to its own slot of a pin page. Every reader must check what it reads. `core::series` has the protocol.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};

// With `--cfg loom` the same protocol code runs on the atomics of loom, a model checker that explores every
// interleaving.
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(not(loom))]
use crate::WildWord;

#[cfg(not(loom))]
mod description;
#[cfg(all(test, not(loom)))]
mod frozen;
#[cfg(not(loom))]
mod geometry;
mod sets;
pub mod state;

pub use sets::{Detect, FullPolicy, Method, Pages, PublisherState, ValueKind};

#[cfg(not(loom))]
pub use description::{AttributeEntry, ConstantEntry, Extent, KIND_NONE};
#[cfg(not(loom))]
pub use description::{MAX_TEXT, StructSizes, ValueField, VariableEntry};
#[cfg(not(loom))]
pub use geometry::{Counts, Geometry, HUGE, PAGE};

/// The first word of a pool.
pub const SERIES_MAGIC: u64 = u64::from_le_bytes(*b"xdockser");
/// A number that changes with every change of the layout of a series' memory. Builds with different fingerprints refuse
/// each other.
pub const SERIES_FINGERPRINT: u32 = 0x0006_5e1e;
/// The value of `init` in a complete pool. Before the pool is complete, `init` is 0.
pub const SERIES_READY: u64 = u64::MAX;
/// The value of `state` until the publisher ends the series itself.
pub const STATE_LIVE: u32 = 1;
/// The value of `state` after the publisher has ended the series itself. If the publisher dies first, `state` remains
/// [`STATE_LIVE`], and the liveness table shows the death.
pub const STATE_ENDED: u32 = 2;

/// The size in bytes of the smallest chunk: a page.
pub const MIN_CHUNK: u32 = 4096;
/// The size in bytes of the largest chunk: a huge page.
pub const MAX_CHUNK: u32 = 2 << 20;
/// The largest number of chunks of a version: the sum over all its variables.
pub const MAX_CHUNKS: u32 = 1 << 20;
/// The largest number of slots of a pool.
pub const MAX_SLOTS: u32 = 1 << 24;
/// The largest number of variables of a series.
pub const MAX_VARIABLES: u32 = 64;
/// The largest number of attributes of a version.
pub const MAX_ATTRIBUTES: u32 = 64;
/// The largest number of constants of a series, including those of its variables.
pub const MAX_CONSTANTS: u32 = 256;
/// The largest number of versions that exist at the same time.
pub const MAX_RECORDS: u32 = 4096;
/// The largest number of observers at the same time.
pub const MAX_OBSERVERS: u32 = 1024;
/// The number of versions that one observer can hold at the same time.
pub const PINS: usize = 15;
/// The number of observers that share a pin page.
pub const PAGE_SLOTS: usize = 32;
/// The value of a slot table's entry for a chunk beyond its variable's present end.
pub const NO_SLOT: u32 = u32::MAX;

/// The identity of a pool. The publisher writes the identity once, before `init` becomes [`SERIES_READY`].
#[cfg(not(loom))]
#[repr(C, align(128))]
pub struct SeriesIdentity {
    /// The number [`SERIES_MAGIC`].
    pub magic: AtomicU64,
    /// The version of the layout, `LAYOUT_VERSION`.
    pub version: AtomicU32,
    /// The fingerprint of the layout, [`SERIES_FINGERPRINT`].
    pub fingerprint: AtomicU32,
    /// 0 until the pool is complete, and then [`SERIES_READY`] (Release). The publisher stores `SERIES_READY` before
    /// any observer gets the pool.
    pub init: AtomicU64,
    /// The pool's size in bytes, which never changes.
    pub size: WildWord<AtomicU64>,
    /// The member that publishes the series.
    pub publisher: AtomicU64,
    /// The time when the pool was made, in nanoseconds since 1970.
    pub created: AtomicU64,
    /// The size of a chunk, and of a slot, in bytes.
    pub chunk: WildWord<AtomicU32>,
    /// The number of variables.
    pub variables: WildWord<AtomicU32>,
    /// The number of attributes for which each version has room.
    pub attributes: WildWord<AtomicU32>,
    /// The number of constants.
    pub constants: WildWord<AtomicU32>,
    /// The number of records in the version table.
    pub records: WildWord<AtomicU32>,
    /// The number of entries in each record's slot table: the chunks of all variables at their largest shapes.
    pub chunks: WildWord<AtomicU32>,
    /// The number of slots that fit into the pool.
    pub slots: WildWord<AtomicU32>,
    /// The largest number of observers at the same time.
    pub observers: WildWord<AtomicU32>,
    /// What happens when the pool is full: a [`FullPolicy`] as a number. Under the policy `TakeBack`, observers read
    /// private copies of versions. An observer that does not know the policy's number also reads private copies.
    pub full: AtomicU32,
}

/// The words that change with each version. These words have a cache line of their own, and waiting observers read
/// nothing else.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct VersionWords {
    /// The newest version's sequence number and the number of its record ([`state::Latest`]); 0 before the first
    /// version. The publisher stores it (Release) when the record is complete, and observers load it (Acquire). An
    /// observer that loads an old value gets an older version.
    pub latest: AtomicU64,
    /// A futex word: the low half of the newest sequence number; when the publisher ends the series, the word is
    /// incremented by one. The publisher stores this word after `latest`, and then wakes the observers if one of them may
    /// sleep ([`PinSlot::sleeps_at`]).
    pub published: AtomicU32,
    /// The value [`STATE_LIVE`], or [`STATE_ENDED`] after the publisher has ended the series itself.
    pub state: AtomicU32,
}

/// Counters that are only shown to people. The publisher stores them Relaxed, because an old or torn value does no
/// harm.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct SeriesReport {
    /// The method by which the publisher finds changes at present: the number of a `core::series::Method`.
    pub method: AtomicU32,
    /// The number of slots for which memory is reserved, counted from the first slot.
    pub committed: WildWord<AtomicU32>,
    /// The number of slots that hold a chunk of some version.
    pub used: AtomicU32,
    /// The number of versions that exist.
    pub versions: AtomicU32,
    /// The number of chunks that were copied since the series began.
    pub copied: AtomicU64,
    /// The number of chunks that were not copied since the series began, because a version shares them with the version
    /// before it.
    pub shared: AtomicU64,
    /// The duration of the last publish in nanoseconds.
    pub last_ns: AtomicU64,
    /// The duration of the longest publish in nanoseconds.
    pub longest_ns: AtomicU64,
    /// How many times `publish` failed because the pool had no room. A withheld version is not counted here.
    pub no_space: AtomicU64,
    /// The number of versions that the publisher took back from observers that held them.
    pub taken_back: AtomicU64,
    /// The number of times that the publisher switched to another method.
    pub switches: AtomicU64,
    /// The number of bytes of memory that are reserved for the pool.
    pub reserved: AtomicU64,
    /// The methods that the publisher cannot use on this machine. Method `n` is bit `1 << n`.
    pub unavailable: AtomicU64,
    /// The number of attributes that have a name so far, counted from the first entry. The publisher stores this number
    /// (Release) after the new entry is complete.
    pub attributes: WildWord<AtomicU32>,
    /// The number of versions that were withheld since the newest one was published. Observers whose wait fails show
    /// this number in their error.
    pub withheld_now: AtomicU32,
    /// The number of versions that were withheld since the series began.
    pub withheld: AtomicU64,
    _pad: [u8; 16],
}

/// The header of a pool, which is its first page.
#[cfg(not(loom))]
#[repr(C, align(4096))]
pub struct SeriesHeader {
    /// The identity of the pool and its counts.
    pub identity: SeriesIdentity,
    /// The words that change with each version.
    pub version_words: VersionWords,
    /// The counters for people to read.
    pub report: SeriesReport,
}

/// The head of a version's record. Attributes, extents and the slot table follow it ([`Geometry`]).
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct RecordHead {
    /// A [`state::State`]. An observer may read the rest of the record only while the state says that this version is
    /// live and the observer has pinned the version.
    pub state: AtomicU64,
    /// The sequence number of the record's version, which is also in `state`. This copy is for inspection.
    pub sequence: AtomicU64,
    /// The time of publishing, in nanoseconds since 1970.
    pub time: AtomicU64,
    /// The number of chunks that were copied for this version.
    pub copied: AtomicU32,
    /// The method by which the version's changes were found.
    pub method: AtomicU32,
    /// The number of attributes that the version carries.
    pub attributes: WildWord<AtomicU32>,
    _pad: [u8; 28],
}

/// A pin page: 4096 bytes of a memfd, in which observers of one task note the versions that they use. When an observer
/// attaches and no slot is free in the pin pages of the observer's task, the daemon makes a new pin page.
#[cfg(not(loom))]
#[repr(C, align(4096))]
pub struct PinPage {
    /// One slot for each observer.
    pub slots: [PinSlot; PAGE_SLOTS],
}

/// The versions that one observer holds, and the version after which it sleeps. The observer writes the slot, and the
/// publisher reads the slot. The daemon fills the slot with zeros when the observer is gone.
#[cfg(not(loom))]
#[repr(C, align(128))]
pub struct PinSlot {
    /// How many of the pins, counted from the first, were ever used. This number only grows. The observer stores the
    /// number before it uses a further pin, and the publisher reads only this number of pins. Most observers use few
    /// pins, so for most of them the publisher reads only one cache line.
    pub count: WildWord<AtomicU32>,
    /// The value of [`VersionWords::published`] at which a thread of this observer slept last, or is about to sleep. If
    /// the publisher changes `published` from this value, it wakes the sleeping threads.
    pub sleeps_at: AtomicU32,
    /// The sequence numbers of the versions that this observer holds; 0 in a free pin.
    pub pins: [AtomicU64; PINS],
}
