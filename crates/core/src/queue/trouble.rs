//! What can go wrong at a port, and a try that says "not yet".
//!
//! The layer above adds the port's name.

use crossdock_layout::Status;

pub use crate::error::Error;
use crate::error::Reason;

/// A try: done, not yet (`None`), or an error.
pub type Try<T> = Result<Option<T>, Error>;

/// A member wrote what no honest one writes.
#[cold]
pub(super) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::because(Status::Corrupt, Reason::Damaged(what.to_string()))
}
