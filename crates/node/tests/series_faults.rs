//! Series across nodes over a network with faults. There are three daemons with their relays. In place of links, the
//! relays have a network that delays questions, drops them or their answers, and delivers some questions twice or late.
//! Now and then the network is cut between two nodes, in one direction or both. The schedules are random: the
//! publisher's node, the chunks that change, and observers on all nodes, which come early or late, hold versions and
//! leave. The publisher ends, is killed, or loses its node's lease.
//!
//! Checks that each version which an observer gets has the bytes that the publisher had at that step, and that a
//! version has the same number on every node. The numbers of the versions that an observer gets only grow. A version
//! that an observer holds does not change. CLOSED or PEER_DIED comes after the last version. When all observers have
//! left, no mirror exists any more.

mod support;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, Detect, InUse, Observer, Publisher, SegmentId, SegmentKind, SeriesOptions, Session, Status, Value,
    Variable, Version,
};
use crossdock_relay::{Relay, WantedSeries};
use support::net::{Defect, Net, Random};
use support::{Daemon, kill};

const NODES: [&str; 3] = ["a", "b", "c"];
/// A time limit that no correct call exceeds, even on a loaded machine.
const LONG: Duration = Duration::from_secs(180);
const STEPS: u64 = 16;
const CHUNKS: u64 = 12;
/// How many numbers a chunk holds.
const PART: u64 = 512;
/// The service of the protocol between nodes that offers a version to a mirror. `OVER` is the service that reports the
/// end of a series.
const VERSION: u32 = 42;
const OVER: u32 = 44;

/// How the series of a schedule ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The publisher ends the series.
    InOrder,
    /// The publisher is killed after this step.
    Killed(u64),
    /// The lease of the publisher's node ends, so the other nodes lose the series.
    NodeLost,
}

fn mix(a: u64, b: u64, c: u64) -> u64 {
    Random::new(a.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (b << 20) ^ (c << 40)).below(1 << 40)
}

/// Tells whether this chunk changes in this step. In the first step all chunks change. In each later step, few or many
/// chunks change, as the seed says.
fn changes(seed: u64, step: u64, chunk: u64) -> bool {
    step == 1 || mix(seed, step, chunk) % 12 < mix(seed, step, 99) % 9
}

/// Gives the first number that a chunk has after this step. The chunk's other numbers follow it, each greater by one.
fn content(seed: u64, step: u64, chunk: u64) -> u64 {
    let latest = (1..=step).rev().find(|step| changes(seed, *step, chunk)).unwrap();
    mix(seed, latest, chunk + 1000)
}

fn publish(publisher: &mut Publisher, seed: u64, step: u64) {
    let data = publisher.elements::<u64>("u").unwrap();
    for chunk in (0..CHUNKS).filter(|chunk| changes(seed, step, *chunk)) {
        let first = content(seed, step, chunk);
        (0..PART).for_each(|at| data[(chunk * PART + at) as usize] = first + at);
    }
    publisher.publish(&[("step", Value::U64(step))]).unwrap();
}

fn options(keep: u32) -> SeriesOptions {
    SeriesOptions {
        chunk: Some(PART as u32 * 8),
        detect: Detect::Compare,
        keep,
        ..SeriesOptions::of(vec![Variable::new("u", "u64", &[CHUNKS * PART])])
    }
}

/// Publishes the steps 1 to `steps`, with pauses.
fn publish_steps(publisher: &mut Publisher, seed: u64, steps: u64) {
    let random = Random::new(seed ^ 0x5eed);
    for step in 1..=steps {
        publish(publisher, seed, step);
        std::thread::sleep(Duration::from_micros(random.below(6000)));
    }
}

/// Runs in a child process: publishes some steps, and then kills its own process.
#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let Ok(words) = std::env::var("CROSSDOCK_TEST_CHILD") else { return };
    let [seed, steps, keep] = *words.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>() else {
        panic!()
    };
    let socket = std::env::var("CROSSDOCK_TEST_SOCKET").unwrap();
    let options_of = ConnectOptions { socket: Some(socket.into()), task: Some("solver".into()), ..Default::default() };
    let session = Session::connect(&ConnectOptions { timeout: LONG, ..options_of }).unwrap();
    let mut publisher = session.publisher(&format!("s{seed}"), &options(keep as u32)).unwrap();
    publish_steps(&mut publisher, seed, steps);
    kill(std::process::id(), "KILL");
}

