//! The daemon as a node of a site: which nodes exist, and which names belong to which node.
//!
//! A name of a region, port, series or item belongs to one node of the site. Before the broker makes something with a
//! name, it claims the name ([`SiteOrder::Claim`]), and the request waits for the answer. Objects that the daemon
//! already has continue to work, whatever happens in the site. Without a lease the broker claims nothing. With every
//! new lease it announces all names that it has ([`SiteOrder::Announce`]). If another node has claimed such a name
//! meanwhile, the name is *contested*: members of this daemon keep what they have open, and no member can open the name
//! here any more.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{NodeEntry, NodeState, Request, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};

use super::departed::Departed;
use super::mirrors::is_mirror;
use super::{Broker, Connection, Effect, ItemRecord, PARKED, Record, Requester};

/// What a broker knows about its site when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// The site's name.
    pub site: String,
    /// This node's name.
    pub node: String,
    /// This node's number. The ids of its segments have this number in their bits from bit 50 on.
    pub number: u64,
}

/// A name as it is known in the whole site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteName {
    /// The workflow's name.
    pub workflow: String,
    /// The kind of object that has the name.
    pub kind: SegmentKind,
    /// The name within the workflow.
    pub name: String,
}

/// A node of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteNode {
    /// The node's name.
    pub node: String,
    /// The node's number; 0 if the broker does not know it.
    pub number: u64,
    /// The address of the node's daemon; empty if it is not known.
    pub address: String,
}

/// A request of the broker to the gateway, about the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteOrder {
    /// Claim the name for this node. The answer is [`SiteEvent::Claimed`].
    Claim(SiteName),
    /// Take a name from the node `from`, and give it to this node. The node `from` has agreed. The answer is
    /// [`SiteEvent::Claimed`].
    Take {
        /// The name.
        name: SiteName,
        /// The node that has the name until this node gets it.
        from: String,
    },
    /// Release the name, so that it is free.
    Release(SiteName),
    /// Give a region's name back to the node from which it was taken, because the region has not moved to this node.
    GiveBack {
        /// The name.
        name: SiteName,
        /// The node that gets the name. If it has no lease, the name is free.
        to: String,
    },
    /// Announce to the catalog that this node has these names and no others.
    Announce(Vec<SiteName>),
    /// Give the item and its name to the node that `to` describes. The answer is [`SiteEvent::Passed`].
    Pass {
        /// The item's name.
        name: SiteName,
        /// The item's entry after the change.
        to: SiteItem,
    },
    /// Change the description in the entry of an item that this node owns.
    Describe(SiteItem),
    /// Remove the entry of an item that is gone, and which this node owned with this epoch. The answer is the entry
    /// that the catalog has afterwards.
    Forget {
        /// The item that is gone.
        item: SegmentId,
        /// The epoch with which this node owned the item.
        epoch: u64,
    },
    /// Ask the catalog which node has the name. The answer is [`SiteEvent::Found`].
    Find(SiteName),
    /// Ask for the catalog's entry of the item. The answer is [`SiteEvent::Item`] or [`SiteEvent::NoItem`].
    Look {
        /// The item whose entry is wanted.
        item: SegmentId,
    },
}

/// An item's entry in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteItem {
    /// The item of the entry.
    pub item: SegmentId,
    /// How often the item has moved from node to node.
    pub epoch: u64,
    /// The node that owns the item.
    pub node: String,
    /// The token of that node's daemon. It differs for each start of a daemon. In a [`SiteOrder`] it is 0.
    pub daemon: u64,
    /// The description of the item for the node that owns it.
    pub about: Vec<u8>,
}

/// A report of the gateway about the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteEvent {
    /// This node has got a lease.
    Joined,
    /// The catalog was reached a moment ago, so the broker's knowledge of other nodes is up to date.
    Synced,
    /// This node has no lease, or its lease may end at any moment.
    CutOff {
        /// The reason, as text.
        why: String,
    },
    /// The answer to [`SiteOrder::Claim`].
    Claimed {
        /// The claimed name.
        name: SiteName,
        /// The outcome of the claim: which node has the name now.
        outcome: Claimed,
    },
    /// The catalog has given a name to this node after this node had announced the name.
    Announced {
        /// The name.
        name: SiteName,
    },
    /// Another node has a name that this node announced.
    Contested {
        /// The name that another node has.
        name: SiteName,
        /// The node that has the name.
        node: SiteNode,
    },
    /// A node of the site has a lease. The field describes the node that has it.
    Node(SiteNode),
    /// The lease of a node has ended.
    NodeGone {
        /// The node's name.
        node: String,
    },
    /// A name belongs to a node.
    Named {
        /// The name that belongs to the node.
        name: SiteName,
        /// The node's name.
        node: String,
    },
    /// A name no longer belongs to any node.
    Unnamed {
        /// The name that is free now.
        name: SiteName,
    },
    /// The answer to [`SiteOrder::Find`].
    Found {
        /// The name that the request asked about.
        name: SiteName,
        /// The node that has the name, possibly this one; `None` if no node has it. The error says why the catalog could
        /// not be asked.
        outcome: Result<Option<String>, String>,
    },
    /// The answer to [`SiteOrder::Pass`].
    Passed {
        /// The item that was to be passed.
        item: SegmentId,
        /// The epoch that the request named.
        epoch: u64,
        /// `Ok` if the item belongs to the other node now. The error says why it still belongs to this node.
        outcome: Result<(), String>,
    },
    /// The catalog's entry of an item.
    Item(SiteItem),
    /// The catalog has no entry of this item.
    NoItem {
        /// The item without an entry.
        item: SegmentId,
    },
    /// The state of the links to all other nodes.
    Links(Vec<SiteLink>),
}

