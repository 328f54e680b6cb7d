//! Behaviour over the layout: heap, directory, queue, version table. No sockets, no threads of its own.

pub mod view;

pub mod containers;
pub mod directory;
pub mod error;
pub mod fault;
pub mod files;
pub mod headers;
pub mod heap;
pub mod host;
pub mod item;
pub mod liveness;
pub mod queue;
pub mod region;
#[cfg(not(loom))]
pub mod series;
#[cfg(not(loom))]
pub mod typed;
/// A series is no more than its protocol where loom models it.
#[cfg(all(test, loom))]
mod series {
    mod loom_model;
    mod protocol;
}

pub use error::{Error, Result};
pub use host::Host;
