//! Headers of the containers that all languages share. Pointers are self-relative: the target is the address of the
//! field plus its value; 0 is null. They mean the same in every process, wherever the process maps the region.

use crate::closed_set;

/// The highest rank of an ndarray.
pub const MAX_RANK: usize = 8;

closed_set! {
    /// The order of an ndarray's elements.
    pub enum Order {
        /// Last index fastest.
        C = 0 "C",
        /// First index fastest.
        Fortran = 1 "F",
    }
}

/// `vector<T>`, and `string` with bytes as elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VectorHeader {
    /// A self-relative pointer to the region's first byte, by which a container finds its allocator. 0 if not known
    /// yet.
    pub region: i64,
    /// The elements, self-relative.
    pub data: i64,
    /// Elements.
    pub size: u64,
    /// The number of elements that fit into the block.
    pub capacity: u64,
}

/// `ndarray<T>`: contiguous elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NdarrayHeader {
    /// As in [`VectorHeader`].
    pub region: i64,
    /// The elements, self-relative.
    pub data: i64,
    /// Bytes of the block.
    pub capacity_bytes: u64,
    /// Number of dimensions, at most [`MAX_RANK`].
    pub rank: u32,
    /// An [`Order`].
    pub order: u32,
    /// Lengths of the dimensions; 0 beyond the rank.
    pub shape: [u64; MAX_RANK],
    /// Zero.
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
