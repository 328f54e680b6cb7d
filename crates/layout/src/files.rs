//! The notice of a managed directory: one page by which the directory's service tells consumers what the producers do.
//! The published files themselves are elsewhere.
//!
//! Only the directory's service writes the page. Every consumer reads it through a read-only mapping. A consumer that
//! waits for a file loads `news` (Acquire) and then looks for the file. If the file is not there, it sleeps on `news`.
//! The service first makes a file visible and then increments `news` (Release), so no publication is missed. If the
//! service dies, `news` does not change any more; so consumers also look at the directory itself from time to time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::LAYOUT_VERSION;

/// The first word of a notice.
pub const NOTICE_MAGIC: u64 = u64::from_le_bytes(*b"xdockfil");
/// The number of bytes for the producers' names, which error messages show.
pub const PRODUCERS_BYTES: usize = 256;

/// The number of lost names that a notice remembers. A lost name is that of a file that can no longer come.
pub const LOST: usize = 256;

/// The phase of a directory's producers: whether files can still come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// No producer has started yet.
    Coming = 0,
    /// At least one producer runs or will run.
    Producing = 1,
    /// All producers ended with success: no other file will come.
    Ended = 2,
    /// All producers are gone and at least one of them failed: no other file will come.
    Failed = 3,
}

impl Phase {
    /// Gives the phase with this number. An unknown number counts as a running producer, so that waits end by their
    /// deadlines.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Coming,
            2 => Self::Ended,
            3 => Self::Failed,
            _ => Self::Producing,
        }
    }
}

/// A managed directory's notice: one page of shared memory.
#[repr(C, align(64))]
pub struct Notice {
    /// [`NOTICE_MAGIC`]. It is written last when the page is made.
    pub magic: AtomicU64,
    /// The version of the layout, [`LAYOUT_VERSION`].
    pub version: AtomicU32,
    /// A futex word. The service increments it after each publication and each change of `phase`.
    pub news: AtomicU32,
    /// The producers' state, a [`Phase`] as a number.
    pub phase: AtomicU32,
    _pad: [u8; 4],
    /// The number of files that were published.
    pub published: AtomicU64,
    /// The time when the last file was published, in nanoseconds of the monotonic clock; 0 if no file was published.
    pub last_ns: AtomicU64,
    /// The number of files that were not published because their writer was killed.
    pub torn: AtomicU64,
    /// The number of names that were ever put into `lost`. Only the service uses it.
    pub lost_count: AtomicU64,
    /// The producers' names in UTF-8, separated by commas, with a zero byte at the end. They are written before
    /// `magic`.
    pub producers: [AtomicU64; PRODUCERS_BYTES / 8],
    /// The hashes of the most recently lost names; 0 in a free word. A name is lost if another host published its file
    /// and dropped the file before this host had fetched it. A consumer that waits for a lost name gets an error at
    /// once. If a file of this name is published after all, the service removes the hash.
    pub lost: [AtomicU64; LOST],
}

impl Notice {
    /// Makes a notice of zeroed memory. Only the service calls it.
    pub fn format(&self, producers: &str) {
        let mut bytes = [0; PRODUCERS_BYTES];
        let mut length = producers.len().min(PRODUCERS_BYTES - 1);
        while !producers.is_char_boundary(length) {
            length -= 1;
        }
        bytes[..length].copy_from_slice(&producers.as_bytes()[..length]);
        for (word, bytes) in self.producers.iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().expect("chunks of eight")), Ordering::Relaxed);
        }
        self.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        self.magic.store(NOTICE_MAGIC, Ordering::Release);
    }

    /// Tells whether this is a notice of this build's layout.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == NOTICE_MAGIC && self.version.load(Ordering::Acquire) == LAYOUT_VERSION
    }

    /// Notes that the file of this name will not come. The name is relative to the directory. Only the service calls
    /// it.
    pub fn lose(&self, name: &[u8]) {
        let hash = hash_of(name);
        if !self.has_lost(name) {
            let count = self.lost_count.fetch_add(1, Ordering::Relaxed);
            self.lost[(count % LOST as u64) as usize].store(hash, Ordering::Release);
        }
    }

    /// Removes this name from the lost names, because its file was published. Only the service calls it.
    pub fn find(&self, name: &[u8]) {
        if self.lost_count.load(Ordering::Relaxed) > 0 {
            let hash = hash_of(name);
            self.lost.iter().filter(|lost| lost.load(Ordering::Relaxed) == hash).for_each(|lost| {
                lost.store(0, Ordering::Release);
            });
        }
    }

    /// Tells whether this is one of the most recently lost names.
    pub fn has_lost(&self, name: &[u8]) -> bool {
        let hash = hash_of(name);
        self.lost_count.load(Ordering::Relaxed) > 0 && self.lost.iter().any(|lost| lost.load(Ordering::Acquire) == hash)
    }

    /// The phase of the producers.
    pub fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::Acquire))
    }

    /// The producers' names, for error messages.
    pub fn producers(&self) -> String {
        let bytes: Vec<u8> = self.producers.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// FNV-1a, and never 0. Two names of one directory have the same hash once in 2^64 pairs.
fn hash_of(name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    fn fresh() -> Notice {
        Notice {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            news: AtomicU32::new(0),
            phase: AtomicU32::new(0),
            _pad: [0; 4],
            published: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            torn: AtomicU64::new(0),
            lost_count: AtomicU64::new(0),
            producers: [const { AtomicU64::new(0) }; PRODUCERS_BYTES / 8],
            lost: [const { AtomicU64::new(0) }; LOST],
        }
    }

    #[test]
    fn layout_is_frozen() {
        assert_eq!((offset_of!(Notice, news), offset_of!(Notice, phase)), (12, 16));
        assert_eq!((offset_of!(Notice, published), offset_of!(Notice, producers)), (24, 56));
        assert_eq!((offset_of!(Notice, lost_count), offset_of!(Notice, lost)), (48, 312));
        assert!(size_of::<Notice>() <= 4096);
    }

    #[test]
    fn the_names_that_were_lost_last_are_known_until_they_are_published() {
        let notice = fresh();
        assert!(!notice.has_lost(b"a"));
        notice.lose(b"a");
        notice.lose(b"a");
        assert!(notice.has_lost(b"a") && !notice.has_lost(b"b"));
        assert_eq!(notice.lost_count.load(Ordering::Relaxed), 1);
        notice.find(b"a");
        assert!(!notice.has_lost(b"a"));
        (0..=LOST).for_each(|number| notice.lose(number.to_string().as_bytes()));
        assert!(!notice.has_lost(b"0") && notice.has_lost(b"1") && notice.has_lost(LOST.to_string().as_bytes()));
    }

    #[test]
    fn names_that_do_not_fit_are_cut_at_a_character() {
        let notice = fresh();
        assert!(!notice.is_valid());
        notice.format(&"é".repeat(200));
        assert!(notice.is_valid());
        assert_eq!(notice.producers(), "é".repeat(127));
        notice.format("simulate");
        assert_eq!((notice.producers().as_str(), notice.phase()), ("simulate", Phase::Coming));
    }
}
