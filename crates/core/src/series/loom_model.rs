//! Models of the protocol by which observers pin versions and the publisher retires them. The tool loom runs all
//! interleavings of a few threads (up to three preemptions), with every value that a load may see. The script
//! `scripts/models` runs these models.
//!
//! In these models the contents of a version are one word per record. The publisher overwrites the word after it has
//! recycled the record. An observer that holds a version must never see another version's word.

use crossdock_layout::series::state::Latest;
use crossdock_layout::series::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::protocol::{self, PinResult};

#[derive(Default)]
struct Model {
    latest: AtomicU64,
    states: [AtomicU64; 2],
    contents: [AtomicU64; 2],
    pins: [AtomicU64; 2],
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

impl Model {
    /// Publishes a version as `Publisher::finish` does.
    fn publish(&self, sequence: u64, record: usize) {
        protocol::fill(&self.states[record], sequence);
        self.contents[record].store(sequence, Relaxed);
        protocol::go_live(&self.states[record], sequence);
        self.latest.store(Latest::new(sequence, record as u16).0, Release);
    }

    /// Retires a version as `Publisher::retire` does, and says whether the record is free now.
    fn retire(&self, sequence: u64, record: usize) -> bool {
        protocol::mark(&self.states[record], sequence);
        protocol::retire_fence();
        let held = self.pins.iter().any(|pin| pin.load(Relaxed) == sequence);
        protocol::settle(&self.states[record], sequence, held);
        protocol::retire_fence();
        !held
    }

    /// Makes one attempt to pin the newest version, as `Observer::latest` does. If it succeeds, returns the version's
    /// number and the results of two reads of the version's word while the version was pinned.
    fn observe(&self, pin: usize) -> Option<(u64, [u64; 2])> {
        let newest = Latest(self.latest.load(Acquire));
        self.hold(pin, newest.sequence(), newest.record() as usize)
    }

    /// Pins a version whose number and record are known. An observer that reads every version, one after the other,
    /// does this. Returns the same values as [`Self::observe`].
    fn hold(&self, pin: usize, sequence: u64, record: usize) -> Option<(u64, [u64; 2])> {
        match protocol::pin(&self.pins[pin], &self.states[record], sequence, false) {
            PinResult::Held => {
                let seen = [0, 1].map(|_| self.contents[record].load(Relaxed));
                protocol::unpin(&self.pins[pin]);
                Some((sequence, seen))
            }
            _ => None,
        }
    }
}

/// Runs a publisher that publishes three versions in two records. The publisher overwrites a record as soon as it is
/// free.
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
        // The observer's thread has ended, so no pin holds version 1, and the publisher can free the record of version
        // 1.
        assert!(model.retire(1, 0));
    });
}

#[test]
fn a_reader_notices_that_the_publisher_takes_its_version_back() {
    explore(|| {
        let model = Arc::new(Model::default());
        model.publish(1, 0);
        model.publish(2, 1);
        let theirs = model.clone();
        let publisher = thread::spawn(move || {
            // The publisher has the policy `TakeBack`: it declares the record of version 1 free although an observer
            // holds that version, and overwrites the record.
            protocol::settle(&theirs.states[0], 1, false);
            protocol::retire_fence();
            theirs.contents[0].store(99, Relaxed);
        });
        if protocol::pin(&model.pins[0], &model.states[0], 1, false) == PinResult::Held {
            let seen = model.contents[0].load(Relaxed);
            if protocol::exists_after_reads(&model.states[0], 1) {
                assert_eq!(seen, 1);
            }
        }
        publisher.join().unwrap();
    });
}

/// A model of the word by which the publisher notices new pin pages (`pins.rs`). The daemon makes a page for an
/// observer while the publisher retires a version.
#[derive(Default)]
struct Paged {
    model: Model,
    /// The word in the liveness table that the daemon changes whenever it makes a pin page.
    word: AtomicU32,
    /// The number of pages that the daemon has made. Page `n` stands for pin `n` of the model. In the model, a request
    /// to the daemon is one atomic operation on this number.
    made: AtomicU32,
}

