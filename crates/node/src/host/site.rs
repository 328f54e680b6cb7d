//! Connects the broker with the gateway of the daemon's site. Reports of the gateway become events of the broker, and
//! requests of the broker go to the gateway.

use std::sync::Arc;
use std::time::Duration;

use crossdock_gateway::{
    Claimed, Gateway, GatewayEvent, GatewayOptions, GatewayRequest, ItemLocation, LinkReport, Name, NodeRecord,
};
use crossdock_layout::SegmentId;
use crossdock_link::Serve;
use crossdock_os::{Deadline, event};

use super::Host;
use super::nodes::{NodeAccess, NodeQueues};
use crate::SiteOptions;
use crate::broker::{
    self, Event, NODE_SHIFT, SiteEvent, SiteItem, SiteLimits, SiteLink, SiteName, SiteNode, SiteOrder,
};

/// How long a starting daemon waits until it is a node of the site, in addition to one lease. A former daemon of the
/// same node name may still have a lease, and this lease must end first.
pub(crate) const JOIN: Duration = Duration::from_secs(20);

/// The gateway, and the reports of the gateway that the broker has not seen yet.
pub(super) struct Membership {
    pub gateway: Gateway,
    pub limits: SiteLimits,
    pub early: Vec<GatewayEvent>,
    pub reach: NodeAccess,
}

/// Joins the site. `next_segment` comes from the journal. If the daemon was a node before, `next_segment` contains the
/// node's number, and the daemon serves at once, even if the site cannot be reached.
pub(super) fn join(
    options: &SiteOptions,
    token: u64,
    (journal, socket): (&std::path::Path, &std::path::Path),
    next_segment: u64,
) -> Result<Membership, String> {
    let queues = NodeQueues::new().map_err(|error| error.to_string())?;
    let gateway = GatewayOptions {
        site: options.site.clone(),
        node: options.node.clone(),
        catalog: options.catalog.clone(),
        catalog_socket: options.catalog_socket,
        listen: options.listen.clone(),
        certificates: options.certificates.clone(),
        trusted_network: options.trusted_network,
        transport: options.transport,
        number: next_segment >> NODE_SHIFT,
        token,
        folder: journal.with_extension("catalog"),
        lease: options.lease,
    };
    let gateway = Gateway::start(&gateway, Arc::clone(&queues) as Arc<dyn Serve>)
        .map_err(|why| format!("site '{}': {why}", options.site))?;
    let reach = NodeAccess::new(queues, gateway.nodes(), socket.to_path_buf())?;
    let mut membership = Membership {
        gateway,
        limits: SiteLimits {
            site: options.site.clone(),
            node: options.node.clone(),
            number: next_segment >> NODE_SHIFT,
        },
        early: Vec::new(),
        reach,
    };
    if membership.limits.number == 0 {
        membership.limits.number = membership.wait_for_number(options)?;
    }
    Ok(membership)
}

impl Membership {
    fn wait_for_number(&mut self, options: &SiteOptions) -> Result<u64, String> {
        let by = Deadline::after(JOIN + options.lease);
        let mut last = "its catalog did not answer".to_owned();
        while !by.passed() {
            event::wait_readable(self.gateway.bell(), by).map_err(|error| error.to_string())?;
            let news = self.gateway.news();
            for news in &news {
                if let GatewayEvent::CutOff { why } = news {
                    eprintln!("crossdock serve: site '{}' cannot be joined yet: {why}", options.site);
                    last.clone_from(why);
                }
            }
            let number =
                news.iter().find_map(|n| if let GatewayEvent::Joined { number } = n { Some(*number) } else { None });
            // The broker does not run yet, so all reports of the gateway are kept for it. Each report about a node or a
            // name comes only once.
            self.early.extend(news);
            if let Some(number) = number {
                return Ok(number);
            }
        }
        Err(format!("site '{}' could not be joined: {last}", options.site))
    }
}

