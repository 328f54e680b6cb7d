//! One number that is computed from everything on which two builds must agree. Two builds refuse each other if their
//! numbers differ. So they refuse each other even if a developer has changed the layout without a new version.

use super::{HEADER, MAX_DESCRIPTORS, MAX_MESSAGE, NAME_FIELD, PROTOCOL_VERSION};
use crate::liveness::LivenessTable;
use crate::{CACHE_LINE, Handle, LAYOUT_VERSION};

/// The hash FNV-1a of the sizes and versions on which shared memory and messages rely, and of the byte order.
pub const FINGERPRINT: u64 = {
    let facts = [
        PROTOCOL_VERSION as u64,
        LAYOUT_VERSION as u64,
        MAX_MESSAGE as u64,
        MAX_DESCRIPTORS as u64,
        NAME_FIELD as u64,
        HEADER as u64,
        CACHE_LINE as u64,
        size_of::<Handle>() as u64,
        size_of::<LivenessTable>() as u64,
        crate::id::SLOT_BITS as u64,
        u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]),
    ];
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut fact = 0;
    while fact < facts.len() {
        let bytes = facts[fact].to_le_bytes();
        let mut byte = 0;
        while byte < 8 {
            hash = (hash ^ bytes[byte] as u64).wrapping_mul(0x100_0000_01b3);
            byte += 1;
        }
        fact += 1;
    }
    hash
};
