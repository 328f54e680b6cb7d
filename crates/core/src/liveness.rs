//! How members find out who is dead. The daemon's table gives the quick answer, and the kernel gives the certain one.
//!
//! **The rule.** A member is dead only by a proof that holds for ever. There are two: the mark in the table, which the
//! daemon sets on the kernel's word ([`crossdock_layout::liveness`]), and the roll, by which the kernel itself says
//! that the process image is gone ([`crossdock_os::roll`]). An old table, a lost connection or a daemon that is gone
//! cannot make a living member dead. So memory that is healed has no owner any more. Fast paths ask the table. The roll
//! is asked before something is healed, and in each slice of a wait, so that members notice deaths while no daemon
//! serves. `docs/lifetimes.md` describes the whole rule. `loom_model` runs it in every interleaving of a member, a
//! daemon and a healer. The simulator of `crates/node/tests/simulation` runs it with cut-off members and old tables.

#[cfg(all(test, loom))]
mod loom_model;

use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::roll::{Asker, Entry};
use crossdock_os::{Access, Mapping, OsResult};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How long a waiting member sleeps before it asks again who is dead. A death while no daemon serves wakes no member.
pub const LOOK: Duration = Duration::from_millis(50);

/// The source that says who is dead.
pub trait Living: Sync {
    /// The daemon's word.
    fn table(&self) -> &LivenessTable;

    /// Does the kernel prove that this member is dead? `false` proves nothing.
    fn has_left(&self, member: MemberId) -> bool {
        let _ = member;
        false
    }

    /// Is this member proved dead? If the table does not say so, this takes one or two system calls.
    fn is_dead(&self, member: MemberId) -> bool {
        self.table().says_dead(member) || self.has_left(member)
    }

    /// How many deaths the table knows. The word is a futex.
    fn epoch(&self) -> u32 {
        self.table().epoch()
    }
}

/// The table alone. It gives the quick answer, and the only one where there is no roll.
impl Living for LivenessTable {
    fn table(&self) -> &LivenessTable {
        self
    }
}

/// A member's view of a node daemon's liveness table, together with the member's own entry on the roll. The entry lasts
/// as long as this value.
#[derive(Debug)]
pub struct Liveness {
    table: Mapping,
    /// Replaced when a restarted daemon sends another descriptor of the same roll.
    roll: RwLock<Asker>,
    /// None after [`Liveness::resign`].
    entry: Mutex<Option<Entry>>,
    me: MemberId,
}

/// The descriptors that a daemon sends with its welcome.
#[derive(Debug)]
pub struct Papers {
    /// The liveness table.
    pub table: OwnedFd,
    /// The roll, by the descriptor through which this member's byte is locked.
    pub entry: OwnedFd,
    /// The roll, by a descriptor through which locks are tested.
    pub roll: OwnedFd,
}

impl Liveness {
    /// Enters the roll and maps the table. The answer holds `None` if the memory is no table of this layout.
    pub fn enter(papers: Papers, me: MemberId) -> OsResult<Option<Self>> {
        // This comes first: from here on the process counts as alive, whatever happens to its descriptors.
        let entry = Entry::hold(papers.entry)?;
        let table = map(papers.table)?;
        let liveness =
            Self { table, roll: RwLock::new(Asker::new(papers.roll, me.0)), entry: Mutex::new(Some(entry)), me };
        Ok(liveness.table().is_valid().then_some(liveness))
    }

    /// A restarted daemon has another table. It is mapped at the address of the former one; the entry on the roll
    /// stays. `false` if the memory is no table of this layout.
    pub fn replace(&self, papers: Papers) -> OsResult<bool> {
        if !self.works() {
            let mut roll = self.roll.write().unwrap_or_else(PoisonError::into_inner);
            // That descriptor number shows another file now, and this process's program may be using it. So it is not
            // closed.
            std::mem::replace(&mut *roll, Asker::new(papers.roll, self.me.0)).disown();
        }
        self.table.replace(papers.table.as_fd(), Access::Read)?;
        Ok(self.table().is_valid())
    }

    /// Leaves the roll: from now on this member is dead for all others. The caller must have ended all of its work on shared
    /// memory.
    pub fn resign(&self) {
        *self.entry.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Can deaths be proved without the daemon? They cannot if the file system of the daemon's socket does not support
    /// locks.
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

/// The futex word that each death changes.
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
        // A child that another test forked may hold a copy of a descriptor until it calls exec or ends.
        assert!((0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            seen.is_dead(OTHER)
        }));
        assert!(!seen.table().says_dead(OTHER));
    }
}
