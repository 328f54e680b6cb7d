//! The world around a broker: keeper, journal, liveness tables, connections, clients and random choices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_layout::{MemberId, SegmentId};
use crossdock_node::broker::{Attachment, Broker, Descriptor, Event};
use crossdock_os::testing::Random;

use crate::client::Client;
use crate::model::Model;
use crate::sabotage::Sabotage;

pub struct Pipe {
    pub client: usize,
    pub to_broker: VecDeque<(Vec<u8>, Vec<Descriptor>)>,
    pub to_client: VecDeque<(Vec<u8>, Attachment)>,
    pub client_closed: bool,
    pub broker_closed: bool,
}

pub struct World {
    pub random: Random,
    pub sabotage: Sabotage,
    pub now: u64,
    pub broker: Option<Broker>,
    pub journal: Vec<Vec<u8>>,
    /// The segments and pin pages whose descriptors the broker has.
    pub kept: BTreeSet<SegmentId>,
    /// The segments and pin pages whose descriptors the keeper has, too. The next broker gets them.
    pub keeper: BTreeSet<SegmentId>,
    /// The items' files that have a name in the daemon's folder. The next broker opens them by their names.
    pub folder: BTreeSet<SegmentId>,
    /// The endpoints at which the broker listens, and those whose sockets the keeper has, too.
    pub listening: BTreeSet<u64>,
    pub keeper_listening: BTreeSet<u64>,
    /// True while the keeper has no room for further descriptors.
    pub starved: bool,
    /// True if the daemon often loses descriptors in this schedule.
    pub lossy: bool,
    /// True while all messages in flight arrive, and the daemon has descriptors for all that comes with them.
    pub calm: bool,
    /// The liveness tables of all daemons so far. The last table is that of the present daemon.
    pub tables: Vec<crate::lives::Table>,
    pub pipes: BTreeMap<u64, Pipe>,
    pub clients: Vec<Client>,
    pub model: Model,
    /// The pin pages whose existence the liveness table has made known to the publisher.
    pub told_of: BTreeSet<SegmentId>,
    /// Slots of pin pages. For each slot that was given to a member and was not cleared since then: the member.
    pub pages: BTreeMap<(SegmentId, u32), MemberId>,
    /// For each pin page: the endpoint of the observers that have slots in the page. All of them use the same endpoint.
    pub page_endpoints: BTreeMap<SegmentId, u64>,
    /// The copies of items that are in progress: for each the item and the target file.
    pub copies: Vec<(SegmentId, SegmentId)>,
    pub incarnation: u64,
    /// A number that differs for each broker, and from each number of a keeper.
    pub starts: u64,
    /// The last simulated inode number that was given to a piece of memory.
    pub last_number: u64,
    /// If set: the number of effects that are still carried out before the broker is killed.
    pub fuse: Option<usize>,
    pub next_pipe: u64,
}

pub const NAMES: [&str; 4] = ["a", "b", "out/c", "out/d"];
pub const WORKFLOWS: [&str; 3] = ["w0", "w1", "w2"];
pub const MEMORY: u64 = 1 << 24;

impl World {
    pub fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut world = Self {
            random: Random(seed.wrapping_mul(Random::STEP) ^ 0xd1b5_4a32_d192_ed03),
            sabotage,
            now: 0,
            broker: None,
            journal: Vec::new(),
            kept: BTreeSet::new(),
            keeper: BTreeSet::new(),
            folder: BTreeSet::new(),
            starved: false,
            lossy: seed % 3 == 1,
            calm: false,
            told_of: BTreeSet::new(),
            listening: BTreeSet::from([0]),
            keeper_listening: BTreeSet::from([0]),
            tables: vec![crate::lives::Table::new()],
            pipes: BTreeMap::new(),
            clients: Vec::new(),
            model: Model::default(),
            pages: BTreeMap::new(),
            page_endpoints: BTreeMap::new(),
            copies: Vec::new(),
            incarnation: 1,
            starts: 1 << 32,
            last_number: 0,
            fuse: None,
            next_pipe: 1,
        };
        world.model.planted_grant = sabotage == Sabotage::GrantTooMuch;
        world.model.planted_quota = sabotage == Sabotage::QuotaTwice;
        world.start_broker();
        if seed % 2 == 0 {
            world.set_up_workflow();
        }
        world
    }

    pub fn step(&mut self) {
        match self.random.below(200) {
            0..=15 if self.clients.iter().filter(|c| c.can_act()).count() < 10 => self.new_client(),
            0..=49 => self.ask_something(),
            50..=99 => self.deliver_to_broker(),
            100..=149 => self.deliver_to_client(),
            150..=165 => self.pass_time(),
            166 if self.random.one_in(2) => self.kill_client(),
            167 if self.random.one_in(4) => self.leave(),
            168..=169 => self.crash_broker(),
            170..=171 => self.fuse = Some(self.random.below(6)),
            172 if self.random.one_in(if self.lossy { 2 } else { 8 }) => self.crash_daemon(),
            173 if self.random.one_in(3) => self.lie(),
            174..=177 => self.release_something(),
            178..=179 => self.shift_limits(),
            180..=181 => self.settle(),
            182..=185 => self.end_copies(),
            186..=187 => self.end_observing(),
            188..=189 => self.cut_off(),
            190 => self.starved = !self.starved,
            191..=192 => self.offer_again(),
            193..=195 if self.starved => self.starved = false,
            _ => self.connect_a_client(),
        }
        if self.broker.is_none() && self.random.one_in(2) {
            self.start_broker();
        }
        self.check();
    }

    /// Ends all clients, and checks that nothing is left.
    pub fn wind_down(&mut self) {
        self.fuse = None;
        self.starved = false;
        if self.broker.is_none() {
            self.start_broker();
        }
        self.event(Event::Journal(Ok(())));
        for client in 0..self.clients.len() {
            self.clients[client].alive = false;
        }
        self.settle();
        self.now += 1_000_000;
        self.event(Event::Tick);
        self.check();
        self.check_nothing_left();
    }

    /// Lets all messages in flight arrive.
    pub fn settle(&mut self) {
        self.calm = true;
        for _ in 0..4 {
            for pipe in self.pipes.keys().copied().collect::<Vec<_>>() {
                while self.deliver_one_to_broker(pipe) {}
                while self.deliver_one_to_client(pipe) {}
            }
            for client in 0..self.clients.len() {
                if self.has_refused(client) {
                    self.offer_refused(client);
                }
            }
            self.notice_deaths();
        }
        self.calm = false;
        self.check_offered();
    }

    fn pass_time(&mut self) {
        self.now += 1 + self.random.below(120) as u64;
        self.notice_deaths();
        self.event(Event::Tick);
    }
}
