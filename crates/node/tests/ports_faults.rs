//! Ports across nodes over a network with faults. There are two daemons with their relays. In place of links, the
//! relays have a network that delays questions, drops them or their answers, and delivers some questions twice or late.
//! The schedules are random: patterns, nodes of the ends, small and large objects, slow consumers.
//!
//! Checks that each consumer gets the messages that its pattern promises: exactly once, with unharmed objects, and
//! CLOSED after the last message. A consumer must get the messages of each producer in the order in which they were
//! sent. There is one exception. If a task opens a consumer's end and the answer is lost, the port has an end without a
//! task for a moment. In a work queue, this end may take a message, and another consumer gets this message later, after
//! newer messages.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, End, Handle, Inline, Message, Mode, ObjectMode, Pattern, Port, PortOptions, Session, Status,
};
use crossdock_relay::{Relay, WantedEnd};
use support::net::{Defect, Net, Random};
use support::{Daemon, until};

const LONG: Duration = Duration::from_secs(180);
const MESSAGES: u64 = 40;
/// The service of the protocol between nodes by which a node asks another node to open an end of a port there.
const OPEN: u32 = 100;
/// The service of the protocol between nodes that brings messages to a sink.
const DELIVER: u32 = 101;
/// The service of the protocol between nodes that reports the end of one side of a channel.
const ENDED: u32 = 103;

/// A defect that is planted on purpose, and that the schedules must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The network loses some messages, but reports to their senders that they have arrived.
    LostWords,
    /// The network changes one byte of a large object.
    ChangedByte,
}

impl Planted {
    fn defect(self) -> Defect {
        match self {
            Self::Nothing => Defect::None,
            Self::LostWords => Defect::Swallows(DELIVER),
            Self::ChangedByte => Defect::ChangesByte(8 * 7),
        }
    }
}

/// Two nodes, and the network between them.
struct World {
    daemons: BTreeMap<&'static str, Daemon>,
    relays: BTreeMap<&'static str, Arc<Relay>>,
    net: Arc<Net>,
    /// How long a task waits for a message or for a free place at the port.
    patience: Option<Duration>,
    /// The ports that may have had a consumer's end without a task, because the answer to the opening of this end was
    /// lost.
    stray_ends: Mutex<BTreeSet<String>>,
    /// How often a consumer of a port in `stray_ends` got an older message after a newer message.
    out_of_order: AtomicU64,
}

const NODES: [&str; 2] = ["a", "b"];

impl World {
    fn new(seed: u64, planted: Planted) -> Self {
        let net = Net::new(seed, planted.defect());
        let daemons: BTreeMap<_, _> = NODES.into_iter().map(|node| (node, Daemon::start())).collect();
        let relays = net.relays(&daemons);
        let patience = Some(if planted == Planted::Nothing { LONG } else { Duration::from_secs(10) });
        Self { daemons, relays, net, patience, stray_ends: Mutex::default(), out_of_order: AtomicU64::new(0) }
    }

    fn session(&self, node: &str, task: &str) -> Session {
        let timeout = Duration::from_secs(60);
        Session::connect(&ConnectOptions { task: Some(task.into()), timeout, ..self.daemons[node].options() }).unwrap()
    }
}

/// A task of a schedule, with its end of the port.
struct Task<'a> {
    world: &'a World,
    node: &'static str,
    home: &'static str,
    port: &'a str,
    number: u64,
    side: End,
}

/// The port or mirror that a task has opened. For a mirror, `relay` is the relay that made the mirror.
struct Opened {
    session: Session,
    port: Option<Port>,
    relay: Option<Arc<Relay>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Some(port) = self.port.take() else { return };
        let id = port.id();
        port.close();
        if let Some(relay) = &self.relay {
            relay.left(id, false);
        }
    }
}

