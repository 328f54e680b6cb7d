//! Times that mean the same in every process of the node: nanoseconds of the monotonic clock.

use rustix::time::{ClockId, clock_gettime};

/// Now.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Now, as of the kernel's last tick: up to a few milliseconds old, and several times cheaper.
pub fn coarse_ns() -> u64 {
    read(ClockId::MonotonicCoarse)
}

/// Nanoseconds since 1970, as the node's clock on the wall has it: for people and files, it may jump.
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
    fn the_coarse_clock_lags_by_less_than_a_tick() {
        let coarse = super::coarse_ns();
        let now = super::now_ns();
        assert!(coarse <= now && now - coarse < 1_000_000_000);
    }
}
