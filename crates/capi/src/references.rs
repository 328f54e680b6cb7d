//! A table of counted references, which C programs carry as opaque pointers.
//!
//! A reference is not an address. It consists of a kind, a generation, and an index into a table of this library. So
//! the library recognizes a stale reference, a reference of another kind and any random number without dereferencing
//! it. If a program dereferences a reference, the program faults immediately, because no address of a user process has
//! the top bits that a reference has.
//!
//! There are two ways to use a reference. `hold` counts the running call. So if another thread closes the object or
//! gives up its last reference, the value stays until the call has ended. Sessions use `hold`. `peek` relies on a
//! promise in the C header: the caller keeps its reference during the call. `peek` saves two compare-and-swaps, which
//! take 10 ns. This matters because a whole allocation in a region takes only 6 ns. Regions and ports use `peek`; their
//! values stay until the last reference is given up.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_client::{Error, PerProcess, Result, Status};

use crate::error::invalid;

/// The number of slots in the table itself. If the program needs more slots, they are in chunks. With cold caches, a
/// slot in the table is reached faster than a slot in a chunk, because the CPU touches one page of memory less.
const FIRST: usize = 8;
const CHUNK: usize = 256;
const CHUNKS: usize = 256;
const TOP: u64 = 0x0cd0 << 48;
const INDEX: u64 = 0xffff;
/// Masks for a slot's state. From the top: the generation (32 bits), the flags CLOSED and EMPTY, the number of the
/// program's references (14 bits), and the number of running calls (16 bits).
const CLOSED: u64 = 1 << 31;
const EMPTY: u64 = 1 << 30;
const REFERENCE: u64 = 1 << 16;
const REFERENCES: u64 = 0x3fff * REFERENCE;
const CALLS: u64 = 0xffff;

/// One slot of the table.
struct Slot<T> {
    /// Every thread that uses the slot writes this word. When the slot is closed or has no references, no new call gets
    /// the value, and the last running call removes the value. Acquire and release ordering makes two things visible to
    /// other threads: the value that was written before the first reference was given out, and the uses of the value
    /// before the last call ended.
    state: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

impl<T> Slot<T> {
    const fn empty() -> Self {
        Self { state: AtomicU64::new(1 << 32), value: UnsafeCell::new(None) }
    }
}

/// The table of all references of one kind.
#[repr(C)]
pub(crate) struct Table<T> {
    kind: u64,
    first: [Slot<T>; FIRST],
    noun: &'static str,
    /// The status that a call on a closed object returns.
    closed: Status,
    /// The slots behind the first `FIRST` slots, in chunks of `CHUNK` slots. A chunk is null until it is needed, and is
    /// never freed.
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    /// The number of slots that were ever used.
    given: AtomicUsize,
    /// The indices of slots that are free again. A forked child has a list of its own. The lock of the parent's list
    /// may be held by a thread that does not exist in the child.
    free: PerProcess<Mutex<Vec<usize>>>,
}

// SAFETY: only calls that hold the slot read its value. The value is written only while the slot has neither references
// nor calls, by the one thread that brought the slot into this state. With T: Send + Sync any thread may use shared
// references to the value.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// Keeps the value of a slot while one call runs.
pub(crate) struct ReferenceGuard<'a, T> {
    table: &'a Table<T>,
    index: usize,
    slot: &'a Slot<T>,
}

impl<T: Send + Sync> Table<T> {
    pub(crate) const fn new(kind: u64, noun: &'static str, closed: Status) -> Self {
        let first = [const { Slot::empty() }; FIRST];
        Self {
            kind,
            first,
            noun,
            closed,
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            given: AtomicUsize::new(0),
            free: PerProcess::new(),
        }
    }

    /// Stores a value and gives the first reference to it.
    pub(crate) fn insert(&self, value: T) -> Result<u64> {
        let index = self.take_place()?;
        let slot = self.first.get(index).unwrap_or_else(|| self.chunk(index));
        // SAFETY: the slot is free, so it has no references and no calls. No other thread can reach its value.
        unsafe { *slot.value.get() = Some(value) };
        let generation = slot.state.fetch_add(REFERENCE, Ordering::Release) >> 32;
        Ok(TOP | self.kind << 48 | generation << 16 | index as u64)
    }