/// The state of a link to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLink {
    /// The node's name.
    pub node: String,
    /// The name of the transport that carries the bytes.
    pub transport: String,
    /// How long ago the node was heard through this link.
    pub heard_ms: Option<u64>,
    /// The time from a question to its answer, at the last measurement.
    pub round_trip_us: Option<u64>,
    /// Why the link has no connection now. If the link has a connection: why no better transport carries the bytes.
    pub why: String,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The name belongs to this node.
    Ours,
    /// The name belongs to this other node.
    Theirs(SiteNode),
    /// The outcome is not known; the text says why.
    Failed(String),
}

/// The maximum number of requests that may wait for an answer of the site at the same time.
const CLAIMS: usize = 4096;
/// How many nodes without a lease are remembered.
const GONE: usize = 256;

enum LeaseState {
    In,
    Out { why: String, since: u64 },
}

struct NodeStatus {
    number: u64,
    address: String,
    /// The time at which the node's lease ended; `None` if it has a lease.
    gone: Option<u64>,
}

struct Claim {
    waits: (Connection, u64),
    member: MemberId,
    request: Request,
    /// Whether the broker has asked the name's node, because of this request, to give the name up (see `succession`).
    has_asked: bool,
}

/// What this broker knows about its site.
pub(super) struct Site {
    limits: SiteLimits,
    lease: LeaseState,
    /// When the catalog was last reached, in milliseconds of the broker's clock.
    synced: u64,
    nodes: BTreeMap<String, NodeStatus>,
    /// Names of this node that the catalog dropped, and that this node could not claim again because it got no answer.
    /// The node will claim these names once more.
    lapsed: BTreeSet<SiteName>,
    /// The links to other nodes, each with the time at which it was reported.
    links: BTreeMap<String, (SiteLink, u64)>,
    /// Names that belong to other nodes, each with its node.
    elsewhere: BTreeMap<SiteName, String>,
    /// Names of objects on other nodes, which the catalog has dropped. An error about such a name says on which node
    /// the object was.
    pub(super) departed: Departed,
    /// Names that belong to this node, and contested names, which another node has claimed although this node has their
    /// objects.
    owned: BTreeSet<SiteName>,
    contested: BTreeMap<SiteName, SiteNode>,
    /// Contested names whose node is not certain: since this node's present lease began, the catalog has not said which
    /// node has them.
    unconfirmed: BTreeSet<SiteName>,
    claims: BTreeMap<SiteName, Vec<Claim>>,
    /// Names of this node that may not belong to any object any more. The broker checks them and releases the unused
    /// ones.
    touched: BTreeSet<SiteName>,
    /// Names that the catalog has given to this node together with items. The catalog has not reported the entries of
    /// these items yet.
    given: BTreeSet<SiteName>,
    /// Names that were claimed for series, each with the member that is about to publish the series.
    promised: BTreeMap<SiteName, MemberId>,
}

impl Site {
    pub fn new(limits: SiteLimits, now: u64) -> Self {
        Self {
            limits,
            lease: LeaseState::Out { why: "it has not joined yet".into(), since: now },
            synced: now,
            nodes: BTreeMap::new(),
            lapsed: BTreeSet::new(),
            links: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            departed: Departed::default(),
            owned: BTreeSet::new(),
            contested: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            claims: BTreeMap::new(),
            touched: BTreeSet::new(),
            given: BTreeSet::new(),
            promised: BTreeMap::new(),
        }
    }

    /// This node's name.
    pub(super) fn node(&self) -> &str {
        &self.limits.node
    }

    pub(super) fn is_in(&self) -> bool {
        matches!(self.lease, LeaseState::In)
    }

    /// Gives a text that says since when this node has no lease, and why. `None` if it has a lease.
    pub(super) fn cut_off(&self, now: u64) -> Option<String> {
        let LeaseState::Out { why, since } = &self.lease else { return None };
        let SiteLimits { site, node, .. } = &self.limits;
        Some(format!("node {node} has been cut off from site '{site}' for {} s ({why})", (now - since) / 1000))
    }

    /// Tells whether the node `node` has a lease, as far as this node knows.
    pub(super) fn is_there(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|known| known.gone.is_none())
    }

    /// Gives the time at which the lease of the node `node` ended; `None` if it has a lease, or is not known.
    pub(super) fn gone_since(&self, node: &str) -> Option<u64> {
        self.nodes.get(node)?.gone
    }

    /// Notes that the name goes to another node together with its item.
    pub(super) fn give_name(&mut self, name: SiteName, to: &str) {
        self.owned.remove(&name);
        self.contested.remove(&name);
        self.touched.remove(&name);
        self.elsewhere.insert(name, to.to_owned());
    }

    /// Notes that the name has come to this node with its item. Returns whether the catalog has already reported that
    /// the name belongs to this node.
    pub(super) fn take_name(&mut self, name: &SiteName) -> bool {
        self.elsewhere.remove(name);
        self.contested.remove(name);
        self.owned.insert(name.clone());
        self.given.remove(name)
    }

    /// Tells whether this node has the name or is claiming it.
    pub(super) fn has_or_claims(&self, name: &SiteName) -> bool {
        self.owned.contains(name) || self.claims.contains_key(name)
    }

    /// Tells whether the name belongs to this node, as far as this node knows.
    pub(super) fn is_own(&self, name: &SiteName) -> bool {
        self.owned.contains(name) && !self.contested.contains_key(name)
    }

    /// Tells whether this node may still get the name from the catalog. This is also possible if another node has
    /// claimed the name of a region of this node: that node may make the name free again, or give it back to this node.
    fn may_be_own(&self, name: &SiteName) -> bool {
        self.owned.contains(name) && (name.kind == SegmentKind::Region || !self.contested.contains_key(name))
    }

    /// Gives the member that is about to publish a series under this name, if there is one.
    pub(super) fn promised_to(&self, name: &SiteName) -> Option<MemberId> {
        self.promised.get(name).copied()
    }

    /// Gives the node to which the name belongs, if that is another node.
    fn owner(&self, name: &SiteName) -> Option<SiteNode> {
        if let Some(node) = self.contested.get(name) {
            return Some(node.clone());
        }
        let node = self.elsewhere.get(name).filter(|_| !self.owned.contains(name))?;
        Some(site_node(&self.nodes, node))
    }
}

