//! The notice of a managed directory: one page of shared memory, through which the directory's service tells consumers
//! what the producers do. The notice contains no file: the published files are in the directory.
//!
//! Only the directory's service writes the page. Every consumer reads it through a read-only mapping. A consumer that
//! waits for a file loads `news` (Acquire) and then looks for the file. If the file is not there, the consumer sleeps
//! on `news`. The service first makes a file visible and then increments `news` (Release), so no publication is missed.
//! If the service dies, `news` does not change any more. So a consumer does not only wait for `news`: it also looks at
//! the directory itself from time to time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::LAYOUT_VERSION;

/// The first word of a directory's notice, the text `xdockfil`.
pub const NOTICE_MAGIC: u64 = u64::from_le_bytes(*b"xdockfil");
/// The number of bytes for the producers' names, which error messages show.
pub const PRODUCERS_BYTES: usize = 256;

/// The number of lost names that a notice remembers. A lost name is the name of a file that can no longer appear in the
/// directory.
pub const LOST: usize = 256;
/// The number of bytes for the name of a host that does not answer.
pub const SILENT_BYTES: usize = 64;

/// The phase of the tasks that write a directory's files. It says whether further files can still appear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// No producer has started yet.
    Coming = 0,
    /// At least one producer runs or will run.
    Producing = 1,
    /// All producers ended with success: no further file will appear.
    Ended = 2,
    /// All producers are gone, and at least one of them failed: no further file will appear.
    Failed = 3,
}

impl Phase {
    /// Gives the phase with this number. For an unknown number gives [`Phase::Producing`], so that a wait for a file
    /// goes on until its deadline.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Coming,
            2 => Self::Ended,
            3 => Self::Failed,
            _ => Self::Producing,
        }
    }
}

/// Why a file can no longer come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossReason {
    /// The host that published the file has deleted it, as the key `keep` of the workflow file says, before this host
    /// had fetched it.
    Dropped,
    /// The host that published the file is lost, and this host had not fetched the file.
    WithHost,
}

/// A host with producers that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SilentHost {
    /// The name of the host's node.
    pub host: String,
    /// The time since which the host does not answer, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// True if the host's lease in the catalog has ended. The host then counts as lost.
    pub is_lost: bool,
}

/// A managed directory's notice: one page of shared memory.
#[repr(C, align(64))]
pub struct Notice {
    /// The number [`NOTICE_MAGIC`]. The service writes it last when it makes the page.
    pub magic: AtomicU64,
    /// The version of this page's layout, [`LAYOUT_VERSION`].
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
    /// The number of times that the service has put a name into `lost`. Only the directory's service uses this number.
    pub lost_count: AtomicU64,
    /// The producers' names in UTF-8, separated by commas, with a zero byte at the end. The service writes them before
    /// `magic`.
    pub producers: [AtomicU64; PRODUCERS_BYTES / 8],
    /// The hashes of the most recently lost names; 0 in a free word. A name is lost if another host published its file
    /// and this host can no longer fetch the file, because that host has deleted the file or is lost itself. The hash
    /// is computed from the name and the reason of the loss. A consumer that waits for a lost name gets an error
    /// immediately. If a file of this name is published after all, or the lost host comes back, the service removes the
    /// hash.
    pub lost: [AtomicU64; LOST],
    /// The time since which the host in `silent` does not answer, in nanoseconds of the monotonic clock; 0 if every
    /// host with producers answers. The lowest bit is 1 if that host is lost. The service sets this word to 0 before it
    /// changes `silent`, so a reader that finds the same value before and after it reads `silent` has read the right
    /// name.
    pub silent_since: AtomicU64,
    /// The name of a host with producers that does not answer, in UTF-8, with zero bytes at the end.
    pub silent: [AtomicU64; SILENT_BYTES / 8],
}

impl Notice {
    /// Makes a notice of zeroed memory. Only the directory's service calls this function.
    pub fn format(&self, producers: &str) {
        store(&self.producers, producers);
        self.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        self.magic.store(NOTICE_MAGIC, Ordering::Release);
    }

    /// Tells whether the page is a notice, and has the layout that this build uses.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == NOTICE_MAGIC && self.version.load(Ordering::Acquire) == LAYOUT_VERSION
    }

    /// Notes that the file of this name can no longer appear, and why. The name is relative to the directory. Only the
    /// directory's service calls this function.
    pub fn lose(&self, name: &[u8], why: LossReason) {
        let hash = hash_of(name, why);
        if !self.lost.iter().any(|lost| lost.load(Ordering::Relaxed) == hash) {
            let count = self.lost_count.fetch_add(1, Ordering::Relaxed);
            self.lost[(count % LOST as u64) as usize].store(hash, Ordering::Release);
        }
    }

    /// Takes this name off the list `lost` if it was lost together with its host, because the host is back. Only the
    /// directory's service calls this function.
    pub fn find_with_host(&self, name: &[u8]) {
        self.remove(hash_of(name, LossReason::WithHost));
    }

    /// Takes this name off the list `lost`, because a file of this name was published after all. Only the directory's
    /// service calls this function.
    pub fn find(&self, name: &[u8]) {
        if self.lost_count.load(Ordering::Relaxed) > 0 {
            self.remove(hash_of(name, LossReason::Dropped));
            self.remove(hash_of(name, LossReason::WithHost));
        }
    }

    fn remove(&self, hash: u64) {
        self.lost.iter().filter(|lost| lost.load(Ordering::Relaxed) == hash).for_each(|lost| {
            lost.store(0, Ordering::Release);
        });
    }

    /// Tells why the file of this name can no longer appear. Gives `None` if the name is not one of the most recently
    /// lost names.
    pub fn has_lost(&self, name: &[u8]) -> Option<LossReason> {
        if self.lost_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let is_there = |why: &LossReason| {
            let hash = hash_of(name, *why);
            self.lost.iter().any(|lost| lost.load(Ordering::Acquire) == hash)
        };
        [LossReason::Dropped, LossReason::WithHost].into_iter().find(is_there)
    }

    /// Notes which host with producers does not answer; `None` means that all of them answer. Only the directory's
    /// service calls this function.
    pub fn tell_silent(&self, silent: Option<&SilentHost>) {
        self.silent_since.store(0, Ordering::SeqCst);
        let Some(SilentHost { host, since_ns, is_lost }) = silent else { return };
        store(&self.silent, host);
        self.silent_since.store((since_ns | 2) & !1 | u64::from(*is_lost), Ordering::SeqCst);
    }

    /// The host with producers that does not answer; `None` if all answer.
    pub fn silent(&self) -> Option<SilentHost> {
        let since = self.silent_since.load(Ordering::SeqCst);
        let host = text(&self.silent);
        // If the service changes the name during this read, `None` is returned, and the next call returns the new name.
        let is_same = self.silent_since.load(Ordering::SeqCst) == since;
        (since != 0 && is_same).then_some(SilentHost { host, since_ns: since & !1, is_lost: since & 1 == 1 })
    }

    /// The phase of the producers.
    pub fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::Acquire))
    }

    /// The producers' names, for error messages.
    pub fn producers(&self) -> String {
        text(&self.producers)
    }
}

