//! Which regions this process has mapped: by session and segment, so that opening twice maps once, and by address, so
//! that a container in shared memory finds its allocator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crossdock_layout::SegmentId;

use super::{Region, Shared};

type Table = BTreeMap<usize, Weak<Shared>>;

static BY_BASE: RwLock<Table> = RwLock::new(Table::new());

thread_local! {
    /// The region looked up last. An address that was unmapped since fails to upgrade, so the answer is never stale.
    static LAST: RefCell<(usize, Weak<Shared>)> = const { RefCell::new((0, Weak::new())) };
}

/// Notes a region. If this session has the segment mapped already, that mapping is the answer instead.
pub(super) fn enter(shared: Arc<Shared>) -> Region {
    let mut table = BY_BASE.write().unwrap_or_else(PoisonError::into_inner);
    table.retain(|_, known| known.strong_count() > 0);
    let (serial, id) = (shared.session.serial(), shared.region.segment());
    if let Some(shared) = search(&table, serial, id) {
        return Region { shared };
    }
    table.insert(shared.region.base() as usize, Arc::downgrade(&shared));
    Region { shared }
}

/// The region of a segment that this session has mapped.
pub(super) fn of_segment(serial: u64, id: SegmentId) -> Option<Region> {
    let table = BY_BASE.read().unwrap_or_else(PoisonError::into_inner);
    search(&table, serial, id).map(|shared| Region { shared })
}

fn search(table: &Table, serial: u64, id: SegmentId) -> Option<Arc<Shared>> {
    let of_both = |s: &Arc<Shared>| s.session.serial() == serial && s.region.segment() == id;
    table.values().filter_map(Weak::upgrade).find(of_both)
}

/// The region that is mapped at this address.
pub(super) fn at_base(base: *const u8) -> Option<Region> {
    let base = base as usize;
    let last = LAST.try_with(|last| {
        let last = last.borrow();
        if last.0 == base { last.1.upgrade() } else { None }
    });
    if let Ok(Some(shared)) = last {
        return Some(Region { shared });
    }
    let found = BY_BASE.read().unwrap_or_else(PoisonError::into_inner).get(&base)?.clone();
    let shared = found.upgrade()?;
    let _ = LAST.try_with(|last| *last.borrow_mut() = (base, found));
    Some(Region { shared })
}
