//! Ids of members and segments. No id is ever used twice, not even by a restarted daemon.

/// The number of bits of a [`MemberId`] that give the member's slot in the liveness table.
pub const SLOT_BITS: u32 = 12;
/// The number of members that a node daemon can serve at the same time.
pub const MAX_MEMBERS: usize = 1 << SLOT_BITS;

/// The id of a member. A member is one live connection of one process that acts as a task.
///
/// The low 12 bits are the member's slot in the liveness table. The other bits are a counter, which is greater for each
/// new member. The number 0 means no member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct MemberId(pub u64);

impl MemberId {
    /// The id that means "no member". An unlocked lock and a free slot hold this value.
    pub const NONE: Self = Self(0);

    /// Makes an id. `slot` must be below [`MAX_MEMBERS`]; `counter` must be above zero and below 2⁵⁰, because the words
    /// that contain an id use the two upper bits as marks.
    pub const fn new(counter: u64, slot: usize) -> Self {
        assert!(slot < MAX_MEMBERS && counter > 0 && counter < 1 << (62 - SLOT_BITS));
        Self(counter << SLOT_BITS | slot as u64)
    }

    /// The member's slot in the liveness table. It is within the table for every bit pattern of an id.
    pub const fn slot(self) -> usize {
        (self.0 & (MAX_MEMBERS as u64 - 1)) as usize
    }

    /// The counter in the id. A member that joins later has a greater one.
    pub const fn counter(self) -> u64 {
        self.0 >> SLOT_BITS
    }
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::NONE {
            f.write_str("no member")
        } else {
            write!(f, "member {}.{}", self.counter(), self.slot())
        }
    }
}

/// The id of a segment, which is a piece of shared memory. The number 0 means no segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// No segment has this id. When a message goes to another node, objects of some kinds are not copied with the
    /// message. If the object that the message names is of such a kind, the handle of the message contains this id on
    /// the other node.
    pub const LEFT_BEHIND: Self = Self(u64::MAX >> 1);
}

impl std::fmt::Display for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_id_keeps_its_counter_and_slot() {
        let id = MemberId::new(77, 4095);
        assert_eq!((id.counter(), id.slot()), (77, 4095));
        assert_eq!(id.to_string(), "member 77.4095");
    }

    #[test]
    fn any_bit_pattern_has_a_slot_within_the_table() {
        assert!(MemberId(u64::MAX).slot() < MAX_MEMBERS);
    }
}
