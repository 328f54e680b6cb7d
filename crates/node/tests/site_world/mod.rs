//! The world of `site_items.rs`: three nodes, their members, the catalog, the network between the nodes, and the
//! checks.

mod catalog;
mod members;
mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossdock_catalog::{Catalog, Expect, Faults, Memory};
use crossdock_gateway::GatewayEvent;
use crossdock_gateway::simulated::SimulatedGateway;
use crossdock_layout::{MemberId, SegmentId};
use crossdock_node::broker::{
    Broker, Effect, Event, Item, ItemRecord, Lasting, Limits, MAIN_ENDPOINT, NODE_SHIFT, Record, Residence, SiteEvent,
    SiteItem, SiteLimits, SiteName, SiteOrder, Verdict,
};
use crossdock_os::Deadline;
use crossdock_os::testing::Random;

use catalog::{Defects, Handle, LEADERLESS_MS, Leader, gateway};
use members::Member;
use network::Network;

/// A defect that is planted on purpose, and that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// The catalog makes a commit even if the commit's conditions do not hold.
    MissingFence,
    /// A broker accepts a report about an item although it knows a newer report.
    OldEpochAccepted,
    /// If the catalog's answer is lost, the node assumes that the item was not passed on, and keeps it.
    LostAnswerIsNo,
    /// A node passes an item to another node while a member still has the item open.
    NoProof,
    /// A node on which members read an item reports that it has no readers.
    ReadersDenied,
    /// The proof does not notice that another node is pulling the item's bytes.
    PullUnseen,
    /// All bytes that a node sends ahead have the same stamp. If the catalog refuses to pass an item on, the bytes that
    /// were sent ahead are taken for those of a later attempt.
    StampIgnored,
    /// The proof does not notice that another node is pulling the item's bytes, if the link is slow.
    SlowPullUnseen,
    /// If the catalog loses its leader before it has answered a commit, the node assumes that the commit was made.
    UnknownIsDone,
    /// While an item is on its way between two nodes, its name counts as free.
    TransitUnseen,
}

impl Planted {
    fn defects(self) -> Defects {
        let is_fence = |expect: &Expect| expect.key().contains("/name/") || expect.key().contains("/owner/");
        let unfenced = if self == Self::MissingFence { is_fence } else { |_: &Expect| false };
        Defects { unfenced, lost_lease_ignored: false, unknown_is_done: self == Self::UnknownIsDone }
    }
}

/// What may happen in a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Everything that this simulation can do may happen.
    Whole,
    /// No member looks up an item, all items are small, no link is slow, and the catalog does not lose its leader.
    Early,
}

/// Counts of what happened in a schedule.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many items were made.
    pub made: u64,
    /// How often an owner opened an item.
    pub opened: u64,
    /// How many items went to another node.
    pub passed: u64,
    /// How many items moved on from a node before their bytes had arrived on this node.
    pub chained: u64,
    /// How many items stayed on their node because the catalog refused to pass them to another node.
    pub kept: u64,
    /// How many items were lost with a daemon.
    pub lost: u64,
    /// How often a reader opened an item.
    pub read: u64,
    /// How often a reader opened an item of another node.
    pub read_elsewhere: u64,
    /// How often an owner's request to end the sharing of an item succeeded before the request's timeout.
    pub waited: u64,
    /// How often a node used bytes that another node had sent ahead.
    pub ahead: u64,
    /// How often a member got the description of an item.
    pub found: u64,
    /// How often a member asked for an item that was on its way between two nodes.
    pub sought_in_transit: u64,
    /// How often a member asked for an item that did not exist, and got NOT_FOUND.
    pub missed: u64,
    /// How many messages went through a slow link.
    pub slowed: u64,
    /// How many pulls through a slow link were successful.
    pub slow_pulls: u64,
    /// How many questions and pulls through a slow link had no answer when their deadlines passed.
    pub expired: u64,
    /// How often the catalog lost its leader.
    pub leaders_lost: u64,
    /// How many commits were made while the catalog lost its leader, so that their outcome was unknown.
    pub unknown_made: u64,
    /// How many commits were dropped while the catalog lost its leader, so that their outcome was unknown.
    pub unknown_dropped: u64,
    /// How many calls the catalog refused because it had no leader.
    pub leaderless: u64,
}

