//! Frees the blocks that the containers in a value own. The value is a named object, or an element of a container. The
//! value's type says where in the value the containers are.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_layout::region::{ENTRY_FREE, Entry, HeapSlot};
use crossdock_layout::type_name::{Type, with_offsets};

use super::{Removed, entry};
use crate::Result;
use crate::headers::emptied;
use crate::heap::LockGuard;
use crate::region::Region;

struct Walk<'a, 'g> {
    slot: &'a HeapSlot,
    by: u16,
    guard: &'a LockGuard<'g>,
    removed: Removed,
    /// The number of container headers that may still be visited. Damaged pointers may form a circle, so the walk needs
    /// a limit.
    budget: u64,
}

impl Region {
    /// Frees the data of all vectors, strings and ndarrays in the object. The step that frees a container's data also
    /// empties its header. So if this member dies during the walk, another member can begin the walk again.
    pub(super) fn free_contents(
        &self,
        entry: &Entry,
        block: u64,
        slot: &HeapSlot,
        by: u16,
        guard: &LockGuard<'_>,
    ) -> Result<Removed> {
        debug_assert!(entry.state.load(Ordering::Relaxed) != ENTRY_FREE);
        let ty = self.type_of(entry).and_then(|ty| Type::parse(&ty.name).ok());
        let fits = self.memory.block_at(block).is_some_and(|p| entry::size_within(entry, p.size()).is_some());
        let mut walk = Walk { slot, by, guard, removed: Removed::default(), budget: self.capacity() / 16 };
        if let (Some(ty), true) = (ty, fits) {
            self.free_value(&ty, block, &mut walk)?;
        }
        Ok(walk.removed)
    }

    /// Frees what the containers in `n` values of type `of` own. The values are elements of one container, and lie one
    /// after another from `at` on. If this member dies during the call, some of these elements are empty after that.
    pub(crate) fn empty_elements(self: &Arc<Self>, of: &Type, at: u64, n: u64) -> Result<()> {
        self.with_local(|local| {
            let guard = self.lock()?;
            let (slot, budget) = (local.shared(self), self.capacity() / 16);
            let mut walk = Walk { slot, by: local.index(), guard: &guard, removed: Removed::default(), budget };
            self.free_elements(of, at, n, &mut walk)
        })
    }

    fn free_value(&self, ty: &Type, at: u64, walk: &mut Walk<'_, '_>) -> Result<()> {
        match ty {
            Type::Scalar(..) | Type::Opaque(_) => Ok(()),
            Type::Array(of, n) => self.free_elements(of, at, *n, walk),
            Type::Struct(fields) => {
                for (offset, field) in with_offsets(fields) {
                    self.free_value(field, at.saturating_add(offset), walk)?;
                }
                Ok(())
            }
            Type::Vector(_) | Type::String | Type::Ndarray(_) => self.free_container(ty, at, walk),
        }
    }

    fn free_elements(&self, of: &Type, at: u64, n: u64, walk: &mut Walk<'_, '_>) -> Result<()> {
        let Some((size, _)) = of.size_and_align().filter(|_| owns_memory(of)) else { return Ok(()) };
        for i in 0..n {
            if walk.budget == 0 {
                break;
            }
            let Some(element) = i.checked_mul(size).and_then(|o| at.checked_add(o)) else { break };
            self.free_value(of, element, walk)?;
        }
        Ok(())
    }

    fn free_container(&self, ty: &Type, at: u64, walk: &mut Walk<'_, '_>) -> Result<()> {
        walk.budget = walk.budget.saturating_sub(1);
        let Some(data) = self.owned_block(at).filter(|_| walk.budget > 0) else { return Ok(()) };
        let Some(bytes) = self.memory.block_at(data).map(|p| p.size()) else { return Ok(()) };
        if let Type::Vector(of) | Type::Ndarray(of) = ty {
            let each = of.size_and_align().map_or(1, |s| s.0.max(1));
            self.free_elements(of, data, self.owned_elements(ty, at, each, bytes), walk)?;
        }
        let (field, words) = emptied(at);
        // The walk over the elements may have freed this block already, because a damaged pointer in one of them led to
        // it. So the next line checks again that the block is in use.
        if self.is_plain_block(data) {
            self.exchange(walk.slot, walk.by, walk.guard, field, &words, data)?;
            walk.removed.blocks += 1;
            walk.removed.bytes += bytes;
        }
        Ok(())
    }
}

/// Tells whether a value of this type can own blocks of the heap.
pub(crate) fn owns_memory(ty: &Type) -> bool {
    match ty {
        Type::Scalar(..) | Type::Opaque(_) => false,
        Type::Array(of, _) => owns_memory(of),
        Type::Struct(fields) => fields.iter().any(owns_memory),
        Type::Vector(_) | Type::String | Type::Ndarray(_) => true,
    }
}
