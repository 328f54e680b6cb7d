//! The behaviour over the memory layout: heap, directory, queue, version table. This crate opens no socket and starts
//! no thread.

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
/// Under loom, a series is only its protocol, the part that loom models.
#[cfg(all(test, loom))]
mod series {
    mod loom_model;
    mod protocol;
}

pub use error::{Error, Result};
pub use host::Host;