    /// Gives the value of a reference. The value stays at least until the result is dropped.
    pub(crate) fn hold(&self, reference: u64) -> Result<ReferenceGuard<'_, T>> {
        self.enter(reference, CLOSED)
    }

    /// Gives the value of a reference without counting the call.
    ///
    /// # Safety
    /// The caller must not give its reference up while the result is in use, and `close` must never be called on this
    /// table.
    #[inline(always)]
    pub(crate) unsafe fn peek(&self, reference: u64) -> Result<&T> {
        let (_, generation, slot) = self.locate(reference)?;
        let state = slot.state.load(Ordering::Acquire);
        if state >> 32 != generation || state & REFERENCES == 0 {
            return Err(self.gone());
        }
        // SAFETY: the slot has references, so it has a value. The value is taken out only when the slot has no
        // references.
        match unsafe { &*slot.value.get() } {
            Some(value) => Ok(value),
            None => Err(self.gone()),
        }
    }

    /// Counts one more reference to the value. The caller has to give this reference up later.
    pub(crate) fn add(&self, reference: u64) -> Result<()> {
        self.change(reference, 0, |state| {
            if state & REFERENCES == REFERENCES {
                Err("referred to 16383 times already")
            } else {
                Ok(state + REFERENCE)
            }
        })
        .map(drop)
    }

    /// Gives up one reference. After the last one, the value is dropped as soon as no call uses it. The reference 0
    /// refers to nothing, and giving it up does nothing, just as `free` accepts NULL.
    pub(crate) fn remove(&self, reference: u64) -> Result<()> {
        if reference == 0 {
            return Ok(());
        }
        let _held = self.enter(reference, 0)?;
        self.change(reference, 0, |state| Ok(state - REFERENCE)).map(drop)
    }

    /// Closes an object. Its value is dropped as soon as no call uses it. Afterwards its references can only be given
    /// up.
    pub(crate) fn close(&self, reference: u64) -> Result<()> {
        let _held = self.enter(reference, CLOSED)?;
        self.change(reference, CLOSED, |state| Ok(state | CLOSED)).map(drop)
    }

    fn enter(&self, reference: u64, refused: u64) -> Result<ReferenceGuard<'_, T>> {
        let (index, slot) = self.change(reference, refused, |state| {
            if state & CALLS == CALLS { Err("in use by 65535 calls at once") } else { Ok(state + 1) }
        })?;
        Ok(ReferenceGuard { table: self, index, slot })
    }

    /// Changes the state of a slot. Fails if the slot has no references or another generation than the reference.
    fn change(
        &self,
        reference: u64,
        refused: u64,
        change: impl Fn(u64) -> std::result::Result<u64, &'static str>,
    ) -> Result<(usize, &Slot<T>)> {
        let (index, generation, slot) = self.locate(reference)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            if state >> 32 != generation || state & REFERENCES == 0 {
                return Err(self.gone());
            }
            if state & refused != 0 {
                return Err(Error::new(self.closed, format!("this {} was closed by this program", self.noun)));
            }
            let next = change(state).map_err(|why| invalid(format!("the {} is {why}", self.noun)))?;
            match slot.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok((index, slot)),
                Err(now) => state = now,
            }
        }
    }

    #[inline(always)]
    fn locate(&self, reference: u64) -> Result<(usize, u64, &Slot<T>)> {
        if reference & !(0xffff_ffff << 16 | INDEX) != TOP | self.kind << 48 {
            return Err(self.none(reference));
        }
        let index = (reference & INDEX) as usize;
        let slot = match self.first.get(index) {
            Some(slot) => slot,
            None => self.further(index)?,
        };
        Ok((index, reference >> 16 & 0xffff_ffff, slot))
    }

    #[inline(never)]
    fn further(&self, index: usize) -> Result<&Slot<T>> {
        let chunk = self.chunks[index / CHUNK].load(Ordering::Acquire);
        if chunk.is_null() {
            return Err(self.gone());
        }
        // SAFETY: every chunk in `chunks` has `CHUNK` slots and is never freed.
        Ok(unsafe { &*chunk.add(index % CHUNK) })
    }

    #[cold]
    fn none(&self, reference: u64) -> Error {
        if reference == 0 {
            return invalid(format!("the {} is NULL", self.noun));
        }
        invalid(format!("{reference:#x} is no reference to a {} of this library", self.noun))
    }

    #[cold]
    fn gone(&self) -> Error {
        invalid(format!("the reference to a {0} is given up already (or was never given out)", self.noun))
    }
}

