//! References to the parts of a region's memory. Only this module turns offsets and indexes into addresses, and it
//! checks each of them.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossdock_layout::WildWord;
use crossdock_layout::region::{
    CLASSES, Entry, Geometry, HeapSlot, RegionHeader, SLICE, STATES_PER_SLICE, SliceHead, SliceKind, SliceWord,
};
use crossdock_os::{Mapping, fetch, load_eight};

/// The mapping of a region, and the positions of its parts.
pub(crate) struct Memory {
    mapping: Mapping,
    base: *mut u8,
    geometry: Geometry,
    /// The addresses of the parts that the fast paths read.
    heads: *const SliceHead,
    states: *const AtomicU8,
}

// SAFETY: the base is an address within the mapping, which is Send and Sync; all access goes through atomics or through
// raw copies whose races are documented where they happen.
unsafe impl Send for Memory {}
// SAFETY: threads that share the value access the mapping only through atomics or through raw copies, whose races are
// documented where they happen.
unsafe impl Sync for Memory {}

/// The block that starts at a given offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    /// A small block: block number `block` of a slice that holds small blocks.
    Small { slice: u64, block: u64, class: usize, word: SliceWord },
    /// A large block: a run of whole slices.
    Large { slice: u64, run: u64, named: bool },
}

impl Block {
    /// The size of the block in bytes, as the heap rounded it up.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Small { class, .. } => CLASSES[class].size.into(),
            Self::Large { run, .. } => run * SLICE,
        }
    }
}

