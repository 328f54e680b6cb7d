//! Behaviour over the layout: heap, directory, queue, version table. No sockets, no threads of its own.

pub mod view;

pub mod containers;
pub mod directory;
pub mod error;
pub mod fault;
pub mod heap;
pub mod item;
pub mod liveness;
pub mod queue;
pub mod region;
pub mod series;

pub use error::{Error, Result};
