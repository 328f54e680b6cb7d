//! Ports between daemons of one site. Messages, objects, credits and patterns, and the ends and deaths of members,
//! behave as on one node.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossdock_client::{
    ConnectOptions, End, Handle, InUse, Inline, Message, Mode, ObjectMode, Order, Pattern, Port, PortOptions, Region,
    SegmentInfo, SegmentKind, SeriesOptions, Session, Status, Variable,
};
use support::sites::{World, until};
use support::{Daemon, kill};

const LONG: Option<Duration> = Some(Duration::from_secs(60));
const POLL: Option<Duration> = Some(Duration::ZERO);

fn region(session: &Session, name: &str) -> Region {
    session.region(name, Mode::CreateOnly, 64 << 20, None).unwrap()
}

fn options(pattern: Pattern, capacity: u32) -> PortOptions {
    PortOptions { pattern: Some(pattern), capacity, persistent: false }
}

fn tagged(tag: u64) -> Message {
    Message::new(Handle::NONE, tag)
}

/// Runs in a child process: uses the port `p` in the way that an environment variable names, prints "ready", and then
/// waits until it is killed.
#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let Ok(what) = std::env::var("CROSSDOCK_TEST_CHILD") else { return };
    let socket = std::env::var("CROSSDOCK_TEST_SOCKET").unwrap();
    let session = Session::connect(&ConnectOptions {
        socket: Some(socket.into()),
        task: Some("doomed".into()),
        timeout: Duration::from_secs(30),
        ..Default::default()
    })
    .unwrap();
    let open = |end| session.port("p", end, &PortOptions::default(), None).unwrap();
    let mut kept = Vec::new();
    let port = match what.as_str() {
        "send3" => {
            let port = open(End::Producer);
            (0..3).for_each(|tag| port.send(&tagged(tag), LONG).unwrap());
            port
        }
        "take1" => {
            let port = open(End::Consumer);
            kept.push(port.receive(LONG).unwrap());
            port
        }
        "produce" => open(End::Producer),
        _ => open(End::Consumer),
    };
    println!("ready");
    std::thread::sleep(Duration::from_secs(600));
    drop(port);
}

/// Starts a child process at a daemon, and waits until it has printed "ready".
fn start(daemon: &Daemon, what: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env("CROSSDOCK_TEST_CHILD", what)
        .env("CROSSDOCK_TEST_SOCKET", daemon.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "the child ended");
    child
}

fn end(mut child: Child) {
    kill(child.id(), "KILL");
    child.wait().unwrap();
}

