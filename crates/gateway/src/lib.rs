//! The gateway: a daemon's part in its site. It reaches the catalog and the other nodes.
//!
//! A [`Gateway`] owns the node's identity in the catalog: the node's name, its number, and the lease to which all its
//! entries belong. It has two threads. One thread keeps the lease alive and carries out [`GatewayRequest`]s; the other
//! watches the catalog's entries of all nodes. [`Nodes`] has the links to the other nodes, and a thread that measures
//! them. The daemon gets all results as [`GatewayEvent`]s, the oldest first. A descriptor ([`Gateway::bell`]) is
//! readable while events are waiting.
//!
//! **Identity.** A node's name belongs to one daemon at a time: a daemon makes the name's entry only if the name is
//! free. The node's number belongs permanently to the name, so no other node ever gives out ids with this number. A
//! daemon whose broker was restarted recognises its own entry by a token, and continues with the same lease.
//!
//! **Lease.** If the lease could not be kept alive for four fifths of its time, the gateway reports
//! [`GatewayEvent::CutOff`]. At that moment the catalog still has the node's entries. From then on the gateway claims
//! no name until it has a lease again ([`GatewayEvent::Joined`]). The daemon then sends the request
//! [`GatewayRequest::Announce`] with all names that it has. If another node has claimed one of these names in the
//! meantime, the name continues to belong to that node ([`GatewayEvent::Contested`]).

mod catalog_address;
mod fuzz;
mod item_entries;
mod item_location;
mod keys;
mod member;
mod node_record;
mod nodes;
mod options;
#[doc(hidden)]
pub mod simulated;
mod streams;
mod worker;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossdock_link::{Node, Serve, Transports};
use crossdock_os::spawn::inherited;
use crossdock_os::{clock, event};

pub use catalog_address::{CatalogAddress, CatalogOptions, SiteCatalog};
#[doc(hidden)]
pub use fuzz::fuzz_entry;
pub use item_location::ItemLocation;
pub use keys::Name;
use member::{Member, NodeLease};
pub use node_record::NodeRecord;
pub use nodes::{ECHO, Nodes};
pub use options::{GatewayOptions, bad_site_name};

/// A request of the daemon to the gateway, about the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayRequest {
    /// Claim this name for this node. The answer is [`GatewayEvent::Claimed`].
    Claim(Name),
    /// Make this name free again.
    Release(Name),
    /// Give a name back to the node `to`, from which this node has taken it. If the node `to` has no lease, the name
    /// becomes free.
    GiveBack {
        /// The name.
        name: Name,
        /// The node that had the name before this node took it.
        to: String,
    },
    /// Tell the catalog, after [`GatewayEvent::Joined`], that this node has exactly these names.
    Announce(Vec<Name>),
    /// Move a name from the node `from` to this node. The node `from` has agreed. The answer is [`GatewayEvent::Claimed`].
    Take {
        /// The name that moves to this node.
        name: Name,
        /// The node that has the name before the move.
        from: String,
    },
    /// Give the item and its name to another node. The answer [`GatewayEvent::Passed`] comes when the outcome is
    /// certain.
    Pass {
        /// The item's name.
        name: Name,
        /// The next node, and the epoch (the count of the item's moves) that the item has after this move.
        to: ItemLocation,
    },
    /// Change the description in the catalog's entry of an item that this node owns.
    Describe(ItemLocation),
    /// Remove the entry of an item that no longer exists, if this node owned the item in this epoch. The answer is the
    /// entry that the catalog has afterwards: [`GatewayEvent::Item`] or [`GatewayEvent::NoItem`].
    Forget {
        /// The item's id.
        item: u64,
        /// The epoch (the count of the item's moves) in which this node owned the item.
        epoch: u64,
    },
    /// Ask the catalog which node has a name. The answer is [`GatewayEvent::Found`].
    Find(Name),
    /// Ask for the catalog's entry of an item. The answer is [`GatewayEvent::Item`] or [`GatewayEvent::NoItem`].
    Look {
        /// The item's id.
        item: u64,
    },
}

