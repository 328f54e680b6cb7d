//! The exchange of files with other hosts: the changes that this host's services report, and the files that they fetch.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_layout::files::Phase;
use crossdock_link::{Error, Link, LinkOptions, Node, Result, Server, Transports};
use crossdock_os::child;

use super::fetch::{Fetcher, Origin, Stop};
use super::ledger::Ledger;
use super::news::Served;
use super::{Service, Shared};

/// The other hosts of a managed directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Across {
    /// True if this host has producers.
    pub produces: bool,
    /// Nodes with consumers; they fetch what this host's producers publish.
    pub readers: Vec<String>,
    /// Nodes with producers; this host fetches what they publish, because it has consumers.
    pub origins: Vec<String>,
    /// How long a fetched file may wait until this host has room for it.
    pub wait: Duration,
    /// The path at which consumers of this host see the directory.
    pub path: String,
}

/// The exchange of one host. Dropping it ends the fetches.
pub struct Exchange {
    transports: Transports,
    own: Node,
    directories: Vec<Directory>,
    server: Option<Server>,
    links: BTreeMap<String, Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<Stop>,
}

struct Directory {
    name: String,
    shared: Arc<Shared>,
    across: Across,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("own", &self.own).field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Starts the exchange of the node `own`. The exchange listens at `address` if another host fetches files from this
    /// host.
    ///
    /// # Errors
    /// The exchange cannot listen at `address`.
    pub fn start(
        transports: &Transports,
        own: &str,
        address: &str,
        directories: &[(&str, &Service, &Across)],
    ) -> Result<Self> {
        let random = child::random().map_err(|error| Error::new(Status::System, "start", error.to_string()))?;
        let own = Node { name: own.to_owned(), incarnation: u64::from_le_bytes(random) };
        let mut all = Vec::new();
        for (name, service, across) in directories {
            service.shared.share(across, own.incarnation);
            all.push(Directory { name: (*name).to_owned(), shared: service.shared.clone(), across: (*across).clone() });
        }
        let server = if all.iter().any(|directory| !directory.across.readers.is_empty()) {
            let directories = all.iter().map(|d| (d.name.clone(), d.shared.clone())).collect();
            let served = Served { directories, asked: AtomicUsize::new(0) };
            let accept = transports.listen(address)?;
            Some(Server::start(accept, own.clone(), Arc::new(served), LinkOptions::default())?)
        } else {
            None
        };
        let (links, threads, stop) = (BTreeMap::new(), Vec::new(), Arc::default());
        Ok(Self { transports: transports.clone(), own, directories: all, server, links, threads, stop })
    }

    /// Gives the address where other hosts reach this one; empty if no host fetches from it.
    #[must_use]
    pub fn address(&self) -> &str {
        self.server.as_ref().map_or("", Server::address)
    }

    /// Begins to fetch. `addresses` maps the name of each node with producers to its address.
    ///
    /// # Errors
    /// A node with producers has no address, or no thread can be started.
    pub fn meet(&mut self, addresses: &BTreeMap<String, String>) -> Result<()> {
        for directory in &self.directories {
            for (origin, node) in directory.across.origins.iter().enumerate() {
                let tried = || format!("fetch files of `{}` from node '{node}'", directory.name);
                let Some(address) = addresses.get(node).filter(|address| !address.is_empty()) else {
                    return Err(Error::new(Status::NotFound, tried(), "it has told no address"));
                };
                let link = match self.links.get(node) {
                    Some(link) => link.clone(),
                    None => {
                        let (own, dials) = (self.own.clone(), self.transports.dials());
                        let link = Link::negotiate(dials, own, node, address, LinkOptions::default())?;
                        self.links.entry(node.clone()).or_insert(Arc::new(link)).clone()
                    }
                };
                let fetcher = Fetcher {
                    shared: directory.shared.clone(),
                    directory: directory.name.clone(),
                    origin,
                    link,
                    stop: self.stop.clone(),
                    wait: directory.across.wait,
                    backlog: Mutex::default(),
                    changed: Condvar::new(),
                };
                let thread = std::thread::Builder::new().name("crossdock-fetch".into());
                let started = thread.spawn(move || fetcher.run());
                self.threads.push(started.map_err(|e| Error::new(Status::System, tried(), e.to_string()))?);
            }
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.stop.set();
        // Closing a link ends its requests and pulls at once, or within seconds if the peer is silent.
        self.links.values().for_each(|link| link.close());
        for thread in self.threads.drain(..) {
            // If the thread panicked, its panic message has been printed already.
            let _ = thread.join();
        }
        for directory in &self.directories {
            directory.shared.unshare();
        }
    }
}

impl Shared {
    /// Tells the service which other hosts the directory has.
    fn share(&self, across: &Across, life: u64) {
        let mut state = self.state();
        state.life = life;
        state.seen_at = vec![across.path.clone(), state.store.layout.published.display().to_string()];
        state.ledger = Ledger::of(&across.readers);
        state.own = across.produces.then_some(Phase::Coming);
        let origin = |node: &String| Origin { node: node.clone(), phase: Phase::Coming, torn: 0 };
        state.origins = across.origins.iter().map(origin).collect();
        if state.ledger.readers() > 0 {
            state.note_all(std::path::Path::new(""));
        }
    }

    /// From now on, answers the requests of other hosts at once, because the exchange has ended.
    fn unshare(&self) {
        let mut state = self.state();
        state.ledger = Ledger::default();
        state.held.clear();
        drop(state);
        self.told.notify_all();
    }
}
