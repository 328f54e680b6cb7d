//! Handles: sixteen bytes that name an object in any segment. Any workflow system can carry handles from task to task.
//! The idea is from the Dhmem paper, section III-C (`docs/papers.md`).

use crate::SegmentId;

/// Names an object by its segment and its offset in the segment. A handle is plain data, which may be copied and sent.
///
/// A handle that came from another process may be wrong. `Region::load` checks that the handle names the region's
/// segment, that the offset is in the region, and that a block in use begins at the offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Handle {
    /// The segment's id; 0 in the handle that names nothing.
    pub segment: u64,
    /// The offset of the object in bytes from the segment's start.
    pub offset: u64,
}

impl Handle {
    /// The handle that names nothing.
    pub const NONE: Self = Self { segment: 0, offset: 0 };

    /// Makes the handle of the object at `offset` in `segment`.
    pub const fn new(segment: SegmentId, offset: u64) -> Self {
        Self { segment: segment.0, offset }
    }

    /// Tells whether this is the handle that names nothing.
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
