//! Remembers the new name of a rename that failed in a managed directory whose files this process only reads.
//!
//! After such a failure, programs like `mv` look the new name up, to see whether it is a folder. This look-up must not
//! wait for a file of that name.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossdock_os::clock;

/// The time after a failed rename during which a look-up of the new name does not wait for a file.
const FOR: Duration = Duration::from_secs(10);

/// The new name of the last rename that failed. The value uses atomics and no lock, because a forked child could find
/// the lock held for ever.
#[derive(Debug, Default)]
pub struct RenameTarget {
    /// The hash of the new name of the last rename that failed; 0 if no rename has failed yet.
    path: AtomicU64,
    until_ns: AtomicU64,
}

impl RenameTarget {
    /// Makes the value for a process in which no rename has failed yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { path: AtomicU64::new(0), until_ns: AtomicU64::new(0) }
    }

    /// Remembers `path` as the new name of a rename that fails. The path is absolute and normalised.
    pub fn note(&self, path: &[u8]) {
        let until = clock::now_ns().saturating_add(u64::try_from(FOR.as_nanos()).unwrap_or(u64::MAX));
        self.until_ns.store(until, Ordering::Relaxed);
        self.path.store(hash(path), Ordering::Relaxed);
    }

    /// Tells whether a rename to this absolute, normalised path has failed within the last ten seconds.
    #[must_use]
    pub fn is(&self, path: &[u8]) -> bool {
        self.is_recent() && self.path.load(Ordering::Relaxed) == hash(path)
    }

    /// Tells whether a rename has failed within the last ten seconds.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        clock::now_ns() < self.until_ns.load(Ordering::Relaxed)
    }
}

fn hash(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_name_counts_and_only_for_a_while() {
        let target = RenameTarget::new();
        assert!(!target.is(b"/f/a"));
        target.note(b"/f/a");
        assert!(target.is(b"/f/a") && !target.is(b"/f/b"));
        target.note(b"/f/b");
        assert!(target.is(b"/f/b") && !target.is(b"/f/a"));
        target.until_ns.store(clock::now_ns(), Ordering::Relaxed);
        assert!(!target.is(b"/f/b"));
    }
}
