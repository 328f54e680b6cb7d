//! What clients are told: an item, or what is known of one.

use super::Party;
use crate::wire::answer::PAGE_ROOM;
use crate::wire::{ItemLevel, ItemState, OnDeath, Wire};
use crate::{MemberId, SegmentId, record};

record! {
    /// To `Create`, `Access`, `Share`, `Unshare`, `Resize` and `Reopen`: an item; its memory comes with it.
    pub struct ItemGiven as Wire {
        /// Which; stays the same for as long as it exists.
        item: SegmentId,
        /// The memory that holds it now; another one when it was copied.
        file: SegmentId,
        /// Bytes.
        size: u64,
        /// How ownership is proved.
        level: ItemLevel,
        /// What becomes of it when its owner is gone.
        on_death: OnDeath,
        /// It can be written.
        writable: bool,
        /// Made by this request.
        created: bool,
        /// The numbers by which owner words name this task: this rank, and any rank of it.
        words: [u64; 2],
        /// The number by which owner words name the task that made it.
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
        /// The memory that holds it now.
        file: SegmentId,
        /// Bytes.
        size: u64,
        /// The member that has it open as its owner, or 0.
        holder: MemberId,
        /// Milliseconds since it became its owner's, or since the daemon's restart.
        since_ms: u64,
        /// How often it changed its owner.
        transfers: u64,
        /// How often it had to be copied because a former user kept it open or mapped.
        copies: u64,
        /// How ownership is proved.
        level: ItemLevel,
        /// What becomes of it when its owner is gone.
        on_death: OnDeath,
        /// What is going on with it.
        state: ItemState,
        /// How many requests wait for it.
        waiting: u32,
        /// How many members read it.
        readers: u32,
        /// The asker is its owner.
        mine: bool,
        /// Whose it is.
        owner: Party,
        /// Who made it.
        creator: Party,
        /// The workflow that it belongs to.
        workflow: String,
        /// Its key.
        key: String,
    }
}

impl ItemEntry {
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;
}
