//! A simulation of names in a site. It runs several brokers, the gateways' real logic, and one catalog in memory, under
//! random schedules. Nodes are cut off, lose answers, are stopped, are killed and come back, while their members make
//! and remove names. The catalog loses its leader for some time. A node whose commit was in flight at that moment does
//! not learn whether the commit was made.
//!
//! After every round the simulation checks that no name is given out by two running nodes that both assume that they
//! have a lease. At the end all faults are removed. Then every node must be a member of the site, and the catalog must
//! have exactly the names that the nodes have. Five planted defects must be found.

#[path = "site_world/catalog.rs"]
mod catalog;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossdock_catalog::{Catalog, Expect, Faults, Memory};
use crossdock_gateway::GatewayEvent;
use crossdock_gateway::simulated::SimulatedGateway;
use crossdock_layout::wire::{Answer, FINGERPRINT, InUse, OpenMode, PROTOCOL_VERSION, Request, SegmentKind};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Rights, SegmentId};
use crossdock_node::broker::{
    Broker, Effect, Event, Lasting, Limits, MAIN_ENDPOINT, NODE_SHIFT, Peer, Record, SiteLimits, SiteName,
};
use crossdock_os::Deadline;
use crossdock_os::testing::Random;

use catalog::{Defects, Handle, LEADERLESS_MS, Leader, gateway};

/// How many schedules a usual run has. A run of this many schedules must contain faults of every kind.
const USUAL: u64 = 1500;
/// The seeds of schedules beyond a usual run that once found a defect of the broker. Every run includes these
/// schedules.
const FOUND_DEFECTS: [u64; 4] = [1852, 9168, 30_275, 81_925];

/// A defect that is planted on purpose, and that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The catalog lets a node claim a name that another node has.
    MissingFence,
    /// After its lease has ended, a node keeps a name that it had, although another node has taken the name.
    OldEpochAccepted,
    /// A node continues as if its lease had not ended.
    LostLeaseIgnored,
    /// A node's clock does not advance while the node is stopped.
    StillClock,
    /// If the catalog loses its leader before it has answered a commit, the node assumes that the commit was made.
    UnknownIsDone,
}

impl Planted {
    fn defects(self) -> Defects {
        let is_fence = |expect: &Expect| matches!(expect, Expect::Free(key) if key.contains("/name/"));
        Defects {
            unfenced: if self == Self::MissingFence { is_fence } else { |_: &Expect| false },
            lost_lease_ignored: self == Self::LostLeaseIgnored,
            unknown_is_done: self == Self::UnknownIsDone,
        }
    }
}

struct Node {
    name: String,
    token: u64,
    /// The lasting state of the broker, as the node's journal would restore it.
    lasting: Lasting,
    held: BTreeSet<SegmentId>,
    /// The node's number; 0 until it has joined the site for the first time.
    number: u64,
    broker: Option<Broker>,
    steps: SimulatedGateway,
    memory: Arc<Memory>,
    handle: Arc<Handle>,
    clock: Arc<AtomicU64>,
    connection: u64,
    request: u64,
    stopped: bool,
    planted: Planted,
}

/// Counts of what happened in a schedule.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    made: usize,
    contested: usize,
    leaders_lost: u64,
    /// Commits whose outcome the node did not learn because the catalog lost its leader, and which the catalog has
    /// carried out.
    unknown_made: u64,
    /// Commits whose outcome the node did not learn because the catalog lost its leader, and which the catalog has not
    /// carried out.
    unknown_dropped: u64,
    /// Calls that the catalog refused because it had no leader.
    leaderless: u64,
}

impl Totals {
    fn add(&mut self, more: Self) {
        self.made += more.made;
        self.contested += more.contested;
        self.leaders_lost += more.leaders_lost;
        self.unknown_made += more.unknown_made;
        self.unknown_dropped += more.unknown_dropped;
        self.leaderless += more.leaderless;
    }
}

struct World {
    memory: Memory,
    leader: Arc<Leader>,
    /// The time until the catalog has a leader again, in milliseconds.
    leaderless_ms: u64,
    nodes: Vec<Node>,
    made: usize,
    contested: usize,
}

