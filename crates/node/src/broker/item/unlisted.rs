//! What a node does with its note of an item that has left it, if the catalog has no entry of the item.
//!
//! In most cases the item has ended. But the catalog may also have lost its journal, or it may have been put back to
//! an older state. The item is then still on the next node, which may not have pulled the item's bytes yet. So the
//! former node asks the next node ([`WHERE`]) before it drops the bytes. Until an answer comes, the former node keeps
//! the bytes, and asks again each time that it looks for the item's entry in the catalog.
//!
//! ```text
//!                  ┌── it is here, its bytes are on your node ──► keep the file
//!   ask the node ──┼── it is here with its bytes ───────────────► drop the file
//!                  ├── it has gone on to another node ──────────► ask that node the next time
//!                  └── unknown ── after a while still unknown ──► drop the file: the item has ended
//! ```

use std::collections::BTreeMap;

use crossdock_layout::{SegmentId, record};

use super::ownership::{VERSION, unreadable};
use super::{ItemRecord, Residence};
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::{Broker, NodeFailure, Record};

/// The number of the service by which a node asks for the present node of an item that it has passed on.
pub(in crate::broker) const WHERE: u32 = 14;

/// How long, in milliseconds, the next node must answer that it does not know an item before the item counts as ended.
/// The wait is needed because two reports may come in either order: the former node may learn that the catalog has no
/// entry of the item before the next node learns that it has the item.
const UNKNOWN_MS: u64 = 5_000;
/// The maximum number of unanswered questions to one node.
const QUESTIONS: usize = 32;

record! {
    /// The question of a node that has passed an item on: where is the item now? `epoch` is the epoch with which the
    /// item left that node.
    pub struct PlaceQuestion as Stored {
        version: u32,
        item: u64,
        epoch: u64,
    }
}

record! {
    /// The answer to a `PlaceQuestion`.
    pub struct PlaceAnswer as Stored {
        /// 0 if the asked node does not know the item, or only with an earlier epoch; 1 if the item is on the asked
        /// node; 2 if the asked node has passed the item on.
        code: u32,
        /// If the item is on the asked node: the node that has the item's bytes, or an empty text if the asked node has
        /// them. If the asked node has passed the item on: the node that got it.
        node: String,
        /// The epoch with which the item left the node that has its bytes.
        left: u64,
    }
}

pub(super) const UNKNOWN: u32 = 0;
pub(super) const IS_HERE: u32 = 1;
pub(super) const PASSED_ON: u32 = 2;

/// A question about an item that has left this node.
struct Asked {
    item: SegmentId,
    epoch: u64,
    node: String,
    /// Whether the catalog has an outdated entry of the item, with an earlier epoch.
    is_listed: bool,
}

/// The items that have left this node, and of which the catalog has no entry.
#[derive(Default)]
pub(super) struct UnlistedItems {
    /// The questions that are not answered yet. The key is the question's id.
    asked: BTreeMap<u64, Asked>,
    /// The items that the asked node does not know, each with the time of the first such answer.
    unknown: BTreeMap<SegmentId, u64>,
}

impl UnlistedItems {
    /// Forgets what is known about an item, because the catalog has an entry of it.
    pub(super) fn is_listed(&mut self, item: SegmentId) {
        self.unknown.remove(&item);
    }
}

impl Broker {
    /// An item of this node has gone to another node. Asks that node where the item is now, so that this node knows
    /// whether it must still keep the item's bytes. If that node has no lease, it is not asked now. When that node has
    /// a lease again, either its daemon still has the item, or its daemon is a new one and answers that it does not
    /// know the item.
    pub(super) fn ask_for_place(&mut self, item: SegmentId, is_listed: bool) {
        let Some(Residence::Left { epoch, to, .. }) = self.lasting.items.residences.get(&item).cloned() else { return };
        let asked = || self.items.unlisted.asked.values();
        let is_asked = asked().any(|question| question.item == item);
        let is_there = self.site.as_ref().is_some_and(|site| site.is_there(&to));
        if is_asked || !is_there || asked().filter(|question| question.node == to).count() >= QUESTIONS {
            return;
        }
        let id = self.ask_node(&to, WHERE, encode(&PlaceQuestion { version: VERSION, item: item.0, epoch }));
        self.items.unlisted.asked.insert(id, Asked { item, epoch, node: to, is_listed });
    }

