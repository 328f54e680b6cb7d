//! The node's entries in the catalog: how they are made, found and removed.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crossdock_catalog::{Catalog, CatalogError, Commit, Entry, LeaseId};
use crossdock_os::Deadline;

use crate::item_entries::ItemEntries;
use crate::node_record::NUMBERS;
use crate::{GatewayOptions, Name, NodeRecord, keys};

/// The time limit of one call to the catalog. It is much shorter than a lease, so the lease does not end during one
/// slow call.
const CALL: Duration = Duration::from_secs(2);

/// Milliseconds on a clock that never goes back, and that also advances while the node is suspended.
pub(crate) type Clock = Box<dyn Fn() -> u64 + Send>;

/// Why a call to the catalog did not succeed.
pub(crate) enum CatalogFailure {
    /// The name belongs to another node, which the value describes.
    Taken(NodeRecord),
    /// The lease has ended.
    NoLease,
    /// Another failure; the text is the reason.
    Failed(String),
}

impl From<CatalogError> for CatalogFailure {
    fn from(error: CatalogError) -> Self {
        if error == CatalogError::NoLease { Self::NoLease } else { Self::Failed(error.to_string()) }
    }
}

/// A lease of this node, and when it was last renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeLease {
    pub lease: LeaseId,
    pub number: u64,
    /// The time just before the last call that got or renewed the lease, in milliseconds of [`Clock`].
    pub kept: u64,
}

/// This node's entries in the catalog, and the client through which they are made.
pub(crate) struct Member {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) site: String,
    pub(crate) node: String,
    address: String,
    pub(crate) token: u64,
    /// The node's number; 0 until it is known.
    number: Cell<u64>,
    /// The entries that the watch has reported. With them, the node need not read an entry before each commit.
    pub(crate) hints: Arc<ItemEntries>,
    /// The length of a lease, in milliseconds.
    pub time: u64,
    clock: Clock,
}

pub(crate) fn by() -> Deadline {
    Deadline::after(CALL)
}

impl Member {
    pub fn new(
        options: &GatewayOptions,
        address: &str,
        catalog: Arc<dyn Catalog>,
        hints: Arc<ItemEntries>,
        clock: Clock,
    ) -> Self {
        Self {
            catalog,
            site: options.site.clone(),
            node: options.node.clone(),
            address: address.to_owned(),
            token: options.token,
            number: Cell::new(options.number),
            hints,
            time: options.lease.as_millis() as u64,
            clock,
        }
    }

    /// Milliseconds on a clock that never goes back, and that also advances while the node is suspended.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Gets a lease, and the node's name under it. If this daemon already has both, for example after a restart of its
    /// broker, it keeps them.
    pub fn join(&self) -> Result<NodeLease, CatalogFailure> {
        let number = self.number()?;
        let place = NodeRecord { node: self.node.clone(), number, token: self.token, address: self.address.clone() };
        let key = keys::node(&self.site, &self.node);
        let kept = self.now();
        if let Some(entry) = self.catalog.get(&key, by())? {
            let other = NodeRecord::read(&self.node, &entry.value);
            match (other, entry.lease) {
                (Some(other), Some(lease)) if other.token == self.token => {
                    self.catalog.keep_alive(lease, by())?;
                    if other != place {
                        self.catalog.put(&key, &place.value(), Some(lease), by())?;
                    }
                    return Ok(NodeLease { lease, number, kept });
                }
                (Some(other), _) => return Err(CatalogFailure::Taken(other)),
                (None, _) => {
                    return Err(CatalogFailure::Failed(format!("the catalog's entry '{key}' is none of a node")));
                }
            }
        }
        let kept = self.now();
        let lease = self.catalog.grant(Duration::from_millis(self.time), by())?;
        match self.catalog.create(&key, &place.value(), Some(lease), by())? {
            Ok(_) => Ok(NodeLease { lease, number, kept }),
            Err(other) => {
                self.catalog.revoke(lease, by()).ok();
                Err(NodeRecord::read(&self.node, &other.value).map_or(CatalogFailure::NoLease, CatalogFailure::Taken))
            }
        }
    }

