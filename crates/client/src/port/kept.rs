//! Regions that a port keeps open. A consumer that only loads what the messages' handles name would otherwise map the
//! region, and ask the daemon for it, with every message.
//!
//! The port owns them and not the session: a region holds its session, so a session that held regions would never end.
//! They are dropped with the port, or when the port's messages are about other regions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_layout::{Handle, SegmentId};

use crate::Region;

/// Enough for producers that alternate between a few regions. Each further region costs address space in every
/// consumer.
const MOST: usize = 4;

/// The regions of a port's last messages.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The segment of the last handle. A region is kept for it.
    last: AtomicU64,
    /// Used last, last.
    regions: Mutex<Vec<Region>>,
    closed: std::sync::atomic::AtomicBool,
}

impl Kept {
    /// Notes a handle that passed this end.
    #[inline]
    pub(super) fn note(&self, handle: Handle) {
        if handle.segment != 0 {
            self.last.store(handle.segment, Ordering::Relaxed);
        }
    }

    /// Keeps a region that was opened just now, if the port's messages are about it.
    pub(super) fn keep(&self, region: &Region) {
        if SegmentId(self.last.load(Ordering::Relaxed)) != region.id() {
            return;
        }
        let mut regions = self.lock();
        if self.closed.load(Ordering::Relaxed) || regions.iter().any(|kept| kept.id() == region.id()) {
            return;
        }
        regions.push(region.clone());
        let oldest = (regions.len() > MOST).then(|| regions.remove(0));
        // Dropping a region asks the daemon, so this must not happen under the lock.
        drop(regions);
        drop(oldest);
    }

    /// The port is closed: drops everything and keeps nothing more.
    pub(super) fn end(&self) {
        let mut regions = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        let all = std::mem::take(&mut *regions);
        drop(regions);
        drop(all);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