    /// Answers the question of a node that has passed an item on: where the item is, as far as this node knows.
    pub(in crate::broker) fn place_wanted(&self, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(asked) = decode::<PlaceQuestion>(body).filter(|asked| asked.version == VERSION) else {
            return Err(unreadable());
        };
        let known = self.lasting.items.residences.get(&SegmentId(asked.item));
        let (code, node, left) = match known.filter(|known| known.epoch() >= asked.epoch) {
            Some(Residence::Here { bytes, .. } | Residence::Leaving { bytes, .. }) => {
                let (node, left) =
                    bytes.as_ref().map_or((String::new(), 0), |source| (source.node.clone(), source.left));
                (IS_HERE, node, left)
            }
            Some(Residence::Left { to, .. }) => (PASSED_ON, to.clone(), 0),
            Some(Residence::Ended { .. }) | None => (UNKNOWN, String::new(), 0),
        };
        Ok(encode(&PlaceAnswer { code, node, left }))
    }

    /// Handles the answer to a question about an item that has left this node. Returns `false` if the answer is to
    /// another kind of question.
    pub(super) fn place_told(&mut self, id: u64, outcome: &Result<Vec<u8>, NodeFailure>) -> bool {
        let Some(question) = self.items.unlisted.asked.remove(&id) else { return false };
        let Asked { item, epoch: asked, is_listed, .. } = question;
        let Some(Residence::Left { epoch, to, file, workflow }) = self.lasting.items.residences.get(&item).cloned()
        else {
            return true;
        };
        let Some(PlaceAnswer { code, node, left }) = outcome.as_ref().ok().and_then(|body| decode(body)) else {
            return true;
        };
        // The item may have come back and left again since the question. Then the answer is outdated.
        if (epoch, &to) != (asked, &question.node) {
            return true;
        }
        // The asked node says that it has passed the item back to this node. But this node has not got the item, so
        // neither of the two nodes has it. The answer counts as if the asked node did not know the item.
        let is_back = code == PASSED_ON && Some(&*node) == self.own_node();
        let code = if is_back { UNKNOWN } else { code };
        let since = match code {
            UNKNOWN => *self.items.unlisted.unknown.entry(item).or_insert(self.now),
            _ => {
                self.items.unlisted.unknown.remove(&item);
                self.now
            }
        };
        match code {
            UNKNOWN if !is_listed && self.now >= since + UNKNOWN_MS => self.settle_left(item, file),
            IS_HERE if self.keeps_left(&node, left, epoch, file) => {}
            IS_HERE if !is_listed => self.settle_left(item, file),
            // While the catalog has an outdated entry, this node keeps its note of the item, but drops the bytes.
            // Because of the note, this node ignores the outdated entry.
            IS_HERE if file.0 != 0 => {
                let without = SegmentId(0);
                self.commit(Record::Item(ItemRecord::Left { item, epoch, to, file: without, workflow }));
                self.drop_left_file(file);
            }
            PASSED_ON if node != to => {
                self.commit(Record::Item(ItemRecord::Left { item, epoch, to: node, file, workflow }));
            }
            _ => {}
        }
        true
    }

    /// Tells whether this node must keep its note of an item that left this node with the epoch `epoch`. `node` is the
    /// node that has the item's bytes, and `left` the epoch with which the item left that node; `node` is empty if the
    /// bytes are on the item's node. This node keeps the note in two cases. In the first case, this node has the item's
    /// bytes. In the second case, this node passed the item on while another node had the bytes: then this node keeps
    /// the note until the bytes have come to the item's present node, because the node that has the bytes may ask this
    /// node where the item is.
    pub(super) fn keeps_left(&self, node: &str, left: u64, epoch: u64, file: SegmentId) -> bool {
        let is_own = Some(node) == self.own_node() && left == epoch;
        is_own || (file.0 == 0 && !node.is_empty())
    }

