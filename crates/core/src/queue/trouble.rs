//! What can go wrong at a port, and the result of a try that may say "not yet".
//!
//! The caller of this module adds the port's name to the error.

use crossdock_layout::Status;

pub use crate::error::Error;
use crate::error::Reason;

/// The result of a try: done, not yet (`None`), or an error.
pub type Try<T> = Result<Option<T>, Error>;

/// The error for memory that holds what no correct member writes.
#[cold]
pub(super) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::because(Status::Corrupt, Reason::Damaged(what.to_string()))
}
