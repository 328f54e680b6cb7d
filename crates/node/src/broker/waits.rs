//! Requests that wait for a segment's name, and the deadlines of all that waits.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};

use super::event::Connection;

/// A request: its connection, and its number there.
pub(super) type Id = (Connection, u64);
/// A name that requests wait for: the workflow, the kind and the name.
pub(super) type Key = (u64, SegmentKind, String);

/// A request that waits for a segment's name.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    pub key: Key,
    pub access: Rights,
    pub deadline: u64,
    pub waited_ms: u64,
    /// The request of a member that waits for memory which was lost with the keeper. The broker serves it again when it is
    /// decided whether the memory comes back.
    pub again: Option<(MemberId, Request)>,
}

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The connection has not said hello.
    Hello(Connection),
    /// A request for a segment's name has waited long enough.
    Parked(Connection, u64),
    /// A request for an item has waited long enough.
    Item(Connection, u64),
    /// Another node is to be asked again for the item that a request waits for.
    Want(Connection, u64),
    /// A node that reads this item may have been silent for too long.
    Readers(SegmentId),
    /// The item's node is to be told that its copy, of this sharing, is still read.
    ReadAgain(SegmentId, u64),
}

/// The requests that wait, by request and by name, and all deadlines.
#[derive(Debug, Default)]
pub(super) struct Waits {
    parked: BTreeMap<Id, Parked>,
    queues: BTreeMap<Key, BTreeSet<Id>>,
    due: BTreeSet<(u64, Due)>,
}

impl Waits {
    /// Does this request wait?
    pub fn contains(&self, id: Id) -> bool {
        self.parked.contains_key(&id)
    }

    /// The request waits from now on.
    pub fn add(&mut self, id: Id, parked: Parked) {
        self.due.insert((parked.deadline, Due::Parked(id.0, id.1)));
        self.queues.entry(parked.key.clone()).or_default().insert(id);
        let former = self.parked.insert(id, parked);
        assert!(former.is_none(), "request {id:?} waits twice");
    }

    /// The request waits no longer.
    pub fn remove(&mut self, id: Id) -> Option<Parked> {
        let parked = self.parked.remove(&id)?;
        self.due.remove(&(parked.deadline, Due::Parked(id.0, id.1)));
        if let Some(queue) = self.queues.get_mut(&parked.key) {
            queue.remove(&id);
            if queue.is_empty() {
                self.queues.remove(&parked.key);
            }
        }
        Some(parked)
    }

    /// The requests that wait for this name.
    pub fn queue(&self, key: &Key) -> Vec<Id> {
        self.queues.get(key).into_iter().flatten().copied().collect()
    }

    /// The requests that wait for this name because its memory was lost.
    pub fn queue_for_memory(&self, key: &Key) -> Vec<Id> {
        let waits_for_memory = |id: &Id| self.parked.get(id).is_some_and(|parked| parked.again.is_some());
        self.queue(key).into_iter().filter(waits_for_memory).collect()
    }

    /// The requests of a connection.
    pub fn of_connection(&self, connection: Connection) -> Vec<Id> {
        self.parked.range((connection, 0)..=(connection, u64::MAX)).map(|(id, _)| *id).collect()
    }

    /// How many requests wait.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// This happens at that time, unless [`Self::is_over`] comes first.
    pub fn expect(&mut self, at: u64, due: Due) {
        self.due.insert((at, due));
    }

    /// This need not happen any more.
    pub fn is_over(&mut self, at: u64, due: Due) {
        self.due.remove(&(at, due));
    }

    /// The next deadline.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes out the first deadline that has passed.
    pub fn take_due(&mut self, now: u64) -> Option<Due> {
        let first = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// Is this expected at that time?
    pub fn expects(&self, at: u64, due: Due) -> bool {
        self.due.contains(&(at, due))
    }

    /// Panics unless every request that waits has a deadline and is in one queue, and every deadline has what it is for.
    /// `is_there` says so of deadlines that belong to other parts.
    pub fn check(&self, now: u64, is_there: impl Fn(u64, Due) -> bool) {
        for (id, parked) in &self.parked {
            assert!(self.expects(parked.deadline, Due::Parked(id.0, id.1)), "request {id:?} has no deadline");
            let queue = self.queues.get(&parked.key);
            assert!(queue.is_some_and(|queue| queue.contains(id)), "request {id:?} is in no queue");
        }
        let queued: usize = self.queues.values().map(BTreeSet::len).sum();
        assert_eq!(queued, self.parked.len(), "a queue has a request that does not wait");
        for (at, due) in &self.due {
            let there = match due {
                Due::Parked(connection, number) => {
                    self.parked.get(&(*connection, *number)).is_some_and(|parked| parked.deadline == *at)
                }
                other => is_there(*at, *other),
            };
            assert!(there, "{due:?} is due and nothing waits for it");
            assert!(*at > now || matches!(due, Due::Hello(_)), "{due:?} was due at {at}, and it is {now}");
        }
    }
}