/// Describes the node `node`, as far as this node knows it.
fn site_node(nodes: &BTreeMap<String, NodeStatus>, node: &str) -> SiteNode {
    let known = nodes.get(node);
    let (number, address) = known.map_or((0, ""), |known| (known.number, known.address.as_str()));
    SiteNode { node: node.to_owned(), number, address: address.to_owned() }
}

/// Gives the error for a name that belongs to another node. The error says which node has the name, and what the user
/// can do.
fn is_elsewhere(name: &SiteName, at: &SiteNode, contested: bool) -> String {
    let SiteName { kind, name, .. } = name;
    let node = if at.address.is_empty() { at.node.clone() } else { format!("{} ({})", at.node, at.address) };
    let lost = if contested { "while this node was cut off, that name became another node's. " } else { "" };
    let why = match kind {
        SegmentKind::Region => "a region belongs to one node",
        SegmentKind::Port => "a port is made once in a site",
        SegmentKind::Series => "a series has one publisher in a site",
        SegmentKind::Item => "its owner and its readers open it from any node",
    };
    let there = &at.node;
    let or = match kind {
        SegmentKind::Region => format!(
            "move the region here (`crossdock region move {name}`), copy it (`crossdock region copy`), send its objects \
             through a port, "
        ),
        _ => String::new(),
    };
    format!(
        "{lost}{} '{name}' is on node {node}: {why}. Run this task on node {there}, {or}or take another name",
        kind.word()
    )
}

impl Broker {
    /// After the broker's start: notes that all names in use on this node belong to this node, until the catalog says
    /// otherwise.
    pub(super) fn recover_site(&mut self) {
        let names: BTreeSet<_> = self.all_site_names().collect();
        if let Some(site) = &mut self.site {
            site.owned = names;
        }
    }

    /// Gives all names of objects on this node that no other node may use for an object of its own. Mirrors' names are
    /// not among them.
    fn all_site_names(&self) -> impl Iterator<Item = SiteName> {
        let segments = self.lasting.names.keys().filter(|key| !is_mirror(&key.2));
        let segments = segments.filter_map(|(workflow, kind, name)| self.site_name(*workflow, *kind, name));
        let items = self.lasting.items.keys.keys();
        segments.chain(items.filter_map(|(workflow, key)| self.site_name(*workflow, SegmentKind::Item, key)))
    }

    pub(super) fn site_name(&self, workflow: u64, kind: SegmentKind, name: &str) -> Option<SiteName> {
        let workflow = self.lasting.workflow_name(workflow)?;
        Some(SiteName { workflow, kind, name: name.to_owned() })
    }

    /// Gives the key under which the lasting state has this name, if the name's workflow exists on this node.
    pub(super) fn local_key(&self, name: &SiteName) -> Option<(u64, SegmentKind, String)> {
        let workflow = self.lasting.workflow_names.get(&name.workflow)?;
        Some((*workflow, name.kind, name.name.clone()))
    }

    pub(super) fn is_here(&self, name: &SiteName) -> bool {
        let Some(key) = self.local_key(name) else { return false };
        match key.1 {
            SegmentKind::Item => self.lasting.items.of_key(key.0, &key.2).is_some(),
            _ => self.lasting.names.contains_key(&key),
        }
    }

    /// Gives the node that has this item, if it is another node.
    pub(super) fn item_elsewhere(&self, workflow: u64, key: &str) -> Option<String> {
        let site = self.site.as_ref()?;
        let name = self.site_name(workflow, SegmentKind::Item, key)?;
        Some(site.owner(&name)?.node)
    }

    /// Tells whether the item's name belongs to another node by now, although this node has an item of that name.
    pub(super) fn is_contested(&self, workflow: u64, key: &str) -> bool {
        let Some(site) = self.site.as_ref().filter(|site| !site.contested.is_empty()) else { return false };
        let name = self.site_name(workflow, SegmentKind::Item, key);
        name.is_some_and(|name| site.contested.contains_key(&name))
    }

    /// Gives the error if this name belongs to another node; otherwise `None`. Gives `None` also if this daemon is in
    /// no site.
    pub(super) fn elsewhere(&self, workflow: u64, kind: SegmentKind, name: &str) -> Option<String> {
        let site = self.site.as_ref()?;
        let name = self.site_name(workflow, kind, name)?;
        let at = site.owner(&name)?;
        let was_cut_off = site.contested.contains_key(&name) && !self.regions.leaving.contains(&name);
        Some(is_elsewhere(&name, &at, was_cut_off))
    }

