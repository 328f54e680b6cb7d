//! The catalog's entry of an item, which says which node has the item. Only the node that has the item changes the
//! entry.
//!
//! An item gets its entry when it leaves the node that made it. The entry belongs to no lease: if the item's node is
//! lost, the item is lost too. One commit moves the item: it increments the epoch and gives the item's name to the next
//! node. The commit succeeds only if the name's entry is unchanged and belongs to the owning node's lease. So a node
//! without a lease cannot pass an item on.

use crossdock_catalog::{CatalogError, Commit, Entry};
use crossdock_link::bad_node_name;

use crate::member::{CatalogFailure, Member, NodeLease, by};
use crate::{Name, NodeRecord, keys};

/// The node that has an item, as the item's entry in the catalog names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemLocation {
    /// The item's id.
    pub item: u64,
    /// How often the item has moved from node to node: 1 on the second node.
    pub epoch: u64,
    /// The node that owns the item.
    pub node: String,
    /// The token of the node's daemon. A later daemon of the same node has another token, and does not have the item.
    /// The gateway fills this field in.
    pub daemon: u64,
    /// The description of the item for the next node. The gateway does not interpret it.
    pub about: Vec<u8>,
}

impl ItemLocation {
    fn of(&self, daemon: u64) -> Self {
        Self { daemon, ..self.clone() }
    }

    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = format!("1 {} {} {:x} ", self.epoch, self.node, self.daemon).into_bytes();
        value.extend(&self.about);
        value
    }

    /// Reads the value of an entry that another node wrote.
    pub(crate) fn read(item: u64, value: &[u8]) -> Option<Self> {
        let mut words = value.splitn(5, |byte| *byte == b' ');
        if words.next()? != b"1" {
            return None;
        }
        let epoch = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let node = std::str::from_utf8(words.next()?).ok()?.to_owned();
        let daemon = u64::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok()?;
        let about = words.next()?.to_vec();
        bad_node_name(&node).is_none().then_some(Self { item, epoch, node, daemon, about })
    }
}

/// The outcome of an attempt to give an item to another node.
pub(crate) enum PassOutcome {
    /// The item belongs to the next node.
    Done,
    /// The item still belongs to this node, and no commit that an earlier call sent can give it away any more.
    Kept(String),
}

/// The entries on which the passing of an item depends.
struct PassEntries {
    /// The entry of the item's name.
    named: Option<Entry>,
    /// The entry of the item itself, which says which node owns it.
    found: Option<Entry>,
    /// The entry of the node to which the item goes next. There is no entry if that node has no lease.
    there: Option<Entry>,
}

/// What [`Member::pass`] must do next, as the catalog's present entries require it.
enum Step {
    /// The item belongs to the next node.
    Done,
    /// The item still belongs to this node, and no commit that an earlier call sent can give it away any more. The
    /// text says why.
    Kept(String),
    /// The next node is not in the site, so this node keeps the item. The value is the entry of the item's name.
    Keep(Entry),
    /// This commit passes the item on, unless one of the entries has changed.
    Commit(Commit),
}

impl Member {
    /// Gives the item and its name to the node that `to` names. Repeating the call with the same arguments does no
    /// harm.
    ///
    /// # Errors
    /// If the outcome is not known. The caller must call again with the same arguments.
    pub(crate) fn pass(
        &self,
        joined: &NodeLease,
        name: &Name,
        to: &ItemLocation,
    ) -> Result<PassOutcome, CatalogFailure> {
        let (name, owner) = (keys::name(&self.site, name), keys::item_location(&self.site, to.item));
        let keys = [&*name, &owner, &keys::node(&self.site, &to.node)];
        // The hints may be old. They are used only for a commit. In a commit an old hint does no harm: the catalog
        // compares the commit's conditions with the present entries, and refuses the commit if they differ. For every
        // other step the entries are read from the catalog.
        let [named, found, there] = keys.map(|key| self.hints.get(key));
        let mut commit = match self.step(joined, keys, to, &PassEntries { named, found, there }) {
            Ok(Step::Commit(commit)) => Some(commit),
            _ => None,
        };
        for _ in 0..4 {
            let seen = match commit.take().map(|commit| self.catalog.commit(&commit, by())) {
                Some(Ok(done)) if done.done => return Ok(PassOutcome::Done),
                Some(Ok(not)) => self.seen(keys, not.found)?,
                // The hints do not lead to a commit, or the next node's lease has ended. So the entries are read from
                // the catalog.
                None | Some(Err(CatalogError::NoLease)) => self.read(keys)?,
                Some(Err(error)) => return Err(error.into()),
            };
            commit = match self.step(joined, keys, to, &seen)? {
                Step::Done => return Ok(PassOutcome::Done),
                Step::Kept(why) => return Ok(PassOutcome::Kept(why)),
                Step::Keep(named) => return self.keep(joined, &named, &to.node),
                Step::Commit(commit) => Some(commit),
            };
        }
        Err(CatalogFailure::Failed(format!("the entries of item {} keep changing", to.item)))
    }

    /// Reads the entries on which the passing of an item depends.
    fn read(&self, [name, owner, node]: [&str; 3]) -> Result<PassEntries, CatalogFailure> {
        // An earlier call of `pass` may have sent a commit that gives the item and its name away. This commit changes
        // both entries together. The name's entry is read first. So if the name's entry already shows that the name was
        // given away, the item's entry, which is read later, shows that the item has moved.
        let named = self.catalog.get(name, by())?;
        let found = self.catalog.get(owner, by())?;
        Ok(PassEntries { named, found, there: self.catalog.get(node, by())? })
    }