    /// Forgets that an item has left this node, and drops its file, because no node needs the file any more.
    pub(super) fn settle_left(&mut self, item: SegmentId, file: SegmentId) {
        self.items.unlisted.unknown.remove(&item);
        self.commit(Record::Item(ItemRecord::Settled { item }));
        self.drop_left_file(file);
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::Status;
    use crossdock_layout::wire::{ItemLevel, ItemRequest, SegmentKind};

    use super::super::ownership::{OWN, OwnershipRequest};
    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::site::{SiteEvent, SiteItem};
    use crate::broker::{Effect, Event, MAIN_ENDPOINT, NodeEvent, NodeOrder};

    /// Makes the broker of a node whose item has gone to the node `b`. The item's bytes are still here. Returns the
    /// item.
    fn left() -> (Bench, SegmentId) {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        let item = bench.create(1, "x", ItemLevel::Verified);
        bench.ask_item(1, ItemRequest::Release { item });
        let (workflow, key, task) = ("default".to_owned(), "x".to_owned(), "w".to_owned());
        let own = OwnershipRequest { version: VERSION, workflow, key, task, rank: 0, numbers: vec![] };
        let (id, node, service, body) = (70, "b".to_owned(), OWN, encode(&own));
        bench.event(Event::Nodes(NodeEvent::Asked { id, node, service, body }));
        bench.event(Event::Site(SiteEvent::Passed { item, epoch: 1, outcome: Ok(()) }));
        assert!(matches!(bench.broker.lasting.items.residences[&item], Residence::Left { .. }));
        bench.effects.clear();
        (bench, item)
    }

    /// Reports that the catalog has no entry of the item. Returns the question that the broker asks, and the asked node.
    fn unlisted(bench: &mut Bench, item: SegmentId) -> Option<(u64, String)> {
        bench.event(Event::Site(SiteEvent::NoItem { item }));
        question(bench)
    }

    fn question(bench: &mut Bench) -> Option<(u64, String)> {
        std::mem::take(&mut bench.effects).into_iter().find_map(|effect| match effect {
            Effect::Nodes(NodeOrder::Ask { id, service: WHERE, node, .. }) => Some((id, node)),
            _ => None,
        })
    }

    fn told(bench: &mut Bench, id: u64, code: u32, node: &str, left: u64) {
        let outcome = Ok(encode(&PlaceAnswer { code, node: node.to_owned(), left }));
        bench.event(Event::Nodes(NodeEvent::Answered { id, outcome }));
    }

    /// Tells whether the next owner's node can still pull the item's bytes.
    fn has_bytes(bench: &mut Bench, item: SegmentId) -> bool {
        bench.effects.clear();
        let (node, kind) = ("b".to_owned(), SegmentKind::Item);
        bench.event(Event::Nodes(NodeEvent::Opening { id: 71, node, kind, object: item.0, epoch: 1 }));
        let opened = std::mem::take(&mut bench.effects).into_iter().find_map(|effect| match effect {
            Effect::Nodes(NodeOrder::Opened { id: 71, outcome }) => Some(outcome),
            _ => None,
        });
        opened
            .expect("the request is answered")
            .is_ok_and(|file| bench.broker.lasting.segments.get(&file).is_some_and(|found| found.removed.is_none()))
    }

    #[test]
    fn a_catalog_that_has_lost_its_entries_costs_no_bytes_that_the_next_node_needs() {
        let (mut bench, item) = left();
        let (id, node) = unlisted(&mut bench, item).expect("the next node is asked");
        assert_eq!(node, "b");
        assert!(has_bytes(&mut bench, item), "the bytes are dropped before the next node has answered");
        assert_eq!(unlisted(&mut bench, item), None, "the first question is not answered yet");
        told(&mut bench, id, IS_HERE, "here", 1);
        assert!(has_bytes(&mut bench, item), "the next node has not pulled the bytes");
        // The next broker knows nothing of the answer, and asks again.
        bench.restart();
        bench.event(Event::Site(SiteEvent::Joined));
        let node = crate::broker::SiteNode { node: "b".into(), number: 2, address: String::new() };
        bench.event(Event::Site(SiteEvent::Node(node)));
        let (id, _) = unlisted(&mut bench, item).expect("the next node is asked again");
        assert!(has_bytes(&mut bench, item));
        told(&mut bench, id, IS_HERE, "", 0);
        assert!(!has_bytes(&mut bench, item), "the next node has the bytes");
        assert!(!bench.broker.lasting.items.residences.contains_key(&item));
    }

    #[test]
    fn an_answer_about_an_earlier_departure_of_an_item_drops_no_bytes() {
        let (mut bench, item) = left();
        let (id, _) = unlisted(&mut bench, item).expect("the next node is asked");
        let Residence::Left { to, file, workflow, .. } = bench.broker.lasting.items.residences[&item].clone() else {
            panic!("the item has left");
        };
        let again = ItemRecord::Left { item, epoch: 3, to, file, workflow };
        bench.broker.lasting.apply(&Record::Item(again));
        told(&mut bench, id, IS_HERE, "", 0);
        assert!(bench.broker.lasting.segments[&file].removed.is_none());
        assert!(unlisted(&mut bench, item).is_some(), "the next node is asked about the later departure");
    }

    #[test]
    fn an_item_without_an_entry_has_ended_if_its_node_does_not_know_it_for_a_while() {
        let (mut bench, item) = left();
        for (ms, is_kept) in [(0, true), (UNKNOWN_MS - 1, true), (1, false)] {
            bench.tick(ms);
            let (id, _) = unlisted(&mut bench, item).expect("the next node is asked");
            told(&mut bench, id, UNKNOWN, "", 0);
            assert_eq!(has_bytes(&mut bench, item), is_kept, "{ms}");
        }
    }

    #[test]
    fn bytes_are_kept_while_the_next_node_does_not_answer_or_has_no_lease() {
        let (mut bench, item) = left();
        for _ in 0..3 {
            bench.tick(UNKNOWN_MS);
            let (id, _) = unlisted(&mut bench, item).expect("the next node is asked");
            let failure = NodeFailure { status: Status::Disconnected, text: "the link is cut".into() };
            bench.event(Event::Nodes(NodeEvent::Answered { id, outcome: Err(failure) }));
        }
        bench.event(Event::Site(SiteEvent::NodeGone { node: "b".into() }));
        assert_eq!(unlisted(&mut bench, item), None);
        assert!(has_bytes(&mut bench, item));
    }

    #[test]
    fn an_item_that_has_gone_on_is_asked_for_where_it_is() {
        let (mut bench, item) = left();
        let (id, _) = unlisted(&mut bench, item).expect("the next node is asked");
        told(&mut bench, id, PASSED_ON, "c", 0);
        let (id, node) = unlisted(&mut bench, item).expect("the third node is asked");
        assert_eq!(node, "c");
        told(&mut bench, id, IS_HERE, "here", 1);
        assert!(has_bytes(&mut bench, item));
        // The third node has passed the item back to this node, but this node has had no report of that.
        for (ms, is_kept) in [(0, true), (UNKNOWN_MS, false)] {
            bench.tick(ms);
            let (id, node) = unlisted(&mut bench, item).expect("the third node is asked again");
            assert_eq!(node, "c");
            told(&mut bench, id, PASSED_ON, "here", 0);
            assert_eq!(has_bytes(&mut bench, item), is_kept);
        }
    }

    #[test]
    fn an_older_entry_of_the_catalog_says_nothing_about_bytes() {
        let (mut bench, item) = left();
        let place = SiteItem { item, epoch: 0, node: "b".into(), daemon: 1, about: vec![] };
        for _ in 0..3 {
            bench.event(Event::Site(SiteEvent::Item(place.clone())));
            let (id, _) = question(&mut bench).expect("the next node is asked");
            told(&mut bench, id, UNKNOWN, "", 0);
            bench.tick(UNKNOWN_MS);
            assert!(has_bytes(&mut bench, item), "the next node may hear of the item later");
        }
        bench.event(Event::Site(SiteEvent::Item(place)));
        let (id, _) = question(&mut bench).expect("the next node is asked");
        told(&mut bench, id, IS_HERE, "", 0);
        assert!(!has_bytes(&mut bench, item));
        // An older entry of the catalog, which says that the item is on this node, does not bring the item back.
        let own = bench.broker.own_node().unwrap().to_owned();
        let place = SiteItem { item, epoch: 0, node: own, daemon: 1, about: vec![] };
        bench.event(Event::Site(SiteEvent::Item(place)));
        assert!(matches!(bench.broker.lasting.items.residences[&item], Residence::Left { .. }));
    }

    #[test]
    fn a_node_tells_where_an_item_is_and_where_its_bytes_are() {
        let place = |bench: &Bench, item: SegmentId, epoch| {
            let body = encode(&PlaceQuestion { version: VERSION, item: item.0, epoch });
            let PlaceAnswer { code, node, left } = decode(&bench.broker.place_wanted(&body).unwrap()).unwrap();
            (code, node, left)
        };
        let (mut bench, item) = left();
        assert_eq!(place(&bench, item, 1), (PASSED_ON, "b".into(), 0));
        assert_eq!(place(&bench, item, 2), (UNKNOWN, String::new(), 0), "this node has not heard of the item's return");
        let lasting = &mut bench.broker.lasting;
        lasting.apply(&Record::Item(ItemRecord::Here { item, epoch: 2, source: "b".into(), left: 2 }));
        assert_eq!(place(&bench, item, 2), (IS_HERE, "b".into(), 2));
        let lasting = &mut bench.broker.lasting;
        lasting.apply(&Record::Item(ItemRecord::Here { item, epoch: 2, source: String::new(), left: 0 }));
        assert_eq!(place(&bench, item, 2), (IS_HERE, String::new(), 0));
    }
}