impl<T> Table<T> {
    /// Finds a free slot: one that was used before, or the next unused one.
    fn take_place(&self) -> Result<usize> {
        if let Some(index) = self.free_places().pop() {
            return Ok(index);
        }
        let mut given = self.given.load(Ordering::Relaxed);
        while given < CHUNK * CHUNKS {
            match self.given.compare_exchange_weak(given, given + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(index) => return Ok(index),
                Err(present) => given = present,
            }
        }
        let text = format!("this process holds {} {}s at once; give some up (unref)", CHUNK * CHUNKS, self.noun);
        Err(Error::new(Status::NoSpace, text))
    }

    /// The list of free slots. A forked child copies its parent's list. If a thread of the parent was changing the list
    /// during the fork, the child begins with an empty list instead.
    fn free_places(&self) -> MutexGuard<'_, Vec<usize>> {
        let inherit =
            |parents: Option<&Mutex<Vec<usize>>>| parents.and_then(|list| Some(list.try_lock().ok()?.clone()));
        let own = self.free.get_or_inherit(|parents| Some(Mutex::new(inherit(parents).unwrap_or_default())));
        own.expect("the closure always makes one").lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the slot with this index. The slot lies in a chunk, because the table itself has only the first slots. The
    /// chunk is made if necessary.
    fn chunk(&self, index: usize) -> &Slot<T> {
        let chunk = &self.chunks[index / CHUNK];
        if chunk.load(Ordering::Acquire).is_null() {
            let made: Box<[Slot<T>]> = (0..CHUNK).map(|_| Slot::empty()).collect();
            let made = Box::into_raw(made);
            let first = made.cast::<Slot<T>>();
            if chunk.compare_exchange(ptr::null_mut(), first, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread has stored its chunk in the table first, so no thread has seen the chunk that
                // this call made.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        // SAFETY: the pointer is not null now, the chunk has `CHUNK` slots, and no code frees it.
        unsafe { &*chunk.load(Ordering::Acquire).add(index % CHUNK) }
    }
}

impl<T> std::ops::Deref for ReferenceGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this call is counted, so the slot has a value, and no thread writes the value.
        match unsafe { &*self.slot.value.get() } {
            Some(value) => value,
            None => unreachable!("a slot in use is never empty"),
        }
    }
}

