//! The catalog of a site: which node has what, and where.
//!
//! One trait, [`Catalog`], with three implementations that pass one list of tests (`tests/conformance`):
//! - [`Memory`]: in this process, with a clock that is set by hand and with injected faults. For simulations.
//! - [`embedded`]: one daemon of the site keeps it in a journal, and the others ask that daemon by TCP. Nothing has to
//!   be installed.
//! - `etcd` (feature `etcd`): for sites that must survive the loss of any node.
//!
//! A catalog maps keys to small values. Every change has a [`Revision`] that only grows. An entry can hang on a lease:
//! if the holder does not keep the lease alive for the lease's time, the entry is deleted. A [`Watch`] reports every
//! change from a revision on. A [`Commit`] makes several changes at once if its conditions hold.
//!
//! Every call has a deadline. A change whose answer did not arrive in time fails with [`CatalogError::Unknown`]: it may
//! have been made. [`Follower`] keeps a copy of all entries below a prefix up to date, through lost connections and
//! compactions.

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
pub use follower::{Follower, News};
pub use memory::{Clock, Faults, Memory};

/// Longest key in bytes.
pub const KEY_MAX: usize = 512;
/// Longest value in bytes. Values are locations and states, never lists of segments.
pub const VALUE_MAX: usize = 4096;
/// Most expectations, and most operations, of one commit.
pub const COMMIT_MAX: usize = 64;
/// The shortest time of a lease. Shorter ones are made this long.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// What every call gives.
pub type CatalogResult<T> = Result<T, CatalogError>;

/// The catalog of a site. Calls block until they are answered or their deadline has passed.
pub trait Catalog: Send + Sync {
    /// Makes several changes at once if all conditions hold, and none otherwise.
    fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed>;

    /// The entry of this key.
    fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>>;

    /// All entries whose keys begin with `prefix`, in the keys' order, as they were at one revision.
    fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing>;

    /// Grants a new lease. Its entries are deleted if it is not kept alive for `time`.
    fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId>;

    /// Starts the lease's time anew. [`CatalogError::NoLease`] if the lease is gone already.
    fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()>;

    /// Ends the lease, and deletes its entries.
    fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()>;

    /// Changes of keys that begin with `prefix`, from the revision `from` on (that one included).
    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>>;

    /// Sets the value of a key. Repeating the call does no harm, so it is repeated after a lost answer.
    fn put(&self, key: &str, value: &[u8], lease: Option<LeaseId>, by: Deadline) -> CatalogResult<Revision> {
        let commit = Commit::new().put(key, value, lease);
        retry(by, || self.commit(&commit, by)).map(|done| done.revision)
    }

    /// Deletes a key, if it exists.
    fn delete(&self, key: &str, by: Deadline) -> CatalogResult<()> {
        let commit = Commit::new().delete(key);
        retry(by, || self.commit(&commit, by)).map(drop)
    }

    /// Makes the entry if the key is free. Otherwise the inner `Err(entry)` is the existing entry.
    ///
    /// The value must differ from what any other caller would put there, or hang on a lease of this caller alone: after
    /// a lost answer, an entry with the same value and lease counts as made by this call.
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

/// Repeats a call while its answer is lost and there is time. Only for calls that may be made twice.
fn retry<T>(by: Deadline, mut call: impl FnMut() -> CatalogResult<T>) -> CatalogResult<T> {
    loop {
        match call() {
            Err(CatalogError::Unknown(_)) if !by.passed() => {}
            done => return done,
        }
    }
}

/// The changes below a prefix.
pub trait Watch: Send {
    /// The next changes, the oldest first. All changes of one revision come together. None if there were none before
    /// the deadline.
    ///
    /// # Errors
    /// [`CatalogError::Compacted`]: changes were forgotten before they were read; list again and watch from there.
    /// Other errors are temporary: the next call continues where the watch was.
    fn next(&mut self, by: Deadline) -> CatalogResult<Vec<Event>>;
}
