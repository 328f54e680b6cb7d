//! How each thread of a process gets a heap slot of a region.
//!
//! A thread claims a slot with its first call and keeps it until the thread ends, so the fast paths need no lock and no
//! atomic exchange. If the region has no slot left, the threads of a process share one slot behind a mutex.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::local::LocalSlot;
use super::thread_cache;
use crate::Result;
use crate::region::Region;

/// The heap slots that this process holds in one region.
#[derive(Default)]
pub(crate) struct LocalSlots {
    state: Mutex<State>,
    /// The slot that several threads share when the region has no vacant slot left for them. This process claims the
    /// shared slot in advance, while the region still has vacant slots.
    shared: Mutex<Option<Box<LocalSlot>>>,
    /// The numbers of all slots that this process holds.
    numbers: Mutex<Vec<u16>>,
}

impl LocalSlots {
    /// Adds a slot to the list of slots that this process holds.
    pub(super) fn note(&self, number: u16) {
        lock(&self.numbers).push(number);
    }
}

#[derive(Default)]
struct State {
    /// The slots of all threads of this process, including threads that have ended.
    all: Vec<NonNull<LocalSlot>>,
    /// The slots whose thread has ended.
    idle: Vec<NonNull<LocalSlot>>,
}

// SAFETY: the pointers own boxed LocalSlots, which are Send. One thread at a time uses each slot: first the thread
// that claimed it, and after that thread's end the thread that takes it from `idle` under the mutex.
unsafe impl Send for State {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics while it holds one of these mutexes leaves the data valid, so poison is ignored.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of regions for which a thread finds its slot without the slower search.
const WAYS: usize = 4;

thread_local! {
    /// The regions that this thread used last, each with its serial number and this thread's slot in it. An entry is
    /// valid as long as `SLOTS` has the same slot.
    static RECENT: [Cell<(u64, *mut LocalSlot)>; WAYS] = const { [const { Cell::new((0, std::ptr::null_mut())) }; WAYS] };
    static SLOTS: RefCell<ThreadSlots> = const { RefCell::new(ThreadSlots(Vec::new())) };
}

/// The slots of a thread in all regions. When the thread ends, each slot goes to the list `idle` of its region.
struct ThreadSlots(Vec<(u64, Weak<Region>, NonNull<LocalSlot>)>);

/// Runs in a forked child: the child forgets the heap slots of its parent, which go on belonging to the parent. The C
/// library calls this hook. The hook does not run in a child that a program makes by a direct system call; for
/// crossdock such a child and its parent look like one process.
extern "C" fn forget_in_child() {
    let _ = RECENT.try_with(|last| last.iter().for_each(|way| way.set((0, std::ptr::null_mut()))));
    thread_cache::forget();
}

impl Drop for ThreadSlots {
    fn drop(&mut self) {
        RECENT.with(|last| last.iter().for_each(|way| way.set((0, std::ptr::null_mut()))));
        thread_cache::forget();
        for (_, region, slot) in self.0.drain(..) {
            // `lock` locks a mutex. In a forked child this mutex may be locked for ever, because another thread of the
            // parent held it during the fork. So only the process that opened the region calls `lock`.
            if let Some(region) = region.upgrade().filter(|region| region.is_own()) {
                lock(&region.locals.state).idle.push(slot);
            }
        }
    }
}

impl Region {
    /// Gives this thread's slot in this region, if the thread used the region recently. A forked child has none (see
    /// `forget_in_child`). Only a member with write access gets a slot.
    ///
    /// Only the fast paths and `with_local` call this, and never while an earlier result is still in use. So there is
    /// never a second reference to the slot.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the reference is of this thread's own slot, not of the region")]
    pub(super) fn cached_local(&self) -> Option<&mut LocalSlot> {
        let (serial, slot) = RECENT.with(|last| last[self.serial as usize % WAYS].get());
        // SAFETY: no serial number is used twice, so this is a slot of this region, which keeps the slot in a box as
        // long as the region lives. The slot belongs to this thread alone, and no other reference to it exists (see
        // this function's comment).
        (serial == self.serial).then(|| unsafe { &mut *slot })
    }

