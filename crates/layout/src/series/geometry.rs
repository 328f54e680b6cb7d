//! The offsets of all parts of a series' pool. The offsets follow from a few counts, and a reader checks each count
//! against its limit. So no reader has to trust an offset in shared memory.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    AtomicU32, MAX_ATTRIBUTES, MAX_CHUNK, MAX_CHUNKS, MAX_CONSTANTS, MAX_OBSERVERS, MAX_RECORDS, MAX_SLOTS,
    MAX_VARIABLES, MIN_CHUNK, RecordHead, SeriesHeader, SeriesIdentity, StructSizes,
};
use crate::WildWord;

pub use crate::HUGE;

/// The size of a page in bytes.
pub const PAGE: u64 = 4096;

/// The counts from which the geometry of a pool follows. The identity in the pool's header contains these counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// The size of a chunk in bytes, a power of two.
    pub chunk: u32,
    /// The number of variables.
    pub variables: u32,
    /// The number of attributes for which each version has room.
    pub attributes: u32,
    /// The number of constants.
    pub constants: u32,
    /// The number of records in the version table.
    pub records: u32,
    /// The number of entries of a slot table.
    pub chunks: u32,
    /// The number of slots.
    pub slots: u32,
    /// The largest number of observers at the same time.
    pub observers: u32,
}

impl Counts {
    /// Reads the counts from a pool's identity; `None` if one of them is beyond its limit.
    pub fn read(identity: &SeriesIdentity) -> Option<Self> {
        let bounded = |word: &WildWord<AtomicU32>, most: u32| word.load(Relaxed).at_most(most);
        Some(Self {
            chunk: bounded(&identity.chunk, MAX_CHUNK)?,
            variables: bounded(&identity.variables, MAX_VARIABLES)?,
            attributes: bounded(&identity.attributes, MAX_ATTRIBUTES)?,
            constants: bounded(&identity.constants, MAX_CONSTANTS)?,
            records: bounded(&identity.records, MAX_RECORDS)?,
            chunks: bounded(&identity.chunks, MAX_CHUNKS)?,
            slots: bounded(&identity.slots, MAX_SLOTS)?,
            observers: bounded(&identity.observers, MAX_OBSERVERS)?,
        })
    }
}

/// The offsets of a pool's parts, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The counts from which the offsets follow.
    pub counts: Counts,
    /// The offset of the `VariableEntry`s.
    pub variables_at: u64,
    /// The offset of the `AttributeEntry`s.
    pub attributes_at: u64,
    /// The offset of the `ConstantEntry`s.
    pub constants_at: u64,
    /// The offset of the records.
    pub records_at: u64,
    /// The size of a record in bytes.
    pub record_size: u64,
    /// The offset, within a record, of the variables' `Extent`s.
    pub extents_at: u64,
    /// The offset, within a record, of the slot table.
    pub table_at: u64,
    /// The offset of the slots. If all slots together have at least the size of two huge pages, this offset is a
    /// multiple of a huge page; otherwise it is a multiple of a page and of a chunk.
    pub pool_at: u64,
    /// The size of the pool in bytes, a multiple of a page.
    pub size: u64,
}

impl Geometry {
    /// Computes the geometry; `None` if a count is beyond its limit.
    pub fn of(counts: Counts) -> Option<Self> {
        let Counts { chunk, variables, attributes, constants, records, chunks, slots, observers } = counts;
        let sound = chunk.is_power_of_two()
            && (MIN_CHUNK..=MAX_CHUNK).contains(&chunk)
            && (1..=MAX_VARIABLES).contains(&variables)
            && attributes <= MAX_ATTRIBUTES
            && constants <= MAX_CONSTANTS
            && (2..=MAX_RECORDS).contains(&records)
            && (1..=MAX_CHUNKS).contains(&chunks)
            && (1..=MAX_SLOTS).contains(&slots)
            && (1..=MAX_OBSERVERS).contains(&observers);
        if !sound {
            return None;
        }
        let variables_at = size_of::<SeriesHeader>() as u64;
        let attributes_at = variables_at + u64::from(variables) * StructSizes::VARIABLE;
        let constants_at = attributes_at + u64::from(attributes) * StructSizes::ATTRIBUTE;
        let records_at = (constants_at + u64::from(constants) * StructSizes::CONSTANT).next_multiple_of(PAGE);
        let extents_at = size_of::<RecordHead>() as u64 + u64::from(attributes) * StructSizes::VALUE;
        let table_at = extents_at + u64::from(variables) * StructSizes::EXTENT;
        let record_size = (table_at + 4 * u64::from(chunks)).next_multiple_of(64);
        let data = u64::from(slots) * u64::from(chunk);
        let alignment = if data >= 2 * HUGE { HUGE } else { PAGE.max(u64::from(chunk)) };
        let pool_at = (records_at + u64::from(records) * record_size).next_multiple_of(alignment);
        let size = pool_at + data;
        Some(Self {
            counts,
            variables_at,
            attributes_at,
            constants_at,
            records_at,
            record_size,
            extents_at,
            table_at,
            pool_at,
            size,
        })
    }

    /// The offset of a record.
    pub fn record(&self, index: u32) -> u64 {
        self.records_at + u64::from(index) * self.record_size
    }

    /// The offset of a slot.
    pub fn slot(&self, index: u32) -> u64 {
        self.pool_at + u64::from(index) * u64::from(self.counts.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Counts = Counts {
        chunk: 65536,
        variables: 2,
        attributes: 16,
        constants: 3,
        records: 72,
        chunks: 100,
        slots: 400,
        observers: 64,
    };

    #[test]
    fn areas_follow_each_other() {
        let g = Geometry::of(COUNTS).unwrap();
        assert_eq!(g.variables_at, 4096);
        assert!(g.attributes_at >= g.variables_at + 2 * StructSizes::VARIABLE);
        assert!(g.constants_at >= g.attributes_at + 16 * StructSizes::ATTRIBUTE);
        assert!(g.records_at >= g.constants_at + 3 * StructSizes::CONSTANT);
        assert!(g.record_size >= g.table_at + 400 && g.record_size % 64 == 0);
        assert!(g.pool_at >= g.record(72) && g.pool_at % HUGE == 0);
        assert_eq!(g.size, g.slot(400));
    }

    #[test]
    fn counts_beyond_their_bounds_have_no_geometry() {
        for wrong in [
            Counts { chunk: 0, ..COUNTS },
            Counts { chunk: 12288, ..COUNTS },
            Counts { chunk: 4 << 20, ..COUNTS },
            Counts { variables: 0, ..COUNTS },
            Counts { variables: 65, ..COUNTS },
            Counts { attributes: 65, ..COUNTS },
            Counts { constants: 257, ..COUNTS },
            Counts { records: 1, ..COUNTS },
            Counts { chunks: u32::MAX, ..COUNTS },
            Counts { slots: u32::MAX, ..COUNTS },
            Counts { observers: 0, ..COUNTS },
        ] {
            assert_eq!(Geometry::of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_largest_counts_do_not_overflow() {
        let most = Counts {
            chunk: MAX_CHUNK,
            variables: MAX_VARIABLES,
            attributes: MAX_ATTRIBUTES,
            constants: MAX_CONSTANTS,
            records: MAX_RECORDS,
            chunks: MAX_CHUNKS,
            slots: MAX_SLOTS,
            observers: MAX_OBSERVERS,
        };
        assert!(Geometry::of(most).unwrap().size < 1 << 46);
    }
}