    /// Looks up the number that belongs permanently to the node's name. If the name has no number yet, takes a free
    /// number.
    fn number(&self) -> Result<u64, CatalogFailure> {
        let key = keys::number(&self.site, &self.node);
        let former = self.number.get();
        loop {
            if let Some(entry) = self.catalog.get(&key, by())? {
                let number = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
                let number = number.filter(|number| (1..=NUMBERS).contains(number));
                let number = number
                    .ok_or_else(|| CatalogFailure::Failed(format!("the catalog's entry '{key}' is no number")))?;
                if former != 0 && former != number {
                    return Err(other_number(former, &format!("the catalog says {number}")));
                }
                self.number.set(number);
                return Ok(number);
            }
            let prefix = keys::numbered(&self.site, None);
            let taken = self.catalog.list(&prefix, by())?.entries;
            let taken: BTreeSet<u64> =
                taken.iter().filter_map(|entry| entry.key[prefix.len()..].parse().ok()).collect();
            let free = if former == 0 { (1..=NUMBERS).find(|number| !taken.contains(number)) } else { Some(former) };
            let Some(free) = free else {
                return Err(CatalogFailure::Failed(format!(
                    "site '{}' has had {NUMBERS} nodes, and can have no more",
                    self.site
                )));
            };
            let other = keys::numbered(&self.site, Some(free));
            let commit = Commit::new().expect_free(&key).expect_free(&other);
            let commit = commit.put(&key, free.to_string().as_bytes(), None).put(&other, self.node.as_bytes(), None);
            // If the commit failed, or if its answer was lost, the loop reads the catalog again.
            match self.catalog.commit(&commit, by()) {
                Ok(done) if !done.done && former != 0 && done.found[0].is_none() => {
                    return Err(other_number(former, "another node of the site has that number"));
                }
                Ok(_) | Err(CatalogError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub fn keep_alive(&self, joined: &mut NodeLease) -> Result<(), CatalogFailure> {
        let kept = self.now();
        self.catalog.keep_alive(joined.lease, by())?;
        joined.kept = kept;
        Ok(())
    }

    /// Makes the name belong to this node. If the catalog says that this node got the name together with an item, the
    /// call fails unless `given` is true. The caller sets `given` if the daemon really has this item.
    pub fn claim(&self, joined: &NodeLease, name: &Name, given: bool) -> Result<(), CatalogFailure> {
        let (key, value) = (keys::name(&self.site, name), keys::owner(&self.node));
        let lease = Some(joined.lease);
        for _ in 0..3 {
            let entry = match self.catalog.create(&key, &value, lease, by())? {
                Ok(_) => return Ok(()),
                Err(entry) => entry,
            };
            let is_own = entry.value == value || (given && self.is_own(&entry));
            if !is_own {
                return Err(self.owner(&entry)?);
            }
            // The entry names this node already. But it may belong to a lease that is about to end, or the catalog may
            // still receive an earlier commit that releases the name. The commit that follows gives the entry to the
            // present lease, and changes the entry's revision. So if the earlier commit reaches the catalog later, it
            // fails.
            let commit = Commit::new().expect_at(&key, entry.modified).put(&key, &value, lease);
            match self.catalog.commit(&commit, by()) {
                Ok(done) if done.done => return Ok(()),
                Ok(_) | Err(CatalogError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CatalogFailure::Failed(format!("the entry '{key}' keeps changing")))
    }

    /// Moves a name from the node `from` to this node, by one commit. The node `from` has agreed.
    pub fn take(&self, joined: &NodeLease, name: &Name, from: &str) -> Result<(), CatalogFailure> {
        let (key, value) = (keys::name(&self.site, name), keys::owner(&self.node));
        for _ in 0..3 {
            let Some(entry) = self.catalog.get(&key, by())? else {
                return Err(CatalogFailure::Failed(format!("node {from} has given the name up, or lost its lease")));
            };
            if entry.value == value && entry.lease == Some(joined.lease) {
                // An earlier attempt of this call has succeeded, although its answer was lost.
                return Ok(());
            }
            if keys::read_owner(&entry.value).as_deref() != Some(from) {
                return Err(self.owner(&entry)?);
            }
            let commit = Commit::new().expect_at(&key, entry.modified).put(&key, &value, Some(joined.lease));
            match self.catalog.commit(&commit, by()) {
                Ok(done) if done.done => return Ok(()),
                Ok(_) | Err(CatalogError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CatalogFailure::Failed(format!("the entry '{key}' keeps changing")))
    }

    pub(crate) fn is_own(&self, entry: &Entry) -> bool {
        keys::read_owner(&entry.value).as_deref() == Some(&*self.node)
    }

    fn owner(&self, entry: &Entry) -> Result<CatalogFailure, CatalogFailure> {
        let Some(node) = keys::read_owner(&entry.value) else {
            return Err(CatalogFailure::Failed(format!("the catalog's entry '{}' names no node", entry.key)));
        };
        let found = self.catalog.get(&keys::node(&self.site, &node), by())?;
        let place = found.and_then(|found| NodeRecord::read(&node, &found.value));
        // If the other node's lease ended after the name's entry was read, the node's entry is gone, and the node's
        // address is not known.
        Ok(CatalogFailure::Taken(place.unwrap_or(NodeRecord { node, number: 0, token: 0, address: String::new() })))
    }

    /// Asks the catalog which node has the name. Gives `None` if no node has it, and an error if the catalog does not
    /// answer.
    pub fn node_of(&self, name: &Name) -> Result<Option<String>, CatalogFailure> {
        let entry = self.catalog.get(&keys::name(&self.site, name), by())?;
        Ok(entry.and_then(|entry| keys::read_owner(&entry.value)))
    }

    /// Makes a name of this node free, or gives it to the node `to`. Changes nothing if the name belongs to another node.
    pub fn release(&self, name: &Name, to: Option<&str>) -> Result<(), CatalogFailure> {
        let key = keys::name(&self.site, name);
        let Some(entry) = self.catalog.get(&key, by())?.filter(|entry| self.is_own(entry)) else { return Ok(()) };
        let Some(to) = to else { return self.drop_entry(&entry) };
        let node = keys::node(&self.site, to);
        let Some((there, lease)) =
            self.catalog.get(&node, by())?.and_then(|there| Some((there.modified, there.lease?)))
        else {
            return self.drop_entry(&entry);
        };
        let commit = Commit::new().expect_at(&key, entry.modified).expect_at(&node, there);
        match self.catalog.commit(&commit.put(&key, &keys::owner(to), Some(lease)), by()) {
            Ok(done) if done.done => Ok(()),
            Ok(_) | Err(CatalogError::Unknown(_)) => Err(CatalogFailure::Failed(format!("the entry '{key}' changed"))),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the entry, unless it has changed.
    fn drop_entry(&self, entry: &Entry) -> Result<(), CatalogFailure> {
        let commit = Commit::new().expect_at(&entry.key, entry.modified).delete(&entry.key);
        for _ in 0..3 {
            match self.catalog.commit(&commit, by()) {
                Ok(_) => return Ok(()),
                // It is not known whether the commit was made, so it is repeated. If it was made, the entry is not as
                // expected any more, and the repeated commit does nothing.
                Err(CatalogError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CatalogFailure::Failed(format!("it is not known whether the entry '{}' was deleted", entry.key)))
    }

    /// Removes from the catalog this node's names that are not in `names`.
    pub fn release_all_but(&self, names: &[Name]) -> Result<(), CatalogFailure> {
        let wanted: BTreeSet<String> = names.iter().map(|name| keys::name(&self.site, name)).collect();
        for entry in self.catalog.list(&keys::names(&self.site), by())?.entries {
            if self.is_own(&entry) && !wanted.contains(&entry.key) && !self.is_coming(&entry)? {
                self.drop_entry(&entry)?;
            }
        }
        Ok(())
    }

    /// Tells whether the name came to this daemon together with an item of which the broker may not have heard yet.
    fn is_coming(&self, entry: &Entry) -> Result<bool, CatalogFailure> {
        let Some(item) = keys::read_item(&entry.value) else { return Ok(false) };
        let is = self.item_location(item)?;
        Ok(is.is_some_and(|is| is.node == self.node && is.daemon == self.token))
    }

    /// Ends the lease, which removes the node's entries. Called when the node leaves the site properly.
    pub fn leave(&self, joined: &NodeLease) {
        self.catalog.revoke(joined.lease, Deadline::after(Duration::from_millis(200))).ok();
    }
}

/// Makes the error for a node whose number in the catalog differs from the number in its ids. The daemon must not
/// continue with the new number, because another node could get the old number and give out the same ids.
fn other_number(former: u64, why: &str) -> CatalogFailure {
    CatalogFailure::Failed(format!(
        "this daemon's ids say that its node has number {former}, and {why}; end the daemon, remove its journal, and start it \
         anew"
    ))
}
