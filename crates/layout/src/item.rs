//! The first page of an item's memory: the description of the item's contents, and, for cooperative items, the owner.
//! The data follow this page.
//!
//! A former owner may have written anything into this page, so the next owner must check the page before use.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::wire::OnDeath;
use crate::{LAYOUT_VERSION, MemberId, WildWord};

/// The offset of the data in the item's memory. The header takes one page, so that the data are aligned for a heap and
/// for vector instructions.
pub const ITEM_DATA: u64 = 4096;
/// The first word of an item's memory, the text `xdockitm`.
pub const ITEM_MAGIC: u64 = u64::from_le_bytes(*b"xdockitm");
/// The largest number of dimensions of an array.
pub const ITEM_RANK: usize = 8;
/// The number of bytes for the name of an array's element type. The rest of the field is zero.
pub const ITEM_TYPE: usize = 192;

/// The value of `contents` for plain bytes.
pub const CONTENTS_BYTES: u32 = 0;
/// The value of `contents` for an array, which `type_name`, `rank`, `order` and `shape` describe.
pub const CONTENTS_ARRAY: u32 = 1;
/// The value of `contents` for a region: a heap with named objects.
pub const CONTENTS_HEAP: u32 = 2;

/// The value of the owner word after the item was destroyed.
pub const OWNER_GONE: u32 = u32::MAX;

/// The header of an item, which is its first page.
#[repr(C)]
pub struct ItemHeader {
    /// The number [`ITEM_MAGIC`]. If it is missing, the item counts as bytes without a description.
    pub magic: AtomicU64,
    /// The version of the layout, [`crate::LAYOUT_VERSION`].
    pub version: AtomicU32,
    /// The kind of contents: one of the `CONTENTS_` numbers.
    pub contents: AtomicU32,
    /// The number of dimensions of the array.
    pub rank: WildWord<AtomicU32>,
    /// The order of the elements. 0: the last index varies fastest (C). 1: the first index varies fastest (Fortran).
    pub order: AtomicU32,
    /// The lengths in each dimension, the outermost first.
    pub shape: [WildWord<AtomicU64>; ITEM_RANK],
    /// The name of the element type, as [`crate::type_name`] defines type names.
    pub type_name: [AtomicU64; ITEM_TYPE / 8],
    /// Unused bytes between the description of the contents and the words of cooperative items. The description and
    /// these words are thus on different cache lines, so that waiting members do not slow down readers of the
    /// description.
    pub padding: [AtomicU64; 29],
    /// Cooperative items: the number that the daemon has given to the party that owns the item. The daemon writes the
    /// first owner. After that, only the member in `holder` writes this number, or, after that member's death, the
    /// member that heals the item.
    pub owner: AtomicU32,
    /// Cooperative items: a number that is incremented each time a member gives the item back. Members that wait for
    /// the item sleep on this word.
    pub turn: AtomicU32,
    /// Cooperative items: the id of the member that has the item open as its owner, or 0. A member takes the item by an
    /// atomic exchange of this word.
    pub holder: AtomicU64,
    /// Cooperative items: the number of members that sleep because they wait for the item. A member that gives the item
    /// back wakes other members only if this number is not 0.
    pub sleepers: AtomicU32,
    /// Cooperative items: what happens to the item when its holder dies, as a number of [`crate::wire::OnDeath`].
    pub on_death: AtomicU32,
    /// Cooperative items: the number of the party that made the item.
    pub creator: AtomicU32,
    /// Cooperative items: the number of the party for which the member in `holder` has the item, or 0. The member
    /// writes this number after it has seen that its own party owns the item, and sets it to 0 before it gives the item
    /// back. So when a holder dies, `on_death` applies only if `held_for` is equal to `owner`.
    pub held_for: AtomicU32,
    /// Cooperative items: the number of times that the item changed its owner.
    pub transfers: AtomicU64,
    /// Cooperative items: the number of times that a member took the place of a dead holder. By this number, members
    /// learn of deaths that another member found.
    pub deaths: AtomicU32,
}

/// The first bytes of a new cooperative item: the party `owner` has made the item and owns it, and its member `holder`
/// has it. The contents are plain bytes.
#[must_use]
pub fn new_cooperative_item(owner: u32, holder: MemberId, on_death: OnDeath) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<ItemHeader>()];
    let mut write = |offset: usize, number: &[u8]| bytes[offset..offset + number.len()].copy_from_slice(number);
    write(offset_of!(ItemHeader, magic), &ITEM_MAGIC.to_ne_bytes());
    write(offset_of!(ItemHeader, version), &LAYOUT_VERSION.to_ne_bytes());
    write(offset_of!(ItemHeader, contents), &CONTENTS_BYTES.to_ne_bytes());
    write(offset_of!(ItemHeader, owner), &owner.to_ne_bytes());
    write(offset_of!(ItemHeader, holder), &holder.0.to_ne_bytes());
    write(offset_of!(ItemHeader, on_death), &(on_death as u32).to_ne_bytes());
    write(offset_of!(ItemHeader, creator), &owner.to_ne_bytes());
    write(offset_of!(ItemHeader, held_for), &owner.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_frozen() {
        assert_eq!(offset_of!(ItemHeader, shape), 24);
        assert_eq!(offset_of!(ItemHeader, type_name), 88);
        assert_eq!(offset_of!(ItemHeader, owner), 512);
        assert_eq!(offset_of!(ItemHeader, turn), 516);
        assert_eq!(offset_of!(ItemHeader, holder), 520);
        assert_eq!(offset_of!(ItemHeader, sleepers), 528);
        assert_eq!(offset_of!(ItemHeader, creator), 536);
        assert_eq!(offset_of!(ItemHeader, held_for), 540);
        assert_eq!(offset_of!(ItemHeader, transfers), 544);
        assert_eq!(offset_of!(ItemHeader, deaths), 552);
        assert!(size_of::<ItemHeader>() as u64 <= ITEM_DATA);
    }
}
