//! Tests that a death ends waits. If a process is killed while another member of the port waits for it, the wait ends
//! within 100 ms with an error that names the dead process.

mod queue_world;

use crossdock_core::queue::{End, Pattern, Side, Waiting};
use crossdock_layout::Status;
use queue_world::{Child, LONG, World, assert_whole, message};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const PATTERNS: [Pattern; 4] = [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue];
const SOON: Duration = Duration::from_millis(100);

#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let Some((world, me, part)) = World::of_parent() else { return };
    let (side, name) = if part == "stay-producer" { (Side::Producer, "simulate") } else { (Side::Consumer, "analyse") };
    let end = world.try_open(side, me, name).unwrap();
    if part == "take-two" {
        end.receive(LONG).unwrap();
        end.receive(LONG).unwrap();
    }
    world.board()[0].store(1, SeqCst);
    std::thread::sleep(LONG);
}

fn start(world: &World, part: &str) -> Child {
    world.board()[0].store(0, SeqCst);
    let child = world.spawn(part, None);
    child.until_stored(&world.board()[0]);
    child
}

/// Runs `wait` in one thread, and kills the child from another thread. Gives the error with which `wait` ended, and the
/// time from the child's death to the end of `wait`.
fn killed_while<T: std::fmt::Debug + Send>(
    child: Child,
    wait: impl FnOnce() -> Result<T, crossdock_core::Error> + Send,
) -> (crossdock_core::Error, Duration) {
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let error = wait().unwrap_err();
            (error, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(40));
        child.kill();
        let (_, buried) = child.wait();
        let (error, ended) = waiter.join().unwrap();
        (error, ended.saturating_duration_since(buried))
    })
}

#[test]
fn a_consumer_that_waits_is_told_of_its_producers_death() {
    for pattern in PATTERNS {
        for waiting in [Waiting::Block, Waiting::Adaptive, Waiting::Spin] {
            let world = World::new(pattern, 4);
            let consumer = world.open(Side::Consumer);
            consumer.set_waiting(waiting);
            let child = start(&world, "stay-producer");
            let (error, late) = killed_while(child, || consumer.receive(LONG));
            assert_eq!(error.status, Status::PeerDied, "{error}");
            assert!(error.to_string().contains("task simulate (member 2.2), last seen 0."), "{error}");
            assert!(late < SOON, "{pattern:?}, {waiting:?}: {late:?}");
        }
    }
}

#[test]
fn a_producer_that_waits_is_told_of_its_last_consumers_death() {
    for pattern in [Pattern::OneToOne, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 2);
        let producer = world.open(Side::Producer);
        let child = start(&world, "stay-consumer");
        for tag in 0..2 {
            producer.send(&message(tag), 0, LONG).unwrap();
        }
        let (error, late) = killed_while(child, || producer.send(&message(2), 0, LONG));
        assert_eq!(error.status, Status::PeerDied, "{error}");
        assert!(error.to_string().contains("task analyse"), "{error}");
        assert!(late < SOON, "{pattern:?}: {late:?}");
        let successor = world.open(Side::Consumer);
        for tag in 0..2 {
            assert_eq!(successor.receive(LONG).unwrap().1.tag, tag, "{pattern:?}: nothing is lost");
        }
    }
}

#[test]
fn a_fan_out_goes_on_at_once_when_the_consumer_it_waited_for_is_killed() {
    let world = World::new(Pattern::FanOut, 2);
    let (producer, other) = (world.open(Side::Producer), world.open(Side::Consumer));
    let child = start(&world, "stay-consumer");
    for tag in 0..2 {
        producer.send(&message(tag), 0, LONG).unwrap();
        let (position, _) = other.receive(LONG).unwrap();
        other.release(position).unwrap();
    }
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            producer.send(&message(2), 0, LONG).unwrap();
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(40));
        child.kill();
        let (_, buried) = child.wait();
        assert!(sender.join().unwrap().saturating_duration_since(buried) < SOON);
    });
    assert_eq!(other.receive(LONG).unwrap().1.tag, 2);
}

#[test]
fn a_waiting_worker_gets_what_its_killed_colleague_had_taken() {
    let world = World::new(Pattern::WorkQueue, 4);
    let producer = world.open(Side::Producer);
    for tag in 0..2 {
        producer.send(&message(tag), 0, LONG).unwrap();
    }
    let child = start(&world, "take-two");
    drop(producer);
    let worker = world.open(Side::Consumer);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            // In a work queue, a consumer's stream must not end while another consumer holds messages: if the other
            // consumer dies, its messages are delivered again.
            let got = [worker.receive(LONG).unwrap(), worker.receive(LONG).unwrap()];
            (got, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(40));
        assert!(!waiter.is_finished());
        child.kill();
        let (_, buried) = child.wait();
        let (got, ended) = waiter.join().unwrap();
        assert!(ended.saturating_duration_since(buried) < SOON);
        let tags = got.map(|(position, got)| {
            assert_whole(&got);
            worker.release(position).unwrap();
            got.tag
        });
        assert_eq!(tags, [0, 1], "oldest first");
    });
    assert_eq!(worker.receive(LONG).unwrap_err().status, Status::Closed);
}

#[test]
fn two_workers_who_hold_one_message_each_do_not_wait_for_each_other() {
    let world = World::new(Pattern::WorkQueue, 4);
    let (producer, one, two) = (world.open(Side::Producer), world.open(Side::Consumer), world.open(Side::Consumer));
    producer.send(&message(0), 0, LONG).unwrap();
    producer.send(&message(1), 0, LONG).unwrap();
    let held = [one.receive(LONG).unwrap().0, two.receive(LONG).unwrap().0];
    drop(producer);
    let finish = |end: &End, position: u64| {
        assert_eq!(end.receive(LONG).unwrap_err().status, Status::Closed);
        end.release(position).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| finish(&one, held[0]));
        finish(&two, held[1]);
    });
}

#[test]
fn waiting_for_a_peer_ends_when_one_comes() {
    let world = World::new(Pattern::OneToOne, 2);
    let consumer = world.open(Side::Consumer);
    assert_eq!(consumer.wait_peer(Duration::from_millis(20)).unwrap_err().status, Status::TimedOut);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| consumer.wait_peer(LONG));
        std::thread::sleep(Duration::from_millis(20));
        let _producer = world.open(Side::Producer);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn an_end_is_taken_over_from_the_dead_and_waited_for_from_the_living() {
    let world = World::new(Pattern::OneToOne, 2);
    let holder = world.open(Side::Producer);
    let me = world.member();
    let late = End::open(world.ring(me).unwrap(), Side::Producer, me, "x", world.host.clone(), SOON / 2);
    assert_eq!(late.unwrap_err().status, Status::Busy);
    std::thread::scope(|scope| {
        let world = &world;
        let waiter = scope.spawn(move || {
            End::open(world.ring(me).unwrap(), Side::Producer, me, "x", world.host.clone(), LONG).map(drop)
        });
        std::thread::sleep(Duration::from_millis(30));
        drop(holder);
        waiter.join().unwrap().unwrap();
    });
}