    /// Takes the present entries from the catalog's answer to a commit that failed because the entries differ from
    /// those that the commit expected.
    fn seen(&self, keys: [&str; 3], found: Vec<Option<Entry>>) -> Result<PassEntries, CatalogFailure> {
        match <[_; 3]>::try_from(found) {
            Ok([named, found, there]) => Ok(PassEntries { named, found, there }),
            Err(_) => self.read(keys),
        }
    }

    /// Decides the next step. If the step is a commit, its condition is that the three entries have not changed since
    /// `seen` was read.
    fn step(
        &self,
        joined: &NodeLease,
        [name, owner, node]: [&str; 3],
        to: &ItemLocation,
        seen: &PassEntries,
    ) -> Result<Step, CatalogFailure> {
        let known = seen.found.as_ref().map(|entry| ItemLocation::read(to.item, &entry.value));
        match known {
            Some(None) => return Err(CatalogFailure::Failed(format!("the entry '{owner}' names no node"))),
            // An epoch above `to.epoch` means that the next node has passed the item on already.
            Some(Some(known)) if known.epoch >= to.epoch => return Ok(Step::Done),
            _ => {}
        }
        let Some(named) = seen.named.as_ref().filter(|entry| self.is_own(entry)) else {
            return Ok(Step::Kept("its name is not this node's any more".into()));
        };
        if named.lease != Some(joined.lease) {
            // The name's entry belongs to an earlier lease of this node. The catalog may still carry out a commit that
            // an earlier call sent, so this call must not report that the item stays on this node. The outcome becomes
            // certain when the node announces the name under its present lease, or when the earlier lease ends.
            return Err(CatalogFailure::Failed(format!("the entry '{name}' hangs on another lease")));
        }
        let next = seen.there.as_ref().and_then(|entry| {
            let daemon = NodeRecord::read(&to.node, &entry.value)?.token;
            Some((entry.modified, daemon, entry.lease?))
        });
        let Some((modified, daemon, lease)) = next else { return Ok(Step::Keep(named.clone())) };
        let commit = Commit::new().expect_at(name, named.modified);
        let commit = match &seen.found {
            Some(entry) => commit.expect_at(owner, entry.modified),
            None => commit.expect_free(owner),
        };
        let commit = commit.expect_at(node, modified);
        let commit = commit.put(name, &keys::owner_of(&to.node, to.item), Some(lease));
        Ok(Step::Commit(commit.put(owner, &to.of(daemon).value(), None)))
    }

    /// Keeps the item on this node: writes the name's entry again, so that a commit of an earlier call fails.
    fn keep(&self, joined: &NodeLease, named: &Entry, to: &str) -> Result<PassOutcome, CatalogFailure> {
        let commit = Commit::new().expect_at(&named.key, named.modified);
        let done = self.catalog.commit(&commit.put(&named.key, &named.value, Some(joined.lease)), by())?;
        if done.done {
            return Ok(PassOutcome::Kept(format!("node {to} is not in the site any more")));
        }
        Err(CatalogFailure::Failed(format!("the entry '{}' keeps changing", named.key)))
    }

    /// Reads the catalog's entry of an item; `None` if there is none.
    pub(crate) fn item_location(&self, item: u64) -> Result<Option<ItemLocation>, CatalogFailure> {
        let key = keys::item_location(&self.site, item);
        Ok(self.catalog.get(&key, by())?.and_then(|entry| ItemLocation::read(item, &entry.value)))
    }

    /// Writes the description of an item that this node owns into its entry.
    pub(crate) fn describe(&self, is: &ItemLocation) -> Result<(), CatalogFailure> {
        self.change_own(is.item, is.epoch, |commit, key| commit.put(key, &is.of(self.token).value(), None))
    }

    /// Removes the entry of an item that this node owned and that no longer exists.
    pub(crate) fn forget(&self, item: u64, epoch: u64) -> Result<(), CatalogFailure> {
        self.change_own(item, epoch, |commit, key| commit.delete(key))
    }

    /// Applies `change` to the item's entry, if the entry says that this node owns the item and has the given epoch.
    fn change_own(&self, item: u64, epoch: u64, change: impl Fn(Commit, &str) -> Commit) -> Result<(), CatalogFailure> {
        let key = keys::item_location(&self.site, item);
        let is_own = |entry: &Entry| {
            ItemLocation::read(item, &entry.value).is_some_and(|is| is.node == self.node && is.epoch == epoch)
        };
        let hint = self.hints.get(&key).filter(is_own);
        let mut found = match hint {
            Some(entry) => Some(entry),
            None => self.catalog.get(&key, by())?,
        };
        while let Some(entry) = found.filter(is_own) {
            let commit = change(Commit::new().expect_at(&key, entry.modified), &key);
            let done = self.catalog.commit(&commit, by())?;
            if done.done {
                return Ok(());
            }
            found = match done.found.into_iter().next() {
                Some(found) => found,
                None => self.catalog.get(&key, by())?,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ItemLocation;

    #[test]
    fn an_entry_comes_back_as_it_was_written_and_other_bytes_are_none() {
        let is = ItemLocation { item: 7, epoch: 3, node: "n1".into(), daemon: 0xfe, about: b"a b\0 \xff".to_vec() };
        assert_eq!(ItemLocation::read(7, &is.value()), Some(is.clone()));
        let empty = ItemLocation { about: Vec::new(), ..is };
        assert_eq!(ItemLocation::read(7, &empty.value()), Some(empty));
        for bad in [&b""[..], b"1 2 n1", b"1 2 n1 4", b"2 2 n1 4 ", b"1 x n1 4 ", b"1 2 a/b 4 ", b"1 2 n1 x "] {
            assert_eq!(ItemLocation::read(7, bad), None, "{bad:?}");
        }
    }
}
