//! What a living member does when it finds that a member of the port is dead.
//!
//! One member at a time heals an end: it stores its own id with the bit `HEALING` in the owner word. If it dies too,
//! the next one takes over and does everything again. Each step is a compare-and-swap that takes effect once and does
//! nothing the second time. Other members can take the end only after the last step.

use crossdock_layout::MemberId;
use crossdock_layout::queue::state::{Phase, State};
use crossdock_layout::queue::{Departure, HEALING};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::ends::is_gone;
use super::ring::Ring;
use super::{Pattern, Side};
use crate::liveness::LivenessSource;

impl Ring {
    /// Heals every end whose owner is dead. The result is `true` if there was one. Then the caller must wake both
    /// sides, and a waiting member has to look again.
    pub(super) fn look_after_all(&self, me: MemberId, alive: &dyn LivenessSource) -> bool {
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

    /// Removes a stray bit, which no consumer will clear, from the cell that a fan-out's producer waits for. Such a bit
    /// arises if a producer reads which consumers exist, one of them is healed, and only then the producer publishes.
    /// Gives `true` if there was such a bit.
    pub(super) fn look_after_strays(&self, next: u64, me: MemberId, alive: &dyn LivenessSource) -> bool {
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

    /// Finishes or undoes what an end's dead owner left, and frees the end. Gives `true` if the end is free now.
    pub(super) fn heal(&self, side: Side, index: u8, me: MemberId, alive: &dyn LivenessSource) -> bool {
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

    /// Brings the cells that an end was working on into a state from which other members can go on. It is also the last
    /// step of a member that leaves.
    pub(super) fn settle(&self, side: Side, index: u8) {
        match (side, self.shape.pattern) {
            (Side::Producer, _) => self.void_claimed(index),
            // The messages stay ready. The successor starts one lap back, so it finds them.
            (Side::Consumer, Pattern::OneToOne) => {}
            (Side::Consumer, Pattern::FanOut) => self.clear_shares(index),
            (Side::Consumer, Pattern::FanIn | Pattern::WorkQueue) => self.give_back_taken(index),
        }
    }

    /// Makes messages void that their producer had not finished. Their cells go on to the next lap, and consumers skip
    /// them.
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

    /// Makes messages ready again that a consumer of a fan-in or work queue had taken but not released. The successor
    /// or another consumer takes them.
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
        // `returned` changes after the cells. It also changes if no cell has changed here, because an earlier healing
        // member may have died after it changed the cells.
        self.header().taking.returned.fetch_add(1, SeqCst);
    }

    /// Handles the death of a fan-out's consumer: no message is for it any more. Messages that only this consumer still
    /// had to release are finished.
    fn clear_shares(&self, index: u8) {
        let own = 1 << index;
        self.header().ledger.audience.fetch_and(!own, SeqCst);
        for cell in self.cells() {
            let seen = State(cell.state.load(Acquire));
            if seen.phase() != Some(Phase::Ready) {
                continue;
            }
            let pending = cell.pending.load(Acquire);
            // If this consumer's bit is set, the cell is still in use. If no bit is left, the consumer that cleared the
            // last one died before it freed the cell, so the cell is freed here. If that consumer is alive after all,
            // both try to free the cell, and one of the two compare-and-swaps does nothing.
            let rest = if pending & own != 0 { cell.pending.fetch_and(!own, AcqRel) & !own } else { pending };
            crate::fault_point!("queue.heal.half");
            if rest == 0 {
                self.set_free(cell, seen);
            }
        }
    }
}
