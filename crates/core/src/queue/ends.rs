//! How a member joins and leaves a side of a port, and which members of the other side an end has met.
//!
//! **Met.** An end stops waiting for the other side only when the members that it has met are gone. An end has met the
//! other side if a member of that side was at the port when the end joined, or joined later. A consumer has also met
//! the other side if it found messages in the ring, even if their producer left before the consumer joined. An end has
//! not met members that left before it joined, for example in a former run on the same daemon. If there were only such
//! members, the end waits for new ones.

use crossdock_layout::queue::state::{Phase, State};
use crossdock_layout::queue::{Departure, SideMembers, departure};
use crossdock_layout::{MemberId, Status};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::cell::CellRef;
use super::error::{Error, corrupt};
use super::ring::Ring;
use super::slot::{NameWords, Owner, SlotRef, load_name, since};
use super::{Pattern, Side};
use crate::liveness::LivenessSource;

/// The result of a join: the end slot that the member took, and the state in which it found the port.
pub(super) struct Joined {
    pub slot: u8,
    /// The position in the ring at which this end begins. A single producer begins at the position of its first
    /// message. A consumer that has its own cursor begins at the first position that it reads.
    pub next: u64,
    pub met: MetPeers,
}

/// What an end found out about the other side when it joined.
#[derive(Clone, Copy)]
pub(super) struct MetPeers {
    /// The value of the other side's counter `joined`, which counts the joins. It was loaded before `peers` was set.
    joined: u32,
    /// The other side's count of deaths at the time of the join.
    deaths: u32,
    /// True if the other side had a living member at the time of the join.
    peers: bool,
    /// For consumers: true if, at the time of the join, there were messages in the ring that no consumer had released.
    messages: bool,
}

/// How the last members of the other side left the port. Members that this end has not met do not count.
pub(super) enum PeersGone {
    /// All members of the other side closed their ends. None of them died.
    Left,
    /// A member of the other side died, and no new member has come since.
    Died,
    /// A new member of the other side has joined since the caller found that the other side has no members.
    Unsettled,
}

impl Ring {
    /// Takes an end slot of `side`. After that, the caller wakes the other side, whose members may be waiting for a
    /// peer.
    ///
    /// First the function heals the ends of all dead members of the side, even if this member does not need their
    /// slots. Joining clears the record of how members left, so a death must be recorded before a new member joins. If
    /// `patient` is `true`, the result is `NOT_YET` while another member is healing an end of this side. If it is
    /// `false`, such an end is passed over.
    pub(super) fn join(
        &self,
        side: Side,
        me: MemberId,
        name: &str,
        alive: &dyn LivenessSource,
        patient: bool,
    ) -> Result<Joined, Error> {
        // Another thread may have ended the session while this thread waited for a free end. In this case this member
        // counts as dead. If it took an end, other members would heal the end while this thread used it.
        if alive.table().says_dead(me) {
            return Err(Error::new(Status::Closed, "the session was closed while this call waited for an end"));
        }
        for (index, slot) in self.slots(side).enumerate() {
            let owner = slot.owner();
            let settled = owner.is_none() || (!owner.is_gone(alive) && !owner.is_healing());
            if !settled && !self.heal(side, index as u8, me, alive) && patient {
                return Err(Error::new(Status::NotYet, "another member heals an end of a dead one at this moment"));
            }
        }
        for (index, slot) in self.slots(side).enumerate() {
            if !slot.owner().is_none() {
                continue;
            }
            // This exchange claims the slot by storing this member's id in the owner word. If this member dies at any
            // later line, another member finds the dead member's id in the word and heals the slot.
            if !slot.change_owner(Owner::NONE, me) {
                continue;
            }
            crate::fault_point!("queue.join.claimed");
            let joined = self.settle_in(side, index as u8, slot, (me, name), alive);
            if joined.is_err() {
                slot.free();
            }
            return joined;
        }
        Err(Error::new(
            Status::Busy,
            format!(
                "its {} {} taken by {}; wait for it to leave, or use a pattern with more {}s",
                side.word(),
                if self.shape.pattern.places(side) == 1 { "end is" } else { "ends are all" },
                self.who_is_at(side, alive),
                side.word(),
            ),
        ))
    }

