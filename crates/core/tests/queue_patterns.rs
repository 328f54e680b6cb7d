//! Tests of what each pattern of a port promises. No process dies in them.

mod queue_world;

use crossdock_core::Host;
use crossdock_core::queue::{End, Pattern, Ring, Shape, Side, Waiting};
use crossdock_layout::queue::state::State;
use crossdock_layout::queue::{AtomicU64, CELLS_AT};
use crossdock_layout::{Handle, Status};
use crossdock_os::child::{self, ExitStatus};
use crossdock_os::{Deadline, Mapping};
use queue_world::{LONG, POLL, World, assert_whole, message};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

fn send(end: &End, tags: impl IntoIterator<Item = u64>) {
    for tag in tags {
        end.send(&message(tag), 100, LONG).unwrap();
    }
}

/// Receives and releases all messages that are in the port.
fn drain(end: &End) -> Vec<u64> {
    let mut tags = Vec::new();
    while let Ok((position, got)) = end.receive(POLL) {
        assert_whole(&got);
        end.release(position).unwrap();
        tags.push(got.tag);
    }
    tags
}

fn status<T: std::fmt::Debug>(result: Result<T, crossdock_core::Error>) -> Status {
    result.unwrap_err().status
}

#[test]
fn one_to_one_keeps_order_over_many_laps_and_any_capacity() {
    for capacity in [1, 2, 8, 4096] {
        let world = World::new(Pattern::OneToOne, capacity);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        let mut got = Vec::new();
        for tag in 0..20 {
            send(&producer, [tag]);
            got.extend(drain(&consumer));
        }
        assert_eq!(got, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_ring_is_not_yet_and_a_release_of_its_oldest_makes_room() {
    let world = World::new(Pattern::OneToOne, 2);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    send(&producer, [0, 1]);
    assert_eq!(status(producer.send(&message(2), 0, POLL)), Status::NotYet);
    let first = consumer.receive(POLL).unwrap().0;
    let second = consumer.receive(POLL).unwrap().0;
    consumer.release(second).unwrap();
    assert_eq!(status(producer.send(&message(2), 0, POLL)), Status::NotYet, "the oldest is still read");
    consumer.release(first).unwrap();
    send(&producer, [2, 3]);
    assert_eq!(drain(&consumer), [2, 3]);
}

#[test]
fn a_message_is_released_once_and_only_by_who_received_it() {
    for pattern in [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        send(&producer, [0, 1]);
        assert_eq!(status(consumer.release(0)), Status::Invalid, "{pattern:?}: not received yet");
        let position = consumer.receive(POLL).unwrap().0;
        assert_eq!(status(consumer.release(position + 1)), Status::Invalid, "{pattern:?}: another one");
        consumer.release(position).unwrap();
        assert_eq!(status(consumer.release(position)), Status::Invalid, "{pattern:?}: twice");
        assert_eq!(status(producer.release(position)), Status::Invalid, "{pattern:?}: the wrong end");
        assert_eq!(drain(&consumer), [1]);
    }
}

#[test]
fn a_message_that_is_put_back_comes_again_before_later_ones() {
    for pattern in [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        send(&producer, [0, 1]);
        assert_eq!(status(consumer.put_back(0)), Status::Invalid, "{pattern:?}: not received yet");
        let first = consumer.receive(POLL).unwrap().0;
        let second = consumer.receive(POLL).unwrap().0;
        assert!(!consumer.has_event(), "{pattern:?}");
        consumer.put_back(second).unwrap();
        consumer.put_back(first).unwrap();
        assert!(consumer.has_event(), "{pattern:?}: the event loop comes for it");
        assert_eq!(status(consumer.put_back(first)), Status::Invalid, "{pattern:?}: twice");
        let (again, got) = consumer.receive(POLL).unwrap();
        assert_whole(&got);
        assert_eq!((again, got.tag), (first, 0), "{pattern:?}");
        consumer.release(second).unwrap();
        assert_eq!(status(consumer.receive(POLL)), Status::NotYet, "{pattern:?}: the second is released");
        consumer.release(first).unwrap();
        assert_eq!(status(consumer.put_back(first)), Status::Invalid, "{pattern:?}: released");
        send(&producer, [2]);
        let third = consumer.receive(POLL).unwrap().0;
        consumer.put_back(third).unwrap();
        consumer.close();
        assert_eq!(status(consumer.receive(POLL)), Status::Closed, "{pattern:?}");
        // In a fan-out, a message goes only to the consumers that were at the port when it was sent. In all other
        // patterns, the next consumer gets the message.
        let left: &[u64] = if pattern == Pattern::FanOut { &[] } else { &[2] };
        assert_eq!(drain(&world.open(Side::Consumer)), left, "{pattern:?}: the next consumer has it");
    }
}

#[test]
fn a_message_that_is_put_back_ends_the_wait_of_another_thread() {
    for waiting in [Waiting::Adaptive, Waiting::Block] {
        let world = World::new(Pattern::OneToOne, 1);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        consumer.set_waiting(waiting);
        send(&producer, [7]);
        let position = consumer.receive(POLL).unwrap().0;
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| consumer.receive(LONG).map(|(_, got)| got.tag));
            std::thread::sleep(Duration::from_millis(50));
            consumer.put_back(position).unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), 7, "{waiting:?}");
        });
    }
}

