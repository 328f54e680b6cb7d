//! The code that works on the shared memory layout: heap, directory, queue, versions of series, items. This crate opens
//! no socket and starts no thread.

pub mod shared_access;

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
/// In a build for loom, the model checker, the module `series` has only the pinning protocol, because loom runs
/// nothing else of it.
#[cfg(all(test, loom))]
mod series {
    mod loom_model;
    mod protocol;
}

pub use error::{Error, Result};
pub use host::Host;
