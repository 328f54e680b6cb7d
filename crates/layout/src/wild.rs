//! The type `Wild`: a value that another process can write has this type until it has been checked.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A number that was read from memory or a socket that another process writes. It cannot be used as an offset, a length
/// or an index: each function that gives the number as a plain value checks it first, except
/// [`Wild::unchecked_for_display`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wild<T>(T);

impl<T> Wild<T> {
    /// Marks a value as unchecked.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T: Copy + PartialOrd> Wild<T> {
    /// Gives the value if it is at most `limit`.
    pub fn at_most(self, limit: T) -> Option<T> {
        (self.0 <= limit).then_some(self.0)
    }

    /// Gives the value if it is below `limit`.
    pub fn below(self, limit: T) -> Option<T> {
        (self.0 < limit).then_some(self.0)
    }

    /// Gives the value if `good` accepts it.
    pub fn check(self, good: impl FnOnce(T) -> bool) -> Option<T> {
        good(self.0).then_some(self.0)
    }

    /// Gives the value without a check, for error messages and inspection only. The caller must never compute an
    /// address from it.
    pub fn unchecked_for_display(self) -> T {
        self.0
    }
}

impl<T: Copy + Ord> Wild<T> {
    /// Gives the value, or `limit` if the value is greater.
    pub fn clamped(self, limit: T) -> T {
        self.0.min(limit)
    }

    /// Tells whether this number is equal to `value`. The result is safe to use without a further check.
    pub fn is(self, value: T) -> bool {
        self.0 == value
    }
}

/// A word of shared memory that other processes write and that is used as an address, a length or an index. A load
/// gives a [`Wild`], so the number cannot be used before one of the checks of `Wild` gives it out:
///
/// ```
/// use crossdock_layout::{Wild, WildWord};
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// let (word, table) = (WildWord::<AtomicU32>::default(), [7; 4]);
/// word.store(3, Relaxed);
/// assert_eq!(word.load(Relaxed).below(4).map(|index| table[index as usize]), Some(7));
/// ```
///
/// ```compile_fail,E0605
/// # use crossdock_layout::WildWord;
/// # use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// # let (word, table) = (WildWord::<AtomicU32>::default(), [7; 4]);
/// let seven = table[word.load(Relaxed) as usize]; // an index that was not checked
/// ```
///
/// ```compile_fail,E0308
/// # use crossdock_layout::WildWord;
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # let (word, base) = (WildWord::<AtomicU64>::default(), std::ptr::null::<u8>());
/// let length: u64 = word.load(Relaxed); // a length that was not checked
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct WildWord<A>(A);

/// The atomic integers that a [`WildWord`] can be made of.
pub trait Word {
    /// The integer type of the word's values.
    type Value: Copy;
    #[doc(hidden)]
    fn load_raw(&self, order: Ordering) -> Self::Value;
    #[doc(hidden)]
    fn store_raw(&self, value: Self::Value, order: Ordering);
}

macro_rules! words {
    ($($atomic:ty => $value:ty),*) => {$(
        impl Word for $atomic {
            type Value = $value;
            #[inline]
            fn load_raw(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline]
            fn store_raw(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
        }
    )*};
}
words!(AtomicU32 => u32, AtomicU64 => u64);
#[cfg(loom)]
words!(loom::sync::atomic::AtomicU32 => u32, loom::sync::atomic::AtomicU64 => u64);

impl<A: Word> WildWord<A> {
    /// Loads the word's present value, which is unchecked.
    #[inline]
    pub fn load(&self, order: Ordering) -> Wild<A::Value> {
        Wild::new(self.0.load_raw(order))
    }

    /// Stores a value in the word.
    #[inline]
    pub fn store(&self, value: A::Value, order: Ordering) {
        self.0.store_raw(value, order);
    }

    /// Stores a value that was loaded from another word, without a check. Code that adds an entry to a chain, or
    /// removes an entry, copies links in this way.
    #[inline]
    pub fn store_wild(&self, value: Wild<A::Value>, order: Ordering) {
        self.0.store_raw(value.0, order);
    }

    /// Gives the atomic, for code that only stores into it.
    #[inline]
    pub const fn for_stores(&self) -> &A {
        &self.0
    }
}

/// Reads the shape of an array, and computes the number of bytes of all its elements, which have `element` bytes each.
/// Gives `None` if `rank` is greater than the number of words, or if the elements take more than `limit` bytes.
pub fn read_shape(words: &[WildWord<AtomicU64>], rank: Wild<u32>, element: u64, limit: u64) -> Option<(Vec<u64>, u64)> {
    let rank = rank.at_most(words.len() as u32)? as usize;
    let shape: Vec<u64> = words[..rank].iter().map(|word| word.load(Ordering::Relaxed).0).collect();
    let bytes = shape.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent))?;
    (bytes <= limit).then_some((shape, bytes))
}

impl Wild<u32> {
    /// Tells whether this bit of the number is set.
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Gives the number without these bits. The result is still unchecked.
    #[must_use]
    pub fn without(self, bits: u32) -> Self {
        Self(self.0 & !bits)
    }

    /// Reads this number as a link of a chain. The number 0 means that there is no next entry; any other number is the
    /// index of the next entry plus 1. Gives this index, or `None` if there is no next entry. Gives `None` also if the
    /// index is not below `limit`.
    pub fn linked(self, limit: u64) -> Option<u64> {
        self.0.checked_sub(1).map(u64::from).filter(|index| *index < limit)
    }
}

impl Wild<u64> {
    /// Gives a hash of the number without a check. No check is needed, because the caller uses the hash only to choose
    /// a chain of a hash table, and the table has a chain for every hash.
    pub fn hashed(self, hash: impl FnOnce(u64) -> u32) -> u32 {
        hash(self.0)
    }

    /// Gives the offset, if `length` bytes from it lie within `capacity` and if it is a multiple of `align` (a power of
    /// two).
    pub fn offset_of(self, length: u64, align: u64, capacity: u64) -> Option<u64> {
        let end = self.0.checked_add(length)?;
        (end <= capacity && self.0 & (align - 1) == 0).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_must_be_aligned_and_its_end_in_bounds() {
        assert_eq!(Wild::new(64).offset_of(64, 64, 128), Some(64));
        assert_eq!(Wild::new(64).offset_of(65, 64, 128), None);
        assert_eq!(Wild::new(60).offset_of(4, 64, 128), None);
        assert_eq!(Wild::new(u64::MAX).offset_of(2, 1, u64::MAX), None);
    }
}
