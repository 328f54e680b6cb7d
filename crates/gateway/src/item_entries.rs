//! [`ItemEntries`]: the catalog's entries that this node uses when it gives an item to another node, as the gateway's
//! watch of the catalog last reported them. They serve as hints.
//!
//! A hint may be outdated, so no decision depends on the hint alone. It only saves reading an entry before a commit:
//! the commit has the condition that the catalog still has the entry with the hint's revision. If the condition does
//! not hold, the catalog answers with the present entry.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_catalog::{Entry, EntryChange};

use crate::item_location::ItemLocation;
use crate::keys::{self, Key};

pub(crate) struct ItemEntries {
    site: String,
    node: String,
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl ItemEntries {
    pub fn new(site: &str, node: &str) -> Self {
        Self { site: site.to_owned(), node: node.to_owned(), entries: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a change that the watch reports.
    pub fn note(&self, change: &EntryChange) {
        match change {
            EntryChange::Put(entry) if self.concerns(entry) => {
                drop(self.lock().insert(entry.key.clone(), entry.clone()))
            }
            EntryChange::Put(entry) | EntryChange::Gone(entry) => drop(self.lock().remove(&entry.key)),
        }
    }

    /// Gives the entry of this key, if the watch has reported it and it concerns this node.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.lock().get(key).cloned()
    }

    /// Tells whether the entry describes a node, a name that belongs to this node, or an item that this node owns.
    fn concerns(&self, entry: &Entry) -> bool {
        match keys::read(&self.site, &entry.key) {
            Key::Node(_) => true,
            Key::Name(_) => keys::read_owner(&entry.value).as_deref() == Some(&*self.node),
            Key::Item(item) => ItemLocation::read(item, &entry.value).is_some_and(|is| is.node == self.node),
            Key::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_catalog::LeaseId;

    use super::*;

    fn entry(key: &str, value: &str, modified: u64) -> Entry {
        Entry { key: key.to_owned(), value: value.into(), created: 1, modified, lease: Some(LeaseId(1)) }
    }

    #[test]
    fn hints_are_the_last_entries_of_all_nodes_and_of_what_this_node_has() {
        let hints = ItemEntries::new("s", "a");
        let name = "crossdock/s/name/item/1/w/x";
        for (key, value) in [
            ("crossdock/s/node/b", "1 2 7 host:1"),
            (name, "1 a"),
            ("crossdock/s/owner/5", "1 1 a 7 about"),
            ("crossdock/s/owner/6", "1 1 b 7 about"),
            ("crossdock/s/name/item/1/w/y", "1 b"),
        ] {
            hints.note(&EntryChange::Put(entry(key, value, 2)));
        }
        assert_eq!(hints.lock().keys().collect::<Vec<_>>(), [name, "crossdock/s/node/b", "crossdock/s/owner/5"]);
        hints.note(&EntryChange::Put(entry(name, "1 a 5", 3)));
        assert_eq!(hints.get(name).map(|entry| entry.modified), Some(3));
        // The name belongs to another node now.
        hints.note(&EntryChange::Put(entry(name, "1 b 5", 4)));
        assert_eq!(hints.get(name), None);
        hints.note(&EntryChange::Gone(entry("crossdock/s/node/b", "1 2 7 host:1", 5)));
        assert_eq!(hints.get("crossdock/s/node/b"), None);
    }
}
