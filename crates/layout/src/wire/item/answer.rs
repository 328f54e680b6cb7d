//! What clients are told about items: an item, or a description of one.

use super::Party;
use crate::wire::answer::PAGE_ROOM;
use crate::wire::{ItemLevel, ItemState, OnDeath, Wire};
use crate::{MemberId, SegmentId, record};

record! {
    /// The answer to `Create`, `Access`, `Share`, `Unshare`, `Resize` and `Reopen`: an item. The item's memory comes
    /// with it.
    pub struct ItemGiven as Wire {
        /// The item's id, which stays the same as long as the item exists.
        item: SegmentId,
        /// The memory that holds the item now. It changes when the item is copied.
        file: SegmentId,
        /// Bytes.
        size: u64,
        /// How ownership is proved.
        level: ItemLevel,
        /// What happens to the item when its owner is gone.
        on_death: OnDeath,
        /// The item can be written.
        writable: bool,
        /// This request made the item.
        created: bool,
        /// The numbers that stand for this task in owner words: for this rank, and for any rank of the task.
        words: [u64; 2],
        /// The number that stands in owner words for the task that made the item.
        creator: u64,
        /// Its key.
        key: String,
    }
}

record! {
    /// An item in a listing, or the answer to `Find`.
    pub struct ItemEntry as Wire {
        /// Which.
        item: SegmentId,
        /// The memory that holds the item now.
        file: SegmentId,
        /// Bytes.
        size: u64,
        /// The member that has the item open as its owner, or 0.
        holder: MemberId,
        /// Milliseconds since the item got its present owner, or since the daemon's restart.
        since_ms: u64,
        /// How often the item changed its owner.
        transfers: u64,
        /// How often the item had to be copied because a former user kept it open or mapped.
        copies: u64,
        /// How ownership is proved.
        level: ItemLevel,
        /// What happens to the item when its owner is gone.
        on_death: OnDeath,
        /// The item's present state.
        state: ItemState,
        /// The number of requests that wait for the item.
        waiting: u32,
        /// The number of members that read the item.
        readers: u32,
        /// The asking task owns the item.
        mine: bool,
        /// Whose it is.
        owner: Party,
        /// Who made it.
        creator: Party,
        /// The workflow that the item belongs to.
        workflow: String,
        /// Its key.
        key: String,
    }
}

impl ItemEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}
