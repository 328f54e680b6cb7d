//! The broker's log. Its length is limited, whatever clients do.
//!
//! A client can cause a line with each connection that it drops. So the number of lines is limited: some lines may
//! follow each other without a pause, and after them one line in each interval. The next line that is written says how
//! many were left out. A line that cannot be written (full disk, limit on file sizes) is lost, without any other
//! effect.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

/// How many lines may be written one right after another, until [`EACH`] limits them.
const BURST: u32 = 64;
/// The interval after which one more line may be written: at most 8640 lines a day.
const EACH: Duration = Duration::from_secs(10);

/// The broker's log.
pub(super) struct Log {
    /// Whether the daemon is private. Such a daemon logs only failures.
    private: bool,
    budget: RefCell<Budget>,
}

struct Budget {
    left: u32,
    since: Instant,
    withheld: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, withheld: 0 }
    }

    /// Takes one line from the budget. Returns how many lines were left out since the last written line; `None` if no
    /// line may be written now.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let earned = now.saturating_duration_since(self.since).as_secs() / EACH.as_secs();
        if earned > 0 {
            self.left = u32::try_from(earned).unwrap_or(BURST).saturating_add(self.left).min(BURST);
            self.since = now;
        }
        if self.left == 0 {
            self.withheld += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

impl Log {
    pub(super) fn new(private: bool) -> Self {
        Self { private, budget: RefCell::new(Budget::new(Instant::now())) }
    }

    /// Logs a failure.
    pub(super) fn failure(&self, what: impl Display) {
        let Some(withheld) = self.budget.borrow_mut().take(Instant::now()) else { return };
        let mut error = std::io::stderr().lock();
        if withheld > 0 {
            let _ = writeln!(error, "crossdock broker: {withheld} lines were left out here");
        }
        let _ = writeln!(error, "crossdock broker: {what}");
    }

    /// Writes a line about an event, unless the daemon is private.
    pub(super) fn event(&self, what: impl Display) {
        if !self.private {
            self.failure(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut_to_the_budget_and_what_was_left_out_is_counted() {
        let began = Instant::now();
        let mut budget = Budget::new(began);
        let written = (0..10_000).filter(|_| budget.take(began).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(budget.take(began + EACH), Some(10_000 - u64::from(BURST)));
        assert_eq!(budget.take(began + EACH), None);
        let day = began + Duration::from_secs(86_400);
        assert_eq!((0..10_000).filter(|_| budget.take(day).is_some()).count(), BURST as usize, "no more is saved up");
    }
}