    fn settle_in(
        &self,
        side: Side,
        index: u8,
        slot: SlotRef<'_>,
        (me, name): (MemberId, &str),
        alive: &dyn LivenessSource,
    ) -> Result<Joined, Error> {
        slot.begin(me, name);
        crate::fault_point!("queue.join.named");
        if side == Side::Consumer && self.shape.pattern == Pattern::FanOut {
            // This line sets this consumer's bit in `audience`, before `head` is read below. If a producer reads
            // `audience` after this line, its message has the bit. If the producer read `audience` before this line,
            // its message lies at most one lap behind the value of `head` that is read below, and this consumer begins
            // one lap behind that value. So this consumer misses no message.
            self.header().counters.audience.fetch_or(1 << index, SeqCst);
        }
        let head = self.header().sending.head.load(SeqCst);
        let next = match side {
            Side::Producer if !self.shape.pattern.many_produce() => self.first_unsent(head)?,
            Side::Producer => head,
            Side::Consumer => head.saturating_sub(self.capacity()),
        };
        if side == Side::Consumer && self.shape.pattern == Pattern::OneToOne {
            self.count_redelivered(next, slot.cursor().min(head));
        }
        let members = self.members(side);
        // From `set_here` on, this member's death is recorded. If the member dies before it has cleared `HOW`, its death
        // takes the place of the former members' departure. So the other side never waits for a member that is gone.
        slot.set_here(true);
        crate::fault_point!("queue.join.here");
        members.departed.fetch_and(!departure::HOW, AcqRel);
        crate::fault_point!("queue.join.cleared");
        members.joined.fetch_add(1, AcqRel);
        Ok(Joined { slot: index, next, met: self.acquaint(side, alive) })
    }

    /// Finds out the present state of the other side. The function loads `joined` first and looks at the members after
    /// that. It sees each member that joined before the load. Each member that joins after the load increments
    /// `joined`, so `has_met` notices that member. So this end misses no member.
    fn acquaint(&self, side: Side, alive: &dyn LivenessSource) -> MetPeers {
        let members = self.members(side.other());
        let joined = members.joined.load(Acquire);
        let deaths = self.deaths(side.other());
        let present = |slot: SlotRef<'_>| slot.is_here() && slot.owner().lives(alive);
        let unreleased = |cell: CellRef<'_>| matches!(cell.state().phase(), Some(Phase::Ready | Phase::Taken));
        MetPeers {
            joined,
            deaths,
            peers: self.slots(side.other()).any(present),
            messages: side == Side::Consumer && self.cells().any(unreleased),
        }
    }

    /// Tells whether an end of `side` has met a member of the other side. `found` is what the end found out when it
    /// joined.
    pub(super) fn has_met(&self, side: Side, found: &MetPeers) -> bool {
        found.peers || found.messages || self.members(side.other()).joined.load(Acquire) != found.joined
    }

    /// Tells whether any end of a side is not free: a member has the end, or had it and its departure is not recorded
    /// yet. An end is freed after its member's departure was recorded. So if this function returns `false`, the
    /// departures of all members are recorded.
    pub(super) fn has_members(&self, side: Side) -> bool {
        self.slots(side).any(|slot| !slot.owner().is_none())
    }

    /// Finds out how the last members of the other side left the port. Only members that this end has met count. The
    /// caller has found before that the other side has no members ([`Self::has_members`]).
    pub(super) fn how_they_went(&self, side: Side, found: &MetPeers) -> PeersGone {
        let members = self.members(side.other());
        let word = members.departed.load(Acquire);
        let died_since = word & !departure::HOW != found.deaths;
        match Departure::from_number(word & departure::HOW) {
            Some(Departure::Left) => PeersGone::Left,
            // If a member died after this end joined, the answer is `Died`. If the death was earlier, and a living
            // member was there when this end joined, the answer is `Left`. If no living member was there, this end has
            // met the dead member only through its messages. That member may have meant to send more, so the answer is
            // `Died`.
            Some(Departure::Died) if died_since || !found.peers => PeersGone::Died,
            Some(Departure::Died) => PeersGone::Left,
            _ => PeersGone::Unsettled,
        }
    }

    /// Finds the next position of a single producer that joins. The search is necessary because the producer before
    /// it may have died after it published a message, but before it stored `head`.
    fn first_unsent(&self, head: u64) -> Result<u64, Error> {
        for position in (0..=self.capacity()).map(|step| head.wrapping_add(step)) {
            let (state, lap) = (self.cell(position).state(), self.lap(position));
            let used = state.lap() > lap || (state.lap() == lap && state.phase() != Some(Phase::Free));
            if !used {
                self.header().sending.head.store(position, Release);
                return Ok(position);
            }
        }
        Err(corrupt("its head lies more than a lap behind its cells"))
    }

    /// Increases the counter of messages that are delivered again, by the number of messages that the former consumer
    /// had received but not released.
    fn count_redelivered(&self, from: u64, to: u64) {
        let again = |position: &u64| self.cell(*position).state() == State::ready(self.lap(*position));
        let count = (from..to).take(self.capacity() as usize).filter(again).count();
        self.header().counters.redelivered.fetch_add(count as u64, Relaxed);
    }

