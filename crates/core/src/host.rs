//! What regions, ports, series and items need from the process that uses them. The trait [`Host`] describes all of
//! this, and the session of the client library implements the trait.

use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::{Access, Mapping, OwnFile, memfd};

use crate::Result;
use crate::liveness::LivenessSource;

/// What an open object, such as a region, needs from its process. The object keeps its host as long as it is mapped. So
/// the host also holds everything that must exist as long as the object: the session, and the daemon's count of
/// openings.
pub trait Host: Send + Sync {
    /// Gives the source of information about dead members. Its liveness table stays at the same address as long as the
    /// host exists.
    fn liveness(&self) -> &dyn LivenessSource;

    /// Counts `total` bytes of this object against the quota. `NO_SPACE` if the quota does not allow them.
    fn reserve(&self, total: u64) -> Result<()> {
        let _ = total;
        Ok(())
    }

    /// Tells whether another thread is closing the session. If so, a call that waits for an end of a port must not take
    /// the end.
    fn is_closing(&self) -> bool {
        false
    }

    /// Describes a member in words, for error messages.
    fn describe(&self, member: MemberId) -> String {
        member.to_string()
    }

    /// Gives a word that changes each time the daemon makes another pin page for this series; 0 before the first page.
    /// (Observers note in pin pages which versions they use.) The publisher reads the word by one Acquire load of
    /// shared memory.
    fn pages_word(&self) -> u32 {
        0
    }

    /// Tells the daemon that the publisher has ended its series, so that another publisher may use the series' name.
    /// Dropping the host has the same effect.
    fn series_ended(&self) -> Result<()> {
        Ok(())
    }

    /// Asks the daemon for the series' next pin page, beginning at index `from`; `None` if there is no further page.
    /// Only the publisher calls this. The call waits only for a short time if the daemon does not answer.
    fn pin_page(&self, from: u32) -> Result<Option<PinPageGiven>> {
        let _ = from;
        Ok(None)
    }
}

/// The result of [`Host::pin_page`].
#[derive(Debug)]
pub struct PinPageGiven {
    /// The pin page: sealed memory of 4096 bytes.
    pub page: OwnFile,
    /// The index to pass to the next call of [`Host::pin_page`].
    pub next: u32,
    /// The number of further pin pages that the publisher has to ask for.
    pub left: u32,
}

/// A host without a daemon, for fuzzers and measurements. It has a liveness table of its own and no quota.
#[derive(Debug)]
pub struct StandaloneHost {
    table: Mapping,
    /// If this list is not empty, all members that are not in it count as dead.
    living: &'static [MemberId],
}

impl StandaloneHost {
    /// The member id of a program that has only one member.
    pub const MEMBER: MemberId = MemberId::new(1, 1);

    /// Makes a `StandaloneHost` for which only these members are alive. If the list is empty, no member is dead.
    #[must_use]
    pub fn with(living: &'static [MemberId]) -> Self {
        let length = size_of::<LivenessTable>();
        let fd = memfd::create("crossdock-alone", length as u64).expect("a memfd");
        let alone = Self { table: Mapping::new(&fd, length, Access::ReadWrite).expect("a mapping"), living };
        alone.table().format();
        for member in living {
            alone.table().set_alive(*member);
        }
        alone
    }
}

/// Makes a `StandaloneHost` for which no member is dead.
impl Default for StandaloneHost {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl LivenessSource for StandaloneHost {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping has the table's size and a page's alignment, and all of it is atomics and bytes.
        unsafe { self.table.start().cast().as_ref() }
    }

    fn has_left(&self, member: MemberId) -> bool {
        !self.living.is_empty() && !self.living.contains(&member)
    }
}

impl Host for StandaloneHost {
    fn liveness(&self) -> &dyn LivenessSource {
        self
    }
}
