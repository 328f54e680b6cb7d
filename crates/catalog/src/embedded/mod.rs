//! The embedded catalog: one daemon of the site keeps it, the others are its clients.
//!
//! **Keeper.** [`Keeper`] has the state in memory, and every change in a journal. Each record of the journal has a
//! checksum. The keeper writes a change to the journal before it answers the request for the change. After a restart
//! the keeper has the state, but has forgotten the single changes that led to it. A watch that had received all changes
//! before the restart continues; any other watch gets an error, and its client lists the entries again. After a
//! restart, the keeper also restarts the time of every lease, and adds a grace time, in which the lease's holder can
//! find the keeper.
//!
//! **Connections.** A client's connection carries calls, one after another. After a watch request it carries only the
//! keeper's messages: changes, and an empty message each second, so that both sides notice when the other is gone. The
//! bytes go over the [`Stream`] that the caller provides: TCP, or TLS over TCP. The process of the keeper needs no
//! connection: it uses [`Local`].
//!
//! **Messages.** A message is four bytes of length, followed by the fields that `message.rs` lists, little-endian. A
//! message that is too long, too short or otherwise wrong ends its connection and nothing else.

mod client;
mod frame;
mod fuzz;
mod journal;
mod keeper;
mod local;
mod message;
mod watchers;

pub use client::{Client, Dial, TcpDial};
pub use frame::Stream;
#[doc(hidden)]
pub use fuzz::fuzz_decode;
pub use keeper::{AcceptStream, Keeper, KeeperOptions, Listening};
pub use local::Local;