    /// Leaves the port because the program closes its end. After that, the caller wakes both sides.
    pub(super) fn leave(&self, side: Side, index: u8, me: MemberId) {
        let slot = self.slot(self.slot_index(side, index));
        if !slot.change_owner(me, Owner::healing(me)) {
            return; // this member does not own the end any more: a member healed it, or the word was overwritten
        }
        crate::fault_point!("queue.leave.claimed");
        self.settle(side, index);
        self.record_departure(side, slot, Departure::Left);
        crate::fault_point!("queue.leave.settled");
        // The store has Release ordering. So an end that joins and does not see this member any more (`acquaint`)
        // sees all messages that this member sent.
        slot.set_here(false);
        slot.free();
    }

    /// Counts the death of an end's owner. The caller does this before other members can get the owner's messages or
    /// use its cells. So an end that gets such a message or uses such a cell sees the new count, and its process learns
    /// of the death.
    pub(super) fn count_death(&self, side: Side, slot: SlotRef<'_>) {
        if slot.is_here() {
            self.members(side).departed.fetch_add(departure::DEATH, AcqRel);
        }
    }

    /// Gives a number that changes with each death of a member of a side.
    #[inline]
    pub(super) fn deaths(&self, side: Side) -> u32 {
        self.members(side).departed.load(Acquire) & !departure::HOW
    }

    /// Records how the owner of an end left: it closed the end, or it died. A recorded death stays recorded when other
    /// members close their ends, until a new member joins that side.
    pub(super) fn record_departure(&self, side: Side, slot: SlotRef<'_>, how: Departure) {
        if !slot.is_here() {
            return; // the owner did not finish joining, or its departure is recorded already
        }
        let members = self.members(side);
        if how as u32 >= members.departed.load(Acquire) & departure::HOW {
            members.last_member.store(slot.member().0, Relaxed);
            members.last_seen.store(slot.last_seen(), Relaxed);
            for (to, from) in members.last_name.iter().zip(slot.name()) {
                to.store(from.load(Relaxed), Relaxed);
            }
        }
        let mut word = members.departed.load(Acquire);
        while let Err(present) =
            members.departed.compare_exchange_weak(word, departure::after(word, how), AcqRel, Acquire)
        {
            word = present;
        }
    }

    #[inline]
    fn members(&self, side: Side) -> &SideMembers {
        &self.header().members[side as usize]
    }

    /// The number of living members of a side.
    pub(super) fn living(&self, side: Side, alive: &dyn LivenessSource) -> usize {
        self.slots(side).filter(|slot| slot.owner().lives(alive)).count()
    }

    /// The members of a side, for error messages: up to three of them, each with the time when it was last seen.
    pub(super) fn who_is_at(&self, side: Side, alive: &dyn LivenessSource) -> String {
        let all: Vec<_> = self
            .slots(side)
            .filter(|slot| !slot.owner().is_none())
            .map(|slot| {
                let member = slot.member();
                let dead = if alive.is_dead(member) { ", dead" } else { "" };
                let seen = account_of(slot.name(), member, slot.last_seen());
                format!("{seen}{dead}")
            })
            .collect();
        match all.len() {
            0 if self.members(side).joined.load(Relaxed) == 0 => format!("no {} (none has come yet)", side.word()),
            0 => format!("no {} (the last was {})", side.word(), self.who_left(side)),
            1..=3 => all.join("; "),
            more => format!("{}; and {} more", all[..3].join("; "), more - 3),
        }
    }

    /// The member that left a side last, for error messages; `None` if no member has ever joined that side.
    pub(super) fn who_was_here(&self, side: Side) -> Option<String> {
        (self.members(side).joined.load(Relaxed) != 0).then(|| self.who_left(side))
    }

    /// The number of messages that this consumer has received but not released.
    pub(super) fn held(&self, index: u8, next: u64) -> usize {
        let held = |(number, cell): (usize, CellRef<'_>)| {
            let state = cell.state();
            let received = state.lap().saturating_mul(self.capacity()).saturating_add(number as u64) < next;
            match (self.shape.pattern, state.phase()) {
                (Pattern::OneToOne, Some(Phase::Ready)) => received,
                (Pattern::FanOut, Some(Phase::Ready)) => received && cell.shares() & 1 << index != 0,
                (Pattern::FanIn | Pattern::WorkQueue, Some(Phase::Taken)) => state.end() == index,
                _ => false,
            }
        };
        self.cells().enumerate().filter(|each| held(*each)).count()
    }

    /// The member that left a side last, for error messages.
    pub(super) fn who_left(&self, side: Side) -> String {
        let members = self.members(side);
        let member = MemberId(members.last_member.load(Relaxed));
        account_of(&members.last_name, member, members.last_seen.load(Relaxed))
    }
}

fn account_of(name: &NameWords, member: MemberId, last_seen: u64) -> String {
    let ago = since(last_seen).as_secs_f64();
    let name = load_name(name);
    match name.split_once('@') {
        Some((command, process)) => format!("program {command} (process {process}), last seen {ago:.1} s ago"),
        None => format!("task {name} ({member}), last seen {ago:.1} s ago"),
    }
}