impl Node {
    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Starts a broker from the journal, and connects a member.
    fn start_broker(&mut self, now: u64) {
        let site = SiteLimits { site: "s".into(), node: self.name.clone(), number: self.number };
        let limits = Limits { site: Some(site), ..Limits::default() };
        let listening = BTreeSet::from([MAIN_ENDPOINT]);
        let (broker, effects) = Broker::new(limits, self.lasting.clone(), now + 1, &self.held, &listening, now);
        self.broker = Some(broker);
        self.perform(now, effects);
        self.connection += 1;
        let (connection, peer) = (self.connection, Peer { pid: 1, birth: self.connection, uid: 0 });
        self.event(now, Event::Connected { connection, endpoint: MAIN_ENDPOINT, peer });
        let mut token = [1; 16];
        token[..8].copy_from_slice(&connection.to_le_bytes());
        self.request = 1;
        self.say(
            now,
            &Request::Hello {
                protocol: PROTOCOL_VERSION,
                layout: LAYOUT_VERSION,
                fingerprint: FINGERPRINT,
                token,
                member: MemberId::NONE,
                rank: 0,
                visitor: false,
                task: None,
                workflow: None,
            },
        );
    }

    fn say(&mut self, now: u64, request: &Request) {
        let bytes = request.encode(self.request, 0);
        self.request += 1;
        self.event(now, Event::Message { connection: self.connection, bytes: Some(&bytes), descriptors: &[] });
    }

    fn event(&mut self, now: u64, event: Event<'_>) {
        let Some(broker) = &mut self.broker else { return };
        let effects = broker.handle(now, event);
        self.perform(now, effects);
    }

    fn perform(&mut self, now: u64, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Record(record) => {
                    if matches!(record, Record::Segment { .. }) {
                        assert!(self.steps.is_in(), "a name was made without a lease");
                    }
                    self.lasting.apply(&record);
                }
                Effect::Make { segment, .. } => {
                    self.held.insert(segment);
                    self.event(now, Event::Made { outcome: Ok(segment.0) });
                }
                Effect::Forget { segment } => drop(self.held.remove(&segment)),
                Effect::Site(order) => self.steps.order(order.into()),
                Effect::Send { message, with, .. } => {
                    Answer::decode(&message, with.count()).expect("the broker's own words");
                }
                _ => {}
            }
        }
    }

    /// Lets the gateway do what is due, gives the gateway's reports to the broker, and passes the broker's requests to
    /// the gateway, several times. Returns how many names became contested, which means that another node has claimed
    /// them.
    fn step(&mut self, now: u64) -> usize {
        let mut contested = 0;
        for _ in 0..3 {
            self.steps.step();
            for news in self.steps.news() {
                if let GatewayEvent::Joined { number } = news {
                    assert!(self.number == 0 || self.number == number, "a node has two numbers");
                    self.number = number;
                }
                if self.number == 0 {
                    continue;
                }
                if self.broker.is_none() {
                    self.start_broker(now);
                }
                let is_contested = matches!(news, GatewayEvent::Contested { .. });
                contested += usize::from(is_contested);
                if !is_contested || self.planted != Planted::OldEpochAccepted {
                    self.event(now, Event::Site(news.into()));
                }
            }
        }
        contested
    }
}

impl World {
    fn new(planted: Planted) -> Self {
        let (memory, leader) = (Memory::with_manual_clock(), Arc::new(Leader::default()));
        let node = |name: &str| {
            let clock = Arc::new(AtomicU64::new(0));
            let own = Arc::new(memory.client());
            let handle = Arc::new(Handle::new(Arc::clone(&own), &leader, planted.defects()));
            Node {
                name: name.into(),
                token: 1,
                lasting: Lasting::default(),
                held: BTreeSet::new(),
                number: 0,
                broker: None,
                steps: gateway(&handle, &clock, name, 1, 0),
                memory: own,
                handle,
                clock,
                connection: 0,
                request: 1,
                stopped: false,
                planted,
            }
        };
        let nodes = ["a", "b", "c"].map(node).into();
        Self { memory, leader, leaderless_ms: 0, nodes, made: 0, contested: 0 }
    }

