//! Tests of how members of earlier runs affect an end of a port: only members that the end has met can end its waits.

mod queue_world;

use crossdock_core::queue::{End, Pattern, Side};
use crossdock_layout::Status;
use queue_world::{LONG, POLL, World, message};
use std::time::Duration;

const PATTERNS: [Pattern; 4] = [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue];
const BRIEFLY: Duration = Duration::from_millis(20);

fn status<T: std::fmt::Debug>(result: Result<T, crossdock_core::Error>) -> Status {
    result.unwrap_err().status
}

fn send(end: &End, tags: impl IntoIterator<Item = u64>) {
    for tag in tags {
        end.send(&message(tag), 0, LONG).unwrap();
    }
}

/// Receives as `for message in port` does in Python: gives the tags of all messages until the stream ends, and the
/// status with which it ended.
fn read(end: &End, wait: Duration) -> (Vec<u64>, Status) {
    let mut tags = Vec::new();
    loop {
        match end.receive(wait) {
            Ok((position, got)) => {
                end.release(position).unwrap();
                tags.push(got.tag);
            }
            Err(error) => return (tags, error.status),
        }
    }
}

/// Runs a producer and a consumer until both have left, as an earlier run would, so that both have left their state in
/// the port's memory.
fn earlier_run(world: &World) {
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    send(&producer, [0, 1]);
    drop(producer);
    assert_eq!(read(&consumer, LONG), (vec![0, 1], Status::Closed));
}

#[test]
fn a_consumer_waits_for_its_producer_though_an_earlier_one_left() {
    for pattern in PATTERNS {
        let world = World::new(pattern, 4);
        earlier_run(&world);
        let consumer = world.open(Side::Consumer);
        assert_eq!(status(consumer.receive(POLL)), Status::NotYet, "{pattern:?}: poll");
        assert!(!consumer.has_event(), "{pattern:?}: an event loop sleeps");
        assert!(!consumer.wait_for_event(BRIEFLY), "{pattern:?}: a bell does not ring");
        let error = consumer.receive(BRIEFLY).unwrap_err();
        assert_eq!(error.status, Status::TimedOut, "{pattern:?}");
        assert!(
            error.to_string().contains("no producer has come since this end was opened (the last one before"),
            "{error}"
        );
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&consumer, LONG));
            std::thread::sleep(BRIEFLY);
            let producer = world.open(Side::Producer);
            send(&producer, 10..20);
            drop(producer);
            assert_eq!(reader.join().unwrap(), ((10..20).collect(), Status::Closed), "{pattern:?}");
        });
    }
}

#[test]
fn a_producer_waits_for_its_consumer_though_an_earlier_one_left() {
    for pattern in PATTERNS {
        let world = World::new(pattern, 2);
        earlier_run(&world);
        let producer = world.open(Side::Producer);
        send(&producer, [10, 11]);
        assert_eq!(status(producer.send(&message(12), 0, POLL)), Status::NotYet, "{pattern:?}: poll");
        assert!(!producer.has_event(), "{pattern:?}: an event loop sleeps");
        assert_eq!(status(producer.reclaim(BRIEFLY)), Status::TimedOut, "{pattern:?}");
        let error = producer.send(&message(12), 0, BRIEFLY).unwrap_err();
        assert_eq!(error.status, Status::TimedOut, "{pattern:?}");
        assert!(error.to_string().contains("room") && error.to_string().contains("no consumer has come"), "{error}");
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                send(&producer, 12..20);
                drop(producer);
            });
            std::thread::sleep(BRIEFLY);
            let consumer = world.open(Side::Consumer);
            assert_eq!(read(&consumer, LONG), ((10..20).collect(), Status::Closed), "{pattern:?}");
            sender.join().unwrap();
        });
    }
}

#[test]
fn messages_of_a_producer_that_left_before_are_received_and_then_the_stream_is_over() {
    for pattern in PATTERNS {
        let world = World::new(pattern, 4);
        let producer = world.open(Side::Producer);
        send(&producer, [0, 1, 2]);
        drop(producer);
        let consumer = world.open(Side::Consumer);
        assert_eq!(read(&consumer, LONG), (vec![0, 1, 2], Status::Closed), "{pattern:?}");
        // The next consumer finds no message, and it has met no producer. So its wait ends only at the deadline.
        drop(consumer);
        assert_eq!(read(&world.open(Side::Consumer), BRIEFLY), (vec![], Status::TimedOut), "{pattern:?}");
    }
}

