//! A table of the items whose memory was lost with a former daemon. Errors tell of these items.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::SegmentId;

/// A workflow's number, and a key in it.
type Key = (u64, String);

/// The items that were lost with a former daemon, until another item with the same key has ended.
#[derive(Debug, Default)]
pub(super) struct LostItems {
    keys: BTreeMap<SegmentId, Key>,
    items: BTreeMap<Key, BTreeSet<SegmentId>>,
}

impl LostItems {
    pub fn insert(&mut self, item: SegmentId, key: Key) {
        self.items.entry(key.clone()).or_default().insert(item);
        self.keys.insert(item, key);
    }

    /// Forgets the items that had this key.
    pub fn forget(&mut self, key: &Key) {
        for item in self.items.remove(key).unwrap_or_default() {
            self.keys.remove(&item);
        }
    }

    /// Forgets the items of a workflow that has ended.
    pub fn forget_workflow(&mut self, workflow: u64) {
        let of = (workflow, String::new())..(workflow.saturating_add(1), String::new());
        for key in self.items.range(of).map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.forget(&key);
        }
    }

    /// Gives the key that this item of the workflow had when it was lost; `None` if it was not lost.
    pub fn key(&self, item: SegmentId, workflow: Option<u64>) -> Option<&str> {
        self.keys.get(&item).filter(|(of, _)| Some(*of) == workflow).map(|(_, key)| key.as_str())
    }

    /// Tells whether an item with this key was lost.
    pub fn has(&self, key: &Key) -> bool {
        self.items.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_workflow_or_of_another_item_with_the_key_ends_what_is_known_of_lost_items() {
        let mut lost = LostItems::default();
        let items = [(1, 7, "x"), (2, 7, "x"), (3, 7, "y"), (4, 8, "x"), (5, 8, "")];
        for (item, workflow, key) in items {
            lost.insert(SegmentId(item), (workflow, key.to_owned()));
        }
        let known = |lost: &LostItems| {
            let known = items.into_iter().filter(|(item, workflow, key)| {
                let is_known = lost.key(SegmentId(*item), Some(*workflow)) == Some(*key);
                assert_eq!(is_known, lost.has(&(*workflow, (*key).to_owned())));
                is_known
            });
            known.map(|(item, ..)| item).collect::<Vec<_>>()
        };
        assert_eq!(known(&lost), [1, 2, 3, 4, 5]);
        assert_eq!((lost.key(SegmentId(1), Some(8)), lost.key(SegmentId(1), None)), (None, None));
        lost.forget(&(7, "x".to_owned()));
        assert_eq!(known(&lost), [3, 4, 5]);
        lost.forget_workflow(8);
        assert_eq!(known(&lost), [3]);
    }
}
