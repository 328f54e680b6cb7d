//! UCX, loaded while the program runs: connections whose bytes go by the best fabric that two machines share, for
//! example RDMA.
//!
//! [`Library`] is `libucp.so.0`. The program does not link to it, and works without it. [`Fabric`] is one UCX context.
//! A [`Wire`] is one connection, with a UCX worker and a UCX endpoint of its own. A wire sends messages through UCX's
//! *active message* interface. Small messages are copied. For a large message UCX uses its rendezvous: the receiving
//! side gets the bytes directly into their place, by an RDMA read if the hardware has it.
//!
//! UCX has neither TLS nor authentication. Its TCP transport copies bytes to whatever address of this process a peer
//! names. So every program that reaches the transport's TCP ports can write to this process's memory. This crate does
//! not enable UCX's own remote memory access (`UCP_FEATURE_RMA`), because its emulation would also read from any
//! address.

mod abi;
mod inbox;
mod library;
mod wire;
mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use library::{Fabric, Library};
pub use wire::{Received, Wire, WireError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
