//! The backlog: the changes that one other host has reported and that this host must still carry out. The backlog
//! decides which of these changes comes next. It makes no system call and reads no clock.
//!
//! Several files are fetched at the same time, each by a thread called a lane. A file that a consumer waits for comes
//! before the files that no consumer has opened. One lane is kept free for the files that consumers wait for, so that
//! none of these files has to wait until another file is complete.
//!
//! Changes of the same name are carried out in the order in which they were reported, and so are the changes of a
//! folder and of the names below it. If a new change of a name makes an older change of this name obsolete, the older
//! change is dropped or ends early.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::messages::{ChangeKind, Entry};

/// The most files of one directory that are fetched from one host at the same time.
pub const LANES: usize = 4;

/// A change of a file name on another host that this host must still carry out for its consumers.
#[derive(Clone, Debug)]
pub struct PendingChange {
    /// The position of the change among all changes that this backlog has got.
    order: u64,
    /// The number that the other host gave to the directory.
    pub directory: u64,
    pub entry: Entry,
    /// When an attempt to fetch the file was postponed for the first time. How long the change has waited for its first
    /// attempt does not count.
    pub postponed: Option<Instant>,
    /// If an attempt to fetch the file was postponed, the time of the next attempt.
    pub not_before: Option<Instant>,
    /// True if a consumer waits for the file, or if the change is not about a file and takes no time.
    is_first: bool,
}

/// A change that is being carried out.
#[derive(Debug)]
struct ChangeInProgress {
    rest: PathBuf,
    /// The number of the change; `None` after the other host's service was started anew, because the number is valid
    /// only for one start.
    number: Option<u64>,
    is_first: bool,
    /// True if the other host has reported a newer change of the same name.
    is_overtaken: bool,
}

#[derive(Debug, Default)]
pub struct Backlog {
    last: u64,
    pending: BTreeMap<u64, PendingChange>,
    flights: BTreeMap<u64, ChangeInProgress>,
    /// The number of lanes (threads that fetch) that run, whether they have work or not.
    lanes: usize,
}

impl Backlog {
    /// Adds a change, and removes the older changes that the new change makes obsolete.
    pub fn add(&mut self, directory: u64, entry: Entry) {
        let is_about = |name: &Path| match entry.what {
            ChangeKind::File(_) | ChangeKind::Dropped => name == entry.rest,
            ChangeKind::Gone => name.starts_with(&entry.rest),
            ChangeKind::Folder => false,
        };
        self.pending.retain(|_, work| !is_about(&work.entry.rest));
        // If the other host has dropped a file that is being fetched, the fetch continues, because that host keeps the
        // file open until it is fetched.
        if entry.what != ChangeKind::Dropped {
            for flight in self.flights.values_mut().filter(|flight| is_about(&flight.rest)) {
                flight.is_overtaken = true;
            }
        }
        self.last += 1;
        let order = self.last;
        let work = PendingChange { order, directory, entry, postponed: None, not_before: None, is_first: false };
        self.pending.insert(order, work);
    }

    /// Empties the backlog, because the other host's service was started anew and all changes will come again.
    pub fn forget(&mut self) {
        self.pending.clear();
        self.flights.values_mut().for_each(|flight| flight.number = None);
    }

    /// Tells whether the caller of `take` must know for which files consumers wait. The caller must know this if `take`
    /// can choose between several changes. The caller must also know this if all lanes but one fetch files for
    /// which no consumer waited: `take` keeps the last lane for a file for which a consumer waits.
    pub fn has_choice(&self) -> bool {
        self.pending.len() > 1 || (!self.pending.is_empty() && self.others() + 1 >= LANES)
    }

    /// Takes the next change to carry out, if a lane is free for it. The caller calls `finish` or `put_back` at the
    /// end.
    pub fn take(&mut self, awaited: &HashSet<PathBuf>, now: Instant) -> Option<PendingChange> {
        if self.flights.len() >= LANES {
            return None;
        }
        let is_first = |work: &PendingChange| {
            !matches!(work.entry.what, ChangeKind::File(_)) || awaited.contains(&work.entry.rest)
        };
        let may_start =
            |work: &&PendingChange| work.not_before.is_none_or(|time| time <= now) && self.is_in_order(work);
        let first = self.pending.values().filter(|work| is_first(work)).find(may_start);
        let other = || self.pending.values().find(may_start).filter(|_| self.others() + 1 < LANES);
        let order = first.or_else(other)?.order;
        let mut work = self.pending.remove(&order)?;
        work.is_first = is_first(&work);
        let PendingChange { entry, is_first, .. } = &work;
        let flight = ChangeInProgress {
            rest: entry.rest.clone(),
            number: Some(entry.number),
            is_first: *is_first,
            is_overtaken: false,
        };
        self.flights.insert(order, flight);
        Some(work)
    }

