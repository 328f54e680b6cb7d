//! Directory entries: named, typed objects.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::WildWord;

/// Not in use.
pub const ENTRY_FREE: u32 = 0;
/// `owner` is making the object. If `owner` dies, a healer removes the entry and the block.
pub const ENTRY_CONSTRUCTING: u32 = 1;
/// There for everybody.
pub const ENTRY_READY: u32 = 2;
/// `owner` is removing the object. If `owner` dies, a healer does the rest.
pub const ENTRY_REMOVING: u32 = 3;

/// One named object. The state is the truth; the chains are derived from it and are rebuilt when in doubt.
#[repr(C, align(64))]
pub struct Entry {
    /// One of `ENTRY_…`. Written under the region's lock.
    pub state: AtomicU32,
    /// The heap slot that records what the removing member frees.
    pub slot: WildWord<AtomicU32>,
    /// Constructor or remover.
    pub owner: AtomicU64,
    /// The offset of the object's block; 0 until the object has one.
    pub offset: WildWord<AtomicU64>,
    /// While REMOVING: the block with its phase.
    pub retiring: AtomicU64,
    /// Bytes of the object.
    pub size: WildWord<AtomicU64>,
    /// Its alignment.
    pub align: AtomicU32,
    /// The next entry of the chain by name, plus 1. For a free entry, the next one of the list of free entries.
    pub next_by_name: WildWord<AtomicU32>,
    /// Next entry of the chain by offset, plus 1.
    pub next_by_offset: WildWord<AtomicU32>,
    /// Hash of the name.
    pub hash: AtomicU32,
    /// The number of objects that this entry has been used for. Each member that takes the entry for a new object
    /// increments it under the region's lock. A reference with an older number is to an object that is gone.
    pub incarnation: AtomicU64,
    /// The name, filled with zeros.
    pub name: [AtomicU8; 128],
    /// The type's name, filled with zeros.
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
