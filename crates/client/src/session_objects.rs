//! The table of the regions and ports that a session has open. The table does not keep the regions and ports open. An
//! open region or port keeps the session alive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crossdock_core::region;
use crossdock_layout::SegmentId;

use crate::Region;
use crate::port::Shared as Port;

/// The regions and ports of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionObjects {
    /// The regions by segment and file. A region in a segment of its own has one file, with the same id. An item gets
    /// another file each time a former user clings to its memory, so several heaps of one item may be open.
    regions: Mutex<BTreeMap<(SegmentId, SegmentId), Weak<region::Region>>>,
    ports: Mutex<Vec<Weak<Port>>>,
}

fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The lock can be used after a panic, because no code leaves a table half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionObjects {
    /// The region in this segment; `None` if this session does not have the region open. If heaps in several files of
    /// an item are open, gives the one in the newest file.
    pub fn region(&self, id: SegmentId) -> Option<Region> {
        let files = (id, SegmentId(0))..=(id, SegmentId(u64::MAX));
        enter(&self.regions).range(files).rev().find_map(|(_, known)| known.upgrade())
    }

    /// The open region whose bytes were copied from this segment; `None` if there is none, or more than one.
    pub fn copy_of(&self, id: SegmentId) -> Option<Region> {
        let open: Vec<_> = enter(&self.regions).values().filter_map(Weak::upgrade).collect();
        let mut copies = open.into_iter().filter(|region| region.is_copied_from(id));
        let first = copies.next()?;
        copies.next().is_none().then_some(first)
    }

    /// Adds a region that was just mapped from this file. If another thread added the same region first, gives that
    /// thread's mapping.
    pub fn note_region(&self, region: Region, file: SegmentId) -> Region {
        let mut regions = enter(&self.regions);
        let key = (region.id(), file);
        if let Some(known) = regions.get(&key).and_then(Weak::upgrade) {
            // Dropping a region sends a request to the daemon, so this must not happen while the lock is held.
            drop(regions);
            return known;
        }
        regions.retain(|_, known| known.strong_count() > 0);
        regions.insert(key, Arc::downgrade(&region));
        region
    }

    /// Adds a port that was just opened.
    pub fn note_port(&self, port: &Arc<Port>) {
        let mut ports = enter(&self.ports);
        ports.retain(|known| known.strong_count() > 0);
        ports.push(Arc::downgrade(port));
    }

    /// Closes all ports in order. Later calls on them give `CLOSED`.
    pub fn close_ports(&self) {
        for port in self.ports() {
            port.close();
        }
    }

    /// The ports that are open.
    pub fn ports(&self) -> Vec<Arc<Port>> {
        enter(&self.ports).iter().filter_map(Weak::upgrade).collect()
    }
}
