//! The readers on other nodes that read items of this node: the messages between the nodes, and the work of the node
//! that has the item.
//!
//! For a request to read an item of another node, the broker asks that node ([`READ`]). If the item is shared, the
//! answer contains the number of the *sharing*, which is the time from one `share` to its `unshare`. No two sharings
//! have the same number. The asking node pulls the bytes into a file of its own ([`super::copies`]), which is the copy
//! for all its readers of that sharing.
//!
//! The node that has the item counts each node with readers as a reader, so `unshare` waits for it. The reading node
//! repeats its message while a member has the copy open, and reports when no member has it open any more. A node that
//! is cut off sends neither message, and after [`LASTS_MS`] it does not count as a reader any more. So the owner does
//! not wait for ever for a node that is cut off, and that node's readers keep the old bytes. A broker that follows a
//! killed one knows no readers on other nodes.

use std::collections::BTreeMap;

use crossdock_layout::wire::{ItemLevel, OnDeath};
use crossdock_layout::{SegmentId, Status, record};

use super::handover::Phase;
use super::keyed::by;
use super::ownership::{COMES, LASTS_MS, NEVER, NOT_HERE, NOT_YET, VERSION, unreadable};
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::waits::Due;
use crate::broker::{Broker, Effect, NodeFailure, NodeOrder};

/// The service by which a node asks to read an item. As long as the node reads the item, it repeats its message to this
/// service.
pub(in crate::broker) const READ: u32 = 20;
/// The service by which a node reports that an item, which was not shared before, may be shared now.
pub(in crate::broker) const SHARED: u32 = 21;

/// To pull an item's bytes, another node names an epoch or the number of a sharing. This bit is set in every number of
/// a sharing and in no epoch, so the two kinds of numbers differ.
pub(in crate::broker) const SHARING: u64 = 1 << 63;

record! {
    /// The message of a node that wants to read an item, or still reads it.
    pub struct ReadRequest as Stored {
        version: u32,
        workflow: String,
        key: String,
        /// The number of the sharing whose bytes the asking node has copied. 0 if the message only says that a member
        /// of that node wants to read the item.
        sharing: u64,
        /// How many members of the asking node have the copy open. With 0, the node does not read the item any more.
        readers: u32,
        /// Grows with each message of the asking node. A message with a smaller stamp than the last one is ignored.
        stamp: u64,
    }
}

record! {
    /// The answer to a `ReadRequest`: the item's present sharing, or the reason why the item cannot be read.
    pub struct ReadReply as Stored {
        /// 0 if the item can be read. Otherwise the reason why it cannot be read, as one of the numbers that
        /// `OwnershipReply::code` explains.
        code: u32,
        text: String,
        item: u64,
        sharing: u64,
        size: u64,
        level: ItemLevel,
        on_death: OnDeath,
    }
}

record! {
    /// The report that an item may be shared now.
    pub struct SharingReport as Stored {
        version: u32,
        workflow: String,
        key: String,
    }
}

/// Another node that reads an item of this node.
struct Reader {
    until: u64,
    readers: u32,
    stamp: u64,
}

/// One sharing of an item of this node, with the nodes that read it.
struct Sharing {
    number: u64,
    nodes: BTreeMap<String, Reader>,
}

/// What this broker knows of the nodes that read items of this node, or that wait to read them.
#[derive(Default)]
pub(super) struct Readers {
    sharings: BTreeMap<SegmentId, Sharing>,
    /// For each item (workflow and item key), the nodes that wait to read it. The number is the time at which this node
    /// forgets the waiting node, unless the waiting node asks again earlier.
    wanted: BTreeMap<(u64, String), BTreeMap<String, u64>>,
}

impl Readers {
    /// Counts how many members of other nodes read the item, as these nodes report it.
    pub(super) fn of(&self, item: SegmentId) -> u32 {
        self.sharings
            .get(&item)
            .map_or(0, |of| of.nodes.values().fold(0, |sum, reader| sum.saturating_add(reader.readers)))
    }

