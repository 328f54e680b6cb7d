//! Deadlines: the moment at which a wait ends.

use std::time::Duration;

use crate::clock;

/// A moment on the monotonic clock, at which a wait ends. Every waiting function of crossdock takes a deadline.
///
/// The moment is kept in nanoseconds of the clock, as the kernel takes it. So a wait need not read the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(u64);

impl Deadline {
    /// The longest wait: a hundred years. The limit keeps sums of times from overflowing.
    const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

    /// The deadline that is `duration` from now. With a duration of zero a function polls once and does not wait.
    pub fn after(duration: Duration) -> Self {
        Self(clock::now_ns() + duration.min(Self::FOREVER).as_nanos() as u64)
    }

    /// The time until the deadline; zero when it has passed.
    pub fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(clock::now_ns()))
    }

    /// Tells whether the deadline has passed.
    pub fn passed(self) -> bool {
        clock::now_ns() >= self.0
    }

    /// The earlier of two moments: this deadline, or `slice` from now.
    #[must_use]
    pub fn at_most(self, slice: Duration) -> Self {
        self.min(Self::after(slice))
    }

    /// The deadline as a time of the monotonic clock.
    pub(crate) fn on_clock(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The time until the deadline in milliseconds, for `poll` and `epoll_wait`. It is rounded up so that a wait never
    /// ends early.
    pub fn left_ms(self) -> i32 {
        let ms = self.left().as_nanos().div_ceil(1_000_000);
        i32::try_from(ms).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_has_nothing_left() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.passed());
        assert_eq!((deadline.left(), deadline.left_ms()), (Duration::ZERO, 0));
    }

    #[test]
    fn a_wait_is_rounded_up_and_the_longest_does_not_overflow() {
        assert_eq!(Deadline::after(Duration::from_micros(1)).left_ms().max(1), 1);
        assert!(Deadline::after(Duration::MAX).left() > Duration::from_secs(1 << 30));
    }
}
