//! Sets of chunks, in which the publisher notes which chunks changed.

/// A set of a version's chunks, for example those that changed: one bit for each chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkSet {
    words: Vec<u64>,
    count: u32,
}

impl ChunkSet {
    pub fn new(length: u32) -> Self {
        Self { words: vec![0; length.div_ceil(64) as usize], count: 0 }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn has(&self, bit: u32) -> bool {
        self.words[bit as usize / 64] & 1 << (bit % 64) != 0
    }

    pub fn insert(&mut self, bit: u32) {
        let (word, mask) = (&mut self.words[bit as usize / 64], 1 << (bit % 64));
        self.count += u32::from(*word & mask == 0);
        *word |= mask;
    }

    pub fn insert_range(&mut self, bits: std::ops::Range<u32>) {
        bits.for_each(|bit| self.insert(bit));
    }

    pub fn remove_range(&mut self, bits: std::ops::Range<u32>) {
        for bit in bits {
            let (word, mask) = (&mut self.words[bit as usize / 64], 1 << (bit % 64));
            self.count -= u32::from(*word & mask != 0);
            *word &= !mask;
        }
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The runs of set bits within `bits`, in ascending order. Each run is given by its first bit and its length.
    pub fn runs(&self, bits: std::ops::Range<u32>) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = bits.start;
        std::iter::from_fn(move || {
            while at < bits.end && !self.has(at) {
                // Words without a set bit are skipped whole, because most of a large version is unchanged.
                let skips = at % 64 == 0 && self.words[at as usize / 64] == 0;
                at = if skips { (at + 64).min(bits.end) } else { at + 1 };
            }
            let first = at;
            while at < bits.end && self.has(at) {
                at += 1;
            }
            (first < at).then_some((first, at - first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_within_their_range() {
        let mut bits = ChunkSet::new(300);
        for range in [3..5, 63..66, 190..300] {
            bits.insert_range(range);
        }
        assert_eq!(bits.count(), 2 + 3 + 110);
        assert_eq!(bits.runs(0..300).collect::<Vec<_>>(), [(3, 2), (63, 3), (190, 110)]);
        assert_eq!(bits.runs(4..200).collect::<Vec<_>>(), [(4, 1), (63, 3), (190, 10)]);
        bits.remove_range(0..64);
        assert_eq!(bits.runs(0..100).collect::<Vec<_>>(), [(64, 2)]);
        bits.clear();
        assert_eq!((bits.count(), bits.runs(0..300).next()), (0, None));
    }
}
