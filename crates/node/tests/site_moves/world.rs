//! The simulated world: the nodes, their catalog, the faults, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossdock_catalog::{Catalog, Faults, Memory};
use crossdock_gateway::GatewayEvent;
use crossdock_gateway::simulated::SimulatedGateway;
use crossdock_layout::wire::{Answer, SegmentKind};
use crossdock_layout::{MemberId, SegmentId};
use crossdock_node::broker::{
    Broker, Effect, Event, Lasting, Limits, MAIN_ENDPOINT, NodeEvent, NodeOrder, Record, Segment, SiteEvent, SiteLimits,
};
use crossdock_os::Deadline;

use crate::catalog::{Defects, Handle, LEADERLESS_MS, Leader, gateway};
use crate::host::{CopyOrder, Copying, Host, MOVE_ENDED, index};
use crate::network::Network;
use crate::tasks::Task;
use crossdock_os::testing::Random;

/// A defect that is planted on purpose, and that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// The region's node removes a moving region as soon as it has sent the last part, and does not wait until the
    /// region has moved.
    RemovedEarly,
    /// The next node gives a moving region its name without a HAND_OVER, so the next node does not learn whether tasks
    /// have opened the region meanwhile.
    HandOverSkipped,
    /// The host opens a region to copy it, but tasks can still open the region.
    FreezeSkipped,
    /// The node to which a region moves forgets the move before the region's former node knows whether the region has
    /// moved.
    RecordForgotten,
    /// If the next node answers that it does not know the move, the former node opens the region again.
    UnknownIsNotMoved,
    /// If the catalog says that the name of a handed-over region is free, the region's former node opens the region
    /// again.
    UnnamedIsNotMoved,
    /// A node that gets a report about an earlier move removes a later region of the same name.
    NameMeansRegion,
}

/// Counts of what happened in a schedule.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many regions were made.
    pub made: u64,
    /// How many regions moved.
    pub moved: u64,
    /// How many copies got their names.
    pub copied: u64,
    /// How many copies ended without a name.
    pub ended: u64,
    /// How often a region was not frozen because a task had it open.
    pub refused: u64,
    /// How often a copying node was asked whether it still makes the copy.
    pub asked_again: u64,
    /// How many times a node handed a region over to another node.
    pub handed_over: u64,
    /// How many times a region was handed over, but then did not move.
    pub came_back: u64,
    /// How often a node removed a region that it had handed over, because the next node had lost its state.
    pub given_up: u64,
    /// How often a node asked another node to remove a region.
    pub removals_asked: u64,
    /// How many parts of regions went through a slow link.
    pub slow_parts: u64,
    /// How often the bytes of a region were checked.
    pub checked: u64,
    /// How many regions may have been lost because a daemon was killed or a lease ended.
    pub lost: u64,
    /// How often the catalog lost its leader.
    pub leaders_lost: u64,
}

impl Totals {
    pub fn add(&mut self, more: Self) {
        self.made += more.made;
        self.moved += more.moved;
        self.copied += more.copied;
        self.ended += more.ended;
        self.refused += more.refused;
        self.asked_again += more.asked_again;
        self.handed_over += more.handed_over;
        self.came_back += more.came_back;
        self.given_up += more.given_up;
        self.removals_asked += more.removals_asked;
        self.slow_parts += more.slow_parts;
        self.checked += more.checked;
        self.lost += more.lost;
        self.leaders_lost += more.leaders_lost;
    }
}

pub const NAMES: [&str; 3] = ["a", "b", "c"];
/// How many parts a region has. Each part is pulled by a message of its own.
pub const PARTS: usize = 4;
/// The defects of this simulation are in the brokers and hosts, and not in the catalog.
const NO_DEFECTS: Defects = Defects { unfenced: |_| false, lost_lease_ignored: false, unknown_is_done: false };

/// The bytes of a region: for each part, a number that stands for the part's bytes.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    pub parts: [u64; PARTS],
    /// For a copy that is being made: how many of its parts have been pulled.
    pub came: usize,
    /// The number of the region in [`World::lines`]. A region keeps this number when it moves. A copy gets a new
    /// number.
    pub line: u64,
}

