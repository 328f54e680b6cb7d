#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub use crossdock_client::*;

/// Checkpoints: reads what `crossdock checkpoint` wrote, in order to restart from it.
pub mod checkpoint {
    pub use crossdock_checkpoint::*;
}
