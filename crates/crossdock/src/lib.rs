#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[doc(inline)]
pub use crossdock_client::*;

/// Checkpoints: reads the files that `crossdock checkpoint` wrote, in order to restart a program from them.
pub mod checkpoint {
    #[doc(inline)]
    pub use crossdock_checkpoint::*;
}