    /// Counts one more lane (thread that fetches) if there is a change for it. If the result is `true`, the caller
    /// starts the lane. The lane calls `close_lane` when it ends.
    pub fn open_lane(&mut self) -> bool {
        let is_wanted = self.lanes < self.left().min(LANES);
        self.lanes += usize::from(is_wanted);
        is_wanted
    }

    /// Reduces the number of running lanes (threads that carry out changes) by one.
    pub fn close_lane(&mut self) {
        debug_assert!(self.lanes > 0, "a lane ended that was never counted");
        self.lanes -= 1;
    }

    /// Counts the lanes that fetch a file for which no consumer waited when the fetch began.
    fn others(&self) -> usize {
        self.flights.values().filter(|flight| !flight.is_first).count()
    }

    /// Tells whether the change may begin. It may not begin while an earlier change of the same name, of a folder above
    /// it or of a name below it is left.
    fn is_in_order(&self, work: &PendingChange) -> bool {
        let touches = |name: &Path| name.starts_with(&work.entry.rest) || work.entry.rest.starts_with(name);
        let before = self.pending.range(..work.order).map(|(_, other)| &other.entry.rest);
        let in_flight = self.flights.values().map(|flight| &flight.rest);
        !before.chain(in_flight).any(|name| touches(name))
    }

    /// Tells whether the other host has reported a newer change of the same name since `work` was taken.
    pub fn is_overtaken(&self, work: &PendingChange) -> bool {
        self.flights.get(&work.order).is_none_or(|flight| flight.is_overtaken)
    }

    /// Notes that a change was carried out or given up.
    pub fn finish(&mut self, work: &PendingChange) {
        self.flights.remove(&work.order);
    }

    /// Puts a file back into the backlog, because there was no room for it or because its fetch failed. The file is tried
    /// again when `pause` has passed.
    pub fn put_back(&mut self, work: PendingChange, now: Instant, pause: Duration) {
        let flight = self.flights.remove(&work.order);
        if flight.is_some_and(|flight| !flight.is_overtaken && flight.number.is_some()) {
            let (postponed, not_before) = (work.postponed.or(Some(now)), Some(now + pause));
            self.pending.insert(work.order, PendingChange { postponed, not_before, ..work });
        }
    }

    /// Gives the names of the files that are not fetched yet, sorted by name.
    pub fn files(&self) -> Vec<PathBuf> {
        let pending = self.pending.values().filter(|work| matches!(work.entry.what, ChangeKind::File(_)));
        let mut files: Vec<_> = pending.map(|work| work.entry.rest.clone()).collect();
        files.extend(self.flights.values().filter(|flight| !flight.is_overtaken).map(|flight| flight.rest.clone()));
        files.sort();
        files
    }

    /// Gives the lowest number of a change that is not done; `None` if all changes are done.
    pub fn lowest(&self) -> Option<u64> {
        let pending = self.pending.values().map(|work| work.entry.number);
        pending.chain(self.flights.values().filter_map(|flight| flight.number)).min()
    }

    /// Tells whether all changes are done.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.flights.is_empty()
    }

    /// Tells whether the backlog has a change that is not being carried out yet.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Counts the changes that are not done, including those that are being carried out.
    pub fn left(&self) -> usize {
        self.pending.len() + self.flights.len()
    }
}

#[cfg(test)]
mod tests {

    use super::super::messages::FileMetadata;
    use super::*;

    struct RetryState {
        backlog: Backlog,
        number: u64,
        now: Instant,
    }

    impl RetryState {
        fn new() -> Self {
            Self { backlog: Backlog::default(), number: 0, now: Instant::now() }
        }

        fn add(&mut self, rest: &str, what: ChangeKind) {
            self.number += 1;
            self.backlog.add(0, Entry { number: self.number, rest: rest.into(), what });
        }

        fn files(&mut self, names: &[&str]) {
            let meta = FileMetadata { size: 1, mode: 0o444, modified: (1, 2) };
            names.iter().for_each(|name| self.add(name, ChangeKind::File(meta)));
        }

        fn take(&mut self, awaited: &[&str]) -> Option<PendingChange> {
            self.backlog.take(&awaited.iter().map(PathBuf::from).collect(), self.now)
        }

        fn name(&mut self, awaited: &[&str]) -> Option<String> {
            self.take(awaited).map(|work| work.entry.rest.display().to_string())
        }
    }

