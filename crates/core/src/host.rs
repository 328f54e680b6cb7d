//! What regions, ports, series and items ask of the world around them: one trait, which the session implements.

use std::os::fd::OwnedFd;

use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::{Access, Mapping, memfd};

use crate::Result;
use crate::liveness::Living;

/// The host of one open object. An object keeps its host for as long as it is mapped, so a host also keeps what
/// has to last as long: the session, and the daemon's count of openings.
pub trait Host: Send + Sync {
    /// Who is dead. The table stays at its address for as long as the host lives.
    fn liveness(&self) -> &dyn Living;

    /// Counts `total` bytes of this object against the quota. `NO_SPACE` if that is too much.
    fn reserve(&self, total: u64) -> Result<()> {
        let _ = total;
        Ok(())
    }

    /// Who that member is, for errors.
    fn describe(&self, member: MemberId) -> String {
        member.to_string()
    }

    /// A word that is not the same any more when this series has got another pin page; 0 while there is none. For its
    /// publisher: a load of shared memory, with Acquire.
    fn pages_word(&self) -> u32 {
        0
    }

    /// This series' next pin page from that index on, for its publisher; `None`: there is no other. Does not wait for long.
    fn pin_page(&self, from: u32) -> Result<Option<PinPageGiven>> {
        let _ = from;
        Ok(None)
    }
}

/// What [`Host::pin_page`] gives.
#[derive(Debug)]
pub struct PinPageGiven {
    /// The page, sealed memory of 4096 bytes.
    pub page: OwnedFd,
    /// The index of the next page that may be there.
    pub next: u32,
    /// How many are left to be asked for.
    pub left: u32,
}

/// A host without a daemon, for fuzzers and measurements: a liveness table of its own, and no quota.
#[derive(Debug)]
pub struct Alone {
    table: Mapping,
    /// If members are named here, all others are dead.
    living: &'static [MemberId],
}

impl Alone {
    /// The member of programs that have one.
    pub const MEMBER: MemberId = MemberId::new(1, 1);

    /// Only these members live.
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

/// No member is dead yet.
impl Default for Alone {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl Living for Alone {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping has the table's size and a page's alignment, and all of it is atomics and bytes.
        unsafe { self.table.start().cast().as_ref() }
    }

    fn has_left(&self, member: MemberId) -> bool {
        !self.living.is_empty() && !self.living.contains(&member)
    }
}

impl Host for Alone {
    fn liveness(&self) -> &dyn Living {
        self
    }
}
