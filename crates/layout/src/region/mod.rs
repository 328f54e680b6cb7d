//! The contents of a region's segment: header, heap slots, directory, slice heads, state bytes, data.
//!
//! `docs/memory-format.md` has pictures. The offset of each part follows from the capacity alone ([`Geometry`]). So no
//! member has to trust an offset in shared memory.

mod classes;
mod containers;
mod entry;
mod geometry;
mod slice;
mod slot;

pub use classes::{CLASSES, MAX_SMALL, MIN_BLOCK, SizeClass, class_for};
pub use containers::{MAX_RANK, NdarrayHeader, Order, VectorHeader};
pub use entry::{ENTRY_CONSTRUCTING, ENTRY_FREE, ENTRY_READY, ENTRY_REMOVING, Entry};
pub use geometry::{ANY_SIZE, DEFAULT_CAPACITY, Geometry, MAX_SLOTS, MIN_CAPACITY, PAGE, SLICE, STATES_PER_SLICE};
pub use slice::{Available, STATE_DYING, STATE_FREE, STATE_NAMED, STATE_USED, SliceHead, SliceKind, SliceWord};
pub use slot::{
    HeapSlot, MAX_WORDS, OP_NONE, OP_PREPARED, OP_REPLACING, OPERATIONS, Operation, PHASE_BEGUN, PHASE_MARKED,
    PHASE_MASK,
};

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::WildWord;

/// The first word of a formatted region.
pub const REGION_MAGIC: u64 = u64::from_le_bytes(*b"xdockreg");
/// The value of `RegionHeader::init` in a region that is ready for use. Before the region is ready, the value is first
/// 0, and then the id of the member that formats the region.
pub const REGION_READY: u64 = u64::MAX;

/// A lock that survives the death of the member that holds it. The lock's word contains that member's id. If the member
/// is dead, another member takes the lock over.
#[repr(C)]
pub struct Lock {
    /// The id of the member that holds the lock; 0 if the lock is free. The word changes only by compare-and-swap,
    /// except when the holder itself releases the lock.
    pub holder: AtomicU64,
    /// 1 while a member may be sleeping on `gate`. Waiting members set this word, and the releasing member clears it.
    /// If the word is 1 although no member sleeps, one needless wake is made.
    pub waiting: AtomicU32,
    /// A futex word. The member that releases the lock increments this word if `waiting` is set.
    pub gate: AtomicU32,
}

/// The header of a region, which is its first page.
#[repr(C, align(4096))]
pub struct RegionHeader {
    /// The number [`REGION_MAGIC`], which is written while the region is formatted.
    pub magic: AtomicU64,
    /// The number `LAYOUT_VERSION`, which is written while the region is formatted.
    pub version: AtomicU32,
    /// The number [`FINGERPRINT`], which is written while the region is formatted.
    pub fingerprint: AtomicU32,
    /// 0, then the id of the member that formats the region, then [`REGION_READY`], which is written last. If the
    /// formatting member dies, another member takes the formatting over.
    pub init: AtomicU64,
    /// The size of the segment in bytes.
    pub capacity: WildWord<AtomicU64>,
    _pad0: [u8; 32],
    /// The lock that guards the pool of slices, the growth of the region, the holders of heap slots, and the directory.
    pub lock: Lock,
    _pad1: [u8; 48],
    /// The number of slices with reserved memory, counted from the first slice. The number is written under the
    /// region's lock, and any member reads it.
    pub committed: WildWord<AtomicU64>,
    /// No slice with a number below this value is free. The value is a hint that is written under the region's lock.
    pub first_free: WildWord<AtomicU64>,
    /// The number of bytes of this region that count against the quota at present. The number is written under the
    /// region's lock.
    pub reserved: AtomicU64,
    /// The number of heap slots with reserved memory, counted from the first slot. The number is written under the
    /// region's lock.
    pub slots: WildWord<AtomicU64>,
    /// 1 while the holder of the lock changes the bitmap of used slices. If that holder dies, the next holder of the
    /// lock rebuilds the bitmap.
    pub pool_dirty: AtomicU32,
    _pad2: [u8; 28],
    /// An odd number while the holder of the lock changes the directory. Members that read the directory without the
    /// lock compare this number before and after they read.
    pub directory_version: AtomicU64,
    /// The number of directory entries that were ever used, counted from the first entry. The number is written under
    /// the region's lock.
    pub entries: WildWord<AtomicU32>,
    /// The number of the first free entry below `entries`, plus 1; 0 if there is none. The list of free entries is
    /// derived from the entries, and healing rebuilds it.
    pub free_entry: WildWord<AtomicU32>,
    /// The number of directory entries with reserved memory, counted from the first entry. The number is written under
    /// the region's lock.
    pub entries_reserved: WildWord<AtomicU32>,
    /// A futex word. A member that makes an object ready, or removes an object, increments this word and wakes the
    /// members that sleep on it.
    pub directory_gate: AtomicU32,
    /// 1 while a member may be sleeping on `directory_gate`.
    pub directory_waiting: AtomicU32,
    _pad3: [u8; 36],
    /// The segments whose bytes this region was copied from, the latest first; unused places are 0. A handle that names
    /// one of these segments means the same offset of this region. The numbers are written before any member can open
    /// the region.
    pub former: [AtomicU64; MAX_FORMER],
    _pad4: [u8; 4096 - 512],
}

