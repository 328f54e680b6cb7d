//! Reads the clocks. The times in nanoseconds of the monotonic clock mean the same in every process of the node.

use rustix::time::{ClockId, clock_gettime};

/// The present time of the monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// The time of the kernel's last tick. It is up to a few milliseconds old, but reading it costs several times less than
/// reading the exact time.
pub fn coarse_ns() -> u64 {
    read(ClockId::MonotonicCoarse)
}

/// The time in nanoseconds since the node was started. Unlike the monotonic clock, it also advances while the node is
/// suspended. A lease must be measured by this clock, because other nodes do not wait for a suspended node.
pub fn since_boot_ns() -> u64 {
    read(ClockId::Boottime)
}

/// The node's wall clock in nanoseconds since 1970. It may jump, so it is for people and files only.
pub fn since_1970_ns() -> u64 {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_since_boot_is_never_behind_the_monotonic_one() {
        let monotonic = super::now_ns();
        let boot = super::since_boot_ns();
        assert!(boot >= monotonic, "{boot} {monotonic}");
        assert!(super::since_boot_ns() >= boot);
    }

    #[test]
    fn the_coarse_clock_lags_by_less_than_a_tick() {
        let coarse = super::coarse_ns();
        let now = super::now_ns();
        assert!(coarse <= now && now - coarse < 1_000_000_000);
    }
}
