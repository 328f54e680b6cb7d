//! What a cell carries, copied in and out word by word.

use crossdock_layout::Handle;
use crossdock_layout::queue::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::trouble::{Error, corrupt};

/// Most bytes in a message itself.
pub use crossdock_layout::queue::INLINE_MAX;

/// A message's contents. Wild at the receiver, save that `inline_len` was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parcel {
    /// The data, or none.
    pub handle: Handle,
    /// The sender's own.
    pub tag: u64,
    /// Bytes of `inline` that count.
    pub inline_len: u32,
    /// Small data, as the words that its bytes make up in little-endian order.
    pub inline: [u64; INLINE_MAX / 8],
}

impl Parcel {
    /// Into a cell that this end has claimed. The caller publishes it by a Release store of the state.
    #[inline]
    pub(super) fn store(&self, cell: &Cell) {
        cell.handle[0].store(self.handle.segment, Relaxed);
        cell.handle[1].store(self.handle.offset, Relaxed);
        crate::fault_point!("queue.send.half");
        cell.tag.store(self.tag, Relaxed);
        cell.inline_len.store(self.inline_len, Relaxed);
        for (to, from) in cell.inline.iter().zip(self.inline) {
            to.store(from, Relaxed);
        }
    }

    /// Out of a cell that an Acquire load showed ready, and that nobody may change until this end releases it.
    ///
    /// Written in place, word by word: passing it on by value would store it in words and load it in pairs of words,
    /// which stalls the processor each time (80 ns in all, measured).
    #[inline]
    pub(super) fn load(&mut self, cell: &Cell) -> Result<(), Error> {
        let inline_len = cell.inline_len.load(Relaxed);
        if inline_len as usize > INLINE_MAX {
            return Err(corrupt(format_args!("a message claims {inline_len} inline bytes of {INLINE_MAX}")));
        }
        self.handle.segment = cell.handle[0].load(Relaxed);
        self.handle.offset = cell.handle[1].load(Relaxed);
        self.tag = cell.tag.load(Relaxed);
        self.inline_len = inline_len;
        for (to, from) in self.inline.iter_mut().zip(&cell.inline) {
            *to = from.load(Relaxed);
        }
        Ok(())
    }

    /// The small data as bytes, all of them.
    #[inline]
    pub fn bytes(&self) -> [u8; INLINE_MAX] {
        Self::unwords(self.inline)
    }

    /// The bytes that make up these words.
    #[inline]
    pub fn unwords(words: [u64; INLINE_MAX / 8]) -> [u8; INLINE_MAX] {
        let mut bytes = [0; INLINE_MAX];
        for (to, from) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        bytes
    }

    /// The words that these bytes make up.
    #[inline]
    pub fn words(bytes: &[u8; INLINE_MAX]) -> [u64; INLINE_MAX / 8] {
        [0, 1, 2].map(|n| u64::from_le_bytes(bytes[8 * n..8 * n + 8].try_into().expect("eight bytes")))
    }
}