struct World {
    daemons: BTreeMap<&'static str, Daemon>,
    relays: BTreeMap<&'static str, Arc<Relay>>,
    /// For each node: a session that acts as no task, through which the test lists the node's segments.
    lookers: BTreeMap<&'static str, Session>,
    net: Arc<Net>,
    /// How long an observer waits for a version.
    patience: Duration,
}

impl World {
    fn new(seed: u64, defect: Defect) -> Self {
        let net = Net::new(seed, defect);
        let daemons: BTreeMap<_, _> = NODES.into_iter().map(|node| (node, Daemon::start())).collect();
        let relays = net.relays(&daemons);
        let patience = if defect == Defect::None { LONG } else { Duration::from_secs(4) };
        let visit = |(node, daemon): (&&'static str, &Daemon)| {
            let options = ConnectOptions { visitor: true, timeout: LONG, ..daemon.options() };
            (*node, Session::connect(&options).unwrap())
        };
        let lookers = daemons.iter().map(visit).collect();
        Self { daemons, relays, lookers, net, patience }
    }

    fn session(&self, node: &str, task: &str) -> Session {
        let timeout = Duration::from_secs(60);
        Session::connect(&ConnectOptions { task: Some(task.into()), timeout, ..self.daemons[node].options() }).unwrap()
    }

    /// Cuts the network between random nodes for a moment, again and again, until `stop` is true.
    fn weather(&self, seed: u64, stop: &AtomicBool) {
        let random = Random::new(seed ^ 0xc0ffee);
        while !stop.load(Ordering::Relaxed) {
            let from = random.below(3) as usize;
            let (one, other) = (NODES[from], NODES[(from + 1 + random.below(2) as usize) % 3]);
            let both = random.below(2) == 0;
            self.net.cut([(one, other)].into_iter().chain(both.then_some((other, one))));
            std::thread::sleep(Duration::from_millis(random.below(60)));
            self.net.cut([]);
            std::thread::sleep(Duration::from_millis(random.below(200)));
        }
    }
}

/// The state of one schedule (a sequence of actions and faults from a seed): a series, its publisher and its observers.
struct Schedule<'a> {
    world: &'a World,
    seed: u64,
    home: &'static str,
    name: String,
    ending: Ending,
    /// For the number of each version: the step that the publisher published as this version. The first observer that
    /// sees the version adds the step.
    steps: Mutex<BTreeMap<u64, u64>>,
    /// For each node: how many observers each mirror has. In a real site the broker counts the observers.
    users: BTreeMap<&'static str, Mutex<BTreeMap<SegmentId, u64>>>,
}

/// An observer in a schedule. If it is the last observer of its mirror, dropping this value tells the relay so.
struct Place<'a> {
    schedule: &'a Schedule<'a>,
    node: &'static str,
    observer: Option<Observer>,
    mirror: Option<SegmentId>,
    session: Option<Session>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        drop(self.observer.take());
        drop(self.session.take());
        let Some(mirror) = self.mirror else { return };
        let mut users = self.schedule.users[self.node].lock().unwrap();
        let count = users.get_mut(&mirror).unwrap();
        *count -= 1;
        if *count == 0 {
            // In a real site the broker does this: it tells the relay when no member but the relay itself has the
            // mirror open.
            let (world, began) = (self.schedule.world, Instant::now());
            let is_open = || {
                let listing = world.lookers[self.node].list().unwrap();
                listing.segments.iter().any(|segment| segment.id == mirror && segment.members > 1)
            };
            while is_open() && began.elapsed() < world.patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            world.relays[self.node].left(mirror, false);
        }
    }
}

