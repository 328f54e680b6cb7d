//! The broker's log. It is bounded, whatever its clients do.
//!
//! A client can cause a line with each connection that it drops. So lines have a budget: a burst at once, then one in a
//! while. The next line that is written says how many were left out. A line that cannot be written (a full disk, a
//! limit on file sizes) is lost and has no other effect.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

/// The number of lines that may follow each other at once.
const BURST: u32 = 64;
/// How often one more line is allowed: at most 8640 lines a day.
const EACH: Duration = Duration::from_secs(10);

/// The broker's log.
pub(super) struct Log {
    /// A private daemon reports failures only.
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

    /// May a line be written now? If so, the number of lines that were left out before it.
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

    /// Something failed.
    pub(super) fn failure(&self, what: impl Display) {
        let Some(withheld) = self.budget.borrow_mut().take(Instant::now()) else { return };
        let mut error = std::io::stderr().lock();
        if withheld > 0 {
            let _ = writeln!(error, "crossdock broker: {withheld} lines were left out here");
        }
        let _ = writeln!(error, "crossdock broker: {what}");
    }

    /// Reports an event to the user of a daemon of the node.
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
