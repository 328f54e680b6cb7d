//! The heads of slices, and the state bytes of their blocks.
//!
//! A block's state byte alone says whether the block is in use. Only the slot that owns the slice changes a byte from
//! FREE to USED; any member may change a byte from USED to FREE. So the owner can allocate a block with a plain store
//! to the block's state byte, and need not claim blocks in advance. After a member's death, healing only has to finish
//! the operation that the member had begun.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::WildWord;

/// The state of a block that is not in use. Zeroed memory has this value.
pub const STATE_FREE: u8 = 0;
/// The state of a block that is in use and has no name.
pub const STATE_USED: u8 = 1;
/// The state of the block of a named object. The block is freed only when the object is removed from the directory.
pub const STATE_NAMED: u8 = 2;
/// This value plus the number of a heap slot is the state of a block that the slot's holder is about to free (see
/// `Operation`).
pub const STATE_DYING: u8 = 16;

/// The use of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SliceKind {
    /// The slice is free, or belongs to a large block but is not its first slice.
    Free = 0,
    /// The slice is divided into small blocks of one class.
    Small = 1,
    /// The slice is the first one of a large block.
    Large = 2,
    /// The slice is the first one of a named object's large block.
    LargeNamed = 3,
}

/// Says whether the owner of a slice of small blocks knows that the slice has free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Available {
    /// The owner knows that the slice has free blocks, and will search it by itself.
    Active = 0,
    /// The owner has searched the slice, found no free block, and does not search it again. The first member that then
    /// frees a block of the slice tells the owner: it makes the slice `Queued`. If that member is the owner itself, it
    /// makes the slice `Active`.
    Full = 1,
    /// The slice has a free block, and another member tells the owner: the slice is on the owner's stack, or the heap
    /// slot `by` is putting it there.
    Queued = 2,
    /// The heap slot `by` died while it was putting the slice on the owner's stack. The owner finds the slice when it
    /// searches all of its slices.
    Orphan = 3,
}

/// The head of a slice.
#[repr(C)]
pub struct SliceHead {
    /// The slice's kind, class, owner and `available`, in the form of a [`SliceWord`]. The first three change under the
    /// region's lock, and `available` changes by compare-and-swap.
    pub word: AtomicU64,
    /// The number of slices of a large block. This field is written under the region's lock, before `word`.
    pub run: WildWord<AtomicU64>,
    /// For a slice on its owner's stack: the number of the next slice plus 1; 0 for the last one. The member that puts
    /// the slice on the stack writes this field.
    pub next: WildWord<AtomicU32>,
    /// 1 when memory is reserved for the slice's state bytes. The field is written under the region's lock.
    pub states_ready: AtomicU32,
    _pad: [u8; 8],
}

/// The decoded `SliceHead::word`. Bits 0–7 are the kind, 8–15 the class, 16–31 the owner, 32–39 `available`, 40–55
/// `by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceWord(pub u64);

impl SliceWord {
    /// The word of a free slice.
    pub const FREE: Self = Self(0);

    /// The word for a slice of small blocks that has free blocks. The owner knows that the slice has them.
    #[inline]
    pub const fn small(class: usize, owner: u16) -> Self {
        Self(SliceKind::Small as u64 | (class as u64 & 0xff) << 8 | (owner as u64) << 16)
    }

    /// The word for the first slice of a large block.
    pub const fn large(named: bool) -> Self {
        Self(if named { SliceKind::LargeNamed as u64 } else { SliceKind::Large as u64 })
    }

    /// The kind of the slice; `None` for a number that is no kind.
    #[inline]
    pub const fn kind(self) -> Option<SliceKind> {
        match self.0 as u8 {
            0 => Some(SliceKind::Free),
            1 => Some(SliceKind::Small),
            2 => Some(SliceKind::Large),
            3 => Some(SliceKind::LargeNamed),
            _ => None,
        }
    }

    /// Tells whether this is a slice of small blocks. The fast paths call this.
    #[inline]
    pub const fn is_small(self) -> bool {
        self.0 as u8 == SliceKind::Small as u8
    }

    /// The number of the slice's size class. The caller must check that there is such a class.
    #[inline]
    pub const fn class(self) -> usize {
        (self.0 >> 8) as u8 as usize
    }

    /// The number of the heap slot that owns the slice. The caller must check that there is such a slot.
    #[inline]
    pub const fn owner(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Gives the part of the word that says whether the owner knows that the slice has free blocks.
    #[inline]
    pub const fn available(self) -> Available {
        match (self.0 >> 32) as u8 {
            1 => Available::Full,
            2 => Available::Queued,
            3 => Available::Orphan,
            _ => Available::Active,
        }
    }

    /// The number of the heap slot that queued the slice. The caller must check that there is such a slot.
    #[inline]
    pub const fn by(self) -> u16 {
        (self.0 >> 40) as u16
    }

    /// Gives the same word with another value of `available`.
    #[inline]
    #[must_use]
    pub const fn with(self, available: Available, by: u16) -> Self {
        Self(self.0 & 0xffff_ffff | (available as u64) << 32 | (by as u64) << 40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<SliceHead>(), 32);
        assert_eq!((offset_of!(SliceHead, run), offset_of!(SliceHead, next)), (8, 16));
        assert_eq!(SliceWord::small(7, 3).with(Available::Queued, 9).0, 0x0902_0003_0701);
    }

    #[test]
    fn a_word_gives_back_what_went_in() {
        let word = SliceWord::small(38, 223).with(Available::Orphan, 17);
        assert_eq!((word.kind(), word.class(), word.owner()), (Some(SliceKind::Small), 38, 223));
        assert_eq!((word.available(), word.by()), (Available::Orphan, 17));
        assert_eq!(SliceWord(0xff).kind(), None);
    }
}
