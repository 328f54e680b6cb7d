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
    /// The open regions, each under two ids. For the heap of an item, these are the id of the item and the id of the
    /// file that contains the heap. An item gets another file each time a former user clings to its memory, so several
    /// heaps of one item may be open. For any other region, both ids are the id of its segment.
    regions: Mutex<BTreeMap<(SegmentId, SegmentId), KnownRegion>>,
    ports: Mutex<Vec<Weak<Port>>>,
}

/// A region that this session has open.
#[derive(Debug)]
struct KnownRegion {
    region: Weak<region::Region>,
    /// For the heap of an item: the openings of the item that use this mapping of the heap. `None` for every other
    /// region.
    openings: Option<Weak<Openings>>,
}

/// A value that all present openings of an item share if they use the same mapping of the item's heap. Each opening has
/// an `Arc` of the value, so the count of the `Arc` is the number of these openings.
#[derive(Debug, Default)]
struct Openings;

/// The heap of an item that is open. The program may still use the heap after it has closed the item. But handles then
/// no longer lead to this heap, because another task may own the item, or this task may have opened the item again, in
/// another file.
#[derive(Debug)]
pub(crate) struct OpenHeap {
    pub region: Region,
    _openings: Option<Arc<Openings>>,
}

impl KnownRegion {
    /// Tells whether handles lead to this region. They do unless the region is the heap of an item that is closed.
    fn is_current(&self) -> bool {
        self.openings.as_ref().is_none_or(|openings| openings.strong_count() > 0)
    }
}

fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // If a thread panicked while it held the lock, the lock can still be used, because no code leaves a table half
    // changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionObjects {
    /// The region in this segment or item; `None` if this session does not have the region open, or if the region is
    /// the heap of an item that is closed. If an item is open several times, in several files, gives the heap in the
    /// newest file.
    pub fn region(&self, id: SegmentId) -> Option<Region> {
        let files = (id, SegmentId(0))..=(id, SegmentId(u64::MAX));
        enter(&self.regions)
            .range(files)
            .rev()
            .filter(|(_, known)| known.is_current())
            .find_map(|(_, known)| known.region.upgrade())
    }

    /// The open region whose bytes were copied from this segment; `None` if there is none, or more than one.
    pub fn copy_of(&self, id: SegmentId) -> Option<Region> {
        let open: Vec<_> = enter(&self.regions).values().filter_map(|known| known.region.upgrade()).collect();
        let mut copies = open.into_iter().filter(|region| region.is_copied_from(id));
        let first = copies.next()?;
        copies.next().is_none().then_some(first)
    }

    /// Adds a region that was just mapped. If another thread has just added the same region, returns the mapping of
    /// that thread.
    pub fn note_region(&self, region: Region) -> Region {
        self.note(region, None).0
    }

    /// Adds the heap of an open item, which was just mapped. If this session already has a mapping of
    /// the same heap, gives that mapping instead.
    pub fn note_heap(&self, heap: Region) -> OpenHeap {
        let (region, openings) = self.note(heap, Some(Arc::default()));
        OpenHeap { region, _openings: openings }
    }

    fn note(&self, region: Region, new: Option<Arc<Openings>>) -> (Region, Option<Arc<Openings>>) {
        let mut regions = enter(&self.regions);
        let key = (region.id(), region.file());
        if let Some(known) = regions.get_mut(&key) {
            if let Some(there) = known.region.upgrade() {
                let openings = known.openings.as_ref().and_then(Weak::upgrade).or(new);
                known.openings = openings.as_ref().map(Arc::downgrade);
                // The lock is released first, because `region` is dropped when this function returns, and dropping a
                // region sends a request to the daemon.
                drop(regions);
                return (there, openings);
            }
        }
        regions.retain(|_, known| known.region.strong_count() > 0);
        let openings = new.as_ref().map(Arc::downgrade);
        regions.insert(key, KnownRegion { region: Arc::downgrade(&region), openings });
        (region, new)
    }

    /// Adds a port that was just opened.
    pub fn note_port(&self, port: &Arc<Port>) {
        let mut ports = enter(&self.ports);
        ports.retain(|known| known.strong_count() > 0);
        ports.push(Arc::downgrade(port));
    }

    /// Closes all ports properly, so that their peers do not take this member for dead. Later calls on the ports fail
    /// with `CLOSED`.
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
