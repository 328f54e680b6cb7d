//! A simulated client: what it has asked the broker, what the broker has told it, and what it has open.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{FINGERPRINT, PROTOCOL_VERSION, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId};
use crossdock_node::broker::{Descriptor, Peer};

/// A request that has no answer yet.
#[derive(Clone, Debug)]
pub struct Asked {
    pub request: Request,
    pub descriptors: Vec<Descriptor>,
    /// The time by which the broker must answer; `None` until the request has reached the broker.
    pub due: Option<u64>,
    /// If the client asks for a single item, and the item was cooperative when the request reached the broker: the item,
    /// and the time by which the broker must answer as long as this item exists.
    pub cooperative: Option<(SegmentId, u64)>,
}

/// A series of this client, after the daemon has confirmed that the client publishes it.
#[derive(Clone, Debug)]
pub struct Publishing {
    pub name: String,
    pub size: u64,
    /// The pin pages that the publisher knows, each with the simulated inode number of its memory.
    pub pages: BTreeMap<SegmentId, u64>,
    /// The index of the pin page that the publisher asks for next.
    pub next: u32,
    /// The simulated inode number of the pool's memory.
    pub number: u64,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub peer: Peer,
    pub token: [u8; 16],
    pub endpoint: u64,
    pub workflow: u64,
    pub workflow_name: String,
    /// Whether the client's process is alive.
    pub alive: bool,
    /// True if the client has left properly, or if the broker has told it that its session is over. Such a client does
    /// nothing any more.
    pub over: bool,
    /// True if the client has left properly, and has closed everything.
    pub left: bool,
    /// True if the client has broken the rules, so that the broker must drop it.
    pub lied: bool,
    pub connection: Option<u64>,
    pub member: MemberId,
    pub welcome: bool,
    pub next: u64,
    pub asked: BTreeMap<u64, Asked>,
    /// The requests without answer by which the client offers the daemon what the daemon may have lost.
    pub offered: BTreeMap<u64, Asked>,
    /// The offers that the daemon refused because it had no descriptor left. The client sends them again.
    pub refused: Vec<Request>,
    pub answered: BTreeSet<u64>,
    pub open: BTreeMap<SegmentId, u32>,
    /// For the id of each observer of this client: its series, its pin page and its slot.
    pub pins: BTreeMap<SegmentId, (SegmentId, SegmentId, u32)>,
    pub series: BTreeMap<SegmentId, Publishing>,
    /// The endpoints that the client made, each with its workflow.
    pub endpoints: BTreeMap<u64, String>,
    /// The number in the last welcome. A welcome with another number asks the client to offer everything that it has.
    pub incarnation: u64,
    /// The items that the client owns, according to the broker's answers.
    pub items: BTreeMap<SegmentId, crate::items::Own>,
    /// Files that the client has open although it said that it had closed them.
    pub clings: BTreeSet<SegmentId>,
}

impl Client {
    pub fn new(number: usize, endpoint: u64, workflow: u64, workflow_name: &str) -> Self {
        let mut token = [1; 16];
        token[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        // For every seventh client, the broker does not know the birth of the client's process. So the broker
        // cannot watch this process by a pidfd.
        let birth = if number % 7 == 6 { 0 } else { 1000 + number as u64 };
        Self {
            peer: Peer { pid: 100 + number as u32, birth, uid: 5 },
            token,
            endpoint,
            workflow,
            workflow_name: workflow_name.to_owned(),
            alive: true,
            over: false,
            left: false,
            lied: false,
            connection: None,
            member: MemberId::NONE,
            welcome: false,
            next: 2,
            asked: BTreeMap::new(),
            offered: BTreeMap::new(),
            refused: Vec::new(),
            answered: BTreeSet::new(),
            open: BTreeMap::new(),
            pins: BTreeMap::new(),
            series: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            incarnation: 0,
            items: BTreeMap::new(),
            clings: BTreeSet::new(),
        }
    }

    pub fn hello(&self) -> Vec<u8> {
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token: self.token,
            member: self.member,
            rank: 0,
            task: None,
            workflow: (self.endpoint == 0).then(|| self.workflow_name.clone()),
            visitor: false,
        };
        hello.encode(1, 0)
    }

    pub fn settled(&self) -> u64 {
        self.asked.keys().next().copied().unwrap_or(self.next)
    }

    /// The connection of the client has ended, so its requests have no deadlines until it sends them again.
    pub fn forget_deadlines(&mut self) {
        for asked in self.asked.values_mut().chain(self.offered.values_mut()) {
            (asked.due, asked.cooperative) = (None, None);
        }
    }

    /// Gives the client's place in the list of all clients.
    pub fn index(&self) -> usize {
        self.peer.pid as usize - 100
    }

    pub fn can_act(&self) -> bool {
        self.alive && !self.over && !self.lied
    }
}
