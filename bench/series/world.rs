//! A series without a daemon, for measuring it alone.

use crossdock_core::Result;
use crossdock_core::series::{Identity, Offer, Surroundings};
use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::{Access, Mapping, memfd};
use std::sync::Arc;

pub const PUBLISHER: MemberId = MemberId::new(1, 1);

pub fn identity() -> Identity {
    Identity { name: "bench".into(), workflow: "default".into(), member: PUBLISHER }
}

pub struct World(Mapping);

/// What the daemon would keep.
pub struct Kept(#[allow(dead_code)] pub Arc<World>, #[allow(dead_code)] pub Offer);

impl World {
    pub fn new() -> Arc<Self> {
        let length = size_of::<LivenessTable>();
        let fd = memfd::create("crossdock-bench-liveness", length as u64).expect("a memfd");
        let world = Arc::new(Self(Mapping::new(&fd, length, Access::ReadWrite).expect("a mapping")));
        world.liveness().format();
        world.liveness().set_alive(PUBLISHER);
        world
    }
}

impl Surroundings for World {
    fn liveness(&self) -> &LivenessTable {
        // SAFETY: zeroed shared memory of that size, all atomics.
        unsafe { self.0.start().cast().as_ref() }
    }

    fn reserve(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn describe(&self, member: MemberId) -> String {
        member.to_string()
    }
}

/// Bytes of memory that the pool holds.
pub fn memory_of(offer: &Offer) -> u64 {
    memfd::resident(&offer.pool).expect("a memfd")
}

/// Bytes of this process's own memory.
pub fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