impl Schedule<'_> {
    fn observe(&self, node: &'static str, task: &str) -> Result<Place<'_>, String> {
        let world = self.world;
        let session = world.session(node, task);
        let mut users = self.users[node].lock().unwrap();
        let (observer, mirror) = if node == self.home {
            (session.observe(&self.name, LONG), None)
        } else {
            let (workflow, series) = (session.workflow().to_owned(), self.name.clone());
            let wait = Duration::from_secs(5);
            let want = WantedSeries { node: self.home.to_owned(), workflow, series, former: true, wait };
            let began = Instant::now();
            let mirror = loop {
                match world.relays[node].open_series(&want) {
                    Ok(mirror) => break mirror,
                    Err(_) if began.elapsed() < world.patience => std::thread::sleep(Duration::from_millis(20)),
                    Err((status, text)) => return Err(format!("{task} has no mirror: {status:?}, {text}")),
                }
            };
            let listing = session.list().map_err(|error| error.to_string())?;
            let found =
                listing.segments.iter().find(|segment| segment.id == mirror).ok_or("the mirror is not listed")?;
            (session.observe_former(&found.name, LONG), Some(mirror))
        };
        if let Some(mirror) = mirror {
            *users.entry(mirror).or_default() += 1;
        }
        drop(users);
        let observer = observer.map_err(|error| format!("{task} observes: {error}"));
        let mut place = Place { schedule: self, node, observer: None, mirror, session: Some(session) };
        place.observer = Some(observer?);
        Ok(place)
    }

    /// Checks a version's bytes, and returns its step.
    fn check(&self, version: &Version) -> Result<u64, String> {
        let Ok(Value::U64(step)) = version.attribute("step").cloned() else {
            return Err(format!("version {} has no step", version.sequence()));
        };
        let data = version.elements::<u64>("u").map_err(|error| error.to_string())?;
        for chunk in 0..CHUNKS {
            let first = content(self.seed, step, chunk);
            let part = &data[(chunk * PART) as usize..][..PART as usize];
            if !part.iter().zip(first..).all(|(is, should)| *is == should) {
                return Err(format!("chunk {chunk} of version {}, step {step}, has other bytes", version.sequence()));
            }
        }
        let known = *self.steps.lock().unwrap().entry(version.sequence()).or_insert(step);
        if known != step {
            return Err(format!("version {} is of step {step}, and of step {known} elsewhere", version.sequence()));
        }
        Ok(step)
    }

    /// Runs one observer: it observes until the series ends, or until it has got as many versions as the seed says.
    fn watch(&self, number: u64) -> Result<u64, String> {
        let random = Random::new(self.seed * 100 + number);
        // Four of five observers are not on the publisher's node.
        let home = NODES.iter().position(|node| *node == self.home).unwrap();
        let node = NODES[(home + [0, 1, 1, 2, 2][random.below(5) as usize]) % 3];
        let at = |why: String| format!("observer {number} on {node}: {why}");
        std::thread::sleep(Duration::from_millis(random.below(60)));
        let mut place = self.observe(node, &format!("watch{number}")).map_err(at)?;
        let observer = place.observer.as_mut().unwrap();
        let (enough, each) = (if random.below(3) == 0 { 1 + random.below(5) } else { u64::MAX }, random.below(2) == 0);
        let (mut held, mut last, mut count) = (None::<Version>, 0, 0);
        while count < enough {
            let next = if each { observer.each(self.world.patience) } else { observer.next(self.world.patience) };
            let version = match next {
                Ok(version) => version,
                Err(error) => {
                    self.ended(node, error.status, observer).map_err(|why| at(format!("{why} ({error})")))?;
                    break;
                }
            };
            if version.sequence() <= last {
                return Err(at(format!("version {} comes behind {last}", version.sequence())));
            }
            last = version.sequence();
            count += 1;
            self.check(&version).map_err(at)?;
            if random.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(8000)));
            }
            if let Some(held) = &held {
                self.check(held).map_err(|why| at(format!("a held version: {why}")))?;
            }
            if random.below(2) == 0 {
                held = Some(version);
            }
        }
        Ok(count)
    }

    /// Checks the end of a series: that no other version can come, and that the status is right.
    fn ended(&self, node: &str, status: Status, observer: &mut Observer) -> Result<(), String> {
        let lost = self.ending == Ending::NodeLost && node != self.home;
        let expected = match self.ending {
            Ending::Killed(_) => status == Status::PeerDied,
            // With a lost node, an observer gets CLOSED if it saw the series end before the lease ended, and PEER_DIED
            // otherwise.
            _ => status == Status::Closed || (lost && status == Status::PeerDied),
        };
        if !expected {
            return Err(format!("{:?} ends with {status:?}", self.ending));
        }
        let latest = match observer.latest() {
            Ok(version) => self.check(&version)?,
            Err(_) if lost => return Ok(()),
            Err(error) => return Err(format!("the last version is gone: {error}")),
        };
        let due = if let Ending::Killed(steps) = self.ending { steps } else { STEPS };
        if latest != due && !lost {
            return Err(format!("the last version is of step {latest}, not {due}"));
        }
        Ok(())
    }

    fn publish(&self, keep: u32) -> Result<Option<Child>, String> {
        if let Ending::Killed(steps) = self.ending {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child", "--ignored", "--nocapture"])
                .env("CROSSDOCK_TEST_CHILD", format!("{} {steps} {keep}", self.seed))
                .env("CROSSDOCK_TEST_SOCKET", self.world.daemons[self.home].socket())
                .stdout(Stdio::null())
                .spawn();
            return child.map(Some).map_err(|error| error.to_string());
        }
        let session = self.world.session(self.home, "solver");
        let mut publisher = session.publisher(&self.name, &options(keep)).map_err(|error| error.to_string())?;
        publish_steps(&mut publisher, self.seed, STEPS);
        if self.ending == Ending::NodeLost {
            for node in NODES.iter().filter(|node| **node != self.home) {
                self.world.relays[node].gone(self.home);
            }
        }
        publisher.end().map_err(|error| error.to_string())?;
        Ok(None)
    }
}