impl Task<'_> {
    fn open(&self) -> Result<Opened, String> {
        let word = if self.side == End::Producer { "make" } else { "use" };
        let task = format!("{word}{}-{}", self.number, self.port.replace('/', "-"));
        let session = self.world.session(self.node, &task);
        let text = |error: crossdock_client::Error| format!("{task} opens {}: {error}", self.port);
        if self.node == self.home {
            let port =
                session.port(self.port, self.side, &PortOptions::default(), self.world.patience).map_err(text)?;
            return Ok(Opened { session, port: Some(port), relay: None });
        }
        let relay = Arc::clone(&self.world.relays[self.node]);
        let wait = Duration::from_secs(20);
        let sends = self.side == End::Producer;
        let (node, port) = (self.home.to_owned(), self.port.to_owned());
        let want =
            WantedEnd { node, workflow: session.workflow().to_owned(), port, task: task.clone(), rank: 0, sends, wait };
        // If the answer to the opening was lost, the port has an end without a task. The end stays until the two relays
        // compare which channels they know. Until then the task's attempts fail, so the task tries again.
        let began = Instant::now();
        let mirror = loop {
            match relay.open(&want) {
                Ok(mirror) => break mirror,
                Err((status, text)) if began.elapsed() > LONG => {
                    return Err(format!("{task} has no mirror of {}: {status:?}, {text}", self.port));
                }
                Err(_) => {
                    if self.side == End::Consumer {
                        self.world.stray_ends.lock().unwrap().insert(self.port.to_owned());
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        };
        let listing = session.list().map_err(text)?;
        let found = listing.segments.iter().find(|segment| segment.id == mirror).ok_or("the mirror is not listed")?;
        let port = session.port(&found.name, self.side, &PortOptions::default(), self.world.patience).map_err(text)?;
        Ok(Opened { session, port: Some(port), relay: Some(relay) })
    }

    fn produce(&self, opened: &Opened, seed: u64) -> Result<(), String> {
        let random = Random::new(seed);
        let name = format!("{}-{}", self.port, self.number);
        let region =
            opened.session.region(&name, Mode::CreateOnly, 64 << 20, None).map_err(|error| error.to_string())?;
        let port = opened.port.as_ref().unwrap();
        for n in 0..MESSAGES {
            let tag = self.number * 1000 + n;
            let handle = match random.below(5) {
                size @ 0..2 => {
                    let vector = region.vector::<u64>(&format!("v{n}"), ObjectMode::CreateOnly, None);
                    let vector = vector.map_err(|error| error.to_string())?;
                    let length = if size == 0 { 10 } else { 5000 };
                    vector.resize(length).map_err(|error| error.to_string())?;
                    for at in 0..length {
                        vector.set(at, tag * 10_000 + at).map_err(|error| error.to_string())?;
                    }
                    vector.save().map_err(|error| error.to_string())?
                }
                _ => Handle::NONE,
            };
            let inline = Inline::new(&tag.to_le_bytes()).unwrap();
            let message = Message { inline, ..Message::new(handle, tag) };
            port.send(&message, self.world.patience).map_err(|error| format!("send {tag}: {error}"))?;
        }
        Ok(())
    }

    fn consume(&self, opened: &Opened, seed: u64) -> Result<Vec<u64>, String> {
        let random = Random::new(seed);
        let port = opened.port.as_ref().unwrap();
        let mut tags = Vec::new();
        loop {
            let message = match port.receive(self.world.patience) {
                Ok(message) => message,
                Err(error) if error.status == Status::Closed => return Ok(tags),
                Err(error) => return Err(format!("after {} messages: {error}", tags.len())),
            };
            if *message.inline != message.tag.to_le_bytes() {
                return Err(format!("message {} has other bytes", message.tag));
            }
            if !message.handle.is_none() {
                let region = opened.session.region_of(message.handle).map_err(|error| error.to_string())?;
                let vector = region.load_vector::<u64>(message.handle).and_then(|vector| vector.to_vec());
                let vector = vector.map_err(|error| format!("the object of {}: {error}", message.tag))?;
                let is_whole = vector.iter().enumerate().all(|(at, word)| *word == message.tag * 10_000 + at as u64);
                if !is_whole || !(vector.len() == 10 || vector.len() == 5000) {
                    return Err(format!("the object of message {} is another one", message.tag));
                }
            }
            if random.below(6) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(4000)));
            }
            tags.push(message.tag);
            port.release(&message).map_err(|error| format!("release {}: {error}", message.tag))?;
        }
    }
}

