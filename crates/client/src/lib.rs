//! The library: session, region, port.
//!
//! A program connects once ([`Session::connect`]) and asks the session for regions and ports. Everything that waits
//! takes a deadline; every error names object, place and mend. Nothing here prints or exits.

#![warn(missing_docs)]

mod error;
mod port;
mod region;
mod segment;
mod session;

pub use crossdock_layout::wire::{Grant, SegmentKind};
pub use crossdock_layout::{Handle, MemberId, Rights, SegmentId, Status};
pub use error::{Error, Result};
pub use port::*;
pub use region::*;
pub use session::{ConnectOptions, Listing, MemberInfo, SegmentInfo, Session, WorkflowInfo};