impl Totals {
    pub fn add(&mut self, more: Self) {
        self.made += more.made;
        self.opened += more.opened;
        self.passed += more.passed;
        self.chained += more.chained;
        self.kept += more.kept;
        self.lost += more.lost;
        self.read += more.read;
        self.read_elsewhere += more.read_elsewhere;
        self.waited += more.waited;
        self.ahead += more.ahead;
        self.found += more.found;
        self.sought_in_transit += more.sought_in_transit;
        self.missed += more.missed;
        self.slowed += more.slowed;
        self.slow_pulls += more.slow_pulls;
        self.expired += more.expired;
        self.leaders_lost += more.leaders_lost;
        self.unknown_made += more.unknown_made;
        self.unknown_dropped += more.unknown_dropped;
        self.leaderless += more.leaderless;
    }
}

pub const NAMES: [&str; 3] = ["a", "b", "c"];

struct Node {
    lasting: Lasting,
    /// For each file that the keeper holds: a number that stands for the file's bytes.
    files: BTreeMap<SegmentId, u64>,
    number: u64,
    token: u64,
    broker: Option<Broker>,
    steps: SimulatedGateway,
    memory: Arc<Memory>,
    handle: Arc<Handle>,
    stopped: bool,
    /// Reports of the gateway that the broker gets with the next step. They wait because the node had no number yet, or
    /// because the test has made them.
    early: Vec<GatewayEvent>,
    /// All reports about items that this node has got so far.
    told: Vec<SiteItem>,
    copies: Vec<(SegmentId, SegmentId, SegmentId)>,
}

/// What the test knows of an item.
struct Known {
    /// The bytes that the last owner wrote.
    written: u64,
    /// For the bytes of each sharing: the time at which they were overwritten; `u64::MAX` if they were not overwritten.
    shared: BTreeMap<u64, u64>,
    /// True if the item may not exist any more: a member asked to destroy it, or it ended because another item has its
    /// key.
    doubtful: bool,
    /// True if a daemon that had the item or its bytes was killed.
    may_be_lost: bool,
}

pub struct World {
    random: Random,
    planted: Planted,
    form: Form,
    leader: Arc<Leader>,
    /// If the catalog has no leader: the time at which it gets a new leader.
    leader_back: u64,
    /// The keys whose items certainly exist.
    alive: BTreeSet<String>,
    /// The items that may exist, with their keys.
    possible: BTreeMap<SegmentId, String>,
    catalog: Memory,
    clock: Arc<AtomicU64>,
    nodes: Vec<Node>,
    members: Vec<Member>,
    network: Network,
    items: BTreeMap<SegmentId, Known>,
    next: u64,
    /// If set: the number of effects that are still carried out. After them, the broker that requests the next effect
    /// is killed.
    fuse: Option<usize>,
    /// True if the schedule is calm: nothing fails, and messages are only late.
    calm: bool,
    /// True at the end of a schedule, when nothing fails any more.
    settling: bool,
    wrong: Option<String>,
    totals: Totals,
}

impl World {
    fn new(seed: u64, planted: Planted, form: Form) -> Self {
        let (catalog, clock) = (Memory::with_manual_clock(), Arc::new(AtomicU64::new(0)));
        let leader = Arc::new(Leader::default());
        let node = |name: &&str| {
            let memory = Arc::new(catalog.client());
            let handle = Arc::new(Handle::new(Arc::clone(&memory), &leader, planted.defects()));
            Node {
                lasting: Lasting::default(),
                files: BTreeMap::new(),
                number: 0,
                token: 1,
                broker: None,
                steps: gateway(&handle, &clock, name, 1, 0),
                memory,
                handle,
                stopped: false,
                early: Vec::new(),
                told: Vec::new(),
                copies: Vec::new(),
            }
        };
        let nodes = NAMES.iter().map(node).collect();
        let mut world = Self {
            random: Random(seed),
            planted,
            form,
            leader: Arc::clone(&leader),
            leader_back: 0,
            alive: BTreeSet::new(),
            possible: BTreeMap::new(),
            catalog,
            clock,
            nodes,
            members: Vec::new(),
            network: Network::default(),
            items: BTreeMap::new(),
            next: 1000,
            fuse: None,
            calm: seed % 4 == 3,
            settling: false,
            wrong: None,
            totals: Totals::default(),
        };
        for node in 0..NAMES.len() {
            for task in [format!("t{node}"), "any".to_owned()] {
                let member = Member::new(node, task, world.fresh());
                world.members.push(member);
            }
        }
        world
    }