#[test]
fn credits_come_back_each_once_oldest_first() {
    for pattern in [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        assert_eq!(producer.reclaim(POLL).unwrap(), None, "{pattern:?}: nothing sent yet");
        send(&producer, 0..4);
        assert_eq!(status(producer.reclaim(POLL)), Status::NotYet, "{pattern:?}: full");
        let positions: Vec<_> = (0..4).map(|_| consumer.receive(POLL).unwrap().0).collect();
        consumer.release(positions[0]).unwrap();
        consumer.release(positions[2]).unwrap();
        assert_eq!(producer.reclaim(POLL).unwrap(), Some(message(0).handle), "{pattern:?}");
        assert_eq!(producer.reclaim(POLL).unwrap(), Some(message(2).handle), "{pattern:?}: any order");
        assert_eq!(producer.reclaim(POLL).unwrap(), None, "{pattern:?}: each once");
        send(&producer, [4]);
        consumer.release(positions[1]).unwrap();
        consumer.release(positions[3]).unwrap();
        assert_eq!(producer.reclaim(POLL).unwrap(), Some(message(1).handle), "{pattern:?}: late");
        send(&producer, [5]);
        assert_eq!(producer.reclaim(POLL).unwrap(), Some(message(3).handle), "{pattern:?}");
        assert_eq!(drain(&consumer), [4, 5]);
    }
}

#[test]
fn a_steady_stream_needs_no_more_buffers_than_cells_and_one() {
    let world = World::new(Pattern::OneToOne, 4);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    let mut made = 0;
    for step in 0..100u64 {
        let handle = producer.reclaim(POLL).unwrap().unwrap_or_else(|| {
            made += 1;
            Handle { segment: 7, offset: made * 64 }
        });
        let message = crossdock_core::queue::Message { handle, tag: step, ..Default::default() };
        producer.send(&message, 0, POLL).unwrap();
        let (position, _) = consumer.receive(POLL).unwrap();
        consumer.release(position).unwrap();
    }
    assert!(made <= 5, "{made} buffers");
}

#[test]
fn messages_without_a_handle_leave_no_credit() {
    let world = World::new(Pattern::OneToOne, 2);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    producer.send(&crossdock_core::queue::Message::default(), 0, POLL).unwrap();
    let (position, _) = consumer.receive(POLL).unwrap();
    consumer.release(position).unwrap();
    assert_eq!(producer.reclaim(POLL).unwrap(), None);
}

