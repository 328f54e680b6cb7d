//! etcd: three members of Debian's etcd, and plain puts by etcd's own client.

#[path = "../../../../crates/catalog/tests/members/mod.rs"]
#[expect(dead_code, reason = "the tests also stop members")]
mod members;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_catalog::Catalog;
use crossdock_catalog::etcd::{Etcd, EtcdOptions};
use etcd_client::Client;
use tokio::runtime::Runtime;

use crate::Nodes;
use crate::watch::{SITE, name};

/// The number of callers that share one connection. etcd's own program `benchmark` is used in the same way.
const SHARED: usize = 10;

/// Three members of etcd. They end when this value is dropped.
pub struct Cluster {
    members: members::Cluster,
    clients: AtomicUsize,
}

impl Cluster {
    pub fn start() -> Self {
        Self { members: members::Cluster::start(), clients: AtomicUsize::new(0) }
    }

    fn urls(&self) -> Vec<String> {
        (0..3).map(|member| self.members.url(member)).collect()
    }

    /// Gives the value of a daemon's option `--catalog` that names these members of etcd.
    pub fn option(&self) -> String {
        format!("etcd:{}", self.urls().join(","))
    }

    /// Makes a client of the catalog, as the daemon of another node would make it.
    pub fn client(&self) -> Arc<dyn Catalog> {
        let name = format!("n{}", self.clients.fetch_add(1, Ordering::Relaxed));
        let options = EtcdOptions { members: self.urls(), name, ..EtcdOptions::default() };
        Arc::new(Etcd::new(&options).expect("a client of etcd"))
    }
}

/// Callers that only set keys in etcd, without conditions, leases and watches. Setting keys is the least work for the
/// same effect, so the figures of these callers are the floor with which the site's catalog in etcd is compared.
pub struct Puts {
    runtime: Runtime,
    clients: Vec<Client>,
    lanes: usize,
}

impl Puts {
    pub fn new(cluster: &Cluster, lanes: usize) -> Self {
        let runtime = Runtime::new().expect("threads");
        let urls = cluster.urls();
        // Each client asks one member of etcd's cluster, as a daemon's client of the catalog does.
        let connect = |lane: usize| {
            let member = &urls[lane % urls.len()];
            runtime.block_on(Client::connect([member], None)).expect("etcd answers")
        };
        let clients = (0..lanes.div_ceil(SHARED)).map(connect).collect();
        Self { runtime, clients, lanes }
    }
}

impl Nodes for Puts {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn register(&self, lane: usize, number: usize) {
        let mut client = self.clients[lane % self.clients.len()].clone();
        // The key's prefix differs from the prefix of the site's keys, so no node's watch reports this key.
        let key = format!("puts/{SITE}name/item/1/w/{}", name(number));
        self.runtime.block_on(client.put(key, "1 sim1000", None)).expect("etcd answers");
    }
}
