//! A daemon's part in its site.
//!
//! A [`Gateway`] owns the node's identity in the catalog: its name, its number, and the lease that all its entries hang
//! on. Two threads do this beside the daemon's own: one keeps the lease and carries out [`Order`]s, the other one follows
//! what all nodes announce. [`Nodes`] has the links to the other nodes, and a thread that looks after them. What they learn comes as [`News`], in order; a descriptor is readable when there is some.
//!
//! **Identity.** A node's name belongs to one daemon at a time: the entry of the name is made only if it is free. Its
//! number belongs to the name for good, so that ids that hold it are never given out by another node. A daemon whose broker
//! was restarted finds its own entry by a token, and goes on with its lease.
//!
//! **Lease.** When the lease cannot be kept alive for four fifths of its time, the gateway says [`News::CutOff`] before
//! the catalog takes the entries away. Nothing is claimed from then on, until a lease is there again ([`News::Joined`]).
//! The daemon then gives the order [`Order::Announce`] with all that it has; a name that another node has claimed in the
//! meantime stays that node's ([`News::Contested`]).

mod at;
mod keys;
mod member;
mod nodes;
mod options;
mod place;
#[doc(hidden)]
pub mod simulated;
mod streams;
mod whereabouts;
mod worker;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossdock_catalog::Catalog;
use crossdock_catalog::embedded::{Keeper, Listening};
use crossdock_link::{Node, Serve, Tcp};
use crossdock_os::event;

pub use at::CatalogAt;
pub use keys::Name;
pub use nodes::{ECHO, Nodes};
pub use options::{GatewayOptions, bad_site_name};
pub use place::Place;
pub use whereabouts::Whereabouts;

/// What the daemon wants of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The name is to be this node's. Answered by [`News::Claimed`].
    Claim(Name),
    /// The name is free again.
    Release(Name),
    /// After [`News::Joined`]: these names are this node's, and no others.
    Announce(Vec<Name>),
    /// The item goes to another node with its name. Answered by [`News::Passed`], when the outcome is sure.
    Pass {
        /// The item's name.
        name: Name,
        /// The node that the item goes to, and the epoch that the item has there.
        to: Whereabouts,
    },
    /// This node, which owns the item, has more to say of it.
    Describe(Whereabouts),
    /// The item, which this node owned by this epoch, is gone. Answered by what the catalog says then.
    Forget {
        /// The item's id.
        item: u64,
        /// The epoch.
        epoch: u64,
    },
    /// Asks what the catalog says of an item: [`News::Item`] or [`News::NoItem`].
    Look {
        /// The item's id.
        item: u64,
    },
}

/// What has become known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The node has a lease, and this number.
    Joined {
        /// Between 1 and [`place::NUMBERS`].
        number: u64,
    },
    /// The catalog was reached: what is known of other nodes is as of now.
    Synced,
    /// There is no lease, or it may end at any moment.
    CutOff {
        /// In words.
        why: String,
    },
    /// The answer to [`Order::Claim`].
    Claimed {
        /// Which.
        name: Name,
        /// It is this node's; another node has it; or nothing is known.
        outcome: Claimed,
    },
    /// A name that was announced belongs to another node.
    Contested {
        /// Which.
        name: Name,
        /// Whose.
        place: Place,
    },
    /// A node is there, this one included.
    Node(Place),
    /// A node is not there any more.
    NodeGone {
        /// Its name.
        node: String,
    },
    /// A name belongs to a node, this one included.
    Named {
        /// Which.
        name: Name,
        /// The node's name.
        node: String,
    },
    /// A name belongs to no node any more.
    Unnamed {
        /// Which.
        name: Name,
    },
    /// The answer to [`Order::Pass`].
    Passed {
        /// The item's id.
        item: u64,
        /// The epoch that the order named.
        epoch: u64,
        /// The item is the next node's; else why it is this node's still.
        outcome: Result<(), String>,
    },
    /// What the catalog says of an item.
    Item(Whereabouts),
    /// The catalog says nothing of that item, or not any more.
    NoItem {
        /// The item's id.
        item: u64,
    },
    /// What is known of each link that was opened.
    Links(Vec<LinkSeen>),
}