impl Memory {
    /// Finds the parts of a mapped region. `geometry` must be the geometry of a region with the length of the mapping.
    pub(crate) fn new(mapping: Mapping, geometry: Geometry) -> Self {
        assert!(geometry.capacity <= mapping.length() as u64);
        let base = mapping.start().as_ptr();
        // SAFETY: the slice heads and the state bytes begin within the capacity, and so within the mapping.
        let (heads, states) = unsafe { (base.add(geometry.heads_at as usize), base.add(geometry.states_at as usize)) };
        Self { base, mapping, geometry, heads: heads.cast(), states: states.cast() }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// # Safety
    /// `offset` must be aligned for `T`, and `size_of::<T>()` bytes from `offset` on must lie within the
    /// capacity. `T` must consist of atomics, so that other processes' writes are no data race.
    #[inline]
    unsafe fn at<T>(&self, offset: u64) -> &T {
        debug_assert!(offset + size_of::<T>() as u64 <= self.geometry.capacity);
        // SAFETY: the caller promises that the T lies within the mapping, which lives as long as `self`.
        unsafe { &*self.base.add(offset as usize).cast::<T>() }
    }

    #[inline]
    pub(crate) fn header(&self) -> &RegionHeader {
        // SAFETY: every region has at least the header's page; the mapping begins at a page.
        unsafe { self.at(0) }
    }

    /// The number of heap slots for which memory is reserved.
    pub(crate) fn slots(&self) -> u64 {
        self.header().slots.load(Ordering::Acquire).clamped(self.geometry.slots)
    }

    #[inline]
    pub(crate) fn slot(&self, index: u64) -> Option<&HeapSlot> {
        // SAFETY: the index is below `geometry.slots`, and at `slots_at` there is room for this many heap slots.
        (index < self.geometry.slots)
            .then(|| unsafe { self.at(self.geometry.slots_at + index * size_of::<HeapSlot>() as u64) })
    }

    /// The number of slices for which memory is reserved.
    #[inline]
    pub(crate) fn committed(&self) -> u64 {
        self.header().committed.load(Ordering::Acquire).clamped(self.geometry.slices)
    }

    #[inline]
    pub(crate) fn head(&self, slice: u64) -> Option<&SliceHead> {
        // SAFETY: the index is below `geometry.slices`, and at `heads` there is room for this many slice heads.
        (slice < self.geometry.slices).then(|| unsafe { &*self.heads.add(slice as usize) })
    }

    /// The head of a slice, and the state bytes of the slice's blocks.
    #[inline]
    pub(crate) fn head_and_states(&self, slice: u64) -> Option<(&SliceHead, &[AtomicU8; STATES_PER_SLICE as usize])> {
        let head = self.head(slice)?;
        // SAFETY: the slice has a head, so its index is below `geometry.slices`, and at `states` there is room for
        // STATES_PER_SLICE state bytes of each slice.
        Some((head, unsafe { &*self.states.add((slice * STATES_PER_SLICE) as usize).cast() }))
    }

    /// The number of slices of the large block whose first slice has this head: from 1 to `most`.
    pub(crate) fn run_within(head: &SliceHead, most: u64) -> u64 {
        head.run.load(Ordering::Acquire).clamped(most).max(1)
    }

    /// The state byte of a block.
    #[inline]
    pub(crate) fn state(&self, slice: u64, block: u64) -> Option<&AtomicU8> {
        let inside = slice < self.geometry.slices && block < STATES_PER_SLICE;
        // SAFETY: `inside` says that the indexes are in range, and at `states` there is room for STATES_PER_SLICE
        // state bytes of each slice.
        inside.then(|| unsafe { &*self.states.add((slice * STATES_PER_SLICE + block) as usize) })
    }

    /// Reads eight state bytes in one load, with the first one in the lowest byte. `index` counts groups of eight.
    #[inline]
    pub(crate) fn eight_states(&self, slice: u64, index: u64) -> u64 {
        if slice >= self.geometry.slices || index >= STATES_PER_SLICE / 8 {
            return u64::MAX;
        }
        // SAFETY: both indexes were checked, and at `states_at` there is room for STATES_PER_SLICE state bytes of each
        // slice. A group of eight begins at a multiple of eight, so the word is aligned.
        load_eight(unsafe { self.at(self.geometry.states_at + slice * STATES_PER_SLICE + index * 8) })
    }

    /// Word `index` of the bitmap of used slices.
    #[inline]
    pub(crate) fn used(&self, index: u64) -> Option<&AtomicU64> {
        // SAFETY: the index is below the number of words, and at `used_at` there is room for one bit per slice, in
        // words of 64 bits.
        (index < self.geometry.slices.div_ceil(64)).then(|| unsafe { self.at(self.geometry.used_at + index * 8) })
    }

    /// Gives the word with which the chain of directory entries for a hash begins: the chain in the index of names if
    /// `which` is 0, the chain in the index of offsets if `which` is 1.
    #[inline]
    pub(crate) fn bucket(&self, which: u64, hash: u32) -> &WildWord<AtomicU32> {
        let index = (which & 1) * self.geometry.buckets + (u64::from(hash) & (self.geometry.buckets - 1));
        // SAFETY: `buckets` is a power of two, so the index is below 2·buckets, for which there is room.
        unsafe { self.at(self.geometry.buckets_at + index * 4) }
    }

    /// The number of directory entries that have ever been used. (The directory lists the region's named objects.)
    pub(crate) fn entries(&self) -> u64 {
        let most = u32::try_from(self.geometry.entries).unwrap_or(u32::MAX);
        self.header().entries.load(Ordering::Acquire).clamped(most).into()
    }

    /// The number of directory entries for which memory is reserved. (The directory lists the region's named objects.)
    pub(crate) fn entries_reserved(&self) -> u64 {
        let most = u32::try_from(self.geometry.entries).unwrap_or(u32::MAX);
        self.header().entries_reserved.load(Ordering::Acquire).clamped(most).into()
    }

    #[inline]
    pub(crate) fn entry(&self, index: u64) -> Option<&Entry> {
        // SAFETY: the index is below `geometry.entries`, and at `entries_at` there is room for this many directory
        // entries.
        (index < self.geometry.entries)
            .then(|| unsafe { self.at(self.geometry.entries_at + index * size_of::<Entry>() as u64) })
    }

    /// Gives the word at this offset of the data area.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let end = offset.checked_add(8)?;
        let inside = offset >= self.geometry.data_at && end <= self.geometry.capacity && offset % 8 == 0;
        // SAFETY: `inside` says that the word lies within the mapping and is aligned.
        inside.then(|| unsafe { self.at(offset) })
    }

