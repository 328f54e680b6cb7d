//! This host's part in the site's catalog, with two threads. One announces what this host's services do, and keeps the
//! lease of the announcements alive. The other follows what all hosts of the run announce.
//!
//! All entries of this host belong to one lease. What if the lease ends, for example because this host was cut off from
//! the catalog? The first thread gets another lease and announces everything again. What if this host dies? When the
//! time of its lease is over, the catalog removes this host's entries, and the other hosts see that the entries are
//! gone. While the catalog cannot be reached, hosts that know each other continue to exchange files. Only a host that
//! starts or dies during this time is not noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossdock_catalog::{Catalog, CatalogError, CatalogResult, Entry, EntryChange, Follower, LeaseId};
use crossdock_layout::files::Phase;
use crossdock_os::Deadline;

use super::announcement::{self, Announcement, HostRole};
use super::exchange::Directory;
use super::fetch::StopSignal;
use super::hosts::Hosts;

/// What the services of managed directories must know of the site in which the run takes place.
#[derive(Clone)]
pub struct Site {
    /// The site's catalog.
    pub catalog: Arc<dyn Catalog>,
    /// The name of the site.
    pub name: String,
    /// The name of the workflow.
    pub workflow: String,
    /// If a host does not keep its lease alive for this time, the catalog removes the host's entries.
    pub lease: Duration,
}

impl Site {
    /// The usual time of a lease. It is shorter than the time after which a run gives up a silent host, so that the
    /// consumers' logs can say what was lost with the host.
    pub const LEASE: Duration = Duration::from_secs(6);

    /// Asks the catalog what all hosts of the run announce about all managed directories: the name of the directory, the
    /// name of the host's node, and the announcement. Entries that cannot be read are left out.
    ///
    /// # Errors
    /// The catalog did not answer before the deadline.
    pub fn announced(&self, by: Deadline) -> CatalogResult<Vec<(String, String, Announcement)>> {
        let prefix = announcement::prefix(&self.name, &self.workflow);
        let read = |entry: Entry| {
            let (directory, node) = announcement::read_key(&prefix, &entry.key)?;
            Some((directory.to_owned(), node.to_owned(), Announcement::read(&entry.value).ok()?))
        };
        Ok(self.catalog.list(&prefix, by)?.entries.into_iter().filter_map(read).collect())
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("name", &self.name).field("workflow", &self.workflow).finish_non_exhaustive()
    }
}

/// How often this host compares its entries in the catalog with the present state of its services.
const TICK: Duration = Duration::from_millis(100);
/// The shortest time between two writes of an announcement of which only the counts have changed. If the phase of the
/// producers has changed, the announcement is written immediately.
const COUNTS: Duration = Duration::from_secs(1);
/// The longest time of one call to the catalog.
const CALL: Duration = Duration::from_secs(2);
/// The longest time of the call that ends the lease when the service ends.
const GOODBYE: Duration = Duration::from_millis(500);
/// If the catalog cannot be reached for this time, the tasks' logs say so.
const SILENT: Duration = Duration::from_secs(5);
/// If the catalog was never reached before, the tasks' logs say only after this time that it cannot be reached. The
/// process that keeps the catalog may need this long to start.
const COMING: Duration = Duration::from_secs(60);
/// How many entries that cannot be read are reported at most. All others that cannot be read are ignored without a
/// report.
const BAD_MOST: usize = 10;

/// The state that two threads share: the thread that announces what this host does, and the thread that follows the
/// catalog.
pub(super) struct Registry {
    pub site: Site,
    /// The name of this host's node.
    pub node: String,
    pub life: u64,
    /// Where other hosts reach this one; empty if no host fetches from it.
    pub address: String,
    pub directories: Arc<Vec<Directory>>,
    pub hosts: Arc<Hosts>,
    pub stop: Arc<StopSignal>,
    /// True after an entry of this host was written by another process.
    pub is_overwritten: AtomicBool,
}

/// The lease of this host, and what this host has announced under it.
struct Lease {
    id: LeaseId,
    /// The time just before the last call that got or renewed the lease.
    kept: Instant,
    /// For each directory, the last announcement, and when it was written.
    said: BTreeMap<String, (Announcement, Instant)>,
}

fn soon() -> Deadline {
    Deadline::after(CALL)
}

impl Registry {
    /// Runs the thread that announces what this host does.
    pub fn announce(&self) {
        let mut lease: Option<Lease> = None;
        let (mut silent, mut is_told, mut patience) = (None, false, COMING);
        let mut was_lost: Option<String> = None;
        loop {
            match self.keep_up(&mut lease) {
                Ok(()) => {
                    if let Some(why) = was_lost.take() {
                        self.trouble(&format!("this host has announced its files again, because {why}"));
                    }
                    (silent, is_told, patience) = (None, false, SILENT);
                }
                Err(CatalogError::NoLease) => {
                    lease = None;
                    was_lost = Some("its lease in the catalog had ended".to_owned());
                    continue;
                }
                Err(error) => {
                    let since: Instant = *silent.get_or_insert_with(Instant::now);
                    if since.elapsed() > patience && !std::mem::replace(&mut is_told, true) {
                        let what = "hosts that come or are lost meanwhile are not noticed";
                        self.trouble(&format!("{error}; {what}"));
                    }
                }
            }
            if self.stop.within(TICK) {
                break;
            }
        }
        if let Some(lease) = lease {
            // If this call fails, the catalog removes this host's entries when the time of the lease is over.
            let _ = self.site.catalog.revoke(lease.id, Deadline::after(GOODBYE));
        }
    }

