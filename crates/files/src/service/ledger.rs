//! What the other hosts are to know of a directory: the newest change of each name, in order.
//!
//! Each change has a number. Another host asks for what is beyond a number, and so misses nothing, however often a
//! connection ends. A name that changes again gets a new number, so the ledger has one entry a name. The entry of a name
//! that is gone is kept until every host knows it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::words::{Entry, Meta, What};

/// Most bytes of the entries of one answer; a link's answer has room for 60 KiB.
const ANSWER_BYTES: usize = 32 << 10;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The hosts that fetch from here: the node's name, and the number up to which it has everything.
    readers: Vec<(String, u64)>,
    last: u64,
    entries: BTreeMap<u64, (PathBuf, What)>,
    numbers: BTreeMap<PathBuf, u64>,
}

impl Meta {
    pub fn of(meta: &fs::Metadata) -> Self {
        let nanoseconds = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
        Self { size: meta.len(), mode: meta.mode() & 0o7777, modified: (meta.mtime(), nanoseconds) }
    }
}

impl Ledger {
    /// A ledger for these hosts. Without any it stays empty.
    pub fn of(readers: &[String]) -> Self {
        Self { readers: readers.iter().map(|name| (name.clone(), 0)).collect(), ..Self::default() }
    }

    /// How many hosts fetch from here.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// The number of this host among them.
    pub fn reader(&self, node: &str) -> Option<usize> {
        self.readers.iter().position(|(name, _)| name == node)
    }

    /// A name is there, or is another file now.
    pub fn note(&mut self, rest: &Path, what: What) {
        if self.readers.is_empty() {
            return;
        }
        self.forget(rest);
        self.last += 1;
        self.entries.insert(self.last, (rest.to_owned(), what));
        self.numbers.insert(rest.to_owned(), self.last);
    }

    /// A name is no more, with all below it.
    pub fn gone(&mut self, rest: &Path) {
        let below = self.numbers.range(rest.to_owned()..).take_while(|(name, _)| name.starts_with(rest));
        let below: Vec<(PathBuf, u64)> = below.map(|(name, number)| (name.clone(), *number)).collect();
        let is_there = |number: &u64| self.entries.get(number).is_some_and(|(_, what)| *what != What::Gone);
        if !below.iter().any(|(_, number)| is_there(number)) {
            return;
        }
        for (name, _) in below {
            self.forget(&name);
        }
        self.note(rest, What::Gone);
    }

    /// The file was dropped here: a host that has it keeps it, and one that has not will not get it.
    pub fn forget(&mut self, rest: &Path) {
        if let Some(number) = self.numbers.remove(rest) {
            self.entries.remove(&number);
        }
    }

    /// Is something beyond this number?
    pub fn is_beyond(&self, number: u64) -> bool {
        self.entries.range(number.saturating_add(1)..).next().is_some()
    }

    /// What is beyond this number, as much as one answer takes; up to which number; and whether that is all.
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

    /// The file with this number.
    pub fn file(&self, number: u64) -> Option<(&Path, &Meta)> {
        match self.entries.get(&number)? {
            (rest, What::File(meta)) => Some((rest, meta)),
            _ => None,
        }
    }

    /// This host has everything up to this number. Gives the files that it did not have before.
    pub fn done(&mut self, reader: usize, number: u64) -> Vec<PathBuf> {
        let number = number.min(self.last);
        let before = std::mem::replace(&mut self.readers[reader].1, number);
        if number <= before {
            self.readers[reader].1 = before;
            return Vec::new();
        }
        let files = self.entries.range(before + 1..=number).filter(|(_, (_, what))| matches!(what, What::File(_)));
        let files = files.map(|(_, (rest, _))| rest.clone()).collect();
        let all = self.readers.iter().map(|(_, done)| *done).min().unwrap_or(0);
        let told = self.entries.range(..=all).filter(|(_, (_, what))| *what == What::Gone);
        let told: Vec<PathBuf> = told.map(|(_, (rest, _))| rest.clone()).collect();
        told.iter().for_each(|rest| self.forget(rest));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> What {
        What::File(Meta { size, mode: 0o444, modified: (1, 2) })
    }

    fn told(ledger: &Ledger, since: u64) -> Vec<(String, What)> {
        let (entries, _, _) = ledger.beyond(since);
        entries.into_iter().map(|entry| (entry.rest.display().to_string(), entry.what)).collect()
    }

    #[test]
    fn a_name_has_its_newest_change_only() {
        let mut ledger = Ledger::of(&["n2".into()]);
        ledger.note(Path::new("a"), file(1));
        ledger.note(Path::new("b"), file(2));
        ledger.note(Path::new("a"), file(3));
        assert_eq!(told(&ledger, 0), [("b".into(), file(2)), ("a".into(), file(3))]);
        assert_eq!(told(&ledger, 2), [("a".into(), file(3))]);
        assert!(!ledger.is_beyond(3));
        ledger.gone(Path::new("a"));
        ledger.gone(Path::new("never"));
        assert_eq!(told(&ledger, 3), [("a".into(), What::Gone)]);
    }

    #[test]
    fn a_folder_goes_with_all_below_it_and_its_neighbours_stay() {
        let mut ledger = Ledger::of(&["n2".into()]);
        for name in ["d", "d/a", "d/e/b", "d.x", "dd"] {
            ledger.note(Path::new(name), file(1));
        }
        ledger.gone(Path::new("d"));
        assert_eq!(told(&ledger, 0), [("d.x".into(), file(1)), ("dd".into(), file(1)), ("d".into(), What::Gone)]);
    }

    #[test]
    fn what_is_gone_is_kept_until_every_host_knows_it() {
        let mut ledger = Ledger::of(&["n2".into(), "n3".into()]);
        ledger.note(Path::new("a"), file(1));
        assert_eq!(ledger.done(0, 1), [PathBuf::from("a")]);
        assert_eq!(ledger.done(0, 1), Vec::<PathBuf>::new());
        ledger.gone(Path::new("a"));
        assert_eq!(ledger.done(0, 2), Vec::<PathBuf>::new());
        assert_eq!(told(&ledger, 0), [("a".into(), What::Gone)]);
        ledger.done(1, 99);
        assert_eq!(told(&ledger, 0), []);
        assert_eq!(ledger.beyond(0).1, 2, "numbers go on");
    }

    #[test]
    fn a_dropped_file_is_told_no_more() {
        let mut ledger = Ledger::of(&["n2".into()]);
        ledger.note(Path::new("a"), file(1));
        ledger.forget(Path::new("a"));
        ledger.gone(Path::new("a"));
        assert_eq!(told(&ledger, 0), []);
    }

    #[test]
    fn a_long_list_comes_in_parts_that_join() {
        let mut ledger = Ledger::of(&["n2".into()]);
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
        let mut ledger = Ledger::of(&[]);
        ledger.note(Path::new("a"), file(1));
        ledger.gone(Path::new("a"));
        assert_eq!(told(&ledger, 0), []);
    }
}