/// What the test knows of a region, whichever node has the region.
pub struct Line {
    /// The values that tasks wrote last, one for each part.
    pub parts: [u64; PARTS],
    /// True if a task asked to remove the region.
    pub may_be_removed: bool,
    /// False if the region's daemon was killed or its node's lease ended. Then the region may be gone, or its name may
    /// belong to another region.
    pub is_certain: bool,
}

/// A connection of a task or of the host.
pub struct Session {
    pub member: MemberId,
    /// The number of the last request that was sent on this connection. Only the host uses this field.
    pub last: u64,
    /// The answers that the host has not read yet.
    pub answers: BTreeMap<u64, Answer>,
}

pub struct Node {
    pub lasting: Lasting,
    /// The memory that the keeper holds.
    pub memory: BTreeMap<SegmentId, Bytes>,
    number: u64,
    token: u64,
    /// The number of brokers of this node that have been killed.
    life: u64,
    pub broker: Option<Broker>,
    steps: SimulatedGateway,
    catalog: Arc<Memory>,
    handle: Arc<Handle>,
    pub stopped: bool,
    /// Reports of the gateway that wait for the broker, because the node has no number yet.
    early: Vec<GatewayEvent>,
    pub sessions: BTreeMap<u64, Session>,
    pub host: Host,
}

pub struct World {
    pub random: Random,
    pub planted: Planted,
    leader: Arc<Leader>,
    /// If the catalog has no leader: the time at which it gets a new leader.
    leader_back: u64,
    catalog: Memory,
    clock: Arc<AtomicU64>,
    pub nodes: Vec<Node>,
    pub tasks: Vec<Task>,
    pub network: Network,
    pub lines: BTreeMap<u64, Line>,
    /// For each region that was handed over: the id of the segment that it becomes, and its name.
    pub moved_names: BTreeMap<SegmentId, String>,
    next: u64,
    /// If set: the number of effects that are still carried out. After them, the broker that requests the next effect
    /// is killed.
    pub fuse: Option<usize>,
    /// True if `fuse` kills the whole daemon, and not only its broker.
    pub fuse_loses_daemon: bool,
    /// If set: a region has just moved to a node, and this node is going to lose its daemon. The values are the node,
    /// the region's name, and the number of steps until the node loses its daemon.
    doomed: Option<(usize, String, u64)>,
    /// True at the end of a schedule, when no faults happen any more.
    is_settling: bool,
    /// True if the schedule is calm: nothing fails, and messages are only late.
    pub calm: bool,
    pub wrong: Option<String>,
    /// Why the last request of a task failed.
    pub refusal: String,
    pub totals: Totals,
}

impl World {
    pub fn new(seed: u64, planted: Planted) -> Self {
        let (catalog, clock) = (Memory::with_manual_clock(), Arc::new(AtomicU64::new(0)));
        let leader = Arc::new(Leader::default());
        let node = |name: &&str| {
            let own = Arc::new(catalog.client());
            let handle = Arc::new(Handle::new(Arc::clone(&own), &leader, NO_DEFECTS));
            Node {
                lasting: Lasting::default(),
                memory: BTreeMap::new(),
                number: 0,
                token: 1,
                life: 0,
                broker: None,
                steps: gateway(&handle, &clock, name, 1, 0),
                catalog: own,
                handle,
                stopped: false,
                early: Vec::new(),
                sessions: BTreeMap::new(),
                host: Host::default(),
            }
        };
        let nodes = NAMES.iter().map(node).collect();
        let mut world = Self {
            random: Random(seed),
            planted,
            leader: Arc::clone(&leader),
            leader_back: 0,
            catalog,
            clock,
            nodes,
            tasks: Vec::new(),
            network: Network::default(),
            lines: BTreeMap::new(),
            moved_names: BTreeMap::new(),
            next: 1000,
            fuse: None,
            fuse_loses_daemon: false,
            doomed: None,
            is_settling: false,
            calm: seed % 4 == 3,
            refusal: String::new(),
            wrong: None,
            totals: Totals::default(),
        };
        for node in 0..NAMES.len() {
            for task in ["t", "u"] {
                let task = Task::new(node, format!("{task}{node}"), world.fresh());
                world.tasks.push(task);
            }
        }
        world
    }

