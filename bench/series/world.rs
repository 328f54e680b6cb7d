//! A series without a daemon, to be measured alone.

use crossdock_core::host::Alone;
use crossdock_core::liveness::Living;
use crossdock_core::series::Offer;
use crossdock_os::memfd;
use std::sync::Arc;

/// The objects that a daemon would keep.
pub struct Kept(#[allow(dead_code)] pub Arc<Alone>, #[allow(dead_code)] pub Offer);

pub fn alone() -> Arc<Alone> {
    let alone = Alone::default();
    alone.table().set_alive(Alone::MEMBER);
    Arc::new(alone)
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