/// A programming error that a variant of the model contains on purpose. The test shows that loom finds the error.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The daemon changes the liveness table's word too late: after the new observer has pinned a version in its page.
    WordAfterPage,
    /// The publisher does not compare the liveness table's word after its fence.
    NoComparison,
    /// The publisher loads the liveness table's word too late: after it has asked for the pages.
    WordAfterAnswer,
}

impl Paged {
    /// Acts as the daemon, which makes a page, and then as a new observer, which pins version 1 in that page.
    ///
    /// A new observer that asks for the newest version need not be modelled. It learns from the daemon of every version
    /// that was published before it came, and pins the newest of these versions. The publisher retires only older
    /// versions, so no race is possible.
    fn newcomer(&self, planted: Planted) -> Option<(u64, [u64; 2])> {
        self.made.fetch_add(1, AcqRel);
        if planted != Planted::WordAfterPage {
            self.word.fetch_add(1, AcqRel);
        }
        let seen = self.model.hold(0, 1, 0);
        if planted == Planted::WordAfterPage {
            self.word.fetch_add(1, AcqRel);
        }
        seen
    }

    /// Asks for new pages as `Pins::update` does. Returns the number of pages that the publisher knows now, and the
    /// value of the liveness table's word that the publisher remembers.
    fn update(&self, planted: Planted) -> (usize, u32) {
        let word = self.word.load(Acquire);
        let pages = self.made.fetch_add(0, AcqRel) as usize;
        let word = if planted == Planted::WordAfterAnswer { self.word.load(Acquire) } else { word };
        (pages, word)
    }

    /// Retires a version as `Publisher::retire` does, with the pages that [`Self::update`] gives.
    fn retire(&self, sequence: u64, record: usize, planted: Planted) -> bool {
        let (pages, word) = self.update(planted);
        let model = &self.model;
        protocol::mark(&model.states[record], sequence);
        protocol::retire_fence();
        let known = planted == Planted::NoComparison || self.word.load(Acquire) == word;
        let pinned = model.pins[..pages].iter().any(|pin| pin.load(Relaxed) == sequence);
        let held = !known || pinned;
        protocol::settle(&model.states[record], sequence, held);
        protocol::retire_fence();
        !held
    }
}

/// Runs a publisher that retires and overwrites a record while the daemon makes a page for a new observer.
fn page_for_a_newcomer(planted: Planted) {
    explore_within(2, move || {
        let paged = Arc::new(Paged::default());
        paged.model.publish(1, 0);
        let theirs = paged.clone();
        let observer = thread::spawn(move || theirs.newcomer(planted));
        paged.model.publish(2, 1);
        if paged.retire(1, 0, planted) {
            paged.model.publish(3, 0);
        }
        if let Some((sequence, seen)) = observer.join().unwrap() {
            assert_eq!(seen, [sequence; 2]);
        }
    });
}

#[test]
fn a_pin_in_a_page_that_the_publisher_does_not_know_yet_holds_its_version() {
    page_for_a_newcomer(Planted::Nothing);
}

#[test]
fn a_publisher_that_has_asked_for_the_new_page_retires_again() {
    explore_within(2, || {
        let paged = Arc::new(Paged::default());
        paged.model.publish(1, 0);
        let theirs = paged.clone();
        let observer = thread::spawn(move || {
            theirs.newcomer(Planted::Nothing);
        });
        paged.model.publish(2, 1);
        paged.retire(1, 0, Planted::Nothing);
        observer.join().unwrap();
        assert!(paged.retire(1, 0, Planted::Nothing));
    });
}

#[test]
#[should_panic(expected = "left == right")]
fn loom_finds_a_word_that_changes_after_the_page_is_given() {
    page_for_a_newcomer(Planted::WordAfterPage);
}

#[test]
#[should_panic(expected = "left == right")]
fn loom_finds_a_publisher_that_does_not_compare_the_word() {
    page_for_a_newcomer(Planted::NoComparison);
}

