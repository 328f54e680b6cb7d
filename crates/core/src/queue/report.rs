//! Counters and states of a port, for programs that only look. This code only loads, so it works on a read-only
//! mapping.

use crossdock_layout::MemberId;
use crossdock_layout::queue::state::Phase;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Side;
use super::cell::CellRef;
use super::ring::{Ring, Shape};
use super::slot::{SlotRef, load_name, since};
use crate::liveness::LivenessSource;

/// Counters of a whole port. They count what all members together have done at the port since it was made. Members
/// write the counters into shared memory, and no code checks them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStatistics {
    /// The number of messages that all producers sent.
    pub messages: u64,
    /// The number of messages that all consumers released.
    pub received: u64,
    /// The bytes of data that messages have handed over: the bytes in regions, as the producers counted them, and the
    /// inline bytes.
    pub bytes_handed_over: u64,
    /// The bytes of data that members had to copy, as these members counted them.
    pub bytes_copied: u64,
    /// The time in nanoseconds that producers waited for a free cell.
    pub producer_wait_ns: u64,
    /// The time in nanoseconds that consumers waited for a message.
    pub consumer_wait_ns: u64,
    /// The number of times that an end went to sleep.
    pub sleeps: u64,
    /// The number of times that an end woke sleeping members.
    pub wakes: u64,
    /// The number of messages that were delivered again because their consumer died or left.
    pub redelivered: u64,
    /// The number of messages whose producer died while it wrote them.
    pub voided: u64,
    /// The number of messages that are in the ring now: being written, ready, or received and not released.
    pub under_way: u64,
}

/// The present state of one end of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndInfo {
    /// The side of the end: producer or consumer.
    pub end: Side,
    /// The member to which the end belongs.
    pub member: MemberId,
    /// The task's name as the member wrote it. Characters that cannot be printed are replaced.
    pub task: String,
    /// True if the member is alive, as far as the daemon knows.
    pub alive: bool,
    /// The number of messages that the slot's owner and its former owners sent or received.
    pub messages: u64,
    /// The time in nanoseconds that the slot's owner and its former owners waited.
    pub wait_ns: u64,
    /// The time since the member last sent, received, slept or woke at this end.
    pub last_seen: Duration,
    /// True if the end is waiting at present for a message or a free cell, spinning or asleep.
    pub waiting: bool,
}

/// A description of a port's present state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// The pattern and the capacity that the port was made with.
    pub shape: Shape,
    /// The counters of the whole port.
    pub statistics: PortStatistics,
    /// The end slots that members have taken.
    pub ends: Vec<EndInfo>,
}

impl Ring {
    /// Reads everything that can be seen of a port from outside.
    pub fn report(&self, alive: &dyn LivenessSource) -> PortReport {
        let ends = [Side::Producer, Side::Consumer]
            .into_iter()
            .flat_map(|side| self.slots(side).filter_map(move |slot| end_report(side, slot, alive)));
        PortReport { shape: self.shape(), statistics: self.statistics(), ends: ends.collect() }
    }

    /// Reads the counters of the whole port.
    pub fn statistics(&self) -> PortStatistics {
        let mut totals = PortStatistics::default();
        for side in [Side::Producer, Side::Consumer] {
            for slot in self.slots(side) {
                let end = slot.totals();
                let (count, wait) = match side {
                    Side::Producer => (&mut totals.messages, &mut totals.producer_wait_ns),
                    Side::Consumer => (&mut totals.received, &mut totals.consumer_wait_ns),
                };
                *count = count.wrapping_add(end.messages);
                *wait = wait.wrapping_add(end.wait_ns);
                totals.bytes_handed_over = totals.bytes_handed_over.wrapping_add(end.bytes);
                totals.bytes_copied = totals.bytes_copied.wrapping_add(end.copied);
                totals.sleeps = totals.sleeps.wrapping_add(end.sleeps);
                totals.wakes = totals.wakes.wrapping_add(end.wakes);
            }
        }
        let counters = &self.header().counters;
        totals.redelivered = counters.redelivered.load(Relaxed);
        totals.voided = counters.voided.load(Relaxed);
        let under_way =
            |cell: &CellRef<'_>| matches!(cell.state().phase(), Some(Phase::Claimed | Phase::Ready | Phase::Taken));
        totals.under_way = self.cells().filter(under_way).count() as u64;
        totals
    }
}

fn end_report(side: Side, slot: SlotRef<'_>, alive: &dyn LivenessSource) -> Option<EndInfo> {
    let owner = slot.owner();
    if owner.is_none() {
        return None;
    }
    let member = owner.member().unwrap_or_else(|| slot.member());
    let totals = slot.totals();
    Some(EndInfo {
        end: side,
        member,
        task: load_name(slot.name()),
        alive: !alive.is_dead(member),
        messages: totals.messages,
        wait_ns: totals.wait_ns,
        last_seen: since(slot.last_seen()),
        waiting: slot.is_waiting(),
    })
}
