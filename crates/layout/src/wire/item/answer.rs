//! The records that describe items in answers: an item that was opened, or an item in a listing.

use super::Party;
use crate::wire::answer::PAGE_ROOM;
use crate::wire::{ItemLevel, ItemState, OnDeath, Wire};
use crate::{MemberId, SegmentId, record};

record! {
    /// The answer to `Create`, `Access`, `Share`, `Unshare`, `Resize` and `Reopen`: an item. The descriptor of the
    /// item's memory comes with the answer.
    pub struct ItemGiven as Wire {
        /// The item's id, which stays the same as long as the item exists.
        item: SegmentId,
        /// The id of the memory that holds the item at present. This id changes when the item is copied.
        file: SegmentId,
        /// The item's size in bytes.
        size: u64,
        /// How it is proved that a former owner has no access to the item any more.
        level: ItemLevel,
        /// What happens to the item when its owner is gone.
        on_death: OnDeath,
        /// True if the item can be written.
        writable: bool,
        /// True if this request made the item. The first page of a new cooperative item already says that this member
        /// has the item.
        created: bool,
        /// The numbers that stand for this task in the owner words of cooperative items: one for this rank, and one for
        /// any rank of the task.
        words: [u64; 2],
        /// The number that stands in the owner words of cooperative items for the task that made the item.
        creator: u64,
        /// The key of the item: its name in the workflow.
        key: String,
    }
}

record! {
    /// An item in a listing, or the answer to `Find`.
    pub struct ItemEntry as Wire {
        /// The item's id.
        item: SegmentId,
        /// The id of the memory that holds the item at present.
        file: SegmentId,
        /// The item's size in bytes.
        size: u64,
        /// The member that has the item open as its owner, or 0.
        holder: MemberId,
        /// The time in milliseconds since the item got its present owner, or since the daemon was restarted.
        since_ms: u64,
        /// The number of times that the item changed its owner.
        transfers: u64,
        /// The number of times that the item had to be copied, because a former user had kept it open or mapped.
        copies: u64,
        /// How it is proved that a former owner has no access to the item any more.
        level: ItemLevel,
        /// What happens to the item when its owner is gone.
        on_death: OnDeath,
        /// The item's present state.
        state: ItemState,
        /// The number of requests that wait for the item.
        waiting: u32,
        /// The number of members that read the item.
        readers: u32,
        /// True if the asking task owns the item.
        mine: bool,
        /// The party that owns the item.
        owner: Party,
        /// The party that made the item.
        creator: Party,
        /// The workflow that the item belongs to.
        workflow: String,
        /// The key of the item: its name in the workflow.
        key: String,
    }
}

impl ItemEntry {
    /// The number of entries that fit into one message (a page) of a listing.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}