    /// Gives the address of `length` bytes in the data area.
    #[inline]
    pub(crate) fn data(&self, offset: u64, length: u64) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        let inside = offset >= self.geometry.data_at && end <= self.geometry.capacity;
        // SAFETY: `inside` says that the bytes lie within the mapping.
        inside.then(|| unsafe { self.base.add(offset as usize) })
    }

    /// Asks the CPU to fetch two cache lines that the caller reads next: the head of the slice at `offset`, and the
    /// block's state byte. With cold caches each line may cost a page table walk. Without this call the second walk
    /// would begin only after the first, because the CPU learns from the head which state byte is needed.
    #[inline]
    pub(crate) fn fetch_place(&self, offset: u64) {
        let slice = offset.wrapping_sub(self.geometry.data_at) / SLICE;
        fetch(self.heads.wrapping_add(slice as usize));
        // Fetches the cache line of the slice's first state byte, because the block's number is not known yet. If the
        // blocks of the slice have 1 KiB or more, the block's state byte is in this line. Otherwise it is at least in
        // the same page.
        fetch(self.states.wrapping_add((slice * STATES_PER_SLICE) as usize));
    }

    /// Finds the block that contains `offset`, and returns the offset at which the block starts. The block need not be
    /// in use. In a large block only offsets in its first slice are found.
    pub(crate) fn block_around(&self, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.geometry.data_at)? % SLICE;
        let slice_at = offset - within;
        let word = SliceWord(self.head((slice_at - self.geometry.data_at) / SLICE)?.word.load(Ordering::Acquire));
        if !word.is_small() {
            return Some(slice_at);
        }
        let size = u64::from(CLASSES.get(word.class())?.size);
        Some(slice_at + within / size * size)
    }

    /// Finds the block that starts at `offset`, whether or not it is in use.
    #[inline]
    pub(crate) fn block_at(&self, offset: u64) -> Option<Block> {
        let relative = offset.checked_sub(self.geometry.data_at)?;
        let (slice, within) = (relative / SLICE, relative % SLICE);
        let word = SliceWord(self.head(slice)?.word.load(Ordering::Acquire));
        if word.is_small() {
            let class = word.class();
            let about = CLASSES.get(class)?;
            let block = about.block_at(within).filter(|&block| block < u64::from(about.blocks))?;
            return Some(Block::Small { slice, block, class, word });
        }
        let named = match word.kind()? {
            SliceKind::Large => false,
            SliceKind::LargeNamed => true,
            SliceKind::Free | SliceKind::Small => return None,
        };
        let most = self.geometry.slices - slice;
        let run = self.head(slice)?.run.load(Ordering::Acquire).check(|run| within == 0 && run > 0 && run <= most)?;
        Some(Block::Large { slice, run, named })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crossdock_os::{Access, memfd};

    use super::*;

    /// Tests that indices and offsets of any value are safe, because they come from memory that other processes write.
    #[test]
    fn an_index_behind_a_table_or_an_offset_outside_of_the_data_gives_nothing() {
        let size = 1 << 20;
        let segment = memfd::create("crossdock-test", size).unwrap();
        let mapping = Mapping::new(&segment, size as usize, Access::ReadWrite).unwrap();
        let g = Geometry::of(size).unwrap();
        let memory = Memory::new(mapping, g);
        let (first, end) = (g.data_at, g.capacity);
        assert!(memory.slot(g.slots - 1).is_some() && memory.slot(g.slots).is_none());
        assert!(memory.head(g.slices - 1).is_some() && memory.head(g.slices).is_none());
        assert!(memory.entry(g.entries - 1).is_some() && memory.entry(g.entries).is_none());
        assert!(memory.state(g.slices - 1, 0).is_some() && memory.state(g.slices, 0).is_none());
        assert!(memory.state(0, STATES_PER_SLICE - 1).is_some() && memory.state(0, STATES_PER_SLICE).is_none());
        assert_eq!(memory.eight_states(g.slices, 0), u64::MAX);
        assert_eq!(memory.eight_states(0, STATES_PER_SLICE / 8), u64::MAX);
        assert!(memory.used(0).is_some() && memory.used(g.slices.div_ceil(64)).is_none());
        assert!(memory.word(first).is_some() && memory.word(end - 8).is_some());
        for wrong in [0, first - 8, first + 4, end - 4, end, u64::MAX - 7, u64::MAX] {
            assert!(memory.word(wrong).is_none(), "{wrong:#x}");
        }
        assert!(memory.data(first, end - first).is_some());
        for (offset, length) in
            [(0, 8), (first - 1, 1), (first, end - first + 1), (end, 1), (first, u64::MAX), (u64::MAX, 2)]
        {
            assert!(memory.data(offset, length).is_none(), "{length} bytes at {offset:#x}");
        }
        for wrong in [0, first - 1, end, u64::MAX] {
            assert!(memory.block_at(wrong).is_none(), "{wrong:#x}");
        }
    }
}
