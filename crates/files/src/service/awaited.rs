//! Finds out for which files consumers of this host wait, because these files are fetched first.
//!
//! A consumer's thread that waits for a file sleeps in a system call, and an argument of this call points to the name
//! of the file. The kernel shows the call and its argument ([`crate::look::awaited`]), so a consumer needs no channel
//! to this service. If the service's user may not inspect the consumers' threads, files are fetched in the order of
//! their publication.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::Shared;
use crate::look;

/// The shortest pause between two times when the service asks the kernel which files consumers wait for.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Asking the kernel which files consumers wait for takes at most 1/`SHARE` of the time.
const SHARE: u32 = 20;

/// The names for which consumers wait, as the kernel last showed them.
#[derive(Debug)]
pub(super) struct AwaitedNames {
    /// The inode number of the notice, on whose page waiting threads sleep.
    notice: u64,
    names: Arc<HashSet<PathBuf>>,
    /// The time at which the service next asks the kernel which files consumers wait for; `None` before the first time.
    next: Option<Instant>,
}

impl AwaitedNames {
    pub fn of(notice: &Path) -> io::Result<Self> {
        Ok(Self { notice: crossdock_os::fs::metadata(notice)?.ino(), names: Arc::default(), next: None })
    }
}

impl Shared {
    /// Gives the files for which consumers of this host wait, relative to the directory. The answer may be a moment
    /// old.
    pub(super) fn awaited(&self) -> Arc<HashSet<PathBuf>> {
        let mut awaited_names = self.awaited_names.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        if awaited_names.next.is_none_or(|next| next <= began) {
            let paths = self.state().seen_at.clone();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let processes = look::numbers(Path::new("/proc")).into_iter();
            awaited_names.names =
                Arc::new(processes.flat_map(|pid| look::awaited(pid, awaited_names.notice, &paths)).collect());
            awaited_names.next = Some(Instant::now() + LOOK.max(began.elapsed() * SHARE));
        }
        awaited_names.names.clone()
    }
}
