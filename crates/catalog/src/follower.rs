//! [`Follower`]: a copy of all entries below a prefix, kept up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_os::Deadline;

use crate::{Catalog, CatalogError, CatalogResult, Entry, Event, IsOver, Revision, Watch};

/// How long a follower may take to list all entries, even if the deadline of the call is earlier. An incomplete list is
/// thrown away, so a list that is ended too early would have to begin from nothing. Over a slow link, connecting and
/// reading a long list take seconds.
const LIST: Duration = Duration::from_secs(10);

/// One difference that an update found between the copy and the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// The entry was made, or has a new value.
    Put(Entry),
    /// The entry was deleted. This is its last known state.
    Gone(Entry),
}

impl EntryChange {
    /// Gives the entry that was put, or the last known state of the entry that was deleted.
    pub fn entry(&self) -> &Entry {
        match self {
            Self::Put(entry) | Self::Gone(entry) => entry,
        }
    }
}

/// A copy of all entries below a prefix. A follower lists the entries once, and then watches for later changes. If the
/// catalog forgot changes before the follower read them, the follower lists again. In this case it reports how the new
/// list differs from the copy. So it does not report a change that was made and undone meanwhile.
pub struct Follower {
    prefix: String,
    known: BTreeMap<String, Entry>,
    watch: Option<Box<dyn Watch>>,
}

impl Follower {
    /// Makes a follower without entries. The first [`Self::next`] lists the catalog.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), known: BTreeMap::new(), watch: None }
    }

    /// Gives the copy: all entries as the last [`Self::next`] found them. The map's keys are the entries' keys.
    pub fn known(&self) -> &BTreeMap<String, Entry> {
        &self.known
    }

    /// Updates the copy and returns the differences. Waits for a change until the deadline. If nothing changes before
    /// the deadline, the returned list is empty. If the call must list the catalog, or connect to it, it may take some
    /// seconds more.
    ///
    /// # Errors
    /// If the catalog cannot be reached. A later call reports everything that this call has not reported, so no
    /// difference is lost.
    pub fn next(&mut self, catalog: &dyn Catalog, by: Deadline) -> CatalogResult<Vec<EntryChange>> {
        self.next_until(catalog, by, &|| false)
    }

    /// Like [`Self::next`], but a call that lists the catalog or connects to it fails soon after `is_over` begins to
    /// return true.
    ///
    /// # Errors
    /// As for [`Self::next`].
    pub fn next_until(
        &mut self,
        catalog: &dyn Catalog,
        by: Deadline,
        is_over: IsOver<'_>,
    ) -> CatalogResult<Vec<EntryChange>> {
        let Some(watch) = &mut self.watch else { return self.list(catalog, by, is_over) };
        match watch.next_until(by, is_over) {
            Ok(events) => Ok(events.into_iter().filter_map(|event| self.take(event)).collect()),
            Err(CatalogError::Compacted(_)) => {
                self.watch = None;
                self.list(catalog, by, is_over)
            }
            Err(error) => Err(error),
        }
    }

    /// After this call, the next call of [`Self::next`] lists the whole catalog again.
    pub fn restart(&mut self) {
        self.watch = None;
    }

    fn list(&mut self, catalog: &dyn Catalog, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<Vec<EntryChange>> {
        let by = Deadline::after(by.left().max(LIST));
        let listing = catalog.list_until(&self.prefix, by, is_over)?;
        self.watch = Some(catalog.watch(&self.prefix, listing.revision + 1)?);
        let fresh: BTreeMap<_, _> = listing.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        let former = std::mem::take(&mut self.known);
        let gone = former.iter().filter(|(key, _)| !fresh.contains_key(*key));
        let mut news: Vec<_> = gone.map(|(_, entry)| EntryChange::Gone(entry.clone())).collect();
        for (key, entry) in &fresh {
            if former.get(key) != Some(entry) {
                news.push(EntryChange::Put(entry.clone()));
            }
        }
        self.known = fresh;
        Ok(news)
    }

    fn take(&mut self, event: Event) -> Option<EntryChange> {
        let newer = |known: Option<&Entry>, revision: Revision| known.is_none_or(|entry| entry.modified < revision);
        match event {
            Event::Put(entry) => newer(self.known.get(&entry.key), entry.modified).then(|| {
                self.known.insert(entry.key.clone(), entry.clone());
                EntryChange::Put(entry)
            }),
            Event::Deleted { key, revision } => {
                if !newer(self.known.get(&key), revision) {
                    return None;
                }
                self.known.remove(&key).map(EntryChange::Gone)
            }
        }
    }
}
