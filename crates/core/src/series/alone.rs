//! A series without a daemon, for fuzzers and measurements: there is one publisher, and no quota.

use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::{Access, Mapping, memfd};

use super::{Identity, Surroundings};
use crate::Result;
use crate::liveness::Living;

/// A liveness table of this process's own, in which no member is dead yet.
#[derive(Debug)]
pub struct Alone(Mapping);

impl Alone {
    /// Who publishes.
    pub const PUBLISHER: MemberId = MemberId::new(1, 1);

    /// Whom this process says to be dead.
    #[must_use]
    pub fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping has the table's size and a page's alignment, and all of it is atomics and bytes.
        unsafe { self.0.start().cast().as_ref() }
    }

    /// The publisher's series of this name.
    #[must_use]
    pub fn identity(name: &str) -> Identity {
        Identity { name: name.into(), workflow: "default".into(), member: Self::PUBLISHER }
    }
}

impl Default for Alone {
    fn default() -> Self {
        let length = size_of::<LivenessTable>();
        let fd = memfd::create("crossdock-alone", length as u64).expect("a memfd");
        let alone = Self(Mapping::new(&fd, length, Access::ReadWrite).expect("a mapping"));
        alone.table().format();
        alone
    }
}

impl Surroundings for Alone {
    fn liveness(&self) -> &dyn Living {
        self.table()
    }

    fn reserve(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn describe(&self, member: MemberId) -> String {
        member.to_string()
    }
}