    /// Gives the other node that has this name. Gives `None` if no other node has it, or if the name is contested,
    /// because then this node has an object of that name, too.
    pub(super) fn owner_elsewhere(&self, workflow: u64, kind: SegmentKind, name: &str) -> Option<String> {
        let site = self.site.as_ref()?;
        let name = self.site_name(workflow, kind, name)?;
        let at = site.owner(&name).filter(|_| !site.contested.contains_key(&name))?;
        Some(at.node)
    }

    /// Tells whether this node has the name, so that a new object may get the name. If not, the request fails now, or
    /// it waits for the site's answer and is then served again.
    pub(super) fn has_name(
        &mut self,
        asker: Requester,
        workflow: u64,
        kind: SegmentKind,
        name: &str,
        request: impl FnOnce() -> Request,
    ) -> bool {
        if self.site.is_none() || is_mirror(name) {
            return true;
        }
        if let Some(text) = self.elsewhere(workflow, kind, name) {
            self.fail(asker, Status::Exists, text);
            return false;
        }
        let Some(name) = self.site_name(workflow, kind, name) else { return true };
        if let Some(text) = self.needed_by_move(&name) {
            self.fail(asker, Status::Exists, text);
            return false;
        }
        self.claims_name(asker, name, None, request)
    }

    /// Tells whether this node has the name of a region that comes from the node `from`. If this node does not have the
    /// name, the request `request` of the member fails now or waits. It fails if this node is cut off, or if too many
    /// requests wait already. Otherwise it waits until the catalog has given the name to this node, and is then served
    /// again.
    pub(super) fn has_taken_name(
        &mut self,
        asker: Requester,
        workflow: u64,
        name: &str,
        from: &str,
        request: Request,
    ) -> bool {
        let Some(name) = self.site_name(workflow, SegmentKind::Region, name) else { return true };
        self.claims_name(asker, name, Some(from), || request)
    }

    /// Tells whether this node has the name that a member's request needs. If this node does not have the name, this
    /// function makes the request fail, or lets it wait for the outcome of a claim.
    fn claims_name(
        &mut self,
        asker: Requester,
        name: SiteName,
        from: Option<&str>,
        request: impl FnOnce() -> Request,
    ) -> bool {
        let now = self.now;
        let Some(site) = &mut self.site else { return true };
        if site.owned.contains(&name) {
            return true;
        }
        if let Some(cut_off) = site.cut_off(now) {
            let text = format!(
                "no {} '{}' can be made: {cut_off}. What exists goes on working; try again when `crossdock ls --nodes` \
                 says that the node is back",
                name.kind.word(),
                name.name,
            );
            self.fail(asker, Status::Disconnected, text);
            return false;
        }
        let waiting = || site.claims.values().flatten();
        let own = waiting().filter(|claim| claim.waits.0 == asker.connection).count();
        if own >= PARKED || waiting().count() >= CLAIMS {
            let text = format!("{own} requests of this program wait for the site already; let some end first");
            self.fail(asker, Status::Busy, text);
            return false;
        }
        let claims = site.claims.entry(name.clone()).or_default();
        claims.push(Claim {
            waits: (asker.connection, asker.number),
            member: asker.member,
            request: request(),
            has_asked: false,
        });
        if claims.len() == 1 {
            let order = match from {
                Some(from) => SiteOrder::Take { name, from: from.to_owned() },
                None => SiteOrder::Claim(name),
            };
            self.effects.push(Effect::Site(order));
        }
        false
    }

    /// Tells whether this node may claim the name of an object that it has, because the catalog may not have the name
    /// any more.
    pub(super) fn may_claim_again(&self, name: &SiteName) -> bool {
        self.site.as_ref().is_some_and(|site| site.is_in() && site.is_own(name))
    }

    /// Claims a name of this node again, for one of two reasons. The catalog may not have the name any more. Or another
    /// node had the name of a region of this node, and may have made the name free or given it back. A contested name,
    /// which another node has claimed, stays contested until the catalog has given it to this node. A report that the
    /// name is free or belongs to this node is not enough: the report may be older than the claim of the other node, or
    /// a third node may have claimed the name meanwhile.
    fn claim_again(&mut self, name: SiteName) {
        if self.regions.leaving.contains(&name) {
            self.end_freeze(&name);
        }
        if self.site.as_ref().is_some_and(|site| site.is_in() && site.may_be_own(&name)) {
            self.effects.push(Effect::Site(SiteOrder::Claim(name)));
        }
    }

    /// Tells whether the name belongs to a third node, which is neither this node nor the node `node`, as far as this
    /// node knows.
    pub(super) fn is_contested_by_another(&self, name: &SiteName, node: &str) -> bool {
        self.site.as_ref().and_then(|site| site.contested.get(name)).is_some_and(|at| at.node != node)
    }