    /// Forgets the readers of an item, because the item is not shared any more or has left this node.
    pub(super) fn end(&mut self, item: SegmentId) {
        self.sharings.remove(&item);
    }

    /// Forgets the nodes that wait to read the item of this key, because the item has ended or has left this node.
    pub(super) fn forget_wanted(&mut self, workflow: u64, key: &str) {
        self.wanted.remove(by(&(workflow, key)));
    }

    /// Forgets the readers of a workflow that is ending.
    pub(super) fn forget_workflow(&mut self, workflow: u64) {
        self.wanted.retain(|(of, _), _| *of != workflow);
    }
}

impl Broker {
    /// Tells whether any member in the site has the item open to read.
    pub(super) fn is_read(&self, item: SegmentId, file: SegmentId) -> bool {
        self.open_segments.is_open(file) || self.items.readers.of(item) > 0
    }

    /// Answers the message of a node that wants to read an item, or still reads it.
    pub(in crate::broker) fn reading_wanted(&mut self, node: &str, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(reading) = decode::<ReadRequest>(body).filter(|reading| reading.version == VERSION) else {
            return Err(unreadable());
        };
        let answer = |code, text: String| {
            let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
            Ok(encode(&ReadReply { code, text, item: 0, sharing: 0, size: 0, level, on_death }))
        };
        let workflow = self.lasting.workflow_names.get(&reading.workflow).copied();
        let found = workflow.and_then(|of| Some((of, self.lasting.items.of_key(of, &reading.key)?)));
        let Some((workflow, item)) = found else {
            return answer(NOT_HERE, format!("item '{}' is not there", reading.key));
        };
        let Some(state) = self.lasting.items.all.get(&item).cloned() else { return Err(unreadable()) };
        if state.level == ItemLevel::Cooperative {
            let text = format!(
                "item '{}' is cooperative: only tasks of its node read it; make it verified or strict",
                reading.key
            );
            return answer(NEVER, text);
        }
        if reading.sharing == 0 && matches!(self.items.handovers.phase(item), Phase::Leaving { .. }) {
            // The item is about to leave this node. The next node may have the item already, and only the next node can
            // say more about the item.
            return answer(NOT_HERE, format!("item '{}' is about to leave this node", reading.key));
        }
        if reading.sharing == 0 {
            let is_free = !self.lost.contains(state.file) && self.has_its_name(item);
            if !is_free || !state.shared || self.items.handovers.phase(item).ends_sharing() {
                let (now, until) = (self.now, self.now + LASTS_MS);
                let wanted = self.items.readers.wanted.entry((workflow, reading.key)).or_default();
                wanted.retain(|_, until| *until > now);
                wanted.insert(node.to_owned(), until);
                return answer(NOT_YET, format!("it is not shared: {}", self.whose(item, &state)));
            }
            self.items.readers.sharings.entry(item).or_insert_with(|| Sharing { number: 0, nodes: BTreeMap::new() });
        }
        let fresh = SHARING | self.fresh_stamp();
        let (readers, stamp, until) = (reading.readers, reading.stamp, self.now + LASTS_MS);
        let Some(sharing) = self.items.readers.sharings.get_mut(&item) else {
            return answer(NOT_YET, "it was written since".into());
        };
        if sharing.number == 0 {
            sharing.number = fresh;
        }
        let number = sharing.number;
        if reading.sharing != 0 && reading.sharing != number {
            return answer(NOT_YET, "it was written since".into());
        }
        let is_old = sharing.nodes.get(node).is_some_and(|known| known.stamp > stamp);
        if !is_old {
            // A node without readers stays in the list for a while. So if an older message of that node comes late, it
            // is recognised and ignored.
            sharing.nodes.insert(node.to_owned(), Reader { until, readers, stamp });
            self.waits.expect(until, Due::Readers(item));
            self.no_reader_elsewhere(item);
        }
        let (size, level, on_death) = (state.size, state.level, state.on_death);
        Ok(encode(&ReadReply {
            code: COMES,
            text: String::new(),
            item: item.0,
            sharing: number,
            size,
            level,
            on_death,
        }))
    }

