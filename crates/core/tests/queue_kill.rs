//! Kill tests of ports: a process dies by SIGKILL at every fault point, and its peers continue.
//!
//! The following must hold for every pattern and every point. No message is lost that was sent and not yet released. No
//! member waits longer than 100 ms after the death. Other members can open the ends of the dead process immediately.
//! The ring still has all of its cells.
#![cfg(feature = "fault-points")]

mod queue_world;

use crossdock_core::queue::{End, FAULT_POINTS, Pattern, Side, Waiting};
use crossdock_layout::Status;
use queue_world::{LONG, World, assert_whole, message};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const PATTERNS: [Pattern; 4] = [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue];
const MESSAGES: u64 = 40;
const SOON: Duration = Duration::from_millis(100);

/// Indices of words of shared memory in which the children note what they have done. `SENT`: the number of messages
/// sent. `HERE`: 1 when the consumer runs. `TAGS` and the following words: for each message 1 (received), 2 (releasing)
/// or 3 (released).
const SENT: usize = 0;
const HERE: usize = 1;
const TAGS: usize = 8;

#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let Some((world, me, part)) = World::of_parent() else { return };
    crossdock_core::fault::arm_from_environment();
    match part.as_str() {
        "produce" => produce(&world, &world.try_open(Side::Producer, me, "producer").unwrap()),
        "consume" => consume(&world, &world.try_open(Side::Consumer, me, "consumer").unwrap()),
        other => panic!("no part {other}"),
    }
}

fn produce(world: &World, end: &End) {
    end.set_waiting(Waiting::Block);
    for tag in 0..MESSAGES {
        end.reclaim(LONG).unwrap();
        end.send(&message(tag), 0, LONG).unwrap();
        world.board()[SENT].store(tag + 1, SeqCst);
    }
}

/// Receives two messages at a time, and releases the second message before the first.
fn consume(world: &World, end: &End) {
    end.set_waiting(Waiting::Block);
    world.board()[HERE].store(1, SeqCst);
    let note = |tag: u64, what| world.board()[TAGS + tag as usize].store(what, SeqCst);
    let mut held = Vec::new();
    while let Ok((position, got)) = end.receive(LONG) {
        assert_whole(&got);
        note(got.tag, 1);
        held.push((position, got.tag));
        if held.len() == 2 {
            for (position, tag) in held.drain(..).rev() {
                note(tag, 2);
                end.release(position).unwrap();
                note(tag, 3);
            }
        }
    }
}

/// The messages that a consumer in this process received.
#[derive(Default)]
struct Seen {
    tags: Vec<u64>,
    /// The time at which a wait first ended because a peer had died.
    death: Option<Instant>,
}

/// Receives messages until the stream is closed properly. If a producer dies before that, continues with the messages
/// of its successor.
fn watch(end: &End) -> Seen {
    watch_until(end, LONG, &|| false)
}

/// Receives as `watch` does, but also ends at a timeout if `over` was true before the wait. If the last producer left
/// before this consumer came, the consumer has met no producer, and its waits end only by a timeout.
fn watch_until(end: &End, wait: Duration, over: &dyn Fn() -> bool) -> Seen {
    end.set_waiting(Waiting::Block);
    let mut seen = Seen::default();
    loop {
        let was_over = over();
        match end.receive(wait) {
            Err(error) if error.status == Status::TimedOut && was_over => return seen,
            Err(error) if error.status == Status::TimedOut && wait < LONG => {}
            Ok((position, got)) => {
                assert_whole(&got);
                seen.tags.push(got.tag);
                end.release(position).unwrap();
            }
            Err(error) if error.status == Status::PeerDied => {
                // `wait_peer` cannot be used to wait for the dead producer's successor, because the successor may come
                // and leave before this thread checks again.
                assert!(seen.death.get_or_insert_with(Instant::now).elapsed() < LONG, "no successor: {error}");
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) => {
                assert_eq!(error.status, Status::Closed, "{error}");
                return seen;
            }
        }
    }
}

/// Sends the messages from `from` on, even if consumers die meanwhile. Gives the time at which the first wait ended
/// because a consumer had died.
fn feed(end: &End, from: u64) -> Option<Instant> {
    end.set_waiting(Waiting::Block);
    let mut death = None;
    let mut tag = from;
    while tag < MESSAGES {
        match end.send(&message(tag), 0, LONG) {
            Ok(_) => tag += 1,
            Err(error) if error.status == Status::PeerDied => {
                assert!(death.get_or_insert_with(Instant::now).elapsed() < LONG, "no successor: {error}");
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) => panic!("{error}"),
        }
    }
    death
}

