//! The contents of a series' pool and of an observer's pin page. `docs/memory-format-series.md` has pictures.
//!
//! The publisher is the pool's only writer; the kernel enforces that (F_SEAL_FUTURE_WRITE). An observer is the only
//! correct writer of its slot in a pin page. Every reader must check what it reads. `core::series` has the protocol.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};

// Under `--cfg loom` the same protocol code runs on loom's atomics, which explore every interleaving.
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
pub use description::{MAX_TEXT, Measured, ValueField, VariableEntry};
#[cfg(not(loom))]
pub use geometry::{Counts, Geometry, HUGE, PAGE};

/// First word of a pool.
pub const SERIES_MAGIC: u64 = u64::from_le_bytes(*b"xdockser");
/// Changes with every change of the structs below. Builds with different fingerprints refuse each other.
pub const SERIES_FINGERPRINT: u32 = 0x0005_5e1e;
/// The value of `init` in a complete pool; before, it is 0.
pub const SERIES_READY: u64 = u64::MAX;
/// `state` while the publisher publishes.
pub const STATE_LIVE: u32 = 1;
/// The value of `state` after the publisher ended in order. A publisher that died leaves [`STATE_LIVE`]; the liveness
/// table shows its death.
pub const STATE_ENDED: u32 = 2;

/// The smallest chunk: a page.
pub const MIN_CHUNK: u32 = 4096;
/// The largest chunk: a huge page.
pub const MAX_CHUNK: u32 = 2 << 20;
/// Most chunks of a version, all variables together.
pub const MAX_CHUNKS: u32 = 1 << 20;
/// Most slots of a pool.
pub const MAX_SLOTS: u32 = 1 << 24;
/// Most variables of a series.
pub const MAX_VARIABLES: u32 = 64;
/// Most attributes of a version.
pub const MAX_ATTRIBUTES: u32 = 64;
/// Most constants of a series, all variables together.
pub const MAX_CONSTANTS: u32 = 256;
/// Most versions that exist at a time.
pub const MAX_RECORDS: u32 = 4096;
/// Most observers at a time.
pub const MAX_OBSERVERS: u32 = 1024;
/// Versions that one observer holds at a time.
pub const PINS: usize = 15;
/// Observers that share a pin page.
pub const PAGE_SLOTS: usize = 32;
/// An entry of a slot table for a chunk beyond its variable's present end.
pub const NO_SLOT: u32 = u32::MAX;

/// Written once, before `init` says ready.
#[cfg(not(loom))]
#[repr(C, align(128))]
pub struct SeriesIdentity {
    /// [`SERIES_MAGIC`].
    pub magic: AtomicU64,
    /// `LAYOUT_VERSION`.
    pub version: AtomicU32,
    /// [`SERIES_FINGERPRINT`].
    pub fingerprint: AtomicU32,
    /// 0, then [`SERIES_READY`] (Release), before any observer is offered the pool.
    pub init: AtomicU64,
    /// The pool's size in bytes, which never changes.
    pub size: AtomicU64,
    /// The publishing member.
    pub publisher: AtomicU64,
    /// The time when the pool was made, in nanoseconds since 1970.
    pub created: AtomicU64,
    /// The size of a chunk, and of a slot, in bytes.
    pub chunk: WildWord<AtomicU32>,
    /// Variables.
    pub variables: WildWord<AtomicU32>,
    /// The number of attributes that each version has room for.
    pub attributes: WildWord<AtomicU32>,
    /// Constants.
    pub constants: WildWord<AtomicU32>,
    /// Records in the version table.
    pub records: WildWord<AtomicU32>,
    /// Entries of each record's slot table: chunks of all variables at their largest.
    pub chunks: WildWord<AtomicU32>,
    /// Slots that fit into the pool.
    pub slots: WildWord<AtomicU32>,
    /// Most observers at a time.
    pub observers: WildWord<AtomicU32>,
    /// What happens when the pool is full: a [`FullPolicy`] as a number. If the publisher takes versions back,
    /// observers read private copies. A number that an observer does not know counts as that policy.
    pub full: AtomicU32,
}

