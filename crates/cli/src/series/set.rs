//! The series of several ranks, and their versions with the same number.

use std::time::{Duration, Instant};

use crossdock_client::{Observer, SeriesState, Status, Version};

/// Observers of all ranks.
pub struct Set {
    names: Vec<String>,
    observers: Vec<Observer>,
}

impl Set {
    /// A set of observers that are in the order of their names.
    pub fn new(names: &[String], observers: Vec<Observer>) -> Self {
        Self { names: names.to_vec(), observers }
    }

    /// The name and the observer of each rank.
    pub fn each(&self) -> impl Iterator<Item = (&String, &Observer)> {
        self.names.iter().zip(&self.observers)
    }

    /// A number that differs between these publishers and their successors.
    pub fn incarnation(&self) -> u64 {
        self.observers[0].id().0
    }

    /// `Died`, with the publisher's name, if any publisher died; `Ended` if all ended, because until then the last ones
    /// may still publish.
    pub fn state(&self) -> (SeriesState, &str) {
        if let Some((name, _)) = self.each().find(|(_, o)| o.state() == SeriesState::Died) {
            return (SeriesState::Died, name);
        }
        let ended = self.observers.iter().all(|o| o.state() == SeriesState::Ended);
        (if ended { SeriesState::Ended } else { SeriesState::Live }, &self.names[0])
    }

    /// Waits for a version of the first series that is newer than the last one seen; false at the deadline, or if no
    /// more versions will come.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, String> {
        match self.observers[0].next(timeout) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.status, Status::TimedOut | Status::NotYet) => Ok(false),
            // This publisher has ended, and others have not yet.
            Err(e) if matches!(e.status, Status::Closed | Status::PeerDied) => {
                std::thread::sleep(timeout / 10);
                Ok(false)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// The newest versions of all ranks with one number; `None` if there are none at this moment. The ranks may be
    /// apart by more versions than their publishers keep, so a later call may succeed.
    pub fn common(&mut self, patience: Duration) -> Result<Option<Vec<Version>>, String> {
        let until = Instant::now() + patience;
        let Some(mut versions) = self.latest()? else { return Ok(None) };
        if let Some(level) = self.level(&versions)? {
            return Ok(Some(level));
        }
        // Waits for the slower ranks until they reach the first one's number. The versions that the set holds stay
        // meanwhile.
        loop {
            let top = versions.iter().map(Version::sequence).max().unwrap_or(0);
            let Some(behind) = versions.iter().position(|v| v.sequence() < top) else { return Ok(Some(versions)) };
            match self.observers[behind].next(until.saturating_duration_since(Instant::now())) {
                Ok(version) => versions[behind] = version,
                Err(e) if e.status == Status::Corrupt => return Err(e.to_string()),
                Err(_) => return Ok(None),
            }
        }
    }

    /// The versions of all ranks with a given number; `None` if a rank does not have it, or not yet.
    pub fn at(&mut self, sequence: u64) -> Result<Option<Vec<Version>>, String> {
        let mut level = Vec::new();
        for observer in &mut self.observers {
            match observer.at(sequence, Duration::ZERO) {
                Ok(version) => level.push(version),
                Err(e) if e.status == Status::NotYet => return Ok(None),
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(Some(level))
    }

    fn latest(&mut self) -> Result<Option<Vec<Version>>, String> {
        let mut versions = Vec::new();
        for observer in &mut self.observers {
            match observer.latest() {
                Ok(version) => versions.push(version),
                Err(e) if matches!(e.status, Status::NotYet | Status::NotFound) => return Ok(None),
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(Some(versions))
    }

    /// Ranks that are ahead may still have the version of the slowest rank.
    fn level(&mut self, versions: &[Version]) -> Result<Option<Vec<Version>>, String> {
        let low = versions.iter().map(Version::sequence).min().unwrap_or(0);
        let mut level = Vec::new();
        for observer in &mut self.observers {
            match observer.at(low, Duration::ZERO) {
                Ok(version) => level.push(version),
                Err(e) if e.status == Status::Corrupt => return Err(e.to_string()),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(level))
    }
}