fn open_soon(world: &World, side: Side) -> End {
    let start = Instant::now();
    let me = world.member();
    let end = End::open(world.ring(me).unwrap(), side, me, side.word(), world.host.clone(), LONG).unwrap();
    assert!(start.elapsed() < SOON, "the end was free again only after {:?}", start.elapsed());
    end
}

/// Lets a producer die at `fault`. A consumer must receive all messages in the order in which they were sent, including
/// those of the producer's successor.
fn producer_dies(pattern: Pattern, fault: &str, consumer_first: bool) -> bool {
    let context = format!("{pattern:?}, producer dies at {fault}, consumer first: {consumer_first}");
    let world = World::new(pattern, 4);
    let early = consumer_first.then(|| world.open(Side::Consumer));
    std::thread::scope(|scope| {
        let early = early.map(|end| scope.spawn(move || watch(&end)));
        let victim = world.spawn("produce", Some(fault));
        let (killed, buried) = if early.is_some() {
            victim.wait()
        } else {
            // There is no consumer, so the producer fills the ring and then waits. If the producer has not reached the
            // fault point after 60 ms, the test kills it while it waits.
            std::thread::sleep(Duration::from_millis(60));
            victim.kill();
            victim.wait()
        };
        let watcher = early.unwrap_or_else(|| {
            let end = open_soon(&world, Side::Consumer);
            scope.spawn(move || watch(&end))
        });
        let successor = open_soon(&world, Side::Producer);
        let sent = world.board()[SENT].load(SeqCst);
        feed(&successor, sent);
        drop(successor);
        let seen = watcher.join().unwrap();
        // The victim died while it sent a message. If this message has arrived, it is there twice, because the
        // successor has sent it, too. No other message may be there twice.
        let mut tags = seen.tags.clone();
        let doubled = tags.len();
        tags.dedup();
        assert_eq!(tags, (0..MESSAGES).collect::<Vec<_>>(), "{context}: {:?}", seen.tags);
        assert!(doubled - tags.len() <= 1, "{context}: {:?}", seen.tags);
        if let Some(death) = seen.death {
            assert!(death.saturating_duration_since(buried) < SOON, "{context}: late by {:?}", death - buried);
        }
        killed
    })
}

/// Lets a consumer die at `fault`. Messages that it had not released must be delivered again. In a fan-out, another
/// consumer must get every message.
fn consumer_dies(pattern: Pattern, fault: &str, producer_first: bool) -> bool {
    let context = format!("{pattern:?}, consumer dies at {fault}, producer first: {producer_first}");
    let world = World::new(pattern, 4);
    let steady = (producer_first && pattern == Pattern::FanOut).then(|| world.open(Side::Consumer));
    let producer = producer_first.then(|| world.open(Side::Producer));
    std::thread::scope(|scope| {
        let steady = steady.map(|end| scope.spawn(move || watch(&end)));
        let world = &world;
        let run = move |producer: End| move || feed(&producer, 0);
        let (feeder, victim) = match producer {
            Some(producer) => {
                let victim = world.spawn("consume", Some(fault));
                victim.until_stored(&world.board()[HERE]);
                (scope.spawn(run(producer)), victim)
            }
            None => {
                // The victim formats the port and waits for messages. The pause gives the victim time to fall asleep,
                // so that the first message must wake it.
                let victim = world.spawn("consume", Some(fault));
                std::thread::sleep(Duration::from_millis(60));
                (scope.spawn(run(open_soon(world, Side::Producer))), victim)
            }
        };
        let (killed, buried) = victim.wait();
        let noted = |tag: u64| world.board()[TAGS + tag as usize].load(SeqCst);
        let successor = open_soon(world, Side::Consumer);
        let seen = watch_until(&successor, Duration::from_millis(50), &|| feeder.is_finished());
        if let Some(death) = feeder.join().unwrap() {
            assert!(death.saturating_duration_since(buried) < SOON, "{context}: late by {:?}", death - buried);
        }
        if let Some(steady) = steady {
            assert_eq!(steady.join().unwrap().tags, (0..MESSAGES).collect::<Vec<_>>(), "{context}");
            return killed;
        }
        if pattern == Pattern::FanOut {
            return killed; // in a fan-out, the dead consumer's messages are not delivered again
        }
        for tag in 0..MESSAGES {
            let again = seen.tags.iter().filter(|seen| **seen == tag).count();
            match noted(tag) {
                0 | 1 => assert_eq!(again, 1, "{context}: {tag} in {:?}", seen.tags),
                2 => assert!(again <= 1, "{context}: {tag} in {:?}", seen.tags),
                _ => assert_eq!(again, 0, "{context}: {tag} was released, yet in {:?}", seen.tags),
            }
        }
        assert!(seen.tags.is_sorted(), "{context}: {:?}", seen.tags);
        killed
    })
}

