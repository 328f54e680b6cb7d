//! Requests that wait for a segment's name, and the deadlines of the whole broker.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};

use super::event::Connection;

/// The id of a request: its connection and its number.
pub(super) type Id = (Connection, u64);
/// A name for which requests wait: the workflow, the kind and the name.
pub(super) type Key = (u64, SegmentKind, String);

/// A request that waits for a segment's name.
#[derive(Clone, Debug)]
pub(super) struct WaitingRequest {
    pub key: Key,
    pub access: Rights,
    pub deadline: u64,
    /// For a request that waits for lost memory: its member and the request. The broker serves the request again as
    /// soon as it is certain whether the memory comes back.
    pub again: Option<(MemberId, Request)>,
}

impl WaitingRequest {
    /// For a request that waited for lost memory: gives its member, and the request as it is served again. It waits no
    /// longer than until its first deadline.
    pub fn asked_again(self, now: u64) -> Option<(MemberId, Request)> {
        let (member, mut request) = self.again?;
        if let Request::Open { wait_ms, .. } = &mut request {
            *wait_ms = (*wait_ms).min(self.deadline.saturating_sub(now));
        }
        Some((member, request))
    }
}

/// What is to happen at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The client has not sent its first message, hello, in time.
    Hello(Connection),
    /// A request for a segment's name has waited long enough.
    Parked(Connection, u64),
    /// A request for an item has waited long enough.
    Item(Connection, u64),
    /// It is time to ask another node again for the item that a request waits for.
    AskOwner(Connection, u64),
    /// It is time to try again to open this item for a request that waits for the item.
    Serve(SegmentId),
    /// It is time to forget the nodes that have not confirmed in time that they still read this item.
    Readers(SegmentId),
    /// It is time to tell another node again that members of this node still read a copy of its item. The fields are
    /// the item and the sharing.
    ReadAgain(SegmentId, u64),
    /// It is time to ask the catalog again about names for which requests wait.
    LookUp,
    /// It is time to drop an item's bytes that another node sent ahead of the catalog's report.
    Ahead,
    /// It is time to ask other nodes again about the outcome of moves.
    Moves,
}

/// The waiting requests, the queue of each name for which they wait, and all deadlines.
#[derive(Debug, Default)]
pub(super) struct Waits {
    parked: BTreeMap<Id, WaitingRequest>,
    queues: BTreeMap<Key, BTreeSet<Id>>,
    due: BTreeSet<(u64, Due)>,
}

impl Waits {
    /// Tells whether this request waits.
    pub fn contains(&self, id: Id) -> bool {
        self.parked.contains_key(&id)
    }

    /// Adds a request that waits from now on.
    pub fn add(&mut self, id: Id, parked: WaitingRequest) {
        self.due.insert((parked.deadline, Due::Parked(id.0, id.1)));
        self.queues.entry(parked.key.clone()).or_default().insert(id);
        let former = self.parked.insert(id, parked);
        assert!(former.is_none(), "request {id:?} waits twice");
    }

    /// Removes a request, which does not wait any more.
    pub fn remove(&mut self, id: Id) -> Option<WaitingRequest> {
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

    /// Gives the requests that wait for this name.
    pub fn queue(&self, key: &Key) -> Vec<Id> {
        self.queues.get(key).into_iter().flatten().copied().collect()
    }

    /// Gives the requests that wait for this name because the memory of the name's segment was lost.
    pub fn queue_for_memory(&self, key: &Key) -> Vec<Id> {
        let waits_for_memory = |id: &Id| self.parked.get(id).is_some_and(|parked| parked.again.is_some());
        self.queue(key).into_iter().filter(waits_for_memory).collect()
    }

    /// Gives the waiting requests of a connection.
    pub fn of_connection(&self, connection: Connection) -> Vec<Id> {
        self.parked.range((connection, 0)..=(connection, u64::MAX)).map(|(id, _)| *id).collect()
    }

    /// Counts how many requests wait.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Sets a deadline: `due` is to happen at the time `at`, unless [`Self::is_over`] removes it.
    pub fn expect(&mut self, at: u64, due: Due) {
        self.due.insert((at, due));
    }

    /// Removes a deadline.
    pub fn is_over(&mut self, at: u64, due: Due) {
        self.due.remove(&(at, due));
    }

    /// Gives the time of the next deadline.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline that has passed.
    pub fn take_due(&mut self, now: u64) -> Option<Due> {
        let first = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// Tells whether this deadline is set for this time.
    pub fn expects(&self, at: u64, due: Due) -> bool {
        self.due.contains(&(at, due))
    }

    /// Panics if a waiting request has no deadline or is not in exactly one queue, or if a deadline has lost its
    /// purpose. For the deadlines of other modules, `is_there` says whether they still have a purpose.
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
