//! How listings describe items.

use std::ops::Bound;

use crossdock_layout::wire::{ItemEntry, ItemState, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};

use super::Phase;
use crate::broker::{Broker, Connection};

impl Broker {
    /// Tells whether the processes behind this connection's endpoint were started in such a way that they cannot reopen
    /// an item's file.
    pub fn is_confined(&self, connection: Connection) -> bool {
        let Some(link) = self.links.get(&connection) else { return false };
        let Some(endpoint) = self.lasting.endpoints.get(&link.endpoint) else { return false };
        endpoint.grants.iter().any(|g| g.kind == SegmentKind::Item && g.rights.contains(Rights::CONFINED))
    }

    /// Gives the member at the other end of this connection.
    pub fn member_at(&self, connection: Connection) -> Option<MemberId> {
        self.links.get(&connection)?.member
    }

    /// Gives the description of an item for the member `asker`.
    pub(super) fn item_entry(&self, item: SegmentId, asker: MemberId) -> Option<ItemEntry> {
        let found = self.lasting.items.all.get(&item)?;
        let state = match found {
            _ if matches!(self.items.handovers.phase(item), Phase::Copying { .. } | Phase::Fetching { .. }) => {
                ItemState::Copying
            }
            found if found.shared => ItemState::Shared,
            found if found.holder == MemberId::NONE => ItemState::Waiting,
            _ => ItemState::Held,
        };
        Some(ItemEntry {
            item,
            file: found.file,
            size: found.size,
            holder: found.holder,
            since_ms: self.now.saturating_sub(self.items.handovers.since(item)),
            transfers: found.transfers,
            copies: found.copies,
            level: found.level,
            on_death: found.on_death,
            state,
            waiting: self.items.waits.of_key(found.workflow, &found.key).count() as u32,
            readers: self.open_segments.of(found.file).len() as u32 + self.items.readers.of(item),
            mine: self.is_of(asker, found.workflow, &found.owner),
            owner: found.owner.clone(),
            creator: found.creator.clone(),
            workflow: self.lasting.workflow_name(found.workflow).unwrap_or_default(),
            key: found.key.clone(),
        })
    }

    pub(in crate::broker) fn item_entries(
        &self,
        after: u64,
        asker: MemberId,
        wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = ItemEntry> {
        let rest = self.lasting.items.all.range((Bound::Excluded(SegmentId(after)), Bound::Unbounded));
        rest.filter(move |(_, i)| wanted(i.workflow)).filter_map(move |(id, _)| self.item_entry(*id, asker))
    }
}