/// The length of the list `former`, in which a region remembers from which segments it was copied.
pub const MAX_FORMER: usize = 32;

/// A number that changes with every change of the layout. Builds with different fingerprints refuse each other.
pub const FINGERPRINT: u32 = fingerprint();

const fn fingerprint() -> u32 {
    let (Some(small), Some(large)) = (Geometry::of(MIN_CAPACITY), Geometry::of(1 << 30)) else { return 0 };
    let parts = [
        small.data_at,
        large.data_at,
        crate::LAYOUT_VERSION as u64,
        size_of::<RegionHeader>() as u64,
        size_of::<HeapSlot>() as u64,
        size_of::<Operation>() as u64,
        size_of::<Entry>() as u64,
        size_of::<SliceHead>() as u64,
        SLICE,
        STATES_PER_SLICE,
        MAX_SLOTS,
        CLASSES.len() as u64,
        CLASSES[CLASSES.len() / 2].size as u64,
    ];
    // The code below computes the hash FNV-1a of the numbers in `parts`.
    let (mut hash, mut i) = (0x811c_9dc5u32, 0);
    while i < parts.len() {
        let mut byte = 0;
        while byte < 8 {
            hash = (hash ^ (parts[i] >> (8 * byte)) as u8 as u32).wrapping_mul(0x0100_0193);
            byte += 1;
        }
        i += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn layout_of_the_header_is_frozen() {
        assert_eq!((size_of::<RegionHeader>(), align_of::<RegionHeader>()), (4096, 4096));
        assert_eq!(offset_of!(RegionHeader, init), 16);
        assert_eq!(offset_of!(RegionHeader, capacity), 24);
        assert_eq!(offset_of!(RegionHeader, lock), 64);
        assert_eq!(offset_of!(RegionHeader, committed), 128);
        assert_eq!(offset_of!(RegionHeader, pool_dirty), 160);
        assert_eq!(offset_of!(RegionHeader, directory_version), 192);
        assert_eq!(offset_of!(RegionHeader, directory_gate), 212);
        assert_eq!(offset_of!(RegionHeader, former), 256);
        assert_eq!((size_of::<Lock>(), offset_of!(Lock, gate)), (16, 12));
    }

    #[test]
    fn the_fingerprint_is_frozen() {
        assert_eq!(
            FINGERPRINT, 4059555084,
            "the layout changed: count LAYOUT_VERSION up and freeze the new fingerprint"
        );
    }
}
