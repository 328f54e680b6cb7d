//! A map from addresses to the regions that this process has mapped there. A container in shared memory finds its
//! region here when it allocates.
//!
//! Each process has only one such table. Each thread keeps a cache of the entries that it used last
//! (`heap/thread_cache.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crossdock_layout::SegmentId;
use crossdock_os::fork::PerProcess;

use super::Region;
use crate::heap;
use crate::liveness::{LivenessSource, epoch_word};

/// A mapped region, with the address of the count of deaths in its session's liveness table.
#[derive(Clone)]
struct Mapped {
    region: Weak<Region>,
    deaths: usize,
    /// The file of the item whose heap the region is; `None` if the region is a segment of its own.
    item: Option<SegmentId>,
}

type Table = BTreeMap<usize, Mapped>;

/// True once this process or its parent has mapped the heap of an item. While it is false, the table has no such heap.
static HAS_ITEM_HEAPS: AtomicBool = AtomicBool::new(false);

static BY_BASE: PerProcess<RwLock<Table>> = PerProcess::new();

/// This process's table. A forked child begins with a copy of its parent's table, so that an error can name the
/// parent's region. If another thread was changing the table during the fork, the child begins with an empty one.
fn table() -> &'static RwLock<Table> {
    let inherit = |parents: Option<&RwLock<Table>>| parents.and_then(|table| Some(table.try_read().ok()?.clone()));
    let own = BY_BASE.get_or_inherit(|parents| Some(RwLock::new(inherit(parents).unwrap_or_default())));
    own.expect("the closure always makes one")
}

/// Adds a region that was mapped just now.
pub(super) fn enter(region: &Arc<Region>) {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    table.retain(|_, known| known.region.strong_count() > 0);
    let item = region.is_in_item().then_some(region.file);
    if item.is_some() {
        HAS_ITEM_HEAPS.store(true, Ordering::Release);
    }
    let mapped = Mapped { region: Arc::downgrade(region), deaths: region.deaths.addr().get(), item };
    table.insert(region.base() as usize, mapped);
}

/// Finds the region that is mapped at `base` in this process.
#[must_use]
pub fn at_base(base: *const u8) -> Option<Arc<Region>> {
    table().read().unwrap_or_else(PoisonError::into_inner).get(&(base as usize))?.region.upgrade()
}

/// Tells whether this process has mapped the heap in this file of an item, in any session. A mapping that a forked
/// child has from its parent does not count, because the child cannot give it up.
#[must_use]
pub fn is_heap_mapped(file: SegmentId) -> bool {
    if !HAS_ITEM_HEAPS.load(Ordering::Acquire) {
        return false;
    }
    let table = table().read().unwrap_or_else(PoisonError::into_inner);
    let heaps: Vec<_> = table.values().filter(|mapped| mapped.item == Some(file)).cloned().collect();
    // The lock is released first, because another thread may drop a region meanwhile. Then its last reference is here.
    drop(table);
    heaps.iter().any(|mapped| mapped.region.upgrade().is_some_and(|region| region.is_own()))
}

/// Heals the regions that a session has mapped for writing. The library calls this before it tells the program of a
/// member's death. After that, the program may use the data that the dead member left, also by direct loads and stores,
/// without a call in which the library could heal the region. `alive` is the session's source of information about dead
/// members.
///
/// If a stopped member holds a region's lock, that region stays as it is. The calls that change containers or free
/// blocks heal it later. The heaps of items are left out: an item's next holder heals its heap when it opens the heap.
#[cold]
pub(crate) fn heal_all(alive: &dyn LivenessSource) {
    let deaths = std::ptr::from_ref(epoch_word(alive)).addr();
    let known: Vec<_> = table().read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
    for mapped in known.iter().filter(|mapped| mapped.deaths == deaths) {
        // The list has only weak references, because another thread may drop a region at any time. So this loop holds a
        // reference to each region only while it heals that region.
        if let Some(region) = mapped.region.upgrade().filter(|region| region.writable() && !region.is_in_item()) {
            let _ = region.check_succession();
        }
    }
}

/// Runs `work` on the region that is mapped at `base`, if there is one. After that, this thread's next
/// [`heap::allocate_at`] finds the region quickly. Allocators of containers in shared memory call this function.
pub fn with_base<R>(base: *const u8, work: impl FnOnce(&Arc<Region>) -> R) -> Option<R> {
    if let Some(region) = heap::cached_region(base) {
        return Some(work(&region));
    }
    let region = at_base(base)?;
    let done = work(&region);
    region.cache_region();
    Some(done)
}
