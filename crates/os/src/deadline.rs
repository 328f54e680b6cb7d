//! Deadlines: the moment at which a wait ends.

use std::time::{Duration, Instant};

/// A moment on the monotonic clock, at which a wait ends. Every waiting function of crossdock takes a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The longest wait: a hundred years. The limit keeps sums of times from overflowing.
    const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

    /// The deadline that is `duration` from now. With a duration of zero a function polls once and does not wait.
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration.min(Self::FOREVER))
    }

    /// The time until the deadline; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Tells whether the deadline has passed.
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// The earlier of two moments: this deadline, or `slice` from now.
    #[must_use]
    pub fn at_most(self, slice: Duration) -> Self {
        self.min(Self::after(slice))
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
