//! The regions that this process has mapped, by address. A container in shared memory finds its region here when it
//! allocates.
//!
//! This is the only such table. `heap/thread_cache.rs` has a cache of it in each thread.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crossdock_os::fork::PerProcess;

use super::Region;
use crate::heap;

type Table = BTreeMap<usize, Weak<Region>>;

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
    table.retain(|_, known| known.strong_count() > 0);
    table.insert(region.base() as usize, Arc::downgrade(region));
}

/// Finds the region that is mapped at `base` in this process.
#[must_use]
pub fn at_base(base: *const u8) -> Option<Arc<Region>> {
    table().read().unwrap_or_else(PoisonError::into_inner).get(&(base as usize))?.upgrade()
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
