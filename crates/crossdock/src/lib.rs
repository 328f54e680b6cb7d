#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[doc(inline)]
pub use crossdock_client::*;

/// Checkpoints: reads what `crossdock checkpoint` wrote, in order to restart from it.
pub mod checkpoint {
    #[doc(inline)]
    pub use crossdock_checkpoint::*;
}