    /// Gives a number that is greater than all numbers that this function has given before, also in earlier brokers of
    /// this node.
    pub(super) fn fresh_stamp(&mut self) -> u64 {
        (self.calendar_ms() << 20) | (self.node_order_id() & 0xf_ffff)
    }

    /// Forgets nodes as readers of the item if they have not confirmed in time that they still read it.
    pub(in crate::broker) fn drop_silent_readers(&mut self, item: SegmentId) {
        let now = self.now;
        if let Some(sharing) = self.items.readers.sharings.get_mut(&item) {
            sharing.nodes.retain(|_, reader| reader.until > now);
            self.no_reader_elsewhere(item);
        }
    }

    /// If no member in the site reads the item any more, continues the owner's request that has waited for this.
    fn no_reader_elsewhere(&mut self, item: SegmentId) {
        let Some(file) = self.lasting.items.all.get(&item).map(|found| found.file) else { return };
        if !self.is_read(item, file) {
            self.end_draining(item);
        }
    }

    /// If the item is shared now, reports this to the nodes that wait to read it.
    pub(super) fn tell_nodes_of_sharing(&mut self, item: SegmentId) {
        let Some(found) = self.lasting.items.all.get(&item).filter(|found| found.shared) else { return };
        if self.items.handovers.phase(item).ends_sharing() {
            return;
        }
        let (of, key) = (found.workflow, found.key.clone());
        let Some(wanted) = self.items.readers.wanted.remove(by(&(of, &key))) else { return };
        let Some(workflow) = self.lasting.workflow_name(of) else { return };
        let body = encode(&SharingReport { version: VERSION, workflow, key });
        for (node, until) in wanted {
            if until > self.now {
                self.ask_node(&node, SHARED, body.clone());
            }
        }
    }

    /// Handles another node's request for the bytes of a shared item.
    pub(in crate::broker) fn open_item_shared(&mut self, id: u64, item: SegmentId, number: u64) {
        let is_it = self.items.readers.sharings.get(&item).is_some_and(|of| of.number == number);
        // The kernel has proved that no process uses the file of an item that is about to leave. So that this stays
        // true, no other node may begin to read the file.
        let is_it = is_it && !self.lasting.items.is_leaving(item);
        let found = self.lasting.items.all.get(&item).filter(|found| is_it && found.shared);
        let outcome = found.map(|found| found.file).ok_or_else(|| {
            let text = format!("item {} is not shared any more", item.0);
            NodeFailure { status: Status::NotFound, text }
        });
        if outcome.is_ok() && matches!(self.items.handovers.phase(item), Phase::Proved) {
            // The other node reads the file from now on. So it is no longer proved that no process uses the file, and
            // the next owner needs a new proof.
            self.items.handovers.enter(item, Phase::Open);
        }
        self.effects.push(Effect::Nodes(NodeOrder::Opened { id, outcome }));
    }

    /// Panics if a node is noted as a reader of an item that is not shared.
    pub(super) fn check_readers(&self) {
        for (item, sharing) in &self.items.readers.sharings {
            let found = self.lasting.items.all.get(item);
            assert!(found.is_some_and(|found| found.shared), "item {item} is not shared and other nodes read it");
            assert!(sharing.nodes.values().all(|of| of.until > self.now), "a silent node reads item {item}");
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::ItemRequest;

    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::{Event, MAIN_ENDPOINT, NodeEvent};

    #[test]
    fn a_node_that_wanted_to_read_an_item_is_forgotten_when_the_item_ends() {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        let item = bench.create(1, "x", ItemLevel::Verified);
        let (version, workflow, key) = (VERSION, "default".to_owned(), "x".to_owned());
        let body = encode(&ReadRequest { version, workflow, key, sharing: 0, readers: 1, stamp: 1 });
        bench.event(Event::Nodes(NodeEvent::Asked { id: 70, node: "b".into(), service: READ, body }));
        assert_eq!(bench.broker.items.readers.wanted.len(), 1);
        bench.ask_item(1, ItemRequest::Destroy { item });
        assert_eq!(bench.broker.items.readers.wanted.len(), 0);
    }
}