    /// Handles a report about the site.
    pub(super) fn site_news(&mut self, news: SiteEvent) {
        let now = self.now;
        let Some(site) = &mut self.site else { return };
        match news {
            SiteEvent::Joined => {
                site.lease = LeaseState::In;
                site.synced = now;
                // This node now announces its names. The answers of the catalog will say which of the names are
                // contested. Until then, a name that belongs to another node, as far as this node knows, is contested.
                for (name, node) in site.elsewhere.iter().filter(|(name, _)| site.owned.contains(name)) {
                    site.contested.entry(name.clone()).or_insert_with(|| site_node(&site.nodes, node));
                }
                site.unconfirmed = site.contested.keys().cloned().collect();
                site.lapsed.clear();
                let names = site.owned.iter().chain(site.claims.keys()).cloned().collect();
                // A former broker of this node may have taken the names of regions that then did not move. These names
                // go back to their nodes now, because the announcement that follows would free them.
                self.give_names_back();
                self.effects.push(Effect::Site(SiteOrder::Announce(names)));
                self.look_for_moving();
                self.ask_for_moving();
                self.items_joined();
            }
            SiteEvent::Synced => {
                site.synced = now;
                for name in std::mem::take(&mut site.lapsed) {
                    self.claim_again(name);
                }
                self.look_after_left_items();
                // An earlier question to the catalog about the names of moving regions may have failed, so the question
                // is asked again.
                self.ask_for_moving();
            }
            SiteEvent::CutOff { why } => {
                let (node, of) = (&site.limits.node, &site.limits.site);
                let line =
                    format!("node {node} is cut off from site '{of}': {why}; it claims no name until it is back");
                self.effects.push(Effect::Log { line });
                let since = if let LeaseState::Out { since, .. } = site.lease { since } else { now };
                site.lease = LeaseState::Out { why, since };
            }
            SiteEvent::Claimed { name, outcome } => self.claimed(name, outcome),
            SiteEvent::Announced { name } => {
                site.unconfirmed.remove(&name);
                if site.owned.contains(&name) && site.contested.remove(&name).is_some() {
                    site.elsewhere.remove(&name);
                    self.regions.leaving.remove(&name);
                    self.serve_item_named(&name);
                }
            }
            SiteEvent::Contested { name, node } => {
                site.unconfirmed.remove(&name);
                if site.owned.contains(&name) {
                    let line = is_elsewhere(&name, &node, true);
                    self.effects.push(Effect::Log { line });
                    site.contested.insert(name.clone(), node.clone());
                    self.moving_is_at(&name, Some(&node.node));
                }
            }
            SiteEvent::Node(SiteNode { node, number, address }) => {
                if node != site.limits.node {
                    site.nodes.insert(node, NodeStatus { number, address, gone: None });
                }
            }
            SiteEvent::NodeGone { node } => {
                if let Some(known) = site.nodes.get_mut(&node) {
                    known.gone = Some(now);
                }
                let gone = site.nodes.iter().filter_map(|(node, known)| Some((known.gone?, node)));
                let gone: BTreeSet<_> = gone.map(|(since, node)| (since, node.clone())).collect();
                for (_, node) in gone.iter().take(gone.len().saturating_sub(GONE)) {
                    site.nodes.remove(node);
                }
            }
            SiteEvent::Named { name, node } => {
                site.departed.is_back(&name);
                if node != site.limits.node {
                    site.given.remove(&name);
                    let known = site.nodes.get(&node);
                    let (number, address) = known.map_or((0, String::new()), |n| (n.number, n.address.clone()));
                    if site.owned.contains(&name) {
                        // The region of this name may have moved to the other node, although it is not removed from
                        // this node yet.
                        self.moving_is_at(&name, Some(&node));
                    }
                    let Some(site) = &mut self.site else { return };
                    if self.regions.leaving.contains(&name) && !site.contested.contains_key(&name) {
                        let at = SiteNode { node: node.clone(), number, address: address.clone() };
                        site.contested.insert(name.clone(), at);
                    }
                    if let Some(at) = site.contested.get_mut(&name) {
                        // Another node had claimed this name of an item. That node has passed its item on to a third
                        // node, and the name went with the item.
                        *at = SiteNode { node: node.clone(), number, address };
                    }
                    site.elsewhere.insert(name.clone(), node);
                    match name.kind {
                        SegmentKind::Item => self.item_is_elsewhere(&name),
                        SegmentKind::Series => {
                            self.series_name_is_free(&name);
                            self.observe_elsewhere(&name);
                        }
                        _ => self.end_waits_for(&name),
                    }
                } else if site.owned.contains(&name) {
                    if site.contested.contains_key(&name) {
                        // Another node may have given the name back, because the region has not moved. So this node
                        // claims the name again.
                        self.claim_again(name);
                    }
                } else {
                    site.elsewhere.remove(&name);
                    if name.kind != SegmentKind::Region {
                        site.given.insert(name);
                    } else if !site.claims.contains_key(&name) {
                        // This node has got the name of a region that it does not have. There are two possible reasons.
                        // The name may have come back to this node after the region was removed here. Or this node took
                        // the name for a move of the region to this node, and the move has not happened. In both cases
                        // this node gives the name up.
                        let order = self.way_back(name);
                        self.effects.push(Effect::Site(order));
                    }
                }
            }
            SiteEvent::Unnamed { name } => {
                site.given.remove(&name);
                if let Some(node) = site.elsewhere.remove(&name) {
                    site.departed.dropped(name.clone(), node, now);
                }
                // If this is the name of a region of this node, the other node that had the name has given the name up
                // or lost its lease. If the region was handed over to the other node, the region may have moved there
                // and have been removed there. So the region stays closed on this node until the other node has said
                // whether the region has moved.
                match site.owned.contains(&name) {
                    // The catalog may have removed the name's entry together with a former lease of this node.
                    true => self.claim_again(name),
                    false => self.series_name_is_free(&name),
                }
            }
            SiteEvent::Found { name, outcome } => {
                if let Ok(node) = &outcome {
                    self.name_of_move_is_at(&name, node.as_deref());
                }
                let Some(site) = &mut self.site else { return };
                match &outcome {
                    Ok(Some(node)) if *node != site.limits.node => {
                        self.site_news(SiteEvent::Named { name: name.clone(), node: node.clone() });
                    }
                    Ok(_) => self.moving_is_at(&name, None),
                    Err(_) => {}
                }
                self.name_looked_up(&name, &outcome);
            }
            SiteEvent::Passed { item, epoch, outcome } => self.passed(item, epoch, outcome),
            SiteEvent::Item(place) => self.item_place(&place),
            SiteEvent::NoItem { item } => self.item_unknown(item),
            SiteEvent::Links(links) => {
                site.links = links.into_iter().map(|link| (link.node.clone(), (link, now))).collect();
            }
        }
    }