impl<T> Drop for ReferenceGuard<'_, T> {
    fn drop(&mut self) {
        let state = &self.slot.state;
        let mut now = state.load(Ordering::Acquire);
        loop {
            let last = now & CALLS == 1 && (now & CLOSED != 0 || now & REFERENCES == 0);
            let next = if last && now & EMPTY == 0 { now | EMPTY } else { now - 1 };
            if let Err(other) = state.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire) {
                now = other;
            } else if next & EMPTY != now & EMPTY {
                // SAFETY: this call is the last running one, and no new call that uses the value can begin. Another
                // thread can still give up a reference. It does not take the value: while this call is counted as
                // running, the other thread's call is not the last one, and after that the flag EMPTY is set. So only
                // this thread uses the value.
                drop(unsafe { (*self.slot.value.get()).take() });
                now = state.load(Ordering::Acquire);
            } else {
                if next & (REFERENCES | CALLS) == 0 {
                    // No thread can reach the slot now. The generation changes before the slot is used again, so that
                    // old references stay invalid. The generation is never 0.
                    let generation = ((next >> 32).wrapping_add(1) & 0xffff_ffff).max(1);
                    state.store(generation << 32, Ordering::Release);
                    self.table.free_places().push(self.index);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reference_works_until_the_last_is_given_up_and_never_again() {
        static TABLE: Table<Arc<u32>> = Table::new(1, "thing", Status::Closed);
        let value = Arc::new(7);
        let a = TABLE.insert(value.clone()).unwrap();
        TABLE.add(a).unwrap();
        TABLE.remove(a).unwrap();
        assert_eq!(**TABLE.hold(a).unwrap(), 7);
        TABLE.remove(a).unwrap();
        assert_eq!(Arc::strong_count(&value), 1, "the value is dropped with its last reference");
        assert!(TABLE.hold(a).is_err() && TABLE.remove(a).is_err() && TABLE.add(a).is_err());
        let b = TABLE.insert(value.clone()).unwrap();
        assert!(a != b && TABLE.hold(a).is_err(), "a place that is used again has another reference");
        assert_eq!(**TABLE.hold(b).unwrap(), 7);
    }

    #[test]
    fn null_wild_and_foreign_references_are_refused() {
        static ONE: Table<u32> = Table::new(2, "thing", Status::Closed);
        static OTHER: Table<u32> = Table::new(3, "other", Status::Closed);
        let one = ONE.insert(1).unwrap();
        assert!(OTHER.hold(one).is_err());
        let mut wild = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100_000 {
            wild = wild.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            assert!(wild == one || ONE.hold(wild).is_err());
            assert!(
                ONE.hold(TOP | 2 << 48 | wild & 0xffff_ffff_ffff).is_err()
                    || wild & 0xffff_ffff_ffff == one & 0xffff_ffff_ffff
            );
        }
        assert!(ONE.hold(0).is_err());
        assert_eq!(*ONE.hold(one).unwrap(), 1);
    }

    #[test]
    fn peeking_tells_good_references_from_others_too() {
        static TABLE: Table<u32> = Table::new(7, "thing", Status::Closed);
        // SAFETY: this test gives up no reference while it uses a result.
        let peek = |reference| unsafe { TABLE.peek(reference) }.copied();
        let a = TABLE.insert(7).unwrap();
        assert_eq!(peek(a).unwrap(), 7);
        TABLE.remove(a).unwrap();
        let b = TABLE.insert(8).unwrap();
        assert_eq!(peek(b).unwrap(), 8);
        for wrong in [a, 0, b + 1, b ^ 1 << 60, b + (1 << 16)] {
            assert_eq!(peek(wrong).unwrap_err().status, Status::Invalid);
        }
    }

    #[test]
    fn references_beyond_the_first_few_work_alike() {
        static TABLE: Table<usize> = Table::new(8, "thing", Status::Closed);
        let all: Vec<_> = (0..2 * CHUNK).map(|n| TABLE.insert(n).unwrap()).collect();
        for (n, reference) in all.iter().enumerate() {
            assert_eq!(*TABLE.hold(*reference).unwrap(), n);
        }
        assert!(TABLE.hold(all[0] + 3 * CHUNK as u64).is_err(), "a place that was never given out");
    }

    #[test]
    fn a_running_call_keeps_what_another_thread_gives_up() {
        static TABLE: Table<Arc<u32>> = Table::new(4, "thing", Status::Closed);
        let value = Arc::new(7);
        let a = TABLE.insert(value.clone()).unwrap();
        let held = TABLE.hold(a).unwrap();
        TABLE.remove(a).unwrap();
        assert_eq!((**held, Arc::strong_count(&value)), (7, 2));
        drop(held);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_closed_one_is_gone_at_once_and_its_references_can_still_be_given_up() {
        static TABLE: Table<Arc<u32>> = Table::new(6, "thing", Status::Closed);
        let value = Arc::new(7);
        let a = TABLE.insert(value.clone()).unwrap();
        TABLE.add(a).unwrap();
        TABLE.close(a).unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(TABLE.hold(a).err().unwrap().status, Status::Closed);
        assert_eq!(TABLE.close(a).err().unwrap().status, Status::Closed);
        TABLE.remove(a).unwrap();
        TABLE.remove(a).unwrap();
        assert_eq!(TABLE.remove(a).err().unwrap().status, Status::Invalid);
        let b = TABLE.insert(value.clone()).unwrap();
        let held = TABLE.hold(b).unwrap();
        TABLE.close(b).unwrap();
        assert_eq!(Arc::strong_count(&value), 2, "a call that runs keeps it");
        TABLE.remove(b).unwrap();
        drop(held);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn threads_that_take_and_give_up_meet_no_value_of_another_generation() {
        static TABLE: Table<u64> = Table::new(5, "thing", Status::Closed);
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                scope.spawn(move || {
                    for n in 0..2000 {
                        let mine = t << 32 | n;
                        let a = TABLE.insert(mine).unwrap();
                        assert_eq!(*TABLE.hold(a).unwrap(), mine);
                        TABLE.remove(a).unwrap();
                        assert!(TABLE.hold(a).is_err());
                    }
                });
            }
        });
    }
}
