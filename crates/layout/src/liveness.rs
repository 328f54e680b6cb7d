//! The liveness table: who is alive, readable by every member at the price of a load.
//!
//! The daemon is its only writer; members map it read-only. A member is alive if and only if the word of its slot
//! holds its id. The daemon clears the word when the member's pidfd or connection says that it is gone, then counts
//! `epoch` up and wakes everybody who waits on it. A reader may see a dead member as alive for as long as the daemon
//! needs to notice (well under 100 ms); it never sees a living one as dead, because an id is never used twice.

use crate::id::MAX_MEMBERS;
use crate::{LAYOUT_VERSION, MemberId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of a liveness table.
pub const LIVENESS_MAGIC: u64 = u64::from_le_bytes(*b"xdocklif");

/// The whole table; one per node daemon.
#[repr(C, align(64))]
pub struct LivenessTable {
    /// [`LIVENESS_MAGIC`]; written once, before anybody maps it.
    pub magic: AtomicU64,
    /// [`LAYOUT_VERSION`]; written once.
    pub version: AtomicU32,
    /// Futex word. Counted up (Release) and woken after each death; waiters load it (Acquire) before they look at slots.
    pub epoch: AtomicU32,
    _pad: [u8; 48],
    /// One word a slot: the id of the living member, or 0. Daemon stores (Release), members load (Acquire).
    pub slots: [AtomicU64; MAX_MEMBERS],
}

impl LivenessTable {
    /// Is this member alive, as far as the daemon knows?
    pub fn is_alive(&self, member: MemberId) -> bool {
        member != MemberId::NOBODY && self.slots[member.slot()].load(Ordering::Acquire) == member.0
    }

    /// The number of deaths so far, modulo 2³²; a futex word.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Is this a table of this build's layout?
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == LIVENESS_MAGIC && self.version.load(Ordering::Acquire) == LAYOUT_VERSION
    }

    /// Daemon: makes fresh zeroed memory a table.
    pub fn format(&self) {
        self.version.store(LAYOUT_VERSION, Ordering::Release);
        self.magic.store(LIVENESS_MAGIC, Ordering::Release);
    }

    /// Daemon: this member lives from now on.
    pub fn set_alive(&self, member: MemberId) {
        self.slots[member.slot()].store(member.0, Ordering::Release);
    }

    /// Daemon: this member is dead. Returns whether it was alive in the table; the caller then wakes `epoch`.
    pub fn set_dead(&self, member: MemberId) -> bool {
        let was_alive =
            self.slots[member.slot()].compare_exchange(member.0, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if was_alive {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        was_alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    fn table() -> Box<LivenessTable> {
        let table = Box::new(LivenessTable {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            _pad: [0; 48],
            slots: [const { AtomicU64::new(0) }; MAX_MEMBERS],
        });
        table.format();
        table
    }

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<LivenessTable>(), 64 + 8 * MAX_MEMBERS);
        assert_eq!(offset_of!(LivenessTable, epoch), 12);
        assert_eq!(offset_of!(LivenessTable, slots), 64);
    }

    #[test]
    fn a_slot_used_again_does_not_revive_its_former_member() {
        let table = table();
        let (first, second) = (MemberId::new(1, 5), MemberId::new(2, 5));
        table.set_alive(first);
        assert!(table.is_alive(first));
        assert!(table.set_dead(first));
        table.set_alive(second);
        assert!(!table.is_alive(first));
        assert!(table.is_alive(second));
        assert!(!table.set_dead(first), "the dead cannot kill the living");
        assert!(table.is_alive(second));
        assert_eq!(table.epoch(), 1);
    }

    #[test]
    fn nobody_is_never_alive() {
        assert!(!table().is_alive(MemberId::NOBODY));
    }
}
