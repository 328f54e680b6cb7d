//! The keys that a site uses in its catalog.
//!
//! | key | value | lasts |
//! |---|---|---|
//! | `crossdock/SITE/number/NODE` | the node's number | permanently |
//! | `crossdock/SITE/numbered/NUMBER` | the node's name | permanently |
//! | `crossdock/SITE/node/NODE` | `1 NUMBER TOKEN ADDRESS` | with the node's lease |
//! | `crossdock/SITE/name/KIND/LENGTH/WORKFLOW/NAME` | `1 NODE`, or `1 NODE ITEM` if the item came from another node | with the node's lease |
//! | `crossdock/SITE/owner/ITEM` | `1 EPOCH NODE TOKEN ABOUT`, for items that have left the node that made them | until the item ends |
//!
//! A value that begins with `1` begins with the version of the value's format. NUMBER is the node's number. TOKEN is a
//! number that the node's daemon chose when it started. ITEM is an item's id, and EPOCH says how often the item has
//! moved from one node to another. ABOUT describes the item for the next node.
//!
//! LENGTH in a key is the length of the workflow's name in bytes. A key needs this length because names may contain
//! slashes. In a listing, all `name/` entries come before the `owner/` entries, and a commit changes them in this
//! order. So a node learns that it has a name before it learns that it owns the item of this name.

use crossdock_layout::name;
use crossdock_layout::wire::SegmentKind;
use crossdock_link::bad_node_name;

/// A name in a site: of a region, port, series or item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The workflow's name.
    pub workflow: String,
    /// The kind of object that has the name.
    pub kind: SegmentKind,
    /// The name within the workflow.
    pub name: String,
}

const KINDS: [SegmentKind; 4] = [SegmentKind::Region, SegmentKind::Port, SegmentKind::Series, SegmentKind::Item];

pub(crate) fn site(site: &str) -> String {
    format!("crossdock/{site}/")
}

pub(crate) fn number(site: &str, node: &str) -> String {
    format!("crossdock/{site}/number/{node}")
}

pub(crate) fn numbered(site: &str, number: Option<u64>) -> String {
    format!("crossdock/{site}/numbered/{}", number.map_or_else(String::new, |number| number.to_string()))
}

pub(crate) fn node(site: &str, node: &str) -> String {
    format!("crossdock/{site}/node/{node}")
}

pub(crate) fn names(site: &str) -> String {
    format!("crossdock/{site}/name/")
}

pub(crate) fn name(site: &str, name: &Name) -> String {
    let Name { workflow, kind, name } = name;
    format!("crossdock/{site}/name/{}/{}/{workflow}/{name}", kind.word(), workflow.len())
}

pub(crate) fn owner(node: &str) -> Vec<u8> {
    format!("1 {node}").into_bytes()
}

/// Makes the value of a name's entry, for a name that a node got together with an item.
pub(crate) fn owner_of(node: &str, item: u64) -> Vec<u8> {
    format!("1 {node} {item}").into_bytes()
}

/// Reads the owning node from the value of a name's entry.
pub(crate) fn read_owner(value: &[u8]) -> Option<String> {
    let rest = std::str::from_utf8(value).ok()?.strip_prefix("1 ")?;
    let (node, item) = rest.split_once(' ').map_or((rest, None), |(node, item)| (node, Some(item)));
    let good = bad_node_name(node).is_none() && item.is_none_or(|item| item.parse::<u64>().is_ok());
    good.then(|| node.to_owned())
}

/// Reads the item from the value of a name's entry; `None` if the name did not come with an item.
pub(crate) fn read_item(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.strip_prefix("1 ")?.split_once(' ')?.1.parse().ok()
}

pub(crate) fn item_location(site: &str, item: u64) -> String {
    format!("crossdock/{site}/owner/{item}")
}

/// What an entry in the catalog is about.
pub(crate) enum Key {
    Node(String),
    Name(Name),
    Item(u64),
    Other,
}

/// Reads a key that another node may have written.
pub(crate) fn read(site: &str, key: &str) -> Key {
    let Some(rest) = key.strip_prefix(&self::site(site)) else { return Key::Other };
    if let Some(node) = rest.strip_prefix("node/") {
        return Key::Node(node.to_owned());
    }
    if let Some(item) = rest.strip_prefix("owner/") {
        return item.parse().map_or(Key::Other, Key::Item);
    }
    rest.strip_prefix("name/").and_then(read_name).map_or(Key::Other, Key::Name)
}

fn read_name(rest: &str) -> Option<Name> {
    let (kind, rest) = rest.split_once('/')?;
    let kind = KINDS.into_iter().find(|known| known.word() == kind)?;
    let (length, rest) = rest.split_once('/')?;
    let length: usize = length.parse().ok()?;
    let (workflow, name) = (rest.get(..length)?, rest.get(length..)?.strip_prefix('/')?);
    let good = name::check(workflow).is_ok() && name::check(name).is_ok();
    good.then(|| Name { workflow: workflow.to_owned(), kind, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_names_key_says_which_slashes_are_the_workflows() {
        for (workflow, called) in [("w", "a"), ("w/x", "a/b"), ("w", "x/a/b")] {
            let name = Name { workflow: workflow.into(), kind: SegmentKind::Port, name: called.into() };
            let key = super::name("s", &name);
            assert!(matches!(read("s", &key), Key::Name(found) if found == name), "{key}");
            assert!(matches!(read("other", &key), Key::Other));
        }
    }

    #[test]
    fn other_keys_are_none() {
        for bad in ["", "crossdock/s/name/port/1/w", "crossdock/s/name/port/9/w/a", "crossdock/s/name/hat/1/w/a"] {
            assert!(matches!(read("s", bad), Key::Other), "{bad}");
        }
        for bad in ["crossdock/s/name/port/1/w/", "crossdock/s/name/port/1/w/../x", "crossdock/s/name/port/-1/w/a"] {
            assert!(matches!(read("s", bad), Key::Other), "{bad}");
        }
        assert_eq!(read_owner(b"1 node-1"), Some("node-1".into()));
        assert_eq!(read_owner(&owner_of("node-1", 7)), Some("node-1".into()));
        assert_eq!(read_owner(b"1 node-1 x"), None);
        assert_eq!(read_owner(b"1 a/b"), None);
        assert_eq!(read_owner(b"2 a"), None);
    }
}