/// Sends objects of every kind that can be copied to another node. They go from the session `from` to the session `to`;
/// there the test checks what arrives.
fn objects(from: &Session, to: &Session, name: &str) {
    let producer = from.port(name, End::Producer, &options(Pattern::OneToOne, 4), None).unwrap();
    let consumer = to.port(name, End::Consumer, &options(Pattern::OneToOne, 4), None).unwrap();
    let home = region(from, &format!("of-{name}"));
    let (new, none) = (ObjectMode::CreateOnly, None);
    let many = home.vector::<f64>("many", new, none).unwrap();
    let values: Vec<f64> = (0..200_000).map(f64::from).collect();
    many.assign(&values).unwrap();
    let text = home.text("text", new, none).unwrap();
    text.set("a text of some length").unwrap();
    let grid = home.ndarray::<i32>("grid", new, none).unwrap();
    grid.reshape(Order::C, &[2, 3]).unwrap();
    grid.copy_from(&[1, 2, 3, 4, 5, 6]).unwrap();
    let one = home.simple::<u64>("one", new, none).unwrap();
    one.set(77).unwrap();
    let table = home.simple::<[f64; 4_000]>("table", new, none).unwrap();
    let rows: [f64; 4_000] = std::array::from_fn(|n| n as f64);
    table.set(rows).unwrap();
    let block = |bytes: &[u8]| {
        let block = home.allocate(bytes.len() as u64, 64).unwrap();
        crossdock_core::shared_access::copy_in(home.mapping(), block, bytes).unwrap();
        home.save(block).unwrap()
    };
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let (small_block, large_block) = (block(&[9; 1000]), block(&large));
    let handle = |name: &str| home.save(home.find(name).unwrap().offset).unwrap();
    let named = ["many", "text", "grid", "one", "table"].map(handle);
    for (tag, handle) in named.into_iter().chain([small_block, large_block]).enumerate() {
        let inline = Inline::new(&[tag as u8; 5]).unwrap();
        producer.send(&Message { inline, ..Message::new(handle, tag as u64) }, LONG).unwrap();
        let message = consumer.receive(LONG).unwrap();
        assert_eq!((message.tag, &*message.inline), (tag as u64, &[tag as u8; 5][..]));
        assert_ne!(message.handle.segment, handle.segment, "the object is in a region of its own node");
        let there = to.region_of(message.handle).unwrap();
        match tag {
            0 => {
                let found = there.load_vector::<f64>(message.handle).unwrap();
                assert!(found.to_vec().unwrap() == values);
            }
            1 => assert_eq!(there.load_text(message.handle).unwrap().get().unwrap(), "a text of some length"),
            2 => {
                let found = there.load_ndarray::<i32>(message.handle).unwrap();
                assert_eq!((found.shape().unwrap(), found.to_vec().unwrap()), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
            }
            3 => assert_eq!(there.load_simple::<u64>(message.handle).unwrap().get().unwrap(), 77),
            4 => assert!(there.load_simple::<[f64; 4_000]>(message.handle).unwrap().get().unwrap() == rows),
            _ => {
                let bytes = if tag == 5 { &[9; 1000] } else { &large[..] };
                let mut copy = vec![0u8; bytes.len()];
                crossdock_core::shared_access::copy_out(there.mapping(), message.handle.offset, &mut copy).unwrap();
                assert!(copy == bytes);
            }
        }
        consumer.release(&message).unwrap();
        // `reclaim` must give the producer the handle that it had sent.
        let mut credit = None;
        until("the credit is back", || {
            credit = producer.reclaim(POLL).ok().flatten();
            credit.is_some()
        });
        assert_eq!(credit, Some(handle));
    }
    // A block with a container in it cannot be copied to another node. The message arrives without the block, and
    // opening the block fails with an error that says so. For the second, larger block, the relay notices the container
    // only while it pulls the block's bytes.
    for (size, at) in [(64, 16), (1 << 20, 700_000)] {
        let nested = home.allocate(size, 64).unwrap();
        crossdock_core::shared_access::store(home.mapping(), nested + at, (nested + at).wrapping_neg()).unwrap();
        producer.send(&Message::new(home.save(nested).unwrap(), 9), LONG).unwrap();
        let message = consumer.receive(LONG).unwrap();
        let error = to.region_of(message.handle).unwrap_err();
        assert!(error.to_string().contains("item with a heap"), "{error}");
        consumer.release(&message).unwrap();
    }
    drop(producer);
    assert_eq!(consumer.receive(LONG).unwrap_err().status, Status::Closed);
}

#[test]
fn objects_go_both_ways() {
    let world = World::new(2);
    let (a, b) = (world.session(0, "one"), world.session(1, "two"));
    objects(&a, &b, "forth");
    objects(&b, &a, "back");
    // Here the consumer's session makes the port. So the port is on the consumer's node, and the producer is on the
    // other node.
    drop(a.port("turned", End::Consumer, &options(Pattern::OneToOne, 4), None).unwrap());
    objects(&b, &a, "turned");
}

#[test]
fn capacity_and_busy_ends_are_those_of_one_node() {
    let world = World::new(2);
    let (a, b) = (world.session(0, "one"), world.session(1, "two"));
    let producer = b.port("p", End::Producer, &options(Pattern::OneToOne, 4), None).unwrap();
    let unlike = a.port("p", End::Consumer, &options(Pattern::FanOut, 4), None).unwrap_err();
    assert_eq!(unlike.status, Status::Invalid, "{unlike}");
    let consumer = a.port("p", End::Consumer, &options(Pattern::OneToOne, 4), None).unwrap();
    let busy = b.port("p", End::Consumer, &PortOptions::default(), None).unwrap_err();
    assert_eq!(busy.status, Status::Busy, "{busy}");
    assert!(busy.to_string().contains("one"), "{busy}");
    (0..4).for_each(|tag| producer.send(&tagged(tag), LONG).unwrap());
    let full = producer.send(&tagged(9), Some(Duration::from_millis(300))).unwrap_err();
    assert_eq!(full.status, Status::TimedOut, "{full}");
    let first = consumer.receive(LONG).unwrap();
    consumer.release(&first).unwrap();
    producer.send(&tagged(4), LONG).unwrap();
    for tag in 1..5 {
        let message = consumer.receive(LONG).unwrap();
        assert_eq!(message.tag, tag);
        consumer.release(&message).unwrap();
    }
}

/// One link carries at most 64 requests at the same time. A task that waits for an end of a port must not occupy one of
/// these 64 places during its wait.
#[test]
fn many_tasks_that_wait_for_an_end_do_not_hold_up_messages_and_opens() {
    let world = World::new(2);
    let (one, two) = (world.session(0, "one"), world.session(1, "two"));
    let held = two.port("full", End::Consumer, &options(Pattern::OneToOne, 4), None).unwrap();
    let consumer = two.port("free", End::Consumer, &options(Pattern::OneToOne, 4), None).unwrap();
    let producer = one.port("free", End::Producer, &PortOptions::default(), LONG).unwrap();
    let _other = two.port("other", End::Consumer, &options(Pattern::OneToOne, 4), None).unwrap();
    let waiting: Vec<_> = (0..80).map(|number| world.session(0, &format!("waits{number}"))).collect();
    let (taken, took) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for session in &waiting {
            let taken = taken.clone();
            scope.spawn(move || {
                let wait = Some(Duration::from_secs(15));
                if let Ok(port) = session.port("full", End::Consumer, &PortOptions::default(), wait) {
                    taken.send(port).unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_secs(2));
        let soon = Some(Duration::from_secs(5));
        let outcome = (|| {
            producer.send(&tagged(1), soon)?;
            consumer.receive(soon)?;
            one.port("other", End::Producer, &PortOptions::default(), soon)
        })();
        // While `held` exists, the consumer's end of the port `full` is not free, so no waiting task may get this end.
        // Soon after `held` is dropped, one of the tasks must get the end.
        let was_early = took.try_recv().is_ok();
        drop(held);
        let next = took.recv_timeout(Duration::from_secs(5));
        outcome.unwrap();
        assert!(!was_early);
        next.unwrap();
    });
}

#[test]
fn a_producer_of_another_node_sends_more_to_a_work_queue_than_has_room() {
    let world = World::new(2);
    let (one, two) = (world.session(0, "one"), world.session(1, "two"));
    let consumer = one.port("q", End::Consumer, &options(Pattern::WorkQueue, 4), None).unwrap();
    let producer = two.port("q", End::Producer, &PortOptions::default(), LONG).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|tag| producer.send(&tagged(tag), LONG).unwrap()));
        for tag in 0..50 {
            let message = consumer.receive(LONG).unwrap();
            assert_eq!(message.tag, tag);
            consumer.release(&message).unwrap();
        }
    });
}

