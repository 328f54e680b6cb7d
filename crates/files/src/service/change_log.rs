//! The changes of a directory that the other hosts must learn: the newest change of each name, sorted by number.
//!
//! Each change has a number. Another host asks for the changes beyond a number, so it misses none, however often its
//! connection breaks. A name that changes again gets a new number, so the log has one entry for each name. The entry of
//! a removed name, or of a dropped file, is kept until every host knows of the removal or drop.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::messages::{ChangeKind, Entry, FileMetadata};
use crossdock_os::fs;

/// The most bytes that the entries of one answer take. A link's answer has room for 60 KiB.
const ANSWER_BYTES: usize = 32 << 10;

#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    /// For each host that fetches from this host: the name of that host's node, and the number up to which that host
    /// has carried out all changes.
    readers: Vec<(String, u64)>,
    last: u64,
    entries: BTreeMap<u64, (PathBuf, ChangeKind)>,
    numbers: BTreeMap<PathBuf, u64>,
}

impl ChangeKind {
    /// True if a file of this name can no longer be fetched.
    fn is_over(self) -> bool {
        matches!(self, Self::Gone | Self::Dropped)
    }
}

impl FileMetadata {
    pub fn of(meta: &fs::Metadata) -> Self {
        let nanoseconds = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
        Self { size: meta.len(), mode: meta.mode() & 0o7777, modified: (meta.mtime(), nanoseconds) }
    }
}

impl ChangeLog {
    /// Makes a log for the hosts `readers`, which fetch from this host. If there are no such hosts, the log stays
    /// empty.
    pub fn of(readers: &[String]) -> Self {
        Self { readers: readers.iter().map(|name| (name.clone(), 0)).collect(), ..Self::default() }
    }

    /// The number of hosts that fetch from this host.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// The index of the host `node` among the hosts that fetch from this host.
    pub fn reader(&self, node: &str) -> Option<usize> {
        self.readers.iter().position(|(name, _)| name == node)
    }

    /// Notes that a name is new, or now belongs to another file.
    pub fn note(&mut self, rest: &Path, what: ChangeKind) {
        if self.readers.is_empty() {
            return;
        }
        self.forget(rest);
        self.last += 1;
        self.entries.insert(self.last, (rest.to_owned(), what));
        self.numbers.insert(rest.to_owned(), self.last);
    }

    /// Notes that a name, with all names below it, was removed.
    pub fn gone(&mut self, rest: &Path) {
        let below = self.numbers.range(rest.to_owned()..).take_while(|(name, _)| name.starts_with(rest));
        let below: Vec<(PathBuf, u64)> = below.map(|(name, number)| (name.clone(), *number)).collect();
        let is_there = |number: &u64| self.entries.get(number).is_some_and(|(_, what)| !what.is_over());
        if !below.iter().any(|(_, number)| is_there(number)) {
            return;
        }
        for (name, _) in below {
            self.forget(&name);
        }
        self.note(rest, ChangeKind::Gone);
    }

    /// Notes that a file was dropped on this host. A host that has fetched the file keeps it. The log tells each host
    /// that has not fetched the file that it cannot get the file any more.
    pub fn dropped(&mut self, rest: &Path) {
        let Some(number) = self.numbers.get(rest).copied() else { return };
        self.forget(rest);
        if self.readers.iter().any(|(_, done)| *done < number) {
            self.note(rest, ChangeKind::Dropped);
        }
    }

    /// Removes the newest change of a file name from the log.
    fn forget(&mut self, rest: &Path) {
        if let Some(number) = self.numbers.remove(rest) {
            self.entries.remove(&number);
        }
    }

    /// Tells whether there is a change with a higher number than `number`.
    pub fn is_beyond(&self, number: u64) -> bool {
        self.entries.range(number.saturating_add(1)..).next().is_some()
    }

    /// Gives those changes with a higher number than `number` that fit into one answer, the number of the last change
    /// that the answer covers, and whether there is no later change.
    pub fn beyond(&self, number: u64) -> (Vec<Entry>, u64, bool) {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (number, (rest, what)) in self.entries.range(number.saturating_add(1)..) {
            let entry = Entry { number: *number, rest: rest.clone(), what: *what };
            bytes += entry.length();
            if bytes > ANSWER_BYTES && !entries.is_empty() {
                let upto = number - 1;
                return (entries, upto, false);
            }
            entries.push(entry);
        }
        (entries, self.last.max(number), true)
    }

    /// Finds the file of the change with this number.
    pub fn file(&self, number: u64) -> Option<(&Path, &FileMetadata)> {
        match self.entries.get(&number)? {
            (rest, ChangeKind::File(meta)) => Some((rest, meta)),
            _ => None,
        }
    }

