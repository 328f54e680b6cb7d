//! Models of the queue: loom runs the code of the module `queue` in every interleaving (up to three preemptions) of a
//! few threads, with every value that a load may see. The script `scripts/models` runs these models.

use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::queue::state::State;
use crossdock_layout::queue::{AtomicU32, Signal};
use crossdock_layout::{Handle, MemberId};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::ends::PeersGone;
use super::message::Message;
use super::ring::{Ring, Shape};
use super::signal;
use super::{Pattern, Side};
use std::sync::atomic::Ordering::Acquire;

const ALICE: MemberId = MemberId::new(1, 1);
const BOB: MemberId = MemberId::new(2, 2);
const CAROL: MemberId = MemberId::new(3, 3);

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(model);
}

fn everybody_lives() -> Box<LivenessTable> {
    // SAFETY: all fields are bytes and atomics of the standard library, for which zero is a valid value.
    let table = unsafe { Box::<LivenessTable>::new_zeroed().assume_init() };
    for member in [ALICE, BOB, CAROL] {
        table.set_alive(member);
    }
    table
}

struct Position {
    slot: u8,
    next: u64,
}

fn join(ring: &Ring, side: Side, me: MemberId) -> Position {
    let joined = ring.join(side, me, "model", &*everybody_lives(), true).unwrap();
    Position { slot: joined.slot, next: joined.next }
}

fn port(pattern: Pattern, capacity: u32) -> Arc<Ring> {
    Arc::new(Ring::model(Shape { pattern, capacity }))
}

fn message(tag: u64) -> Message {
    Message { handle: Handle { segment: 1, offset: tag }, tag, ..Message::default() }
}

fn send(ring: &Ring, position: &mut Position, tag: u64) -> Option<u64> {
    ring.try_send(&mut position.next, position.slot, &message(tag)).unwrap()
}

/// Receives a message if there is one, and checks that it is whole.
fn receive(ring: &Ring, position: &mut Position) -> Option<(u64, u64)> {
    let mut got = Message::default();
    let position = ring.try_receive(&mut position.next, position.slot, &mut got).unwrap()?;
    assert_eq!(got, message(got.tag), "torn");
    Some((position, got.tag))
}

/// A model of a futex. Like the kernel, `wait` checks the word while it holds the lock of the futex.
struct Futex(Mutex<()>, Condvar);

impl Futex {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(()), Condvar::new()))
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.0.lock().unwrap();
        if word.load(Acquire) == expected {
            drop(self.1.wait(guard).unwrap());
        }
    }

    fn wake_all(&self) {
        let _guard = self.0.lock().unwrap();
        self.1.notify_all();
    }

    fn call(&self, signal: &Signal) {
        if signal::call(signal) {
            self.wake_all();
        }
    }
}

#[test]
fn one_to_one_delivers_whole_messages_in_order_and_uses_cells_again() {
    explore(|| {
        let ring = port(Pattern::OneToOne, 1);
        let (mut from, mut to) = (join(&ring, Side::Producer, ALICE), join(&ring, Side::Consumer, BOB));
        let theirs = ring.clone();
        let producer = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..2 {
                sent += u64::from(send(&theirs, &mut from, sent).is_some());
            }
            sent
        });
        let mut due = 0;
        for _ in 0..2 {
            if let Some((position, tag)) = receive(&ring, &mut to) {
                assert_eq!(tag, due);
                due += 1;
                ring.release(position, to.next, to.slot).unwrap();
            }
        }
        let sent = producer.join().unwrap();
        while let Some((position, tag)) = receive(&ring, &mut to) {
            assert_eq!(tag, due);
            due += 1;
            ring.release(position, to.next, to.slot).unwrap();
        }
        assert_eq!(due, sent);
    });
}

