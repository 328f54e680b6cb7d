//! The moment at which a wait ends.

use std::time::{Duration, Instant};

/// A moment on the monotonic clock. Every wait of crossdock has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The longest wait there is, so that sums cannot overflow: a hundred years.
    const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

    /// A moment this far from now; zero for a poll.
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration.min(Self::FOREVER))
    }

    /// The time that is left; zero when the moment has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Has it passed?
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// The earlier of this deadline and one `slice` from now.
    #[must_use]
    pub fn at_most(self, slice: Duration) -> Self {
        self.min(Self::after(slice))
    }

    /// The time that is left in whole milliseconds, rounded up so that a wait never ends early. For `poll` and
    /// `epoll_wait`.
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
