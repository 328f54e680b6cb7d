//! Finds this thread's slot in a region by the region's address alone; for allocators that lie in regions and know only
//! that address. It is one look into the thread's own memory. A region that is not found there takes the slow path,
//! which then calls `keep_near`.
//!
//! An entry owns nothing: a region is dropped when its last owner drops it, and no entry of any thread keeps it alive.
//! Instead, each region that is dropped increments [`GONE`] before it gives anything back, and an entry counts only
//! while `GONE` is the same as when the entry was made. A call with the address of a dropped region therefore sees
//! another number and finds nothing here. The slow path then says that nothing is mapped there, or finds the region
//! that is mapped there now. Dropping a region *while* another thread allocates in it is a mistake here as everywhere.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LocalSlot;
use crate::region::Region;

/// How many regions of this process were dropped. The thread that drops a region writes it, and every call here reads
/// it. It has a cache line of its own, so that all processors keep that line in their caches.
#[repr(align(128))]
struct Gone(AtomicU64);

static GONE: Gone = Gone(AtomicU64::new(0));

/// A region that this thread has a slot in.
#[derive(Clone, Copy)]
struct Near {
    base: *const u8,
    gone: u64,
    region: *const Region,
    slot: *mut LocalSlot,
}

/// How many regions a thread has near. Two regions with the same index replace each other.
const WAYS: usize = 8;

thread_local! {
    static NEAR: [Cell<Near>; WAYS] = const { [const { Cell::new(NONE) }; WAYS] };
}

/// No entry. The count of dropped regions never gets this large.
const NONE: Near = Near { base: null(), gone: u64::MAX, region: null(), slot: null_mut() };

/// Regions begin at a page, so the lower bits of the address carry no information. The highest bits of the product
/// depend on all other bits.
#[inline(always)]
fn way(base: *const u8) -> usize {
    (base as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 61
}

/// The region at `base` and this thread's slot in it, if it has them near.
///
/// Only the fast paths below call this, and never while the result of an earlier call is still in use: the same rule as
/// for `cached_local`.
#[inline(always)]
fn near<'a>(base: *const u8) -> Option<(&'a Region, &'a mut LocalSlot)> {
    let found = NEAR.with(|near| near[way(base) % WAYS].get());
    // Acquire: what the program did after a region was dropped, for example mapping another region there, is ordered
    // after this load.
    if found.base != base || found.gone != GONE.0.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: no region has gone since the entry was made, so this one is there, with its slots; the slot is this
    // thread's alone until it ends, when `forget` comes first. A forked child forgets, too.
    Some(unsafe { (&*found.region, &mut *found.slot) })
}

/// The region at `base`, if this thread has it near. It is found without a lock and without counting a reference.
pub(crate) fn near_region(base: *const u8) -> Option<ManuallyDrop<Arc<Region>>> {
    let found = NEAR.try_with(|near| near[way(base) % WAYS].get()).ok()?;
    if found.base != base || found.gone != GONE.0.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: as in `near`, the region is there; the pointer came from an `Arc`, whose count is not touched here. The
    // caller, who uses memory of the region, keeps it mapped meanwhile.
    Some(ManuallyDrop::new(unsafe { Arc::from_raw(found.region) }))
}

/// The block of `Region::allocate` as an address, if the region at `base` is near and has a fitting block at hand.
#[inline]
pub fn allocate_at(base: *const u8, size: u64, align: u64) -> Option<*mut u8> {
    let class = super::quick_class(size, align)?;
    let (region, local) = near(base)?;
    Some(region.base().wrapping_add(local.take_at_hand(region, class)? as usize))
}

/// `Region::deallocate` of the block at `address`. If the fast path cannot do it, nothing happens and the result is
/// `false`.
#[inline]
pub fn deallocate_at(base: *const u8, address: *const u8) -> bool {
    // `free_own` refuses an address outside of the region or within a block, because it trusts no offset.
    near(base).is_some_and(|(region, local)| region.free_own(local, (address as u64).wrapping_sub(base as u64)))
}

/// Called when a thread ends, and in a forked child.
pub(super) fn forget() {
    let _ = NEAR.try_with(|near| near.iter().for_each(|way| way.set(NONE)));
}

/// A region is about to be dropped, with its slots.
pub(super) fn region_goes() {
    // Release: the memory of the region is given back only after this.
    GONE.0.fetch_add(1, Ordering::AcqRel);
}

impl Region {
    /// Lets this thread's next [`allocate_at`] find this region, if the thread has a slot in it.
    pub fn keep_near(self: &Arc<Self>) {
        if let Some(slot) = self.cached_local() {
            // The caller holds the region, so the region is not among the dropped ones, and stays valid until the
            // number changes.
            let gone = GONE.0.load(Ordering::Acquire);
            let entry = Near { base: self.base(), gone, region: Arc::as_ptr(self), slot };
            let _ = NEAR.try_with(|near| near[way(entry.base) % WAYS].set(entry));
        }
    }
}
