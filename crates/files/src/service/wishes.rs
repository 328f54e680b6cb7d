//! For which files consumers of this host wait: those are fetched first.
//!
//! The kernel says it ([`crate::look::awaited`]): a thread that waits sleeps on the notice's page, and names its file. So a consumer
//! needs no channel to this service. A user who may not look at a consumer's threads gets the files in the order of their
//! publication.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::Shared;
use crate::look;

/// The kernel is asked so often at most.
const LOOK: Duration = Duration::from_millis(20);
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// What consumers wait for, as it was a moment ago.
#[derive(Debug)]
pub(super) struct Wishes {
    /// The inode number of the notice.
    notice: u64,
    names: Arc<HashSet<PathBuf>>,
    /// From then on the kernel is asked again.
    next: Option<Instant>,
}

impl Wishes {
    pub fn of(notice: &Path) -> io::Result<Self> {
        Ok(Self { notice: std::fs::metadata(notice)?.ino(), names: Arc::default(), next: None })
    }
}

impl Shared {
    /// The files for which consumers of this host wait, relative to the directory.
    pub(super) fn awaited(&self) -> Arc<HashSet<PathBuf>> {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        if wishes.next.is_none_or(|next| next <= began) {
            let paths = self.state().seen_at.clone();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let processes = look::numbers(Path::new("/proc")).into_iter();
            wishes.names = Arc::new(processes.flat_map(|pid| look::awaited(pid, wishes.notice, &paths)).collect());
            wishes.next = Some(Instant::now() + LOOK.max(began.elapsed() * SHARE));
        }
        wishes.names.clone()
    }
}
