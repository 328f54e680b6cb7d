//! The one error of this crate's regions: a status, and a sentence for people.

use crossdock_layout::Status;

/// What went wrong. Programs look at `status`, people read `message`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What kind.
    pub status: Status,
    /// Object, what happened, who was involved, and the mend.
    pub message: String,
}

/// What the fast calls return: it fits into two registers.
pub type Quick<T> = std::result::Result<T, Box<Error>>;

impl From<Box<Error>> for Error {
    #[cold]
    fn from(error: Box<Error>) -> Self {
        *error
    }
}

/// What this crate's regions return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind.
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// What kind of error this system call's failure is: a lack of descriptors, memory or space is the caller's to end.
#[cold]
pub fn status_of(error: &crossdock_os::OsError) -> Status {
    if error.is_out_of_room() { Status::NoSpace } else { Status::System }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {}
