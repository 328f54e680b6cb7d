//! Proof by lease: does anybody else have this file open or mapped?
//!
//! The kernel grants a write lease on a tmpfs file only if there is no other open file description of it, and a read
//! lease only if nobody has it open for writing. A mapping counts as long as it stands, whoever closed its descriptor; so
//! do a descriptor in flight in a socket and a child's copy of a mapping. Not on memfds: their own description is not
//! counted, so the answer would be wrong.
//!
//! The proof holds at the moment of the grant and as long as nobody can open the file anew. So the asker keeps the only
//! way to open it (a directory that nobody else reaches) and asks on the one description that it keeps.

use crate::error::{OsError, OsResult};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// What is to be proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Nobody else has the file open or mapped.
    Alone,
    /// Nobody has it open or mapped for writing. The asker's own description must be read-only.
    NoWriter,
}

/// Asks the kernel for the proof, and gives the lease back at once. `false`: somebody clings to it.
pub fn prove(file: impl AsFd, proof: Proof) -> OsResult<bool> {
    let file = file.as_fd();
    let kind = match proof {
        Proof::Alone => libc::F_WRLCK,
        Proof::NoWriter => libc::F_RDLCK,
    };
    match set_lease(file, kind) {
        Ok(()) => {
            set_lease(file, libc::F_UNLCK)?;
            Ok(true)
        }
        Err(error) if error.errno == Errno::AGAIN => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_lease(file: BorrowedFd<'_>, kind: i32) -> OsResult<()> {
    // SAFETY: F_SETLEASE takes an int and touches no memory of ours.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if answer == 0 { Ok(()) } else { Err(OsError::last("F_SETLEASE", "a segment's file")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmpfs::Folder;
    use crate::{Access, Mapping};

    fn folder() -> Folder {
        Folder::shared_memory().expect("tests need /dev/shm")
    }

    #[test]
    fn alone_is_proved_only_when_no_other_description_and_no_mapping_is_left() {
        let file = folder().create("test", 4096).unwrap();
        assert!(prove(&file, Proof::Alone).unwrap());
        let second = crate::tmpfs::open_anew(&file, Access::ReadWrite).unwrap();
        assert!(!prove(&file, Proof::Alone).unwrap(), "a second description");
        let mapping = Mapping::new(&second, 4096, Access::Read).unwrap();
        drop(second);
        assert!(!prove(&file, Proof::Alone).unwrap(), "a mapping whose descriptor is closed");
        drop(mapping);
        assert!(prove(&file, Proof::Alone).unwrap());
    }

    #[test]
    fn a_descriptor_in_flight_counts() {
        let file = folder().create("test", 4096).unwrap();
        let (one, other) = crate::socket::pair().unwrap();
        let sent = crate::tmpfs::open_anew(&file, Access::ReadWrite).unwrap();
        crate::socket::send(&one, b"x", &[sent.as_fd()]).unwrap();
        drop(sent);
        assert!(!prove(&file, Proof::Alone).unwrap());
        drop((one, other));
        assert!(prove(&file, Proof::Alone).unwrap());
    }

    #[test]
    fn no_writer_is_proved_with_readers_and_not_with_a_writer() {
        let file = folder().create("test", 4096).unwrap();
        let asker = crate::tmpfs::open_anew(&file, Access::Read).unwrap();
        let reader = crate::tmpfs::open_anew(&file, Access::Read).unwrap();
        assert!(!prove(&asker, Proof::NoWriter).unwrap(), "the first description is a writer");
        drop(file);
        assert!(prove(&asker, Proof::NoWriter).unwrap());
        drop(reader);
    }
}
