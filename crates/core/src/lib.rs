//! Behaviour over the layout: heap, directory, queue. No sockets, no threads of its own.

pub mod view;

pub mod error;
pub mod fault;
pub mod liveness;
pub mod queue;

pub use error::{Error, Result};
