//! What the messages of series carry (opcodes 40 to 43).
//!
//! A series' memory, its *pool*, is made by its publisher, who maps it before it seals it against any other writing. A
//! *pin page* tells the publisher which versions one observer reads; each is memory of its own, so that an observer can
//! lie in its own page only. A pin page's segment id is the pool's, plus one, plus its index.

use super::MAX_DESCRIPTORS;
use super::cursor::{Malformed, Reader, Writer};
use crate::{MemberId, SegmentId};

/// Most pin pages, that is observers at once, of a series.
pub const MAX_PINS: u32 = 1024;

/// Bytes of a pin page.
pub const PIN_PAGE: u64 = 4096;

/// What an observer is given: the pool, read-only, and a pin page of its own come with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesEntry {
    /// The pool.
    pub segment: SegmentId,
    /// Its size.
    pub size: u64,
    /// Bytes of it that count against the quota.
    pub reserved: u64,
    /// What its publisher gave.
    pub attribute: u64,
    /// Who publishes, or published.
    pub publisher: MemberId,
    /// The pin page.
    pub pin: SegmentId,
    /// Its name.
    pub name: String,
}

impl SeriesEntry {
    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.segment.0).u64(self.size).u64(self.reserved).u64(self.attribute).u64(self.publisher.0);
        w.u64(self.pin.0).name(&self.name);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (segment, size, reserved, attribute) = (SegmentId(r.u64()?), r.u64()?, r.u64()?, r.u64()?);
        let (publisher, pin) = (MemberId(r.u64()?), SegmentId(r.u64()?));
        if !(1..=u64::from(MAX_PINS)).contains(&pin.0.wrapping_sub(segment.0)) {
            return Err(Malformed::Value("pin"));
        }
        Ok(Self { segment, size, reserved, attribute, publisher, pin, name: r.name()? })
    }
}

/// How many pin pages come with a message: at least one, as many as a message takes at most.
pub(super) fn count(r: &mut Reader<'_>) -> Result<u32, Malformed> {
    let count = r.u32()?;
    if (1..=MAX_DESCRIPTORS as u32).contains(&count) { Ok(count) } else { Err(Malformed::Value("count")) }
}
