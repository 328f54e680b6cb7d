//! What clients ask about items.

use super::Party;
use crate::SegmentId;
use crate::wire::declare::requests;
use crate::wire::{ItemLevel, OnDeath, Padded, Some1, Wire};

/// Most keys of one request that waits for any of them.
pub const KEYS_PER_MESSAGE: usize = 24;

requests! {
    /// What a client may ask about items.
    pub enum ItemRequest: u16 as Wire {
        /// Make an item and be its owner.
        50 Create -> Item {
            /// Bytes.
            size: u64,
            /// How ownership is proved.
            level: ItemLevel,
            /// What becomes of it when its owner is gone.
            on_death: OnDeath,
            /// Its name in the workflow.
            key: String,
        },
        /// What is known of an item.
        51 Find -> ItemInfo {
            /// Which.
            key: String,
        },
        /// Wait until one of these items is this task's, or is shared, and open it.
        52 Access -> Item {
            /// How long to wait; 0 = not at all.
            wait_ms: u64,
            /// 1: the client asks to read a shared item. 0: it asks to own the item.
            read: bool,
            /// Which; the first that fits.
            keys: Vec<String> as Some1<KEYS_PER_MESSAGE>,
        },
        /// Give it to another task.
        53 Transfer -> Done {
            /// Which.
            item: SegmentId,
            /// To whom.
            to: Party,
        },
        /// The member has it open no longer; it stays its task's. No answer.
        54 Release {
            /// Which.
            item: SegmentId,
        },
        /// After coming back: this member has it open. Item 0 says that this was all. No answer.
        55 Hold {
            /// Which.
            item: SegmentId,
        },
        /// Take it away.
        56 Destroy -> Done {
            /// Which.
            item: SegmentId,
        },
        /// Let others read it; no task writes it until it is unshared.
        57 Share -> Item {
            /// Which.
            item: SegmentId,
        },
        /// Be its only user again.
        58 Unshare -> Item {
            /// Which.
            item: SegmentId,
            /// How long readers may take to leave it; afterwards they keep the old bytes and the owner gets a copy.
            wait_ms: u64,
        },
        /// Give it another size. Bytes that are new are zero.
        59 Resize -> Item {
            /// Which.
            item: SegmentId,
            /// Bytes.
            size: u64,
        },
        /// Change what becomes of it when its owner is gone.
        60 Policy -> Done {
            /// Which.
            item: SegmentId,
            /// From now on.
            on_death: OnDeath as Padded,
        },
        /// Open it once more, in the role in which the caller has it open.
        61 Reopen -> Item {
            /// Which.
            item: SegmentId,
        },
        /// Be reached by this number, too.
        62 Register -> Done {
            /// The number.
            number: u64,
        },
        /// The number by which an owner word names a party.
        63 Word -> Done {
            /// Which party.
            party: Party,
        },
    }
}
