//! What a member does for dead members that it finds.
//!
//! One healer at a time works on an end: it stores its own id with the bit `HEALING` in the owner word. If the healer
//! dies too, the next one takes over and does everything again. Each step is a compare-and-swap that takes effect once
//! and does nothing the second time. Others can take the end only after the last step.

use crossdock_layout::MemberId;
use crossdock_layout::queue::state::{Phase, State};
use crossdock_layout::queue::{Departure, HEALING};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::ends::is_gone;
use super::ring::Ring;
use super::{Pattern, Side};
use crate::liveness::Living;

impl Ring {
    /// Heals every end whose owner is dead. If the result is `true`, there was one: the caller must wake both sides,
    /// and a member that waits looks again.
    pub(super) fn look_after_all(&self, me: MemberId, alive: &dyn Living) -> bool {
        let mut healed = false;
        for side in [Side::Producer, Side::Consumer] {
            for (index, slot) in self.slots(side).iter().enumerate() {
                let owner = slot.tenure.owner.load(Acquire);
                if owner != 0 && is_gone(owner, alive) {
                    healed |= self.heal(side, index as u8, me, alive);
                }
            }
        }
        healed
    }

    /// For a fan-out's producer that waits for the cell of `next`. A consumer that was healed after the producer looked
    /// at the audience and before it published leaves a bit that no consumer clears. Gives `true` if there was such a
    /// bit.
    pub(super) fn look_after_strays(&self, next: u64, me: MemberId, alive: &dyn Living) -> bool {
        let cell = self.cell(next);
        let seen = State(cell.state.load(Acquire));
        if self.shape.pattern != Pattern::FanOut || seen.phase() != Some(Phase::Ready) {
            return false;
        }
        let pending = cell.pending.load(Acquire);
        let mut healed = pending == 0 && self.set_free(cell, seen);
        for (index, slot) in self.slots(Side::Consumer).iter().enumerate() {
            if pending & 1 << index != 0 && slot.tenure.owner.load(Acquire) == 0 {
                healed |= self.heal(Side::Consumer, index as u8, me, alive);
            }
        }
        healed
    }

    /// Finishes or undoes what an end's dead owner left, and frees the end. `true` if the end is free now.
    pub(super) fn heal(&self, side: Side, index: u8, me: MemberId, alive: &dyn Living) -> bool {
        let slot = &self.slots(side)[index as usize];
        let owner = slot.tenure.owner.load(Acquire);
        if owner != 0 && !is_gone(owner, alive) {
            return false;
        }
        if slot.tenure.owner.compare_exchange(owner, HEALING | me.0, AcqRel, Relaxed).is_err() {
            return false; // another member was faster
        }
        crate::fault_point!("queue.heal.locked");
        self.settle(side, index);
        crate::fault_point!("queue.heal.settled");
        self.record_departure(side, slot, Departure::Died);
        slot.tenure.here.store(0, Release);
        slot.account.waiting.store(0, Relaxed);
        crate::fault_point!("queue.heal.recorded");
        slot.tenure.owner.store(0, Release);
        true
    }

    /// Puts the cells that an end works on into a state from which others can go on. Also the last step of a member
    /// that leaves.
    pub(super) fn settle(&self, side: Side, index: u8) {
        match (side, self.shape.pattern) {
            (Side::Producer, _) => self.void_claimed(index),
            // The messages stay ready. The successor starts one lap back and finds them.
            (Side::Consumer, Pattern::OneToOne) => {}
            (Side::Consumer, Pattern::FanOut) => self.clear_shares(index),
            (Side::Consumer, Pattern::FanIn | Pattern::WorkQueue) => self.give_back_taken(index),
        }
    }

    /// A message that its producer had not finished becomes void: its cell goes on to the next lap, and consumers pass
    /// it.
    fn void_claimed(&self, index: u8) {
        for cell in self.cells() {
            let seen = State(cell.state.load(Acquire));
            if seen.phase() == Some(Phase::Claimed) && seen.end() == index {
                let void = State::free(seen.lap() + 1, false);
                if cell.state.compare_exchange(seen.0, void.0, AcqRel, Relaxed).is_ok() {
                    self.header().ledger.voided.fetch_add(1, Relaxed);
                }
                crate::fault_point!("queue.heal.half");
            }
        }
    }

    /// A message that a sharing consumer had not released becomes ready again, for its successor or for another
    /// consumer.
    fn give_back_taken(&self, index: u8) {
        for cell in self.cells() {
            let seen = State(cell.state.load(Acquire));
            if seen.phase() == Some(Phase::Taken) && seen.end() == index {
                if cell.state.compare_exchange(seen.0, State::ready(seen.lap()).0, AcqRel, Relaxed).is_ok() {
                    self.header().ledger.redelivered.fetch_add(1, Relaxed);
                }
                crate::fault_point!("queue.heal.half");
            }
        }
        // This comes after the cells. It is also done if there was no such cell, because a former healer may have died
        // after it changed the cells.
        self.header().taking.returned.fetch_add(1, SeqCst);
    }

    /// A fan-out's consumer is gone. No message is for it any more, and the messages that were for it alone are
    /// finished.
    fn clear_shares(&self, index: u8) {
        let own = 1 << index;
        self.header().ledger.audience.fetch_and(!own, SeqCst);
        for cell in self.cells() {
            let seen = State(cell.state.load(Acquire));
            if seen.phase() != Some(Phase::Ready) {
                continue;
            }
            let pending = cell.pending.load(Acquire);
            // While this consumer's bit is set, the cell cannot have gone on. If no bit is left, the consumer that
            // cleared the last one died before it freed the cell. If that consumer is alive after all, one of the two
            // compare-and-swaps does nothing.
            let rest = if pending & own != 0 { cell.pending.fetch_and(!own, AcqRel) & !own } else { pending };
            crate::fault_point!("queue.heal.half");
            if rest == 0 {
                self.set_free(cell, seen);
            }
        }
    }
}