/// The state of a link to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSeen {
    /// The node's name.
    pub node: String,
    /// What carries the bytes.
    pub transport: &'static str,
    /// How long ago the node was heard by this link.
    pub heard: Option<Duration>,
    /// From a question to its answer, measured last.
    pub round_trip: Option<Duration>,
    /// Why there is no connection now.
    pub why: Option<String>,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The name is this node's.
    Ours,
    /// It is that node's.
    Theirs(Place),
    /// The catalog could not be asked.
    Failed(String),
}

/// News, and a descriptor that is readable while there are some.
struct Mailbox {
    news: Mutex<VecDeque<News>>,
    bell: OwnedFd,
}

impl Mailbox {
    fn take(&self) -> Vec<News> {
        event::clear(&self.bell);
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        news.drain(..).collect()
    }

    fn put(&self, news: News) {
        let mut waiting = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // One of these says as much as many, and the last one says more than those before.
        match &news {
            News::Synced if waiting.contains(&news) => {}
            News::Links(_) => {
                waiting.retain(|other| !matches!(other, News::Links(_)));
                waiting.push_back(news);
            }
            _ => waiting.push_back(news),
        }
        event::signal(&self.bell);
    }
}

/// A daemon's part in its site, until it is dropped.
pub struct Gateway {
    mailbox: Arc<Mailbox>,
    orders: Option<Sender<Order>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    nodes: Arc<Nodes>,
    // Dropped last: this node may keep the catalog for others, and for its own farewell.
    _listening: Option<Listening>,
    _keeper: Option<Keeper>,
}

impl Gateway {
    /// Begins to join. The first news says whether it worked. `serve` answers other nodes.
    ///
    /// # Errors
    /// The options make no sense, certificates cannot be used, an address or the catalog's journal is of no use.
    pub fn start(options: &GatewayOptions, serve: Arc<dyn Serve>) -> Result<Self, String> {
        options.check()?;
        let trust = options.trust()?;
        let (catalog, kept) = at::open(options, &trust)?;
        let own = Node { name: options.node.clone(), incarnation: options.token };
        let listen = options.listen.clone().map_or_else(|| at::own_address(&options.catalog), Ok)?;
        let nodes = Nodes::new(&Tcp::new(trust), own, Some((&listen, serve)))
            .map_err(|error| format!("{error}; --listen HOST:PORT says where other nodes reach this one"))?;
        let (keeper, listening) = kept.map_or((None, None), |(keeper, listening)| (Some(keeper), Some(listening)));
        let bell = event::eventfd().map_err(|error| error.to_string())?;
        let mailbox = Arc::new(Mailbox { news: Mutex::default(), bell });
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, orders) = channel();
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.into())
                .spawn(run)
                .map_err(|error| format!("no thread for the site: {error}"))
        };
        let catalog: Arc<dyn Catalog> = Arc::from(catalog);
        let began = Instant::now();
        let clock = move || began.elapsed().as_millis() as u64;
        let member = member::Member::new(options, &nodes.address(), Arc::clone(&catalog), Box::new(clock));
        let worker = worker::Worker::new(member, orders, Arc::clone(&mailbox), Arc::clone(&stop));
        let mut gateway = Self {
            mailbox: Arc::clone(&mailbox),
            orders: Some(sender),
            stop: Arc::clone(&stop),
            threads: Vec::new(),
            nodes: Arc::clone(&nodes),
            _listening: listening,
            _keeper: keeper,
        };
        gateway.threads.push(spawn("site-lease", Box::new(move || worker.run()))?);
        let site = options.site.clone();
        let (news, ended, known) = (Arc::clone(&mailbox), Arc::clone(&stop), Arc::clone(&nodes));
        let follow = move || worker::follow(&*catalog, &site, &news, &known, &ended);
        gateway.threads.push(spawn("site-names", Box::new(follow))?);
        gateway.threads.push(spawn("site-links", Box::new(move || nodes.look_after(&mailbox, &stop)))?);
        Ok(gateway)
    }

    /// Readable when there are news.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.mailbox.bell.as_fd()
    }

    /// The news, oldest first.
    pub fn news(&self) -> Vec<News> {
        self.mailbox.take()
    }

    /// The other nodes, for questions and pulls.
    #[must_use]
    pub fn nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.nodes)
    }

    /// Queues an order. The gateway carries it out after all earlier ones.
    pub fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The worker ends only with this.
            orders.send(order).ok();
        }
    }
}

impl Drop for Gateway {
    /// Gives the lease back, if the catalog answers soon.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}