/// A report of the gateway to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayEvent {
    /// The node has a lease, and the catalog has given the node its number.
    Joined {
        /// The node's number, from 1 to [`node_record::NUMBERS`].
        number: u64,
    },
    /// The lease was renewed, so the catalog can be reached.
    Synced,
    /// The node has no lease, or its lease may end at any moment.
    CutOff {
        /// The reason, as text.
        why: String,
    },
    /// The answer to [`GatewayRequest::Claim`].
    Claimed {
        /// The claimed name.
        name: Name,
        /// Whether the name belongs to this node now, or to another node, or why this is not known.
        outcome: Claimed,
    },
    /// A name that was announced belongs to this node.
    Announced {
        /// The name.
        name: Name,
    },
    /// A name that was announced belongs to another node.
    Contested {
        /// The name that another node has.
        name: Name,
        /// The node that has the name.
        place: NodeRecord,
    },
    /// A node has an entry in the catalog. The gateway also reports the entry of its own node.
    Node(NodeRecord),
    /// A node's entry is no longer in the catalog.
    NodeGone {
        /// The node's name.
        node: String,
    },
    /// A name belongs to a node. The gateway also reports the names of its own node.
    Named {
        /// The name that belongs to the node.
        name: Name,
        /// The node's name.
        node: String,
    },
    /// A name belongs to no node any more.
    Unnamed {
        /// The name that is free now.
        name: Name,
    },
    /// The answer to [`GatewayRequest::Find`].
    Found {
        /// The name that the request asked about.
        name: Name,
        /// The node that has the name, possibly this one; `None` if no node has it. The error says why the catalog could
        /// not be asked.
        outcome: Result<Option<String>, String>,
    },
    /// The answer to [`GatewayRequest::Pass`].
    Passed {
        /// The item's id.
        item: u64,
        /// The epoch (the count of the item's moves) that the request gave.
        epoch: u64,
        /// `Ok`: the item belongs to the next node. The error says why the item still belongs to this node.
        outcome: Result<(), String>,
    },
    /// The catalog's entry of an item.
    Item(ItemLocation),
    /// The catalog has no entry of this item.
    NoItem {
        /// The item's id.
        item: u64,
    },
    /// The state of each link that this daemon has opened.
    Links(Vec<LinkReport>),
}

/// The state of a link to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// The node's name.
    pub node: String,
    /// The name of the transport that carries the bytes.
    pub transport: String,
    /// The time since the last message from the node on this link. `None` if there was none.
    pub heard: Option<Duration>,
    /// The time from a request to its answer at the last measurement.
    pub round_trip: Option<Duration>,
    /// Without a connection: the reason why there is none. With a connection: the reason why no better transport is
    /// used.
    pub why: String,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The name belongs to this node.
    Ours,
    /// The name belongs to this other node.
    Theirs(NodeRecord),
    /// The outcome is not known; the text says why.
    Failed(String),
}

/// The events that wait for the daemon, and a descriptor that is readable while there are any.
struct Mailbox {
    news: Mutex<VecDeque<GatewayEvent>>,
    bell: OwnedFd,
}

impl Mailbox {
    fn take(&self) -> Vec<GatewayEvent> {
        event::clear(&self.bell);
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        news.drain(..).collect()
    }

    fn put(&self, news: GatewayEvent) {
        let mut waiting = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // If several `Synced` events are waiting, only one is kept. Of several `Links` events only the last one is
        // kept. The dropped events would tell the daemon nothing more.
        match &news {
            GatewayEvent::Synced if waiting.contains(&news) => {}
            GatewayEvent::Links(_) => {
                waiting.retain(|other| !matches!(other, GatewayEvent::Links(_)));
                waiting.push_back(news);
            }
            _ => waiting.push_back(news),
        }
        event::signal(&self.bell);
    }
}

/// A daemon's part in its site. [`Gateway::leave`] leaves the site.
///
/// Dropping this value only ends the threads. The node keeps its lease and its names until the lease ends, as if the
/// process had been killed: if a broker fails, the node's members may live, and the next broker continues with the same
/// lease.
pub struct Gateway {
    mailbox: Arc<Mailbox>,
    orders: Option<Sender<GatewayRequest>>,
    stop: Arc<AtomicBool>,
    /// The thread that keeps the lease alive. When it ends, it returns the lease, if the node has one.
    lease: Option<JoinHandle<Option<(Member, NodeLease)>>>,
    threads: Vec<JoinHandle<()>>,
    nodes: Arc<Nodes>,
    // This field is dropped last: if this node keeps the catalog, the node still needs the catalog to end its own lease
    // when it leaves the site.
    _catalog: SiteCatalog,
}

