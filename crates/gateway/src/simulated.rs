//! A gateway without threads, clock and network, for simulations. It acts only when the simulation calls it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};

use crossdock_catalog::{Catalog, Follower, IsOver};
use crossdock_os::{Deadline, event};
use std::time::Duration;

use crate::item_entries::ItemEntries;
use crate::member::Member;
use crate::worker::{Worker, tell};
use crate::{GatewayEvent, GatewayOptions, GatewayRequest, Mailbox, keys};

/// A gateway whose work is done in [`Self::step`].
pub struct SimulatedGateway {
    worker: Worker,
    follower: Follower,
    orders: Sender<GatewayRequest>,
    mailbox: Arc<Mailbox>,
    hints: Arc<ItemEntries>,
    catalog: Arc<dyn Catalog>,
    site: String,
}

impl SimulatedGateway {
    /// Makes a gateway. It ignores the options `catalog`, `listen`, `folder` and those that protect connections.
    /// `clock` gives milliseconds.
    ///
    /// # Panics
    /// If the process has no free descriptor.
    #[must_use]
    pub fn new(options: &GatewayOptions, catalog: Arc<dyn Catalog>, clock: impl Fn() -> u64 + Send + 'static) -> Self {
        let mailbox = Arc::new(Mailbox { news: Default::default(), bell: event::eventfd().expect("an eventfd") });
        let (sender, orders) = channel();
        let hints = Arc::new(ItemEntries::new(&options.site, &options.node));
        let member = Member::new(options, "", Arc::clone(&catalog), Arc::clone(&hints), Box::new(clock));
        let worker = Worker::new(member, orders, Arc::clone(&mailbox), Arc::new(AtomicBool::new(false)));
        let site = options.site.clone();
        Self { worker, follower: Follower::new(&keys::site(&site)), orders: sender, mailbox, hints, catalog, site }
    }

    /// Does all work that is due now, including the queued requests.
    pub fn step(&mut self) {
        self.worker.step();
        let until: (_, IsOver<'_>) = (Deadline::after(Duration::ZERO), &|| false);
        tell(&mut self.follower, &*self.catalog, &self.site, &self.hints, until, |news| self.mailbox.put(news));
    }

    /// Puts a request of the daemon into the gateway's queue. The next [`Self::step`] carries the request out.
    pub fn order(&self, order: GatewayRequest) {
        self.orders.send(order).expect("the worker lives as long as this");
    }

    /// Takes the events that the gateway has reported.
    #[must_use]
    pub fn news(&self) -> Vec<GatewayEvent> {
        self.mailbox.take()
    }

    /// Tells whether the gateway assumes that it has a lease.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.worker.is_in()
    }
}
