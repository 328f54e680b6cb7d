//! The series of several ranks, and their versions with the same number.

use std::time::{Duration, Instant};

use crossdock_client::{Observer, SeriesState, Status, Version};

/// One observer for the series of each rank, such as `field/0` to `field/3`.
pub struct RankedObservers {
    names: Vec<String>,
    observers: Vec<Observer>,
}

impl RankedObservers {
    /// Makes a set of observers. `observers` are in the order of `names`.
    pub fn new(names: &[String], observers: Vec<Observer>) -> Self {
        Self { names: names.to_vec(), observers }
    }

    /// Iterates over the name and the observer of each rank.
    pub fn each(&self) -> impl Iterator<Item = (&String, &Observer)> {
        self.names.iter().zip(&self.observers)
    }

    /// Gives the id of the first rank's series. It changes when the publishers are started again.
    pub fn incarnation(&self) -> u64 {
        self.observers[0].id().0
    }

    /// Gives the ids of the series. A publisher's series has another id than the series of its successor.
    pub fn ids(&self) -> Vec<u64> {
        self.observers.iter().map(|o| o.id().0).collect()
    }

    /// Tells whether these publishers may be followed: they must belong to one start of the program, and none of their
    /// series may be an ended series with an id in `dead`. When an MPI program is started again, its ranks open their
    /// series one after the other. Until the last rank has opened its series, some names still lead to publishers of
    /// the earlier start. So all publishers must live, or all must have ended. If no publisher lives and some have
    /// died, they are followed only with `former`, because they may belong to two starts: the first rank may have
    /// started again and died before the last rank opened its series.
    pub fn succeeds(&self, dead: &[u64], former: bool) -> bool {
        let states: Vec<_> = self.observers.iter().map(Observer::state).collect();
        let all = |state| states.iter().all(|s| *s == state);
        let gone = !states.contains(&SeriesState::Live);
        let together = states.len() == 1 || all(SeriesState::Live) || all(SeriesState::Ended) || former && gone;
        let old = |(observer, state): (&Observer, &SeriesState)| {
            dead.contains(&observer.id().0) && *state != SeriesState::Live
        };
        together && !self.observers.iter().zip(&states).any(old)
    }

    /// Gives the newest version number that all publishers have reached; 0 if one of them has published nothing.
    pub fn newest_of_all(&self) -> u64 {
        self.observers.iter().map(Observer::newest).min().unwrap_or(0)
    }

    /// Describes how far the ranks are apart: names the rank with the lowest version number and the rank with the
    /// highest.
    pub fn apart(&self) -> String {
        let mut newest: Vec<_> = self.each().map(|(name, o)| (o.newest(), name)).collect();
        newest.sort();
        let (Some(low), Some(high)) = (newest.first(), newest.last()) else { return String::new() };
        format!("{} is at version {}, {} at version {}", low.1, low.0, high.1, high.0)
    }

    /// Gives the state of all publishers together, and the name of one series. The state is `Died` if any publisher
    /// died; in that case the name is the name of this publisher's series. The state is `Ended` only if all ended,
    /// because a publisher that has not ended may still publish.
    pub fn state(&self) -> (SeriesState, &str) {
        if let Some((name, _)) = self.each().find(|(_, o)| o.state() == SeriesState::Died) {
            return (SeriesState::Died, name);
        }
        let ended = self.observers.iter().all(|o| o.state() == SeriesState::Ended);
        (if ended { SeriesState::Ended } else { SeriesState::Live }, &self.names[0])
    }

    /// Waits until all series have this version or a newer one. Returns false at the deadline, or if a publisher ended
    /// before this version. The function waits for one series after the other. A series that already has the version is
    /// skipped, because its publisher may publish nothing more.
    pub fn wait(&mut self, sequence: u64, timeout: Duration) -> Result<bool, String> {
        let until = Instant::now() + timeout;
        for observer in &mut self.observers {
            if observer.newest() >= sequence {
                continue;
            }
            match observer.at(sequence, until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(e) if e.status == Status::NotFound => {}
                Err(e) if matches!(e.status, Status::TimedOut | Status::NotYet) => return Ok(false),
                // The publisher of this series has ended before the version, so the version will not come. The function
                // sleeps until the deadline, so that the caller does not call it again and again while other publishers
                // still run.
                Err(e) if matches!(e.status, Status::Closed | Status::PeerDied) => {
                    std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    return Ok(false);
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(true)
    }

    /// Gives one version of each rank, all with the same number, which is the newest number that the function finds in
    /// all ranks. Returns `None` if no number is found in all ranks at this moment: the fastest rank may be ahead of
    /// the slowest by more versions than its publisher keeps. A later call may then succeed.
    pub fn common(&mut self, patience: Duration) -> Result<Option<Vec<Version>>, String> {
        let until = Instant::now() + patience;
        let Some(mut versions) = self.latest()? else { return Ok(None) };
        if let Some(level) = self.level(&versions)? {
            return Ok(Some(level));
        }
        // Waits until the slower ranks reach the version number of the fastest rank. Meanwhile `versions` holds the
        // versions that were found, so that their publishers keep them. If a slower rank does not have the version with
        // that number any more, its newest version is taken, and the other ranks must then reach the number of this
        // version.
        loop {
            let top = versions.iter().map(Version::sequence).max().unwrap_or(0);
            let Some(behind) = versions.iter().position(|v| v.sequence() < top) else { return Ok(Some(versions)) };
            let observer = &mut self.observers[behind];
            let version = match observer.at(top, until.saturating_duration_since(Instant::now())) {
                Err(e) if e.status == Status::NotFound => observer.latest(),
                version => version,
            };
            match version {
                Ok(version) => versions[behind] = version,
                Err(e) if e.status == Status::Corrupt => return Err(e.to_string()),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Gives the versions of all ranks with the number `sequence`; `None` if a rank does not have this version now.
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
                // A rank that has ended or died before its first version has no version in common with the other ranks,
                // so no version is found.
                Err(e) if matches!(e.status, Status::NotYet | Status::NotFound | Status::Closed | Status::PeerDied) => {
                    return Ok(None);
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(Some(versions))
    }

    /// Takes the number of the slowest rank's version, and looks in each rank for the version with this number. The
    /// ranks that are ahead may still have it.
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