    /// Notes that the host `reader` has carried out all changes up to this number. Returns the files of the changes
    /// that the host has carried out since the last call.
    pub fn done(&mut self, reader: usize, number: u64) -> Vec<PathBuf> {
        let number = number.min(self.last);
        let before = std::mem::replace(&mut self.readers[reader].1, number);
        if number <= before {
            self.readers[reader].1 = before;
            return Vec::new();
        }
        let files =
            self.entries.range(before + 1..=number).filter(|(_, (_, what))| matches!(what, ChangeKind::File(_)));
        let files = files.map(|(_, (rest, _))| rest.clone()).collect();
        let all = self.readers.iter().map(|(_, done)| *done).min().unwrap_or(0);
        let over = self.entries.range(..=all).filter(|(_, (_, what))| what.is_over());
        let over: Vec<PathBuf> = over.map(|(_, (rest, _))| rest.clone()).collect();
        over.iter().for_each(|rest| self.forget(rest));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> ChangeKind {
        ChangeKind::File(FileMetadata { size, mode: 0o444, modified: (1, 2) })
    }

    fn changes_after(ledger: &ChangeLog, since: u64) -> Vec<(String, ChangeKind)> {
        let (entries, _, _) = ledger.beyond(since);
        entries.into_iter().map(|entry| (entry.rest.display().to_string(), entry.what)).collect()
    }

    #[test]
    fn a_name_has_its_newest_change_only() {
        let mut ledger = ChangeLog::of(&["n2".into()]);
        ledger.note(Path::new("a"), file(1));
        ledger.note(Path::new("b"), file(2));
        ledger.note(Path::new("a"), file(3));
        assert_eq!(changes_after(&ledger, 0), [("b".into(), file(2)), ("a".into(), file(3))]);
        assert_eq!(changes_after(&ledger, 2), [("a".into(), file(3))]);
        assert!(!ledger.is_beyond(3));
        ledger.gone(Path::new("a"));
        ledger.gone(Path::new("never"));
        assert_eq!(changes_after(&ledger, 3), [("a".into(), ChangeKind::Gone)]);
    }

    #[test]
    fn a_folder_goes_with_all_below_it_and_its_neighbours_stay() {
        let mut ledger = ChangeLog::of(&["n2".into()]);
        for name in ["d", "d/a", "d/e/b", "d.x", "dd"] {
            ledger.note(Path::new(name), file(1));
        }
        ledger.gone(Path::new("d"));
        assert_eq!(
            changes_after(&ledger, 0),
            [("d.x".into(), file(1)), ("dd".into(), file(1)), ("d".into(), ChangeKind::Gone)]
        );
    }

    #[test]
    fn what_is_gone_is_kept_until_every_host_knows_it() {
        let mut ledger = ChangeLog::of(&["n2".into(), "n3".into()]);
        ledger.note(Path::new("a"), file(1));
        assert_eq!(ledger.done(0, 1), [PathBuf::from("a")]);
        assert_eq!(ledger.done(0, 1), Vec::<PathBuf>::new());
        ledger.gone(Path::new("a"));
        assert_eq!(ledger.done(0, 2), Vec::<PathBuf>::new());
        assert_eq!(changes_after(&ledger, 0), [("a".into(), ChangeKind::Gone)]);
        ledger.done(1, 99);
        assert_eq!(changes_after(&ledger, 0), []);
        assert_eq!(ledger.beyond(0).1, 2, "numbers go on");
    }

    #[test]
    fn a_dropped_file_is_told_until_every_host_has_it_or_knows_that_it_will_not() {
        let mut ledger = ChangeLog::of(&["n2".into(), "n3".into()]);
        ledger.note(Path::new("a"), file(1));
        ledger.done(0, 1);
        ledger.dropped(Path::new("a"));
        // The name is removed after its file was dropped. The removal must not add a second change.
        ledger.gone(Path::new("a"));
        assert_eq!(changes_after(&ledger, 0), [("a".into(), ChangeKind::Dropped)]);
        ledger.done(0, 2);
        ledger.done(1, 2);
        assert_eq!(changes_after(&ledger, 0), []);
        ledger.note(Path::new("b"), file(1));
        ledger.done(0, 3);
        ledger.done(1, 3);
        ledger.dropped(Path::new("b"));
        assert_eq!(changes_after(&ledger, 0), [], "every host has it");
    }

    #[test]
    fn a_long_list_comes_in_parts_that_join() {
        let mut ledger = ChangeLog::of(&["n2".into()]);
        for number in 0..5000 {
            ledger.note(Path::new(&format!("file-{number}")), file(number));
        }
        let (mut since, mut count) = (0, 0);
        loop {
            let (entries, upto, is_complete) = ledger.beyond(since);
            assert!(entries.iter().map(Entry::length).sum::<usize>() <= ANSWER_BYTES);
            count += entries.len();
            since = upto;
            if is_complete {
                break;
            }
        }
        assert_eq!((count, since), (5000, 5000));
    }

    #[test]
    fn without_other_hosts_nothing_is_kept() {
        let mut ledger = ChangeLog::of(&[]);
        ledger.note(Path::new("a"), file(1));
        ledger.gone(Path::new("a"));
        assert_eq!(changes_after(&ledger, 0), []);
    }
}
