//! The only code that loads those words of a directory entry that become an offset, a size or an index. Each function
//! checks the word, because any member can overwrite it.

use std::sync::atomic::Ordering;

use crossdock_layout::region::Entry;

/// A bit of `Entry::slot`. In the entry of an object under construction, the bit is set when the constructor has
/// filled the object's new block with zeros. A member that heals the region follows the pointers of the object's
/// containers only if the bit is set. Before that, old contents of the block could look like pointers.
pub(super) const ZEROED: u32 = 1 << 31;

/// The offset of the object's block, if `is_block` accepts it.
pub(super) fn block_of(entry: &Entry, is_block: impl FnOnce(u64) -> bool) -> Option<u64> {
    entry.offset.load(Ordering::Acquire).check(is_block)
}

/// Tells whether the object's block is at this offset.
#[inline]
pub(super) fn is_at(entry: &Entry, offset: u64) -> bool {
    entry.offset.load(Ordering::Relaxed).is(offset)
}

/// The hash of the offset in the entry. The offset may have any value, because each hash leads to an existing chain of
/// the index.
pub(super) fn hash_by_offset(entry: &Entry, hash: impl FnOnce(u64) -> u32) -> u32 {
    entry.offset.load(Ordering::Relaxed).hashed(hash)
}

/// The object's size, if it is at most `limit`.
pub(super) fn size_within(entry: &Entry, limit: u64) -> Option<u64> {
    entry.size.load(Ordering::Relaxed).at_most(limit)
}

/// The heap slot in which the removal of the object is recorded. If another process has overwritten the slot's number
/// in the entry, there may be no slot with this number. In this case the removal is recorded in slot 0.
pub(super) fn slot_of(entry: &Entry, slots: u64) -> u16 {
    let named = entry.slot.load(Ordering::Relaxed).without(ZEROED).below(slots as u32);
    named.and_then(|slot| u16::try_from(slot).ok()).unwrap_or(0)
}

/// Tells whether the object has got a block that its constructor has filled with zeros.
pub(super) fn is_zeroed(entry: &Entry) -> bool {
    entry.slot.load(Ordering::Relaxed).has(ZEROED)
}