#[test]
fn messages_of_a_producer_that_died_before_are_received_and_then_its_death_is_told() {
    for pattern in PATTERNS {
        let world = World::new(pattern, 4);
        let dead = world.member();
        let producer = world.try_open(Side::Producer, dead, "simulate").unwrap();
        send(&producer, [0, 1]);
        world.bury(dead);
        let consumer = world.open(Side::Consumer);
        assert_eq!(read(&consumer, LONG), (vec![0, 1], Status::PeerDied), "{pattern:?}");
        std::mem::forget(producer);
    }
}

#[test]
fn a_death_before_an_end_joined_is_none_of_its_business() {
    for pattern in [Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let living = world.open(Side::Producer);
        let dead = world.member();
        let other = world.try_open(Side::Producer, dead, "simulate").unwrap();
        world.bury(dead);
        let first = world.open(Side::Consumer);
        // This call heals the dead member's end: it records in the port's memory that this member has died.
        assert_eq!(status(first.receive(POLL)), Status::NotYet);
        drop(first);
        let consumer = world.open(Side::Consumer);
        send(&living, [7]);
        drop(living);
        assert_eq!(read(&consumer, LONG), (vec![7], Status::Closed), "{pattern:?}: the one that it met left in order");
        std::mem::forget(other);
    }
}

#[test]
fn a_death_that_an_end_was_there_for_is_told_though_another_one_left_in_order() {
    for pattern in [Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let consumer = world.open(Side::Consumer);
        let (living, dead) = (world.open(Side::Producer), world.member());
        let other = world.try_open(Side::Producer, dead, "simulate").unwrap();
        world.bury(dead);
        drop(living);
        assert_eq!(read(&consumer, LONG), (vec![], Status::PeerDied), "{pattern:?}");
        std::mem::forget(other);
    }
}

#[test]
fn a_consumer_that_starts_again_within_the_run_gets_what_it_had_not_released() {
    for pattern in [Pattern::OneToOne, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let producer = world.open(Side::Producer);
        let dead = world.member();
        let consumer = world.try_open(Side::Consumer, dead, "analyse").unwrap();
        send(&producer, [0, 1, 2]);
        let first = consumer.receive(LONG).unwrap();
        consumer.receive(LONG).unwrap();
        consumer.release(first.0).unwrap();
        drop(producer);
        world.bury(dead);
        let again = world.open(Side::Consumer);
        assert_eq!(read(&again, LONG), (vec![1, 2], Status::Closed), "{pattern:?}");
        std::mem::forget(consumer);
    }
}

#[test]
fn workers_that_come_while_another_one_works_on_the_last_message_wait_for_it_and_then_end() {
    let world = World::new(Pattern::WorkQueue, 4);
    let producer = world.open(Side::Producer);
    send(&producer, [0]);
    drop(producer);
    let working = world.open(Side::Consumer);
    let position = working.receive(LONG).unwrap().0;
    let late = world.open(Side::Consumer);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&late, LONG));
        std::thread::sleep(BRIEFLY);
        assert!(!reader.is_finished());
        working.release(position).unwrap();
        assert_eq!(reader.join().unwrap(), (vec![], Status::Closed));
    });
}

#[test]
fn a_consumer_that_holds_all_messages_is_told_so() {
    for pattern in PATTERNS {
        let world = World::new(pattern, 2);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        send(&producer, [0, 1]);
        let held = [consumer.receive(LONG).unwrap().0, consumer.receive(LONG).unwrap().0];
        let error = consumer.receive(BRIEFLY).unwrap_err();
        assert_eq!(error.status, Status::TimedOut);
        assert!(error.to_string().contains("this consumer holds all 2 messages"), "{pattern:?}: {error}");
        held.into_iter().for_each(|position| consumer.release(position).unwrap());
        let error = consumer.receive(BRIEFLY).unwrap_err();
        assert!(!error.to_string().contains("holds all"), "{pattern:?}: {error}");
    }
}
