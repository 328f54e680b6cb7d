//! The library: session, region, port, series.
//!
//! A program connects once ([`Session::connect`]) and asks the session for regions, ports and series. Everything that waits
//! takes a deadline; every error names object, place and mend. Nothing here prints or exits.

#![warn(missing_docs)]

mod connection;
mod discovery;
mod error;
mod files;
mod handshake;
mod item;
mod leaving;
mod listing;
mod port;
mod ranks;
mod region;
mod segment;
mod series;
mod session;
mod typed;

pub use crossdock_layout::wire::{Grant, InUse, SegmentKind};
pub use crossdock_layout::{Handle, MemberId, Rights, SegmentId, Status};
pub use error::{Error, Result};
pub use files::await_file;
pub use item::{
    Contents, Item, ItemInfo, ItemLevel, ItemOptions, ItemState, ItemView, OnDeath, Party, SharedItem, address, party,
};
pub use listing::{Listing, MemberInfo, SegmentInfo, WorkflowInfo};
pub use port::*;
pub use ranks::{rank_of_environment, ranked};
pub use region::*;
pub use series::*;
pub use session::{ConnectOptions, Session};
pub use typed::{NdArray, Plain, Raw, Simple, Text, Vector};
