//! Requests that wait for items, by key and in the order of their arrival.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::SegmentId;

use crate::broker::{Asker, Connection};

/// A request: its connection and its number.
pub(super) type RequestId = (Connection, u64);

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Owning,
    Reading,
    /// That this item's readers close it.
    Readers(SegmentId),
}

#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) asker: Asker,
    pub(super) what: For,
    pub(super) workflow: u64,
    /// Never empty.
    pub(super) keys: Vec<String>,
    /// When it came.
    pub(super) since: u64,
    pub(super) deadline: u64,
    pub(super) waited_ms: u64,
    /// What another node said last of one of the items.
    pub(super) said: Option<Said>,
}

/// How it stands with an item of another node that a request waits for.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) node: String,
    pub(super) key: String,
    /// The item's id; 0 if the node does not have it.
    pub(super) item: u64,
    /// It is on its way to this node.
    pub(super) comes: bool,
    /// In words.
    pub(super) text: String,
}

/// All requests that wait for items.
#[derive(Default)]
pub(super) struct Waits {
    all: BTreeMap<RequestId, (u64, Wait)>,
    /// For each key the number of arrival and the request.
    queues: BTreeMap<(u64, String), BTreeSet<(u64, RequestId)>>,
    arrivals: u64,
}

impl Waits {
    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Wait> {
        self.all.get(&id).map(|(_, wait)| wait)
    }

    /// The number of the next arrival: what has a smaller one came before.
    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn arrival(&self, id: RequestId) -> u64 {
        self.all.get(&id).map_or(u64::MAX, |(arrival, _)| *arrival)
    }

    /// Another node has said something of an item that the request waits for.
    pub(super) fn say(&mut self, id: RequestId, said: Said) {
        if let Some((_, wait)) = self.all.get_mut(&id) {
            wait.said = Some(said);
        }
    }

    /// The request waits until then.
    pub(super) fn set_deadline(&mut self, id: RequestId, deadline: u64) {
        if let Some((_, wait)) = self.all.get_mut(&id) {
            wait.deadline = deadline;
        }
    }

    /// Adds a request behind all that came before it.
    pub(super) fn add(&mut self, wait: Wait) {
        let id = (wait.asker.connection, wait.asker.number);
        self.next_arrival();
        for key in &wait.keys {
            self.queues.entry((wait.workflow, key.clone())).or_default().insert((self.arrivals, id));
        }
        self.all.insert(id, (self.arrivals, wait));
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Wait> {
        let (arrival, wait) = self.all.remove(&id)?;
        for key in &wait.keys {
            let of = (wait.workflow, key.clone());
            if let Some(queue) = self.queues.get_mut(&of) {
                queue.remove(&(arrival, id));
                if queue.is_empty() {
                    self.queues.remove(&of);
                }
            }
        }
        Some(wait)
    }

    /// The requests that wait for a key, in the order of their arrival.
    pub(super) fn of_key(&self, workflow: u64, key: &str) -> impl Iterator<Item = RequestId> {
        self.queues.get(&(workflow, key.to_owned())).into_iter().flatten().map(|(_, id)| *id)
    }

    pub(super) fn of_connection(&self, connection: Connection) -> Vec<RequestId> {
        self.all.range((connection, 0)..=(connection, u64::MAX)).map(|(id, _)| *id).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.all.values().map(|(_, wait)| wait)
    }

    /// Every request is in the queue of each of its keys, and each queue has only requests that wait for its key.
    pub(super) fn check(&self) {
        for (id, (arrival, wait)) in &self.all {
            assert!(!wait.keys.is_empty(), "request {id:?} waits for no item");
            for key in &wait.keys {
                let queue = self.queues.get(&(wait.workflow, key.clone()));
                assert!(
                    queue.is_some_and(|q| q.contains(&(*arrival, *id))),
                    "request {id:?} is in no queue for '{key}'"
                );
            }
        }
        for ((workflow, key), queue) in &self.queues {
            assert!(!queue.is_empty(), "the queue for '{key}' is empty");
            for (arrival, id) in queue {
                let wait = self.all.get(id).filter(|(a, w)| a == arrival && w.workflow == *workflow);
                assert!(
                    wait.is_some_and(|(_, w)| w.keys.contains(key)),
                    "{id:?} is queued for '{key}' and does not wait"
                );
            }
        }
    }
}
