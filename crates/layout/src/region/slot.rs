//! Heap slots: what one allocating thread of one member keeps in shared memory, so that others can go on after it.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Operation records of a slot.
pub const OPERATIONS: usize = 4;
/// The most words that one operation writes.
pub const MAX_WORDS: usize = 16;

/// The record is not in use.
pub const OP_NONE: u32 = 0;
/// `new_block` belongs to the record: a death frees it.
pub const OP_PREPARED: u32 = 1;
/// The words are being written and the old block freed: a death lets the healer do the rest.
pub const OP_REPLACING: u32 = 2;

/// In a cell that names a block to be freed (its low bits): the block's state may still be USED.
pub const PHASE_BEGUN: u64 = 1;
/// The block was marked DYING by this slot; if it no longer is, it has been freed.
pub const PHASE_MARKED: u64 = 2;
/// The bits of a phase.
pub const PHASE_MASK: u64 = 15;

/// One compound change, written down before it is begun. Written by the slot's holder, or by the member that heals it.
#[repr(C)]
pub struct Operation {
    /// One of `OP_…`; stored last when begun (REPLACING is the point of no return), first when done.
    pub kind: AtomicU32,
    /// How many of `words` count.
    pub count: AtomicU32,
    /// Offset at which the words are to be written.
    pub header: AtomicU64,
    /// The block that goes in, or is prepared to.
    pub new_block: AtomicU64,
    /// The block that goes out, with its phase; 0 = none (left).
    pub retiring: AtomicU64,
    /// What to write.
    pub words: [AtomicU64; MAX_WORDS],
}

/// One heap slot. `holder` and all that heals it are guarded by the region's lock.
#[repr(C, align(1024))]
pub struct Slot {
    /// Member whose thread allocates through this slot; 0 = vacant (it may still own slices).
    pub holder: AtomicU64,
    /// 1 = look through all owned slices: a death may have lost a notice. Set by healers, cleared by the holder.
    pub rescan: AtomicU32,
    _pad0: [u8; 4],
    /// Offset of the block that is being handed out, 0 when it has been. Plain stores of the holder.
    pub allocating: AtomicU64,
    /// The slice whose notice is on its way to its owner, plus 1; 0 = none. Stores of the holder.
    pub pushing: AtomicU64,
    /// A single block that is being freed, with its phase.
    pub retiring: AtomicU64,
    _pad1: [u8; 24],
    /// Stack of own slices in which others freed blocks: low half the slice plus 1, high half a counter against
    /// mistaking a head for an older one. Pushed by any member, taken whole by the holder.
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