    fn pass(&mut self, ms: u64) {
        for node in self.nodes.iter().filter(|node| !node.stopped || node.planted != Planted::StillClock) {
            node.clock.fetch_add(ms, Ordering::Relaxed);
        }
        if !self.leader.is_lost() {
            return self.memory.advance(Duration::from_millis(ms));
        }
        // No lease ends while the catalog has no leader, because the next leader continues the leases of the former
        // leader.
        self.leaderless_ms = self.leaderless_ms.saturating_sub(ms);
        if self.leaderless_ms == 0 {
            self.leader_returns();
        }
    }

    /// Takes the catalog's leader away for some time. The next commit of each node counts as in flight at this moment.
    fn lose_leader(&mut self, random: &mut Random) {
        if self.leader.is_lost() {
            return;
        }
        self.leader.set_lost(true);
        self.leaderless_ms = LEADERLESS_MS[random.below(4)];
        for node in &self.nodes {
            node.handle.leader_is_lost(random.below(2) == 0);
        }
    }

    fn leader_returns(&self) {
        self.leader.set_lost(false);
        for node in &self.nodes {
            node.handle.leader_is_back();
        }
    }

    fn totals(&self) -> Totals {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Totals {
            made: self.made,
            contested: self.contested,
            leaders_lost: count(&self.leader.losses),
            unknown_made: count(&self.leader.made),
            unknown_dropped: count(&self.leader.dropped),
            leaderless: count(&self.leader.refused),
        }
    }

    /// Lets `ms` milliseconds pass, and then lets all running nodes do what is due.
    fn round(&mut self, ms: u64) {
        self.pass(ms);
        for node in self.nodes.iter_mut().filter(|node| !node.stopped) {
            self.contested += node.step(node.now());
        }
    }

    fn disturb(&mut self, random: &mut Random) {
        let (what, which, name) = (random.below(100), random.below(3), random.below(3));
        let name = ["x", "y", "z/1"][name as usize].to_owned();
        let node = &mut self.nodes[which];
        let (now, clock) = (node.now(), Arc::clone(&node.clock));
        match what {
            0..35 if !node.stopped => {
                let before = node.lasting.names.len();
                let open = Request::Open {
                    kind: SegmentKind::Region,
                    mode: OpenMode::CreateOnly,
                    access: Rights::WRITE,
                    persistent: true,
                    size: 65_536,
                    reserve: 4096,
                    attribute: 0,
                    wait_ms: 0,
                    name,
                };
                node.say(now, &open);
                self.contested += node.step(now);
                self.made += usize::from(node.lasting.names.len() > before);
            }
            35..45 if !node.stopped => {
                node.say(now, &Request::Remove { kind: SegmentKind::Region, in_use: InUse::Force, name });
                self.contested += node.step(now);
            }
            45..60 => {
                let faults = match random.below(5) {
                    0 | 1 => Faults { cut: true, ..Faults::default() },
                    2 => Faults { fail: 2, ..Faults::default() },
                    // The catalog gets what the node sends, but the node gets little from the catalog: the answers to
                    // the next `lose` calls are lost, and with `hold` the catalog reports no changes to the node.
                    3 => Faults { lose: [1, 5, 50][random.below(3)], hold: true, ..Faults::default() },
                    _ => Faults::default(),
                };
                if !self.leader.is_lost() {
                    node.memory.set_faults(faults);
                }
            }
            60..70 => {
                node.stopped = !node.stopped;
                if !node.stopped {
                    self.contested += node.step(now);
                }
            }
            70..76 => {
                // The broker is killed. The gateway is in the same process, so a new gateway begins, too.
                node.steps = gateway(&node.handle, &clock, &node.name, node.token, node.number);
                node.stopped = false;
                if node.number != 0 {
                    node.start_broker(now);
                }
            }
            76..79 => {
                // The whole daemon is killed. A new daemon with the same node name begins without any state.
                node.token += 1;
                (node.lasting, node.held, node.broker, node.number) = (Lasting::default(), BTreeSet::new(), None, 0);
                node.steps = gateway(&node.handle, &clock, &node.name, node.token, 0);
                node.stopped = false;
            }
            79..84 => self.memory.compact(),
            84..88 => self.lose_leader(random),
            _ => {}
        }
    }

