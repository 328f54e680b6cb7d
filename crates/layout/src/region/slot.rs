//! Heap slots: the data that one allocating thread of a member keeps in shared memory, so that other members can finish
//! the member's operations after its death.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::WildWord;

/// The number of operation records of a slot.
pub const OPERATIONS: usize = 4;
/// The largest number of words that one operation writes.
pub const MAX_WORDS: usize = 16;

/// The value of an operation record's `kind` if the record is not in use.
pub const OP_NONE: u32 = 0;
/// The value of an operation record's `kind` while the record alone names a new block. If the holder of the slot dies,
/// healing frees this block.
pub const OP_PREPARED: u32 = 1;
/// The value of an operation record's `kind` while the holder of the slot writes the words of the record and frees the
/// old block that the record names. If the holder dies, healing completes both steps.
pub const OP_REPLACING: u32 = 2;

/// The first phase of freeing a block, in the low bits of a word that names the block: the block's state may still be
/// USED.
pub const PHASE_BEGUN: u64 = 1;
/// The second phase of freeing a block: the slot's holder has marked the block DYING. The block keeps this mark until
/// it is freed. So if healing finds the block without the mark, the block has been freed already.
pub const PHASE_MARKED: u64 = 2;
/// The bits that contain the phase of the freeing, in a word that names a block that is being freed.
pub const PHASE_MASK: u64 = 15;

/// A change of several steps, which is recorded before it begins. The record is written by the slot's holder, or by the
/// member that heals the slot.
#[repr(C)]
pub struct Operation {
    /// The kind of change: one of `OP_…`. When the change begins, this field is stored after all others. When the
    /// change is done, this field is cleared first. Once this field is REPLACING, the change is always completed: by
    /// the holder, or, if the holder dies, by the member that heals the slot.
    pub kind: AtomicU32,
    /// The number of valid `words`.
    pub count: WildWord<AtomicU32>,
    /// The offset at which the operation writes `words`.
    pub header: AtomicU64,
    /// The offset of the new block. After the words are written, they point to this block.
    pub new_block: AtomicU64,
    /// The offset of the old block. The operation frees this block after it has written `words`. The low bits of the
    /// value say how far the freeing has come (`PHASE_…`). The value is 0 if there is no old block, or if the old block
    /// is freed already.
    pub retiring: AtomicU64,
    /// The words that the operation writes at the offset `header`.
    pub words: [AtomicU64; MAX_WORDS],
}

/// One heap slot. The region's lock guards `holder` and all healing.
#[repr(C, align(1024))]
pub struct HeapSlot {
    /// The member whose thread allocates through this slot; 0 if the slot is vacant. A vacant slot may still own
    /// slices.
    pub holder: AtomicU64,
    /// 1 if the holder has to search all slices of the slot, because a member may have freed a block and died before it
    /// put the block's slice on the slot's stack. Healing sets this field, and the holder clears it.
    pub rescan: AtomicU32,
    _pad0: [u8; 4],
    /// The offset of the block that is being allocated; 0 when no allocation is going on. The holder writes this field
    /// by plain stores.
    pub allocating: AtomicU64,
    /// While the holder of this slot, which has freed a block of another slot's slice, puts that slice on the other
    /// slot's stack: the number of the slice plus 1. Otherwise 0. The holder writes this field.
    pub pushing: AtomicU64,
    /// The offset of the block that is being freed; 0 if no block is being freed. The low bits of the value say how far
    /// the freeing has come (`PHASE_…`).
    pub retiring: AtomicU64,
    _pad1: [u8; 24],
    /// The stack of this slot's slices in which other members freed blocks. The low half is the number of the first
    /// slice plus 1. The high half is a counter, so that the word never has an earlier value again. Any member puts
    /// slices on the stack; the holder takes all of them in one step.
    pub available: AtomicU64,
    _pad2: [u8; 56],
    /// Changes of several steps that have begun and have not ended.
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
        assert_eq!(size_of::<HeapSlot>(), 1024);
        assert_eq!(offset_of!(HeapSlot, allocating), 16);
        assert_eq!(offset_of!(HeapSlot, available), 64);
        assert_eq!(offset_of!(HeapSlot, operations), 128);
    }
}