    /// Gets a lease, keeps it alive, and writes the announcements that have changed.
    fn keep_up(&self, held: &mut Option<Lease>) -> Result<(), CatalogError> {
        let catalog = &self.site.catalog;
        let lease = match held {
            Some(lease) => lease,
            None => {
                let kept = Instant::now();
                let id = catalog.grant(self.site.lease, soon())?;
                held.insert(Lease { id, kept, said: BTreeMap::new() })
            }
        };
        if lease.kept.elapsed() >= self.site.lease / 4 {
            let began = Instant::now();
            catalog.keep_alive(lease.id, soon())?;
            lease.kept = began;
        }
        if self.is_overwritten.swap(false, Ordering::Relaxed) {
            lease.said.clear();
        }
        for directory in self.directories.iter() {
            let now = self.announcement(directory);
            let is_due = lease.said.get(&directory.name).is_none_or(|(said, at)| {
                let counts = Announcement { phase: said.phase, ..now.clone() };
                now.phase != said.phase || (counts != *said && at.elapsed() >= COUNTS)
            });
            if is_due {
                let key = announcement::key(&self.site.name, &self.site.workflow, &directory.name, &self.node);
                catalog.put(&key, &now.value(), Some(lease.id), soon())?;
                lease.said.insert(directory.name.clone(), (now, Instant::now()));
            }
        }
        Ok(())
    }

    fn announcement(&self, directory: &Directory) -> Announcement {
        let across = &directory.across;
        let state = directory.shared.state();
        let role = match (across.produces, across.consumes) {
            (true, true) => HostRole::Both,
            (true, false) => HostRole::Produces,
            (false, _) => HostRole::Consumes,
        };
        Announcement {
            life: self.life,
            role,
            phase: across.produces.then(|| state.own.unwrap_or(Phase::Coming)),
            published: state.report.published,
            bytes: state.report.bytes,
            torn: state.report.torn,
            fetched: state.report.fetched,
            address: self.address.clone(),
        }
    }

    /// Runs the thread that follows what all hosts announce.
    pub fn follow(&self) {
        let prefix = announcement::prefix(&self.site.name, &self.site.workflow);
        let mut follower = Follower::new(&prefix);
        let mut bad = BTreeSet::new();
        // If the catalog cannot be reached, this thread reports nothing: the thread that announces reports it.
        while !self.stop.within(Duration::ZERO) {
            let is_over = || self.stop.within(Duration::ZERO);
            match follower.next_until(&*self.site.catalog, Deadline::after(TICK), &is_over) {
                Ok(news) => news.iter().for_each(|news| self.take(&prefix, news, &mut bad)),
                Err(_) => drop(self.stop.within(TICK)),
            }
        }
    }

    fn take(&self, prefix: &str, news: &EntryChange, bad: &mut BTreeSet<String>) {
        let entry = news.entry();
        let Some((directory, node)) = announcement::read_key(prefix, &entry.key) else {
            self.is_bad(&entry.key, None, "its key names no directory and node", bad);
            return;
        };
        let is_own = node == self.node;
        // Two kinds of entries are ignored: those of a directory that no task of this host uses, and those of a host
        // that has no task of the directory.
        let is_about = |known: &&Directory| known.name == directory && (is_own || known.across.has(node));
        if !self.directories.iter().any(|known| is_about(&known)) {
            return;
        }
        match news {
            EntryChange::Put(entry) => match Announcement::read(&entry.value) {
                Ok(announced) if is_own && announced.life == self.life => {}
                Ok(_) | Err(_) if is_own => self.overwritten(directory, bad),
                Ok(announced) => self.hosts.learn(node, directory, &announced),
                Err(why) => self.is_bad(&entry.key, Some(directory), why, bad),
            },
            EntryChange::Gone(_) if is_own => {}
            EntryChange::Gone(_) => self.hosts.forget(node, directory),
        }
    }

    /// Handles an entry of this host that another process has written: announces everything again.
    fn overwritten(&self, directory: &str, bad: &mut BTreeSet<String>) {
        self.is_overwritten.store(true, Ordering::Relaxed);
        if bad.insert("own".to_owned()) {
            let what = "another process announces itself in the catalog as this host";
            self.trouble_of(directory, &format!("{what}, node {}; end that process", self.node));
        }
    }

    /// Reports an entry that is ignored because it cannot be read.
    fn is_bad(&self, key: &str, directory: Option<&str>, why: &str, bad: &mut BTreeSet<String>) {
        if bad.len() < BAD_MOST && bad.insert(key.to_owned()) {
            let text = format!("the catalog's entry '{key}' is ignored: {why}");
            match directory {
                Some(directory) => self.trouble_of(directory, &text),
                None => self.trouble(&text),
            }
        }
    }

    fn trouble_of(&self, directory: &str, text: &str) {
        for directory in self.directories.iter().filter(|known| known.name == directory) {
            directory.shared.state().trouble(text.to_owned());
        }
    }

    fn trouble(&self, text: &str) {
        self.directories.iter().for_each(|directory| directory.shared.state().trouble(text.to_owned()));
    }
}
