//! What ports take and give: plain values, no behaviour but conversions.

use std::time::Duration;

use crossdock_core::queue;
pub use crossdock_core::queue::{EndReport as EndInfo, Pattern, Side as End, Totals as PortStatistics, Waiting};
use crossdock_layout::{Handle, Status};

use crate::{Error, Result};

/// How long a call with timeout `None` waits.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// Most bytes that a message carries by itself.
pub const INLINE_MAX: usize = queue::INLINE_MAX;

/// What a port is made with. Who opens it says the same, or leaves it open: the default takes the port as whoever came
/// first made it (a task, or the launcher by the workflow file's word).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PortOptions {
    /// Who may send, and who gets what. `None`: whichever the port was made with; one-to-one if it is made by this.
    pub pattern: Option<Pattern>,
    /// Messages under way at most: a power of two, 1 to 4096. 0: as many as the port has, 8 if it is made by this.
    pub capacity: u32,
    /// If the port is made by this: it outlasts the run, with the messages in it, until it is removed. Otherwise it ends with
    /// the last member of its workflow, and the next run gets a fresh port.
    pub persistent: bool,
}

/// Up to [`INLINE_MAX`] bytes in the message itself, and zeros behind them. Derefs to the bytes that count.
#[derive(Clone, Copy, Default)]
pub struct Inline {
    length: u32,
    bytes: [u8; INLINE_MAX],
}

impl Inline {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// `INVALID` if there are more than [`INLINE_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > INLINE_MAX {
            return Err(Error::new(
                Status::Invalid,
                format!(
                    "a message carries at most {INLINE_MAX} bytes inline, not {}; put them into a region and send their handle",
                    bytes.len()
                ),
            ));
        }
        let mut inline = Self { length: bytes.len() as u32, bytes: [0; INLINE_MAX] };
        inline.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(inline)
    }
}

impl Inline {
    /// The first `length` bytes of these; `None` if there are not so many.
    ///
    /// Word by word: a copy of a length that varies is a call of the C library's, on a page of its own.
    #[must_use]
    #[inline]
    pub fn cut(bytes: [u8; INLINE_MAX], length: u32) -> Option<Self> {
        if length as usize > INLINE_MAX {
            return None;
        }
        let mut words = queue::Parcel::words(&bytes);
        for (word, begin) in words.iter_mut().zip([0, 8, 16]) {
            let kept = length.saturating_sub(begin).min(8);
            *word &= 1u64.checked_shl(8 * kept).unwrap_or(0).wrapping_sub(1);
        }
        Some(Self { length, bytes: queue::Parcel::unwords(words) })
    }

    /// The bytes that count, and zeros.
    #[must_use]
    #[inline]
    pub fn padded(&self) -> [u8; INLINE_MAX] {
        self.bytes
    }
}

impl std::ops::Deref for Inline {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for Inline {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Inline {}

/// What travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The data; [`Handle::NONE`] for none. Wild at the receiver: `Region::load` checks it.
    pub handle: Handle,
    /// The sender's own: a step, a kind.
    pub tag: u64,
    /// Small data that needs no object.
    pub inline: Inline,
    /// Set by receive: which message of the port this is. Release needs it.
    pub position: u64,
}

impl Message {
    /// A message with this handle and tag.
    #[must_use]
    pub fn new(handle: Handle, tag: u64) -> Self {
        Self { handle, tag, ..Self::default() }
    }

    #[inline]
    pub(super) fn parcel(&self) -> queue::Parcel {
        queue::Parcel {
            handle: self.handle,
            tag: self.tag,
            inline_len: self.inline.length,
            inline: queue::Parcel::words(&self.inline.bytes),
        }
    }

    #[inline]
    pub(super) fn from_parcel(position: u64, parcel: &queue::Parcel) -> Self {
        let inline = Inline::cut(parcel.bytes(), parcel.inline_len.min(INLINE_MAX as u32)).unwrap_or_default();
        Self { handle: parcel.handle, tag: parcel.tag, inline, position }
    }
}

/// What goes on in a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// What it was made with.
    pub options: PortOptions,
    /// Its counters.
    pub statistics: PortStatistics,
    /// Who is at it.
    pub ends: Vec<EndInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_zero_and_more_than_there_is_is_refused() {
        for length in 0..=INLINE_MAX as u32 {
            let cut = Inline::cut([7; INLINE_MAX], length).unwrap();
            assert_eq!(*cut, [7; INLINE_MAX][..length as usize]);
            assert_eq!(cut.padded()[length as usize..], [0; INLINE_MAX][length as usize..]);
        }
        assert_eq!(Inline::cut([7; INLINE_MAX], INLINE_MAX as u32 + 1), None);
    }
}
