//! The requests of clients about items.

use super::Party;
use crate::SegmentId;
use crate::wire::declare::requests;
use crate::wire::{ItemLevel, NonEmptyList, OnDeath, Padded, Wire};

/// The largest number of keys in one `Access` request.
pub const KEYS_PER_MESSAGE: usize = 24;

requests! {
    /// A client's request about items.
    pub enum ItemRequest: u16 as Wire {
        /// Makes an item. The task that asks for the new item owns it.
        50 Create -> Item {
            /// The item's size in bytes.
            size: u64,
            /// How the daemon makes sure, at each transfer, that the former owner has no access to the item any more.
            level: ItemLevel,
            /// What happens to the item when its owner is gone.
            on_death: OnDeath,
            /// The key of the item: its name in the workflow.
            key: String,
        },
        /// Asks for a description of an item.
        51 Find -> ItemInfo {
            /// The key of the item.
            key: String,
        },
        /// Waits until this task can open one of the given items, and opens that item. A task can open the items that
        /// it owns, and, for reading, the items that their owners share.
        52 Access -> Item {
            /// How long to wait, in milliseconds; 0 = not at all.
            wait_ms: u64,
            /// 1: the client wants to read a shared item. 0: it wants to own the item.
            read: bool,
            /// The keys of the items. The daemon opens the first item of this list that can be opened.
            keys: Vec<String> as NonEmptyList<KEYS_PER_MESSAGE>,
        },
        /// Gives an item to another task. The asking task must own the item that it gives away.
        53 Transfer -> Done {
            /// The id of the item.
            item: SegmentId,
            /// The party that becomes the owner of the item.
            to: Party,
        },
        /// Says that the member has closed the item. A released item still belongs to its task. The daemon does not
        /// answer a Release.
        54 Release {
            /// The id of the item.
            item: SegmentId,
        },
        /// Says that this member has an item open. After a member has connected again, it sends a Hold for each of its
        /// items. A Hold with item 0 says that the list is complete. The daemon does not answer a Hold.
        55 Hold {
            /// The item's id; 0 in the member's last Hold, which ends the list of its items.
            item: SegmentId,
        },
        /// Destroys an item. The asking task must own the item that it destroys.
        56 Destroy -> Done {
            /// The id of the item.
            item: SegmentId,
        },
        /// Lets other tasks read an item of the asking task. No task can write to the item until the owner sends an
        /// Unshare.
        57 Share -> Item {
            /// The id of the item.
            item: SegmentId,
        },
        /// Ends the sharing of an item, so that the asking task, which owns the item, is its only user again.
        58 Unshare -> Item {
            /// The id of the item.
            item: SegmentId,
            /// How long to wait for the readers to close the item, in milliseconds. If the time passes, the readers
            /// keep the old bytes, and the owner gets a copy of the item.
            wait_ms: u64,
        },
        /// Changes the size of an item. Bytes that the item gets in addition are zero.
        59 Resize -> Item {
            /// The id of the item.
            item: SegmentId,
            /// The new size in bytes.
            size: u64,
        },
        /// Changes what happens to an item when its owner is gone.
        60 Policy -> Done {
            /// The id of the item.
            item: SegmentId,
            /// What happens to the item from now on when its owner is gone.
            on_death: OnDeath as Padded,
        },
        /// Opens an item once more for a member that has the item open already. The member gets the same access as
        /// before: that of the item's owner, or that of a reader.
        61 Reopen -> Item {
            /// The id of the item.
            item: SegmentId,
        },
        /// Registers a number as a second name of the asking rank of the asking task. Other tasks can give items to
        /// this number.
        62 Register -> Done {
            /// The number that the asking rank gets as its second name.
            number: u64,
        },
        /// Asks for the number that stands for a party in the owner words of cooperative items.
        63 Word -> Done {
            /// The party that is asked about.
            party: Party,
        },
    }
}