/// Runs one schedule. Returns how many versions its observers got.
fn run(world: &World, seed: u64, with_losses: bool) -> Result<u64, String> {
    let random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let home = NODES[random.below(3) as usize];
    let ending = match random.below(5) {
        0 => Ending::Killed(1 + random.below(STEPS)),
        1 if with_losses => Ending::NodeLost,
        _ => Ending::InOrder,
    };
    let keep = random.below(4) as u32;
    let users = NODES.into_iter().map(|node| (node, Mutex::default())).collect();
    let schedule = Schedule { world, seed, home, name: format!("s{seed}"), ending, steps: Mutex::default(), users };
    let at = |why| format!("seed {seed}, {ending:?}, of node {home}, keep {keep}: {why}");
    // A run ends with its last session. This session keeps the run of the schedule's series from ending.
    let holder = world.session(home, "holder");
    let count = std::thread::scope(|scope| {
        let schedule = &schedule;
        let publishing = scope.spawn(move || schedule.publish(keep));
        let observing: Vec<_> =
            (0..2 + random.below(3)).map(|number| scope.spawn(move || schedule.watch(number))).collect();
        let outcomes: Vec<_> = observing.into_iter().map(|observer| observer.join().unwrap()).collect();
        let published = publishing.join().unwrap();
        if let Some(mut child) = published? {
            child.wait().map_err(|error| error.to_string())?;
        }
        outcomes.into_iter().sum::<Result<u64, String>>()
    });
    let count = count.map_err(at)?;
    // Wait until no mirror of the series exists any more.
    let began = Instant::now();
    for node in NODES.into_iter().filter(|node| *node != home) {
        let left = || {
            let listing = world.lookers[node].list().map_err(|error| error.to_string())?;
            let mine = format!("/{}", schedule.name);
            Ok::<_, String>(
                listing.segments.iter().find(|segment| segment.name.ends_with(&mine)).map(|one| one.name.clone()),
            )
        };
        while let Some(name) = left().map_err(at)? {
            if began.elapsed() > world.patience {
                return Err(at(format!("{name} is left on {node}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // The removal may fail, because the daemon's own observers may still be leaving.
    let _ = holder.remove(SegmentKind::Series, &schedule.name, InUse::Keep);
    Ok(count)
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Runs `count` schedules, with the seeds from `first` on, four at a time. With lost leases, the schedules run one at a
/// time, because a lost lease affects a whole node, and so every schedule that runs at that moment.
fn schedules(first: u64, count: u64, with_losses: bool) {
    let world = World::new(first, Defect::None);
    let (next, versions, stop) = (AtomicU64::new(first), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| world.weather(first, &stop));
        let at_once = if with_losses { 1 } else { 4 };
        let workers: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + count {
                            return Ok(());
                        }
                        versions.fetch_add(run(&world, seed, with_losses)?, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let outcomes: Vec<Result<(), String>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap_or_else(|why| panic!("{why}")));
    });
    let (versions, faults) = (versions.into_inner(), world.net.faults());
    println!("{count} schedules: {versions} versions observed, {faults} faults");
    assert!(versions > count && faults > count, "{versions} versions, {faults} faults: the schedules are too tame");
}

#[test]
fn observers_of_all_nodes_get_what_was_published_over_a_network_with_faults() {
    schedules(number("CROSSDOCK_SEED", 0), number("CROSSDOCK_SCHEDULES", 24), false);
}

#[test]
fn a_lost_node_ends_its_series_for_the_observers_of_other_nodes() {
    schedules(number("CROSSDOCK_SEED", 0), number("CROSSDOCK_SCHEDULES", 24) / 4, true);
}

#[test]
fn planted_defects_are_found() {
    for defect in [Defect::Swallows(VERSION), Defect::Swallows(OVER), Defect::ChangesByte(8 * 7)] {
        let world = World::new(7, defect);
        let why = (0..40).find_map(|seed| run(&world, seed, false).err());
        println!("{defect:?}: {}", why.unwrap_or_else(|| panic!("{defect:?} was not found")));
    }
}
