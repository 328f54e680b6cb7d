//! A catalog in this process, for tests. Its clock can be set by hand, and the calls of each client can be made to
//! fail.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossdock_os::Deadline;

use crate::entry::check_prefix;
use crate::store::{Record, Store};
use crate::{
    Catalog, CatalogError, CatalogResult, Commit, Committed, Entry, Event, LEASE_MIN, LeaseId, Listing, Revision, Watch,
};

/// The clock by which the leases of a memory catalog end.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The clock of this machine, counted from the given moment.
    Real(Instant),
    /// A time in milliseconds that only [`Memory::advance`] changes.
    Manual(u64),
}

/// The faults that a test sets for one client of a memory catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Whether the client is cut off. If it is, every call fails, and every watch reports nothing.
    pub cut: bool,
    /// This many of the next calls fail before they do anything.
    pub fail: u32,
    /// This many of the next calls are carried out, but their answers are lost.
    pub lose: u32,
    /// True if the client's watches report nothing, as if their messages were slow.
    pub hold: bool,
}

struct State {
    store: Store,
    clock: Clock,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A client of a catalog in this process. All clients of one catalog see the same entries, and each client has its own
/// faults.
pub struct Memory {
    shared: Arc<Shared>,
    faults: Arc<Mutex<Faults>>,
}

impl Memory {
    /// Makes an empty catalog whose leases follow this machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Clock::Real(Instant::now()))
    }

    /// Makes an empty catalog whose clock only [`Self::advance`] moves.
    pub fn with_manual_clock() -> Self {
        Self::with_clock(Clock::Manual(0))
    }

    fn with_clock(clock: Clock) -> Self {
        let state = Mutex::new(State { store: Store::new(), clock });
        Self { shared: Arc::new(Shared { state, changed: Condvar::new() }), faults: Arc::default() }
    }

    /// Makes another client of the same catalog, with no faults.
    #[must_use]
    pub fn client(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), faults: Arc::default() }
    }

    /// Sets the faults of this client and its watches.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.faults) = faults;
        self.shared.changed.notify_all();
    }

    /// Moves the manual clock forward, which may end leases.
    pub fn advance(&self, time: Duration) {
        let mut state = lock(&self.shared.state);
        if let Clock::Manual(now) = &mut state.clock {
            *now += time.as_millis() as u64;
        }
        state.expire();
        self.shared.changed.notify_all();
    }

    /// Forgets all changes so far, as a real catalog does from time to time.
    pub fn compact(&self) {
        let mut state = lock(&self.shared.state);
        let revision = state.store.revision();
        state.store.compact(revision);
        self.shared.changed.notify_all();
    }

    /// Makes one call, unless one of this client's faults makes it fail.
    fn call<T>(&self, call: impl FnOnce(&mut State) -> CatalogResult<T>) -> CatalogResult<T> {
        let mut faults = lock(&self.faults);
        if faults.cut {
            return Err(CatalogError::Unreachable("this handle is cut off".into()));
        }
        if faults.fail > 0 {
            faults.fail -= 1;
            return Err(CatalogError::Unreachable("this call was made to fail".into()));
        }
        drop(faults);
        let mut state = lock(&self.shared.state);
        state.expire();
        let outcome = call(&mut state);
        self.shared.changed.notify_all();
        drop(state);
        let mut faults = lock(&self.faults);
        if faults.lose > 0 {
            faults.lose -= 1;
            return Err(CatalogError::Unknown("its answer was made to be lost".into()));
        }
        outcome
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn now(&self) -> u64 {
        match self.clock {
            Clock::Real(start) => start.elapsed().as_millis() as u64,
            Clock::Manual(now) => now,
        }
    }

    fn apply(&mut self, record: &Record) {
        let now = self.now();
        self.store.apply(record, now).expect("a record that was just planned can be applied");
    }

    fn expire(&mut self) {
        while let Some(lease) = self.store.expired(self.now()) {
            let record = self.store.plan_end(lease).expect("a lease that is due is there");
            self.apply(&record);
        }
    }
}

impl Catalog for Memory {
    fn commit(&self, commit: &Commit, _: Deadline) -> CatalogResult<Committed> {
        self.call(|state| {
            let (done, record) = state.store.plan(commit)?;
            record.iter().for_each(|record| state.apply(record));
            Ok(done)
        })
    }

    fn get(&self, key: &str, _: Deadline) -> CatalogResult<Option<Entry>> {
        self.call(|state| state.store.get(key))
    }

    fn list(&self, prefix: &str, _: Deadline) -> CatalogResult<Listing> {
        self.call(|state| state.store.list(prefix))
    }

    fn grant(&self, time: Duration, _: Deadline) -> CatalogResult<LeaseId> {
        self.call(|state| {
            let (lease, record) = state.store.plan_grant(time.max(LEASE_MIN).as_millis() as u64)?;
            state.apply(&record);
            Ok(lease)
        })
    }

    fn keep_alive(&self, lease: LeaseId, _: Deadline) -> CatalogResult<()> {
        self.call(|state| {
            let now = state.now();
            state.store.keep_alive(lease, now)
        })
    }

    fn revoke(&self, lease: LeaseId, _: Deadline) -> CatalogResult<()> {
        self.call(|state| {
            let record = state.store.plan_end(lease)?;
            state.apply(&record);
            Ok(())
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
        check_prefix(prefix)?;
        let (shared, faults) = (Arc::clone(&self.shared), Arc::clone(&self.faults));
        Ok(Box::new(MemoryWatch { shared, faults, prefix: prefix.to_owned(), next: from }))
    }
}

struct MemoryWatch {
    shared: Arc<Shared>,
    faults: Arc<Mutex<Faults>>,
    prefix: String,
    next: Revision,
}

impl Watch for MemoryWatch {
    fn next(&mut self, by: Deadline) -> CatalogResult<Vec<Event>> {
        let mut state = lock(&self.shared.state);
        loop {
            state.expire();
            let faults = *lock(&self.faults);
            if !faults.cut && !faults.hold {
                let changes = state.store.since(&self.prefix, self.next)?;
                self.next = self.next.max(state.store.revision() + 1);
                if !changes.is_empty() {
                    return Ok(changes.iter().map(|change| change.event.clone()).collect());
                }
            }
            // Wake up at least every 20 ms, because a lease can end while no other call is made.
            let left = by.left().min(Duration::from_millis(20));
            if left.is_zero() {
                return Ok(Vec::new());
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
