//! A model of this rule: when a member heals shared memory, the memory's former owner is dead and does not use it any
//! more. The rule's own code (`is_proof` of the table and of the roll) runs under loom, in every interleaving of a
//! member, a daemon and a healing member. The healing member may have an outdated table of a former daemon.
//!
//! The memory that is healed is a cell of loom's own. If two threads use the cell and no synchronisation orders their
//! accesses, loom reports an error. Some variants of the model break the rule on purpose, and loom must find the error
//! in each of them.

use crossdock_layout::MemberId;
use crossdock_layout::liveness::{DEAD, is_proof};
use crossdock_os::roll;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Alice is the member that owns the block. The block is the memory that is healed in this model. When Alice is dead,
/// her slot in the liveness tables is given to the member `NEXT`.
const ALICE: MemberId = MemberId::new(1, 5);
const NEXT: MemberId = MemberId::new(2, 5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Kept,
    /// A variant that breaks the rule on purpose: a member counts as dead if the liveness table does not name it.
    AbsenceIsDeath,
    /// A variant that breaks the rule on purpose: the daemon marks a member as dead when its connection ends.
    BuryTheCutOff,
    /// A variant that breaks the rule on purpose: the healing member does not check its descriptor of the roll by
    /// looking for its own lock.
    NoSelfCheck,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heals {
    /// The healing member asks the liveness table of a former daemon, which ended before Alice joined.
    ByOldTable,
    ByNewTable,
    /// The healing member asks through a descriptor that belonged to the roll, but belongs to another file now.
    ByLostDescriptor,
}

struct World {
    old: AtomicU64,
    new: AtomicU64,
    /// The kernel's lock on Alice's byte of the roll. The kernel removes the lock after the last action of Alice's
    /// process.
    locked: AtomicBool,
    connected: AtomicBool,
    block: UnsafeCell<u64>,
}

// SAFETY: loom checks every access to the cell, and reports two accesses of different threads that no synchronisation
// orders. To find such accesses is the purpose of the model.
unsafe impl Sync for World {}
// SAFETY: loom checks every access to the cell, and reports two accesses of different threads that no synchronisation
// orders.
unsafe impl Send for World {}

impl World {
    fn touch(&self) {
        // SAFETY: loom ends the model if another thread may access the cell at the same time.
        self.block.with_mut(|block| unsafe { *block += 1 });
    }

    /// Runs a member, Alice, that loses its connection and goes on working. If `dies` is true, the member is killed
    /// after that.
    fn alice(&self, dies: bool) {
        self.touch();
        self.connected.store(false, Relaxed);
        self.touch();
        if dies {
            self.locked.store(false, Release);
        }
    }

    /// Runs a daemon that marks dead members and gives their slots to new ones.
    fn daemon(&self, rule: Rule) {
        let left = !self.locked.load(Acquire);
        if left || rule == Rule::BuryTheCutOff && !self.connected.load(Relaxed) {
            self.new.store(ALICE.0 | DEAD, Release);
            self.new.store(NEXT.0, Release);
        }
    }

    /// Asks, through a descriptor of the roll, whether a byte of the roll has no lock: Alice's byte, or the healing
    /// member's own byte if `own` is true.
    fn is_free(&self, heals: Heals, own: bool) -> Option<bool> {
        let other_file = heals == Heals::ByLostDescriptor;
        Some(other_file || !own && !self.locked.load(Acquire))
    }

    /// Decides whether Alice is dead, as `LivenessSource::is_dead` does: reads the table first, and then asks the
    /// kernel.
    fn is_dead(&self, rule: Rule, heals: Heals) -> bool {
        let table = if heals == Heals::ByOldTable { &self.old } else { &self.new };
        let word = table.load(Acquire);
        let by_table = is_proof(word, ALICE) || rule == Rule::AbsenceIsDeath && word != ALICE.0;
        let own = || if rule == Rule::NoSelfCheck { Some(false) } else { self.is_free(heals, true) };
        by_table || roll::is_proof(self.is_free(heals, false), own)
    }
}

/// Tells whether there is an interleaving in which Alice counts as dead although she is alive. If `dies` is true, Alice
/// dies in the model, and the healing member uses her block as soon as she counts as dead. If Alice may still be using
/// the block at that time, loom ends the model with an error.
fn is_violated(rule: Rule, heals: Heals, dies: bool) -> bool {
    let violated = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let found = violated.clone();
    loom::model(move || {
        let world = Arc::new(World {
            old: AtomicU64::new(0),
            new: AtomicU64::new(ALICE.0),
            locked: AtomicBool::new(true),
            connected: AtomicBool::new(true),
            block: UnsafeCell::new(0),
        });
        let (one, other) = (world.clone(), world.clone());
        let alice = thread::spawn(move || one.alice(dies));
        let daemon = thread::spawn(move || other.daemon(rule));
        if world.is_dead(rule, heals) {
            if dies {
                world.touch();
            } else {
                found.store(true, Relaxed);
            }
        }
        alice.join().unwrap();
        daemon.join().unwrap();
        if dies && heals != Heals::ByLostDescriptor {
            assert!(world.is_dead(rule, heals), "a death that is over can be proved, by whatever table");
        }
    });
    violated.load(Relaxed)
}

#[test]
fn what_is_healed_has_no_owner_any_more() {
    for heals in [Heals::ByOldTable, Heals::ByNewTable, Heals::ByLostDescriptor] {
        for dies in [false, true] {
            assert!(!is_violated(Rule::Kept, heals, dies));
        }
    }
}

#[test]
fn absence_taken_for_death_is_found() {
    assert!(is_violated(Rule::AbsenceIsDeath, Heals::ByOldTable, false));
}

#[test]
fn burying_the_cut_off_is_found() {
    assert!(is_violated(Rule::BuryTheCutOff, Heals::ByNewTable, false));
}

#[test]
fn asking_by_a_lost_descriptor_is_found() {
    assert!(is_violated(Rule::NoSelfCheck, Heals::ByLostDescriptor, false));
}
