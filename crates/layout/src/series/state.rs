//! The words of a series' protocol: the state of a record, and the newest version.
//!
//! ```text
//! record state   63                                            2 1   0
//!               +------------------------------------------------+-----+
//!               |                   sequence                     |phase|      0 free · 1 filling · 2 live · 3 retiring
//!               +------------------------------------------------+-----+
//! latest         63                              16 15               0
//!               +----------------------------------+------------------+
//!               |            sequence              |      record      |
//!               +----------------------------------+------------------+
//! ```
//!
//! Sequence numbers count from 1 and are never used twice. So after a state word has changed, it never has its former
//! value again (no ABA problem).

/// The largest sequence number.
pub const MAX_SEQUENCE: u64 = (1 << 48) - 1;

/// The phase of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The record has no version.
    Free,
    /// The publisher is writing the record.
    Filling,
    /// The record has a version that may be pinned.
    Live,
    /// The publisher is finding out whether an observer has pinned the version. If an observer has, the version is live
    /// again; otherwise the record is free.
    Retiring,
}

/// The decoded value of a record's state word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(pub u64);

impl State {
    /// The state word of a record that has this version and is in this phase.
    pub const fn new(sequence: u64, phase: Phase) -> Self {
        Self(sequence << 2 | phase as u64)
    }

    /// The sequence number of the record's version.
    pub const fn sequence(self) -> u64 {
        self.0 >> 2
    }

    /// The phase of the record.
    pub const fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Free,
            1 => Phase::Filling,
            2 => Phase::Live,
            _ => Phase::Retiring,
        }
    }
}

/// The decoded value of a pool's word `latest`, which names the newest version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latest(pub u64);

impl Latest {
    /// The value of `latest` if this version, in this record, is the newest.
    pub const fn new(sequence: u64, record: u16) -> Self {
        Self(sequence << 16 | record as u64)
    }

    /// The sequence number of the newest version; 0 before the first version.
    pub const fn sequence(self) -> u64 {
        self.0 >> 16
    }

    /// The number of the newest version's record. The caller must check it against the number of records.
    pub const fn record(self) -> u16 {
        self.0 as u16
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_its_sequence_and_phase() {
        for phase in [Phase::Free, Phase::Filling, Phase::Live, Phase::Retiring] {
            let state = State::new(MAX_SEQUENCE, phase);
            assert_eq!((state.sequence(), state.phase()), (MAX_SEQUENCE, phase));
        }
        assert_eq!(State(0).phase(), Phase::Free);
    }

    #[test]
    fn the_newest_version_is_found_by_one_word() {
        let latest = Latest::new(MAX_SEQUENCE, 4095);
        assert_eq!((latest.sequence(), latest.record()), (MAX_SEQUENCE, 4095));
        assert_eq!(Latest(0).sequence(), 0);
    }
}
