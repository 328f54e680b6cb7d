//! The liveness table: the daemon's statement about which members are dead. Every member can read it with one load.
//!
//! **Death is permanent, and absence is no death.** No id is used twice, so a proof of death stays true however old it
//! is. The daemon is the table's only writer, and members map it read-only. A member may still have an old daemon's
//! table mapped while a new daemon serves. So no word says that a member lives, and a word about another member says
//! nothing about this one. The word of a slot is
//!
//! ```text
//!   63    62             12 11      0
//!  ┌────┬──────────────────┬─────────┐     0                   no member was here yet
//!  │DEAD│     counter      │  slot   │     id                  the slot's last member
//!  └────┴──────────────────┴─────────┘     id | DEAD           that member is dead
//! ```
//!
//! The daemon sets DEAD only with the kernel's proof (`docs/lifetimes.md`) or when the member itself said that it
//! leaves. Only after that does it give the slot to another member. So member X is **dead by the table** if and only if
//! the word of X's slot is X with DEAD, or holds a greater counter. Every other word means that X is not known to be
//! dead. A caller that must know asks the kernel (`crossdock_os::roll`). After each death the daemon increments `epoch`
//! and wakes all members that wait on it.

use crate::id::MAX_MEMBERS;
use crate::{LAYOUT_VERSION, MemberId, SegmentId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of a liveness table.
pub const LIVENESS_MAGIC: u64 = u64::from_le_bytes(*b"xdocklif");

/// The whole table; one per node daemon.
#[repr(C, align(64))]
pub struct LivenessTable {
    /// [`LIVENESS_MAGIC`], written once before any process maps the table.
    pub magic: AtomicU64,
    /// [`LAYOUT_VERSION`]; written once.
    pub version: AtomicU32,
    /// A futex word. The daemon increments it (Release) and wakes the waiting members after each death. Waiting members
    /// load it (Acquire) before they look at slots.
    pub epoch: AtomicU32,
    /// The daemon increments a word (Release) when a series gets a pin page, before any observer has the page; the
    /// series' number selects the word ([`Self::pages`]). A publisher loads it (Acquire) behind its retiring fence. If
    /// the word is unchanged, the publisher has every page.
    pub pages: [AtomicU32; PAGE_WORDS],
    _pad: [u8; 16],
    /// One word for each slot, as described above. The daemon stores it (Release), members load it (Acquire).
    pub slots: [AtomicU64; MAX_MEMBERS],
}

/// The number of words that tell publishers of new pin pages. Several series share a word; each change costs their
/// publishers one question.
pub const PAGE_WORDS: usize = 8;

/// The word that tells of this series' pin pages.
#[must_use]
pub const fn page_word(series: SegmentId) -> usize {
    (series.0 % PAGE_WORDS as u64) as usize
}

impl LivenessTable {
    /// A number that changes when this series gets a pin page.
    pub fn pages(&self, series: SegmentId) -> u32 {
        self.pages[page_word(series)].load(Ordering::Acquire)
    }

    /// Does the table prove that this member is dead? `false` proves nothing. [`MemberId::NOBODY`] counts as dead.
    pub fn says_dead(&self, member: MemberId) -> bool {
        is_proof(self.slots[member.slot()].load(Ordering::Acquire), member)
    }

    /// The number of deaths so far, modulo 2³²; a futex word.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Is this a table of this build's layout?
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == LIVENESS_MAGIC && self.version.load(Ordering::Acquire) == LAYOUT_VERSION
    }

    /// For the daemon: makes a table of fresh zeroed memory.
    pub fn format(&self) {
        self.version.store(LAYOUT_VERSION, Ordering::Release);
        self.magic.store(LIVENESS_MAGIC, Ordering::Release);
    }

    /// For the daemon: gives this slot to this member. The slot's former holder is dead.
    pub fn set_alive(&self, member: MemberId) {
        self.slots[member.slot()].store(member.0, Ordering::Release);
    }

    /// For the daemon: this member is proved dead. Gives whether the table did not say so before; then the caller wakes
    /// `epoch`.
    pub fn set_dead(&self, member: MemberId) -> bool {
        let slot = &self.slots[member.slot()];
        let mut word = slot.load(Ordering::Acquire);
        while !is_proof(word, member) {
            match slot.compare_exchange(word, member.0 | DEAD, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.epoch.fetch_add(1, Ordering::AcqRel);
                    return true;
                }
                Err(other) => word = other,
            }
        }
        false
    }
}

/// A bit of a slot's word: the member is dead.
pub const DEAD: u64 = 1 << 63;

/// Does the word of this member's slot prove that it is dead?
pub const fn is_proof(word: u64, member: MemberId) -> bool {
    let last = MemberId(word & !DEAD);
    member.0 == 0 || last.counter() > member.counter() || word == member.0 | DEAD
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
            pages: [const { AtomicU32::new(0) }; PAGE_WORDS],
            _pad: [0; 16],
            slots: [const { AtomicU64::new(0) }; MAX_MEMBERS],
        });
        table.format();
        table
    }

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<LivenessTable>(), 64 + 8 * MAX_MEMBERS);
        assert_eq!(offset_of!(LivenessTable, epoch), 12);
        assert_eq!(offset_of!(LivenessTable, pages), 16);
        assert_eq!(offset_of!(LivenessTable, slots), 64);
    }

    #[test]
    fn only_a_mark_or_a_successor_proves_a_death() {
        let table = table();
        let (first, second) = (MemberId::new(1, 5), MemberId::new(2, 5));
        assert!(!table.says_dead(first), "a table that knows nothing says nothing");
        table.set_alive(first);
        assert!(!table.says_dead(first) && !table.says_dead(second));
        assert!(table.set_dead(first));
        assert!(table.says_dead(first) && !table.says_dead(second));
        table.set_alive(second);
        assert!(table.says_dead(first) && !table.says_dead(second));
        assert!(!table.set_dead(first), "the dead do not die again");
        assert!(!table.says_dead(second));
        assert_eq!(table.epoch(), 1);
    }

    #[test]
    fn a_death_that_this_table_never_heard_of_can_be_marked() {
        let table = table();
        let member = MemberId::new(7, 9);
        assert!(table.set_dead(member));
        assert!(table.says_dead(member) && !table.says_dead(MemberId::new(8, 9)));
    }

    #[test]
    fn nobody_is_dead() {
        assert!(table().says_dead(MemberId::NOBODY));
    }
}
