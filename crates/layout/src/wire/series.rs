//! The records in the messages about series (opcodes 40 to 43).
//!
//! The publisher makes a series' memory, its *pool*. The publisher maps the pool for writing, and then seals the pool,
//! so that no process can map it for writing again. *Pin pages* are pages in which observers note the versions that
//! they use. The publisher reads these pages. When an observer of a task attaches and no pin page of that task has a
//! free slot, the daemon makes a pin page. Each pin page is a separate piece of memory for one task. So a faulty
//! observer can write wrong pins only into the pages of its own task.
//!
//! A series takes a range of segment ids. The first id is that of the pool. The next ids are those of the pin pages
//! that the series may get ([`page_id`]). The last ids are those of the observers' slots ([`pin_id`]). An observer
//! sends the id of its slot to give up the slot, and to claim the slot after a restart of the daemon.

use super::Wire;
use crate::series::PAGE_SLOTS;
use crate::{MemberId, SegmentId, record};

/// The largest number of observers of a series at the same time. A series cannot have more pin pages than this.
pub const MAX_PINS: u32 = 1024;

/// The number of slots of a pin page.
pub const PIN_SLOTS: u32 = PAGE_SLOTS as u32;

/// The number of segment ids that a series takes if it may have this many observers.
#[must_use]
pub const fn series_ids(observers: u32) -> u64 {
    1 + 2 * observers as u64
}

/// The id of a series' pin page.
#[must_use]
pub const fn page_id(series: SegmentId, page: u32) -> SegmentId {
    SegmentId(series.0.saturating_add(1 + page as u64))
}

/// The id of an observer's slot. `number` is the observer's number, and `observers` is the largest number of observers
/// that the series may have.
#[must_use]
pub const fn pin_id(series: SegmentId, observers: u32, number: u32) -> SegmentId {
    SegmentId(series.0.saturating_add(1 + observers as u64 + number as u64))
}

/// The size of a pin page in bytes.
pub const PIN_PAGE: u64 = 4096;

record! {
    /// The answer to an observer: a series. Two descriptors come with the answer: the descriptor of the series' pool
    /// (read-only), and the descriptor of the pin page, in which the observer notes the versions that it uses.
    pub struct SeriesEntry as Wire {
        /// The id of the series' pool.
        segment: SegmentId,
        /// The size of the pool in bytes.
        size: u64,
        /// The bytes of the pool that count against the quota.
        reserved: u64,
        /// A number that the publisher chose, and that the daemon only stores.
        attribute: u64,
        /// The member that publishes the series, or that published it until it ended.
        publisher: MemberId,
        /// The id of the observer's slot.
        pin: SegmentId,
        /// The index of the observer's slot in the pin page.
        slot: u32,
        /// The name of the series.
        name: String,
    } where "pin": |entry| {
        (1..series_ids(MAX_PINS)).contains(&entry.pin.0.wrapping_sub(entry.segment.0)) && entry.slot < PIN_SLOTS
    }
}

record! {
    /// The answer to the publisher of a series: a pin page. The descriptor of the pin page comes with the answer.
    pub struct PageEntry as Wire {
        /// The id of the pin page.
        page: SegmentId,
        /// The index of the pin page for which the publisher asks next.
        next: u32,
        /// The number of pin pages for which the publisher can still ask.
        left: u32,
    }
}
