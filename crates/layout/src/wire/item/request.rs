//! What clients ask about items.

use super::Party;
use crate::SegmentId;
use crate::wire::declare::requests;
use crate::wire::{ItemLevel, OnDeath, Padded, Some1, Wire};

/// The largest number of keys in one request that waits for any of them.
pub const KEYS_PER_MESSAGE: usize = 24;

requests! {
    /// A client's request about items.
    pub enum ItemRequest: u16 as Wire {
        /// Makes an item and owns it.
        50 Create -> Item {
            /// Bytes.
            size: u64,
            /// How ownership is proved.
            level: ItemLevel,
            /// What happens to the item when its owner is gone.
            on_death: OnDeath,
            /// Its name in the workflow.
            key: String,
        },
        /// Asks for a description of an item.
        51 Find -> ItemInfo {
            /// Which.
            key: String,
        },
        /// Waits until one of these items belongs to this task, or is shared, and opens it.
        52 Access -> Item {
            /// How long to wait; 0 = not at all.
            wait_ms: u64,
            /// 1: the client asks to read a shared item. 0: it asks to own the item.
            read: bool,
            /// The keys of the items; the first one that fits is given.
            keys: Vec<String> as Some1<KEYS_PER_MESSAGE>,
        },
        /// Gives the item to another task.
        53 Transfer -> Done {
            /// Which.
            item: SegmentId,
            /// To whom.
            to: Party,
        },
        /// The member no longer has the item open; the item still belongs to its task. No answer.
        54 Release {
            /// Which.
            item: SegmentId,
        },
        /// After coming back: this member has the item open. Item 0 says that the list is complete. No answer.
        55 Hold {
            /// Which.
            item: SegmentId,
        },
        /// Take it away.
        56 Destroy -> Done {
            /// Which.
            item: SegmentId,
        },
        /// Lets others read the item. No task writes it until it is unshared.
        57 Share -> Item {
            /// Which.
            item: SegmentId,
        },
        /// Makes the asking task the item's only user again.
        58 Unshare -> Item {
            /// Which.
            item: SegmentId,
            /// How long readers have to leave the item. After that they keep the old bytes, and the owner gets a copy.
            wait_ms: u64,
        },
        /// Gives the item another size. New bytes are zero.
        59 Resize -> Item {
            /// Which.
            item: SegmentId,
            /// Bytes.
            size: u64,
        },
        /// Changes what happens to the item when its owner is gone.
        60 Policy -> Done {
            /// Which.
            item: SegmentId,
            /// From now on.
            on_death: OnDeath as Padded,
        },
        /// Opens the item once more, in the role in which the asking member has it open.
        61 Reopen -> Item {
            /// Which.
            item: SegmentId,
        },
        /// Registers a number under which this task can be reached as well.
        62 Register -> Done {
            /// The number.
            number: u64,
        },
        /// Asks for the number that stands for a party in owner words.
        63 Word -> Done {
            /// Which party.
            party: Party,
        },
    }
}
