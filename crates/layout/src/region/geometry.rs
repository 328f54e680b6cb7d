//! The offsets of a region's parts, which are computed from its capacity.

use super::{Entry, HeapSlot, RegionHeader, SliceHead};
use crate::HUGE;

/// Memory is reserved in whole pages of this size.
pub const PAGE: u64 = 4096;
/// The size in bytes of a slice, the heap's unit of memory. A slice holds small blocks of one size class, or is part of
/// one large block.
pub const SLICE: u64 = 65536;
/// The number of state bytes of a slice: one for each block that it can hold.
pub const STATES_PER_SLICE: u64 = SLICE / super::MIN_BLOCK;
/// The largest number of heap slots of a region. A state byte must have different values for all slots and for a few
/// other states, so a region cannot have 256 slots.
pub const MAX_SLOTS: u64 = 224;
/// The size of the smallest region: its tables and two slices.
pub const MIN_CAPACITY: u64 = 256 << 10;
/// The capacity of a new region that is opened with `ANY_SIZE`.
pub const DEFAULT_CAPACITY: u64 = 1 << 30;
/// The size that a caller gives to open an existing region of any size.
pub const ANY_SIZE: u64 = u64::MAX;

const MIN_SLOTS: u64 = 16;
const MIN_ENTRIES: u64 = 64;
const MAX_ENTRIES: u64 = 65536;
const MAX_BUCKETS: u64 = 4096;
/// In regions of at least this size, the first slice begins at a multiple of a huge page. In smaller regions it does
/// not, because the gap before the first slice would be a large part of the region.
const ROOMY: u64 = 32 * HUGE;
/// The largest capacity of a region in bytes. With a larger capacity, words with the offset of a block would have no
/// bits left for a phase, and slice numbers would not fit into 32 bits.
const MAX_CAPACITY: u64 = 1 << 46;

/// The offsets and sizes of a region's parts, in their order in memory. Every part begins at a page. The slices of a
/// region of 64 MiB or more begin at a huge page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The size of the segment in bytes.
    pub capacity: u64,
    /// The number of heap slots.
    pub slots: u64,
    /// The offset of the heap slots.
    pub slots_at: u64,
    /// The number of chains in each of the directory's two indexes (by name, by offset), a power of two.
    pub buckets: u64,
    /// The offset of the heads of the chains: `buckets` words of 32 bits for the index by name, then as many for the
    /// index by offset.
    pub buckets_at: u64,
    /// The number of directory entries.
    pub entries: u64,
    /// The offset of the directory entries.
    pub entries_at: u64,
    /// The number of slices.
    pub slices: u64,
    /// The offset of the bitmap of used slices. The bitmap consists of words of 64 bits.
    pub used_at: u64,
    /// The offset of the slice heads.
    pub heads_at: u64,
    /// The offset of the state bytes.
    pub states_at: u64,
    /// The offset of the first slice.
    pub data_at: u64,
}

impl Geometry {
    /// Computes the parts of a region of `capacity` bytes; `None` if the capacity is too small or too large.
    pub const fn of(capacity: u64) -> Option<Self> {
        if capacity < MIN_CAPACITY || capacity > MAX_CAPACITY {
            return None;
        }
        let slots = clamp(capacity / SLICE, MIN_SLOTS, MAX_SLOTS);
        let entries = clamp((capacity / 32768).next_power_of_two(), MIN_ENTRIES, MAX_ENTRIES);
        let buckets = clamp(entries / 4, 16, MAX_BUCKETS);
        let slots_at = size_of::<RegionHeader>() as u64;
        let buckets_at = pages(slots_at + slots * size_of::<HeapSlot>() as u64);
        let entries_at = pages(buckets_at + buckets * 8);
        let used_at = pages(entries_at + entries * size_of::<Entry>() as u64);
        // `most` is an upper bound of the number of slices. The tables get room for that many slices. The slices
        // themselves take the space behind the tables.
        let most = (capacity - used_at) / SLICE;
        let heads_at = pages(used_at + most.div_ceil(64) * 8);
        let states_at = pages(heads_at + most * size_of::<SliceHead>() as u64);
        let areas_end = pages(states_at + most * STATES_PER_SLICE);
        let data_at = if capacity >= ROOMY { areas_end.next_multiple_of(HUGE) } else { areas_end };
        if data_at >= capacity {
            return None;
        }
        let slices = (capacity - data_at) / SLICE;
        Some(Self {
            capacity,
            slots,
            slots_at,
            buckets,
            buckets_at,
            entries,
            entries_at,
            slices,
            used_at,
            heads_at,
            states_at,
            data_at,
        })
    }

    /// The offset of a slice's first byte.
    #[inline]
    pub const fn slice_at(&self, slice: u64) -> u64 {
        self.data_at + slice * SLICE
    }

    /// The number of bytes that a region takes when it is made: its header, and the heads of the directory's chains.
    pub const fn first_reserve(&self) -> u64 {
        PAGE + pages(self.buckets * 8)
    }
}

const fn clamp(n: u64, least: u64, most: u64) -> u64 {
    if n < least {
        least
    } else if n > most {
        most
    } else {
        n
    }
}

const fn pages(offset: u64) -> u64 {
    offset.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_follow_each_other_and_end_within_the_capacity() {
        for capacity in [MIN_CAPACITY, 1 << 20, (1 << 20) + 4096, 64 << 20, 1 << 30, 1 << 40, MAX_CAPACITY] {
            let g = Geometry::of(capacity).unwrap();
            let starts =
                [0, g.slots_at, g.buckets_at, g.entries_at, g.used_at, g.heads_at, g.states_at, g.data_at, capacity];
            assert!(starts.windows(2).all(|w| w[0] < w[1]), "{g:?}");
            assert!(starts[..8].iter().all(|s| s % PAGE == 0));
            assert!(g.data_at % if capacity < 64 << 20 { PAGE } else { HUGE } == 0);
            assert!(g.slices >= 2, "{g:?}");
            assert!(g.slice_at(g.slices) <= capacity);
            assert!(g.slots_at + g.slots * size_of::<HeapSlot>() as u64 <= g.buckets_at);
            assert!(g.entries_at + g.entries * size_of::<Entry>() as u64 <= g.used_at);
            assert!(g.heads_at + g.slices * size_of::<SliceHead>() as u64 <= g.states_at);
            assert!(g.states_at + g.slices * STATES_PER_SLICE <= g.data_at);
            assert!(g.buckets.is_power_of_two());
        }
    }

    #[test]
    fn what_is_too_small_or_too_large_is_no_region() {
        assert_eq!(Geometry::of(0), None);
        assert_eq!(Geometry::of(MIN_CAPACITY - 1), None);
        assert_eq!(Geometry::of(u64::MAX), None);
    }

    #[test]
    fn areas_of_a_gibibyte_are_frozen() {
        let g = Geometry::of(1 << 30).unwrap();
        assert_eq!((g.slots, g.buckets, g.entries), (224, 4096, 32768));
        assert_eq!(
            (g.slots_at, g.buckets_at, g.entries_at, g.used_at, g.heads_at, g.states_at, g.data_at, g.slices),
            (4096, 233472, 266240, 12849152, 12853248, 13373440, 48234496, 15648)
        );
        assert!(g.first_reserve() + 2 * PAGE <= 65536, "an empty region takes at most 64 KiB");
    }
}
