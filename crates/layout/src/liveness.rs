//! The liveness table: shared memory in which the daemon says which members are dead. Every member can read it with one
//! load.
//!
//! **Death is permanent, and a missing entry is no death.** No member id is used twice, so a proof of death stays true
//! however old the proof is. The daemon is the only writer of the table, and members map it read-only. A member may
//! still have the table of a former daemon mapped while a new daemon runs. So no word in the table proves that a member
//! lives. The word of a slot is
//!
//! ```text
//! 63    62             12 11      0
//! ┌────┬──────────────────┬─────────┐     0                   no member was here yet
//! │DEAD│     counter      │  slot   │     id                  the slot's last member
//! └────┴──────────────────┴─────────┘     id | DEAD           that member is dead
//! ```
//!
//! The daemon sets DEAD only with the kernel's proof (`docs/lifetimes.md`), or when the member itself said that it
//! leaves. The daemon gives the slot to another member only after it has set DEAD. So member X is **dead by the table**
//! if and only if the word of X's slot is X with DEAD, or has a greater counter than X. With any other word, the table
//! does not say whether X is dead. A caller that must know asks the kernel (`crossdock_os::roll`). After each death the
//! daemon increments `epoch` and wakes all members that wait on it.

use crate::id::MAX_MEMBERS;
use crate::{LAYOUT_VERSION, MemberId, SegmentId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first word of a liveness table.
pub const LIVENESS_MAGIC: u64 = u64::from_le_bytes(*b"xdocklif");

/// The whole liveness table. Each node daemon has one.
#[repr(C, align(64))]
pub struct LivenessTable {
    /// The number [`LIVENESS_MAGIC`]. The daemon writes it once, before any process maps the table.
    pub magic: AtomicU64,
    /// The version of the table's layout, [`LAYOUT_VERSION`]. The daemon writes it once.
    pub version: AtomicU32,
    /// A futex word. After each death, the daemon increments it (Release) and wakes the waiting members. Waiting
    /// members load it (Acquire) before they look at slots.
    pub epoch: AtomicU32,
    /// Words by which publishers of series notice new pin pages. The id of a series selects one of these words
    /// ([`Self::pages`]). The daemon increments the word (Release) before an observer gets a new page. When the
    /// publisher retires versions, it loads the word (Acquire) after a fence. If the word is unchanged, the publisher
    /// knows every pin page of its series.
    pub pages: [AtomicU32; PAGE_WORDS],
    _pad: [u8; 16],
    /// One word for each slot, in the form that the comment of this module shows. The daemon stores a word (Release),
    /// and members load it (Acquire).
    pub members: [AtomicU64; MAX_MEMBERS],
}

/// The number of words by which publishers notice new pin pages. Several series may share a word. When a shared word
/// changes, the publisher of each of these series asks the daemon once whether its series has a new pin page.
pub const PAGE_WORDS: usize = 8;

/// The index of the word that changes when this series gets a pin page.
#[must_use]
pub const fn page_word(series: SegmentId) -> usize {
    (series.0 % PAGE_WORDS as u64) as usize
}

impl LivenessTable {
    /// Gives a number that changes when this series gets a pin page.
    pub fn pages(&self, series: SegmentId) -> u32 {
        self.pages[page_word(series)].load(Ordering::Acquire)
    }

    /// Tells whether the table proves that this member is dead. The answer `false` does not prove that the member is
    /// alive. The answer for [`MemberId::NONE`] is `true`, because no member has this id.
    pub fn says_dead(&self, member: MemberId) -> bool {
        is_proof(self.members[member.slot()].load(Ordering::Acquire), member)
    }

    /// The number of deaths so far, modulo 2³². The word is a futex.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Tells whether the memory is a liveness table, and has the layout that this build uses.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == LIVENESS_MAGIC && self.version.load(Ordering::Acquire) == LAYOUT_VERSION
    }

    /// Makes a liveness table of fresh zeroed memory. Only the daemon calls this function.
    pub fn format(&self) {
        self.version.store(LAYOUT_VERSION, Ordering::Release);
        self.magic.store(LIVENESS_MAGIC, Ordering::Release);
    }

    /// Gives the member's slot to this member, after the slot's former holder has died. Only the daemon calls this
    /// function.
    pub fn set_alive(&self, member: MemberId) {
        self.members[member.slot()].store(member.0, Ordering::Release);
    }

    /// Marks this member as dead. Only the daemon calls this function, after the death is proved. Returns `true` if the
    /// member was not marked before. In that case the daemon must wake the members that wait on `epoch`.
    pub fn set_dead(&self, member: MemberId) -> bool {
        let slot = &self.members[member.slot()];
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

/// The bit of a slot's word that says that the member is dead.
pub const DEAD: u64 = 1 << 63;

/// Tells whether `word`, the word of this member's slot, proves that the member is dead.
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
            members: [const { AtomicU64::new(0) }; MAX_MEMBERS],
        });
        table.format();
        table
    }

    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<LivenessTable>(), 64 + 8 * MAX_MEMBERS);
        assert_eq!(offset_of!(LivenessTable, epoch), 12);
        assert_eq!(offset_of!(LivenessTable, pages), 16);
        assert_eq!(offset_of!(LivenessTable, members), 64);
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
    fn the_id_of_no_member_is_dead() {
        assert!(table().says_dead(MemberId::NONE));
    }
}