    /// Gives a number that was not used before.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn fail(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    fn start_broker(&mut self, n: usize) {
        let (now, base) = (self.now(), self.fresh() * 100_000);
        let node = &mut self.nodes[n];
        let site = SiteLimits { site: "s".into(), node: NAMES[n].into(), number: node.number };
        // Each broker of a node starts at a different time of day.
        let limits = Limits { site: Some(site), incarnation: node.token, began_ms: base, ..Limits::default() };
        let held: BTreeSet<_> = node.files.keys().copied().collect();
        let listening = BTreeSet::from([MAIN_ENDPOINT]);
        let (broker, effects) = Broker::new(limits, node.lasting.clone(), base, &held, &listening, now);
        node.broker = Some(broker);
        self.perform(n, effects);
        for member in 0..self.members.len() {
            if self.members[member].node == n {
                self.connect(member);
            }
        }
    }

    fn event(&mut self, n: usize, event: Event<'_>) {
        let now = self.now();
        let Some(broker) = &mut self.nodes[n].broker else { return };
        let effects = broker.handle(now, event);
        self.perform(n, effects);
    }

    fn perform(&mut self, n: usize, effects: Vec<Effect>) {
        for effect in effects {
            if self.nodes[n].broker.is_none() {
                return;
            }
            if let Some(left) = self.fuse {
                if left == 0 {
                    self.fuse = None;
                    return self.crash_broker(n);
                }
                self.fuse = Some(left - 1);
            }
            self.effect(n, effect);
        }
    }

    fn effect(&mut self, n: usize, effect: Effect) {
        match effect {
            Effect::Record(record) => {
                self.note_ends(n, &record);
                self.nodes[n].lasting.apply(&record);
            }
            Effect::MakeItem { file, .. } => {
                self.nodes[n].files.insert(file, 0);
                self.event(n, Event::Made { outcome: Ok(0) });
            }
            Effect::ProveItem { item, file, size, .. } => {
                let open = self.is_open(n, file) && self.planted != Planted::NoProof;
                let verdict = match open {
                    true => Verdict::Clinging,
                    false if self.random.one_in(20) => Verdict::Unknown("no descriptor".into()),
                    false if self.network.is_pulled(n, file, self.planted) => Verdict::Pulled,
                    false if size.is_none() => Verdict::Incomplete,
                    false => Verdict::Alone,
                };
                self.event(n, Event::Proved { item, file, verdict });
            }
            Effect::CopyItem { item, from, to, .. } => {
                self.nodes[n].files.insert(to, 0);
                self.nodes[n].copies.push((item, from, to));
            }
            Effect::FetchItem { to, pull, .. } => {
                self.nodes[n].files.insert(to, 0);
                self.node_order(n, pull);
            }
            Effect::Nodes(order) => self.node_order(n, order),
            Effect::Site(order) => self.site_order(n, order),
            Effect::Forget { segment } => drop(self.nodes[n].files.remove(&segment)),
            Effect::Send { connection, message, with } => self.deliver(n, connection, &message, with),
            Effect::Close { connection, .. } => self.closed(n, connection),
            Effect::Log { line } if line.contains("is lost") => self.totals.lost += 1,
            _ => {}
        }
    }

    /// Gives what the test knows of an item. If the test does not know the item yet, the item's maker was killed before
    /// it got the answer. So the maker wrote nothing, and the item's bytes are zero.
    fn known(&mut self, item: SegmentId) -> &mut Known {
        self.items.entry(item).or_insert(Known {
            written: 0,
            shared: BTreeMap::new(),
            doubtful: false,
            may_be_lost: false,
        })
    }

    fn site_order(&mut self, n: usize, mut order: SiteOrder) {
        if let (SiteOrder::Pass { to, .. }, true) = (&mut order, self.planted == Planted::StampIgnored) {
            // The stamp of the bytes that are sent ahead is the last field of the item's description.
            let stamp = to.about.len() - 8;
            if to.about[stamp..] != [0; 8] {
                to.about[stamp..].copy_from_slice(&1u64.to_le_bytes());
            }
        }
        if let SiteOrder::Pass { name, to } = &order {
            let refuses = self.random.one_in(if self.planted == Planted::StampIgnored { 3 } else { 30 });
            if refuses && self.refuse_pass(n, name, to) {
                return;
            }
        }
        if self.may_fail() && matches!(order, SiteOrder::Pass { .. }) && self.random.one_in(30) {
            // The commit that passes the item is the next commit, so it is in flight when the leader is lost.
            self.lose_leader();
        }
        self.nodes[n].steps.order(order.clone().into());
        if let (SiteOrder::Pass { to, .. }, true) = (&order, self.planted == Planted::LostAnswerIsNo) {
            let outcome = Err("no answer".to_owned());
            let (item, epoch) = (to.item, to.epoch);
            self.event(n, Event::Site(SiteEvent::Passed { item, epoch, outcome }));
        }
    }

    /// Refuses the broker's request to pass an item on, as a gateway does if the next node has just left the site.
    /// Writes the catalog's entry of the name again, so that no commit of an earlier request for this item can still
    /// succeed. Returns false, and does nothing, if the name does not belong to node `n`, because an earlier request
    /// may have succeeded.
    fn refuse_pass(&mut self, n: usize, name: &SiteName, to: &SiteItem) -> bool {
        let by = Deadline::after(Duration::from_secs(60));
        let (catalog, length) = (self.catalog.client(), name.workflow.len());
        let key = format!("crossdock/s/name/item/{length}/{}/{}", name.workflow, name.name);
        let is_own = |value: &[u8]| value.split(|byte| *byte == b' ').nth(1) == Some(NAMES[n].as_bytes());
        let entry = catalog.get(&key, by).unwrap();
        let Some(entry) = entry.filter(|entry| is_own(&entry.value)) else { return false };
        catalog.put(&key, &entry.value, entry.lease, by).unwrap();
        let (item, epoch, outcome) = (to.item, to.epoch, Err("the next node has left the site".to_owned()));
        self.nodes[n].early.push(GatewayEvent::Passed { item: item.0, epoch, outcome });
        true
    }

    /// Lets the gateway of node `n` do what is due, and gives the gateway's reports to the broker.
    fn step(&mut self, n: usize) {
        for _ in 0..3 {
            self.nodes[n].steps.step();
            let mut early = std::mem::take(&mut self.nodes[n].early);
            early.extend(self.nodes[n].steps.news());
            for news in &early {
                if let GatewayEvent::Joined { number } = news {
                    self.nodes[n].number = *number;
                }
            }
            if self.nodes[n].number == 0 {
                self.nodes[n].early = early;
                continue;
            }
            for news in early {
                if self.nodes[n].broker.is_none() {
                    self.start_broker(n);
                }
                let mut news: SiteEvent = news.into();
                match &news {
                    SiteEvent::Item(place) => {
                        self.nodes[n].told.push(place.clone());
                        self.look_where_it_went(place);
                    }
                    SiteEvent::Found { name, .. } if self.is_unseen(&name.name) => {
                        news = SiteEvent::Found { name: name.clone(), outcome: Ok(None) };
                    }
                    SiteEvent::Passed { outcome: Ok(()), item, .. } => self.count_passed(n, *item),
                    SiteEvent::Passed { outcome: Err(_), .. } => self.totals.kept += 1,
                    _ => {}
                }
                self.event(n, Event::Site(news));
            }
        }
        // The host also asks the kernel whether members without a connection are dead.
        let away: Vec<_> = self.nodes[n].broker.iter().flat_map(Broker::unproved).collect();
        for member in away {
            if !self.members.iter().any(|m| m.node == n && m.id == member) {
                self.event(n, Event::ProcessDied { member });
            }
        }
        self.event(n, Event::Tick);
        self.say_closed(n);
    }

    /// An item may go to a daemon that was killed, because the daemon's lease may not have ended yet. Notes that such
    /// an item may be lost.
    fn look_where_it_went(&mut self, place: &SiteItem) {
        let to = NAMES.iter().position(|name| *name == place.node).expect("a node of the site");
        if place.daemon != self.nodes[to].token {
            self.known(place.item).may_be_lost = true;
        }
    }

    fn count_passed(&mut self, n: usize, item: SegmentId) {
        if let Some(Residence::Leaving { bytes, .. }) = self.nodes[n].lasting.items.residences.get(&item) {
            self.totals.passed += 1;
            self.totals.chained += u64::from(bytes.is_some());
        }
    }

    /// Notes which items have ended and which exist. The checks of look-ups use this.
    fn note_ends(&mut self, n: usize, record: &Record) {
        let Record::Item(record) = record else { return };
        match record {
            ItemRecord::Made { item, state, .. } => {
                self.possible.insert(*item, state.key.clone());
                for member in &mut self.members {
                    member.must_miss = member.must_miss.take().filter(|key| *key != state.key);
                }
            }
            ItemRecord::Gone { item, .. } => {
                self.possible.remove(item);
                if self.is_replaced(n, *item) {
                    self.known(*item).doubtful = true;
                }
            }
            _ => {}
        }
        let items = &self.nodes[n].lasting.items;
        match record {
            ItemRecord::Made { state, .. } if self.catalog_node(&state.key) == Some(n) => {
                self.alive.insert(state.key.clone());
            }
            ItemRecord::Gone { item, .. } | ItemRecord::Ended { item, .. } => {
                let key = items.all.get(item).map(|found| found.key.clone());
                self.end_keys(key.as_deref());
            }
            _ => {}
        }
    }

    /// Tells whether node `n` has another item with the same key, and no member has this item open. In this case the
    /// broker ends this item.
    fn is_replaced(&self, n: usize, item: SegmentId) -> bool {
        let items = &self.nodes[n].lasting.items;
        let is_named = |found: &Item| items.keys.get(&(found.workflow, found.key.clone())) == Some(&item);
        items.all.get(&item).is_some_and(|found| found.holder == MemberId::NONE && !is_named(found))
    }

    /// Notes that the item of this key may not exist any more. Without a key, notes this for all items.
    pub(crate) fn end_keys(&mut self, key: Option<&str>) {
        let is_it = |other: &String| key.is_none_or(|key| key == other);
        self.alive.retain(|other| !is_it(other));
        for member in &mut self.members {
            member.must_find = member.must_find.take().filter(|other| !is_it(other));
        }
    }

    /// When the lease of a node has ended, the catalog no longer has the names of the node's items, and another member
    /// may make items of these names. Notes this for all such items.
    fn end_lost_names(&mut self) {
        let lost: Vec<_> = self.alive.iter().filter(|key| self.catalog_node(key).is_none()).cloned().collect();
        for key in lost {
            self.end_keys(Some(&key));
        }
    }

    /// Gives the node that, according to the catalog, has the item of this key.
    fn catalog_node(&self, key: &str) -> Option<usize> {
        let by = Deadline::after(Duration::from_secs(60));
        let name = format!("crossdock/s/name/item/7/default/{key}");
        let entry = self.catalog.client().get(&name, by).unwrap()?;
        let node = entry.value.split(|byte| *byte == b' ').nth(1)?.to_owned();
        NAMES.iter().position(|name| name.as_bytes() == node)
    }

    /// Tells whether the item of this key is on its way between two nodes: it exists, but no node has it at the moment.
    fn is_in_transit(&self, key: &str) -> bool {
        let is_here = |node: &Node| node.lasting.items.keys.keys().any(|(_, other)| other == key);
        self.alive.contains(key) && !self.nodes.iter().any(is_here)
    }

    /// Tells whether the planted defect makes this item count as not existing while it is between two nodes.
    fn is_unseen(&self, key: &str) -> bool {
        self.planted == Planted::TransitUnseen && self.is_in_transit(key)
    }

    /// Takes the catalog's leader away for some time. The next commit of each node counts as in flight at this moment.
    fn lose_leader(&mut self) {
        if self.leader.is_lost() {
            return;
        }
        self.leader.set_lost(true);
        self.leader_back = self.now() + LEADERLESS_MS[self.random.below(4)];
        for node in &self.nodes {
            node.handle.leader_is_lost(self.random.one_in(2));
        }
    }

    /// Lets the delayed commits of node `n` reach the catalog; their callers have given up. If the catalog has no
    /// leader, the commits wait.
    fn late_commits_arrive(&self, n: usize) {
        if !self.leader.is_lost() {
            for commit in self.nodes[n].handle.late.lock().unwrap().drain(..) {
                self.catalog.client().commit(&commit, Deadline::after(Duration::ZERO)).ok();
            }
        }
    }

    fn leader_returns(&mut self) {
        self.leader.set_lost(false);
        for node in &self.nodes {
            node.handle.leader_is_back();
        }
    }

    /// Makes the links between two nodes slow, or all links fast again.
    fn slow_down(&mut self) {
        let (a, b) = (self.random.below(3), self.random.below(3));
        match a == b {
            true => self.network.speed_up(),
            false => self.network.slow(a, b, [300, 1500, 4000][self.random.below(3)]),
        }
    }

    /// Lets `ms` milliseconds pass, and then lets all running nodes do what is due.
    fn round(&mut self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
        if self.leader.is_lost() && self.now() >= self.leader_back {
            self.leader_returns();
        }
        // No lease ends while the catalog has no leader: the next leader continues the leases of the former leader.
        if !self.leader.is_lost() {
            self.catalog.advance(Duration::from_millis(ms));
        }
        for n in 0..self.nodes.len() {
            if !self.nodes[n].stopped {
                self.end_lost_names();
                self.step(n);
            }
        }
    }

    fn end_copies(&mut self, n: usize) {
        for (item, from, to) in std::mem::take(&mut self.nodes[n].copies) {
            let bytes = self.nodes[n].files.get(&from).copied();
            if let (Some(bytes), Some(target)) = (bytes, self.nodes[n].files.get_mut(&to)) {
                *target = bytes;
            }
            self.event(n, Event::Copied { item, to, outcome: bytes.map(drop).ok_or_else(|| "it is gone".to_owned()) });
        }
    }

    /// Kills the broker of node `n`. The keeper, the node's files and its members stay.
    fn crash_broker(&mut self, n: usize) {
        let clock = Arc::clone(&self.clock);
        self.network.forget_node(n);
        let node = &mut self.nodes[n];
        node.broker = None;
        node.copies.clear();
        node.early.clear();
        node.steps = gateway(&node.handle, &clock, NAMES[n], node.token, node.number);
        node.stopped = false;
        for member in self.members.iter_mut().filter(|member| member.node == n) {
            member.connection = 0;
        }
        if self.nodes[n].number != 0 {
            self.start_broker(n);
        }
    }

    /// Kills the daemon of node `n`, and with it all its state and its members. A new daemon with the same node name
    /// begins without any state.
    fn crash_daemon(&mut self, n: usize) {
        let mut doomed = Vec::new();
        for node in &self.nodes {
            for (item, at) in &node.lasting.items.residences {
                let goes = matches!(at, Residence::Here { bytes: Some(from), .. } | Residence::Leaving { bytes: Some(from), .. }
                    if from.node == NAMES[n]);
                let comes = matches!(at, Residence::Leaving { to, .. } | Residence::Left { to, .. } if to == NAMES[n]);
                if goes || comes {
                    doomed.push(*item);
                }
            }
        }
        let of_node = &self.nodes[n].lasting.items;
        for item in of_node.all.keys().chain(of_node.residences.keys()).copied().collect::<Vec<_>>() {
            doomed.push(item);
        }
        // The test accepts the loss of every item whose entry in the catalog names this node, even if the node did not
        // know yet that it had the item.
        let by = Deadline::after(Duration::from_secs(60));
        for entry in self.catalog.client().list("crossdock/s/owner/", by).unwrap().entries {
            let item = SegmentId(entry.key.rsplit('/').next().unwrap().parse().unwrap());
            let mut words = std::str::from_utf8(&entry.value[..entry.value.len().min(20)]).unwrap_or("").split(' ');
            if words.nth(2) == Some(NAMES[n]) || words.next().is_none() {
                doomed.push(item);
            }
        }
        for item in doomed {
            self.known(item).may_be_lost = true;
        }
        self.end_keys(None);
        let clock = Arc::clone(&self.clock);
        self.network.forget_node(n);
        let token = self.fresh();
        let node = &mut self.nodes[n];
        (node.lasting, node.files, node.broker) = (Lasting::default(), BTreeMap::new(), None);
        node.copies.clear();
        node.early.clear();
        (node.number, node.token, node.stopped) = (0, token, false);
        node.steps = gateway(&node.handle, &clock, NAMES[n], token, 0);
        for member in 0..self.members.len() {
            if self.members[member].node == n {
                self.replace_member(member);
            }
        }
    }

    fn disturb(&mut self) {
        let n = self.random.below(3);
        if self.planted == Planted::OldEpochAccepted && self.random.one_in(5) {
            return self.tell_again(n);
        }
        if self.form == Form::Whole && !self.calm {
            match self.random.below(60) {
                0..3 => return self.slow_down(),
                3 => return self.lose_leader(),
                _ => {}
            }
        }
        match self.random.below(if self.calm { 70 } else { 100 }) {
            0..70 => self.act(),
            70..76 => {
                let faults = match self.random.below(5) {
                    0 => Faults { cut: true, ..Faults::default() },
                    1 => Faults { fail: 2, ..Faults::default() },
                    // Only the direction from the catalog to the node is cut: the catalog gets what the node sends.
                    2 => Faults { lose: [1, 5, 50][self.random.below(3)], hold: true, ..Faults::default() },
                    _ => Faults::default(),
                };
                if !self.leader.is_lost() {
                    self.nodes[n].memory.set_faults(faults);
                }
            }
            76..80 => *self.nodes[n].handle.delay.lock().unwrap() = true,
            80..84 => self.late_commits_arrive(n),
            84..87 => self.nodes[n].stopped = !self.nodes[n].stopped,
            87..89 => self.crash_broker(n),
            89..92 => self.fuse = Some(self.random.below(6)),
            92 => self.crash_daemon(n),
            93..96 => self.network.cut(n, self.random.below(3), self.random.one_in(2)),
            96 => self.catalog.compact(),
            97..99 => self.tell_again(n),
            _ => {}
        }
    }

    /// Sends to a node, once more, a report about an item. The node has got this report before.
    fn tell_again(&mut self, n: usize) {
        if self.nodes[n].told.is_empty() || self.nodes[n].stopped {
            return;
        }
        let at = self.random.below(self.nodes[n].told.len());
        let mut place = self.nodes[n].told[at].clone();
        let known = self.nodes[n].lasting.items.residences.get(&place.item);
        // The node has forgotten this item, because it has got the last report about the item. A real gateway repeats
        // no older report after the last report, so the test does not either.
        if known.is_none() {
            return;
        }
        if self.planted == Planted::OldEpochAccepted {
            place.epoch += 100;
        }
        self.event(n, Event::Site(SiteEvent::Item(place)));
    }

    fn check(&mut self) {
        self.check_reads();
        let mut at: BTreeMap<SegmentId, usize> = BTreeMap::new();
        for (n, name) in NAMES.iter().enumerate() {
            let Some(broker) = &self.nodes[n].broker else { continue };
            broker.check_at_rest();
            for item in broker.lasting().items.all.keys().copied().collect::<Vec<_>>() {
                if matches!(self.nodes[n].lasting.items.residences.get(&item), Some(Residence::Leaving { .. })) {
                    continue;
                }
                if let Some(other) = at.insert(item, n) {
                    self.fail(format!("{item} is on nodes {} and {name}", NAMES[other]));
                }
            }
        }
    }

    /// Removes all faults. Then checks that each item's owner can open it, and that nothing is left over.
    fn settle(&mut self) -> Result<(), String> {
        (self.fuse, self.settling) = (None, true);
        self.network.heal();
        self.network.speed_up();
        self.leader_returns();
        for n in 0..self.nodes.len() {
            self.nodes[n].memory.set_faults(Faults::default());
            *self.nodes[n].handle.delay.lock().unwrap() = false;
            self.late_commits_arrive(n);
            self.nodes[n].stopped = false;
        }
        for _ in 0..60 {
            self.quiet_round();
        }
        self.let_all_go();
        self.quiet_round();
        if let Some(member) = self.members.iter().find(|member| member.looks_up()) {
            return Err(format!("a look-up of {} on node {} was never answered", member.task, NAMES[member.node]));
        }
        for item in self.items.keys().copied().collect::<Vec<_>>() {
            self.open_at_last(item)?;
        }
        // A node forgets an item that has ended on another node only some seconds after this end. So the test lets this
        // time pass.
        for _ in 0..30 {
            self.quiet_round();
        }
        self.check_leftovers()
    }

    /// Schedules of the form `Early` have fewer kinds of faults than other schedules. Tells whether the kinds that
    /// `Early` does not have may happen at this moment.
    fn may_fail(&self) -> bool {
        self.form == Form::Whole && !self.calm && !self.settling
    }

    fn quiet_round(&mut self) {
        self.round(500);
        for _ in 0..4 {
            self.network_step(false);
            for n in 0..self.nodes.len() {
                self.end_copies(n);
            }
        }
    }

    /// Gives the node that has an item now, if any.
    fn home(&self, item: SegmentId) -> Option<usize> {
        self.nodes.iter().position(|node| node.lasting.items.all.contains_key(&item))
    }

    fn open_at_last(&mut self, item: SegmentId) -> Result<(), String> {
        for _ in 0..20 {
            if self.home(item).is_none() {
                // The item may be on its way between two nodes.
                self.quiet_round();
            }
        }
        let Some(home) = self.home(item) else {
            let known = &self.items[&item];
            if known.doubtful || known.may_be_lost {
                return Ok(());
            }
            return Err(format!("{item} is nowhere"));
        };
        let found = self.nodes[home].lasting.items.all[&item].clone();
        // While the node `home` was cut off, another node may have made an item of this name. Then the name no longer
        // belongs to `home`, and the item cannot be opened.
        let (_, names) = self.nodes[home].broker.as_ref().unwrap().site_names();
        if !names.iter().any(|name| name.name == found.key) {
            return Ok(());
        }
        let named = self.nodes[home].lasting.items.keys.get(&(found.workflow, found.key.clone()));
        if named != Some(&item) {
            return Ok(());
        }
        let crossdock_layout::wire::Party::Task { task, .. } = &found.owner else { unreachable!() };
        let of_task: Vec<_> = (0..self.members.len()).filter(|m| self.members[*m].task == *task).collect();
        let member = of_task[self.random.below(of_task.len())];
        for _ in 0..200 {
            if self.members[member].pending.is_none() {
                // The member has no unanswered request. If its last request failed for a temporary reason, this repeats
                // the request.
                self.want(member, &found.key, 5000);
            }
            self.quiet_round();
            if self.members[member].open.contains_key(&item) {
                self.let_all_go();
                return Ok(());
            }
            if self.home(item).is_none() && self.items[&item].may_be_lost {
                return Ok(());
            }
            // Close the items that the members got by earlier requests, so that the item can go to its owner.
            self.let_all_go();
        }
        let at = self.home(item).map(|n| (NAMES[n], self.nodes[n].lasting.items.residences.get(&item)));
        Err(format!(
            "{item} '{}' of {task} is not opened on {}: {at:?}, {found:?}",
            found.key, NAMES[self.members[member].node]
        ))
    }

    fn totals(&self) -> Totals {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Totals {
            leaders_lost: count(&self.leader.losses),
            unknown_made: count(&self.leader.made),
            unknown_dropped: count(&self.leader.dropped),
            leaderless: count(&self.leader.refused),
            ..self.totals.clone()
        }
    }

    fn check_leftovers(&self) -> Result<(), String> {
        for (n, node) in self.nodes.iter().enumerate() {
            if !node.steps.is_in() {
                return Err(format!("node {} is not back", NAMES[n]));
            }
            let used: BTreeSet<_> = node.lasting.items.all.values().map(|item| item.file).collect();
            let stray = node.files.keys().find(|file| !used.contains(file));
            let left = node.lasting.items.residences.iter().filter(|(_, at)| !matches!(at, Residence::Here { .. }));
            let left: Vec<_> = left.collect();
            // A node keeps the file of an item that has left until the item's present node has pulled the bytes. If no
            // member can open the item any more, no node pulls them, and the file stays for ever. So such a file is no
            // error.
            let waits = |file: &&SegmentId| {
                left.iter().any(|(_, at)| matches!(at, Residence::Left { file: of, .. } if of == *file))
            };
            if let Some(file) = stray.filter(|file| !waits(file)) {
                return Err(format!("{file} is left over on node {}: {left:?}", NAMES[n]));
            }
            for (item, at) in left {
                let Residence::Left { to, .. } = at else {
                    return Err(format!("{item} is {at:?} on node {}", NAMES[n]));
                };
                let other = self.home(*item).filter(|other| NAMES[*other] == to || self.nodes[*other].number > 0);
                if other.is_none() {
                    return Err(format!("{item} left node {} and is nowhere: {at:?}", NAMES[n]));
                }
            }
            assert!(node.number >> (64 - NODE_SHIFT) == 0);
        }
        Ok(())
    }
}

/// Runs one schedule.
pub fn run(seed: u64, planted: Planted, form: Form) -> Result<Totals, String> {
    let mut world = World::new(seed, planted, form);
    world.round(0);
    for step in 0..150 {
        world.disturb();
        for _ in 0..if world.calm { 6 } else { world.random.below(4) } {
            world.network_step(!world.calm);
        }
        let n = world.random.below(3);
        if world.random.one_in(2) && !world.nodes[n].stopped {
            world.end_copies(n);
        }
        let late = [0, 0, 20, 20, 300, 2000, 6000][world.random.below(7)];
        let ms = if world.calm { late.min(400) } else { late };
        world.round(ms);
        world.check();
        if let Some(why) = world.wrong.take() {
            return Err(format!("seed {seed}, step {step}: {why}"));
        }
    }
    world.settle().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    match world.wrong.take() {
        Some(why) => Err(format!("seed {seed}, at the end: {why}")),
        None => Ok(world.totals()),
    }
}