/// Runs one schedule on one port.
fn run(world: &World, seed: u64) -> Result<(), String> {
    let random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let which = random.below(4) as usize;
    let pattern = [Pattern::OneToOne, Pattern::FanIn, Pattern::FanOut, Pattern::WorkQueue][which];
    let (producers, consumers) = [(1, 1), (2, 1), (1, 2), (2, 2)][which];
    let home = NODES[random.below(2) as usize];
    let port = format!("p{seed}");
    let maker = world.session(home, "maker");
    let capacity = 1 << random.below(4);
    let options = PortOptions { pattern: Some(pattern), capacity, persistent: false };
    maker.make_port(&port, &options).map_err(|error| error.to_string())?;
    let mut tasks = Vec::new();
    for (side, count) in [(End::Producer, producers), (End::Consumer, consumers)] {
        for number in 1..=count {
            // Two of three tasks are not on the port's own node.
            let node = if random.below(3) == 0 { home } else { NODES[usize::from(home == "a")] };
            tasks.push(Task { world, node, home, port: &port, number, side });
        }
    }
    let (ready, done) = (Barrier::new(tasks.len()), Barrier::new(tasks.len()));
    let start = |task: &'_ Task<'_>, seed: u64| {
        let opened = task.open();
        ready.wait();
        let outcome = opened.map(|opened| {
            let outcome = match task.side {
                End::Producer => task.produce(&opened, seed).map(|()| None),
                End::Consumer => task.consume(&opened, seed).map(Some),
            };
            (outcome, opened.session.clone())
        });
        // The objects are in regions of their producers. So each producer keeps its session until all consumers have
        // read the objects.
        done.wait();
        outcome.and_then(|(outcome, _)| outcome)
    };
    let start = &start;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            tasks.iter().enumerate().map(|(n, task)| scope.spawn(move || start(task, seed * 10 + n as u64))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut all = Vec::new();
    // The consumers' outcomes are checked first, because a consumer's error is often the cause of a producer's error.
    for (task, outcome) in tasks.iter().zip(outcomes).rev() {
        let at = format!(
            "seed {seed}, {pattern:?} of capacity {capacity} on {home}, {:?} {} on {}",
            task.side, task.number, task.node
        );
        let Some(tags) = outcome.map_err(|why| format!("{at}: {why}"))? else { continue };
        for producer in 1..=producers {
            let of: Vec<_> = tags.iter().filter(|tag| **tag / 1000 == producer).collect();
            let is_in_order = of.windows(2).all(|two| two[0] < two[1]);
            if !is_in_order && pattern == Pattern::WorkQueue && world.stray_ends.lock().unwrap().contains(&port) {
                world.out_of_order.fetch_add(1, Ordering::Relaxed);
            } else if !is_in_order {
                return Err(format!("{at}: messages of producer {producer} come in another order: {of:?}"));
            }
        }
        if pattern != Pattern::WorkQueue && tags.len() as u64 != producers * MESSAGES {
            return Err(format!("{at}: {} messages came", tags.len()));
        }
        all.extend(tags);
    }
    all.sort_unstable();
    let once: Vec<u64> = (1..=producers).flat_map(|producer| (0..MESSAGES).map(move |n| producer * 1000 + n)).collect();
    let expected: Vec<u64> =
        if pattern == Pattern::FanOut { once.iter().flat_map(|tag| [*tag; 2]).collect() } else { once };
    if all != expected {
        return Err(format!("seed {seed}, {pattern:?}: {} messages instead of {} came", all.len(), expected.len()));
    }
    Ok(())
}

#[test]
fn messages_come_once_and_in_order_over_a_network_with_faults() {
    let count: u64 = std::env::var("CROSSDOCK_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    let first: u64 = std::env::var("CROSSDOCK_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let world = World::new(first, Planted::Nothing);
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    run(&world, seed).unwrap_or_else(|why| panic!("{why}"));
                }
            });
        }
    });
    let faults = world.net.faults();
    let (stray, late) = (world.stray_ends.lock().unwrap().len(), world.out_of_order.load(Ordering::Relaxed));
    println!("{count} schedules, {faults} faults, {stray} ports with stray ends, {late} consumers out of order there");
    assert!(faults > count, "the network was too good");
}

#[test]
fn planted_defects_are_found() {
    for planted in [Planted::LostWords, Planted::ChangedByte] {
        let world = World::new(7, planted);
        let why = (0..20).find_map(|seed| run(&world, seed).err());
        println!("{planted:?}: {}", why.unwrap_or_else(|| panic!("{planted:?} was not found")));
    }
}

/// Makes a port on the node `home`, and opens its ends: that of the producer on the node `producer`, and that of the
/// consumer on the other node.
fn pair<'a>(world: &'a World, port: &'a str, home: &'static str, producer: &'static str) -> (Opened, Opened) {
    let options = PortOptions { pattern: Some(Pattern::OneToOne), capacity: 4, persistent: false };
    let maker = world.session(home, "maker");
    maker.make_port(port, &options).unwrap();
    let consumer = NODES[usize::from(producer == "a")];
    let task = |node, side| Task { world, node, home, port, number: 1, side };
    let opened = (task(producer, End::Producer).open().unwrap(), task(consumer, End::Consumer).open().unwrap());
    for end in [&opened.0, &opened.1] {
        end.port.as_ref().unwrap().wait_peer(world.patience).unwrap();
    }
    opened
}

