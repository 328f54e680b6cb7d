//! The exchange of files with other hosts: this host's services report changes of their files to other hosts, and fetch
//! files from them. The hosts find each other through the site's catalog.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_layout::files::Phase;
use crossdock_link::{Error, LinkOptions, Node, Result, Server, Transports, bad_node_name};
use crossdock_os::child;

use super::change_log::ChangeLog;
use super::fetch::{Fetcher, Origin, StopSignal};
use super::hosts::Hosts;
use super::registry::{Registry, Site};
use super::serving::ServedDirectories;
use super::{Service, Shared};

/// What one host must know of the other hosts with which it exchanges the files of one managed directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteHosts {
    /// True if this host has producers.
    pub produces: bool,
    /// True if this host has consumers.
    pub consumes: bool,
    /// Nodes with consumers; they fetch what this host's producers publish.
    pub readers: Vec<String>,
    /// Nodes with producers; this host fetches what they publish, because it has consumers.
    pub origins: Vec<String>,
    /// How long the fetch of a file may wait until this host has room for the file, or until a failure has passed.
    pub wait: Duration,
    /// The path at which consumers of this host see the directory.
    pub path: String,
}

impl RemoteHosts {
    /// Tells whether a node other than this host has producers or consumers of the directory.
    pub(super) fn has(&self, node: &str) -> bool {
        self.readers.iter().chain(&self.origins).any(|other| other == node)
    }
}

/// The exchange of one host: it reports changes of the host's files to other hosts, and fetches files from them.
/// Dropping the exchange ends the fetches and removes this host's entries from the catalog.
pub struct Exchange {
    own: Node,
    directories: Arc<Vec<Directory>>,
    server: Option<Server>,
    hosts: Arc<Hosts>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<StopSignal>,
}

/// A managed directory that is shared with other hosts.
pub(super) struct Directory {
    pub name: String,
    pub shared: Arc<Shared>,
    pub across: RemoteHosts,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("own", &self.own).field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Starts the exchange of this host, whose node is `own`, and announces the exchange in the catalog of `site`. The
    /// exchange listens at `address` if another host fetches files from this host. The exchange begins to fetch from
    /// each host with producers as soon as that host has an entry in the catalog. The call does not wait for the
    /// catalog.
    ///
    /// # Errors
    /// `own` cannot be the name of a node, the published files cannot be listed, the exchange cannot listen at
    /// `address`, or no thread can be started.
    pub fn start(
        transports: &Transports,
        own: &str,
        address: &str,
        site: &Site,
        directories: &[(&str, &Service, &RemoteHosts)],
    ) -> Result<Self> {
        if let Some(why) = bad_node_name(own) {
            return Err(Error::new(Status::Invalid, "start", format!("'{own}' is no name of a node: {why}")));
        }
        let random = child::random().map_err(|error| Error::new(Status::System, "start", error.to_string()))?;
        let own = Node { name: own.to_owned(), incarnation: u64::from_le_bytes(random).max(1) };
        let mut all = Vec::new();
        for (name, service, across) in directories {
            let shared = service.shared.share(across, own.incarnation);
            shared.map_err(|error| Error::new(Status::System, "list published files", error.to_string()))?;
            all.push(Directory { name: (*name).to_owned(), shared: service.shared.clone(), across: (*across).clone() });
        }
        let server = if all.iter().any(|directory| !directory.across.readers.is_empty()) {
            let directories = all.iter().map(|d| (d.name.clone(), d.shared.clone())).collect();
            let served = ServedDirectories { directories, asked: AtomicUsize::new(0) };
            let accept = transports.listen(address)?;
            Some(Server::start(accept, own.clone(), Arc::new(served), LinkOptions::default())?)
        } else {
            None
        };
        let hosts = Arc::new(Hosts::new(transports, own.clone()));
        let (threads, stop) = (Vec::new(), Arc::default());
        let mut exchange = Self { own, directories: Arc::new(all), server, hosts, threads, stop };
        exchange.register(site)?;
        exchange.fetch()?;
        Ok(exchange)
    }

    /// Gives the address where other hosts reach this one; empty if no host fetches from it.
    #[must_use]
    pub fn address(&self) -> &str {
        self.server.as_ref().map_or("", Server::address)
    }

    /// Starts the two threads that use the catalog.
    fn register(&mut self, site: &Site) -> Result<()> {
        let registry = Arc::new(Registry {
            site: site.clone(),
            node: self.own.name.clone(),
            life: self.own.incarnation,
            address: self.address().to_owned(),
            directories: self.directories.clone(),
            hosts: self.hosts.clone(),
            stop: self.stop.clone(),
            is_overwritten: AtomicBool::new(false),
        });
        let other = registry.clone();
        self.spawn("crossdock-lease", move || registry.announce())?;
        self.spawn("crossdock-hosts", move || other.follow())
    }

    /// For each directory, starts one thread for each host from which this host fetches files of the directory.
    fn fetch(&mut self) -> Result<()> {
        for directory in self.directories.clone().iter() {
            for (origin, node) in directory.across.origins.iter().enumerate() {
                let fetcher = Fetcher {
                    shared: directory.shared.clone(),
                    directory: directory.name.clone(),
                    origin,
                    node: node.clone(),
                    hosts: self.hosts.clone(),
                    stop: self.stop.clone(),
                    wait: directory.across.wait,
                    backlog: Mutex::default(),
                    retold: AtomicU64::new(0),
                    changed: Condvar::new(),
                };
                self.spawn("crossdock-fetch", move || fetcher.run())?;
            }
        }
        Ok(())
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::new(Status::System, "start a thread", error.to_string()))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.stop.set();
        self.hosts.close();
        for thread in self.threads.drain(..) {
            // If the thread panicked, its panic message has been printed already.
            let _ = thread.join();
        }
        for directory in self.directories.iter() {
            directory.shared.unshare();
        }
    }
}

impl Shared {
    /// Tells the service which other hosts have tasks that use the directory.
    ///
    /// # Errors
    /// The files that an earlier service has published cannot be listed.
    pub(super) fn share(&self, across: &RemoteHosts, life: u64) -> io::Result<()> {
        let mut state = self.state();
        state.life = life;
        state.seen_at = vec![across.path.clone(), state.store.layout.published.display().to_string()];
        state.ledger = ChangeLog::of(&across.readers);
        state.own = across.produces.then_some(Phase::Coming);
        let origin = |node: &String| Origin { node: node.clone(), phase: Phase::Coming, torn: 0, silent: None };
        state.origins = across.origins.iter().map(origin).collect();
        if state.ledger.readers() > 0 {
            // All consumers of this host have read the files in `consumed`, but the other hosts have not fetched these
            // files. So the service must not drop these files yet.
            state.consumed.clear();
            state.note_all(std::path::Path::new(""))?;
        }
        Ok(())
    }

    /// Refuses the requests of other hosts from now on, because the exchange has ended. Requests that wait for changes
    /// are refused immediately.
    fn unshare(&self) {
        let mut state = self.state();
        state.ledger = ChangeLog::default();
        state.held.clear();
        drop(state);
        self.news.notify_all();
    }
}