/// Writes a text into the words, with a zero byte at its end. A text that is too long is cut between two characters.
fn store(words: &[AtomicU64], text: &str) {
    let text = crate::text::clipped(text, words.len() * 8 - 1).as_bytes();
    for (number, word) in words.iter().enumerate() {
        let mut bytes = [0; 8];
        let part = text.get(number * 8..).unwrap_or_default();
        let count = part.len().min(8);
        bytes[..count].copy_from_slice(&part[..count]);
        word.store(u64::from_le_bytes(bytes), Ordering::SeqCst);
    }
}

/// Reads the text in the words, up to its zero byte.
fn text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.load(Ordering::SeqCst).to_le_bytes()).collect();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The hash FNV-1a of a name and of the reason of its loss. The hash is never 0. Two names have the same hash with a
/// probability of 2^-64.
fn hash_of(name: &[u8], why: LossReason) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, step);
    match why {
        LossReason::Dropped => hash.max(1),
        // If the reason is `WithHost`, a zero byte is hashed after the name. No name contains a zero byte, so the
        // hashed bytes are not those of any name with the reason `Dropped`.
        LossReason::WithHost => step(hash, &0).max(1),
    }
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
            silent_since: AtomicU64::new(0),
            silent: [const { AtomicU64::new(0) }; SILENT_BYTES / 8],
        }
    }

    #[test]
    fn layout_is_frozen() {
        assert_eq!((offset_of!(Notice, news), offset_of!(Notice, phase)), (12, 16));
        assert_eq!((offset_of!(Notice, published), offset_of!(Notice, producers)), (24, 56));
        assert_eq!((offset_of!(Notice, lost_count), offset_of!(Notice, lost)), (48, 312));
        assert_eq!((offset_of!(Notice, silent_since), offset_of!(Notice, silent)), (2360, 2368));
        assert!(size_of::<Notice>() <= 4096);
    }

    #[test]
    fn the_names_that_were_lost_last_are_known_until_they_are_published() {
        let notice = fresh();
        let dropped = |name: &[u8]| notice.has_lost(name) == Some(LossReason::Dropped);
        assert!(!dropped(b"a"));
        notice.lose(b"a", LossReason::Dropped);
        notice.lose(b"a", LossReason::Dropped);
        assert!(dropped(b"a") && notice.has_lost(b"b").is_none());
        assert_eq!(notice.lost_count.load(Ordering::Relaxed), 1);
        notice.find_with_host(b"a");
        assert!(dropped(b"a"), "it was not lost with its host");
        notice.find(b"a");
        assert!(!dropped(b"a"));
        (0..=LOST).for_each(|number| notice.lose(number.to_string().as_bytes(), LossReason::Dropped));
        assert!(!dropped(b"0") && dropped(b"1") && dropped(LOST.to_string().as_bytes()));
    }

    #[test]
    fn a_name_that_was_lost_with_its_host_is_found_when_the_host_is_back_or_the_file_is_published() {
        let notice = fresh();
        for name in [b"a", b"b"] {
            notice.lose(name, LossReason::WithHost);
            assert_eq!(notice.has_lost(name), Some(LossReason::WithHost));
        }
        notice.find_with_host(b"a");
        notice.find(b"b");
        assert_eq!((notice.has_lost(b"a"), notice.has_lost(b"b")), (None, None));
    }

    #[test]
    fn a_silent_host_is_named_until_it_answers() {
        let notice = fresh();
        assert_eq!(notice.silent(), None);
        let mut silent = SilentHost { host: "n1".into(), since_ns: 1000, is_lost: false };
        notice.tell_silent(Some(&silent));
        assert_eq!(notice.silent().map(|found| (found.host, found.is_lost)), Some(("n1".into(), false)));
        silent = SilentHost { host: "n".repeat(63), is_lost: true, ..silent };
        notice.tell_silent(Some(&silent));
        assert_eq!(notice.silent().map(|found| (found.host, found.is_lost)), Some(("n".repeat(63), true)));
        notice.tell_silent(None);
        assert_eq!(notice.silent(), None);
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
