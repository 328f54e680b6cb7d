//! The contents of a cell, which are copied in and out word by word.

use std::sync::atomic::Ordering::Relaxed;

use crossdock_layout::queue::{AtomicU32, AtomicU64};
use crossdock_layout::{Handle, Status, Wild, WildWord};

use super::error::{Error, corrupt};

/// The largest number of bytes of data that a message can contain without an object in a region.
pub use crossdock_layout::queue::INLINE_MAX;

// The words in a cell are in little-endian order, and `Inline` shows its words as bytes. So the CPU must be
// little-endian.
const _: () = assert!(cfg!(target_endian = "little"));

/// A number of inline bytes that was checked: at most [`INLINE_MAX`].
#[derive(Clone, Copy)]
pub(super) struct InlineLength(u32);

impl InlineLength {
    #[inline]
    pub(super) fn check(length: Wild<u32>) -> Result<Self, Error> {
        length.at_most(INLINE_MAX as u32).map(Self).ok_or_else(|| {
            let length = length.unchecked_for_display();
            corrupt(format_args!("a message claims {length} inline bytes of {INLINE_MAX}"))
        })
    }
}

/// Up to [`INLINE_MAX`] bytes of data in the message itself. Dereferencing gives the valid bytes as a slice.
///
/// The bytes are stored as words, because they are copied to and from a cell as words. If single words were stored and
/// pairs of words loaded, or the reverse, the CPU would stall each time (80 ns in total, measured).
#[derive(Clone, Copy, Default)]
pub struct Inline {
    length: u32,
    /// The bytes behind the first `length` bytes may have any value, because they are copied from the cell unchanged.
    /// To zero them at each receive would add a tenth to the time of a message, so only [`Self::padded`] zeroes them.
    words: [u64; INLINE_MAX / 8],
}

impl Inline {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// `INVALID` if there are more than [`INLINE_MAX`] bytes.
    #[inline]
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let mut padded = [0; INLINE_MAX];
        match padded.get_mut(..bytes.len()) {
            Some(to) => to.copy_from_slice(bytes),
            None => return Err(too_long(bytes.len())),
        }
        Ok(Self { length: bytes.len() as u32, words: words_of(&padded) })
    }

    /// Makes inline data of the first `length` bytes of `bytes`; `None` if `length` is more than [`INLINE_MAX`].
    #[must_use]
    #[inline]
    pub fn cut(bytes: [u8; INLINE_MAX], length: u32) -> Option<Self> {
        if length as usize > INLINE_MAX {
            return None;
        }
        // The sender's bytes behind the valid ones may be from anywhere in its memory, so other members must not see
        // them.
        Some(Self { length, words: Self { length, words: words_of(&bytes) }.cleared() })
    }

    /// Copies the length and the words into the words of a cell.
    #[inline]
    pub(super) fn store(&self, length: &WildWord<AtomicU32>, words: &[AtomicU64; INLINE_MAX / 8]) {
        length.store(self.length, Relaxed);
        for (to, from) in words.iter().zip(self.words) {
            to.store(from, Relaxed);
        }
    }

    /// Copies the words of a cell into this value. The first `length` bytes of them are valid.
    #[inline]
    pub(super) fn load(&mut self, length: InlineLength, words: &[AtomicU64; INLINE_MAX / 8]) {
        self.length = length.0;
        for (to, from) in self.words.iter_mut().zip(words) {
            *to = from.load(Relaxed);
        }
    }

    /// A copy of the words, in which all bytes behind the valid ones are zero.
    ///
    /// The loop goes word by word, because a copy of variable length would call the C library, whose code is often
    /// not in the CPU's caches.
    #[inline]
    fn cleared(&self) -> [u64; INLINE_MAX / 8] {
        let mut words = self.words;
        for (word, begin) in words.iter_mut().zip([0, 8, 16]) {
            let kept = self.length.saturating_sub(begin).min(8);
            *word &= 1u64.checked_shl(8 * kept).unwrap_or(0).wrapping_sub(1);
        }
        words
    }

    /// All [`INLINE_MAX`] bytes that a message can carry: the valid ones, followed by zeros.
    #[must_use]
    #[inline]
    pub fn padded(&self) -> [u8; INLINE_MAX] {
        let mut bytes = [0; INLINE_MAX];
        for (to, from) in bytes.chunks_exact_mut(8).zip(self.cleared()) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        bytes
    }
}

#[inline]
fn words_of(bytes: &[u8; INLINE_MAX]) -> [u64; INLINE_MAX / 8] {
    std::array::from_fn(|n| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * n + i])))
}

#[cold]
fn too_long(bytes: usize) -> Error {
    let text = format!(
        "a message carries at most {INLINE_MAX} bytes inline, not {bytes}; put them into a region and send their handle"
    );
    Error::new(Status::Invalid, text)
}

impl PartialEq for Inline {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Inline {}

impl std::ops::Deref for Inline {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the words are initialised memory that lives as long as `self`. `length` is at most the number of
        // bytes in the words, and each of these bytes is valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length as usize) }
    }
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// A message: a handle, a number and a few bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// The handle of the data; [`Handle::NONE`] for none. The receiver must not trust it: `Region::load` checks it.
    pub handle: Handle,
    /// A number that the sender chooses, for example a step or a kind.
    pub tag: u64,
    /// Small data that are part of the message and need no object.
    pub inline: Inline,
    /// The message's position in the port. `receive` sets it, and `release` needs it.
    pub position: u64,
}

impl Message {
    /// Makes a message with this handle and tag.
    #[must_use]
    pub fn new(handle: Handle, tag: u64) -> Self {
        Self { handle, tag, ..Self::default() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_valid_ones_are_neither_compared_nor_shown() {
        let received = Inline { length: 3, words: [u64::MAX; 3] };
        assert_eq!(*received, [0xff; 3]);
        assert_eq!(received.padded()[3..], [0; INLINE_MAX][3..]);
        assert_eq!(received, Inline::new(&[0xff; 3]).unwrap());
        assert_ne!(received, Inline::new(&[0xff; 4]).unwrap());
    }

    #[test]
    fn what_is_cut_off_is_zero_and_more_than_there_is_is_refused() {
        for length in 0..=INLINE_MAX as u32 {
            let cut = Inline::cut([7; INLINE_MAX], length).unwrap();
            assert_eq!(*cut, [7; INLINE_MAX][..length as usize]);
            assert_eq!(cut.padded()[length as usize..], [0; INLINE_MAX][length as usize..]);
            assert_eq!(Inline::new(&cut).unwrap(), cut);
        }
        assert_eq!(Inline::cut([7; INLINE_MAX], INLINE_MAX as u32 + 1), None);
        assert_eq!(Inline::new(&[7; INLINE_MAX + 1]).unwrap_err().status, Status::Invalid);
    }
}