#[test]
#[should_panic(expected = "left == right")]
fn loom_finds_a_publisher_that_loads_the_word_after_the_answer() {
    page_for_a_newcomer(Planted::WordAfterAnswer);
}

/// A model of the sleep of observers until the next version, and of the publisher that wakes them only if one of them
/// may sleep.
#[derive(Default)]
struct Sleepers {
    published: AtomicU32,
    /// The observer's word, and the lock under which its threads store it.
    sleeps_at: AtomicU32,
    sleep: Mutex<()>,
    /// The kernel's list of the threads that sleep. The kernel compares the word while it holds the lock of the list.
    asleep: Mutex<[bool; 2]>,
}

/// A programming error that a variant of the model of sleeping observers contains on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Defect {
    Nothing,
    /// The observer stores its word without a full fence.
    NoFenceOfObserver,
    /// The publisher reads the observer's word without a full fence.
    NoFenceOfPublisher,
    /// A thread stores the value that it read before it had the lock, whatever the word holds by now.
    OldValue,
}

impl Sleepers {
    /// Sleeps once, as `wait_beyond` does.
    fn sleep(&self, thread: usize, defect: Defect) {
        let expected = self.published.load(Acquire);
        let may_sleep = {
            let _only_one = self.sleep.lock().unwrap();
            match defect {
                Defect::NoFenceOfObserver => {
                    let unchanged = self.published.load(Relaxed) == expected;
                    if unchanged {
                        self.sleeps_at.store(expected, Relaxed);
                    }
                    unchanged
                }
                Defect::OldValue => {
                    self.sleeps_at.store(expected, Relaxed);
                    fence(SeqCst);
                    true
                }
                _ => protocol::note_sleep(&self.published, &self.sleeps_at, expected),
            }
        };
        if may_sleep {
            let mut asleep = self.asleep.lock().unwrap();
            asleep[thread] = self.published.load(Relaxed) == expected;
        }
    }

    /// Announces a version and wakes the observers, as `Publisher::finish` does.
    fn publish(&self, sequence: u32, defect: Defect) {
        let before = if defect == Defect::NoFenceOfPublisher {
            let before = self.published.load(Relaxed);
            self.published.store(sequence, Release);
            before
        } else {
            protocol::announce(&self.published, sequence)
        };
        if protocol::may_sleep_at(&self.sleeps_at, before) {
            *self.asleep.lock().unwrap() = [false; 2];
        }
    }
}

/// Runs a publisher that publishes two versions, and `threads` threads of one observer, which sleep once each. A third
/// version, which comes when no thread is about to sleep any more, must find or leave no thread asleep.
fn sleeping(threads: usize, defect: Defect) {
    explore_within(3, move || {
        let sleepers = Arc::new(Sleepers { published: AtomicU32::new(7), ..Sleepers::default() });
        let observers: Vec<_> = (0..threads)
            .map(|thread| {
                let theirs = sleepers.clone();
                thread::spawn(move || theirs.sleep(thread, defect))
            })
            .collect();
        sleepers.publish(8, defect);
        sleepers.publish(9, defect);
        for observer in observers {
            observer.join().unwrap();
        }
        sleepers.publish(10, defect);
        assert_eq!(*sleepers.asleep.lock().unwrap(), [false; 2]);
    });
}

#[test]
fn a_publisher_wakes_each_thread_that_sleeps() {
    sleeping(1, Defect::Nothing);
    sleeping(2, Defect::Nothing);
}

#[test]
#[should_panic(expected = "left == right")]
fn loom_finds_an_observer_that_sleeps_without_a_fence() {
    sleeping(1, Defect::NoFenceOfObserver);
}

#[test]
#[should_panic(expected = "left == right")]
fn loom_finds_a_publisher_that_looks_for_sleepers_without_a_fence() {
    sleeping(1, Defect::NoFenceOfPublisher);
}

#[test]
#[should_panic(expected = "left == right")]
fn loom_finds_a_thread_that_notes_an_old_value() {
    sleeping(2, Defect::OldValue);
}
