//! Proves by a lease of the kernel that no other process has a file open or mapped.
//!
//! The kernel grants a write lease on a tmpfs file only if the file has no other open file description, and a read
//! lease only if no process has it open for writing. A mapping counts as long as it exists, also after its descriptor
//! is closed. A descriptor that was sent through a socket and not received yet counts too, and so does a child's copy
//! of a mapping. Leases on memfds are no proof, because the memfd's first description is not counted.
//!
//! The proof holds at the moment of the grant, and for as long as no process can open the file anew. So the process
//! that asks for the lease must have the only way to open the file: a directory that no other process reaches. This
//! process keeps only one open file description of the file, and asks through it.

use crate::error::{OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the grant of a lease proves about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// No other process has the file open or mapped.
    Alone,
    /// No process has the file open or mapped for writing. The descriptor that is used for the proof must be read-only.
    NoWriter,
}

/// Takes the lease and gives it back at once. Gives `false` if another process still has the file open or mapped.
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

/// A held lease. Dropping it gives the lease back.
#[derive(Debug)]
pub struct Lease<'a>(BorrowedFd<'a>);

/// Takes the lease and keeps it. An open that would break the proof waits in the kernel while the lease is held, at
/// most for the number of seconds in `/proc/sys/fs/lease-break-time`. Gives `None` if another process still has the
/// file open or mapped.
pub fn hold<'a>(file: &'a impl AsFd, proof: Proof) -> OsResult<Option<Lease<'a>>> {
    let file = file.as_fd();
    let kind = match proof {
        Proof::Alone => libc::F_WRLCK,
        Proof::NoWriter => libc::F_RDLCK,
    };
    survive_breaking();
    match set_lease(file, kind) {
        Ok(()) => Ok(Some(Lease(file))),
        Err(error) if error.errno == Errno::AGAIN => Ok(None),
        Err(error) => Err(error),
    }
}

/// Installs a handler for SIGIO that does nothing. The kernel sends SIGIO to the holder when an open breaks its lease,
/// and by default the signal ends the process. The function does not set the signal to "ignore", because programs that
/// this process starts would inherit that; they do not inherit a handler.
fn survive_breaking() {
    extern "C" fn nothing(_: libc::c_int) {}
    // A `Once` is not used here, because a forked child could find the lock of the `Once` held. It does no harm if two
    // threads install the handler.
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the structures live through the calls; the handler of this module does nothing. If the process has
    // installed a handler already, that handler is left in place.
    unsafe {
        let mut present = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGIO, std::ptr::null(), &raw mut present) == 0
            && present.sa_sigaction == libc::SIG_DFL
        {
            let mut quiet = std::mem::zeroed::<libc::sigaction>();
            quiet.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            quiet.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGIO, &raw const quiet, std::ptr::null_mut());
        }
    }
    DONE.store(true, Ordering::Release);
}

impl Lease<'_> {
    /// Tells whether an open in another process waits for the end of this lease.
    pub fn is_being_broken(&self) -> bool {
        // SAFETY: F_GETLEASE takes no argument and touches no memory of ours.
        let kind = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) };
        kind == libc::F_UNLCK
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Giving the lease back cannot fail, unless the kernel has taken it back already.
        let _ = set_lease(self.0, libc::F_UNLCK);
    }
}

fn set_lease(file: BorrowedFd<'_>, kind: i32) -> OsResult<()> {
    // SAFETY: F_SETLEASE takes an int and touches no memory of ours.
    let set = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    // Giving a lease back needs no resources. So tests never make it fail.
    let answer = if kind == libc::F_UNLCK { set() } else { sys::raw("F_SETLEASE", set) };
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
    fn an_open_for_writing_waits_for_a_held_lease_and_shows_as_its_breaking() {
        let file = folder().create("test", 4096).unwrap();
        let tester = crate::tmpfs::open_anew(&file, Access::Read).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert!(hold(&tester, Proof::NoWriter).unwrap().is_none(), "the first description is a writer");
        // This path descriptor does not count as a writer. So the lease is granted below, although the descriptor is
        // open.
        let name = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        drop(file);
        let held = hold(&tester, Proof::NoWriter).unwrap().unwrap();
        assert!(!held.is_being_broken());
        let path = format!("/proc/self/fd/{}", name.as_raw_fd());
        let writer = std::thread::spawn(move || {
            // The kernel sends SIGIO to the holder of the lease when this open breaks it.
            std::fs::OpenOptions::new().write(true).open(path).map(drop)
        });
        let deadline = crate::Deadline::after(std::time::Duration::from_secs(10));
        while !held.is_being_broken() && !deadline.passed() {
            std::thread::yield_now();
        }
        assert!(held.is_being_broken());
        drop(held);
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn no_writer_is_proved_with_readers_and_not_with_a_writer() {
        let file = folder().create("test", 4096).unwrap();
        let tester = crate::tmpfs::open_anew(&file, Access::Read).unwrap();
        let reader = crate::tmpfs::open_anew(&file, Access::Read).unwrap();
        assert!(!prove(&tester, Proof::NoWriter).unwrap(), "the first description is a writer");
        drop(file);
        assert!(prove(&tester, Proof::NoWriter).unwrap());
        drop(reader);
    }
}
