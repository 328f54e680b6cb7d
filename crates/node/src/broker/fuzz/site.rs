//! The site of a fuzzed broker: a catalog that answers the broker's requests, and other nodes that send anything.
//!
//! The catalog and the host behave as the real ones do: an answer comes only to a question, and only once. The other
//! nodes may send anything: their catalog entries, questions and answers have any content.

use crossdock_layout::wire::{InUse, SegmentKind};
use crossdock_layout::{SegmentId, Status};

use super::super::{
    Claimed, Event, NodeEvent, NodeFailure, NodeOrder, SiteEvent, SiteItem, SiteLimits, SiteName, SiteNode, SiteOrder,
};
use super::{World, take};
use crate::broker::item::fuzz as words;
use crate::broker::moves::{self, MOVE_STATE};
use crate::broker::removal::{self, REMOVE};
use crate::broker::succession::{self, GIVE_UP};

const NODES: [&str; 3] = ["here", "there", "elsewhere"];
const SERIES: [&str; 3] = ["a", "b", "out/c"];
const IN_USE: [InUse; 4] = [InUse::Refuse, InUse::Keep, InUse::Force, InUse::Unused];
const KINDS: [SegmentKind; 4] = [SegmentKind::Region, SegmentKind::Port, SegmentKind::Series, SegmentKind::Item];

/// The requests of the broker that have no answer yet, and the questions that other nodes have asked the broker.
#[derive(Default)]
pub(super) struct Site {
    claims: Vec<SiteName>,
    finds: Vec<SiteName>,
    passes: Vec<(SegmentId, u64)>,
    orders: Vec<NodeOrder>,
    /// The ids of other nodes' questions that the broker has not answered yet.
    asked: Vec<u64>,
    /// Set by the broker's last answer that lets another node read an item: the item, and the number that this answer
    /// gives to the item's sharing.
    sharing: Option<(SegmentId, u64)>,
    next: u64,
}

pub(super) fn limits() -> SiteLimits {
    SiteLimits { site: "s".into(), node: NODES[0].into(), number: 1 }
}

fn node(which: u8) -> String {
    NODES[usize::from(which) % NODES.len()].to_owned()
}

fn name(which: u8) -> SiteName {
    let workflow = ["default", "w"][usize::from(which) % 2].to_owned();
    let name = ["a", "b", "out/c"][usize::from(which / 2) % 3].to_owned();
    SiteName { workflow, kind: KINDS[usize::from(which / 8) % 4], name }
}

fn place_of(which: u8) -> SiteNode {
    SiteNode { node: node(which), number: u64::from(which % 3) + 1, address: "127.0.0.1:1".into() }
}

fn failure(which: u8) -> NodeFailure {
    let all = [Status::Disconnected, Status::TimedOut, Status::NotFound, Status::NoSpace, Status::Busy];
    NodeFailure { status: all[usize::from(which) % all.len()], text: "so".into() }
}