/// Cuts the network, and tells the other node that the lease of the node `lost` has ended.
fn lose(world: &World, lost: &'static str) {
    world.net.cut([("a", "b"), ("b", "a")]);
    world.relays[NODES[usize::from(lost == "a")]].gone(lost);
}

#[test]
fn a_message_whose_object_was_only_on_a_lost_node_is_lost_also_after_its_producer_has_closed() {
    for home in NODES {
        let world = World::new(1, Planted::Nothing);
        world.net.refuse_pulls();
        let (producer, consumer) = pair(&world, "p", home, "a");
        let region = producer.session.region("r", Mode::CreateOnly, 64 << 20, None).unwrap();
        let vector = region.vector::<u64>("v", ObjectMode::CreateOnly, None).unwrap();
        vector.resize(50_000).unwrap();
        let message = Message::new(vector.save().unwrap(), 1);
        producer.port.as_ref().unwrap().send(&message, world.patience).unwrap();
        drop(producer);
        until("the producer's end is reported", || world.net.answered(ENDED) > 0);
        lose(&world, "a");
        let received = consumer.port.as_ref().unwrap().receive(Some(Duration::from_secs(60)));
        assert_eq!(received.map_err(|error| error.status).err(), Some(Status::PeerDied), "the port is on node {home}");
        if home == "b" {
            // The lost producer's end is free, so another producer can open it.
            let next = world.session("b", "next");
            next.port("p", End::Producer, &PortOptions::default(), Some(Duration::from_secs(60))).unwrap();
        }
    }
}

#[test]
fn what_is_opened_after_a_lost_node_has_come_back_stays_although_the_loss_is_handled_later() {
    let world = World::new(3, Planted::Nothing);
    let (_producer, consumer) = pair(&world, "p", "a", "a");
    let lost = world.relays["b"].lost("a");
    let (next_producer, next_consumer) = pair(&world, "q", "a", "a");
    lost.end();
    let received = consumer.port.as_ref().unwrap().receive(Some(Duration::from_secs(60)));
    assert_eq!(received.map_err(|error| error.status).err(), Some(Status::PeerDied));
    next_producer.port.as_ref().unwrap().send(&Message::new(Handle::NONE, 7), world.patience).unwrap();
    assert_eq!(next_consumer.port.as_ref().unwrap().receive(world.patience).unwrap().tag, 7);
}

#[test]
fn a_mirror_is_removed_after_its_node_was_lost_although_the_producer_had_closed() {
    let world = World::new(2, Planted::Nothing);
    let (producer, consumer) = pair(&world, "p", "a", "a");
    producer.port.as_ref().unwrap().send(&Message::new(Handle::NONE, 1), world.patience).unwrap();
    drop(producer);
    let port = consumer.port.as_ref().unwrap();
    let message = port.receive(world.patience).unwrap();
    until("the producer's end is reported", || world.net.answered(ENDED) > 0);
    lose(&world, "a");
    port.release(&message).unwrap();
    assert_eq!(port.receive(world.patience).map_err(|error| error.status).err(), Some(Status::Closed));
    drop(consumer);
    let session = world.session("b", "observer");
    until("the mirror is removed", || {
        session.list().unwrap().segments.iter().all(|segment| !segment.name.starts_with(".mirror"))
    });
}

#[test]
fn an_end_that_is_lost_before_its_opening_is_confirmed_is_opened_again() {
    let world = World::new(3, Planted::Nothing);
    let options = PortOptions { pattern: Some(Pattern::OneToOne), capacity: 4, persistent: false };
    world.session("b", "maker").make_port("p", &options).unwrap();
    for sends in [true, false] {
        let before = world.net.answered(OPEN);
        world.net.cut([("b", "a")]);
        let workflow = world.session("a", "task").workflow().to_owned();
        let (node, port, task) = ("b".into(), "p".into(), "task".into());
        let want = WantedEnd { node, workflow, port, task, rank: 0, sends, wait: Duration::from_secs(60) };
        let relay = Arc::clone(&world.relays["a"]);
        let opening = std::thread::spawn(move || relay.open(&want).map(|mirror| relay.left(mirror, false)));
        until("the end is open", || world.net.answered(OPEN) > before);
        lose(&world, "a");
        world.net.cut([]);
        opening.join().unwrap().unwrap();
    }
}
