//! Maps the inode numbers of a view to files.
//!
//! An inode number stands for one content. If the file of a name is replaced, the name gets a new number, because the
//! kernel reads the bytes for all opens of a number from the same backing file. A name that a process waits for has a
//! number before it has a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use fuser::{BackingId, FileAttr};

/// Device and inode of the file that was published. For a copy on disk, these are the device and inode that the file
/// had in memory.
pub(super) type Identity = (u64, u64);

pub(super) const ROOT: u64 = 1;

#[derive(Debug)]
pub(super) struct ViewNode {
    /// The path of the file, relative to the directory.
    pub rest: PathBuf,
    /// Device and inode of the published file; `None` while there is no file of this name.
    pub identity: Option<Identity>,
    /// The attributes at the last open. If the name of an open file was removed, `fstat` on the file returns these
    /// attributes.
    pub attributes: Option<FileAttr>,
    /// The backing file from which the kernel reads for all opens of this inode number.
    pub backing: Weak<BackingId>,
    /// How many opens of this inode number are not yet released.
    pub opens: u64,
    lookups: u64,
}

#[derive(Debug)]
pub(super) struct ViewNodes {
    numbers: HashMap<u64, ViewNode>,
    names: HashMap<PathBuf, u64>,
    last: u64,
}

impl ViewNodes {
    pub fn new() -> Self {
        let mut nodes = Self { numbers: HashMap::new(), names: HashMap::new(), last: ROOT };
        nodes.insert(ROOT, PathBuf::new(), None);
        nodes
    }

    fn insert(&mut self, number: u64, rest: PathBuf, identity: Option<Identity>) {
        let node =
            ViewNode { rest: rest.clone(), identity, attributes: None, backing: Weak::new(), opens: 0, lookups: 0 };
        self.names.insert(rest, number);
        self.numbers.insert(number, node);
    }

    /// Finds or makes the inode number for this name and content. The kernel counts this call as one more lookup of the
    /// number.
    pub fn look_up(&mut self, rest: &Path, identity: Option<Identity>) -> u64 {
        let known = self.names.get(rest).copied().filter(|number| {
            self.numbers.get_mut(number).is_some_and(|node| {
                let awaited = node.identity.is_none();
                if awaited {
                    node.identity = identity;
                }
                awaited || node.identity == identity
            })
        });
        let number = known.unwrap_or_else(|| {
            self.last += 1;
            self.insert(self.last, rest.to_owned(), identity);
            self.last
        });
        if let Some(node) = self.numbers.get_mut(&number) {
            node.lookups += 1;
        }
        number
    }

    /// Handles the FUSE request `forget`: subtracts `lookups` from the lookups that the kernel counts for this inode
    /// number.
    pub fn forget(&mut self, number: u64, lookups: u64) {
        let Some(node) = self.numbers.get_mut(&number).filter(|_| number != ROOT) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            if self.names.get(&node.rest) == Some(&number) {
                self.names.remove(&node.rest);
            }
            self.numbers.remove(&number);
        }
    }

    pub fn get(&mut self, number: u64) -> Option<&mut ViewNode> {
        self.numbers.get_mut(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_until_its_content_is_another() {
        let mut nodes = ViewNodes::new();
        let rest = Path::new("a");
        let awaited = nodes.look_up(rest, None);
        assert_eq!(nodes.look_up(rest, Some((1, 7))), awaited, "the awaited file came");
        assert_eq!(nodes.look_up(rest, Some((1, 7))), awaited);
        let replaced = nodes.look_up(rest, Some((1, 8)));
        assert_ne!(replaced, awaited);
        assert_eq!(nodes.get(awaited).unwrap().identity, Some((1, 7)), "those that have it open keep it");
        nodes.forget(awaited, 3);
        assert!(nodes.get(awaited).is_none());
        assert_eq!(nodes.look_up(rest, Some((1, 8))), replaced);
        nodes.forget(replaced, 2);
        assert_ne!(nodes.look_up(rest, Some((1, 8))), replaced, "a forgotten number is not used again");
        nodes.forget(ROOT, 100);
        assert!(nodes.get(ROOT).is_some());
    }
}