#[test]
fn a_sleeper_is_woken_by_the_message_that_it_did_not_see() {
    explore(|| {
        let ring = port(Pattern::OneToOne, 1);
        let futex = Futex::new();
        let (mut from, mut to) = (join(&ring, Side::Producer, ALICE), join(&ring, Side::Consumer, BOB));
        let (theirs, bell) = (ring.clone(), futex.clone());
        let producer = thread::spawn(move || {
            send(&theirs, &mut from, 0).unwrap();
            bell.call(theirs.signal(Side::Consumer));
        });
        loop {
            let word = ring.signal(Side::Consumer);
            let expected = signal::announce(word);
            if receive(&ring, &mut to).is_some() {
                break;
            }
            // A lost wake would be a bug: the thread would sleep here for ever, and loom would report a deadlock.
            futex.wait(&word.word, expected);
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_producer_asleep_is_woken_by_the_release_that_it_did_not_see() {
    explore(|| {
        let ring = port(Pattern::OneToOne, 1);
        let futex = Futex::new();
        let (mut from, mut to) = (join(&ring, Side::Producer, ALICE), join(&ring, Side::Consumer, BOB));
        send(&ring, &mut from, 0).unwrap();
        let (position, _) = receive(&ring, &mut to).unwrap();
        let (theirs, bell) = (ring.clone(), futex.clone());
        let consumer = thread::spawn(move || {
            theirs.release(position, to.next, to.slot).unwrap();
            bell.call(theirs.signal(Side::Producer));
        });
        loop {
            let word = ring.signal(Side::Producer);
            let expected = signal::announce(word);
            if let Some(credit) = ring.try_reclaim(from.next).unwrap() {
                assert_eq!(credit, Some(message(0).handle));
                break;
            }
            futex.wait(&word.word, expected);
        }
        send(&ring, &mut from, 1).unwrap();
        consumer.join().unwrap();
    });
}

#[test]
fn two_producers_claim_different_cells_and_both_messages_arrive() {
    explore(|| {
        let ring = port(Pattern::FanIn, 2);
        let mut to = join(&ring, Side::Consumer, CAROL);
        let producers: Vec<_> = [(ALICE, 0), (BOB, 1)]
            .into_iter()
            .map(|(me, tag)| {
                let mut position = join(&ring, Side::Producer, me);
                let ring = ring.clone();
                thread::spawn(move || send(&ring, &mut position, tag).unwrap())
            })
            .collect();
        let mut tags = Vec::new();
        tags.extend(receive(&ring, &mut to).map(|(_, tag)| tag));
        for producer in producers {
            producer.join().unwrap();
        }
        while let Some((_, tag)) = receive(&ring, &mut to) {
            tags.push(tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, [0, 1]);
    });
}

#[test]
fn two_workers_take_different_messages() {
    explore(|| {
        let ring = port(Pattern::WorkQueue, 2);
        let mut from = join(&ring, Side::Producer, ALICE);
        let (mut one, mut two) = (join(&ring, Side::Consumer, BOB), join(&ring, Side::Consumer, CAROL));
        send(&ring, &mut from, 0).unwrap();
        send(&ring, &mut from, 1).unwrap();
        let theirs = ring.clone();
        let other = thread::spawn(move || {
            let (position, tag) = receive(&theirs, &mut one).unwrap();
            theirs.release(position, 0, one.slot).unwrap();
            tag
        });
        let (position, tag) = receive(&ring, &mut two).unwrap();
        ring.release(position, 0, two.slot).unwrap();
        assert_eq!(tag + other.join().unwrap(), 1);
        assert_eq!(ring.statistics().under_way, 0);
    });
}

#[test]
fn what_a_dead_worker_had_is_found_by_a_worker_who_looks_at_the_same_time() {
    explore(|| {
        let ring = port(Pattern::WorkQueue, 2);
        let mut from = join(&ring, Side::Producer, ALICE);
        let (mut dead, mut worker) = (join(&ring, Side::Consumer, BOB), join(&ring, Side::Consumer, CAROL));
        send(&ring, &mut from, 0).unwrap();
        receive(&ring, &mut dead).unwrap();
        let theirs = ring.clone();
        let healer = thread::spawn(move || {
            let table = everybody_lives();
            table.set_dead(BOB);
            assert!(theirs.heal(Side::Consumer, dead.slot, ALICE, &*table));
        });
        let early = receive(&ring, &mut worker);
        healer.join().unwrap();
        let late = receive(&ring, &mut worker);
        assert_eq!(early.or(late).map(|(_, tag)| tag), Some(0));
        assert!(early.is_none() || late.is_none(), "once only");
    });
}

#[test]
fn two_healers_of_one_end_do_its_work_once() {
    explore(|| {
        let ring = port(Pattern::FanIn, 2);
        let mut from = join(&ring, Side::Producer, ALICE);
        let mut dead = join(&ring, Side::Consumer, BOB);
        send(&ring, &mut from, 0).unwrap();
        receive(&ring, &mut dead).unwrap();
        let heal = |ring: &Ring, me: MemberId| {
            let table = everybody_lives();
            table.set_dead(BOB);
            ring.look_after_all(me, &*table);
        };
        let theirs = ring.clone();
        let other = thread::spawn(move || heal(&theirs, CAROL));
        heal(&ring, ALICE);
        other.join().unwrap();
        let mut successor = join(&ring, Side::Consumer, CAROL);
        assert_eq!(receive(&ring, &mut successor).map(|(_, tag)| tag), Some(0));
        assert_eq!(receive(&ring, &mut successor), None);
        assert_eq!(ring.statistics().redelivered, 1);
    });
}

#[test]
fn either_of_two_consumers_frees_a_fan_outs_cell_as_the_last_one() {
    explore(|| {
        let ring = port(Pattern::FanOut, 1);
        let mut from = join(&ring, Side::Producer, ALICE);
        let (mut one, mut two) = (join(&ring, Side::Consumer, BOB), join(&ring, Side::Consumer, CAROL));
        send(&ring, &mut from, 0).unwrap();
        let (first, _) = receive(&ring, &mut one).unwrap();
        let (second, _) = receive(&ring, &mut two).unwrap();
        let theirs = ring.clone();
        let other = thread::spawn(move || theirs.release(first, one.next, one.slot).unwrap());
        // The producer looks for stray bits, which no consumer will clear, in the cell of the first message. Meanwhile
        // the thread `other` releases this message: it clears its consumer's bit and then frees the cell. The test
        // would find a bug by which both threads free the same cell.
        ring.look_after_strays(from.next, ALICE, &*everybody_lives());
        let last = ring.release(second, two.next, two.slot).unwrap();
        ring.look_after_strays(from.next, ALICE, &*everybody_lives());
        assert!(last != other.join().unwrap(), "one of them, and one only, was the last");
        send(&ring, &mut from, 1).unwrap();
    });
}

#[test]
fn a_fan_outs_consumer_that_comes_while_a_message_is_sent_sees_it_or_what_follows() {
    explore(|| {
        let ring = port(Pattern::FanOut, 2);
        let mut from = join(&ring, Side::Producer, ALICE);
        let theirs = ring.clone();
        let producer = thread::spawn(move || {
            send(&theirs, &mut from, 0).unwrap();
            from
        });
        let mut late = join(&ring, Side::Consumer, BOB);
        let mut from = producer.join().unwrap();
        send(&ring, &mut from, 1).unwrap();
        let mut tags = Vec::new();
        while let Some((position, tag)) = receive(&ring, &mut late) {
            ring.release(position, late.next, late.slot).unwrap();
            tags.push(tag);
        }
        // This consumer is the first one, so it gets the messages that were sent while there was no consumer.
        assert_eq!(tags, [0, 1]);
        assert_eq!(ring.statistics().under_way, 0, "nothing is left that no consumer will release");
    });
}

#[test]
fn a_producer_that_comes_sends_and_leaves_while_a_consumer_joins_is_met() {
    explore(|| {
        let ring = port(Pattern::OneToOne, 1);
        let theirs = ring.clone();
        let producer = thread::spawn(move || {
            let mut from = join(&theirs, Side::Producer, ALICE);
            send(&theirs, &mut from, 0).unwrap();
            theirs.leave(Side::Producer, from.slot, ALICE);
        });
        let mut to = ring.join(Side::Consumer, BOB, "model", &*everybody_lives(), true).unwrap();
        producer.join().unwrap();
        // In every interleaving this consumer has met the producer: the producer joined after the consumer, was there
        // when the consumer joined, or had left a message. So the consumer learns that the producer has left.
        assert!(ring.has_met(Side::Consumer, &to.met));
        assert!(matches!(ring.how_they_went(Side::Consumer, &to.met), super::ends::PeersGone::Left));
        let mut got = Message::default();
        assert_eq!(ring.try_receive(&mut to.next, to.slot, &mut got).unwrap(), Some(0));
    });
}

#[test]
fn a_producer_that_came_and_left_before_is_not_met() {
    explore(|| {
        let ring = port(Pattern::OneToOne, 1);
        let from = join(&ring, Side::Producer, ALICE);
        ring.leave(Side::Producer, from.slot, ALICE);
        let to = ring.join(Side::Consumer, BOB, "model", &*everybody_lives(), true).unwrap();
        assert!(!ring.has_met(Side::Consumer, &to.met));
    });
}

/// Two consumers look for messages while a producer finishes a message that they may have skipped, and sends another
/// one. Each consumer gets the producer's messages in the order in which they were sent.
#[test]
fn each_worker_gets_a_producers_messages_in_order() {
    explore(|| {
        let ring = port(Pattern::WorkQueue, 4);
        let (mut slow, mut quick) = (join(&ring, Side::Producer, ALICE), join(&ring, Side::Producer, BOB));
        let (mut one, mut two) = (join(&ring, Side::Consumer, ALICE), join(&ring, Side::Consumer, CAROL));
        let claimed = State::claimed(0, slow.slot);
        assert!(ring.cell(0).change(State::free(0, false), claimed));
        send(&ring, &mut quick, 9).unwrap();
        let theirs = ring.clone();
        let producer = thread::spawn(move || {
            theirs.cell(0).put(&message(0));
            assert!(theirs.cell(0).publish(claimed, State::ready(0)));
            assert_eq!(send(&theirs, &mut slow, 1), Some(2));
        });
        let theirs = ring.clone();
        let other = thread::spawn(move || drop(receive(&theirs, &mut two)));
        let got = [receive(&ring, &mut one), receive(&ring, &mut one)].map(|got| got.map(|(_, tag)| tag));
        assert_ne!(got, [Some(1), Some(0)]);
        producer.join().unwrap();
        other.join().unwrap();
    });
}

/// A dead consumer's message becomes ready again while another consumer moves the tail past the message's cell. One of
/// the two living consumers must find the message.
#[test]
fn a_message_that_is_given_back_while_the_tail_passes_it_is_found() {
    explore(|| {
        let ring = port(Pattern::WorkQueue, 2);
        let mut from = join(&ring, Side::Producer, ALICE);
        let (mut dead, mut other) = (join(&ring, Side::Consumer, BOB), join(&ring, Side::Consumer, CAROL));
        let mut own = join(&ring, Side::Consumer, ALICE);
        send(&ring, &mut from, 0).unwrap();
        receive(&ring, &mut dead).unwrap();
        // A consumer that is killed right after it has taken a message does not move the tail. So the next line moves
        // the tail back to the message.
        ring.header().taking.tail.store(0, std::sync::atomic::Ordering::Relaxed);
        let theirs = ring.clone();
        let thread = thread::spawn(move || receive(&theirs, &mut other).is_some());
        let table = everybody_lives();
        table.set_dead(BOB);
        assert!(ring.heal(Side::Consumer, dead.slot, ALICE, &*table));
        let early = receive(&ring, &mut own).is_some();
        let others = thread.join().unwrap();
        assert!(early || others || receive(&ring, &mut own).is_some(), "lost: {:?}", ring.statistics());
    });
}

/// A consumer of a work queue leaves with a message that it has not released. Another consumer waits at this moment.
/// The waiting consumer must receive that message before it may find that the port has ended.
#[test]
fn a_work_queue_does_not_end_while_a_message_is_given_back() {
    explore(|| {
        let ring = port(Pattern::WorkQueue, 2);
        let mut from = join(&ring, Side::Producer, ALICE);
        let (mut leaver, mut worker) = (join(&ring, Side::Consumer, BOB), join(&ring, Side::Consumer, CAROL));
        send(&ring, &mut from, 0).unwrap();
        receive(&ring, &mut leaver).unwrap();
        ring.leave(Side::Producer, from.slot, ALICE);
        let theirs = ring.clone();
        let thread = thread::spawn(move || theirs.leave(Side::Consumer, leaver.slot, BOB));
        // The next lines do what a waiting call does: it tries to take a message, checks whether the port has ended,
        // and tries once more.
        let early = receive(&ring, &mut worker).is_some();
        if !early && !ring.others_still_work(worker.slot) {
            assert!(receive(&ring, &mut worker).is_some(), "the port counts as ended, and a message is there");
        }
        thread.join().unwrap();
    });
}

/// One producer of a work queue has left, and another one dies. A worker waits while another member heals the dead
/// producer's end. The worker must not take the end of the port for an orderly one.
#[test]
fn a_death_that_is_being_healed_is_no_orderly_end() {
    explore(|| {
        let ring = port(Pattern::WorkQueue, 2);
        let (left, dead) = (join(&ring, Side::Producer, ALICE), join(&ring, Side::Producer, BOB));
        let worker = ring.join(Side::Consumer, CAROL, "model", &*everybody_lives(), true).unwrap();
        ring.leave(Side::Producer, left.slot, ALICE);
        let theirs = ring.clone();
        let healer = thread::spawn(move || {
            let table = everybody_lives();
            table.set_dead(BOB);
            assert!(theirs.heal(Side::Producer, dead.slot, ALICE, &*table));
        });
        let is_over = || !ring.has_members(Side::Producer) && ring.has_met(Side::Consumer, &worker.met);
        let died = || matches!(ring.how_they_went(Side::Consumer, &worker.met), PeersGone::Died);
        for _ in 0..2 {
            // Both are asked each time, so that loom tries also the orders in which the healer goes on between them.
            let (is_over, died) = (is_over(), died());
            assert!(!is_over || died, "an orderly end while a death is being healed");
        }
        healer.join().unwrap();
        assert!(is_over() && died());
    });
}
