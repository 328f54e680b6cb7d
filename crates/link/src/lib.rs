//! Connections between two node daemons.
//!
//! - [`Transport`] makes [`Stream`]s, which carry bytes both ways; every call has a deadline. [`Tcp`] works on every
//!   machine; with [`Trust::Certificates`] it is inside mutual TLS. `Grpc` carries the same bytes in calls of gRPC; it
//!   is for networks that let only HTTP/2 pass. [`Ucx`] carries pulls over a faster fabric. [`Transports`] has the
//!   transports of a node, the best first.
//! - [`Link`] is a node's connection to one other node. It carries questions and answers. It sends the pulse, by which
//!   each side notices that the other is silent. [`Link::pull`] copies bytes of the other node's segment directly into
//!   memory of this node.
//! - [`Server`] is the other side: it answers the links of other nodes, with the daemon's [`Serve`].
//!
//! A silent peer is *away*, never dead. Only the kernel of the peer's host, or the end of the peer's lease in the
//! catalog, decides that the peer is gone. This crate does not know what an item, a port or a series is.

pub mod body;
mod certificates;
mod choice;
mod connection;
mod error;
mod frame;
mod greeting;
#[cfg(feature = "grpc")]
mod grpc;
mod link;
mod listener;
mod peer;
mod pull;
mod pull_transport;
mod server;
mod stream;
mod tcp;
mod tls;
mod transport_trials;
mod trust;
mod ucx;
mod workers;

pub use certificates::{Authority, Certificates, NodeCredentials};
pub use choice::{Choice, Transports};
pub use error::{Error, Result};
#[cfg(feature = "grpc")]
pub use grpc::Grpc;
pub use link::Link;
pub use peer::{LinkOptions, LinkState, Node, Presence, Refusal, SourceId};
pub use pull::Pulled;
pub use pull_transport::OtherTransport;
pub use server::{Buffer, Counts, Peer, Serve, Server, Source};
pub use stream::{Accept, Arriving, Stream, Transport, bad_node_name};
pub use tcp::Tcp;
pub use trust::Trust;
pub use ucx::Ucx;
pub use workers::Workers;
