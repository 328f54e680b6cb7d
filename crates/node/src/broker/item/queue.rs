//! Requests that wait for items: one queue for each item key, in the order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::SegmentId;

use super::find::Patience;
use super::keyed::by;
use crate::broker::{Connection, Requester};

/// The id of a request: its connection and its number.
pub(super) type RequestId = (Connection, u64);

/// What a waiting request wants to do with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPurpose {
    Owning,
    Reading,
    /// The item's owner waits until all readers have closed the item, so that it can write the item again.
    Readers(SegmentId),
}

#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) asker: Requester,
    pub(super) what: WaitPurpose,
    pub(super) workflow: u64,
    /// The keys for which the request waits. Never empty.
    pub(super) keys: Vec<String>,
    /// The time, in milliseconds of the broker's clock, at which the request came.
    pub(super) since: u64,
    pub(super) deadline: u64,
    /// How long, in milliseconds, the member asked to wait for the items.
    pub(super) waited_ms: u64,
    /// If the member asked not to wait, how long its request may look for the node that has the item.
    pub(super) patience: Patience,
    /// What another node said last about one of the request's items.
    pub(super) said: Option<RemoteReply>,
    /// The time at which the broker asks other nodes again for the items; `None` if no time is set.
    pub(super) asks_at: Option<u64>,
}

impl Wait {
    /// Gives the time until which the member asked to wait for the items. The member may ask to wait for ever.
    pub(super) fn until(&self) -> u64 {
        self.since.saturating_add(self.waited_ms)
    }
}

/// What another node said about an item that a request waits for.
#[derive(Clone, Debug)]
pub(super) struct RemoteReply {
    pub(super) node: String,
    pub(super) key: String,
    /// The item's id; 0 if the other node does not have the item.
    pub(super) item: u64,
    /// Whether the item is on its way to this node.
    pub(super) comes: bool,
    /// The other node's explanation, as text for people.
    pub(super) text: String,
}

/// All requests that wait for items.
#[derive(Default)]
pub(super) struct Waits {
    all: BTreeMap<RequestId, (u64, Box<Wait>)>,
    /// For each item key, the requests that wait for it, each with the number that says when it arrived. So they are
    /// sorted in the order of arrival.
    queues: BTreeMap<(u64, String), BTreeSet<(u64, RequestId)>>,
    arrivals: u64,
}

impl Waits {
    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Wait> {
        self.all.get(&id).map(|(_, wait)| &**wait)
    }

    /// Gives the next number for a request that begins to wait. A smaller number means an earlier arrival.
    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn arrival(&self, id: RequestId) -> u64 {
        self.all.get(&id).map_or(u64::MAX, |(arrival, _)| *arrival)
    }

    /// Notes what another node said about an item for which this request waits.
    pub(super) fn say(&mut self, id: RequestId, said: RemoteReply) {
        if let Some((_, wait)) = self.all.get_mut(&id) {
            wait.said = Some(said);
        }
    }

    /// Forgets what another node said about this item, because the item has left that node.
    pub(super) fn forget_said(&mut self, id: RequestId, key: &str) {
        if let Some((_, wait)) = self.all.get_mut(&id) {
            wait.said = wait.said.take().filter(|said| said.key != key);
        }
    }

    /// Sets the deadline of a request.
    pub(super) fn set_deadline(&mut self, id: RequestId, deadline: u64) {
        if let Some((_, wait)) = self.all.get_mut(&id) {
            wait.deadline = deadline;
        }
    }

    /// Sets the time at which the broker asks other nodes again for the request's items.
    pub(super) fn set_next_question(&mut self, id: RequestId, at: Option<u64>) {
        if let Some((_, wait)) = self.all.get_mut(&id) {
            wait.asks_at = at;
        }
    }

    /// Adds a request to the queues of its keys, behind all earlier requests.
    pub(super) fn add(&mut self, wait: Wait) {
        let id = (wait.asker.connection, wait.asker.number);
        self.next_arrival();
        for key in &wait.keys {
            self.queues.entry((wait.workflow, key.clone())).or_default().insert((self.arrivals, id));
        }
        self.all.insert(id, (self.arrivals, Box::new(wait)));
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Wait> {
        let (arrival, wait) = self.all.remove(&id)?;
        for key in &wait.keys {
            let of = (wait.workflow, key.as_str());
            if let Some(queue) = self.queues.get_mut(by(&of)) {
                queue.remove(&(arrival, id));
                if queue.is_empty() {
                    self.queues.remove(by(&of));
                }
            }
        }
        Some(*wait)
    }

    /// Gives the requests that wait for a key, in the order of their arrival.
    pub(super) fn of_key(&self, workflow: u64, key: &str) -> impl Iterator<Item = RequestId> {
        self.queues.get(by(&(workflow, key))).into_iter().flatten().map(|(_, id)| *id)
    }

    pub(super) fn of_connection(&self, connection: Connection) -> Vec<RequestId> {
        self.all.range((connection, 0)..=(connection, u64::MAX)).map(|(id, _)| *id).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.all.values().map(|(_, wait)| &**wait)
    }

    /// Panics if a request is missing in the queue of one of its keys, or if a queue has a request that does not wait
    /// for its key.
    pub(super) fn check(&self) {
        for (id, (arrival, wait)) in &self.all {
            assert!(!wait.keys.is_empty(), "request {id:?} waits for no item");
            for key in &wait.keys {
                let queue = self.queues.get(by(&(wait.workflow, key)));
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
