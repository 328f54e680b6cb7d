//! The records in the messages of series (opcodes 40 to 43).
//!
//! The publisher makes a series' memory, its *pool*, and maps it before it seals the pool against any other writing.
//! *Pin pages* tell the publisher which versions observers read. When an observer of a task comes and no page of that
//! task has a free slot, the daemon makes a page. Each page is memory of its own for one task, so that an observer can
//! give false pins only for its own task.
//!
//! A series takes a range of segment ids: the pool's id, then one for each pin page that it may get ([`page_id`]), then
//! one for each observer ([`pin_id`]). An observer gives its slot up, and names it after a restart, by that id.

use super::Wire;
use crate::series::PAGE_SLOTS;
use crate::{MemberId, SegmentId, record};

/// The largest number of observers of a series at the same time, and so of pin pages.
pub const MAX_PINS: u32 = 1024;

/// Slots of a pin page.
pub const PIN_SLOTS: u32 = PAGE_SLOTS as u32;

/// How many segment ids a series with so many observers takes.
#[must_use]
pub const fn series_ids(observers: u32) -> u64 {
    1 + 2 * observers as u64
}

/// The id of a series' pin page.
#[must_use]
pub const fn page_id(series: SegmentId, page: u32) -> SegmentId {
    SegmentId(series.0.saturating_add(1 + page as u64))
}

/// The id of an observer's slot, by the observer's number, of a series that may have so many.
#[must_use]
pub const fn pin_id(series: SegmentId, observers: u32, number: u32) -> SegmentId {
    SegmentId(series.0.saturating_add(1 + observers as u64 + number as u64))
}

/// Bytes of a pin page.
pub const PIN_PAGE: u64 = 4096;

record! {
    /// What an observer gets. The pool (read-only) and the pin page with the observer's slot come with it.
    pub struct SeriesEntry as Wire {
        /// The pool.
        segment: SegmentId,
        /// Its size.
        size: u64,
        /// The bytes of the pool that count against the quota.
        reserved: u64,
        /// The value that the publisher gave.
        attribute: u64,
        /// The member that publishes the series, or published it.
        publisher: MemberId,
        /// The observer's slot.
        pin: SegmentId,
        /// The slot in the pin page.
        slot: u32,
        /// Its name.
        name: String,
    } where "pin": |entry| {
        (1..series_ids(MAX_PINS)).contains(&entry.pin.0.wrapping_sub(entry.segment.0)) && entry.slot < PIN_SLOTS
    }
}

record! {
    /// A pin page for the publisher. The page comes with it.
    pub struct PageEntry as Wire {
        /// Its id.
        page: SegmentId,
        /// The index to continue with: the next page that may exist.
        next: u32,
        /// The number of pages that the publisher can still ask for.
        left: u32,
    }
}
