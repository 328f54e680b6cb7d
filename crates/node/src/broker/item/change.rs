//! The changes of an item's owner, and of the owner's member that has the item open.

use crossdock_layout::wire::Party;
use crossdock_layout::{MemberId, SegmentId};

use super::ItemRecord;
use crate::broker::{Broker, Cause, Record};

/// A change of an item's owner or holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A member of the item's owner opened the item to write.
    Opened { by: Party, holder: MemberId },
    /// The member that had the item open has closed it, or is gone. The item's owner stays the same.
    Closed,
    /// The owner lets other tasks read the item.
    Shared,
    /// The owner has ended the sharing and writes the item again.
    Unshared,
    /// The item belongs to another owner, which has not opened it yet.
    Transferred { to: Party },
}

impl Broker {
    /// Changes the item's owner or holder. Ends the item if no member has it open any more and another item has its key.
    pub(super) fn change_owner(&mut self, item: SegmentId, change: Change, cause: Cause) {
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let (owner, holder, shared) = match &change {
            Change::Opened { by, holder } => (by.clone(), *holder, false),
            Change::Closed => (found.owner.clone(), MemberId::NONE, found.shared),
            Change::Shared => (found.owner.clone(), found.holder, true),
            Change::Unshared => (found.owner.clone(), found.holder, false),
            Change::Transferred { to } => (to.clone(), MemberId::NONE, found.shared),
        };
        let transferred = matches!(change, Change::Transferred { .. });
        if transferred {
            self.items.handovers.restart_clock(item, self.now);
        }
        // Three kinds of requests open an item, share it, or end its sharing. The answers to these requests carry the
        // item's memory. So if such a request is repeated, the member gets the memory again.
        let made = matches!(change, Change::Opened { .. } | Change::Shared | Change::Unshared);
        self.commit(Record::Item(ItemRecord::Owner { item, owner, holder, shared, transferred, made, cause }));
        if !shared {
            self.items.readers.end(item);
        }
        self.end_nameless(item);
    }
}