    #[test]
    fn each_change_gets_a_lane_while_there_are_some_and_an_ended_lane_is_replaced() {
        let mut tried = RetryState::new();
        assert!(!tried.backlog.open_lane(), "there is nothing to do");
        tried.files(&["a"]);
        assert!(tried.backlog.open_lane() && !tried.backlog.open_lane());
        tried.files(&["b", "c", "d", "e"]);
        assert_eq!((0..LANES).filter(|_| tried.backlog.open_lane()).count(), LANES - 1);
        tried.backlog.close_lane();
        assert!(tried.backlog.open_lane() && !tried.backlog.open_lane());
    }

    #[test]
    fn an_awaited_file_comes_first_and_has_a_lane_when_the_others_are_busy() {
        let mut tried = RetryState::new();
        tried.files(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(tried.name(&["c"]).as_deref(), Some("c"));
        for name in ["a", "b", "d"] {
            assert_eq!(tried.name(&[]).as_deref(), Some(name));
        }
        assert_eq!(tried.name(&["e"]), None, "{LANES} files are fetched at once");
        let mut tried = RetryState::new();
        tried.files(&["a", "b", "c", "d", "e"]);
        let busy: Vec<PendingChange> = (0..3).map(|_| tried.take(&[]).unwrap()).collect();
        assert!(tried.backlog.has_choice());
        assert_eq!(tried.name(&[]), None, "one lane is kept free");
        assert_eq!(tried.name(&["e"]).as_deref(), Some("e"));
        tried.backlog.finish(&busy[0]);
        assert_eq!(tried.name(&[]).as_deref(), Some("d"));
    }

    #[test]
    fn news_of_one_name_are_carried_out_in_their_order_and_the_newest_alone() {
        let mut tried = RetryState::new();
        tried.files(&["a"]);
        let first = tried.take(&[]).unwrap();
        tried.files(&["a", "a"]);
        assert!(tried.backlog.is_overtaken(&first));
        assert_eq!(tried.name(&["a"]), None, "the older one is not finished");
        tried.backlog.finish(&first);
        assert_eq!(tried.take(&[]).unwrap().entry.number, 3);
        assert_eq!(tried.name(&[]), None);
    }

    #[test]
    fn a_folder_is_made_before_its_files_and_goes_with_them() {
        let mut tried = RetryState::new();
        tried.add("d", ChangeKind::Folder);
        tried.files(&["d/a", "d/b", "d.x"]);
        let folder = tried.take(&["d/a"]).unwrap();
        assert_eq!((folder.entry.what, tried.name(&["d/a"]).as_deref()), (ChangeKind::Folder, Some("d.x")));
        tried.backlog.finish(&folder);
        let inside = tried.take(&["d/a"]).unwrap();
        assert_eq!(inside.entry.rest, Path::new("d/a"));
        tried.add("d", ChangeKind::Gone);
        assert!(tried.backlog.is_overtaken(&inside));
        assert_eq!(tried.name(&[]), None, "d/b is gone with its folder");
        tried.backlog.finish(&inside);
        assert_eq!(tried.take(&[]).unwrap().entry.what, ChangeKind::Gone);
    }

    #[test]
    fn a_dropped_file_that_is_in_flight_comes_and_one_that_is_not_does_not() {
        let mut tried = RetryState::new();
        tried.files(&["a", "b"]);
        let flying = tried.take(&[]).unwrap();
        tried.add("a", ChangeKind::Dropped);
        tried.add("b", ChangeKind::Dropped);
        assert!(!tried.backlog.is_overtaken(&flying));
        let next = tried.take(&[]).unwrap();
        assert_eq!((next.entry.rest.as_path(), next.entry.what), (Path::new("b"), ChangeKind::Dropped));
        assert_eq!(tried.name(&[]), None);
    }

    #[test]
    fn what_has_no_room_is_overtaken_by_other_names_and_counts_as_not_done() {
        let mut tried = RetryState::new();
        tried.files(&["a", "b"]);
        let large = tried.take(&[]).unwrap();
        assert_eq!(large.postponed, None);
        tried.backlog.put_back(large, tried.now, Duration::from_secs(1));
        let small = tried.take(&[]).unwrap();
        assert_eq!((small.entry.number, tried.name(&[])), (2, None));
        tried.backlog.finish(&small);
        assert_eq!((tried.backlog.lowest(), tried.backlog.is_empty()), (Some(1), false));
        tried.now += Duration::from_secs(1);
        let large = tried.take(&[]).unwrap();
        assert_eq!(large.postponed, Some(tried.now - Duration::from_secs(1)));
        tried.backlog.forget();
        assert_eq!(tried.backlog.lowest(), None, "its number is of the former start of the other service");
        tried.backlog.put_back(large, tried.now, Duration::ZERO);
        assert!(tried.backlog.is_empty());
    }
}
