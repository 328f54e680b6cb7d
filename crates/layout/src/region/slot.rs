//! Heap slots: what one allocating thread of one member keeps in shared memory, so that other members can go on after
//! its death.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::WildWord;

/// Operation records of a slot.
pub const OPERATIONS: usize = 4;
/// The most words that one operation writes.
pub const MAX_WORDS: usize = 16;

/// The record is not in use.
pub const OP_NONE: u32 = 0;
/// `new_block` belongs to the record. If the holder dies, a healer frees the block.
pub const OP_PREPARED: u32 = 1;
/// The holder is writing the words and freeing the old block. If it dies, a healer does the rest.
pub const OP_REPLACING: u32 = 2;

/// The phase of a cell that names a block to be freed, in its low bits: the block's state may still be USED.
pub const PHASE_BEGUN: u64 = 1;
/// This slot marked the block DYING. If the block no longer has that mark, it has been freed.
pub const PHASE_MARKED: u64 = 2;
/// The bits of a phase.
pub const PHASE_MASK: u64 = 15;

/// One compound change, recorded before it begins. The slot's holder writes it, or the member that heals the slot.
#[repr(C)]
pub struct Operation {
    /// One of `OP_…`. It is stored last when the change begins (REPLACING is the point of no return), and first when
    /// the change is done.
    pub kind: AtomicU32,
    /// The number of valid `words`.
    pub count: WildWord<AtomicU32>,
    /// Offset at which the words are to be written.
    pub header: AtomicU64,
    /// The block that is put in, or prepared for it.
    pub new_block: AtomicU64,
    /// The block that is taken out, with its phase; 0 = none (left).
    pub retiring: AtomicU64,
    /// What to write.
    pub words: [AtomicU64; MAX_WORDS],
}

/// One heap slot. The region's lock guards `holder` and all healing.
#[repr(C, align(1024))]
pub struct Slot {
    /// The member whose thread allocates through this slot; 0 = vacant (the slot may still own slices).
    pub holder: AtomicU64,
    /// 1 = look through all slices of the slot, because a death may have lost a notice. Healers set it, and the holder
    /// clears it.
    pub rescan: AtomicU32,
    _pad0: [u8; 4],
    /// The offset of the block that is being allocated; 0 once the caller has it. Plain stores of the holder.
    pub allocating: AtomicU64,
    /// The slice whose owner is about to be told, plus 1; 0 = none. Stores of the holder.
    pub pushing: AtomicU64,
    /// A single block that is being freed, with its phase.
    pub retiring: AtomicU64,
    _pad1: [u8; 24],
    /// The stack of the slot's slices in which other members freed blocks. The low half is the slice plus 1. The high
    /// half is a counter, so that a head is not mistaken for an older one. Any member pushes; the holder takes the
    /// whole stack.
    pub available: AtomicU64,
    _pad2: [u8; 56],
    /// Compound changes that have begun and not ended.
    pub operations: [Operation; OPERATIONS],
    _pad3: [u8; 1024 - 128 - OPERATIONS * 160],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<Operation>(), 160);
        assert_eq!(offset_of!(Operation, words), 32);
        assert_eq!(size_of::<Slot>(), 1024);
        assert_eq!(offset_of!(Slot, allocating), 16);
        assert_eq!(offset_of!(Slot, available), 64);
        assert_eq!(offset_of!(Slot, operations), 128);
    }
}
