#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub use crossdock_client::*;

/// Checkpoints: what `crossdock checkpoint` wrote, to restart from.
pub mod checkpoint {
    pub use crossdock_checkpoint::*;
}
