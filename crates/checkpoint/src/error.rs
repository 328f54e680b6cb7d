//! A closed status, and a sentence that names file, reason and hint: the same shape as the library's own.

use std::io;
use std::path::Path;

use crossdock_layout::Status;

/// What went wrong. Programs look at `status`, people read `message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// `CORRUPT` for a damaged file, `NO_SPACE` for a full disk, …
    pub status: Status,
    /// Which file, what, and what to do.
    pub message: String,
}

/// What every operation here gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// A file that is not what was written.
    pub(crate) fn damaged(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::new(Status::Corrupt, format!("{} is damaged: {why}", path.display()))
    }

    /// The system's refusal, with the hint for the usual reasons.
    pub(crate) fn system(path: &Path, tried: &str, reason: &io::Error) -> Self {
        let (status, hint) = match reason.kind() {
            io::ErrorKind::NotFound => (Status::NotFound, "; is the folder still there?"),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (Status::Denied, "; choose a folder that this user may write, or mount it with `write: true`")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                (Status::NoSpace, "; make room, keep fewer checkpoints, or choose another disk")
            }
            _ => (Status::System, ""),
        };
        Self::new(status, format!("{tried} {}: {reason}{hint}", path.display()))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