#[test]
fn fan_out_shows_each_message_to_each_consumer_from_when_it_came() {
    let world = World::new(Pattern::FanOut, 8);
    let (producer, first) = (world.open(Side::Producer), world.open(Side::Consumer));
    send(&producer, [0, 1]);
    let second = world.open(Side::Consumer);
    send(&producer, [2, 3]);
    assert_eq!(drain(&second), [2, 3]);
    assert_eq!(drain(&first), [0, 1, 2, 3]);
    drop(second);
    send(&producer, 4..8);
    let third = world.open(Side::Consumer);
    send(&producer, [8]);
    assert_eq!(drain(&first), [4, 5, 6, 7, 8]);
    assert_eq!(drain(&third), [8]);
}

#[test]
fn fan_out_keeps_messages_without_a_consumer_for_the_first_consumer() {
    let world = World::new(Pattern::FanOut, 4);
    let producer = world.open(Side::Producer);
    send(&producer, 0..4);
    assert_eq!(status(producer.send(&message(4), 0, POLL)), Status::NotYet, "nothing is dropped");
    let consumer = world.open(Side::Consumer);
    assert_eq!(drain(&consumer), [0, 1, 2, 3]);
    send(&producer, [4]);
    assert_eq!(drain(&consumer), [4]);
}

#[test]
fn fan_out_waits_for_its_slowest_consumer_until_that_leaves() {
    let world = World::new(Pattern::FanOut, 2);
    let (producer, quick, slow) = (world.open(Side::Producer), world.open(Side::Consumer), world.open(Side::Consumer));
    send(&producer, [0, 1]);
    assert_eq!(drain(&quick), [0, 1]);
    assert_eq!(status(producer.send(&message(2), 0, POLL)), Status::NotYet);
    let _held = slow.receive(POLL).unwrap();
    drop(slow);
    send(&producer, [2, 3]);
    assert_eq!(drain(&quick), [2, 3]);
}

#[test]
fn fan_in_takes_from_many_and_keeps_each_ones_order() {
    let world = World::new(Pattern::FanIn, 8);
    let producers: Vec<_> = (0..3).map(|_| world.open(Side::Producer)).collect();
    let consumer = world.open(Side::Consumer);
    let mut last = [None; 3];
    for round in 0..20u64 {
        for (n, producer) in producers.iter().enumerate() {
            send(producer, [n as u64 * 1000 + round]);
        }
        for tag in drain(&consumer) {
            let (n, round) = ((tag / 1000) as usize, tag % 1000);
            assert!(last[n] < Some(round));
            last[n] = Some(round);
        }
    }
    assert_eq!(last, [Some(19); 3]);
}

#[test]
fn fan_in_keeps_the_order_of_producers_that_send_while_the_consumer_looks() {
    let world = World::new(Pattern::FanIn, 8);
    let producers = [world.open(Side::Producer), world.open(Side::Producer)];
    let consumer = world.open(Side::Consumer);
    let until = Instant::now() + Duration::from_secs(3);
    let (mut next, mut received) = ([0u64; 2], 0u64);
    std::thread::scope(|scope| {
        for (n, producer) in producers.iter().enumerate() {
            scope.spawn(move || {
                let mut number = 0;
                while Instant::now() < until {
                    if producer.send(&message(number << 1 | n as u64), 0, Duration::from_millis(100)).is_ok() {
                        number += 1;
                    }
                }
            });
        }
        while let Ok((position, got)) = consumer.receive(Duration::from_millis(300)) {
            let (n, number) = ((got.tag & 1) as usize, got.tag >> 1);
            assert_eq!(number, next[n], "after {received} messages, of producer {n}");
            next[n] += 1;
            received += 1;
            consumer.release(position).unwrap();
        }
    });
    assert!(received > 1000);
}

