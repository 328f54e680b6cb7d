//! The catalog of a site, in which the nodes record which node has which name.
//!
//! The trait [`Catalog`] has three implementations. All pass the same tests (`tests/conformance`):
//! - [`Memory`]: a catalog in this process, for simulations. A test can set the catalog's clock by hand and can make
//!   calls fail.
//! - [`embedded`]: one daemon of the site keeps the catalog in a journal, and the other daemons ask it over TCP.
//!   Nothing has to be installed for it.
//! - `etcd` (feature `etcd`): for sites that must survive the loss of any node.
//!
//! A catalog maps keys to small values. Every change has a [`Revision`], a number that only grows. An entry can belong
//! to a lease: if the holder does not keep the lease alive, the entry is deleted after the lease's time. A [`Watch`]
//! reports every change from a revision on. A [`Commit`] makes several changes together if its conditions hold.
//!
//! Every call has a deadline. A change whose answer did not arrive in time fails with [`CatalogError::Unknown`],
//! because it may have been made. [`Follower`] keeps a copy of all entries below a prefix up to date, even if
//! connections are lost or the catalog forgets changes.

mod codec;
pub mod embedded;
mod entry;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod follower;
mod memory;
mod store;

use std::time::Duration;

use crossdock_os::Deadline;

pub use entry::{Commit, Committed, Entry, Event, Expect, LeaseId, Listing, Operation, Revision};
pub use error::CatalogError;
pub use follower::{EntryChange, Follower};
pub use memory::{Clock, Faults, Memory};

/// The longest key, in bytes.
pub const KEY_MAX: usize = 512;
/// The longest value, in bytes. Values are short: the location or the state of a name, never a list of segments.
pub const VALUE_MAX: usize = 4096;
/// The maximum number of conditions, and of operations, in one commit.
pub const COMMIT_MAX: usize = 64;
/// The minimum time of a lease. A lease that is requested with a shorter time gets this time.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// The result of every call to a catalog.
pub type CatalogResult<T> = Result<T, CatalogError>;

/// Tells whether a call must end early, because its caller is ending and will not use the result.
pub type IsOver<'a> = &'a dyn Fn() -> bool;

/// The catalog of a site. Calls block until they are answered or their deadline has passed.
pub trait Catalog: Send + Sync {
    /// Makes all changes of the commit together if all its conditions hold. If one condition does not hold, makes no
    /// change.
    fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed>;

    /// Returns the entry with this key, or `None` if no entry has it.
    fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>>;

    /// Gives all entries whose keys begin with `prefix`, in the keys' order, as they were at one revision.
    fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing>;

    /// Like [`Self::list`], but fails soon after `is_over` begins to return true. A catalog whose calls do not wait
    /// ignores `is_over`.
    fn list_until(&self, prefix: &str, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<Listing> {
        let _ = is_over;
        self.list(prefix, by)
    }

    /// Grants a new lease. If the holder does not keep the lease alive, the lease ends after `time`, and its entries
    /// are deleted.
    fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId>;

    /// Restarts the time of a lease. Fails with [`CatalogError::NoLease`] if the lease has ended already.
    fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()>;

    /// Ends the lease, and deletes its entries.
    fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()>;

    /// Begins a watch, which reports the changes of keys that begin with `prefix`. The first reported change is the
    /// first one with a revision of at least `from`.
    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>>;

    /// Sets the value of a key. If the answer is lost, the call is repeated, because setting a value twice does no
    /// harm.
    fn put(&self, key: &str, value: &[u8], lease: Option<LeaseId>, by: Deadline) -> CatalogResult<Revision> {
        let commit = Commit::new().put(key, value, lease);
        retry(by, || self.commit(&commit, by)).map(|done| done.revision)
    }

    /// Deletes a key, if it exists.
    fn delete(&self, key: &str, by: Deadline) -> CatalogResult<()> {
        let commit = Commit::new().delete(key);
        retry(by, || self.commit(&commit, by)).map(drop)
    }

    /// Makes the entry if no entry has the key. Otherwise the inner `Err(entry)` is the existing entry.
    ///
    /// If an answer was lost, an existing entry with the same value and lease counts as made by this call. So the
    /// caller must use a value or a lease that no other caller uses.
    fn create(
        &self,
        key: &str,
        value: &[u8],
        lease: Option<LeaseId>,
        by: Deadline,
    ) -> CatalogResult<Result<Revision, Entry>> {
        let commit = Commit::new().expect_free(key).put(key, value, lease);
        let mut lost = false;
        let done = retry(by, || {
            let done = self.commit(&commit, by);
            lost |= matches!(done, Err(CatalogError::Unknown(_)));
            done
        })?;
        if done.done {
            return Ok(Ok(done.revision));
        }
        match done.found.into_iter().next().flatten() {
            Some(entry) if lost && entry.value == value && entry.lease == lease => Ok(Ok(entry.modified)),
            Some(entry) => Ok(Err(entry)),
            None => Err(CatalogError::Broken("a commit failed, and the key it expected to be free is free".into())),
        }
    }
}

/// Repeats a call until its answer arrives or the deadline has passed. The call must do no harm if it is made twice.
fn retry<T>(by: Deadline, mut call: impl FnMut() -> CatalogResult<T>) -> CatalogResult<T> {
    loop {
        match call() {
            Err(CatalogError::Unknown(_)) if !by.passed() => {}
            done => return done,
        }
    }
}

/// Reports the changes below a prefix, one after another.
pub trait Watch: Send {
    /// Waits for changes until the deadline, and returns them, the oldest first. All changes of one revision come
    /// together. The list is empty if nothing changed before the deadline. If the watch has no connection, the call
    /// first connects. Connecting may take some seconds beyond the deadline. If an attempt to connect were ended at the
    /// deadline, the next call would have to connect from the beginning.
    ///
    /// # Errors
    /// [`CatalogError::Compacted`] if the catalog forgot changes before this watch read them. The caller must list the
    /// entries again and begin a new watch from the revision of that list. After any other error, the next call reports
    /// the changes that this call did not report.
    fn next(&mut self, by: Deadline) -> CatalogResult<Vec<Event>>;

    /// Like [`Self::next`], but stops connecting soon after `is_over` begins to return true. A watch that needs no
    /// connection ignores `is_over`.
    ///
    /// # Errors
    /// As for [`Self::next`].
    fn next_until(&mut self, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<Vec<Event>> {
        let _ = is_over;
        self.next(by)
    }
}
