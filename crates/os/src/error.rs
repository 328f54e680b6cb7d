//! The error of a system call: the call, its object, and the kernel's answer.

use rustix::io::Errno;

/// A system call that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OsError {
    /// The name of the call in its manual page.
    pub call: &'static str,
    /// The object of the call: a path, a name, a size.
    pub object: String,
    /// The kernel's answer.
    pub errno: Errno,
}

/// The result of the functions of this crate.
pub type OsResult<T> = Result<T, OsError>;

impl OsError {
    /// Puts an error together.
    pub fn new(call: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self { call, object: object.into(), errno }
    }

    /// Does the kernel, or this file system, lack the call?
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno, Errno::OPNOTSUPP | Errno::NOSYS)
    }

    /// Does the thing that was to be made exist already?
    pub fn is_taken(&self) -> bool {
        self.errno == Errno::EXIST
    }

    /// Are there no descriptors left, here or on the whole node?
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self.errno, Errno::MFILE | Errno::NFILE)
    }

    /// Does nothing have this name?
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, Errno::NOENT | Errno::NOTDIR)
    }

    /// Would a file become larger than this process's limit (`ulimit -f`)?
    pub fn is_beyond_file_limit(&self) -> bool {
        self.errno == Errno::FBIG
    }

    /// Has this process or the node run out of something, so that the same call may succeed later?
    pub fn is_out_of_room(&self) -> bool {
        self.is_out_of_descriptors()
            || matches!(self.errno, Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC | Errno::NOLCK | Errno::DQUOT)
    }

    /// Does the kernel want the same call again (`EAGAIN`), as for a `fork` when there are too many processes?
    pub fn is_to_be_repeated(&self) -> bool {
        self.errno == Errno::AGAIN
    }

    /// Are too many descriptors in flight through sockets?
    pub fn is_too_many_in_flight(&self) -> bool {
        self.errno == Errno::TOOMANYREFS
    }

    /// Does a socket of another type than ours listen there?
    pub fn is_wrong_kind_of_socket(&self) -> bool {
        matches!(self.errno, Errno::PROTOTYPE | Errno::NOTSOCK)
    }

    /// The kernel's answer as the standard library's error.
    pub fn reason(&self) -> std::io::Error {
        self.errno.into()
    }

    /// The error of the libc call that has just failed on this thread.
    pub fn last(call: &'static str, object: impl Into<String>) -> Self {
        let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Self::new(call, object, Errno::from_raw_os_error(raw))
    }
}

impl std::fmt::Display for OsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = std::io::Error::from(self.errno);
        write!(f, "{} of {} failed: {words}", self.call, self.object)
    }
}

impl std::error::Error for OsError {}

/// Adds to an error of rustix the name of the system call and the object that it was about.
pub trait Context<T> {
    /// Names the call and what it was about.
    fn context(self, call: &'static str, object: impl FnOnce() -> String) -> OsResult<T>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn context(self, call: &'static str, object: impl FnOnce() -> String) -> OsResult<T> {
        self.map_err(|errno| OsError::new(call, object(), errno))
    }
}