#[test]
fn work_queue_gives_each_message_to_one_consumer() {
    let world = World::new(Pattern::WorkQueue, 8);
    let (producer, one, two) = (world.open(Side::Producer), world.open(Side::Consumer), world.open(Side::Consumer));
    send(&producer, 0..6);
    let mut got = Vec::new();
    for consumer in [&one, &two].into_iter().cycle().take(6) {
        let (position, message) = consumer.receive(POLL).unwrap();
        consumer.release(position).unwrap();
        got.push(message.tag);
    }
    assert_eq!(got, [0, 1, 2, 3, 4, 5]);
    assert_eq!(status(one.receive(POLL)), Status::NotYet);
}

#[test]
fn what_a_leaving_consumer_did_not_release_is_delivered_again() {
    for pattern in [Pattern::OneToOne, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let (producer, leaver) = (world.open(Side::Producer), world.open(Side::Consumer));
        send(&producer, 0..3);
        let first = leaver.receive(POLL).unwrap().0;
        leaver.receive(POLL).unwrap();
        leaver.release(first).unwrap();
        drop(leaver);
        let successor = world.open(Side::Consumer);
        send(&producer, [3, 4]);
        assert_eq!(drain(&successor), [1, 2, 3, 4], "{pattern:?}");
        assert_eq!(producer.ring().statistics().redelivered, 1, "{pattern:?}");
    }
}

#[test]
fn a_second_end_is_busy_and_the_text_says_who_has_it() {
    for (pattern, side) in [
        (Pattern::OneToOne, Side::Producer),
        (Pattern::OneToOne, Side::Consumer),
        (Pattern::FanOut, Side::Producer),
        (Pattern::FanIn, Side::Consumer),
    ] {
        let world = World::new(pattern, 4);
        let holder = world.try_open(side, world.member(), "simulate").unwrap();
        let error = world.try_open(side, world.member(), "intruder").unwrap_err();
        assert_eq!(error.status, Status::Busy);
        assert!(error.to_string().contains("task simulate (member 1.1)"), "{error}");
        drop(holder);
        world.open(side);
    }
}

#[test]
fn the_thirty_third_producer_is_busy() {
    let world = World::new(Pattern::FanIn, 4);
    let mut all: Vec<_> = (0..32).map(|_| world.open(Side::Producer)).collect();
    let error = world.try_open(Side::Producer, world.member(), "late").unwrap_err();
    assert_eq!(error.status, Status::Busy);
    assert!(error.to_string().contains("and 29 more"), "{error}");
    all.pop();
    world.open(Side::Producer);
}

#[test]
fn options_that_disagree_are_named_both() {
    let world = World::new(Pattern::FanOut, 8);
    let _producer = world.open(Side::Producer);
    let other = Shape { pattern: Pattern::OneToOne, capacity: 4 };
    let error =
        Ring::open(world.mapping(), other, world.member(), liveness(&world), Deadline::after(LONG)).unwrap_err();
    assert_eq!(error.status, Status::Invalid);
    assert!(
        error.to_string().contains("fan-out with 8 cells") && error.to_string().contains("one-to-one with 4"),
        "{error}"
    );
    for capacity in [0, 3, 8192] {
        let shape = Shape { pattern: Pattern::OneToOne, capacity };
        assert_eq!(shape.check().unwrap_err().status, Status::Invalid);
    }
}

fn liveness(world: &World) -> &dyn crossdock_core::liveness::LivenessSource {
    crossdock_core::Host::liveness(&*world.host)
}

#[test]
fn a_producer_that_left_in_order_is_the_end_of_the_stream_after_what_it_sent() {
    for pattern in [Pattern::OneToOne, Pattern::FanOut, Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        assert_eq!(status(consumer.receive(POLL)), Status::NotYet);
        send(&producer, [0, 1]);
        drop(producer);
        assert_eq!(drain(&consumer), [0, 1], "{pattern:?}");
        assert_eq!(status(consumer.receive(LONG)), Status::Closed, "{pattern:?}");
        let _again = world.open(Side::Producer);
        assert_eq!(status(consumer.receive(POLL)), Status::NotYet, "{pattern:?}: one came again");
    }
}

