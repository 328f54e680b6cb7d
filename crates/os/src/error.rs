//! The error of a failed system call: the name of the call, the object, and the error number.

use rustix::io::Errno;

/// A system call that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OsError {
    /// The name of the call, as in its manual page.
    pub call: &'static str,
    /// What the call was about: a path, a name or a size.
    pub object: String,
    /// The error number that the kernel returned.
    pub errno: Errno,
}

/// The result of the functions of this crate.
pub type OsResult<T> = Result<T, OsError>;

impl OsError {
    /// Makes an error from the call's name, its object and the error number.
    pub fn new(call: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self { call, object: object.into(), errno }
    }

    /// Tells whether the kernel or the file system does not have this call.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno, Errno::OPNOTSUPP | Errno::NOSYS)
    }

    /// Tells whether the kernel does not have this call or the asked kind of it, or does not permit it to this process.
    /// The same call fails in the same way later.
    pub fn is_refused(&self) -> bool {
        self.is_unsupported() || matches!(self.errno, Errno::PERM | Errno::INVAL)
    }

    /// Tells whether the file's mode does not allow the call to this process.
    pub fn is_forbidden(&self) -> bool {
        self.errno == Errno::ACCESS
    }

    /// Tells whether the call failed because the new object's name exists already.
    pub fn is_taken(&self) -> bool {
        self.errno == Errno::EXIST
    }

    /// Tells whether this process or the whole node has no free descriptors.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self.errno, Errno::MFILE | Errno::NFILE)
    }

    /// Tells whether the call failed because no object has this name.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, Errno::NOENT | Errno::NOTDIR)
    }

    /// Tells whether the call failed because a file would exceed this process's limit (`ulimit -f`).
    pub fn is_beyond_file_limit(&self) -> bool {
        self.errno == Errno::FBIG
    }

    /// Tells whether this process or the node has run out of a resource. The same call may succeed later.
    pub fn is_out_of_room(&self) -> bool {
        self.is_out_of_descriptors()
            || matches!(self.errno, Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC | Errno::NOLCK | Errno::DQUOT)
    }

    /// Tells whether the caller should repeat the call (`EAGAIN`). For example, `fork` fails like this when there are
    /// too many processes.
    pub fn is_to_be_repeated(&self) -> bool {
        self.errno == Errno::AGAIN
    }

    /// Tells whether the call failed because too many descriptors were sent through sockets and not received yet.
    pub fn is_too_many_in_flight(&self) -> bool {
        self.errno == Errno::TOOMANYREFS
    }

    /// Tells whether `connect` failed because the file at the path is a socket of another type, or is no socket. The
    /// answer is `false` if there is no file at the path.
    pub fn is_wrong_kind_of_socket(&self) -> bool {
        matches!(self.errno, Errno::PROTOTYPE | Errno::NOTSOCK)
    }

    /// The kernel's error number as an error of the standard library.
    pub fn reason(&self) -> std::io::Error {
        self.errno.into()
    }

    /// Makes an error from `errno`, right after a call of the C library failed on this thread.
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

/// An error of the standard library with the same kind, and with the text of [`OsError`].
impl From<OsError> for std::io::Error {
    fn from(error: OsError) -> Self {
        Self::new(error.reason().kind(), error.to_string())
    }
}

/// Adds the name of the system call and its object to an error of `rustix`.
pub trait Context<T> {
    /// Adds the name of the call, and the object that the call was about, to the error.
    fn context(self, call: &'static str, object: impl FnOnce() -> String) -> OsResult<T>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn context(self, call: &'static str, object: impl FnOnce() -> String) -> OsResult<T> {
        self.map_err(|errno| OsError::new(call, object(), errno))
    }
}
