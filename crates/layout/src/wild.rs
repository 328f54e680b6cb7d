//! A value that another party can write is `Wild` until it was checked.

/// A number that was read from memory or a socket that another process writes. It cannot be used as an offset, a length
/// or an index: every way to get the number out checks it, except [`Wild::unchecked_for_display`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wild<T>(T);

impl<T> Wild<T> {
    /// Marks a value that was read as unchecked.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T: Copy + PartialOrd> Wild<T> {
    /// The value, if it is at most `limit`.
    pub fn at_most(self, limit: T) -> Option<T> {
        (self.0 <= limit).then_some(self.0)
    }

    /// The value, if it is below `limit`.
    pub fn below(self, limit: T) -> Option<T> {
        (self.0 < limit).then_some(self.0)
    }

    /// The value, if `good` accepts it.
    pub fn check(self, good: impl FnOnce(T) -> bool) -> Option<T> {
        good(self.0).then_some(self.0)
    }

    /// The value without a check, for error messages and inspection only. Never compute an address from it.
    pub fn unchecked_for_display(self) -> T {
        self.0
    }
}

impl Wild<u64> {
    /// The offset, if `length` bytes from it lie within `capacity` and if it is a multiple of `align` (a power of two).
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
