//! A node's client of the catalog. Some of its commits arrive long after their caller has given up.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use crossdock_catalog::{
    Catalog, CatalogError, CatalogResult, Commit, Committed, Entry, Expect, LeaseId, Listing, Memory, Revision, Watch,
};
use crossdock_os::Deadline;

use super::Planted;

pub struct Handle {
    pub memory: Arc<Memory>,
    pub planted: Planted,
    /// Whether the next commit gets no answer and arrives later.
    pub delay: Mutex<bool>,
    pub late: Mutex<Vec<Commit>>,
}

impl Handle {
    pub fn arrive(&self) {
        for commit in self.late.lock().unwrap().drain(..) {
            self.memory.client().commit(&commit, Deadline::after(Duration::ZERO)).ok();
        }
    }
}

impl Catalog for Handle {
    fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed> {
        let mut commit = commit.clone();
        if self.planted == Planted::MissingFence {
            let is_fence = |expect: &Expect| expect.key().contains("/name/") || expect.key().contains("/owner/");
            commit.expect.retain(|expect| !is_fence(expect));
        }
        if std::mem::take(&mut *self.delay.lock().unwrap()) {
            self.late.lock().unwrap().push(commit);
            return Err(CatalogError::Unknown("it is late".into()));
        }
        self.memory.commit(&commit, by)
    }

    fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>> {
        self.memory.get(key, by)
    }

    fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing> {
        self.memory.list(prefix, by)
    }

    fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId> {
        self.memory.grant(time, by)
    }

    fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.memory.keep_alive(lease, by)
    }

    fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.memory.revoke(lease, by)
    }

    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
        self.memory.watch(prefix, from)
    }
}
