//! Handles: sixteen bytes that name an object in any segment, for any workflow system to carry (Dhmem, section III-C).

use crate::SegmentId;

/// The place of an object: its segment, and its distance from the segment's start. Plain data that may be copied and
/// sent.
///
/// A handle that another process sent is unchecked. `Region::load` checks the segment, the bounds, that the block is in
/// use and that the offset is its start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Handle {
    /// The segment's id; 0 in the handle that names nothing.
    pub segment: u64,
    /// Bytes from the segment's start.
    pub offset: u64,
}

impl Handle {
    /// The handle that names nothing.
    pub const NONE: Self = Self { segment: 0, offset: 0 };

    /// A handle of `offset` in `segment`.
    pub const fn new(segment: SegmentId, offset: u64) -> Self {
        Self { segment: segment.0, offset }
    }

    /// Is this the handle that names nothing?
    pub const fn is_none(self) -> bool {
        self.segment == 0
    }
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "handle {}:{:#x}", self.segment, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn layout_is_frozen() {
        assert_eq!((size_of::<Handle>(), align_of::<Handle>()), (16, 8));
        assert_eq!((offset_of!(Handle, segment), offset_of!(Handle, offset)), (0, 8));
    }
}
