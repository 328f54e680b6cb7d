//! The first page of an item's memory: the description of its contents, and for cooperative items the owner. The data
//! follow it.
//!
//! A former owner wrote all of it, so the next owner must check it before use.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::WildWord;

/// The offset of the data: one page, so that the data are aligned for a heap and for vector instructions.
pub const ITEM_DATA: u64 = 4096;
/// "xdockitm"
pub const ITEM_MAGIC: u64 = u64::from_le_bytes(*b"xdockitm");
/// The largest number of extents of an array.
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
    /// The number of extents of the array.
    pub rank: WildWord<AtomicU32>,
    /// 0: the last index varies fastest (C). 1: the first index varies fastest (Fortran).
    pub order: AtomicU32,
    /// The extents, outermost first.
    pub shape: [WildWord<AtomicU64>; ITEM_RANK],
    /// The element type's name in the grammar of [`crate::type_name`].
    pub type_name: [AtomicU64; ITEM_TYPE / 8],
    /// Keeps the description on other cache lines than the words below, so that waiting does not disturb its readers.
    pub padding: [AtomicU64; 29],
    /// Cooperative: the number of the party that owns the item, as the daemon numbers parties. Only the holder writes
    /// it, or the member that heals after a dead holder.
    pub owner: AtomicU32,
    /// Cooperative: the number of changes. Waiting members sleep on it.
    pub turn: AtomicU32,
    /// Cooperative: the member that has the item, or none. A member takes it by exchange.
    pub holder: AtomicU64,
    /// Cooperative: the number of sleeping members. A member that makes a change wakes others only if it is not 0.
    pub sleepers: AtomicU32,
    /// Cooperative: what happens to the item when its holder dies, as [`crate::wire::OnDeath`] numbers it.
    pub on_death: AtomicU32,
    /// Cooperative: the number of the party that made the item.
    pub creator: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// Cooperative: how often the item changed its owner.
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
