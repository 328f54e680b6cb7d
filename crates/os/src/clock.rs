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

/// A time in nanoseconds since 1970 that never decreases until the next boot, even if the wall clock jumps or the node
/// is suspended. It may differ from the wall clock, so it is for comparisons only.
///
/// It is the sum of two times: the wall clock's time when `/proc` was mounted, which the kernel keeps as the time of
/// the folder `/proc`, and the time since boot. In a container with a `/proc` of its own, two times can be compared
/// only if both were read during the container's life. Without `/proc` the function returns the wall clock's time.
pub fn steady_since_1970_ns() -> u64 {
    let mounted = rustix::fs::statfs("/proc").and_then(|system| {
        let is_proc = system.f_type == 0x9fa0;
        rustix::fs::stat("/proc").map(|folder| is_proc.then_some(folder))
    });
    let Ok(Some(folder)) = mounted else { return since_1970_ns() };
    let seconds = u64::try_from(folder.st_ctime).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(since_boot_ns())
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
    fn the_steady_clock_goes_on_with_the_clock_since_boot() {
        let (boot, steady) = (super::since_boot_ns(), super::steady_since_1970_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (later, steadily) = (super::since_boot_ns(), super::steady_since_1970_ns());
        assert!(steadily - steady >= 20_000_000 && steadily - steady <= later - boot + 1_000_000_000);
    }

    #[test]
    fn the_coarse_clock_lags_by_less_than_a_tick() {
        let coarse = super::coarse_ns();
        let now = super::now_ns();
        assert!(coarse <= now && now - coarse < 1_000_000_000);
    }
}
