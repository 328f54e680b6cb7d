//! Statistics of a publisher: what it has done so far. The publisher's program gets these numbers from
//! [`Publisher::statistics`], and other processes read some of them in the pool's header.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::costs::Costs;
use super::detector::Changing;
use super::publisher::Publisher;
use super::spec::Method;

/// What a publisher has done so far: the numbers that its own program gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// The method by which the publisher finds changes at present.
    pub method: Method,
    /// The methods that this machine does not have, each with the reason.
    pub unavailable: Vec<(Method, String)>,
    /// The number of times that the publisher switched to another method of finding changes.
    pub switches: u64,
    /// The number of versions that were published.
    pub published: u64,
    /// The number of chunks that were copied for versions.
    pub copied: u64,
    /// The number of chunks that versions shared with the version before them, summed over all versions.
    pub shared: u64,
    /// The fraction of the data that changes in a step; `None` before the first estimate.
    pub changing: Option<Changing>,
    /// The measured costs of the operations by which the publisher finds and copies changes.
    pub costs: Costs,
    /// How long the last call of `publish` took.
    pub last: Duration,
    /// How long the longest call of `publish` took.
    pub longest: Duration,
    /// The size of a chunk in bytes.
    pub chunk: u32,
    /// Two numbers: the slots that have memory, and those of them that hold chunks of some version.
    pub slots: (u32, u32),
    /// The number of versions that exist.
    pub versions: u32,
    /// The number of bytes of memory that are reserved for the pool.
    pub reserved: u64,
    /// How many times `publish` withheld its version because the pool had no room. Such a call succeeds, and the next
    /// version contains the changes.
    pub withheld: u64,
    /// The reason why the last publish withheld its version, and which observers hold old versions. `None` if a version
    /// was published after that.
    pub withheld_why: Option<String>,
    /// How many times `publish` failed because the pool had no room.
    pub no_space: u64,
    /// The number of versions that the publisher took back from observers that held them.
    pub taken_back: u64,
}

/// Counters that the publisher keeps and shows in the pool's header.
#[derive(Default)]
pub(super) struct Counts {
    pub copied: u64,
    pub shared: u64,
    pub last: Duration,
    pub longest: Duration,
    pub withheld: u64,
    /// The number of versions that were withheld since the newest version was published.
    pub withheld_now: u32,
    pub no_space: u64,
    pub taken_back: u64,
    pub reserved: u64,
}

impl Publisher {
    /// Gives counters, durations and measured costs of this publisher, as they are now.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            method: self.detector.method,
            unavailable: self.detector.unavailable().to_vec(),
            switches: self.detector.switches,
            published: self.sequence,
            copied: self.counts.copied,
            shared: self.counts.shared,
            changing: self.detector.changing,
            costs: self.detector.costs,
            last: self.counts.last,
            longest: self.counts.longest,
            chunk: self.pool.chunk() as u32,
            slots: (self.slots.committed(), self.slots.used()),
            versions: self.versions(),
            reserved: self.counts.reserved,
            no_space: self.counts.no_space,
            withheld: self.counts.withheld,
            withheld_why: self.withheld.as_ref().map(|withheld| withheld.why.to_string()),
            taken_back: self.counts.taken_back,
        }
    }

    /// The number of versions that exist.
    pub(super) fn versions(&self) -> u32 {
        self.records.iter().filter(|sequence| **sequence != 0).count() as u32
    }

    /// Writes the counters into the pool's header, for other processes.
    pub(super) fn show(&self) {
        let report = &self.pool.header().report;
        report.method.store(self.detector.method as u32, Relaxed);
        report.committed.store(self.slots.committed(), Relaxed);
        report.used.store(self.slots.used(), Relaxed);
        report.versions.store(self.versions(), Relaxed);
        report.copied.store(self.counts.copied, Relaxed);
        report.shared.store(self.counts.shared, Relaxed);
        report.last_ns.store(nanoseconds(self.counts.last), Relaxed);
        report.longest_ns.store(nanoseconds(self.counts.longest), Relaxed);
        report.no_space.store(self.counts.no_space, Relaxed);
        report.taken_back.store(self.counts.taken_back, Relaxed);
        report.withheld.store(self.counts.withheld, Relaxed);
        report.withheld_now.store(self.counts.withheld_now, Relaxed);
        report.switches.store(self.detector.switches, Relaxed);
        report.reserved.store(self.counts.reserved, Relaxed);
        let unavailable = self.detector.unavailable().iter().fold(0u64, |set, (method, _)| set | 1 << *method as u32);
        report.unavailable.store(unavailable, Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
