//! The region's lock. A word of the lock names the member that holds the lock. So if that member dies, another member
//! notices this, takes the lock over and heals the region.
//!
//! The lock guards data that change rarely: slices, growth, the holders of slots, the directory. Small blocks are
//! allocated and freed without the lock. If the lock's holder is stopped but alive, other members wait for it only for
//! a limited time. After a process has waited for that time, its later calls fail immediately, until the holder runs
//! again.

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crossdock_layout::{MemberId, Status};
use crossdock_os::{Deadline, futex};

use super::HealReport;
use crate::region::{PATIENCE, Region};
use crate::{Error, Result, fault_point};

/// How many times a member looks at the lock again before it sleeps. The lock is usually held for well under a
/// microsecond.
const SPINS: u32 = 200;

/// Holds the region's lock until this value is dropped.
pub(crate) struct LockGuard<'a> {
    region: &'a Region,
    /// What was healed when the lock was taken.
    pub(super) healed: HealReport,
    /// The reason why a change under this lock cannot go on before the lock is released (see `Region::growing`); `None`
    /// if the change can go on.
    pub(super) pause: Cell<Option<Pause>>,
    /// A number of bytes that the daemon has refused because of the quota, and the daemon's error.
    pub(super) refused: Option<(u64, Error)>,
}

/// The member that held the lock when this process waited for the lock in vain.
pub(crate) struct StuckHolder {
    /// The words `holder` and `gate` of the lock when this process waited in vain.
    held: (u64, u32),
    /// The error, which names the member. It is kept so that later calls need not ask the daemon for the name again.
    error: Error,
}

/// The reason why a member must release the lock before it can go on with a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    /// The daemon has to be asked whether the quota allows this number of bytes for the region.
    Quota(u64),
    /// The region has grown, but not yet by all that the change needs. Before it grew, the region had memory for this
    /// number of slices.
    Growing(u64),
}

impl Region {
    /// Takes the lock. If the lock's holder is dead, takes the lock over and heals what that member left half done.
    pub(crate) fn lock(&self) -> Result<LockGuard<'_>> {
        let (mut guard, took_over) = self.take_lock()?;
        fault_point!("lock.taken");
        let header = self.memory.header();
        let dirty = header.pool_dirty.load(Ordering::Relaxed) != 0;
        if took_over || dirty || header.directory_version.load(Ordering::Relaxed) & 1 != 0 {
            self.rebuild(&guard);
        }
        // The count of deaths is read before the healing and stored after it. Other threads of this process rely on the
        // stored count: it says that the region is healed after all deaths that the count includes.
        let deaths = self.deaths();
        if self.deaths_seen.load(Ordering::Relaxed) != deaths || took_over {
            guard.healed = self.heal_locked(&guard);
            self.deaths_seen.store(deaths, Ordering::Release);
        }
        Ok(guard)
    }

    fn take_lock(&self) -> Result<(LockGuard<'_>, bool)> {
        let lock = &self.memory.header().lock;
        let me = self.member.0;
        if lock.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok((LockGuard::new(self), false));
        }
        let mut deadline = Deadline::after(PATIENCE);
        let mut held = (0, 0);
        let mut tries = 0u32;
        loop {
            let gate = lock.gate.load(Ordering::Acquire);
            let holder = match lock.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Ok((LockGuard::new(self), false)),
                Err(holder) => holder,
            };
            // Several living members may take the lock one after the other, so the time limit starts again when the
            // holder changes. If a member releases the lock and takes it again, `gate` has changed.
            if held != (holder, gate) {
                held = (holder, gate);
                deadline = Deadline::after(PATIENCE);
            }
            tries += 1;
            if tries < SPINS {
                std::hint::spin_loop();
                continue;
            }
            if self.host.liveness().is_dead(MemberId(holder)) {
                if lock.holder.compare_exchange(holder, me, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    return Ok((LockGuard::new(self), true));
                }
                continue;
            }
            lock.waiting.store(1, Ordering::SeqCst);
            if let Some(error) = self.stuck_error(held) {
                return Err(error);
            }
            if deadline.passed() {
                let who = self.host.describe(MemberId(holder));
                let text = format!("its lock has been held for {PATIENCE:?} by {who}, which is stopped or stuck");
                let error = self.error(Status::Busy, text);
                let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
                *stuck = Some(StuckHolder { held, error: error.clone() });
                return Err(error);
            }
            if lock.holder.load(Ordering::SeqCst) != 0 {
                futex::wait(&lock.gate, gate, deadline.at_most(futex::SLICE));
            }
        }
    }

    /// Returns the error of an earlier call that waited in vain, if the same member still holds the lock and has not
    /// released it since then. The word `gate` shows whether the lock was released: each waiting call sets `waiting`
    /// before it fails, and a holder that releases the lock changes `gate` if `waiting` is set. If the same member
    /// releases the lock and takes it again, later calls wait for the full time again.
    fn stuck_error(&self, held: (u64, u32)) -> Option<Error> {
        let stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        stuck.as_ref().filter(|stuck| stuck.held == held).map(|stuck| stuck.error.clone())
    }
}

impl<'a> LockGuard<'a> {
    fn new(region: &'a Region) -> Self {
        Self { region, healed: HealReport::default(), pause: Cell::new(None), refused: None }
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        fault_point!("lock.leaving");
        let lock = &self.region.memory.header().lock;
        // No member takes the lock from a living holder. So the word still names this member, unless another process
        // overwrote it.
        let _ = lock.holder.compare_exchange(self.region.member.0, 0, Ordering::SeqCst, Ordering::Relaxed);
        if lock.waiting.load(Ordering::SeqCst) != 0 {
            lock.waiting.store(0, Ordering::SeqCst);
            lock.gate.fetch_add(1, Ordering::Release);
            futex::wake_all(&lock.gate);
        }
    }
}
