//! Who is dead, as members ask it: the daemon's table for the quick answer, the kernel for the sure one.
//!
//! **The rule.** A member is dead only by a proof that holds for ever: the table's mark (the daemon had the kernel's word,
//! [`crossdock_layout::liveness`]), or the roll, where the kernel itself says that the process image is gone
//! ([`crossdock_os::roll`]). Neither an old table, nor a lost connection, nor a daemon that is gone can make a living
//! member dead, so what is healed has no owner any more. The table is asked where it must be quick; the roll is asked where
//! something is about to be healed, and in each slice of a wait, so that deaths are noticed while no daemon serves.
//! `docs/lifetimes.md` has the whole; `loom_model` runs the rule in every interleaving of a member, a daemon and a healer; the
//! simulator of `crates/node/tests/simulation` runs it with cut-off members and old tables.

#[cfg(all(test, loom))]
mod loom_model;

use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::roll::{Asker, Entry};
use crossdock_os::{Access, Mapping, OsResult};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How long a wait sleeps before it asks again who is dead: a death while no daemon serves wakes no waiter.
pub const LOOK: Duration = Duration::from_millis(50);

/// Whom to ask who is dead.
pub trait Living: Sync {
    /// The daemon's word.
    fn table(&self) -> &LivenessTable;

    /// Does the kernel prove that this member is dead? `false` says nothing.
    fn has_left(&self, member: MemberId) -> bool {
        let _ = member;
        false
    }

    /// Is it proved that this member is dead? Takes a system call or two if the table does not say so.
    fn is_dead(&self, member: MemberId) -> bool {
        self.table().says_dead(member) || self.has_left(member)
    }

    /// The number of deaths so far that the table knows; a futex word.
    fn epoch(&self) -> u32 {
        self.table().epoch()
    }
}

/// The table alone: the quick answer, and the only one where there is no roll.
impl Living for LivenessTable {
    fn table(&self) -> &LivenessTable {
        self
    }
}

/// A member's view of a node daemon's liveness table, and its own place on the roll, for as long as this lives.
#[derive(Debug)]
pub struct Liveness {
    table: Mapping,
    /// Changed when a daemon that comes back sends another descriptor of the same roll.
    roll: RwLock<Asker>,
    _entry: Entry,
    me: MemberId,
}

/// What comes with a welcome.
#[derive(Debug)]
pub struct Papers {
    /// The liveness table.
    pub table: OwnedFd,
    /// The roll, with a lock on this member's byte.
    pub entry: OwnedFd,
    /// The roll, to ask by.
    pub roll: OwnedFd,
}

impl Liveness {
    /// Enters the roll and maps the table; `None` in the answer if the memory is no table of this layout.
    pub fn enter(papers: Papers, me: MemberId) -> OsResult<Option<Self>> {
        // First of all: from here on this process counts as alive, whatever becomes of its descriptors.
        let entry = Entry::hold(papers.entry)?;
        let table = map(papers.table)?;
        let liveness = Self { table, roll: RwLock::new(Asker::new(papers.roll, me.0)), _entry: entry, me };
        Ok(liveness.table().is_valid().then_some(liveness))
    }

    /// A daemon that comes back has another table, which takes the place of the former one at the same address. The
    /// place on the roll stays. `false`: that is no table of this layout.
    pub fn replace(&self, papers: Papers) -> OsResult<bool> {
        if !self.works() {
            let mut roll = self.roll.write().unwrap_or_else(PoisonError::into_inner);
            // That descriptor shows another file; closing it is not ours to do.
            std::mem::replace(&mut *roll, Asker::new(papers.roll, self.me.0)).disown();
        }
        self.table.replace(papers.table.as_fd(), Access::Read)?;
        Ok(self.table().is_valid())
    }

    /// Can deaths be proved without the daemon? Not where the file system of its socket keeps no locks.
    pub fn works(&self) -> bool {
        self.roll.read().unwrap_or_else(PoisonError::into_inner).works()
    }
}

fn map(fd: impl AsFd) -> OsResult<Mapping> {
    Mapping::new(fd, size_of::<LivenessTable>(), Access::Read)
}

impl Living for Liveness {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping is as long as the table, page-aligned, and stays for as long as `self`; the table is made
        // of atomics, for which every bit pattern is a value, and of padding that is never read.
        unsafe { self.table.start().cast::<LivenessTable>().as_ref() }
    }

    #[cold]
    fn has_left(&self, member: MemberId) -> bool {
        self.roll.read().unwrap_or_else(PoisonError::into_inner).has_left(member.0)
    }
}

/// The word that deaths change.
pub fn epoch_word(alive: &dyn Living) -> &AtomicU32 {
    &alive.table().epoch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_os::roll::Roll;

    const ME: MemberId = MemberId::new(3, 5);
    const OTHER: MemberId = MemberId::new(4, 6);

    fn table() -> (OwnedFd, Mapping) {
        let size = size_of::<LivenessTable>() as u64;
        crossdock_os::memfd::create_for_own_writing("crossdock-test", size).unwrap()
    }

    fn words(writer: &Mapping) -> &LivenessTable {
        // SAFETY: as in `Liveness::table`; this mapping is writable.
        unsafe { writer.start().cast::<LivenessTable>().as_ref() }
    }

    #[test]
    fn memory_that_is_no_table_is_refused_and_neither_a_new_table_nor_silence_makes_anybody_dead() {
        let folder = tempfile::tempdir().unwrap();
        let roll = Roll::open(&folder.path().join("roll")).unwrap();
        let papers = |table: &OwnedFd| Papers {
            table: table.try_clone().unwrap(),
            entry: roll.enter(ME.0).unwrap(),
            roll: roll.reader().unwrap(),
        };
        let (fd, writer) = table();
        assert!(Liveness::enter(papers(&fd), ME).unwrap().is_none());
        words(&writer).format();
        let seen = Liveness::enter(papers(&fd), ME).unwrap().unwrap();
        assert!(seen.works());
        let other = Entry::hold(roll.enter(OTHER.0).unwrap()).unwrap();
        assert!(!seen.is_dead(OTHER), "the table does not know it, the kernel does");
        let (next, next_writer) = table();
        words(&next_writer).format();
        assert!(seen.replace(papers(&next)).unwrap());
        assert!(!seen.is_dead(OTHER) && !seen.is_dead(ME));
        words(&next_writer).set_dead(MemberId::new(9, 9));
        assert!(seen.is_dead(MemberId::new(9, 9)), "the new table is read");
        drop(other);
        // A child of another test may have a copy of a descriptor until it execs or ends.
        assert!((0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            seen.is_dead(OTHER)
        }));
        assert!(!seen.table().says_dead(OTHER));
    }
}