    fn claimed(&mut self, name: SiteName, outcome: Claimed) {
        let Some(site) = &mut self.site else { return };
        let claims = site.claims.remove(&name).unwrap_or_default();
        site.unconfirmed.remove(&name);
        let (status, text) = match outcome {
            Claimed::Ours => {
                site.departed.is_back(&name);
                site.elsewhere.remove(&name);
                site.given.remove(&name);
                let was_contested = site.contested.remove(&name).is_some();
                self.regions.leaving.remove(&name);
                site.owned.insert(name.clone());
                let publisher = claims.iter().find(|claim| matches!(claim.request, Request::Publish { .. }));
                if let Some(claim) = publisher {
                    site.promised.insert(name.clone(), claim.member);
                }
                // If none of the waiting requests makes an object with the name, the name is released again.
                site.touched.insert(name.clone());
                self.again.extend(claims.into_iter().map(|claim| (claim.waits, claim.member, claim.request)));
                if was_contested {
                    self.serve_item_named(&name);
                }
                return;
            }
            Claimed::Theirs(at) if at.node == site.limits.node => {
                let text = format!("{} '{}' is on its way to this node from another one", name.kind.word(), name.name);
                (Status::Exists, text)
            }
            Claimed::Theirs(at) => {
                let text = is_elsewhere(&name, &at, false);
                let is_port = name.kind == SegmentKind::Port;
                let is_series = name.kind == SegmentKind::Series && !site.owned.contains(&name);
                let node = at.node.clone();
                if site.owned.contains(&name) {
                    // The name is contested now, for one of two reasons. An item came to this node, but its name
                    // belongs to another node. Or a region was to move to another node, the move has not happened, and
                    // the other node has not given the region's name back yet.
                    site.contested.insert(name.clone(), at.clone());
                }
                site.elsewhere.insert(name.clone(), at.node);
                if is_port {
                    // The name belongs to a port of another node. Such a port can be opened through a mirror. So the
                    // requests that waited for the claim of the name are served again, and now open the mirror.
                    self.again.extend(claims.into_iter().map(|claim| (claim.waits, claim.member, claim.request)));
                    return;
                }
                if is_series {
                    return self.ask_owner_of_series(claims, &name, &node, &text);
                }
                (Status::Exists, text)
            }
            Claimed::Failed(why) => {
                if site.may_be_own(&name) {
                    site.lapsed.insert(name.clone());
                }
                let text = format!(
                    "it is not known whether {} '{}' is free in site '{}': {why}; try again",
                    name.kind.word(),
                    name.name,
                    site.limits.site
                );
                (Status::Disconnected, text)
            }
        };
        for claim in claims {
            if let Some(asker) = self.still_asks(&claim) {
                self.fail(asker, status, text.clone());
            }
        }
    }

    /// Serves the requests that wait for the item of this name. The name was contested, and belongs to this node alone
    /// again. While it was contested, no request got the item.
    fn serve_item_named(&mut self, name: &SiteName) {
        let key = self.local_key(name).filter(|_| name.kind == SegmentKind::Item);
        let item = key.and_then(|key| self.lasting.items.of_key(key.0, &key.2));
        item.into_iter().for_each(|item| self.serve_waiting(item));
    }

    /// Gives the member whose request made a claim, if the member is still connected.
    fn still_asks(&self, claim: &Claim) -> Option<Requester> {
        let Claim { waits, member, request, .. } = claim;
        let is_there = self.has_member(waits.0, *member);
        let asker = Requester { connection: waits.0, member: *member, number: waits.1, opcode: request.number() };
        is_there.then_some(asker)
    }

    /// For requests to publish a series whose name another node has: asks that node to give the name up.
    fn ask_owner_of_series(&mut self, claims: Vec<Claim>, name: &SiteName, node: &str, text: &str) {
        for claim in claims {
            match self.still_asks(&claim) {
                Some(asker) if claim.has_asked => self.fail(asker, Status::Exists, text),
                Some(asker) => self.ask_for_series_name(asker, claim.request, name.clone(), node.to_owned()),
                None => {}
            }
        }
    }

    /// The request `waits` claims the name. Notes that this node, on behalf of this request, has already asked the
    /// name's node to give the name up.
    pub(super) fn has_asked_owner(&mut self, name: &SiteName, waits: (Connection, u64)) {
        let claims = self.site.as_mut().and_then(|site| site.claims.get_mut(name));
        let own = claims.into_iter().flatten().filter(|claim| claim.waits == waits);
        own.for_each(|claim| claim.has_asked = true);
    }

