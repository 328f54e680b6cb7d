//! What a living member does when it finds that a member of the port is dead.
//!
//! One member at a time heals an end: it stores its own id with the bit `HEALING` in the owner word. If that member
//! dies during the work, another member takes over and does all steps again. Each step is a compare-and-swap that
//! takes effect once and does nothing the second time. Other members can take the end only after the last step.

use crossdock_layout::MemberId;
use crossdock_layout::queue::state::{Phase, State};
use crossdock_layout::queue::{Departure, fence};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::ring::Ring;
use super::slot::Owner;
use super::{Pattern, Side};
use crate::liveness::LivenessSource;

impl Ring {
    /// Heals every end whose owner is dead. Returns `true` if an end was healed. The caller must then wake both sides,
    /// and must try again if it waits itself.
    pub(super) fn look_after_all(&self, me: MemberId, alive: &dyn LivenessSource) -> bool {
        let mut healed = false;
        for side in [Side::Producer, Side::Consumer] {
            for (index, slot) in self.slots(side).enumerate() {
                let owner = slot.owner();
                if !owner.is_none() && owner.is_gone(alive) {
                    healed |= self.heal(side, index as u8, me, alive);
                }
            }
        }
        healed
    }

    /// Removes a stray bit, which no consumer will clear, from the cell that a fan-out's producer waits for. Such a bit
    /// arises in this order: the producer reads which consumers exist; one of these consumers dies, and another member
    /// heals the dead consumer's end; the producer then sends the message with the dead consumer's bit set. If the cell
    /// has no bit at all, this function frees the cell. Returns `true` if there was anything to heal.
    pub(super) fn look_after_strays(&self, next: u64, me: MemberId, alive: &dyn LivenessSource) -> bool {
        let cell = self.cell(next);
        let seen = cell.state();
        if self.shape.pattern != Pattern::FanOut || seen.phase() != Some(Phase::Ready) {
            return false;
        }
        let shares = cell.shares();
        let mut healed = shares == 0 && self.set_free(cell, seen);
        for (index, slot) in self.slots(Side::Consumer).enumerate() {
            if shares & 1 << index != 0 && slot.owner().is_none() {
                healed |= self.heal(Side::Consumer, index as u8, me, alive);
            }
        }
        healed
    }

    /// Finishes or undoes what an end's dead owner left, and frees the end. Gives `true` if the end is free now.
    pub(super) fn heal(&self, side: Side, index: u8, me: MemberId, alive: &dyn LivenessSource) -> bool {
        let slot = self.slot(self.slot_index(side, index));
        let owner = slot.owner();
        if !owner.is_none() && !owner.is_gone(alive) {
            return false;
        }
        if !slot.change_owner(owner, Owner::healing(me)) {
            return false; // another member was faster
        }
        crate::fault_point!("queue.heal.locked");
        self.count_death(side, slot);
        crate::fault_point!("queue.heal.counted");
        self.settle(side, index);
        crate::fault_point!("queue.heal.settled");
        self.record_departure(side, slot, Departure::Died);
        slot.set_here(false);
        slot.set_waiting(false);
        crate::fault_point!("queue.heal.recorded");
        slot.free();
        true
    }

    /// Brings the cells that an end was working on into a state from which other members can go on. A member that
    /// closes its end calls this function for its own cells.
    pub(super) fn settle(&self, side: Side, index: u8) {
        match (side, self.shape.pattern) {
            (Side::Producer, _) => self.void_claimed(index),
            // The messages that the dead or leaving consumer had not released stay ready. The consumer's successor
            // starts one lap back, so it finds these messages.
            (Side::Consumer, Pattern::OneToOne) => {}
            (Side::Consumer, Pattern::FanOut) => self.clear_shares(index),
            (Side::Consumer, Pattern::FanIn | Pattern::WorkQueue) => self.give_back_taken(index),
        }
    }

    /// Voids the messages that the dead or leaving producer had not finished: the cells of these messages become free
    /// for the next lap, and consumers skip the messages' positions.
    fn void_claimed(&self, index: u8) {
        for cell in self.cells() {
            let seen = cell.state();
            if seen.phase() == Some(Phase::Claimed) && seen.end() == index {
                if cell.change(seen, State::free(seen.lap() + 1, false)) {
                    self.header().counters.voided.fetch_add(1, Relaxed);
                }
                crate::fault_point!("queue.heal.half");
            }
        }
    }

    /// Makes ready again the messages that a consumer of a fan-in or work queue had taken but not released. The
    /// consumer's successor or another consumer takes these messages.
    fn give_back_taken(&self, index: u8) {
        for cell in self.cells() {
            let seen = cell.state();
            if seen.phase() == Some(Phase::Taken) && seen.end() == index {
                if cell.change(seen, State::ready(seen.lap())) {
                    self.header().counters.redelivered.fetch_add(1, Relaxed);
                }
                crate::fault_point!("queue.heal.half");
            }
        }
        // The counter `returned` is incremented after the cells were changed. This is done even if this call changed
        // no cell, because a member that healed the end before may have died after it changed the cells and before it
        // incremented the counter.
        fence(SeqCst);
        self.header().taking.returned.fetch_add(1, SeqCst);
    }

    /// Removes a dead or leaving consumer of a fan-out from the consumers of each message. If no other consumer still
    /// has to release a message, the message's cell becomes free.
    fn clear_shares(&self, index: u8) {
        let own = 1 << index;
        self.header().counters.audience.fetch_and(!own, SeqCst);
        for cell in self.cells() {
            let seen = cell.state();
            if seen.phase() != Some(Phase::Ready) {
                continue;
            }
            let shares = cell.shares();
            // If this consumer's bit is set, the cell cannot be reused yet. If no bit is set, the consumer that cleared
            // the last bit has not freed the cell yet, perhaps because it died. So this loop frees the cell. If that
            // consumer is alive, it tries to free the cell as well, and only one of the two compare-and-swaps succeeds.
            let rest = if shares & own != 0 { cell.drop_share(own) & !own } else { shares };
            crate::fault_point!("queue.heal.half");
            if rest == 0 {
                self.set_free(cell, seen);
            }
        }
    }
}
