//! The state of a catalog that one process keeps: a state machine without a clock and without system calls.
//!
//! A change is first planned as a [`Record`]. Then the caller writes the record to its journal, if it has one. Then the
//! record is applied. A record holds everything that its change depends on, so applying the same records again gives
//! the same state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use crate::codec::Writer;
use crate::entry::{check_key, check_prefix};
use crate::{CatalogError, CatalogResult, Commit, Committed, Entry, Event, LeaseId, Listing, Operation, Revision};

/// The largest number of entries in a catalog.
const ENTRIES: usize = 200_000;
/// The largest number of leases in a catalog.
const LEASES: usize = 10_000;
/// The number of past changes that are kept for watches.
const HISTORY: usize = 10_000;

/// One lasting change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Sets the present revision, and the number of the next lease.
    Start { revision: Revision, next_lease: u64 },
    /// The operations of one commit, which are applied together.
    Changed { revision: Revision, operations: Vec<Operation> },
    /// A lease was granted.
    Granted { lease: LeaseId, time_ms: u64 },
    /// A lease ended, and its entries were deleted.
    Ended { lease: LeaseId, revision: Revision },
    /// One entry of the state, in a compacted journal.
    Entry(Entry),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    time_ms: u64,
    due_ms: u64,
    keys: BTreeSet<String>,
}

/// A past change, and its encoding for the messages to watches.
#[derive(Debug)]
pub(crate) struct Change {
    pub event: Event,
    encoded: OnceLock<Vec<u8>>,
}

impl Change {
    /// Gives the encoded event. The first call encodes it, for all watches.
    pub fn encoded(&self) -> &[u8] {
        self.encoded.get_or_init(|| {
            let mut w = Writer::default();
            w.event(&self.event);
            w.0
        })
    }
}

/// The state: entries, leases, and the last changes.
#[derive(Debug, Default)]
pub(crate) struct Store {
    revision: Revision,
    /// All changes up to this revision are forgotten.
    compacted: Revision,
    entries: BTreeMap<String, Entry>,
    leases: BTreeMap<LeaseId, Lease>,
    due: BTreeSet<(u64, LeaseId)>,
    next_lease: u64,
    changes: VecDeque<Arc<Change>>,
}

impl Store {
    pub fn new() -> Self {
        Self { next_lease: 1, ..Self::default() }
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Says what the commit would do, without doing it. The returned `Committed` is the outcome of the commit after the
    /// caller has applied the record.
    pub fn plan(&self, commit: &Commit) -> CatalogResult<(Committed, Option<Record>)> {
        commit.check()?;
        let found: Vec<_> = commit.expect.iter().map(|expect| self.entries.get(expect.key()).cloned()).collect();
        if !commit.expect.iter().zip(&found).all(|(expect, found)| expect.holds(found.as_ref())) {
            return Ok((Committed { done: false, revision: self.revision, found }, None));
        }
        let mut fresh = 0;
        for operation in &commit.then {
            if let Operation::Put { key, lease, .. } = operation {
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return Err(CatalogError::NoLease);
                }
                fresh += usize::from(!self.entries.contains_key(key));
            }
        }
        if self.entries.len() + fresh > ENTRIES {
            return Err(CatalogError::Full(format!("it has {} entries", self.entries.len())));
        }
        let effective = |operation: &&Operation| match operation {
            Operation::Put { .. } => true,
            Operation::Delete { key } => self.entries.contains_key(key),
        };
        let operations: Vec<_> = commit.then.iter().filter(effective).cloned().collect();
        let done = Committed { done: true, revision: self.revision, found: Vec::new() };
        if operations.is_empty() {
            return Ok((done, None));
        }
        let revision = self.revision + 1;
        Ok((Committed { revision, ..done }, Some(Record::Changed { revision, operations })))
    }

