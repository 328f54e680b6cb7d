//! What the messages of series carry (opcodes 40 to 43).
//!
//! A series' memory, its *pool*, is made by its publisher, who maps it before it seals it against any other writing. A
//! *pin page* tells the publisher which versions one observer reads; each is memory of its own, so that an observer can
//! lie in its own page only. A pin page's segment id is the pool's, plus one, plus its index.

use super::Wire;
use crate::{MemberId, SegmentId, record};

/// Most pin pages, that is observers at once, of a series.
pub const MAX_PINS: u32 = 1024;

/// Bytes of a pin page.
pub const PIN_PAGE: u64 = 4096;

record! {
    /// What an observer is given: the pool, read-only, and a pin page of its own come with it.
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
        /// The pin page.
        pin: SegmentId,
        /// Its name.
        name: String,
    } where "pin": |entry| (1..=u64::from(MAX_PINS)).contains(&entry.pin.0.wrapping_sub(entry.segment.0))
}