    /// Notes that the name does not belong to the node `node` any more.
    pub(super) fn forget_elsewhere(&mut self, name: &SiteName, node: &str) {
        if let Some(site) = self.site.as_mut().filter(|site| site.elsewhere.get(name).is_some_and(|at| at == node)) {
            site.elsewhere.remove(name);
        }
    }

    /// Stops reserving a series' name for the member that was about to publish it, because the member has published the
    /// series, or because its request failed.
    pub(super) fn keep_promise(&mut self, workflow: u64, name: &str) {
        let name = self.site_name(workflow, SegmentKind::Series, name);
        if let (Some(site), Some(name)) = (&mut self.site, name) {
            site.promised.remove(&name);
        }
    }

    /// Fails the requests that wait for a name, because another node has made an object of that name.
    fn end_waits_for(&mut self, name: &SiteName) {
        let Some(key) = self.local_key(name).filter(|_| !self.is_here(name)) else { return };
        let Some(text) = self.elsewhere(key.0, key.1, &key.2) else { return };
        for waits in self.waits.queue(&key) {
            let Some(member) = self.links.get(&waits.0).and_then(|link| link.member) else { continue };
            if self.unpark(waits).is_some() {
                let asker = Requester { connection: waits.0, member, number: waits.1, opcode: 2 };
                self.fail(asker, Status::NotFound, text.clone());
            }
        }
    }

    /// Serves the requests of waiting observers again, because another node publishes the series.
    fn observe_elsewhere(&mut self, name: &SiteName) {
        let Some(key) = self.local_key(name).filter(|_| !self.is_here(name)) else { return };
        for waits in self.waits.queue(&key) {
            let Some(member) = self.links.get(&waits.0).and_then(|link| link.member) else { continue };
            let Some(parked) = self.unpark(waits) else { continue };
            let wait_ms = parked.deadline.saturating_sub(self.now);
            let request = Request::Observe { wait_ms, former: false, name: key.2.clone() };
            self.again.push_back((waits, member, request));
        }
    }

    /// Notes the names that may have no object any more after this record, so that the broker can release them in the
    /// catalog.
    pub(super) fn touch_names(&mut self, record: &Record) {
        if self.site.is_none() {
            return;
        }
        let name = match record {
            Record::Removed { segment, .. } | Record::Released { segment } => {
                let found = self.lasting.segments.get(segment);
                found.and_then(|found| self.site_name(found.workflow, found.kind, &found.name))
            }
            Record::Item(ItemRecord::Gone { item, .. }) => {
                let found = self.lasting.items.all.get(item);
                found.and_then(|found| self.site_name(found.workflow, SegmentKind::Item, &found.key))
            }
            Record::WorkflowEnd { number, .. } => {
                let ended = self.lasting.workflow_name(*number);
                if let (Some(site), Some(ended)) = (&mut self.site, ended) {
                    site.touched.extend(site.owned.iter().filter(|name| name.workflow == ended).cloned());
                }
                None
            }
            _ => None,
        };
        if let (Some(site), Some(name)) = (&mut self.site, name) {
            site.touched.insert(name);
        }
    }

    /// Releases the names of this node that no object has, except names that a request is about to use.
    pub(super) fn settle_site(&mut self) {
        let idle = self.again.is_empty() && self.making.is_none() && !self.items.is_making();
        let Some(site) = self.site.as_mut().filter(|site| idle && !site.touched.is_empty()) else { return };
        let touched = std::mem::take(&mut site.touched);
        for name in touched {
            let is_here = self.is_here(&name);
            let Some(site) = &mut self.site else { return };
            if is_here {
                site.promised.remove(&name);
                self.series_name_is_kept(&name);
                continue;
            }
            if site.promised.get(&name).is_some_and(|member| self.connected.contains_key(member)) {
                site.touched.insert(name);
                continue;
            }
            if self.is_claimed_for_region(&name) {
                let Some(site) = &mut self.site else { return };
                site.touched.insert(name);
                continue;
            }
            let Some(site) = &mut self.site else { return };
            site.promised.remove(&name);
            // The announcement may have claimed this name for the node, and the catalog has not confirmed it yet. So
            // the name is released, too.
            let unconfirmed = site.unconfirmed.remove(&name);
            let contested = site.contested.remove(&name).is_some() && !unconfirmed;
            if site.owned.remove(&name) && !contested {
                self.succession.released(&name);
                let order = self.way_back(name);
                self.effects.push(Effect::Site(order));
            }
        }
    }

    /// Gives the time in milliseconds since the node `node` was last heard through its link.
    pub(super) fn node_silent_ms(&self, node: &str) -> Option<u64> {
        let (link, at) = self.site.as_ref()?.links.get(node)?;
        link.heard_ms.map(|heard| heard.saturating_add(self.now.saturating_sub(*at)))
    }