impl Gateway {
    /// Begins to join the site. The first event says whether the node has joined. `serve` answers the requests of other
    /// nodes.
    ///
    /// # Errors
    /// If the options contradict each other, or if the certificates, an address or the catalog's journal cannot be
    /// used.
    pub fn start(options: &GatewayOptions, serve: Arc<dyn Serve>) -> Result<Self, String> {
        options.check()?;
        let trust = options.trust()?;
        let transports = Transports::new(&trust, options.transport).map_err(|error| error.to_string())?;
        // The inherited descriptor must stay open for the daemon's next broker, so this broker uses a copy.
        let socket = options.catalog_socket.map(inherited).transpose().map_err(|error| error.to_string())?;
        let socket = socket.as_ref().map(AsFd::as_fd);
        let opened = SiteCatalog::open(&CatalogOptions { socket, ..options.catalog_options() }, &transports)?;
        let own = Node { name: options.node.clone(), incarnation: options.token };
        let listen = options.listen.clone().map_or_else(|| catalog_address::own_address(&options.catalog), Ok)?;
        let nodes = Nodes::new(transports, own, Some((&listen, serve)))
            .map_err(|error| format!("{error}; --listen HOST:PORT says where other nodes reach this one"))?;
        let bell = event::eventfd().map_err(|error| error.to_string())?;
        let mailbox = Arc::new(Mailbox { news: Mutex::default(), bell });
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, orders) = channel();
        let catalog = opened.client();
        let clock = || clock::since_boot_ns() / 1_000_000;
        let hints = Arc::new(item_entries::ItemEntries::new(&options.site, &options.node));
        let member = Member::new(options, &nodes.address(), Arc::clone(&catalog), Arc::clone(&hints), Box::new(clock));
        let worker = worker::Worker::new(member, orders, Arc::clone(&mailbox), Arc::clone(&stop));
        let mut gateway = Self {
            mailbox: Arc::clone(&mailbox),
            orders: Some(sender),
            stop: Arc::clone(&stop),
            lease: None,
            threads: Vec::new(),
            nodes: Arc::clone(&nodes),
            _catalog: opened,
        };
        gateway.lease = Some(spawn("site-lease", move || worker.run())?);
        let site = options.site.clone();
        let (news, ended, known) = (Arc::clone(&mailbox), Arc::clone(&stop), Arc::clone(&nodes));
        let follow = move || worker::follow(&*catalog, &site, &news, (&known, &hints), &ended);
        gateway.threads.push(spawn("site-names", follow)?);
        gateway.threads.push(spawn("site-links", move || nodes.look_after(&mailbox, &stop))?);
        Ok(gateway)
    }

    /// A descriptor that is readable while events are waiting.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.mailbox.bell.as_fd()
    }

    /// Takes all events that are waiting, the oldest first.
    pub fn news(&self) -> Vec<GatewayEvent> {
        self.mailbox.take()
    }

    /// The links to the other nodes. Through them the daemon sends requests to the nodes and pulls bytes from them.
    #[must_use]
    pub fn nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.nodes)
    }

    /// Queues a request. The gateway carries it out after all earlier requests.
    pub fn order(&self, order: GatewayRequest) {
        if let Some(orders) = &self.orders {
            // The worker thread runs until this gateway is dropped, so it receives the request.
            orders.send(order).ok();
        }
    }

    /// Leaves the site: ends the threads, and then the node's lease. So the node and its names are no longer in the
    /// catalog, unless the catalog takes too long to answer.
    pub fn leave(mut self) {
        if let Some((member, lease)) = self.end_threads() {
            member.leave(&lease);
        }
    }

    /// Ends the threads. Returns the lease that the node still has.
    fn end_threads(&mut self) -> Option<(Member, NodeLease)> {
        self.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        let lease = self.lease.take().and_then(|thread| thread.join().ok().flatten());
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
        lease
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end_threads();
    }
}

fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, String> {
    thread::Builder::new().name(name.into()).spawn(run).map_err(|error| format!("no thread for the site: {error}"))
}
