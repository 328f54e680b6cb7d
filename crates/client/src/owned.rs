//! What belongs to a session: the regions and ports that it has open. This table does not keep them open; they keep the
//! session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crossdock_core::region;
use crossdock_layout::SegmentId;

use crate::Region;
use crate::port::Shared as Port;

/// One session's regions and ports.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    regions: Mutex<BTreeMap<SegmentId, Weak<region::Region>>>,
    ports: Mutex<Vec<Weak<Port>>>,
}

fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of these locks leaves a table half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owned {
    /// The region of this segment, if it is open.
    pub fn region(&self, id: SegmentId) -> Option<Region> {
        enter(&self.regions).get(&id)?.upgrade()
    }

    /// Adds a region that was mapped just now. If another thread was faster, the result is that thread's mapping.
    pub fn note_region(&self, region: Region) -> Region {
        let mut regions = enter(&self.regions);
        if let Some(known) = regions.get(&region.id()).and_then(Weak::upgrade) {
            // Dropping a region asks the daemon, so this must not happen under the lock.
            drop(regions);
            return known;
        }
        regions.retain(|_, known| known.strong_count() > 0);
        regions.insert(region.id(), Arc::downgrade(&region));
        region
    }

    /// Adds a port that was opened just now.
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