#[test]
fn a_fan_out_reaches_consumers_of_three_nodes() {
    let world = World::new(3);
    let home = world.session(0, "one");
    let sessions: Vec<_> = (0..3).map(|node| world.session(node, "reader")).collect();
    let fan = options(Pattern::FanOut, 8);
    let first = home.port("p", End::Consumer, &fan, None).unwrap();
    let mut consumers: Vec<Port> = vec![first];
    consumers.extend(sessions[1..].iter().map(|session| session.port("p", End::Consumer, &fan, None).unwrap()));
    let producer = sessions[2].port("p", End::Producer, &fan, None).unwrap();
    let sender = std::thread::spawn(move || (0..50).for_each(|tag| producer.send(&tagged(tag), LONG).unwrap()));
    for consumer in &consumers {
        let mut held = Vec::new();
        for tag in 0..50 {
            let message = consumer.receive(LONG).unwrap();
            assert_eq!(message.tag, tag);
            held.push(message);
            // The consumer holds up to eight messages before it releases them. No message may be lost because of this.
            if held.len() == 8 || tag == 49 {
                held.drain(..).for_each(|message| consumer.release(&message).unwrap());
            }
            // This consumer stops after every eight messages. The producer cannot send more until the other consumers have
            // received those eight.
            if tag % 8 == 7 {
                break;
            }
        }
    }
    // From here on, each consumer in turn receives one message.
    let mut next = vec![8; 3];
    while next.iter().any(|next| *next < 50) {
        for (consumer, next) in consumers.iter().zip(&mut next).filter(|(_, next)| **next < 50) {
            let message = consumer.receive(LONG).unwrap();
            assert_eq!(message.tag, *next);
            consumer.release(&message).unwrap();
            *next += 1;
        }
    }
    sender.join().unwrap();
    for consumer in &consumers {
        assert_eq!(consumer.receive(LONG).unwrap_err().status, Status::Closed);
    }
}

#[test]
fn a_death_is_told_behind_all_messages() {
    let world = World::new(2);
    let a = world.session(0, "one");
    let consumer = a.port("p", End::Consumer, &options(Pattern::OneToOne, 8), None).unwrap();
    end(start(&world.daemons[1], "send3"));
    for tag in 0..3 {
        let message = consumer.receive(LONG).unwrap();
        assert_eq!(message.tag, tag);
        consumer.release(&message).unwrap();
    }
    let error = consumer.receive(LONG).unwrap_err();
    assert_eq!(error.status, Status::PeerDied, "{error}");
    assert!(error.to_string().contains("doomed"), "{error}");
}

