//! Models of the protocol for pins and retiring: loom runs every interleaving (up to three preemptions) of a few
//! threads with every value that a load may see. `scripts/models` runs it.
//!
//! A version's contents are one word per record. The publisher overwrites the word when it has recycled the record. An
//! observer that holds a version must never see another version's word.

use crossdock_layout::series::AtomicU64;
use crossdock_layout::series::state::Latest;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::protocol::{self, Pinned};

#[derive(Default)]
struct Model {
    latest: AtomicU64,
    states: [AtomicU64; 2],
    contents: [AtomicU64; 2],
    pins: [AtomicU64; 2],
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(model);
}

impl Model {
    /// As `Publisher::finish`.
    fn publish(&self, sequence: u64, record: usize) {
        protocol::fill(&self.states[record], sequence);
        self.contents[record].store(sequence, Relaxed);
        protocol::go_live(&self.states[record], sequence);
        self.latest.store(Latest::new(sequence, record as u16).0, Release);
    }

    /// As `Publisher::retire`: gives whether the record is free.
    fn retire(&self, sequence: u64, record: usize) -> bool {
        protocol::mark(&self.states[record], sequence);
        protocol::retire_fence();
        let held = self.pins.iter().any(|pin| pin.load(Relaxed) == sequence);
        protocol::settle(&self.states[record], sequence, held);
        protocol::retire_fence();
        !held
    }

    /// One attempt of `Observer::latest`. It gives the version's word, read twice while the version is pinned.
    fn observe(&self, pin: usize) -> Option<(u64, [u64; 2])> {
        let newest = Latest(self.latest.load(Acquire));
        let record = newest.record() as usize;
        match protocol::pin(&self.pins[pin], &self.states[record], newest.sequence(), false) {
            Pinned::Held => {
                let seen = [0, 1].map(|_| self.contents[record].load(Relaxed));
                protocol::unpin(&self.pins[pin]);
                Some((newest.sequence(), seen))
            }
            _ => None,
        }
    }
}

/// A publisher goes through three versions in two records. It overwrites a record as soon as it may.
fn publish_three(model: &Model) {
    model.publish(2, 1);
    if model.retire(1, 0) {
        model.publish(3, 0);
        model.retire(2, 1);
    }
}

#[test]
fn a_held_version_is_never_written_over() {
    explore(|| {
        let model = Arc::new(Model::default());
        model.publish(1, 0);
        let theirs = model.clone();
        let observer = thread::spawn(move || theirs.observe(0));
        publish_three(&model);
        if let Some((sequence, seen)) = observer.join().unwrap() {
            assert_eq!(seen, [sequence; 2]);
        }
    });
}

#[test]
fn two_observers_hold_what_they_hold() {
    explore(|| {
        let model = Arc::new(Model::default());
        model.publish(1, 0);
        let observers = [0, 1].map(|pin| {
            let theirs = model.clone();
            thread::spawn(move || theirs.observe(pin))
        });
        model.publish(2, 1);
        if model.retire(1, 0) {
            model.publish(3, 0);
        }
        for observer in observers {
            if let Some((sequence, seen)) = observer.join().unwrap() {
                assert_eq!(seen, [sequence; 2]);
            }
        }
    });
}

#[test]
fn a_version_that_was_given_up_by_its_observer_can_be_recycled() {
    explore(|| {
        let model = Arc::new(Model::default());
        model.publish(1, 0);
        let theirs = model.clone();
        let observer = thread::spawn(move || {
            theirs.observe(0);
        });
        model.publish(2, 1);
        model.retire(1, 0);
        observer.join().unwrap();
        // Whether the record was free at once or was held first: no observer holds it now.
        assert!(model.retire(1, 0));
    });
}

#[test]
fn who_takes_a_version_back_is_noticed_by_whoever_reads_it() {
    explore(|| {
        let model = Arc::new(Model::default());
        model.publish(1, 0);
        model.publish(2, 1);
        let theirs = model.clone();
        let publisher = thread::spawn(move || {
            // The policy `refuse`: the publisher settles the record as free although it is held, and overwrites it.
            protocol::settle(&theirs.states[0], 1, false);
            protocol::retire_fence();
            theirs.contents[0].store(99, Relaxed);
        });
        if protocol::pin(&model.pins[0], &model.states[0], 1, false) == Pinned::Held {
            let seen = model.contents[0].load(Relaxed);
            protocol::reads_end();
            if protocol::look(&model.states[0], 1) == Pinned::Held {
                assert_eq!(seen, 1);
            }
        }
        publisher.join().unwrap();
    });
}
