//! Looks up an item's key in a map whose keys are `(workflow, key)`, without making a `String` for the search.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// A workflow and the key of an item in it, as an owned pair or a borrowed one. All of them have the order of
/// `(u64, String)`.
pub(in crate::broker) trait WorkflowKey {
    fn parts(&self) -> (u64, &str);
}

impl WorkflowKey for (u64, String) {
    fn parts(&self) -> (u64, &str) {
        (self.0, &self.1)
    }
}

impl WorkflowKey for (u64, &str) {
    fn parts(&self) -> (u64, &str) {
        *self
    }
}

impl<'a> Borrow<dyn WorkflowKey + 'a> for (u64, String) {
    fn borrow(&self) -> &(dyn WorkflowKey + 'a) {
        self
    }
}

impl Ord for dyn WorkflowKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for dyn WorkflowKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn WorkflowKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn WorkflowKey + '_ {}

/// Makes the search key for `get`, `get_mut`, `remove` and `contains_key` of a map.
pub(in crate::broker) fn by<'a>(pair: &'a (u64, &'a str)) -> &'a (dyn WorkflowKey + 'a) {
    pair
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::by;

    #[test]
    fn a_borrowed_key_finds_what_the_owned_one_finds() {
        let pairs = [(1, "b"), (1, "a"), (2, "a"), (1, ""), (1, "ab"), (1 << 60, "z")];
        let map: BTreeMap<(u64, String), usize> =
            pairs.iter().enumerate().map(|(n, (workflow, key))| ((*workflow, (*key).to_owned()), n)).collect();
        for (n, pair) in pairs.iter().enumerate() {
            assert_eq!(map.get(by(pair)), Some(&n), "{pair:?}");
        }
        for absent in [(1, "aa"), (2, "b"), (0, "a"), (3, "")] {
            assert_eq!(map.get(by(&absent)), None, "{absent:?}");
        }
    }
}
