//! Bytes of small items that travel ahead of the catalog's report.
//!
//! When a small item leaves, its node sends the bytes to the next node ([`AHEAD`]) at the same time as it asks the
//! catalog to pass the item on. So when the catalog reports that the item belongs to the next node, that node has the
//! bytes already and need not pull them.
//!
//! The catalog alone decides whether the next node may use the bytes. The next node may use the bytes only if the
//! item's entry in the catalog names three things: the node that sent the bytes, the epoch, and the **stamp** with
//! which the bytes were sent. No two requests to the catalog to pass an item on have the same stamp. If the catalog
//! refuses a request, the item's owner may write to the item again. The next request has another stamp, so the
//! catalog's entry never names the bytes of the refused request. If the bytes are lost or late, or if the entry does
//! not name them, the next node pulls the bytes, as for a large item.

use std::collections::VecDeque;

use crossdock_layout::{SegmentId, record};

use super::memory_of;
use super::ownership::{VERSION, unreadable};
use super::residence::BytesSource;
use crate::broker::stored::{Stored, decode, encode};
use crate::broker::waits::Due;
use crate::broker::{Broker, Effect, NodeFailure, NodeOrder};

/// The number of the service to which a node sends an item's bytes ahead of the catalog's report.
pub(in crate::broker) const AHEAD: u32 = 13;

/// The largest memory, in bytes, of an item whose bytes travel ahead; a larger item is pulled. The bytes and their head
/// must fit into one question.
const MOST: u64 = 48 << 10;
/// The maximum number of items whose bytes are kept. If the bytes of one more item arrive, the oldest bytes are
/// dropped.
const ITEMS: usize = 64;
/// How long this node keeps bytes that came ahead of the catalog's report.
const LASTS_MS: u64 = 5_000;
/// How long, in milliseconds, a node waits for the answer to the message with an item's bytes.
const SEND_MS: u64 = 1_000;

record! {
    /// The head of the question by which a node sends an item's bytes. The bytes follow the head.
    pub struct Head as Stored {
        version: u32,
        item: u64,
        /// The epoch with which the item leaves the sending node.
        left: u64,
        stamp: u64,
    }
}

/// The length of an encoded [`Head`].
const HEAD: usize = 28;

#[derive(Debug)]
struct EarlyBytes {
    item: SegmentId,
    from: BytesSource,
    stamp: u64,
    /// Whether the catalog's entry of the item names these bytes.
    fits: bool,
    bytes: Vec<u8>,
    until: u64,
}

/// The bytes of items that other nodes have sent ahead, the oldest first.
#[derive(Debug, Default)]
pub(super) struct EarlyItems(VecDeque<EarlyBytes>);

impl EarlyItems {
    /// Compares the bytes that have arrived for an item with the item's entry in the catalog: do the bytes have the
    /// stamp `stamp` of the entry, and do they come from the source `from` of the entry? Drops bytes that do not.
    pub(super) fn compare(&mut self, item: SegmentId, from: &BytesSource, stamp: u64) {
        self.0.retain_mut(|parcel| {
            if parcel.item == item {
                parcel.fits = stamp != 0 && parcel.stamp == stamp && parcel.from == *from;
            }
            parcel.item != item || parcel.fits
        });
    }

    /// Takes the bytes of an item out of this list and returns them, if [`Self::compare`] has found that they fit the
    /// item's entry in the catalog, and if there are as many bytes as the item has.
    pub(super) fn take(&mut self, item: SegmentId, size: u64) -> Option<Vec<u8>> {
        let fits = |parcel: &EarlyBytes| parcel.item == item && parcel.fits && parcel.bytes.len() as u64 == size;
        let at = self.0.iter().position(fits)?;
        self.0.remove(at).map(|parcel| parcel.bytes)
    }
}

impl Broker {
    /// Gives the stamp of the next request to the catalog to pass this item on. The stamp is 0 if the item is too large
    /// for its bytes to travel ahead.
    pub(super) fn stamp_for(&mut self, item: SegmentId) -> u64 {
        let Some(found) = self.lasting.items.all.get(&item) else { return 0 };
        let is_here = found.file.0 != 0 && self.lasting.items.source(item).is_none();
        if is_here && memory_of(found.size) <= MOST { self.fresh_stamp() } else { 0 }
    }

    /// Sends the bytes of a leaving item to its next node. The caller knows that no process has the item's file open.
    pub(super) fn send_ahead(&mut self, item: SegmentId, to: &str, left: u64, stamp: u64) {
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let (file, size) = (found.file, memory_of(found.size));
        let head = encode(&Head { version: VERSION, item: item.0, left, stamp });
        debug_assert_eq!(head.len(), HEAD, "the receiver finds the bytes behind so many");
        let (id, node) = (self.node_order_id(), to.to_owned());
        let send = NodeOrder::Send { id, node, service: AHEAD, head, file, size, wait_ms: SEND_MS };
        self.effects.push(Effect::Nodes(send));
    }

    /// Keeps the bytes of an item that another node has sent, until the catalog reports the item or a while has passed.
    pub(in crate::broker) fn bytes_came_ahead(&mut self, node: &str, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let (head, bytes) = body.split_at_checked(HEAD).ok_or_else(unreadable)?;
        let head = decode::<Head>(head).filter(|head| head.version == VERSION && head.stamp != 0);
        let Some(Head { item, left, stamp, .. }) = head else { return Err(unreadable()) };
        if bytes.is_empty() || bytes.len() as u64 > MOST {
            return Err(unreadable());
        }
        let (item, from, until) = (SegmentId(item), BytesSource { node: node.to_owned(), left }, self.now + LASTS_MS);
        let parcels = &mut self.items.parcels.0;
        // The other node may send the same bytes twice. This node keeps only one copy of them.
        if parcels.iter().any(|parcel| parcel.item == item && parcel.stamp == stamp && parcel.from == from) {
            return Ok(Vec::new());
        }
        if parcels.len() >= ITEMS {
            parcels.pop_front();
        }
        parcels.push_back(EarlyBytes { item, from, stamp, fits: false, bytes: bytes.to_vec(), until });
        self.waits.expect(until, Due::Ahead);
        Ok(Vec::new())
    }

    /// Drops bytes that have been kept for longer than [`LASTS_MS`].
    pub(in crate::broker) fn drop_old_parcels(&mut self) {
        let now = self.now;
        self.items.parcels.0.retain(|parcel| parcel.until > now);
    }
}
