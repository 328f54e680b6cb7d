//! How members find out which members are dead. The daemon's liveness table gives a quick answer, and the kernel gives
//! a certain one.
//!
//! **The rule.** A member counts as dead only by a proof that holds for ever. There are two proofs. One is the mark in
//! the liveness table, which the daemon sets after the kernel told it of the death ([`crossdock_layout::liveness`]).
//! The other is the roll, a file on which each living member holds a lock. The kernel releases this lock when the
//! process ends, so a free lock proves the death ([`crossdock_os::roll`]). An old table, a lost connection or a daemon
//! that is gone never makes a living member count as dead. So when a member heals shared memory, the memory's former
//! owner is certainly gone.
//!
//! Fast paths read the table. Members test the roll before they heal something, and regularly during a wait, so that
//! members notice deaths while no daemon runs. A region is healed after each death that the table or the roll has
//! proved to this process, and after each death that this process has learned of from a port or an item.
//! `docs/lifetimes.md` describes the whole rule. `loom_model` runs it in every interleaving of a member, a daemon and a
//! healing member. The simulator of `crates/node/tests/simulation` runs it with members that are cut off from the
//! daemon and use an old table.

#[cfg(all(test, loom))]
mod loom_model;

use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::roll::{RollLock, RollReader};
use crossdock_os::{Access, Mapping, OsResult};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How long a waiting member sleeps before it asks again which members are dead. This is needed because a death wakes
/// no sleeping member while no daemon runs.
pub const LOOK: Duration = Duration::from_millis(50);

/// The source of information about dead members.
pub trait LivenessSource: Sync {
    /// The liveness table: shared memory in which the daemon marks dead members.
    fn table(&self) -> &LivenessTable;

    /// Asks the kernel whether this member is dead. The answer `true` is a proof; the answer `false` does not prove
    /// that the member is alive.
    fn has_left(&self, member: MemberId) -> bool {
        let _ = member;
        false
    }

    /// Tells whether it is proved that this member is dead. If the table does not say so, the call makes one or two
    /// system calls.
    fn is_dead(&self, member: MemberId) -> bool {
        self.table().says_dead(member) || self.has_left(member)
    }

    /// The number of deaths that the table has recorded. The word of the table that contains this number is a futex.
    fn epoch(&self) -> u32 {
        self.table().epoch()
    }
}

/// The table alone as a source. It gives only the quick answer, because without a roll the kernel cannot be asked.
impl LivenessSource for LivenessTable {
    fn table(&self) -> &LivenessTable {
        self
    }
}

/// The number of deaths that were proved to this process, or that it has learned of from a port or an item. Regions add
/// this number to the table's count of deaths, and are healed when the sum changes. The table's count is not enough: a
/// port may show a death that the table has not counted yet. The program may then use data that the dead member left
/// half changed in a region, so the region must be healed first.
static PROVED: AtomicU32 = AtomicU32::new(0);

/// Gives the number of deaths that were proved to this process, or that it has learned of from a port or an item. A
/// death may be counted twice. The number starts again from 0 after 2³² deaths.
#[inline]
pub(crate) fn proved() -> u32 {
    PROVED.load(Ordering::Acquire)
}

/// Counts a death that another process has proved, and of which this process has learned from a port or an item. The
/// code that heals a region after that asks the roll itself which members are dead.
pub(crate) fn count_shown() {
    PROVED.fetch_add(1, Ordering::AcqRel);
}

/// The members of one daemon whose deaths were proved to this process, by the roll or by a mark in the table.
#[derive(Debug, Default)]
pub struct RollProofs {
    /// The members whose deaths were proved last. The list forgets older ones. If the death of a forgotten member is
    /// proved again, it is counted again, and regions are healed once more although nothing is left to heal.
    latest: Mutex<VecDeque<MemberId>>,
}

impl RollProofs {
    /// The largest number of members in the list `latest`.
    const REMEMBERED: usize = 64;

    /// Counts this member's death, unless `latest` shows that the death was counted already. A [`LivenessSource`] calls
    /// this function before it answers that the member is dead. So code that acts on the answer sees the new count.
    pub fn note(&self, member: MemberId) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.contains(&member) {
            return;
        }
        if latest.len() == Self::REMEMBERED {
            latest.pop_front();
        }
        latest.push_back(member);
        PROVED.fetch_add(1, Ordering::AcqRel);
    }
}

/// A member's view of a node daemon's liveness table, together with the lock by which the member itself counts as alive
/// (its entry on the roll). The lock is held as long as this value exists.
#[derive(Debug)]
pub struct Liveness {
    table: Mapping,
    /// The descriptor by which the kernel is asked about other members. If it does not show this member's own lock any
    /// more, [`Liveness::replace`] takes the descriptor that a restarted daemon has sent instead.
    roll: RwLock<RollReader>,
    /// This member's lock on the roll; `None` after [`Liveness::resign`].
    entry: Mutex<Option<RollLock>>,
    me: MemberId,
    proofs: RollProofs,
}

/// The descriptors that a daemon sends to a new member in its welcome message.
#[derive(Debug)]
pub struct LivenessDescriptors {
    /// A descriptor of the liveness table.
    pub table: OwnedFd,
    /// A descriptor of the roll, through which this member locks its own byte.
    pub entry: OwnedFd,
    /// A descriptor of the roll, through which this member tests the locks of others.
    pub roll: OwnedFd,
}

