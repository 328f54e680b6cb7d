//! Finds this thread's slot in a region by the region's address alone. Allocators of containers in shared memory need
//! this, because they know only that address. The search reads only the thread's own memory. If the region is not found
//! there, the caller takes a slower path and then calls `cache_region`.
//!
//! An entry of this cache owns nothing: it does not keep its region alive. Instead, each region that is dropped
//! increments [`DROPS`] before it unmaps its memory or leaves its slots. An entry is valid only while `DROPS` has the
//! same value as when the entry was made. So a call with the address of a dropped region finds no valid entry here. The
//! slower path then says that no region is mapped there, or finds the region that is mapped there now. As always, a
//! program must not drop a region *while* another thread allocates in it.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LocalSlot;
use crate::region::Region;

/// The number of regions that this process has dropped. A thread that drops a region increments this number, and each
/// search in a thread's cache reads the number. The number has a cache line of its own, so that writes to other data do
/// not remove the line from the CPUs' caches.
#[repr(align(128))]
struct DropCount(AtomicU64);

static DROPS: DropCount = DropCount(AtomicU64::new(0));

/// A region in which this thread has a heap slot.
#[derive(Clone, Copy)]
struct CacheEntry {
    base: *const u8,
    gone: u64,
    region: *const Region,
    slot: *mut LocalSlot,
}

/// The number of entries in each thread's cache. If two regions have the same index in the cache, the later one
/// replaces the other.
const WAYS: usize = 8;

thread_local! {
    static CACHE: [Cell<CacheEntry>; WAYS] = const { [const { Cell::new(NONE) }; WAYS] };
}

/// An empty entry of the cache. It is never valid, because the count of dropped regions never reaches the number in
/// `gone`.
const NONE: CacheEntry = CacheEntry { base: null(), gone: u64::MAX, region: null(), slot: null_mut() };

/// Computes an index in the cache from a region's address. Regions begin at a page, so the lowest bits of the address
/// are left out. The remaining bits are multiplied by a constant, and the highest bits of the product, which depend on
/// all of them, are the index.
#[inline(always)]
fn cache_index(base: *const u8) -> usize {
    (base as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 61
}

/// Finds the region at `base` and this thread's slot in it, if they are in the thread's cache.
///
/// Only the fast paths below call this, and never while the result of an earlier call is still in use. The same rule
/// applies to `cached_local`.
#[inline(always)]
fn cached<'a>(base: *const u8) -> Option<(&'a Region, &'a mut LocalSlot)> {
    let found = CACHE.with(|cached| cached[cache_index(base) % WAYS].get());
    // Suppose that a region was dropped and a new region was mapped at the same address. A thread that has learned of
    // the new region sees the increment of `DROPS` in this load. The accesses after this load cannot run before it.
    if found.base != base || found.gone != DROPS.0.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: no region was dropped since the entry was made, so this region still exists, with its slots. The slot
    // belongs to this thread alone until the thread ends, and `forget` clears the entry before that. A forked child
    // clears its entries as well.
    Some(unsafe { (&*found.region, &mut *found.slot) })
}

/// Finds the region at `base`, if it is in this thread's cache. The function takes no lock and does not change the
/// region's reference count.
pub(crate) fn cached_region(base: *const u8) -> Option<ManuallyDrop<Arc<Region>>> {
    let found = CACHE.try_with(|cached| cached[cache_index(base) % WAYS].get()).ok()?;
    if found.base != base || found.gone != DROPS.0.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: no region was dropped since the entry was made, so this region still exists. The pointer came from an
    // `Arc`, whose count is not changed here. The caller uses memory of the region, so it keeps the region mapped.
    Some(ManuallyDrop::new(unsafe { Arc::from_raw(found.region) }))
}

/// Allocates as `Region::allocate` does, and gives the block's address. The result is `None` unless the region is in
/// this thread's cache and a hint names a fitting free block.
#[inline]
pub fn allocate_at(base: *const u8, size: u64, align: u64) -> Option<*mut u8> {
    let class = super::quick_class(size, align)?;
    let (region, local) = cached(base)?;
    Some(region.base().wrapping_add(local.take_at_hand(region, class)? as usize))
}

/// Frees the block at `address` as `Region::deallocate` does. If the fast path cannot do that, nothing happens and the
/// result is `false`.
#[inline]
pub fn deallocate_at(base: *const u8, address: *const u8) -> bool {
    // `free_own` checks the offset. So it refuses an address outside of the region or within a block.
    cached(base).is_some_and(|(region, local)| {
        region.is_healed() && region.free_own(local, (address as u64).wrapping_sub(base as u64))
    })
}

/// Empties this thread's cache. The library calls this function when a thread ends, and in a forked child.
pub(super) fn forget() {
    let _ = CACHE.try_with(|cached| cached.iter().for_each(|cache_index| cache_index.set(NONE)));
}

/// Makes all cached entries of all threads invalid. The caller is about to drop a region with its slots.
pub(super) fn region_goes() {
    // The ordering includes Release, because the region's memory must be unmapped only after this store.
    DROPS.0.fetch_add(1, Ordering::AcqRel);
}

impl Region {
    /// Puts this region into this thread's cache, so that the next [`allocate_at`] finds it. If the thread has no
    /// slot in the region, the function does nothing.
    pub fn cache_region(self: &Arc<Self>) {
        if let Some(slot) = self.cached_local() {
            // The caller has a reference to the region, so the region is not dropped yet, and the entry is valid until
            // `DROPS` changes.
            let gone = DROPS.0.load(Ordering::Acquire);
            let entry = CacheEntry { base: self.base(), gone, region: Arc::as_ptr(self), slot };
            let _ = CACHE.try_with(|cached| cached[cache_index(entry.base) % WAYS].set(entry));
        }
    }
}
