//! How a member makes a named object: the directory entry, the block, and the step that makes the object visible to
//! other members.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crossdock_layout::Status;
use crossdock_layout::region::{ENTRY_CONSTRUCTING, ENTRY_FREE, ENTRY_READY, Entry, PAGE, STATE_NAMED};
use crossdock_os::futex;

use super::entry::{self, ZEROED};
use super::index::{hash, write_field};
use super::{Claim, TypeRef};
use crate::heap::{BlockRequest, LocalSlot, LockGuard};
use crate::region::Region;
use crate::{Result, fault_point};

impl Region {
    /// Makes a directory entry in state CONSTRUCTING for an object that does not exist yet.
    pub(super) fn make_entry(&self, guard: &LockGuard<'_>, local: &LocalSlot, name: &str, ty: &TypeRef) -> Result<u64> {
        let index = self.unused_entry(guard)?;
        let Some(entry) = self.memory.entry(index) else { return Err(self.corrupt("its directory's free list")) };
        self.change_directory(guard, || {
            // The incarnation (the number of objects that had this entry) changes first. So a reference to the former
            // object does not match the contents that are written below.
            let former = entry.incarnation.load(Ordering::Relaxed);
            entry.incarnation.store(former.wrapping_add(1), Ordering::Release);
            entry.slot.store(local.index().into(), Ordering::Relaxed);
            entry.owner.store(self.member.0, Ordering::Relaxed);
            entry.offset.store(0, Ordering::Relaxed);
            entry.retiring.store(0, Ordering::Relaxed);
            entry.size.store(ty.size, Ordering::Relaxed);
            entry.align.store(ty.align, Ordering::Relaxed);
            entry.hash.store(hash(name), Ordering::Relaxed);
            write_field(&entry.name, name);
            write_field(&entry.type_name, &ty.name);
            self.memory.header().free_entry.store_wild(entry.next_by_name.load(Ordering::Relaxed), Ordering::Relaxed);
            fault_point!("directory.claim.written");
            entry.state.store(ENTRY_CONSTRUCTING, Ordering::Release);
            fault_point!("directory.claim.constructing");
            self.link_name(index, entry);
        });
        fault_point!("directory.claim.linked");
        Ok(index)
    }

    /// Finds a directory entry for a new object: the first one in the list of free entries, or an entry that was never
    /// used.
    fn unused_entry(&self, guard: &LockGuard<'_>) -> Result<u64> {
        let (header, g) = (self.memory.header(), self.memory.geometry());
        for _ in 0..2 {
            let listed = header.free_entry.load(Ordering::Relaxed);
            if listed.is(0) {
                break;
            }
            let free = |entry: &Entry| entry.state.load(Ordering::Relaxed) == ENTRY_FREE;
            let index = listed.linked(self.memory.entries());
            if let Some(index) = index.filter(|index| self.memory.entry(*index).is_some_and(free)) {
                return Ok(index);
            }
            self.rebuild_directory(guard); // another process has damaged the list
        }
        let used = self.memory.entries();
        if used >= g.entries {
            let text = format!("its directory is full: {} named objects; remove some, or make it larger", g.entries);
            return Err(self.error(Status::NoSpace, text));
        }
        let entry = size_of::<Entry>() as u64;
        if self.memory.entries_reserved() <= used {
            let (from, to) = (used * entry / PAGE, ((used + 1) * entry).div_ceil(PAGE));
            let shared = u64::from(used > 0 && used * entry % PAGE != 0);
            self.charge_and_reserve(guard, (to - from - shared) * PAGE, g.entries_at + used * entry, entry)?;
            header.entries_reserved.store((to * PAGE / entry) as u32, Ordering::Relaxed);
        }
        // The list of free entries is empty, so an entry that was never used is taken. `make_entry` will store the
        // entry's `next_by_name` as the new head of the list of free entries. So this field is set to 0 here, which
        // means that the list stays empty.
        if let Some(fresh) = self.memory.entry(used) {
            fresh.next_by_name.store(0, Ordering::Relaxed);
        }
        header.entries.store(used as u32 + 1, Ordering::Release);
        Ok(used)
    }

    /// Checks that an object of this type, with `contents` bytes of elements, could be made if the region were empty. A
    /// caller that replaces an object by a new one of the same name calls this before it removes the old object.
    /// Otherwise a wrong argument would be noticed only when the old object is gone.
    ///
    /// # Errors
    /// `INVALID` if the name or the type is not allowed, `NO_SPACE` if the object is larger than the region.
    pub fn check_new(&self, name: &str, ty: &TypeRef, contents: u64) -> Result<()> {
        self.check_name(name)?;
        ty.check().map_err(|e| self.error(Status::Invalid, format!("object '{name}': {e}")))?;
        self.want_object(ty)?;
        if contents > 0 { self.want(contents, 1).map(drop) } else { Ok(()) }
    }

    fn want_object(&self, ty: &TypeRef) -> Result<BlockRequest> {
        let align = if ty.size >= 64 { ty.align.max(64) } else { ty.align.max(16) };
        self.want(ty.size, align.into())
    }

