//! A daemon's part in its site.
//!
//! A [`Gateway`] owns the node's identity in the catalog: its name, its number, and the lease that all its entries hang
//! on. Two threads do this beside the daemon's own: one keeps the lease and carries out [`Order`]s, the other one follows
//! what all nodes announce. What they learn comes as [`News`], in order; a descriptor is readable when there is some.
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
mod options;
mod place;
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
use std::time::Instant;

use crossdock_catalog::Catalog;
use crossdock_catalog::embedded::{Keeper, Listening};
use crossdock_os::event;

pub use at::CatalogAt;
pub use keys::Name;
pub use options::{GatewayOptions, bad_site_name};
pub use place::Place;

/// What the daemon wants of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The name is to be this node's. Answered by [`News::Claimed`].
    Claim(Name),
    /// The name is free again.
    Release(Name),
    /// After [`News::Joined`]: these names are this node's, and no others.
    Announce(Vec<Name>),
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
        // One of these says as much as many.
        if news != News::Synced || !waiting.contains(&News::Synced) {
            waiting.push_back(news);
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
    // Dropped last: this node may keep the catalog for others, and for its own farewell.
    _listening: Option<Listening>,
    _keeper: Option<Keeper>,
}

impl Gateway {
    /// Begins to join. The first news says whether it worked.
    ///
    /// # Errors
    /// The options make no sense, certificates cannot be used, the catalog's journal or address is of no use.
    pub fn start(options: &GatewayOptions) -> Result<Self, String> {
        options.check()?;
        let trust = options.trust()?;
        let (catalog, kept) = at::open(options, &trust)?;
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
        let member = member::Member::new(options, Arc::clone(&catalog), Box::new(clock));
        let worker = worker::Worker::new(member, orders, Arc::clone(&mailbox), Arc::clone(&stop));
        let mut gateway = Self {
            mailbox: Arc::clone(&mailbox),
            orders: Some(sender),
            stop: Arc::clone(&stop),
            threads: Vec::new(),
            _listening: listening,
            _keeper: keeper,
        };
        gateway.threads.push(spawn("site-lease", Box::new(move || worker.run()))?);
        let site = options.site.clone();
        let follow = move || worker::follow(&*catalog, &site, &mailbox, &stop);
        gateway.threads.push(spawn("site-names", Box::new(follow))?);
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
