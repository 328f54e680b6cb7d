//! The regions that this process has mapped, by address. A container in shared memory finds its allocator here.
//!
//! There is no other such table; `heap/near.rs` has each thread's cache of it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crossdock_os::fork::PerProcess;

use super::Region;
use crate::heap;

type Table = BTreeMap<usize, Weak<Region>>;

static BY_BASE: PerProcess<RwLock<Table>> = PerProcess::new();

/// This process's table. A forked child begins with its parent's, so that a region of the parent is refused by name; it
/// begins with an empty one if another thread of the parent was changing the table while the parent forked.
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

/// The region that is mapped at `base` in this process, if any.
#[must_use]
pub fn at_base(base: *const u8) -> Option<Arc<Region>> {
    table().read().unwrap_or_else(PoisonError::into_inner).get(&(base as usize))?.upgrade()
}

/// Runs `work` on the region mapped at `base`, if there is one. This thread's next [`heap::allocate_at`] then finds the
/// region quickly. For allocators.
pub fn with_base<R>(base: *const u8, work: impl FnOnce(&Arc<Region>) -> R) -> Option<R> {
    if let Some(region) = heap::near_region(base) {
        return Some(work(&region));
    }
    let region = at_base(base)?;
    let done = work(&region);
    region.keep_near();
    Some(done)
}