    /// Allocates the block of a new object, fills it with zeros, and enters it in the object's directory entry.
    pub(super) fn construct(self: &Arc<Self>, index: u64, ty: &TypeRef) -> Result<Claim> {
        let Some(entry) = self.memory.entry(index) else { return Err(self.corrupt("its directory's free list")) };
        self.with_local(|local| {
            let taken = self
                .want_object(ty)
                .and_then(|want| self.take_into(local, want, entry.offset.for_stores(), STATE_NAMED));
            fault_point!("directory.claim.taken");
            let placed = taken.as_ref().ok().and_then(|&offset| Some((offset, self.memory.data(offset, ty.size)?)));
            let Some((offset, bytes)) = placed else {
                entry.offset.store(0, Ordering::Release);
                match self.lock() {
                    Ok(guard) => drop(self.drop_entry(index, entry, local.shared(self), local.index(), &guard)),
                    // The lock could not be taken, so the entry stays for now. It is removed when this process makes an
                    // object of the same name, or leaves the region.
                    Err(_) => self.claims.lock().unwrap_or_else(PoisonError::into_inner).push((0, index as u32)),
                }
                return Err(taken.err().unwrap_or_else(|| self.corrupt("its heap gave a block outside")));
            };
            // SAFETY: `data` checked that the bytes lie in the mapping. This call has just allocated the block, so no
            // task that keeps to the rules uses it.
            unsafe { bytes.write_bytes(0, ty.size as usize) };
            fault_point!("directory.claim.zeroed");
            entry.slot.store(u32::from(local.index()) | ZEROED, Ordering::Release);
            self.claims.lock().unwrap_or_else(PoisonError::into_inner).push((offset, index as u32));
            Ok(Claim { offset, created: true })
        })
    }

    /// Commits an object that this process made by `claim`: makes the object visible to other members.
    pub fn commit(self: &Arc<Self>, offset: u64) -> Result<()> {
        self.check_use()?;
        // The lock is taken before the entry is searched, because another thread of this process may be committing or
        // abandoning the same object.
        let guard = self.lock()?;
        let (index, entry) = self.claimed(offset)?;
        fault_point!("directory.commit.begun");
        self.change_directory(&guard, || {
            self.link_offset(index, entry);
            entry.state.store(ENTRY_READY, Ordering::Release);
            fault_point!("directory.commit.ready");
        });
        self.forget_claim(offset);
        drop(guard);
        self.wake_directory();
        Ok(())
    }

    /// Commits an object that this process made by `claim`. If that fails, abandons the object.
    pub fn commit_or_abandon(self: &Arc<Self>, offset: u64) -> Result<()> {
        self.commit(offset).inspect_err(|_| {
            // The caller needs the error of the first failure, so an error of `abandon` is ignored.
            let _ = self.abandon(offset);
        })
    }

    /// Finds the directory entry of the object that this process is constructing at `offset`. An entry whose object has
    /// no block yet has the offset 0 and is never found. The answer stays right as long as the caller holds the
    /// region's lock.
    pub(super) fn claimed(&self, offset: u64) -> Result<(u64, &Entry)> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let index = claims.iter().find(|c| c.0 == offset && offset != 0).map(|c| u64::from(c.1));
        let found = index.and_then(|i| Some((i, self.memory.entry(i)?))).filter(|(_, e)| {
            e.state.load(Ordering::Acquire) == ENTRY_CONSTRUCTING
                && e.owner.load(Ordering::Acquire) == self.member.0
                && entry::is_at(e, offset)
        });
        found.ok_or_else(|| {
            self.error(Status::BadHandle, format!("no object at {offset:#x} is being constructed by this process"))
        })
    }

    /// Tells whether the entry `index` was left over: a call of this process made the entry, failed, and could not
    /// remove it. If so, this function forgets that, and the caller must remove the entry.
    pub(super) fn take_leftover(&self, index: u64) -> bool {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let at = claims.iter().position(|claim| *claim == (0, index as u32));
        at.map(|at| claims.swap_remove(at)).is_some()
    }

    /// Tells whether the entry `index` was left over, as [`Self::take_leftover`] does, but forgets nothing.
    pub(super) fn is_leftover(&self, index: u64) -> bool {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).contains(&(0, index as u32))
    }

    /// If this process is constructing an object at `offset`, notes that the object is left over: a call of this
    /// process has failed to remove it.
    pub(super) fn leave_over(&self, offset: u64) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.iter_mut().filter(|claim| claim.0 == offset).for_each(|claim| claim.0 = 0);
    }

    pub(super) fn forget_claim(&self, offset: u64) {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).retain(|c| c.0 != offset);
    }

    /// Wakes the members that wait for an object of this region.
    pub(super) fn wake_directory(&self) {
        let header = self.memory.header();
        header.directory_gate.fetch_add(1, Ordering::SeqCst);
        if header.directory_waiting.load(Ordering::SeqCst) != 0 {
            header.directory_waiting.store(0, Ordering::SeqCst);
            futex::wake_all(&header.directory_gate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ObjectMode;
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_entry_without_a_block_is_no_object_and_its_constructor_can_make_the_object_again() {
        const SIZE: u64 = 1 << 20;
        let region = Region::alone(SIZE);
        let ty = TypeRef::new("u64").unwrap();
        let made = region.with_local(|local| region.growing(|guard| region.make_entry(guard, local, "v", &ty)));
        // The entry is now like one that `construct` leaves if it gets no block and then cannot take the lock to remove
        // the entry.
        region.claims.lock().unwrap().push((0, made.unwrap() as u32));
        assert_eq!(region.commit(0).unwrap_err().status, Status::BadHandle);
        assert_eq!(region.abandon(0).unwrap_err().status, Status::BadHandle);
        let claim = region.claim("v", &ty, ObjectMode::CreateOnly, Some(Duration::ZERO)).unwrap();
        assert!(claim.created);
        region.commit(claim.offset).unwrap();
        assert_eq!(region.find("v").unwrap().offset, claim.offset);
    }
}
