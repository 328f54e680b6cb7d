//! The way from the address of a region to this thread's slot in it, for allocators that lie in regions and know no more
//! than that address. One look into the thread's own memory; a region that is not found there takes the long way and then says
//! `keep_near`.
//!
//! An entry holds nothing: a region goes when its last owner lets go of it, and no entry of any thread keeps it. Instead
//! each region that goes counts up [`GONE`], before anything of it is given back, and an entry counts only while
//! `GONE` is what it was when the entry was made. A call with the address of a region that went before (as the
//! program's own order has it) therefore sees another number, finds nothing here, and is told on the long way that
//! nothing is mapped there, or finds what is mapped there now. To let a region go *while* another thread allocates in
//! it is as wrong here as it is everywhere.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LocalSlot;
use crate::region::Region;

/// How many regions that this process had mapped are gone. Written by the thread that drops one, read by every call here; a cache
/// line of its own, so that all processors have it at hand.
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

/// How many regions a thread has near; two of the same place take turns.
const WAYS: usize = 8;

thread_local! {
    static NEAR: [Cell<Near>; WAYS] = const { [const { Cell::new(NONE) }; WAYS] };
}

/// No entry: so many regions never go.
const NONE: Near = Near { base: null(), gone: u64::MAX, region: null(), slot: null_mut() };

/// Regions begin at pages, so the bits below say nothing; the product's highest depend on all others.
#[inline(always)]
fn way(base: *const u8) -> usize {
    (base as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 61
}

/// The region at `base` and this thread's slot in it, if it has them near.
///
/// Only the fast paths below call this, and neither while the reference of another lives: as for `cached_local`.
#[inline(always)]
fn near<'a>(base: *const u8) -> Option<(&'a Region, &'a mut LocalSlot)> {
    let found = NEAR.with(|near| near[way(base) % WAYS].get());
    // Acquire: what the program did after a region went, such as mapping another there, comes after this number.
    if found.base != base || found.gone != GONE.0.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: no region has gone since the entry was made, so this one is there, with its slots; the slot is this
    // thread's alone until it ends, when `forget` comes first. A forked child forgets, too.
    Some(unsafe { (&*found.region, &mut *found.slot) })
}

/// The region at `base`, if this thread has it near: found without a lock and without counting a reference.
pub(crate) fn near_region(base: *const u8) -> Option<ManuallyDrop<Arc<Region>>> {
    let found = NEAR.try_with(|near| near[way(base) % WAYS].get()).ok()?;
    if found.base != base || found.gone != GONE.0.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: as in `near`, the region is there; the pointer came from an `Arc`, whose count is not touched here. The
    // caller, who uses memory of the region, keeps it mapped meanwhile.
    Some(ManuallyDrop::new(unsafe { Arc::from_raw(found.region) }))
}

/// What `Region::allocate` gives, as an address, if the region at `base` is near and has such a block at hand.
#[inline]
pub fn allocate_at(base: *const u8, size: u64, align: u64) -> Option<*mut u8> {
    let class = super::quick_class(size, align)?;
    let (region, local) = near(base)?;
    Some(region.base().wrapping_add(local.take_at_hand(region, class)? as usize))
}

/// `Region::deallocate` of the block at `address`; `false`, and nothing was done, where it takes more thought.
#[inline]
pub fn deallocate_at(base: *const u8, address: *const u8) -> bool {
    // An address outside, or within a block, is told from others by `free_own`, which trusts no offset.
    near(base).is_some_and(|(region, local)| region.free_own(local, (address as u64).wrapping_sub(base as u64)))
}

/// For a thread that ends and a child that was forked.
pub(super) fn forget() {
    let _ = NEAR.try_with(|near| near.iter().for_each(|way| way.set(NONE)));
}

/// A region is about to go, with its slots.
pub(super) fn region_goes() {
    // Release: the memory of the region is given back after this.
    GONE.0.fetch_add(1, Ordering::AcqRel);
}

impl Region {
    /// Lets this thread's next [`allocate_at`] find this region, if the thread has a slot in it.
    pub fn keep_near(self: &Arc<Self>) {
        if let Some(slot) = self.cached_local() {
            // The region is held by the caller: it is not among those that are gone, nor will be until the number changes.
            let gone = GONE.0.load(Ordering::Acquire);
            let entry = Near { base: self.base(), gone, region: Arc::as_ptr(self), slot };
            let _ = NEAR.try_with(|near| near[way(entry.base) % WAYS].set(entry));
        }
    }
}