impl Host<'_> {
    /// Handles all reports of the gateway since the last call.
    pub(super) fn site_news(&mut self) {
        let Some(membership) = &mut self.membership else { return };
        let mut news = std::mem::take(&mut membership.early);
        news.extend(membership.gateway.news());
        for news in &news {
            if let GatewayEvent::NodeGone { node } = news {
                membership.reach.gone(node);
            }
        }
        for news in news {
            self.feed(Event::Site(news.into()));
        }
    }

    pub(super) fn site_order(&self, order: SiteOrder) {
        let Some(membership) = &self.membership else { return };
        membership.gateway.order(order.into());
    }

    /// Leaves the site: the gateway ends the node's lease. A broker that fails does not call this, because its members
    /// may live, and the next broker continues with the lease.
    pub(super) fn leave_site(&mut self) {
        if let Some(membership) = self.membership.take() {
            membership.gateway.leave();
        }
    }
}

fn there(SiteName { workflow, kind, name }: SiteName) -> Name {
    Name { workflow, kind, name }
}

fn here(Name { workflow, kind, name }: Name) -> SiteName {
    SiteName { workflow, kind, name }
}

fn place(SiteItem { item, epoch, node, daemon, about }: SiteItem) -> ItemLocation {
    ItemLocation { item: item.0, epoch, node, daemon, about }
}

fn node(NodeRecord { node, number, address, .. }: NodeRecord) -> SiteNode {
    SiteNode { node, number, address }
}

fn link(LinkReport { node, transport, heard, round_trip, why }: LinkReport) -> SiteLink {
    SiteLink {
        node,
        transport,
        heard_ms: heard.map(|heard| heard.as_millis() as u64),
        round_trip_us: round_trip.map(|took| took.as_micros() as u64),
        why,
    }
}

impl From<SiteOrder> for GatewayRequest {
    fn from(order: SiteOrder) -> Self {
        match order {
            SiteOrder::Claim(name) => Self::Claim(there(name)),
            SiteOrder::Take { name, from } => Self::Take { name: there(name), from },
            SiteOrder::Release(name) => Self::Release(there(name)),
            SiteOrder::GiveBack { name, to } => Self::GiveBack { name: there(name), to },
            SiteOrder::Announce(names) => Self::Announce(names.into_iter().map(there).collect()),
            SiteOrder::Pass { name, to } => Self::Pass { name: there(name), to: place(to) },
            SiteOrder::Describe(is) => Self::Describe(place(is)),
            SiteOrder::Forget { item, epoch } => Self::Forget { item: item.0, epoch },
            SiteOrder::Find(name) => Self::Find(there(name)),
            SiteOrder::Look { item } => Self::Look { item: item.0 },
        }
    }
}

impl From<GatewayEvent> for SiteEvent {
    fn from(news: GatewayEvent) -> Self {
        match news {
            GatewayEvent::Joined { .. } => Self::Joined,
            GatewayEvent::Synced => Self::Synced,
            GatewayEvent::CutOff { why } => Self::CutOff { why },
            GatewayEvent::Claimed { name, outcome } => {
                let outcome = match outcome {
                    Claimed::Ours => broker::Claimed::Ours,
                    Claimed::Theirs(place) => broker::Claimed::Theirs(node(place)),
                    Claimed::Failed(why) => broker::Claimed::Failed(why),
                };
                Self::Claimed { name: here(name), outcome }
            }
            GatewayEvent::Announced { name } => Self::Announced { name: here(name) },
            GatewayEvent::Contested { name, place } => Self::Contested { name: here(name), node: node(place) },
            GatewayEvent::Node(place) => Self::Node(node(place)),
            GatewayEvent::NodeGone { node } => Self::NodeGone { node },
            GatewayEvent::Named { name, node } => Self::Named { name: here(name), node },
            GatewayEvent::Unnamed { name } => Self::Unnamed { name: here(name) },
            GatewayEvent::Found { name, outcome } => Self::Found { name: here(name), outcome },
            GatewayEvent::Passed { item, epoch, outcome } => Self::Passed { item: SegmentId(item), epoch, outcome },
            GatewayEvent::Item(ItemLocation { item, epoch, node, daemon, about }) => {
                Self::Item(SiteItem { item: SegmentId(item), epoch, node, daemon, about })
            }
            GatewayEvent::NoItem { item } => Self::NoItem { item: SegmentId(item) },
            GatewayEvent::Links(links) => Self::Links(links.into_iter().map(link).collect()),
        }
    }
}