    /// For each name: the node that has it. Only running nodes that believe that they have a lease are considered.
    /// Fails if two such nodes have the same name.
    fn owners(&self) -> Result<BTreeMap<SiteName, &str>, String> {
        let mut owners = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| !node.stopped && node.steps.is_in()) {
            let Some(broker) = &node.broker else { continue };
            broker.check_at_rest();
            for name in broker.site_names().1 {
                if let Some(other) = owners.insert(name.clone(), node.name.as_str()) {
                    return Err(format!("{name:?} is given out by {other} and by {}", node.name));
                }
            }
        }
        Ok(owners)
    }

    /// Removes all faults. Then checks that every node is a member of the site, and that the catalog has exactly the
    /// names that the nodes have.
    fn settle(&mut self) -> Result<(), String> {
        self.leader_returns();
        for node in &mut self.nodes {
            node.memory.set_faults(Faults::default());
            node.stopped = false;
        }
        for _ in 0..60 {
            self.round(500);
        }
        if let Some(node) = self.nodes.iter().find(|node| !node.steps.is_in()) {
            return Err(format!("node {} is not back", node.name));
        }
        let owners = self.owners()?;
        let by = Deadline::after(Duration::from_secs(60));
        let entries = self.memory.list("crossdock/s/name/", by).map_err(|error| error.to_string())?.entries;
        let found: BTreeMap<_, _> = entries
            .iter()
            .map(|entry| (entry.key.clone(), String::from_utf8_lossy(&entry.value).trim_start_matches("1 ").to_owned()))
            .collect();
        let key =
            |n: &SiteName| format!("crossdock/s/name/{}/{}/{}/{}", n.kind.word(), n.workflow.len(), n.workflow, n.name);
        let wanted: BTreeMap<_, _> = owners.iter().map(|(name, node)| (key(name), (*node).to_owned())).collect();
        if found != wanted { Err(format!("the catalog has {found:?}, the nodes have {wanted:?}")) } else { Ok(()) }
    }
}

/// Runs one schedule.
fn run(seed: u64, planted: Planted) -> Result<Totals, String> {
    let (mut world, mut random) = (World::new(planted), Random(seed));
    for step in 0..120 {
        let ms = [0, 20, 300, 2000, 9000][random.below(5)];
        world.round(ms);
        world.disturb(&mut random);
        world.owners().map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    world.settle().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    Ok(world.totals())
}

#[test]
fn no_two_nodes_of_a_site_give_out_one_name() {
    let number = |name: &str, usual: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (first, schedules) = (number("CROSSDOCK_SEED", 0), number("CROSSDOCK_SCHEDULES", USUAL));
    let mut totals = Totals::default();
    for seed in FOUND_DEFECTS {
        run(seed, Planted::Nothing).unwrap_or_else(|why| panic!("{why}"));
    }
    for seed in first..first + schedules {
        totals.add(run(seed, Planted::Nothing).unwrap_or_else(|why| panic!("{why}")));
    }
    println!("{schedules} schedules: {totals:?}");
    let tame = totals.made as u64 <= schedules || totals.contested == 0 || totals.leaders_lost < schedules;
    let tame = tame || totals.unknown_made == 0 || totals.unknown_dropped == 0 || totals.leaderless == 0;
    assert!(!tame || schedules < USUAL, "the schedules are too tame: {totals:?}");
}

#[test]
fn planted_defects_are_found() {
    use Planted::{LostLeaseIgnored, MissingFence, OldEpochAccepted, StillClock, UnknownIsDone};
    for planted in [MissingFence, OldEpochAccepted, LostLeaseIgnored, StillClock, UnknownIsDone] {
        let found = (0..1500).find_map(|seed| run(seed, planted).err());
        let why = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: {why}");
    }
}

#[test]
fn ids_hold_the_number_of_their_node() {
    let mut world = World::new(Planted::Nothing);
    world.round(0);
    for (number, node) in world.nodes.iter().enumerate() {
        assert_eq!(node.lasting.next_segment >> NODE_SHIFT, number as u64 + 1);
    }
}
