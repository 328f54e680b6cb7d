//! The client library: sessions, regions, ports, series and items.
//!
//! A program connects once ([`Session::connect`]) and asks the session for regions, ports, series and items. Every wait
//! has a deadline. Every error names the object, says what was tried and gives a hint. This library neither prints nor
//! exits.

#![warn(missing_docs)]

mod at_exit;
mod connection;
mod discovery;
mod files;
mod handshake;
mod host;
mod interrupt;
mod item;
mod listing;
mod port;
mod ranks;
mod region;
mod region_copies;
pub mod runs;
mod segment;
mod series;
mod session;
mod session_objects;

pub use crossdock_core::Result;
pub use crossdock_core::containers::Order;
pub use crossdock_core::directory::{Claim, Incarnation, Loaded, ObjectInfo, ObjectMode, Removed, TypeRef};
pub use crossdock_core::error::{Error, Failure, Object, Reason, Waited};
pub use crossdock_core::headers::{NdarrayData, VectorData};
pub use crossdock_core::heap::{HealReport, Statistics, allocate_at, deallocate_at};
pub use crossdock_core::region::{at_base, with_base};
pub use crossdock_core::typed::{NdArray, Plain, Raw, Simple, Text, Vector};
pub use crossdock_layout::region::{ANY_SIZE, DEFAULT_CAPACITY};
pub use crossdock_layout::wire::NodeState;
/// How to open a region by name: whether the region must exist, must not exist yet, may be made, or replaces an
/// existing region.
pub use crossdock_layout::wire::OpenMode as Mode;
pub use crossdock_layout::wire::{Grant, InUse, SegmentKind};
pub use crossdock_layout::{Handle, MemberId, Rights, SegmentId, Status};
pub use crossdock_os::fork::{PerProcess, ProcessToken};
pub use files::await_file;
pub use interrupt::interruptible;
pub use item::{
    Contents, Item, ItemInfo, ItemLevel, ItemOptions, ItemState, ItemView, OnDeath, OpenItem, Party, SharedItem,
    address, party,
};
pub use listing::{Listing, MemberInfo, NodeInfo, SegmentInfo, WorkflowInfo};
pub use port::*;
pub use ranks::{rank_of_environment, ranked};
pub use region::Region;
pub use region_copies::IncomingRegion;
pub use series::*;
pub use session::{ConnectOptions, Session};
