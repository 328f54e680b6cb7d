//! The errors of a port, and the result of an attempt that may say "not yet".
//!
//! An error that is made here does not name the port; the caller of this module adds the port's name.

use crossdock_layout::Status;

pub use crate::error::Error;
use crate::error::Reason;

/// The result of an attempt: done, not yet (`None`), or an error.
pub type Attempt<T> = Result<Option<T>, Error>;

/// Makes the error for shared memory with contents that no correct member writes.
#[cold]
pub(super) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::because(Status::Corrupt, Reason::Damaged(what.to_string()))
}
