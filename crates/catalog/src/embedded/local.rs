//! The client of the catalog in the keeper's own process, which calls the keeper without a connection.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crossdock_os::Deadline;

use super::keeper::Shared;
use super::message::{Answer, Request};
use super::watchers::Watcher;
use crate::entry::{check_key, check_prefix};
use crate::{Catalog, CatalogError, CatalogResult, Commit, Committed, Entry, Event, LeaseId, Listing, Revision, Watch};

/// A client of the keeper in the same process. If the keeper was dropped, the client's calls fail with `Unreachable`.
pub struct Local(pub(super) Weak<Shared>);

fn reach(keeper: &Weak<Shared>) -> CatalogResult<Arc<Shared>> {
    let shared = keeper.upgrade().filter(|shared| !shared.stops());
    shared.ok_or_else(|| CatalogError::Unreachable("its keeper has stopped".into()))
}

impl Local {
    fn ask<T>(&self, request: Request, pick: impl Fn(Answer) -> Option<T>) -> CatalogResult<T> {
        let answer = reach(&self.0)?.answer(request)?;
        pick(answer).ok_or_else(|| CatalogError::Broken("the keeper answered another question".into()))
    }
}

impl Catalog for Local {
    fn commit(&self, commit: &Commit, _: Deadline) -> CatalogResult<Committed> {
        commit.check()?;
        self.ask(Request::Commit(commit.clone()), Answer::committed)
    }

    fn get(&self, key: &str, _: Deadline) -> CatalogResult<Option<Entry>> {
        check_key(key)?;
        self.ask(Request::Get { key: key.to_owned() }, Answer::entry)
    }

    fn list(&self, prefix: &str, _: Deadline) -> CatalogResult<Listing> {
        reach(&self.0)?.list(prefix)
    }

    fn grant(&self, time: Duration, _: Deadline) -> CatalogResult<LeaseId> {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.ask(Request::Grant { time_ms }, Answer::granted)
    }

    fn keep_alive(&self, lease: LeaseId, _: Deadline) -> CatalogResult<()> {
        self.ask(Request::KeepAlive { lease }, Answer::done)
    }

    fn revoke(&self, lease: LeaseId, _: Deadline) -> CatalogResult<()> {
        self.ask(Request::Revoke { lease }, Answer::done)
    }

    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
        check_prefix(prefix)?;
        let interest = reach(&self.0)?.interest(prefix);
        Ok(Box::new(LocalWatch { keeper: self.0.clone(), interest, next: from }))
    }
}

struct LocalWatch {
    keeper: Weak<Shared>,
    interest: Watcher,
    next: Revision,
}

impl Watch for LocalWatch {
    fn next(&mut self, by: Deadline) -> CatalogResult<Vec<Event>> {
        let (changes, upto) = reach(&self.keeper)?.changes(&self.interest, self.next, by)?;
        self.next = self.next.max(upto + 1);
        Ok(changes.iter().map(|change| change.event.clone()).collect())
    }
}