impl Site {
    /// Forgets all unanswered requests of the broker and all unanswered questions of other nodes, because the broker
    /// was restarted.
    pub(super) fn forget(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl World {
    fn site(&mut self) -> &mut Site {
        self.site.as_mut().expect("an order to a site without a site")
    }

    pub(super) fn site_order(&mut self, order: SiteOrder) {
        match order {
            SiteOrder::Claim(name) | SiteOrder::Take { name, .. } => self.site().claims.push(name),
            SiteOrder::Announce(names) => self.site().claims.extend(names),
            SiteOrder::Find(name) => self.site().finds.push(name),
            SiteOrder::Pass { to, .. } => self.site().passes.push((to.item, to.epoch)),
            SiteOrder::Release(_)
            | SiteOrder::GiveBack { .. }
            | SiteOrder::Describe(_)
            | SiteOrder::Forget { .. }
            | SiteOrder::Look { .. } => {}
        }
    }

    pub(super) fn node_order(&mut self, order: NodeOrder) {
        match order {
            NodeOrder::Answer { id, outcome } => {
                self.answered(id);
                let named = outcome.ok().and_then(|body| words::readable(&body));
                self.site().sharing = named.or(self.site().sharing);
            }
            NodeOrder::Opened { id, outcome } => {
                self.answered(id);
                if let Ok(file) = outcome {
                    assert!(self.held.contains(&file), "{file} is given to another node but not held");
                }
            }
            NodeOrder::MirrorLeft { .. } => {}
            NodeOrder::Ask { .. }
            | NodeOrder::Send { .. }
            | NodeOrder::Fill { .. }
            | NodeOrder::Pull { .. }
            | NodeOrder::Mirror { .. }
            | NodeOrder::MirrorSeries { .. }
            | NodeOrder::CopyRegion { .. } => self.site().orders.push(order),
        }
    }

    fn answered(&mut self, id: u64) {
        let at = self.site().asked.iter().position(|asked| *asked == id);
        self.site().asked.swap_remove(at.expect("an answer to a question that waits for none"));
    }

    pub(super) fn site_step(&mut self, op: u8, argument: u8, rest: &mut &[u8]) {
        match op % 8 {
            0 => self.question(argument, rest),
            1 => self.opening(argument, rest),
            2 | 3 => self.end_order(argument, rest),
            4 => self.end_claim(argument),
            5 => self.end_pass(argument),
            6 => self.entry(argument, rest),
            _ => self.news(argument),
        }
    }

    /// Lets another node ask the fuzzed broker a question about an item, a series' name, a removal or anything else.
    fn question(&mut self, argument: u8, rest: &mut &[u8]) {
        let id = self.site().number();
        self.site().asked.push(id);
        let (item, sharing) = (self.some_item(argument), self.site().sharing.map_or(0, |(_, number)| number));
        let (service, body) = match argument % 32 {
            29 => moves::question(SegmentId(u64::from(number(rest) % 4)), argument / 32),
            30 if argument >= 128 => {
                (REMOVE, removal::question(&name(number(rest)), IN_USE[usize::from(argument / 32) % 4]))
            }
            30 => (GIVE_UP, succession::question("default", SERIES[usize::from(argument / 32) % 3])),
            _ => words::question(number(rest), item, sharing),
        };
        let service = if argument % 32 == 31 { u32::from(argument) } else { service };
        let body = mutated(body, argument / 64, rest);
        self.event(Event::Nodes(NodeEvent::Asked { id, node: node(argument / 16), service, body }));
    }

    /// Lets another node ask for the bytes of an object.
    fn opening(&mut self, argument: u8, rest: &mut &[u8]) {
        let id = self.site().number();
        self.site().asked.push(id);
        let kind = if argument % 8 == 0 { KINDS[usize::from(argument / 8) % 4] } else { SegmentKind::Item };
        let shared = self.site().sharing.filter(|_| argument % 8 == 1);
        let left = (self.some_item(argument), u64::from(number(rest) % 4));
        let (object, epoch) = shared.map_or(left, |(item, sharing)| (item.0, sharing));
        self.event(Event::Nodes(NodeEvent::Opening { id, node: node(argument), kind, object, epoch }));
    }

    /// Gives the id of an item of this node, or some other number.
    fn some_item(&self, which: u8) -> u64 {
        let lasting = self.broker.lasting();
        let known: Vec<_> = lasting.items.all.keys().chain(lasting.items.residences.keys()).collect();
        known.get(usize::from(which) % (known.len() + 1)).map_or(u64::from(which), |item| item.0)
    }

    /// Reports the result of one of the broker's requests to other nodes. If there is no such request, reports an
    /// answer to a request that the broker has not made.
    fn end_order(&mut self, argument: u8, rest: &mut &[u8]) {
        let failed = argument % 4 == 0;
        let count = self.site().orders.len();
        if count == 0 {
            let outcome = Ok(words::answer(0, argument, u64::from(argument)));
            return self.event(Event::Nodes(NodeEvent::Answered { id: u64::from(argument), outcome }));
        }
        let news = match self.site().orders.swap_remove(usize::from(argument) % count) {
            NodeOrder::Ask { id, service: MOVE_STATE, .. } if !failed => {
                NodeEvent::Answered { id, outcome: Ok(moves::answer(argument / 4)) }
            }
            NodeOrder::Ask { id, service, .. } | NodeOrder::Send { id, service, .. } => {
                let item = self.some_item(argument / 4);
                let body = mutated(words::answer(service, number(rest), item), argument / 64, rest);
                NodeEvent::Answered { id, outcome: if failed { Err(failure(argument / 4)) } else { Ok(body) } }
            }
            NodeOrder::Pull { id, .. } | NodeOrder::Fill { id, .. } => {
                NodeEvent::Pulled { id, outcome: if failed { Err(failure(argument / 4)) } else { Ok(()) } }
            }
            NodeOrder::Mirror { id, .. } | NodeOrder::MirrorSeries { id, .. } => {
                let here = self.broker.lasting().segments.keys().next().copied();
                let outcome = here.filter(|_| !failed).ok_or_else(|| failure(argument / 4));
                NodeEvent::Mirrored { id, outcome }
            }
            NodeOrder::CopyRegion { id, .. } => {
                let here = self.broker.lasting().segments.keys().next().copied();
                let outcome = here.filter(|_| !failed).ok_or_else(|| failure(argument / 4));
                NodeEvent::RegionCopied { id, outcome }
            }
            NodeOrder::Answer { .. } | NodeOrder::Opened { .. } | NodeOrder::MirrorLeft { .. } => unreachable!(),
        };
        self.event(Event::Nodes(news));
    }

    fn end_claim(&mut self, argument: u8) {
        if let Some(name) = self.site().finds.pop() {
            let outcome = match argument % 4 {
                0 | 2 => Ok(Some(node(argument / 2))),
                1 => Ok(None),
                _ => Err("the catalog does not answer".to_owned()),
            };
            return self.event(Event::Site(SiteEvent::Found { name, outcome }));
        }
        let count = self.site().claims.len();
        if count == 0 {
            return;
        }
        let name = self.site().claims.swap_remove(usize::from(argument / 4) % count);
        let outcome = match argument % 4 {
            0 => Claimed::Theirs(place_of(argument / 4 % 2 + 1)),
            1 => Claimed::Failed("lost".into()),
            _ => Claimed::Ours,
        };
        self.event(Event::Site(SiteEvent::Claimed { name, outcome }));
    }

    fn end_pass(&mut self, argument: u8) {
        let count = self.site().passes.len();
        if count == 0 {
            return;
        }
        let (item, epoch) = self.site().passes.swap_remove(usize::from(argument / 2) % count);
        let outcome = if argument % 2 == 0 { Ok(()) } else { Err("kept".to_owned()) };
        self.event(Event::Site(SiteEvent::Passed { item, epoch, outcome }));
    }

    /// Makes the catalog report an item's entry, as another node could have written the entry.
    fn entry(&mut self, argument: u8, rest: &mut &[u8]) {
        let item = SegmentId(self.some_item(argument));
        let (epoch, daemon) = (u64::from(number(rest) % 4), u64::from(argument % 2));
        let about = mutated(words::about(argument), argument / 64, rest);
        let place = SiteItem { item, epoch, node: node(argument / 4), daemon, about };
        self.event(Event::Site(SiteEvent::Item(place)));
    }

    fn news(&mut self, argument: u8) {
        let which = argument / 8;
        let news = match argument % 8 {
            0 | 1 => SiteEvent::Joined,
            2 => SiteEvent::CutOff { why: "cut".into() },
            3 => SiteEvent::Node(place_of(which)),
            4 => SiteEvent::NodeGone { node: node(which) },
            5 => SiteEvent::Named { name: name(which), node: node(which / 8) },
            6 => SiteEvent::Unnamed { name: name(which) },
            _ if which % 4 == 0 => SiteEvent::NoItem { item: SegmentId(self.some_item(which)) },
            _ if which % 4 == 1 => SiteEvent::Contested { name: name(which), node: place_of(which) },
            _ if which % 4 == 2 => SiteEvent::Announced { name: name(which) },
            _ => SiteEvent::Synced,
        };
        self.event(Event::Site(news));
    }
}

fn number(rest: &mut &[u8]) -> u8 {
    take(rest, 1).first().copied().unwrap_or(0)
}

/// Returns the message with a few bytes changed, or shortened.
fn mutated(mut message: Vec<u8>, changes: u8, rest: &mut &[u8]) -> Vec<u8> {
    for change in take(rest, usize::from(changes) * 2).chunks(2) {
        let at = usize::from(change[0]) % message.len().max(1);
        match change.get(1) {
            Some(0) => message.truncate(at),
            Some(by) => message.get_mut(at).into_iter().for_each(|byte| *byte ^= by),
            None => {}
        }
    }
    message
}
