//! Watches which processes open and close the files of folders. The kernel asks this process before each open, and
//! reports each close after writing. Only a process with the rights of root in the initial user namespace can do this.
//!
//! The kernel names a process by its process id, and the same id can belong to a new process after the first process
//! was reaped. But a process that waits for the answer to its open cannot end. So a pidfd that is made before the
//! answer surely belongs to the process that waits.

use crate::sys;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{OsError, OsResult};
use crate::process;

/// A set of watched folders and the events in them.
#[derive(Debug)]
pub struct OpenWatch(OwnedFd);

/// One open or one close of a file.
#[derive(Debug)]
pub struct OpenEvent {
    /// The file's inode number.
    pub inode: u64,
    /// The process that opens or closes the file; `None` if it no longer exists.
    pub process: Option<(i32, OwnedFd)>,
    /// The id of the process that opens or closes the file. It is given even if the process no longer exists.
    pub pid: i32,
    /// `true`: a file that was open for writing was closed. `false`: a process is opening a file.
    pub closed: bool,
}

impl OpenWatch {
    /// Makes a set without folders. Reading from its descriptor does not block.
    pub fn new() -> OsResult<Self> {
        let kind = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_QUEUE;
        let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
        // SAFETY: the call takes only numbers, and no pointers.
        let init = || unsafe { libc::fanotify_init(kind | libc::FAN_UNLIMITED_MARKS, files as libc::c_uint) };
        let fd = sys::raw("fanotify_init", init);
        if fd < 0 {
            return Err(OsError::last("fanotify_init", "a watch of opens"));
        }
        // SAFETY: the kernel has made the descriptor `fd` just now, and no other value owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Starts to watch the files of a folder, but not of the folders in it.
    pub fn add(&self, folder: &Path) -> OsResult<()> {
        let named = || folder.display().to_string();
        let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())
            .map_err(|_| OsError::new("fanotify_mark", named(), rustix::io::Errno::INVAL))?;
        let events = libc::FAN_OPEN_PERM | libc::FAN_CLOSE_WRITE | libc::FAN_EVENT_ON_CHILD;
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR;
        // SAFETY: the path is a terminated string that lives through the call.
        let mark = || unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, events, libc::AT_FDCWD, path.as_ptr()) };
        let answer = sys::raw("fanotify_mark", mark);
        if answer == 0 { Ok(()) } else { Err(OsError::last("fanotify_mark", named())) }
    }

    /// Gives all events that have arrived. If an event is an open, the function allows the open, so that the waiting
    /// process goes on.
    pub fn read(&self) -> Vec<OpenEvent> {
        let mut events = Vec::new();
        let mut buffer = [MaybeUninit::<libc::fanotify_event_metadata>::uninit(); 64];
        loop {
            // SAFETY: the kernel writes whole events into memory that is large enough and aligned for them.
            let length = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(&buffer)) };
            let count = usize::try_from(length).unwrap_or(0) / size_of::<libc::fanotify_event_metadata>();
            if count == 0 {
                return events;
            }
            for event in &buffer[..count] {
                // SAFETY: the kernel has written this event. An event of this watch consists only of this structure.
                let event = unsafe { event.assume_init_ref() };
                if event.fd < 0 {
                    continue;
                }
                // SAFETY: the kernel has opened the descriptor for this event, and the reader of the event must close
                // it.
                let file = unsafe { OwnedFd::from_raw_fd(event.fd) };
                let opens = event.mask & libc::FAN_OPEN_PERM != 0;
                let pidfd = process::open_pidfd(event.pid).ok().flatten();
                if opens {
                    let answer = libc::fanotify_response { fd: event.fd, response: libc::FAN_ALLOW };
                    // SAFETY: the call reads one whole `fanotify_response`. If the waiting process was killed, the
                    // call fails, which does no harm.
                    unsafe { libc::write(self.0.as_raw_fd(), (&raw const answer).cast(), size_of_val(&answer)) };
                }
                let Ok(stat) = rustix::fs::fstat(&file) else { continue };
                events.push(OpenEvent {
                    inode: stat.st_ino,
                    process: pidfd.map(|fd| (event.pid, fd)),
                    pid: event.pid,
                    closed: !opens,
                });
            }
        }
    }
}

impl AsFd for OpenWatch {
    /// The descriptor is readable while an event waits to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
