//! Connections between two node daemons.
//!
//! - [`Transport`] makes [`Stream`]s: bytes both ways, every call with a deadline. [`Tcp`] is the one that every machine
//!   has; with [`Trust::Certificates`] it is inside mutual TLS.
//! - [`Link`] is a node's connection to one other node: questions and answers, the pulse that tells a silent peer, and
//!   [`Link::pull`], which brings bytes of the other node's segment straight into memory of this one.
//! - [`Server`] answers other nodes' links, by a [`Serve`] of the daemon's.
//!
//! A peer that is silent is *away*, never dead: only its own kernel, or the catalog's lease, says that a node is gone.
//! Nothing here knows what an item, a port or a series is.

mod certificates;
mod error;
mod frame;
mod greeting;
mod link;
mod peer;
mod pull;
mod server;
mod stream;
mod tcp;
mod tls;
mod trust;
mod workers;

pub use certificates::{Authority, Certificates, Papers};
pub use error::{Error, Result};
pub use link::Link;
pub use peer::{LinkOptions, Node, Presence, Refusal, Seen, Wanted};
pub use pull::Pulled;
pub use server::{Counts, Peer, Serve, Server, Source};
pub use stream::{Accept, Arriving, Stream, Transport, bad_node_name};
pub use tcp::Tcp;
pub use trust::Trust;
pub use workers::Workers;
