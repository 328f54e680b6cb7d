//! Entry point for the fuzzer: reads entries of the catalog that other nodes may have written.

use crate::keys::{self, Key};
use crate::{ItemLocation, NodeRecord};

/// Reads bytes as an entry of the site's catalog: a key up to the first zero, and after it a value. If the entry is
/// accepted, encoding it and reading it again must give the same entry.
pub fn fuzz_entry(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(key) = std::str::from_utf8(key) else { return };
    match keys::read("s", key) {
        Key::Node(node) => {
            if let Some(place) = NodeRecord::read(&node, value) {
                assert_eq!(NodeRecord::read(&node, &place.value()), Some(place));
            }
        }
        Key::Name(name) => {
            let again = keys::name("s", &name);
            assert!(matches!(keys::read("s", &again), Key::Name(found) if found == name), "{again}");
            if let Some(node) = keys::read_owner(value) {
                assert_eq!(keys::read_owner(&keys::owner(&node)), Some(node.clone()));
                if let Some(item) = keys::read_item(value) {
                    assert_eq!(keys::read_item(&keys::owner_of(&node, item)), Some(item));
                }
            }
        }
        Key::Item(item) => {
            if let Some(found) = ItemLocation::read(item, value) {
                assert_eq!(ItemLocation::read(item, &found.value()), Some(found));
            }
        }
        Key::Other => {}
    }
}
