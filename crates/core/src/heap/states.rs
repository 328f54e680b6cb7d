//! Reads the state bytes of many blocks at once, to find free blocks.

use crossdock_layout::region::CLASSES;

use super::memory::Memory;

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Gives one bit for each of eight bytes; a bit is set if its byte is 0.
#[inline]
fn zeros(bytes: u64) -> u64 {
    // The top bit of a byte of `some` is set if that byte of `bytes` is not 0. No carry goes from one byte to the next.
    let some = ((bytes & LOW) + LOW) | bytes;
    let none = (!some >> 7) & ONES;
    none.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Memory {
    /// Gives one bit for each of the 64 blocks from `64 * group` on; a bit is set if its block is free. Bits behind the
    /// last block of the slice are 0.
    #[inline]
    pub(super) fn free_blocks(&self, slice: u64, group: u64, class: usize) -> u64 {
        let blocks = u64::from(CLASSES[class].blocks);
        let left = blocks.saturating_sub(group * 64);
        if left == 0 {
            return 0;
        }
        let mut mask = 0;
        for i in 0..left.min(64).div_ceil(8) {
            mask |= zeros(self.eight_states(slice, group * 8 + i)) << (8 * i);
        }
        if left < 64 { mask & ((1 << left) - 1) } else { mask }
    }

    /// Finds the first group of 64 blocks with a free block, from group `from` on. Gives the group and its free
    /// blocks as bits.
    #[inline]
    pub(super) fn next_free(&self, slice: u64, from: u64, class: usize) -> Option<(u64, u64)> {
        (from..groups(class)).map(|group| (group, self.free_blocks(slice, group, class))).find(|found| found.1 != 0)
    }

    /// Tells whether all blocks of the slice are free.
    pub(super) fn is_empty(&self, slice: u64, class: usize) -> bool {
        (0..groups(class)).all(|group| {
            let left = u64::from(CLASSES[class].blocks) - group * 64;
            let all = if left < 64 { (1 << left) - 1 } else { u64::MAX };
            self.free_blocks(slice, group, class) == all
        })
    }

    /// Counts the blocks of the slice that are in use.
    pub(super) fn count_used(&self, slice: u64, class: usize) -> u64 {
        let free: u64 = (0..groups(class)).map(|g| u64::from(self.free_blocks(slice, g, class).count_ones())).sum();
        u64::from(CLASSES[class].blocks) - free
    }
}

/// The number of groups of 64 blocks in a slice of this class.
#[inline]
pub(super) fn groups(class: usize) -> u64 {
    u64::from(CLASSES[class].blocks).div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::zeros;

    #[test]
    fn zero_bytes_are_found_wherever_they_stand() {
        for pattern in 0..=255u64 {
            let mut bytes = 0u64;
            for bit in 0..8 {
                let byte =
                    if pattern >> bit & 1 == 1 { 0 } else { [1, 2, 0x80, 0xff, 16, 0x7f, 3, 0x81][bit as usize] };
                bytes |= byte << (8 * bit);
            }
            assert_eq!(zeros(bytes), pattern);
        }
    }
}
