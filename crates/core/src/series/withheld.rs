//! Withholding: a publish that finds no room leaves its contents in the variables' own memory, and the next version
//! contains its changes.
//!
//! A series can end while its last version is withheld. If the version was withheld because observers hold all old
//! versions, or because the quota is used up, the version is lost, and the error of the waiting observers says so. If
//! the version was withheld because the daemon did not answer in time, as on an overloaded node, [`Publisher::end`]
//! publishes the version after all. For this the publisher notes a hash of the contents when it withholds the version.
//! If the program has changed the variables since then, the hash differs, and the version is not published, because no
//! version may contain a step that the program did not publish.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_os::Deadline;
use twox_hash::XxHash3_64;

use super::publisher::Publisher;
use super::spec::FullPolicy;
use super::value::Value;
use crate::{Error, fault_point};

/// How long the end of a series waits for a daemon that does not answer, so that the last version can be published.
pub(super) const LAST_VERSION: Duration = Duration::from_secs(5);
/// How long the publisher waits between two attempts to publish the last version.
const AGAIN: Duration = Duration::from_millis(20);

/// What a publisher notes of the last version that it withheld.
pub(super) struct Withheld {
    /// Why the version was withheld.
    pub why: Error,
    /// The version, if it was withheld because the daemon did not answer in time.
    unanswered: Option<Unanswered>,
}

/// A version that was withheld because the daemon did not answer in time.
struct Unanswered {
    /// The hash of the variables' shapes and contents.
    hash: u64,
    attributes: Vec<(String, Value)>,
}

impl Publisher {
    /// Withholds a version: its contents stay in the variables' own memory, and its chunks stay on the list of changes.
    pub(super) fn withhold(&mut self, why: Error, attributes: &[(&str, Value)]) {
        if self.begun {
            self.write_back_begun();
        }
        fault_point!("series.publish.withheld");
        self.counts.withheld += 1;
        self.counts.withheld_now = self.counts.withheld_now.saturating_add(1);
        let unanswered = self.lacks_answer().then(|| Unanswered {
            hash: self.hash(),
            attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        });
        self.withheld = Some(Withheld { why, unanswered });
    }

    /// Tells whether room is lacking because the daemon did not answer: the pool could not grow, or versions could not
    /// be retired, because their observers are unknown.
    fn lacks_answer(&self) -> bool {
        let of_daemon = [Status::TimedOut, Status::Disconnected, Status::Busy];
        self.growth.as_ref().is_some_and(|(_, why)| of_daemon.contains(&why.status))
            || !self.pins.is_complete(&*self.host)
    }

    fn hash(&self) -> u64 {
        let mut hasher = XxHash3_64::with_seed(0);
        for field in &self.fields {
            field.shape.hash(&mut hasher);
            // SAFETY: the variable's memory is mapped for its present size. The caller has the publisher for itself,
            // so the program, which writes this memory, is in this call.
            unsafe { field.contents() }.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Before the end of the series: publishes the last version if it was withheld because the daemon did not answer
    /// in time, and if the program has not changed the variables since then. Waits for the daemon for about `patience`
    /// at most.
    pub(super) fn publish_withheld(&mut self, patience: Duration) {
        let Some(Unanswered { hash, attributes }) = self.withheld.as_mut().and_then(|it| it.unanswered.take()) else {
            return;
        };
        debug_assert!(self.full == FullPolicy::Withhold, "only this policy withholds versions");
        let attributes: Vec<_> = attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let deadline = Deadline::after(patience);
        // Another thread may change the variables, or end the series, while this thread waits.
        while !self.begun && self.check_use().is_ok() && self.hash() == hash {
            let Ok(columns) = self.columns(&attributes) else { return };
            self.growth = None;
            self.pins.ask_again();
            let published = self.publish_in_place(&columns, &attributes);
            self.show();
            if published.is_ok() || !self.lacks_answer() || deadline.passed() || self.host.is_closing() {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }
}