    /// Runs `f` with this thread's slot. If the thread has none, it claims one. `f` must not call `with_local`.
    pub(crate) fn with_local<R>(self: &Arc<Self>, f: impl FnOnce(&mut LocalSlot) -> Result<R>) -> Result<R> {
        if let Some(local) = self.cached_local() {
            return f(local);
        }
        self.check_use()?;
        // A `Once` is not used here, because a child that is forked while another thread is in the `Once` would wait
        // for ever.
        static HOOKED: AtomicBool = AtomicBool::new(false);
        if !HOOKED.swap(true, Ordering::Relaxed) {
            crossdock_os::fork::in_child(forget_in_child);
        }
        match self.own_slot()? {
            // SAFETY: the slot lives as long as the region, belongs to this thread alone, and no other reference to
            // it exists.
            Some(mut slot) => f(unsafe { slot.as_mut() }),
            None => {
                let mut shared = lock(&self.locals.shared);
                let slot = match shared.as_mut() {
                    Some(slot) => slot,
                    None => shared.insert(Box::new(self.claim_slot()?)),
                };
                f(slot)
            }
        }
    }

    /// Gives this thread's slot, and claims one if the thread has none; `None` if the region has no slot left.
    #[inline(never)]
    fn own_slot(self: &Arc<Self>) -> Result<Option<NonNull<LocalSlot>>> {
        let found = SLOTS.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            mine.0.retain(|m| m.1.strong_count() > 0);
            mine.0.iter().find(|m| m.0 == self.serial).map(|m| m.2)
        });
        let Ok(found) = found else { return Ok(None) }; // this thread is ending
        let slot = match found {
            Some(slot) => slot,
            None => {
                let Some(slot) = self.get_slot()? else { return Ok(None) };
                SLOTS.with(|mine| mine.borrow_mut().0.push((self.serial, Arc::downgrade(self), slot)));
                slot
            }
        };
        RECENT.with(|last| last[self.serial as usize % WAYS].set((self.serial, slot.as_ptr())));
        Ok(Some(slot))
    }

    #[inline(never)]
    fn get_slot(&self) -> Result<Option<NonNull<LocalSlot>>> {
        let mut state = lock(&self.locals.state);
        if let Some(slot) = state.idle.pop() {
            return Ok(Some(slot));
        }
        if state.all.len() == 1 {
            // This process has several threads. So it claims a further slot now, while the region still has vacant
            // slots. Its threads share this slot when no vacant slot is left.
            let mut shared = lock(&self.locals.shared);
            if shared.is_none() {
                *shared = Some(Box::new(self.claim_slot()?));
            }
        }
        match self.claim_slot() {
            Ok(slot) => {
                let slot = NonNull::from(Box::leak(Box::new(slot)));
                state.all.push(slot);
                Ok(Some(slot))
            }
            Err(error) if error.status == crossdock_layout::Status::Busy && !state.all.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The numbers of the slots that this process holds.
    pub(super) fn held_slots(&self) -> Vec<u16> {
        lock(&self.locals.numbers).clone()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        thread_cache::region_goes();
        // A forked child has copies of its parent's lists of slots, but may not use them. It cannot rely on the
        // mutexes of these lists either.
        if !self.is_own() {
            return;
        }
        let state = std::mem::take(&mut *lock(&self.locals.state));
        // SAFETY: each pointer comes from a box that was leaked when the slot was claimed, and it is taken out of the
        // only list of such pointers. No thread can use the slot any more, because that needs a reference to the
        // region.
        let slots = state.all.into_iter().map(|slot| unsafe { Box::from_raw(slot.as_ptr()) });
        let mut slots: Vec<_> = slots.chain(lock(&self.locals.shared).take()).collect();
        slots.sort_unstable_by_key(|slot| slot.index);
        // If an object under construction cannot be removed now, this process keeps its slots, because healing will
        // record the removal of the object in one of them.
        if slots.first().is_some_and(|slot| self.abandon_all(slot.index)) {
            self.leave_slots(&slots);
        }
    }
}
