//! The library's error type, and functions that make errors about files. Each error names the file, the reason and a
//! hint.

use std::io;
use std::path::Path;

pub use crossdock_core::{Error, Result};
use crossdock_layout::Status;

/// Makes the error for a file whose bytes have changed since it was written.
pub(crate) fn damaged(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Status::Corrupt, format!("{} is damaged: {why}", path.display()))
}

/// Makes the error for a system call that failed. If the reason is a common one, the error contains a hint.
pub(crate) fn refused(path: &Path, tried: &str, reason: &io::Error) -> Error {
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
    Error::new(status, format!("{tried} {}: {reason}{hint}", path.display()))
}