    /// Gives all nodes of the site whose numbers are greater than `after`, this node included, in the order of their
    /// numbers.
    pub(super) fn node_entries(&self, after: u64) -> impl Iterator<Item = NodeEntry> {
        let mut entries = Vec::new();
        if let Some(site) = &self.site {
            let entry = |node: &str, number, address: &str, (state, silent_ms), names: usize| {
                let link = site.links.get(node).map(|(link, _)| link);
                NodeEntry {
                    number,
                    silent_ms,
                    state,
                    names: u32::try_from(names).unwrap_or(u32::MAX),
                    round_trip_us: link.and_then(|link| link.round_trip_us).unwrap_or(0),
                    site: site.limits.site.clone(),
                    node: node.to_owned(),
                    address: address.to_owned(),
                    transport: link.map_or(String::new(), |link| link.transport.clone()),
                    why: link.map_or(String::new(), |link| link.why.clone()),
                }
            };
            let silent = self.now - site.synced;
            let state = if matches!(site.lease, LeaseState::In) { NodeState::Here } else { NodeState::CutOff };
            entries.push(entry(&site.limits.node, site.limits.number, "", (state, silent), site.owned.len()));
            for (node, known) in &site.nodes {
                let state = known.gone.map_or((NodeState::Joined, silent), |since| (NodeState::Gone, self.now - since));
                let names = site.elsewhere.values().filter(|at| *at == node).count();
                entries.push(entry(node, known.number, &known.address, state, names));
            }
        }
        entries.sort_by_key(|entry| entry.number);
        entries.into_iter().filter(move |entry| entry.number > after)
    }

    /// For simulations: tells whether the broker believes that it has a lease, and gives the names of objects that the
    /// broker would let members open as objects of this node.
    pub fn site_names(&self) -> (bool, Vec<SiteName>) {
        let Some(site) = &self.site else { return (false, Vec::new()) };
        let names = site.owned.iter().filter(|name| self.is_here(name) && !site.contested.contains_key(name));
        (matches!(site.lease, LeaseState::In), names.cloned().collect())
    }

    /// Panics if an object's name was not claimed in the site, or if a claimed name has no object. Checks nothing if
    /// the daemon is in no site.
    pub(super) fn check_site(&self) {
        let Some(site) = &self.site else { return };
        for name in self.all_site_names() {
            assert!(site.owned.contains(&name), "{name:?} exists and was not claimed");
        }
        assert!(site.claims.keys().all(|name| !site.owned.contains(name)), "an owned name is being claimed");
        assert!(site.contested.keys().all(|name| site.owned.contains(name)), "a contested name is not ours");
        let idle = self.again.is_empty() && self.making.is_none() && !self.items.is_making();
        let unused = |name: &&SiteName| !self.is_here(name) && !site.touched.contains(*name);
        let unused = site.owned.iter().find(unused).filter(|_| idle);
        assert!(unused.is_none(), "{unused:?} is claimed and does not exist");
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::Rights;
    use crossdock_layout::wire::{Answer, InUse, OpenMode};

    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{Event, MAIN_ENDPOINT};

    fn name() -> SiteName {
        SiteName { workflow: "default".into(), kind: SegmentKind::Region, name: "x".into() }
    }

    fn open(bench: &mut Bench, mode: OpenMode) -> Option<Status> {
        let open = Request::Open {
            kind: SegmentKind::Region,
            mode,
            access: Rights::WRITE,
            size: 1 << 20,
            reserve: 0,
            attribute: 0,
            wait_ms: 0,
            persistent: false,
            name: "x".into(),
        };
        let answer = bench.ask(1, open);
        match answer {
            Some(Answer::Segment { .. }) => None,
            other => Some(status(other).expect("the request is answered")),
        }
    }

    #[test]
    fn a_name_whose_object_is_removed_before_the_catalog_has_confirmed_it_is_released() {
        for is_confirmed in [false, true] {
            let mut bench = Bench::in_site();
            bench.join(1, MAIN_ENDPOINT, "w", 0);
            assert_eq!(open(&mut bench, OpenMode::CreateOnly), None);
            let node = || SiteNode { node: "b".into(), number: 2, address: String::new() };
            bench.event(Event::Site(SiteEvent::Contested { name: name(), node: node() }));
            bench.event(Event::Site(SiteEvent::Joined));
            if is_confirmed {
                bench.event(Event::Site(SiteEvent::Contested { name: name(), node: node() }));
            }
            bench.effects.clear();
            bench.ask(1, Request::Remove { kind: SegmentKind::Region, in_use: InUse::Keep, name: "x".into() });
            let release = Effect::Site(SiteOrder::Release(name()));
            assert_eq!(bench.effects.contains(&release), !is_confirmed);
        }
    }

    #[test]
    fn a_name_that_another_node_has_stays_closed_after_a_new_lease_until_the_catalog_has_given_it_back() {
        let at_b = || SiteNode { node: "b".into(), number: 2, address: String::new() };
        for is_announced in [true, false] {
            let mut bench = Bench::in_site();
            bench.join(1, MAIN_ENDPOINT, "w", 0);
            assert_eq!(open(&mut bench, OpenMode::CreateOnly), None);
            let cut_off = SiteEvent::CutOff { why: "the network is cut".into() };
            match is_announced {
                // The node has heard from an earlier announcement that the node `b` has the name.
                true => bench.event(Event::Site(SiteEvent::Contested { name: name(), node: at_b() })),
                // The node has heard from its watch of the catalog that the node `b` has the name.
                false => {
                    bench.event(Event::Site(cut_off.clone()));
                    bench.event(Event::Site(SiteEvent::Named { name: name(), node: "b".into() }));
                }
            }
            bench.event(Event::Site(cut_off));
            bench.event(Event::Site(SiteEvent::Joined));
            assert_eq!(open(&mut bench, OpenMode::OpenOnly), Some(Status::NotFound), "{is_announced}");
            assert_eq!(open(&mut bench, OpenMode::Recreate), Some(Status::Exists), "{is_announced}");
            bench.event(Event::Site(SiteEvent::Announced { name: name() }));
            assert_eq!(open(&mut bench, OpenMode::OpenOnly), None, "{is_announced}");
        }
    }
}
