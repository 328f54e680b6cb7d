//! The headers of the containers that all languages share. Pointers in these headers are self-relative: the target is
//! the address of the field plus its value, and 0 is the null pointer. So a pointer leads to the same element in every
//! process, at whatever address the process maps the region.

use crate::closed_set;

/// The highest rank of an ndarray.
pub const MAX_RANK: usize = 8;

closed_set! {
    /// The order in which an ndarray's elements lie in memory.
    pub enum Order {
        /// The last index varies fastest, as in C.
        C = 0 "C",
        /// The first index varies fastest, as in Fortran.
        Fortran = 1 "F",
    }
}

/// The header of a `vector<T>`, or of a `string`, whose elements are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VectorHeader {
    /// A self-relative pointer to the region's first byte, by which a container finds its allocator. The pointer is 0
    /// if the container does not know its region yet.
    pub region: i64,
    /// A self-relative pointer to the elements.
    pub data: i64,
    /// The number of elements.
    pub size: u64,
    /// The number of elements that fit into the block of the elements.
    pub capacity: u64,
}

/// The header of an `ndarray<T>`, whose elements have no gaps between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NdarrayHeader {
    /// A self-relative pointer to the region's first byte, as in [`VectorHeader`].
    pub region: i64,
    /// A self-relative pointer to the elements.
    pub data: i64,
    /// The size in bytes of the block of the elements.
    pub capacity_bytes: u64,
    /// Number of dimensions, at most [`MAX_RANK`].
    pub rank: u32,
    /// The order of the elements, an [`Order`] as a number.
    pub order: u32,
    /// The lengths in each dimension; 0 in dimensions beyond the rank.
    pub shape: [u64; MAX_RANK],
    /// A reserved field, which is zero.
    pub reserved: [u8; 32],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<VectorHeader>(), 32);
        assert_eq!((offset_of!(VectorHeader, data), offset_of!(VectorHeader, size)), (8, 16));
        assert_eq!(size_of::<NdarrayHeader>(), 128);
        assert_eq!((offset_of!(NdarrayHeader, rank), offset_of!(NdarrayHeader, order)), (24, 28));
        assert_eq!((offset_of!(NdarrayHeader, shape), offset_of!(NdarrayHeader, reserved)), (32, 96));
    }
}
