//! The one error of the library: a closed status, and a sentence that names object, place and mend.

use crossdock_layout::Status;

/// What went wrong. Programs look at `status`, people read `message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// One of a short, closed list; the same numbers in every language.
    pub status: Status,
    /// Object, what happened, who was involved, and what to do about it.
    pub message: String,
}

/// What every operation of the library gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this status and message.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The kernel refused something: says what was tried on what, and the kernel's reason.
    pub fn system(what: impl std::fmt::Display, reason: &std::io::Error) -> Self {
        Self::new(Status::System, format!("{what}: {reason}"))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