/// Lets a process die at the fault point that `first` names. Then lets the member that heals the dead process's end die
/// at `fault`. The next member must heal the ends of both dead members.
fn healer_dies(pattern: Pattern, first: (&str, &str), fault: &str) -> bool {
    let world = World::new(pattern, 4);
    let (part, at) = first;
    if part == "consume" {
        // A consumer dies while it holds messages. Its successor is the member that heals the dead consumer's end.
        let producer = world.open(Side::Producer);
        let victim = world.spawn("consume", Some(at));
        for tag in 0..4 {
            producer.send(&message(tag), 0, LONG).unwrap();
        }
        assert!(victim.wait().0);
    } else {
        assert!(world.spawn("produce", Some(at)).wait().0);
    }
    let (killed, _) = world.spawn("consume", Some(fault)).wait();
    let consumer = open_soon(&world, Side::Consumer);
    let producer = open_soon(&world, Side::Producer);
    let done = consumer.ring().statistics();
    assert!(done.under_way <= 4);
    let tags = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&consumer));
        feed(&producer, 0);
        drop(producer);
        watcher.join().unwrap().tags
    });
    let all: BTreeSet<_> = tags.into_iter().collect();
    assert!((0..MESSAGES).all(|tag| all.contains(&tag)), "{pattern:?} at {fault}: {all:?}");
    killed
}

#[test]
fn a_death_at_any_fault_point_lets_the_others_go_on_and_loses_nothing() {
    let mut reached = BTreeSet::new();
    let mut note = |fault: &str, killed: bool| {
        if killed {
            reached.insert(fault.split(':').next().unwrap().to_owned());
        }
    };
    let of = |wanted: &[&str]| -> Vec<&str> {
        let wanted = |point: &&&str| wanted.iter().any(|prefix| point.starts_with(prefix));
        FAULT_POINTS.iter().filter(wanted).copied().collect()
    };
    for pattern in PATTERNS {
        for point in of(&["queue.join", "queue.send", "queue.wake", "queue.wait", "queue.reclaim", "queue.leave"]) {
            note(point, producer_dies(pattern, point, true));
        }
        for point in of(&["queue.send"]) {
            // The process dies when it arrives at the point for the sixth time. By then it is in the second lap of the
            // ring.
            note(point, producer_dies(pattern, &format!("{point}:6"), true));
        }
        for point in of(&["queue.format", "queue.send", "queue.wait"]) {
            note(point, producer_dies(pattern, point, false));
        }
        for point in of(&["queue.join", "queue.receive", "queue.release", "queue.wake", "queue.leave"]) {
            note(point, consumer_dies(pattern, point, true));
        }
        for point in of(&["queue.receive", "queue.release"]) {
            note(point, consumer_dies(pattern, &format!("{point}:7"), true));
        }
        for point in of(&["queue.format", "queue.join", "queue.wait"]) {
            note(point, consumer_dies(pattern, point, false));
        }
        for point in of(&["queue.heal"]) {
            note(point, healer_dies(pattern, ("produce", "queue.send.half"), point));
            note(point, healer_dies(pattern, ("consume", "queue.receive.read:2"), point));
        }
    }
    let all: BTreeSet<_> = FAULT_POINTS.iter().map(|point| (*point).to_owned()).collect();
    assert_eq!(reached, all, "points that no death reached: {:?}", all.difference(&reached).collect::<Vec<_>>());
}

/// A consumer has met a producer that left in order. Then another producer dies while it joins. The consumer must not
/// wait for it.
#[test]
fn a_wait_ends_when_a_producer_dies_while_it_joins_after_another_one_had_left() {
    for pattern in PATTERNS {
        for point in ["queue.join.here", "queue.join.cleared"] {
            let world = World::new(pattern, 4);
            let consumer = world.open(Side::Consumer);
            drop(world.open(Side::Producer));
            let (killed, buried) = world.spawn("produce", Some(point)).wait();
            assert!(killed, "{point}");
            let error = consumer.receive(LONG).unwrap_err();
            assert_eq!(error.status, Status::PeerDied, "{pattern:?}, {point}: {error}");
            assert!(buried.elapsed() < SOON, "{pattern:?}, {point}: {:?}", buried.elapsed());
        }
    }
}
