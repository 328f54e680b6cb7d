//! What lies in a series' pool and in an observer's pin page. Drawn in `docs/memory-format-series.md`.
//!
//! The publisher is the pool's only writer (the kernel sees to that: F_SEAL_FUTURE_WRITE), an observer its pin page's
//! slot's only honest writer. Everything is wild to its reader. `core::series` has the protocol.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};

// Under `--cfg loom` the very same protocol code runs on loom's atomics, which explore every interleaving.
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

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
/// Changes with every change of the structs below; builds that differ refuse each other.
pub const SERIES_FINGERPRINT: u32 = 0x0005_5e1e;
/// `init` of a pool that is complete; 0 before.
pub const SERIES_READY: u64 = u64::MAX;
/// `state` while the publisher publishes.
pub const STATE_LIVE: u32 = 1;
/// `state` after the publisher ended in order. (One that died leaves [`STATE_LIVE`]; the liveness table knows.)
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
/// In a slot table: the chunk lies beyond its variable's present end.
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
    /// 0 → [`SERIES_READY`], Release, before the pool is offered to any observer.
    pub init: AtomicU64,
    /// The pool's size in bytes, for ever.
    pub size: AtomicU64,
    /// The publishing member.
    pub publisher: AtomicU64,
    /// When it was made, nanoseconds since 1970.
    pub created: AtomicU64,
    /// Bytes of a chunk, and of a slot.
    pub chunk: AtomicU32,
    /// Variables.
    pub variables: AtomicU32,
    /// Room for attributes in each version.
    pub attributes: AtomicU32,
    /// Constants.
    pub constants: AtomicU32,
    /// Records in the version table.
    pub records: AtomicU32,
    /// Entries of each record's slot table: chunks of all variables at their largest.
    pub chunks: AtomicU32,
    /// Slots that fit into the pool.
    pub slots: AtomicU32,
    /// Most observers at a time.
    pub observers: AtomicU32,
    /// What happens when the pool is full: [`FullPolicy`] as a number. Observers of a series whose publisher
    /// takes versions back read private copies; a number that an observer does not know counts as that.
    pub full: AtomicU32,
}

/// What changes with each version. A line of its own: waiting observers look at nothing else.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct SeriesNews {
    /// The newest version and where its record is ([`state::Latest`]); 0 before the first. Publisher stores (Release)
    /// when the record is complete; observers load (Acquire). Stale: an observer gets the version before.
    pub latest: AtomicU64,
    /// Futex word: the low half of the newest sequence, plus one at the end. Stored after `latest`, then woken.
    pub published: AtomicU32,
    /// [`STATE_LIVE`] or [`STATE_ENDED`].
    pub state: AtomicU32,
}

/// Counters, for people only; stored Relaxed by the publisher, a torn or stale view of them costs nothing.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct SeriesReport {
    /// How changes are found now: `core::series::Method` as a number.
    pub method: AtomicU32,
    /// Slots whose memory is reserved; a prefix of all.
    pub committed: AtomicU32,
    /// Slots that hold a chunk of some version.
    pub used: AtomicU32,
    /// Versions that exist.
    pub versions: AtomicU32,
    /// Chunks copied since the beginning.
    pub copied: AtomicU64,
    /// Chunks that versions took over from the one before.
    pub shared: AtomicU64,
    /// Nanoseconds of the last publish.
    pub last_ns: AtomicU64,
    /// Nanoseconds of the longest.
    pub longest_ns: AtomicU64,
    /// Publishes that found no room.
    pub no_space: AtomicU64,
    /// Versions that were taken back from observers that held them.
    pub taken_back: AtomicU64,
    /// How often the way of finding changes was changed.
    pub switches: AtomicU64,
    /// Bytes of memory that the pool has reserved.
    pub reserved: AtomicU64,
    /// Ways of finding changes that this place does not have, as a set of `1 << method`.
    pub unavailable: AtomicU64,
    /// Attributes that have a name so far; a prefix of the entries. Stored (Release) after the entry is complete.
    pub attributes: AtomicU32,
    /// Of the publishes since the newest version, those that withheld one. Observers that wait read it for their errors.
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

/// The head of a version's record; attributes, extents and the slot table follow ([`Geometry`]).
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct RecordHead {
    /// [`state::State`]. All else in the record may be read while it says that this version lives and is pinned.
    pub state: AtomicU64,
    /// The sequence again; for inspection.
    pub sequence: AtomicU64,
    /// When it was published, nanoseconds since 1970.
    pub time: AtomicU64,
    /// Chunks that were copied for it.
    pub copied: AtomicU32,
    /// How its changes were found.
    pub method: AtomicU32,
    /// Attributes that it carries.
    pub attributes: AtomicU32,
    _pad: [u8; 28],
}

/// A pin page: 4096 bytes of a memfd of its own, for observers of one task. The daemon makes it when such an observer comes.
#[cfg(not(loom))]
#[repr(C, align(4096))]
pub struct PinPage {
    /// One for each observer.
    pub slots: [PinSlot; PAGE_SLOTS],
}

/// What one observer holds. The observer stores, the publisher loads; the daemon zeroes it when the observer is gone.
#[cfg(not(loom))]
#[repr(C, align(128))]
pub struct PinSlot {
    /// How many of the pins, from the first, were ever used. Stored before the pin; it only grows. The publisher looks no
    /// further, so that one line of the cache tells of most observers.
    pub count: AtomicU64,
    /// The sequences that this observer holds; 0 = none.
    pub pins: [AtomicU64; PINS],
}
