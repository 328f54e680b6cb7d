//! The entries of a region's directory. Each entry describes one named object.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::WildWord;

/// The state of an entry that is not in use.
pub const ENTRY_FREE: u32 = 0;
/// The state of an entry whose object the member `owner` is making. If `owner` dies, healing removes the entry and the
/// block.
pub const ENTRY_CONSTRUCTING: u32 = 1;
/// The state of an entry whose object all members can open.
pub const ENTRY_READY: u32 = 2;
/// The state of an entry whose object the member `owner` is removing. If `owner` dies, healing completes the removal.
pub const ENTRY_REMOVING: u32 = 3;

/// The directory entry of a named object. The state alone says whether the entry has an object. The hash chains are
/// derived from the entries, so healing can rebuild them.
#[repr(C, align(64))]
pub struct Entry {
    /// The state of the entry: one of `ENTRY_…`. It is written under the region's lock.
    pub state: AtomicU32,
    /// The number of the heap slot in which the removing member records the blocks that it frees.
    pub slot: WildWord<AtomicU32>,
    /// The member that is making or removing the object.
    pub owner: AtomicU64,
    /// The offset of the object's block; 0 until the object has one.
    pub offset: WildWord<AtomicU64>,
    /// In state REMOVING: the offset of the block that is being freed, with the phase of the freeing in its low bits.
    pub retiring: AtomicU64,
    /// The size of the object in bytes.
    pub size: WildWord<AtomicU64>,
    /// The alignment of the object in bytes.
    pub align: AtomicU32,
    /// The number, plus 1, of the next entry in the same chain of the index by name. In a free entry: the number, plus
    /// 1, of the next free entry.
    pub next_by_name: WildWord<AtomicU32>,
    /// The number, plus 1, of the next entry in the same chain of the index by offset.
    pub next_by_offset: WildWord<AtomicU32>,
    /// The hash of the name.
    pub hash: AtomicU32,
    /// The number of objects for which this entry has been used. A member that takes the entry for a new object
    /// increments it under the region's lock. So if a reference to an object contains an older number than the entry,
    /// the object of the reference is gone.
    pub incarnation: AtomicU64,
    /// The name. The rest of the field is zero.
    pub name: [AtomicU8; 128],
    /// The name of the type. The rest of the field is zero.
    pub type_name: [AtomicU8; 192],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<Entry>(), 384);
        assert_eq!((offset_of!(Entry, owner), offset_of!(Entry, offset)), (8, 16));
        assert_eq!(offset_of!(Entry, incarnation), 56);
        assert_eq!((offset_of!(Entry, name), offset_of!(Entry, type_name)), (64, 192));
    }
}
