//! The size classes of small blocks. From 32 to 128 bytes, there is one class for every multiple of 16. Above 128
//! bytes, there are four classes for each doubling of the size, up to 32 KiB.

use super::geometry::SLICE;

/// The size of the smallest block in bytes.
pub const MIN_BLOCK: u64 = 32;
/// The size in bytes of the largest block that shares a slice with others. A larger block takes whole slices.
pub const MAX_SMALL: u64 = 32768;

/// A size class: the blocks of one size in a slice.
#[derive(Clone, Copy, Debug)]
pub struct SizeClass {
    /// The size of a block in bytes, a multiple of 16.
    pub size: u32,
    /// The number of blocks in a slice.
    pub blocks: u32,
    /// The number ⌈2³²/size⌉. With this number, a multiplication replaces a division: `offset * reciprocal >> 32` is
    /// `offset / size` for every offset within a slice. The low half of the product is less than the reciprocal if and
    /// only if the division has no remainder.
    pub reciprocal: u32,
}

impl SizeClass {
    /// Gives the number of the block that starts `within` bytes from the beginning of the slice; `None` if no block
    /// starts there. The number is not checked against `blocks`, so it may be greater than the number of the slice's
    /// last block.
    #[inline]
    pub const fn block_at(&self, within: u64) -> Option<u64> {
        let product = within * self.reciprocal as u64;
        if (product as u32) < self.reciprocal { Some(product >> 32) } else { None }
    }
}

/// All size classes, the smallest first.
pub static CLASSES: [SizeClass; 39] = classes();

const fn classes() -> [SizeClass; 39] {
    let mut all = [SizeClass { size: 0, blocks: 0, reciprocal: 0 }; 39];
    let (mut i, mut size, mut step) = (0, MIN_BLOCK, 16);
    while i < all.len() {
        all[i] = SizeClass {
            size: size as u32,
            blocks: (SLICE / size) as u32,
            reciprocal: (1u64 << 32).div_ceil(size) as u32,
        };
        if size >= 128 && size.is_power_of_two() {
            step = size / 4;
        }
        size += step;
        i += 1;
    }
    all
}

/// The size class for each multiple of 16 up to 1024. Most blocks that programs ask for are small. For them, a lookup
/// in this table is fast, because it needs no branch that the CPU could predict wrongly.
static OF_SIXTEENS: [u8; 65] = {
    let (mut table, mut i) = ([0; 65], 1);
    while i < table.len() {
        table[i] = computed_class(16 * i as u64) as u8;
        i += 1;
    }
    table
};

/// The smallest class whose blocks have at least `size` bytes. `size` must be 1 to [`MAX_SMALL`].
#[inline]
pub fn class_for(size: u64) -> usize {
    match OF_SIXTEENS.get(size.div_ceil(16) as usize) {
        Some(&class) => class.into(),
        None => computed_class(size),
    }
}

const fn computed_class(size: u64) -> usize {
    if size <= 128 {
        // Sizes 1–32 have class 0, sizes 33–48 class 1, and so on up to sizes 113–128 with class 6.
        (size.saturating_sub(17) / 16) as usize
    } else {
        // For 2^k < size ≤ 2^(k+1) with k ≥ 7, the class depends on the quarter of this range in which the size lies.
        let k = 63 - (size - 1).leading_zeros();
        7 + 4 * (k as usize - 7) + (((size - 1) >> (k - 2)) & 3) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_end_at_the_largest_small_block() {
        assert_eq!(CLASSES[0].size, 32);
        assert_eq!(CLASSES[6].size, 128);
        assert_eq!(CLASSES[7].size, 160);
        assert_eq!(u64::from(CLASSES[38].size), MAX_SMALL);
        assert!(CLASSES.iter().all(|c| c.size % 16 == 0));
    }

    #[test]
    fn each_size_gets_the_smallest_class_that_holds_it() {
        for size in 1..=MAX_SMALL {
            let class = class_for(size);
            assert!(u64::from(CLASSES[class].size) >= size, "{size}");
            assert!(class == 0 || u64::from(CLASSES[class - 1].size) < size, "{size}");
        }
    }

    #[test]
    fn the_reciprocal_tells_the_block_of_every_offset_of_a_slice() {
        for class in CLASSES {
            for offset in 0..SLICE {
                let size = u64::from(class.size);
                assert_eq!(class.block_at(offset), (offset % size == 0).then_some(offset / size));
            }
        }
    }
}