#[test]
fn a_remote_end_that_never_said_a_word_has_died_too() {
    let world = World::new(2);
    let a = world.session(0, "one");
    let consumer = a.port("p", End::Consumer, &options(Pattern::OneToOne, 8), None).unwrap();
    end(start(&world.daemons[1], "produce"));
    let error = consumer.receive(LONG).unwrap_err();
    assert_eq!(error.status, Status::PeerDied, "{error}");
    drop(consumer);
    // Now the consumer is on the other node. After the consumer's death, the producer gets the error when the port has
    // no room left.
    let producer = a.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    end(start(&world.daemons[1], "consume"));
    let error = (0..9).find_map(|tag| producer.send(&tagged(tag), LONG).err()).unwrap();
    assert_eq!(error.status, Status::PeerDied, "{error}");
}

#[test]
fn what_a_killed_worker_held_goes_to_another_one_before_the_end() {
    let world = World::new(3);
    let (a, c) = (world.session(0, "one"), world.session(2, "other"));
    let queue = options(Pattern::WorkQueue, 8);
    let producer = a.port("p", End::Producer, &queue, None).unwrap();
    producer.send(&tagged(1), LONG).unwrap();
    let doomed = start(&world.daemons[1], "take1");
    let worker = c.port("p", End::Consumer, &queue, None).unwrap();
    producer.send(&tagged(2), LONG).unwrap();
    drop(producer);
    end(doomed);
    let mut found = Vec::new();
    let status = loop {
        match worker.receive(LONG) {
            Ok(message) => {
                found.push(message.tag);
                worker.release(&message).unwrap();
            }
            Err(error) => break error.status,
        }
    };
    found.sort_unstable();
    assert_eq!((found, status), (vec![1, 2], Status::Closed));
}

#[test]
fn the_loss_of_a_node_is_a_death_of_its_tasks() {
    let world = World::new(2);
    let (a, b) = (world.session(0, "one"), world.session(1, "two"));
    let consumer = a.port("p", End::Consumer, &options(Pattern::OneToOne, 8), None).unwrap();
    let producer = b.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    producer.send(&tagged(5), LONG).unwrap();
    assert_eq!(consumer.receive(LONG).unwrap().tag, 5);
    // Kills the broker of node b. Node b used the port of node a through a member in the broker's process. So this
    // member dies with the broker.
    world.daemons[1].kill_broker();
    let error = consumer.receive(LONG).unwrap_err();
    assert_eq!(error.status, Status::PeerDied, "{error}");
    let error = (0..20).find_map(|tag| producer.send(&tagged(tag), LONG).err()).unwrap();
    assert_eq!(error.status, Status::PeerDied, "{error}");
}

#[test]
fn ports_regions_and_series_are_removed_from_another_node() {
    let world = World::new(2);
    let (a, b) = (world.session(0, "one"), world.session(1, "two"));
    let port = a.port("p", End::Consumer, &options(Pattern::FanIn, 4), None).unwrap();
    let series = SeriesOptions { variables: vec![Variable::new("u", "f64", &[4])], ..SeriesOptions::default() };
    let publisher = a.publisher("s", &series).unwrap();
    drop(region(&a, "r"));
    // Node b asks the node that has the object whether it can be removed, because only that node knows the members that
    // use the object.
    let is_busy = |outcome: crossdock_client::Result<()>| outcome.is_err_and(|error| error.status == Status::Busy);
    until("node b knows the port", || is_busy(b.remove(SegmentKind::Port, "p", InUse::Refuse)));
    let busy = b.remove(SegmentKind::Port, "p", InUse::Refuse).unwrap_err();
    assert_eq!(busy.status, Status::Busy, "{busy}");
    assert!(busy.to_string().contains("one"), "{busy}");
    until("node b knows the series", || is_busy(b.remove_series("s")));
    publisher.end().unwrap();

    b.remove_port("p").unwrap();
    b.remove_series("s").unwrap();
    until("node b knows the region", || b.remove_region("r").is_ok());
    let left = a.list().unwrap().segments;
    let named = |segment: &&SegmentInfo| !segment.removed && ["p", "s", "r"].contains(&&*segment.name);
    assert_eq!(left.iter().find(named), None);
    // A second removal must find nothing, even if the catalog has not told node b about the first removal yet.
    for (kind, name) in [(SegmentKind::Port, "p"), (SegmentKind::Series, "s"), (SegmentKind::Region, "r")] {
        let none = b.remove(kind, name, InUse::Keep).unwrap_err();
        assert_eq!(none.status, Status::NotFound, "{none}");
    }
    // A member still has an end of the removed port open. The end works after the removal, as it does on one node.
    assert_eq!(port.receive(POLL).unwrap_err().status, Status::NotYet);
}