    /// Gives a number that was not used before.
    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub fn fail(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    fn start_broker(&mut self, n: usize) {
        let (now, base) = (self.now(), self.fresh() * 100_000);
        let node = &mut self.nodes[n];
        let site = SiteLimits { site: "s".into(), node: NAMES[n].into(), number: node.number };
        let limits = Limits { site: Some(site), incarnation: node.token, began_ms: base, ..Limits::default() };
        let held: BTreeSet<_> = node.memory.keys().copied().collect();
        let listening = BTreeSet::from([MAIN_ENDPOINT]);
        let (broker, effects) = Broker::new(limits, node.lasting.clone(), base, &held, &listening, now);
        node.broker = Some(broker);
        self.perform(n, effects);
        for t in 0..self.tasks.len() {
            if self.tasks[t].node == n && self.nodes[n].broker.is_some() {
                self.connect_task(t);
            }
        }
    }

    pub fn event(&mut self, n: usize, event: Event<'_>) {
        let now = self.now();
        let Some(broker) = &mut self.nodes[n].broker else { return };
        let effects = broker.handle(now, event);
        self.perform(n, effects);
    }

    fn perform(&mut self, n: usize, effects: Vec<Effect>) {
        let life = self.nodes[n].life;
        for effect in effects {
            // If the broker was killed while its effects were carried out, the rest of its effects is dropped.
            if self.nodes[n].life != life {
                return;
            }
            if let Some(left) = self.fuse {
                if left == 0 {
                    self.fuse = None;
                    return match self.fuse_loses_daemon {
                        true => self.crash_daemon(n),
                        false => self.crash_broker(n),
                    };
                }
                self.fuse = Some(left - 1);
            }
            self.effect(n, effect);
        }
    }

    fn effect(&mut self, n: usize, effect: Effect) {
        match effect {
            Effect::Record(record) => {
                self.note(n, &record);
                self.nodes[n].lasting.apply(&record);
            }
            Effect::Make { segment, .. } => {
                let bytes = Bytes { line: segment.0, ..Bytes::default() };
                self.nodes[n].memory.insert(segment, bytes);
                self.event(n, Event::Made { outcome: Ok(segment.0) });
            }
            Effect::Nodes(NodeOrder::CopyRegion { id, node, name, copy, moves, wait_ms, .. }) => {
                let (node, by) = (node.map_or(n, |node| index(&node)), self.now() + wait_ms);
                self.bring_region(n, CopyOrder { id, node, name, copy, moves, by });
            }
            Effect::Nodes(NodeOrder::Ask { id, node, service, body, wait_ms }) => {
                self.ask_for_broker(n, index(&node), id, (service, body), wait_ms);
            }
            Effect::Nodes(NodeOrder::Answer { id, outcome }) => {
                let outcome = outcome.map_err(|failure| failure.status);
                self.nodes[n].host.answers.insert(id, outcome);
            }
            Effect::Nodes(order) => unreachable!("no task uses anything but regions: {order:?}"),
            Effect::Log { line } if line.contains("has lost its state") => self.totals.given_up += 1,
            Effect::Site(order) => self.nodes[n].steps.order(order.into()),
            Effect::Forget { segment } => drop(self.nodes[n].memory.remove(&segment)),
            Effect::Send { connection, message, with } => self.deliver(n, connection, &message, with),
            Effect::Close { connection, .. } => {
                self.nodes[n].sessions.remove(&connection);
                for task in self.tasks.iter_mut().filter(|of| of.node == n && of.connection == connection) {
                    task.connection = 0;
                }
            }
            _ => {}
        }
    }

    /// Is called for each record of the journal. Notes new regions, and checks a copy when the copy gets its name.
    fn note(&mut self, n: usize, record: &Record) {
        match record {
            Record::Segment { segment, kind: SegmentKind::Region, name, .. }
                if !name.starts_with(crossdock_layout::name::MIRROR) =>
            {
                self.totals.made += 1;
                self.lines.insert(segment.0, Line { parts: [0; PARTS], may_be_removed: false, is_certain: true });
            }
            Record::Renamed { segment, .. } => self.named_now(n, *segment),
            Record::HandedOver { segment, becomes, .. } => {
                if let Some(name) = self.name_of(n, *segment) {
                    self.moved_names.insert(*becomes, name);
                }
            }
            Record::Moving { segment, moves: false } if self.is_handed_over(n, *segment) => self.totals.came_back += 1,
            _ => {}
        }
    }

    /// Gives the name of a node's segment.
    pub fn name_of(&self, n: usize, segment: SegmentId) -> Option<String> {
        self.nodes[n].lasting.segments.get(&segment).map(|found| found.name.clone())
    }

    pub fn is_handed_over(&self, n: usize, segment: SegmentId) -> bool {
        self.nodes[n].lasting.segments.get(&segment).is_some_and(|found| found.handed_over.is_some())
    }

    /// When the catalog reports a free name, does what a broker with the planted defect would do.
    fn planted_unnamed(&mut self, n: usize, news: &GatewayEvent) {
        let GatewayEvent::Unnamed { name } = news else { return };
        if self.planted != Planted::UnnamedIsNotMoved {
            return;
        }
        for (segment, _) in self.named(n, &name.name) {
            let found = self.nodes[n].lasting.segments.get(&segment);
            let Some(to) = found.and_then(|found| found.handed_over.clone()) else { continue };
            let body = [&segment.0.to_le_bytes()[..], &to.becomes.0.to_le_bytes(), &[0; 4]].concat();
            let (id, node) = (self.fresh(), to.node);
            self.event(n, Event::Nodes(NodeEvent::Asked { id, node, service: MOVE_ENDED, body }));
        }
    }

    fn named_now(&mut self, n: usize, segment: SegmentId) {
        let moves = self.nodes[n].host.making.values().find(|of| of.segment == segment).map(|of| of.moves());
        let Some(bytes) = self.nodes[n].memory.get_mut(&segment) else {
            return self.fail(format!("{segment} gets a name on node {} and is not held", NAMES[n]));
        };
        let parts = bytes.parts;
        let truth = self.lines.get(&bytes.line);
        let is_certain = truth.is_some_and(|truth| truth.is_certain);
        let last = truth.map_or(parts, |truth| truth.parts);
        match moves {
            Some(true) if !self.calm && !self.is_settling && self.doomed.is_none() && self.random.one_in(4) => {
                let name = self.nodes[n].host.making.values().find(|of| of.segment == segment).map(Copying::name);
                self.doomed = name.map(|name| (n, name, 3 + self.random.below(8)));
                self.network.cut_off(n);
            }
            Some(true) => {}
            // A copy is a region of its own from now on.
            Some(false) => {
                bytes.line = segment.0;
                self.lines.insert(segment.0, Line { parts, may_be_removed: false, is_certain });
            }
            None => return self.fail(format!("{segment} gets a name on node {} and is no copy", NAMES[n])),
        }
        self.totals.checked += 1;
        let is_torn = parts.iter().any(|part| *part != parts[0]);
        // A region that was copied, and not moved, may have newer bytes than its copy: if the broker of the region's
        // node was restarted since the freeze, the freeze has ended, and tasks may have written the region.
        if is_torn || moves == Some(true) && parts != last {
            self.fail(format!("{segment} gets its name on node {} with {parts:?}; {last:?} were written", NAMES[n]));
        }
    }

    /// Lets the gateway of node `n` do what is due, and gives the gateway's reports to the broker. Then lets the host
    /// do what is due.
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
                if let GatewayEvent::NodeGone { node } = &news {
                    self.nodes[n].host.gone(index(node));
                }
                self.planted_unnamed(n, &news);
                let news: SiteEvent = news.into();
                self.event(n, Event::Site(news));
            }
        }
        // The host also asks the kernel whether members without a connection are dead.
        let away: Vec<_> = self.nodes[n].broker.iter().flat_map(Broker::unproved).collect();
        for member in away {
            if !self.is_alive(n, member) {
                self.event(n, Event::ProcessDied { member });
            }
        }
        self.event(n, Event::Tick);
        self.host_step(n);
    }

    /// Gives the regions with this name on a node: for each its segment, and its number in [`World::lines`].
    pub fn named(&self, n: usize, name: &str) -> Vec<(SegmentId, u64)> {
        let names =
            self.nodes[n].lasting.names.iter().filter(|((_, kind, of), _)| *kind == SegmentKind::Region && of == name);
        names.filter_map(|(_, segment)| Some((*segment, self.nodes[n].memory.get(segment)?.line))).collect()
    }

    /// Notes that regions may be lost: the regions of node `n`, and the regions whose move to node `n` is noted by the
    /// broker of node `n`. If node `n` loses its daemon, a region of another node may be lost, too, if that node has
    /// handed the outcome of the region's move over to node `n`.
    fn doubt(&mut self, n: usize, loses_daemon: bool) {
        let own = self.nodes[n].memory.values().map(|bytes| bytes.line);
        let coming: BTreeSet<_> = self.nodes[n].lasting.arrivals.values().map(|arrival| arrival.former).collect();
        let elsewhere = self.nodes.iter().flat_map(|node| node.lasting.segments.iter().map(move |found| (node, found)));
        let elsewhere = elsewhere.filter(|(_, (segment, found))| {
            let is_handed_over = found.handed_over.as_ref().is_some_and(|to| to.node == NAMES[n]);
            coming.contains(segment) || loses_daemon && is_handed_over
        });
        let elsewhere = elsewhere.filter_map(|(node, (segment, _))| Some(node.memory.get(segment)?.line));
        for line in own.chain(elsewhere).collect::<Vec<_>>() {
            if let Some(truth) = self.lines.get_mut(&line).filter(|truth| truth.is_certain) {
                truth.is_certain = false;
                self.totals.lost += 1;
            }
        }
    }

    /// Lets `ms` milliseconds pass, and then lets all running nodes do what is due.
    pub fn round(&mut self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
        if self.leader.is_lost() && self.now() >= self.leader_back {
            self.leader_returns();
        }
        // No lease ends while the catalog has no leader, because the next leader continues the leases of the former
        // leader.
        if !self.leader.is_lost() {
            self.catalog.advance(Duration::from_millis(ms));
        }
        let by = Deadline::after(Duration::from_secs(60));
        for (n, name) in NAMES.iter().enumerate() {
            let entry = self.catalog.client().get(&format!("crossdock/s/node/{name}"), by).unwrap();
            if entry.is_none() {
                self.doubt(n, false);
            }
        }
        for n in 0..self.nodes.len() {
            if !self.nodes[n].stopped {
                self.step(n);
            }
        }
    }

    /// From now on, the node's requests to the catalog fail as `faults` says.
    pub fn catalog_fails(&mut self, n: usize, faults: Faults) {
        self.nodes[n].catalog.set_faults(faults);
    }

    fn lose_leader(&mut self) {
        if self.leader.is_lost() {
            return;
        }
        self.leader.set_lost(true);
        self.leader_back = self.now() + self.random.pick(&LEADERLESS_MS);
        for node in &self.nodes {
            node.handle.leader_is_lost(self.random.one_in(2));
        }
    }

    fn leader_returns(&mut self) {
        self.leader.set_lost(false);
        for node in &self.nodes {
            node.handle.leader_is_back();
        }
    }

    /// Kills the broker of node `n`, and the sessions of its host. The keeper, the node's memory and its tasks stay.
    pub fn crash_broker(&mut self, n: usize) {
        let clock = Arc::clone(&self.clock);
        self.network.forget_node(n);
        let node = &mut self.nodes[n];
        node.broker = None;
        node.life += 1;
        node.host = Host::default();
        node.sessions.clear();
        node.early.clear();
        node.steps = gateway(&node.handle, &clock, NAMES[n], node.token, node.number);
        node.stopped = false;
        for task in self.tasks.iter_mut().filter(|task| task.node == n) {
            task.connection = 0;
        }
        if self.nodes[n].number != 0 {
            self.start_broker(n);
        }
    }

    /// Kills the daemon of node `n`, and with it all its state and its tasks. A new daemon with the same node name
    /// begins without any state.
    pub fn crash_daemon(&mut self, n: usize) {
        self.doubt(n, true);
        let clock = Arc::clone(&self.clock);
        self.network.forget_node(n);
        let token = self.fresh();
        let node = &mut self.nodes[n];
        (node.lasting, node.memory, node.broker) = (Lasting::default(), BTreeMap::new(), None);
        node.host = Host::default();
        node.sessions.clear();
        node.early.clear();
        (node.number, node.token, node.stopped) = (0, token, false);
        node.life += 1;
        node.steps = gateway(&node.handle, &clock, NAMES[n], token, 0);
        for t in 0..self.tasks.len() {
            if self.tasks[t].node == n {
                self.replace_task(t);
            }
        }
    }

    /// Lets a task of the doomed node change the region that has just moved to the doomed node. When no step of
    /// `doomed` is left, kills the doomed node's daemon, while the region's former node does not know yet that the
    /// region has moved.
    fn doom(&mut self) {
        let Some((n, name, left)) = self.doomed.take() else { return };
        if left == 0 {
            self.network.end_cuts();
            return self.crash_daemon(n);
        }
        self.use_region(n, &name);
        self.doomed = Some((n, name, left - 1));
    }

    fn disturb(&mut self) {
        self.doom();
        let n = self.random.below(3);
        match self.random.below(if self.calm { 66 } else { 100 }) {
            0..66 => self.act(),
            66..70 => {
                let faults = match self.random.below(5) {
                    0 => Faults { cut: true, ..Faults::default() },
                    1 => Faults { fail: 2, ..Faults::default() },
                    // The catalog gets what the node sends, but the node gets little from the catalog: the answers to
                    // the next `lose` calls are lost, and with `hold` the catalog reports no changes to the node.
                    2 => Faults { lose: self.random.pick(&[1, 5, 50]), hold: true, ..Faults::default() },
                    _ => Faults::default(),
                };
                if !self.leader.is_lost() {
                    self.nodes[n].catalog.set_faults(faults);
                }
            }
            70..74 => {
                let (to, delay) = (self.random.below(3), self.random.pick(&[300, 1500, 4000]));
                self.network.slow_down(n, to, delay);
            }
            74..76 => self.lose_leader(),
            76..79 => self.nodes[n].stopped = !self.nodes[n].stopped,
            79..83 => self.crash_broker(n),
            83..90 => self.fuse = Some(self.random.below(8)),
            90 if self.random.one_in(2) => self.crash_daemon(n),
            91..94 => {
                let (to, both) = (self.random.below(3), self.random.one_in(2));
                self.network.cut(n, to, both);
            }
            94 => self.catalog.compact(),
            _ => {}
        }
    }

    fn check(&self) {
        self.nodes.iter().filter_map(|node| node.broker.as_ref()).for_each(Broker::check_at_rest);
    }

    /// Removes all faults. Then checks that every request ends, and that every region is on exactly one node and can be
    /// opened there.
    pub fn settle(&mut self) -> Result<(), String> {
        (self.fuse, self.doomed, self.is_settling) = (None, None, true);
        self.network.heal();
        self.leader_returns();
        for node in &mut self.nodes {
            node.catalog.set_faults(Faults::default());
            node.stopped = false;
        }
        // If the node that makes a copy is lost, the region stays frozen until the lease of that node has ended. So
        // this takes many rounds.
        for _ in 0..200 {
            self.quiet_round();
            (0..self.tasks.len()).for_each(|t| self.close_all(t));
        }
        if let Some(task) = self.tasks.iter().find(|task| task.pending.is_some()) {
            return Err(format!("{:?} of {} was never answered", task.pending, task.name));
        }
        self.check_leftovers()?;
        for line in self.lines.keys() {
            let places = self.places(*line);
            if places.len() > 1 {
                return Err(format!("region {line} is at {places:?}"));
            }
        }
        let lines = self.lines.iter().filter(|(_, of)| of.is_certain).map(|(line, of)| (*line, of.may_be_removed));
        for (line, may_be_removed) in lines.collect::<Vec<_>>() {
            self.check_place(line, may_be_removed)?;
        }
        Ok(())
    }

    fn quiet_round(&mut self) {
        self.round(500);
        for _ in 0..12 {
            self.network_step(false);
        }
    }

    /// Gives each node that has the region, with the region's name there.
    pub fn places(&self, line: u64) -> Vec<(usize, String)> {
        let mut places = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            for ((_, kind, name), segment) in &node.lasting.names {
                let is_it = node.memory.get(segment).is_some_and(|bytes| bytes.line == line);
                if is_it && *kind == SegmentKind::Region && !name.starts_with(crossdock_layout::name::MIRROR) {
                    places.push((n, name.clone()));
                }
            }
        }
        places
    }

    fn check_place(&mut self, line: u64, may_be_removed: bool) -> Result<(), String> {
        let places = self.places(line);
        let [(n, name)] = &places[..] else {
            let is_removed = places.is_empty() && may_be_removed;
            return if is_removed { Ok(()) } else { Err(format!("region {line} is at {places:?}")) };
        };
        let t = self.tasks.iter().position(|task| task.node == *n).expect("each node has tasks");
        self.want(t, name);
        let is_open = self.tasks[t].open.values().any(|of| *of == line);
        self.close_all(t);
        match is_open {
            true => Ok(()),
            false => {
                let (node, why) = (NAMES[*n], &self.refusal);
                Err(format!("region '{name}' ({line}) of node {node} cannot be opened: {why}"))
            }
        }
    }

    fn check_leftovers(&self) -> Result<(), String> {
        for (n, node) in self.nodes.iter().enumerate() {
            let name = NAMES[n];
            if !node.steps.is_in() {
                return Err(format!("node {name} is not back"));
            }
            if !node.host.is_idle() {
                return Err(format!("the host of node {name} still copies or moves a region"));
            }
            if let Some(((_, _, mirror), _)) =
                node.lasting.names.iter().find(|((_, _, of), _)| of.starts_with(crossdock_layout::name::MIRROR))
            {
                return Err(format!("{mirror} is left over on node {name}"));
            }
            // While this node was cut off, another node may have taken the name of one of its regions. Such a region
            // may still be marked as moving, so it is not checked.
            let own = node.broker.as_ref().map(|broker| broker.site_names().1).unwrap_or_default();
            let is_own = |of: &Segment| of.removed.is_none() && own.iter().any(|name| name.name == of.name);
            let moving = node.lasting.segments.iter().find(|(_, of)| of.moving && is_own(of));
            if let Some((segment, _)) = moving {
                return Err(format!("{segment} on node {name} still counts as about to move"));
            }
            let stray = node.memory.keys().find(|segment| !node.lasting.names.values().any(|of| of == *segment));
            if let Some(segment) = stray {
                return Err(format!("{segment} is left over on node {name}"));
            }
        }
        Ok(())
    }

    fn totals(&self) -> Totals {
        Totals { leaders_lost: self.leader.losses.load(Ordering::Relaxed), ..self.totals.clone() }
    }
}

/// Runs one schedule.
pub fn run(seed: u64, planted: Planted) -> Result<Totals, String> {
    let mut world = World::new(seed, planted);
    world.round(0);
    for step in 0..200 {
        world.disturb();
        for _ in 0..if world.calm { 8 } else { world.random.below(20) } {
            world.network_step(!world.calm);
        }
        let late = world.random.pick(&[0, 0, 20, 20, 20, 100, 100, 100, 300, 300, 2000, 6000]);
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
