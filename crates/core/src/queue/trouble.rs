//! What can go wrong at a port, and a try that says "not yet".
//!
//! Messages are written to stand behind "port NAME: ", which the layer above puts there.

use crossdock_layout::Status;

pub use crate::error::Error;

/// A try: done, not yet (`None`), or an error.
pub type Try<T> = Result<Option<T>, Error>;

/// A member wrote what no honest one writes.
#[cold]
pub(super) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(
        Status::Corrupt,
        format!("{what}: some member of this port wrote over it; remove the port and let its tasks open it anew"),
    )
}
