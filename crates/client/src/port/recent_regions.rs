//! Regions that a port keeps open. A consumer often opens a region only to load what one message's handle points to. If
//! the port did not keep the region open, the consumer would map the region again, and ask the daemon for it, with
//! every message.
//!
//! The port owns these regions; the session does not. A region keeps its session alive, so a session that owned regions
//! would never end. The regions are dropped with the port, or when the messages' handles point into other regions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_layout::{Handle, SegmentId};

use crate::Region;

/// The largest number of regions that a port keeps. It is enough for producers that alternate between a few regions.
/// Each further region would cost address space in every consumer.
const MOST: usize = 4;

/// The regions into which the last messages' handles point.
#[derive(Debug, Default)]
pub(super) struct RecentRegions {
    /// The segment of the last handle that this `Port` received or reclaimed. This process may also open regions that
    /// have nothing to do with this port. So the port keeps a newly opened region only if this segment is the region's
    /// segment.
    last: AtomicU64,
    /// The kept regions, from the region that was opened first to the region that was opened last.
    regions: Mutex<Vec<Region>>,
    closed: std::sync::atomic::AtomicBool,
}

impl RecentRegions {
    /// Notes the segment of a handle that this `Port` received or reclaimed.
    #[inline]
    pub(super) fn note(&self, handle: Handle) {
        if handle.segment != 0 {
            self.last.store(handle.segment, Ordering::Relaxed);
        }
    }

    /// Keeps a region that was just opened, if the last handle points into it.
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
        // The lock is released first, because dropping the oldest region sends a request to the daemon.
        drop(regions);
        drop(oldest);
    }

    /// Drops all regions, because the port is closed. From then on, the port keeps no region open.
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