#[test]
fn a_producer_whose_consumer_left_gets_closed_when_no_cell_is_free() {
    let world = World::new(Pattern::OneToOne, 2);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    drop(consumer);
    send(&producer, [0, 1]);
    assert_eq!(status(producer.send(&message(2), 0, LONG)), Status::Closed);
    let consumer = world.open(Side::Consumer);
    assert_eq!(drain(&consumer), [0, 1], "nothing was lost");
}

#[test]
fn a_wait_without_a_peer_ends_at_its_deadline_and_says_so() {
    let world = World::new(Pattern::OneToOne, 2);
    let consumer = world.open(Side::Consumer);
    let start = Instant::now();
    let error = consumer.receive(Duration::from_millis(30)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.to_string().contains("no producer has come since this end was opened"), "{error}");
    let _producer = world.try_open(Side::Producer, world.member(), "simulate").unwrap();
    let error = consumer.receive(Duration::from_millis(30)).unwrap_err();
    assert!(error.to_string().contains("task simulate (member 2.2), last seen 0."), "{error}");
}

#[test]
fn waiting_threads_are_woken_by_what_they_wait_for() {
    for waiting in [crossdock_core::queue::Waiting::Block, crossdock_core::queue::Waiting::Adaptive] {
        let world = World::new(Pattern::OneToOne, 2);
        let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
        producer.set_waiting(waiting);
        consumer.set_waiting(waiting);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&producer, 0..2000));
            for tag in 0..2000 {
                let (position, got) = consumer.receive(LONG).unwrap();
                assert_eq!(got.tag, tag);
                consumer.release(position).unwrap();
            }
        });
    }
}

#[test]
fn many_threads_on_a_work_queue_lose_and_double_nothing() {
    let world = World::new(Pattern::WorkQueue, 4);
    let producers: Vec<_> = (0..2).map(|_| world.open(Side::Producer)).collect();
    let consumers: Vec<_> = (0..3).map(|_| world.open(Side::Consumer)).collect();
    let seen: Vec<_> = (0..4000).map(|_| std::sync::atomic::AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for (n, producer) in producers.into_iter().enumerate() {
            let start = n as u64 * 2000;
            scope.spawn(move || send(&producer, start..start + 2000));
        }
        for consumer in consumers {
            let seen = &seen;
            scope.spawn(move || {
                loop {
                    match consumer.receive(LONG) {
                        Ok((position, got)) => {
                            assert_whole(&got);
                            seen[got.tag as usize].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            consumer.release(position).unwrap();
                        }
                        Err(error) => return assert_eq!(error.status, Status::Closed),
                    }
                }
            });
        }
    });
    assert!(seen.iter().all(|count| count.load(std::sync::atomic::Ordering::Relaxed) == 1));
}

#[test]
fn an_end_closed_by_one_thread_ends_the_wait_of_another() {
    let world = World::new(Pattern::OneToOne, 2);
    let (_producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| consumer.receive(LONG));
        std::thread::sleep(Duration::from_millis(30));
        consumer.close();
        assert_eq!(status(waiter.join().unwrap()), Status::Closed);
    });
    assert_eq!(status(consumer.receive(POLL)), Status::Closed);
}

#[test]
fn counters_add_up_and_outlive_their_ends() {
    let world = World::new(Pattern::OneToOne, 4);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    send(&producer, 0..3);
    producer.note_copied(50);
    let (position, _) = consumer.receive(POLL).unwrap();
    consumer.release(position).unwrap();
    let ring = Ring::inspect(world.mapping()).unwrap();
    drop((producer, consumer));
    let totals = ring.statistics();
    assert_eq!((totals.messages, totals.received, totals.under_way), (3, 1, 2));
    assert_eq!((totals.bytes_handed_over, totals.bytes_copied), (3 * 108, 50));
}

#[test]
fn a_mapping_too_small_is_refused() {
    let world = World::new(Pattern::OneToOne, 1);
    let shape = Shape { pattern: Pattern::OneToOne, capacity: 4096 };
    let small: Mapping = world.mapping();
    let error = Ring::open(small, shape, world.member(), liveness(&world), Deadline::after(LONG)).unwrap_err();
    assert_eq!(error.status, Status::Invalid);
}

