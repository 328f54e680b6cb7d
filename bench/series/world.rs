//! A series without a daemon, for measuring the series alone.

use crossdock_core::host::StandaloneHost;
use crossdock_core::liveness::LivenessSource;
use crossdock_core::series::Offer;
use crossdock_os::memfd;
use std::sync::Arc;

/// Holds the host of a series and the series' memory, which a daemon would hold otherwise. Both stay alive as long as
/// this value exists.
pub struct Kept(#[allow(dead_code)] pub Arc<StandaloneHost>, #[allow(dead_code)] pub Offer);

pub fn alone() -> Arc<StandaloneHost> {
    let alone = StandaloneHost::default();
    alone.table().set_alive(StandaloneHost::MEMBER);
    Arc::new(alone)
}

/// Gives the bytes of memory that the pool of a series occupies.
pub fn memory_of(offer: &Offer) -> u64 {
    memfd::resident(&offer.pool).expect("a memfd")
}

/// Gives the bytes of private memory of this process.
pub fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