/// The words that change with each version, on a line of their own. Waiting observers read nothing else.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct SeriesNews {
    /// The newest version and the place of its record ([`state::Latest`]); 0 before the first. The publisher stores it
    /// (Release) when the record is complete; observers load it (Acquire). With a stale value an observer gets the
    /// version before.
    pub latest: AtomicU64,
    /// A futex word: the low half of the newest sequence, plus one at the end of the series. Stored after `latest`;
    /// then the sleepers are woken.
    pub published: AtomicU32,
    /// [`STATE_LIVE`] or [`STATE_ENDED`].
    pub state: AtomicU32,
}

/// Counters for people only. The publisher stores them Relaxed; a torn or stale value does no harm.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct SeriesReport {
    /// The present method of finding changes: a `core::series::Method` as a number.
    pub method: AtomicU32,
    /// The number of slots with reserved memory, which are the first ones.
    pub committed: WildWord<AtomicU32>,
    /// Slots that hold a chunk of some version.
    pub used: AtomicU32,
    /// Versions that exist.
    pub versions: AtomicU32,
    /// Chunks copied since the beginning.
    pub copied: AtomicU64,
    /// Number of chunks that versions took over from the version before.
    pub shared: AtomicU64,
    /// Duration of the last publish in nanoseconds.
    pub last_ns: AtomicU64,
    /// Duration of the longest publish in nanoseconds.
    pub longest_ns: AtomicU64,
    /// Publishes that found no room.
    pub no_space: AtomicU64,
    /// Versions that were taken back from observers that held them.
    pub taken_back: AtomicU64,
    /// How often the method of finding changes was changed.
    pub switches: AtomicU64,
    /// Bytes of memory that the pool has reserved.
    pub reserved: AtomicU64,
    /// The methods of finding changes that this machine does not have, as a set of `1 << method`.
    pub unavailable: AtomicU64,
    /// The number of attributes that have a name so far, which are the first ones. Stored (Release) after the entry is
    /// complete.
    pub attributes: WildWord<AtomicU32>,
    /// The number of publishes since the newest version that withheld theirs. Waiting observers read it for their
    /// errors.
    pub withheld_now: AtomicU32,
    /// Versions that were withheld since the beginning.
    pub withheld: AtomicU64,
    _pad: [u8; 16],
}

/// The pool's first page.
#[cfg(not(loom))]
#[repr(C, align(4096))]
pub struct SeriesHeader {
    /// What this is.
    pub identity: SeriesIdentity,
    /// The newest version.
    pub news: SeriesNews,
    /// Counters.
    pub report: SeriesReport,
}

/// The head of a version's record. Attributes, extents and the slot table follow it ([`Geometry`]).
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct RecordHead {
    /// A [`state::State`]. The rest of the record may be read while the state says that this version lives, and while
    /// the version is pinned.
    pub state: AtomicU64,
    /// The sequence once more, for inspection.
    pub sequence: AtomicU64,
    /// The time of publishing, in nanoseconds since 1970.
    pub time: AtomicU64,
    /// Chunks that were copied for it.
    pub copied: AtomicU32,
    /// The method by which the version's changes were found.
    pub method: AtomicU32,
    /// The number of attributes that the version carries.
    pub attributes: WildWord<AtomicU32>,
    _pad: [u8; 28],
}

/// A pin page: 4096 bytes of a memfd of its own, for observers of one task. The daemon makes it when such an observer
/// comes.
#[cfg(not(loom))]
#[repr(C, align(4096))]
pub struct PinPage {
    /// One for each observer.
    pub slots: [PinSlot; PAGE_SLOTS],
}

/// The versions that one observer holds. The observer stores, the publisher loads, and the daemon zeroes it when the
/// observer is gone.
#[cfg(not(loom))]
#[repr(C, align(128))]
pub struct PinSlot {
    /// How many of the pins, counted from the first, were ever used. It is stored before the pin, and only grows. The
    /// publisher reads no further pins, so that for most observers one cache line is enough.
    pub count: WildWord<AtomicU64>,
    /// The sequences that this observer holds; 0 = none.
    pub pins: [AtomicU64; PINS],
}