#[test]
fn a_producer_stopped_in_the_middle_of_a_message_holds_no_other_end_up() {
    for pattern in [Pattern::FanIn, Pattern::WorkQueue] {
        let world = World::new(pattern, 4);
        let (_stopped, other) = (world.open(Side::Producer), world.open(Side::Producer));
        let consumer = world.open(Side::Consumer);
        // Sets the port's state as if the first producer had been stopped directly after it had claimed cell 0: the
        // cell's state is claimed(0, end 0), and the head is 1.
        let raw = world.mapping();
        let word = |offset| {
            let address = raw.at(offset, 8).unwrap();
            // SAFETY: the word is in bounds of `raw` and aligned, and all code accesses it only as an atomic.
            unsafe { AtomicU64::from_ptr(address.as_ptr().cast()) }
        };
        word(CELLS_AT as u64).store(State::claimed(0, 0).0, SeqCst);
        word(64).store(1, SeqCst);
        send(&other, [1, 2, 3]);
        assert_eq!(drain(&consumer), [1, 2, 3], "{pattern:?}");
        assert_eq!(status(other.send(&message(4), 0, POLL)), Status::NotYet, "{pattern:?}: its cell is due again");
        word(CELLS_AT as u64).store(State::ready(0).0, SeqCst);
        assert_eq!(consumer.receive(POLL).unwrap().0, 0, "{pattern:?}: it went on");
        consumer.release(0).unwrap();
        send(&other, [4, 5]);
        assert_eq!(drain(&consumer), [4, 5], "{pattern:?}");
    }
}

#[test]
fn a_timeout_without_end_is_no_overflow() {
    let world = World::new(Pattern::OneToOne, 2);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| consumer.receive(Duration::MAX).map(|(_, got)| got.tag));
        std::thread::sleep(Duration::from_millis(20));
        send(&producer, [7]);
        assert_eq!(waiter.join().unwrap().unwrap(), 7);
    });
}

#[test]
fn one_that_spins_for_good_is_seen_and_counted_while_it_waits() {
    let world = World::new(Pattern::OneToOne, 2);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    consumer.set_waiting(Waiting::Spin);
    let standing = || {
        let report = producer.ring().report(world.host.liveness());
        report.ends.into_iter().find(|end| end.end == Side::Consumer).unwrap()
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| consumer.receive(LONG));
        let started = Instant::now();
        while standing().wait_ns < 5_000_000 {
            assert!(started.elapsed() < LONG, "its waiting is not counted before it ends");
        }
        assert!(standing().waiting);
        send(&producer, [7]);
        assert_eq!(waiting.join().unwrap().unwrap().1.tag, 7);
    });
    assert!(!standing().waiting);
    let (before, started) = (standing().wait_ns, Instant::now());
    assert_eq!(status(consumer.receive(Duration::from_millis(20))), Status::TimedOut);
    let (counted, passed) = (Duration::from_nanos(standing().wait_ns - before), started.elapsed());
    assert!(counted > Duration::from_millis(19) && counted <= passed, "{counted:?} counted of {passed:?}");
    assert!(!standing().waiting);
}

#[test]
fn a_forked_child_has_an_event_at_once_and_leaves_its_parents_messages_alone() {
    let world = World::new(Pattern::FanOut, 8);
    let (producer, consumer) = (world.open(Side::Producer), world.open(Side::Consumer));
    assert!(!consumer.has_event());
    let looks = || i32::from(![&producer, &consumer].iter().all(|end| end.has_event()));
    let ended = child::ended(child::fork_beside_threads(looks).unwrap(), true).unwrap();
    assert_eq!(ended, Some(ExitStatus::Code(0)), "an event loop of the child would sleep for ever");
    send(&producer, 0..3);
    assert_eq!(drain(&consumer), [0, 1, 2]);
}
