//! A descriptor that the program may close without our knowledge.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::error::{OsError, OsResult};
use crate::file;

/// True once a descriptor of this library was found closed by the program.
static IN_DOUBT: AtomicBool = AtomicBool::new(false);

/// Notes that the program has closed a descriptor of this library, so that others may be closed, too.
pub(crate) fn note_closed() {
    IN_DOUBT.store(true, Ordering::Relaxed);
}

/// A file whose descriptor the program may close without our knowledge, for example by `closefrom`. The number of the
/// descriptor may then belong to another file of the program. The value remembers the file's device and inode number.
/// So it can prove that the descriptor still leads to the file, before it is used, or closed.
///
/// All clones share one descriptor. Another thread of the program may close it between the proof and the use. Against
/// that nothing helps.
#[derive(Clone, Debug)]
pub struct OwnFile(Arc<Descriptor>);

#[derive(Debug)]
struct Descriptor {
    fd: ManuallyDrop<OwnedFd>,
    /// The file's device and inode number. `None` if they are not known; then nothing can be proved, and the descriptor
    /// counts as ours.
    identity: Option<(u64, u64)>,
}

impl OwnFile {
    /// Takes over a descriptor that is closed soon, so that a system call to remember its file would be wasted.
    #[must_use]
    pub fn short_lived(fd: OwnedFd) -> Self {
        Self(Arc::new(Descriptor { fd: ManuallyDrop::new(fd), identity: None }))
    }

    /// Tells whether the descriptor still leads to the file. The answer costs one system call.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.0.is_ours()
    }

    /// Gives the descriptor, for a call that changes the file, maps it or passes it on.
    ///
    /// # Errors
    /// `EBADF` if the program has closed the descriptor.
    pub fn proved(&self) -> OsResult<BorrowedFd<'_>> {
        match self.is_ours() {
            true => Ok(self.as_fd()),
            false => {
                Err(OsError::new("fstat", "a descriptor of crossdock, which this program has closed", Errno::BADF))
            }
        }
    }

    /// Gives the descriptor, for a call that is made often. Proves only if the program is known to have closed a
    /// descriptor of this library. A thread that watches a socket learns this a moment after a `closefrom`.
    ///
    /// # Errors
    /// `EBADF` if the program has closed the descriptor.
    pub fn proved_if_in_doubt(&self) -> OsResult<BorrowedFd<'_>> {
        if IN_DOUBT.load(Ordering::Relaxed) { self.proved() } else { Ok(self.as_fd()) }
    }

    /// Tells whether both values share one descriptor.
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Descriptor {
    fn is_ours(&self) -> bool {
        let is_ours = self.identity.is_none() || file::identity(self.fd.as_raw_fd()).ok() == self.identity;
        if !is_ours {
            note_closed();
        }
        is_ours
    }
}

/// Takes over a descriptor that was made just now, and remembers its file.
impl From<OwnedFd> for OwnFile {
    fn from(fd: OwnedFd) -> Self {
        let identity = file::identity(fd.as_raw_fd()).ok();
        Self(Arc::new(Descriptor { fd: ManuallyDrop::new(fd), identity }))
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the descriptor is dropped only here, and the value is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fd::FromRawFd;

    use super::*;
    use crate::memfd;

    #[test]
    fn a_file_whose_number_belongs_to_another_file_is_neither_used_nor_closed() {
        let own = OwnFile::from(memfd::create("crossdock-test", 4096).unwrap());
        assert!(own.is_ours() && own.proved().is_ok());
        let other = memfd::create("crossdock-test", 8192).unwrap();
        let number = own.as_fd().as_raw_fd();
        // SAFETY: the call replaces what the number leads to; both descriptors are open.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), number) } >= 0);
        assert!(!own.is_ours());
        assert!(own.proved_if_in_doubt().is_err());
        assert!(own.proved().unwrap_err().to_string().contains("this program has closed"));
        drop(own);
        // SAFETY: the number belongs to the copy of `other`, which no other value owns.
        let kept = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(number) });
        assert_eq!(kept.metadata().unwrap().ino(), rustix::fs::fstat(&other).unwrap().st_ino);
    }

    #[test]
    fn a_file_that_still_has_its_number_is_closed() {
        for own in [OwnFile::from, OwnFile::short_lived] {
            let (read, write) = crate::pipe::pipe().unwrap();
            drop(own(write));
            let mut byte = [0];
            assert!(matches!(crate::pipe::read(&read, &mut byte), Ok(None | Some(0))));
        }
    }
}
