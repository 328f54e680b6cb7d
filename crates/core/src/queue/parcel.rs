//! What a cell carries, copied in and out word by word.

use crossdock_layout::Handle;
use crossdock_layout::queue::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::trouble::{Error, corrupt};

/// Most bytes in a message itself.
pub const INLINE_MAX: usize = 24;

/// A message's contents. Wild at the receiver, save that `inline_len` was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parcel {
    /// The data, or none.
    pub handle: Handle,
    /// The sender's own.
    pub tag: u64,
    /// Bytes of `inline` that count.
    pub inline_len: u32,
    /// Small data.
    pub inline: [u8; INLINE_MAX],
}

impl Parcel {
    /// Into a cell that this end has claimed. The caller publishes it by a Release store of the state.
    pub(super) fn store(&self, cell: &Cell) {
        cell.handle[0].store(self.handle.segment, Relaxed);
        cell.handle[1].store(self.handle.offset, Relaxed);
        crate::fault_point!("queue.send.half");
        cell.tag.store(self.tag, Relaxed);
        cell.inline_len.store(self.inline_len, Relaxed);
        if self.inline_len > 0 {
            for (word, bytes) in cell.inline.iter().zip(self.inline.chunks_exact(8)) {
                word.store(u64::from_le_bytes(bytes.try_into().expect("chunks of eight")), Relaxed);
            }
        }
    }

    /// Out of a cell that an Acquire load showed ready, and that nobody may change until this end releases it.
    pub(super) fn load(cell: &Cell) -> Result<Self, Error> {
        let inline_len = cell.inline_len.load(Relaxed);
        let mut parcel = Self {
            handle: Handle { segment: cell.handle[0].load(Relaxed), offset: cell.handle[1].load(Relaxed) },
            tag: cell.tag.load(Relaxed),
            inline_len,
            inline: [0; INLINE_MAX],
        };
        if inline_len as usize > INLINE_MAX {
            return Err(corrupt(format_args!("a message claims {inline_len} inline bytes of {INLINE_MAX}")));
        }
        if inline_len > 0 {
            for (word, bytes) in cell.inline.iter().zip(parcel.inline.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
            }
        }
        Ok(parcel)
    }
}
