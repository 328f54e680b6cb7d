//! What the messages of series carry (opcodes 40 to 43).
//!
//! A series' memory, its *pool*, is made by its publisher, who maps it before it seals it against any other writing. *Pin
//! pages* tell the publisher which versions observers read. The daemon makes one when an observer of a task comes that has
//! no page with a free slot: each is memory of its own for one task, so that an observer can lie about its own task only.
//!
//! A series takes a range of segment ids: the pool's, then one for each pin page that it may get ([`page_id`]), then one
//! for each observer ([`pin_id`]), by which its slot is given up and told again.

use super::Wire;
use crate::series::PAGE_SLOTS;
use crate::{MemberId, SegmentId, record};

/// Most observers at once of a series, and so most pin pages.
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
    /// What an observer is given: the pool, read-only, and the pin page with its slot come with it.
    pub struct SeriesEntry as Wire {
        /// The pool.
        segment: SegmentId,
        /// Its size.
        size: u64,
        /// Bytes of it that count against the quota.
        reserved: u64,
        /// What its publisher gave.
        attribute: u64,
        /// Who publishes, or published.
        publisher: MemberId,
        /// The observer's slot.
        pin: SegmentId,
        /// Where it lies in the page.
        slot: u32,
        /// Its name.
        name: String,
    } where "pin": |entry| {
        (1..series_ids(MAX_PINS)).contains(&entry.pin.0.wrapping_sub(entry.segment.0)) && entry.slot < PIN_SLOTS
    }
}

record! {
    /// A pin page for the publisher, which comes with it.
    pub struct PageEntry as Wire {
        /// Its id.
        page: SegmentId,
        /// Where to go on: the index of the next page that may be there.
        next: u32,
        /// How many pages are left to be asked for.
        left: u32,
    }
}
