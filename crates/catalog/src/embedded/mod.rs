//! The embedded catalog: one daemon of the site keeps it, the others are its clients.
//!
//! **Keeper.** [`Keeper`] holds the state in memory and every change in a journal, each record with a checksum. A change
//! is written down before it is answered. After a restart, history is empty (watches that were up to date go on), and
//! every lease has its whole time again, plus a grace in which its holder finds the keeper.
//!
//! **Connections.** A client's connection carries calls, one after another, or, after a watch request, nothing but the
//! keeper's messages: changes, and an empty message each second, so that both sides notice that the other is gone. The
//! bytes go over whatever [`Stream`] the caller provides: TCP, or TLS over TCP.
//!
//! **Messages.** Four bytes of length, then the fields of `message.rs`, little-endian. A message that is too long, too
//! short or otherwise wrong ends the connection, and only that.

mod client;
mod frame;
mod journal;
mod keeper;
mod message;

pub use client::{Client, Dial, TcpDial};
pub use frame::Stream;
pub use keeper::{Greet, Keeper, KeeperOptions, Listening};