impl Liveness {
    /// Locks this member's byte of the roll and maps the table. The result is `None` if the memory is not a table of
    /// this layout.
    pub fn enter(descriptors: LivenessDescriptors, me: MemberId) -> OsResult<Option<Self>> {
        // The lock is taken first: from here on the process counts as alive, whatever happens to its descriptors.
        let entry = RollLock::hold(descriptors.entry)?;
        let table = map(descriptors.table)?;
        let liveness = Self {
            table,
            roll: RwLock::new(RollReader::new(descriptors.roll, me.0)),
            entry: Mutex::new(Some(entry)),
            me,
            proofs: RollProofs::default(),
        };
        Ok(liveness.table().is_valid().then_some(liveness))
    }

    /// Takes over the new table of a restarted daemon, and maps it at the address of the old table. This member keeps
    /// its lock on the roll. Gives `false` if the memory is not a table of this layout.
    pub fn replace(&self, descriptors: LivenessDescriptors) -> OsResult<bool> {
        if !self.sees_own_lock() {
            let mut roll = self.roll.write().unwrap_or_else(PoisonError::into_inner);
            *roll = RollReader::new(descriptors.roll, self.me.0);
        }
        self.table.replace(descriptors.table.as_fd(), Access::Read)?;
        Ok(self.table().is_valid())
    }

    /// Gives up this member's lock on the roll. From now on the member is dead for all others. The caller must have
    /// ended all of its work on shared memory before.
    pub fn resign(&self) {
        *self.entry.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Tells whether the roll shows this member's own lock. If not, deaths cannot be proved without the daemon. This is
    /// so if the file system of the daemon's socket does not support locks.
    pub fn sees_own_lock(&self) -> bool {
        self.roll.read().unwrap_or_else(PoisonError::into_inner).sees_own_lock()
    }
}

fn map(fd: impl AsFd) -> OsResult<Mapping> {
    Mapping::new(fd, size_of::<LivenessTable>(), Access::Read)
}

impl LivenessSource for Liveness {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping is as long as the table, page-aligned, and stays for as long as `self`; the table is made
        // of atomics, for which every bit pattern is a value, and of padding that is never read.
        unsafe { self.table.start().cast::<LivenessTable>().as_ref() }
    }

    fn is_dead(&self, member: MemberId) -> bool {
        let says_dead = self.table().says_dead(member);
        if says_dead {
            // The daemon marks a member as dead before it counts the death, so the table's count may not include this
            // death yet. The death is therefore counted here too.
            self.proofs.note(member);
        }
        says_dead || self.has_left(member)
    }

    #[cold]
    fn has_left(&self, member: MemberId) -> bool {
        let has_left = self.roll.read().unwrap_or_else(PoisonError::into_inner).has_left(member.0);
        if has_left {
            self.proofs.note(member);
        }
        has_left
    }
}

/// The futex word that changes with each death.
pub fn epoch_word(alive: &dyn LivenessSource) -> &AtomicU32 {
    &alive.table().epoch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_layout::liveness::DEAD;
    use crossdock_os::roll::Roll;

    const ME: MemberId = MemberId::new(3, 5);
    const OTHER: MemberId = MemberId::new(4, 6);

    fn table() -> (OwnedFd, Mapping) {
        let size = size_of::<LivenessTable>() as u64;
        crossdock_os::memfd::create_for_own_writing("crossdock-test", size).unwrap()
    }

    fn words(writer: &Mapping) -> &LivenessTable {
        // SAFETY: the mapping is as long as the table, aligned and writable, and the table is made of atomics.
        unsafe { writer.start().cast::<LivenessTable>().as_ref() }
    }

    #[test]
    fn memory_that_is_no_table_is_refused_and_neither_a_new_table_nor_silence_makes_a_member_dead() {
        let folder = tempfile::tempdir().unwrap();
        let roll = Roll::open(&folder.path().join("roll")).unwrap();
        let descriptors = |table: &OwnedFd| LivenessDescriptors {
            table: table.try_clone().unwrap(),
            entry: roll.enter(ME.0).unwrap(),
            roll: roll.reader().unwrap(),
        };
        let (fd, writer) = table();
        assert!(Liveness::enter(descriptors(&fd), ME).unwrap().is_none());
        words(&writer).format();
        let seen = Liveness::enter(descriptors(&fd), ME).unwrap().unwrap();
        assert!(seen.sees_own_lock());
        let other = RollLock::hold(roll.enter(OTHER.0).unwrap()).unwrap();
        assert!(!seen.is_dead(OTHER), "the table does not know it, the kernel does");
        let (next, next_writer) = table();
        words(&next_writer).format();
        assert!(seen.replace(descriptors(&next)).unwrap());
        assert!(!seen.is_dead(OTHER) && !seen.is_dead(ME));
        let third = MemberId::new(9, 9);
        let _third = RollLock::hold(roll.enter(third.0).unwrap()).unwrap();
        assert!(!seen.is_dead(third));
        // Acts as a daemon that is stopped after it has marked the member as dead, and before it counts the death.
        words(&next_writer).members[third.slot()].store(third.0 | DEAD, Ordering::Release);
        let counted = proved();
        assert!(seen.is_dead(third), "the new table is read");
        assert_ne!(proved(), counted, "a death that the table proves counts");
        drop(other);
        // A child that another test forked may hold a copy of a descriptor until it calls exec or ends. So the test
        // repeats the check for a while.
        assert!((0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            seen.is_dead(OTHER)
        }));
        assert!(!seen.table().says_dead(OTHER));
        let counted = proved();
        assert!(counted > 0, "a death that the roll proves counts");
        assert!(seen.is_dead(OTHER));
        assert_eq!(proved(), counted, "each death counts once");
    }
}
