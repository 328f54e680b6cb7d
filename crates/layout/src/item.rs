//! The first page of an item's memory: what it holds, and for cooperative items whose it is. The data follows it.
//!
//! Everything here was written by a former owner, so it is wild to the next one until checked.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Where the data begins: a page, so that a heap or vector instructions find it aligned.
pub const ITEM_DATA: u64 = 4096;
/// "xdockitm"
pub const ITEM_MAGIC: u64 = u64::from_le_bytes(*b"xdockitm");
/// Most extents of an array.
pub const ITEM_RANK: usize = 8;
/// Bytes for the name of an array's element type, zero-filled.
pub const ITEM_TYPE: usize = 192;

/// The data are bytes.
pub const CONTENTS_BYTES: u32 = 0;
/// The data are an array, described by type, rank, order and shape.
pub const CONTENTS_ARRAY: u32 = 1;
/// The data are a region: a heap with named objects.
pub const CONTENTS_HEAP: u32 = 2;

/// An owner word that names no task: the item is destroyed.
pub const OWNER_GONE: u32 = u32::MAX;

/// The header.
#[repr(C)]
pub struct ItemHeader {
    /// [`ITEM_MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`crate::LAYOUT_VERSION`].
    pub version: AtomicU32,
    /// One of the `CONTENTS_` numbers.
    pub contents: AtomicU32,
    /// Extents of the array.
    pub rank: AtomicU32,
    /// 0 last index fastest (C), 1 first index fastest (Fortran).
    pub order: AtomicU32,
    /// The extents, outermost first.
    pub shape: [AtomicU64; ITEM_RANK],
    /// The element type's name in the grammar of [`crate::type_name`].
    pub type_name: [AtomicU64; ITEM_TYPE / 8],
    /// So that waiting does not disturb those who read the description.
    pub padding: [AtomicU64; 29],
    /// Cooperative: the number of the party that owns it; the daemon gives the numbers. Written by the holder alone, or
    /// by the member that heals after a dead one.
    pub owner: AtomicU32,
    /// Cooperative: how many changes there were; what waiters sleep on.
    pub turn: AtomicU32,
    /// Cooperative: the member that has it, or none. Taken by exchange.
    pub holder: AtomicU64,
    /// Cooperative: how many sleep; a member that changes something wakes only if there are any.
    pub sleepers: AtomicU32,
    /// Cooperative: what becomes of it when its holder is dead, as [`crate::wire::OnDeath`] numbers it.
    pub on_death: AtomicU32,
    /// Cooperative: the number of the party that made it.
    pub creator: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// Cooperative: how often it changed its owner.
    pub transfers: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn offsets_are_frozen() {
        assert_eq!(offset_of!(ItemHeader, shape), 24);
        assert_eq!(offset_of!(ItemHeader, type_name), 88);
        assert_eq!(offset_of!(ItemHeader, owner), 512);
        assert_eq!(offset_of!(ItemHeader, turn), 516);
        assert_eq!(offset_of!(ItemHeader, holder), 520);
        assert_eq!(offset_of!(ItemHeader, sleepers), 528);
        assert_eq!(offset_of!(ItemHeader, creator), 536);
        assert_eq!(offset_of!(ItemHeader, transfers), 544);
        assert!(size_of::<ItemHeader>() as u64 <= ITEM_DATA);
    }
}
