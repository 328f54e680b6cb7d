//! What this host knows of the other hosts: what they announce in the catalog, and the links to them.
//!
//! A link to a host is made when a thread first needs it, and stays. The link is replaced if the host announces another
//! address, or another start of its service. A host whose entry is gone keeps its link, because the host may be cut off
//! from the catalog and still reach this host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossdock_link::{Link, LinkOptions, Node, Transports};

use super::announcement::Announcement;

/// The other hosts that have announced themselves in the catalog, and the links to them.
pub(super) struct Hosts {
    transports: Transports,
    own: Node,
    known: Mutex<KnownHosts>,
}

#[derive(Default)]
struct KnownHosts {
    hosts: BTreeMap<String, Host>,
    is_over: bool,
}

#[derive(Default)]
struct Host {
    /// The address and the `life` (the number of the start of its service) that the host announced last.
    at: (String, u64),
    link: Option<Arc<Link>>,
    /// The directories for which the host has an entry in the catalog.
    announced: BTreeSet<String>,
}

/// Why there is no link to a host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoLink {
    /// There is no link, because the exchange of files on this host has ended.
    Over,
    /// There is no link at present, for the reason in this text.
    Because(String),
}

impl Hosts {
    pub fn new(transports: &Transports, own: Node) -> Self {
        Self { transports: transports.clone(), own, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, KnownHosts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a host announces.
    pub fn learn(&self, node: &str, directory: &str, announced: &Announcement) {
        let mut known = self.known();
        let host = known.hosts.entry(node.to_owned()).or_default();
        let at = (announced.address.clone(), announced.life);
        let former = if host.at == at { None } else { host.link.take() };
        host.at = at;
        host.announced.insert(directory.to_owned());
        drop(known);
        if let Some(former) = former {
            former.close();
        }
    }

    /// Notes that a host's entry for a directory is gone.
    pub fn forget(&self, node: &str, directory: &str) {
        if let Some(host) = self.known().hosts.get_mut(node) {
            host.announced.remove(directory);
        }
    }

    /// Tells whether the host has ever had an entry in the catalog.
    pub fn is_met(&self, node: &str) -> bool {
        self.known().hosts.contains_key(node)
    }

    /// Tells whether the host has had an entry, and has none for this directory now.
    pub fn is_gone(&self, node: &str, directory: &str) -> bool {
        self.known().hosts.get(node).is_some_and(|host| !host.announced.contains(directory))
    }

    /// Gives the time since the last message of the host arrived, if there is a link to the host.
    pub fn heard(&self, node: &str) -> Option<Duration> {
        let link = self.known().hosts.get(node)?.link.clone()?;
        link.seen().heard
    }

    /// Gives the link to a host.
    pub fn link(&self, node: &str) -> Result<Arc<Link>, NoLink> {
        let mut known = self.known();
        if known.is_over {
            return Err(NoLink::Over);
        }
        let because = |why: &str| NoLink::Because(why.to_owned());
        let host = known.hosts.get_mut(node).ok_or_else(|| because("the catalog has no entry of it yet"))?;
        if let Some(link) = &host.link {
            return Ok(link.clone());
        }
        if host.at.0.is_empty() {
            return Err(because("it announces no address"));
        }
        // This call only begins to connect, so the lock is not held for long.
        let dials = self.transports.dials();
        let link = Link::negotiate(dials, self.own.clone(), node, &host.at.0, LinkOptions::default());
        let link = Arc::new(link.map_err(|error| NoLink::Because(error.to_string()))?);
        host.link = Some(link.clone());
        Ok(link)
    }

    /// Closes all links. A waiting request or pull then ends immediately. If the peer is silent, it ends within
    /// seconds.
    pub fn close(&self) {
        let mut known = self.known();
        known.is_over = true;
        let links: Vec<_> = known.hosts.values_mut().filter_map(|host| host.link.take()).collect();
        drop(known);
        links.iter().for_each(|link| link.close());
    }
}