    pub fn plan_grant(&self, time_ms: u64) -> CatalogResult<(LeaseId, Record)> {
        if self.leases.len() >= LEASES {
            return Err(CatalogError::Full(format!("it has {} leases", self.leases.len())));
        }
        let lease = LeaseId(self.next_lease);
        Ok((lease, Record::Granted { lease, time_ms }))
    }

    pub fn plan_end(&self, lease: LeaseId) -> CatalogResult<Record> {
        let found = self.leases.get(&lease).ok_or(CatalogError::NoLease)?;
        let revision = self.revision + u64::from(!found.keys.is_empty());
        Ok(Record::Ended { lease, revision })
    }

    /// Gives the first lease whose time has passed, if there is one.
    pub fn expired(&self, now_ms: u64) -> Option<LeaseId> {
        self.due.first().filter(|(due, _)| *due <= now_ms).map(|(_, lease)| *lease)
    }

    /// Gives the time in ms at which the next lease ends if its holder does not keep it alive.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    pub fn keep_alive(&mut self, lease: LeaseId, now_ms: u64) -> CatalogResult<()> {
        let found = self.leases.get_mut(&lease).ok_or(CatalogError::NoLease)?;
        self.due.remove(&(found.due_ms, lease));
        found.due_ms = now_ms.saturating_add(found.time_ms);
        self.due.insert((found.due_ms, lease));
        Ok(())
    }

    /// Restarts the time of every lease, plus `grace_ms`, because no holder could keep its lease alive while the keeper
    /// was down.
    pub fn keep_all(&mut self, now_ms: u64, grace_ms: u64) {
        for lease in self.leases.keys().copied().collect::<Vec<_>>() {
            self.keep_alive(lease, now_ms.saturating_add(grace_ms)).expect("it was just listed");
        }
    }

    pub fn get(&self, key: &str) -> CatalogResult<Option<Entry>> {
        check_key(key)?;
        Ok(self.entries.get(key).cloned())
    }

    pub fn list(&self, prefix: &str) -> CatalogResult<Listing> {
        check_prefix(prefix)?;
        let below = self.entries.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        Ok(Listing { revision: self.revision, entries: below.map(|(_, entry)| entry.clone()).collect() })
    }

    /// Gives the changes of keys below `prefix` that have the revision `from` or a later one.
    pub fn since(&self, prefix: &str, from: Revision) -> CatalogResult<Vec<Arc<Change>>> {
        if from <= self.compacted {
            return Err(CatalogError::Compacted(self.compacted + 1));
        }
        let newer = self.changes.iter().rev().take_while(|change| change.event.revision() >= from);
        let mut changes: Vec<_> = newer.filter(|change| change.event.key().starts_with(prefix)).cloned().collect();
        changes.reverse();
        Ok(changes)
    }

    /// Tells whether a watch of `prefix` that has all changes up to the revision `seen` has something to report.
    pub fn concerns(&self, prefix: &str, seen: Revision) -> bool {
        // If changes after `seen` were forgotten, the result is `true` for every prefix, because the client of each
        // watch must list the entries again.
        let mut newer = self.changes.iter().rev().take_while(|change| change.event.revision() > seen);
        self.compacted > seen || newer.any(|change| change.event.key().starts_with(prefix))
    }

    /// Forgets all changes up to the revision `upto`.
    pub fn compact(&mut self, upto: Revision) {
        self.compacted = self.compacted.max(upto.min(self.revision));
        while self.changes.front().is_some_and(|change| change.event.revision() <= self.compacted) {
            self.changes.pop_front();
        }
    }

    /// Applies a record to the state. A record that does not fit the state, for example from a damaged journal, is an
    /// error.
    pub fn apply(&mut self, record: &Record, now_ms: u64) -> CatalogResult<()> {
        match record {
            Record::Start { revision, next_lease } => {
                self.revision = self.revision.max(*revision);
                self.compacted = self.revision;
                self.next_lease = self.next_lease.max(*next_lease);
            }
            Record::Changed { revision, operations } => {
                if *revision != self.revision + 1 {
                    let text = format!("change {revision} does not follow {}", self.revision);
                    return Err(CatalogError::Broken(text));
                }
                self.revision = *revision;
                for operation in operations {
                    match operation {
                        Operation::Put { key, value, lease } => self.put(key, value, *lease),
                        Operation::Delete { key } => self.delete(key),
                    }
                }
            }
            Record::Granted { lease, time_ms } => {
                self.next_lease = self.next_lease.max(lease.0 + 1);
                let due_ms = now_ms.saturating_add(*time_ms);
                self.leases.insert(*lease, Lease { time_ms: *time_ms, due_ms, keys: BTreeSet::new() });
                self.due.insert((due_ms, *lease));
            }
            Record::Ended { lease, revision } => {
                let Some(gone) = self.leases.remove(lease) else {
                    return Err(CatalogError::Broken(format!("lease {} ended twice", lease.0)));
                };
                self.due.remove(&(gone.due_ms, *lease));
                self.revision = self.revision.max(*revision);
                for key in gone.keys {
                    self.delete(&key);
                }
            }
            Record::Entry(entry) => {
                if let Some(lease) = entry.lease.and_then(|lease| self.leases.get_mut(&lease)) {
                    lease.keys.insert(entry.key.clone());
                }
                self.entries.insert(entry.key.clone(), entry.clone());
            }
        }
        self.forget_oldest();
        Ok(())
    }

    /// Forgets the oldest changes, in whole revisions, so that a watch gets all changes of a revision or none.
    fn forget_oldest(&mut self) {
        while self.changes.len() > HISTORY {
            let oldest = self.changes.front().map_or(0, |change| change.event.revision());
            self.compact(oldest);
        }
    }

    fn put(&mut self, key: &str, value: &[u8], lease: Option<LeaseId>) {
        let former = self.entries.get(key);
        let created = former.map_or(self.revision, |entry| entry.created);
        if let Some(lease) = former.and_then(|entry| entry.lease).and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.remove(key);
        }
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.insert(key.to_owned());
        }
        let entry = Entry { key: key.to_owned(), value: value.to_vec(), created, modified: self.revision, lease };
        self.entries.insert(key.to_owned(), entry.clone());
        self.note(Event::Put(entry));
    }

    fn delete(&mut self, key: &str) {
        let Some(gone) = self.entries.remove(key) else { return };
        if let Some(lease) = gone.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.remove(key);
        }
        self.note(Event::Deleted { key: key.to_owned(), revision: self.revision });
    }

    fn note(&mut self, event: Event) {
        self.changes.push_back(Arc::new(Change { event, encoded: OnceLock::new() }));
    }

    /// Returns the shortest list of records that makes this state from an empty one.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = vec![Record::Start { revision: self.revision, next_lease: self.next_lease }];
        let leases = self.leases.iter();
        records.extend(leases.map(|(lease, l)| Record::Granted { lease: *lease, time_ms: l.time_ms }));
        records.extend(self.entries.values().cloned().map(Record::Entry));
        records
    }

    /// Panics if an invariant of the state is violated.
    #[cfg(test)]
    pub fn check(&self) {
        for (key, entry) in &self.entries {
            assert_eq!(key, &entry.key);
            assert!(entry.created <= entry.modified && entry.modified <= self.revision);
            if let Some(lease) = entry.lease {
                assert!(self.leases[&lease].keys.contains(key), "{key} does not hang on its lease");
            }
        }
        for (id, lease) in &self.leases {
            assert!(self.due.contains(&(lease.due_ms, *id)));
            assert!(lease.keys.iter().all(|key| self.entries[key].lease == Some(*id)));
            assert!(id.0 < self.next_lease);
        }
        assert_eq!(self.due.len(), self.leases.len());
        assert!(self.changes.iter().all(|change| change.event.revision() > self.compacted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(store: &mut Store, commit: &Commit) -> CatalogResult<Committed> {
        let (done, record) = store.plan(commit)?;
        if let Some(record) = record {
            store.apply(&record, 0)?;
        }
        store.check();
        Ok(done)
    }

    #[test]
    fn a_snapshot_makes_the_same_state_and_history_starts_anew() {
        let mut store = Store::new();
        let (lease, record) = store.plan_grant(500).unwrap();
        store.apply(&record, 100).unwrap();
        commit(&mut store, &Commit::new().put("a", b"1", Some(lease)).put("b", b"2", None)).unwrap();
        commit(&mut store, &Commit::new().put("a", b"3", Some(lease)).delete("b")).unwrap();
        let mut again = Store::new();
        for record in store.snapshot() {
            again.apply(&record, 100).unwrap();
        }
        again.check();
        assert_eq!(again.entries, store.entries);
        assert_eq!(again.leases, store.leases);
        assert_eq!((again.revision, again.next_lease), (store.revision, store.next_lease));
        assert!(matches!(again.since("", 2), Err(CatalogError::Compacted(3))));
        assert!(again.since("", 3).unwrap().is_empty());
    }

    #[test]
    fn history_is_bounded_and_forgets_whole_revisions() {
        let mut store = Store::new();
        for n in 0..HISTORY {
            commit(&mut store, &Commit::new().put("a", &n.to_le_bytes(), None).put("b", b"", None)).unwrap();
        }
        assert!(store.changes.len() <= HISTORY && store.changes.len() % 2 == 0);
        assert!(matches!(store.since("", 1), Err(CatalogError::Compacted(_))));
        let oldest = store.compacted + 1;
        assert_eq!(store.since("b", oldest).unwrap().len(), store.changes.len() / 2);
    }

    #[test]
    fn a_change_is_encoded_once_for_all_watches() {
        let mut store = Store::new();
        commit(&mut store, &Commit::new().put("a/1", b"1", None).put("b", b"2", None)).unwrap();
        let [all, some] = ["", "a/"].map(|prefix| store.since(prefix, 1).unwrap());
        assert_eq!((all.len(), some.len()), (2, 1));
        assert!(std::ptr::eq(all[0].encoded(), some[0].encoded()));
        let mut w = Writer::default();
        w.event(&some[0].event);
        assert_eq!(some[0].encoded(), w.0);
    }

    #[test]
    fn a_change_concerns_the_watches_of_its_prefix_and_a_forgotten_one_concerns_all() {
        let mut store = Store::new();
        commit(&mut store, &Commit::new().put("a/1", b"", None)).unwrap();
        assert_eq!(["", "a/", "b/"].map(|prefix| store.concerns(prefix, 0)), [true, true, false]);
        assert!(!store.concerns("", 1));
        store.compact(1);
        assert!(store.concerns("b/", 0) && !store.concerns("b/", 1));
    }

    #[test]
    fn an_entry_that_changes_its_lease_outlives_the_former_one() {
        let mut store = Store::new();
        let (first, record) = store.plan_grant(10).unwrap();
        store.apply(&record, 0).unwrap();
        let (second, record) = store.plan_grant(1000).unwrap();
        store.apply(&record, 0).unwrap();
        commit(&mut store, &Commit::new().put("a", b"", Some(first))).unwrap();
        commit(&mut store, &Commit::new().put("a", b"", Some(second))).unwrap();
        assert_eq!(store.expired(10), Some(first));
        let end = store.plan_end(first).unwrap();
        store.apply(&end, 10).unwrap();
        store.check();
        assert!(store.get("a").unwrap().is_some());
        assert_eq!(store.plan_end(first), Err(CatalogError::NoLease));
    }

    #[test]
    fn a_change_that_does_not_follow_is_refused() {
        let mut store = Store::new();
        let record = Record::Changed { revision: 7, operations: Vec::new() };
        assert!(matches!(store.apply(&record, 0), Err(CatalogError::Broken(_))));
    }
}
