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
use rustix::io::Errno;

use crate::error::{Context, OsError, OsResult};

type Metadata = libc::fanotify_event_metadata;

/// A set of watched folders and the events in them.
#[derive(Debug)]
pub struct OpenWatch(OwnedFd);

/// One open or one close of a file. If it is an open, the process waits until this value is dropped. Then the open goes
/// on.
#[derive(Debug)]
pub struct OpenEvent<'a> {
    watch: &'a OpenWatch,
    /// The file, opened for reading.
    file: OwnedFd,
    /// The id of the process that opens or closes the file. After a close, the process may no longer exist.
    pub pid: i32,
    /// `true`: a file that was open for writing was closed. `false`: a process is opening a file.
    pub closed: bool,
}

impl OpenEvent<'_> {
    /// The file's inode number.
    pub fn inode(&self) -> OsResult<u64> {
        rustix::fs::fstat(&self.file).map(|stat| stat.st_ino).context("fstat", || "a file of an event".into())
    }
}

impl Drop for OpenEvent<'_> {
    fn drop(&mut self) {
        if !self.closed {
            let answer = libc::fanotify_response { fd: self.file.as_raw_fd(), response: libc::FAN_ALLOW };
            // SAFETY: the call reads one whole `fanotify_response`. If the waiting process was killed, the call fails,
            // which does no harm.
            unsafe { libc::write(self.watch.0.as_raw_fd(), (&raw const answer).cast(), size_of_val(&answer)) };
        }
    }
}

impl From<OwnedFd> for OpenWatch {
    /// Takes a copy of the descriptor of another [`OpenWatch`].
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
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

    /// How many events wait to be read.
    pub fn waiting(&self) -> usize {
        let bytes = rustix::io::ioctl_fionread(&self.0).unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Metadata>()
    }

    /// Gives the oldest event that waits; `None` if no event waits.
    ///
    /// # Errors
    /// The kernel could not open the file of the event, for example because descriptors are short. The kernel has
    /// dropped the event: if it was a close, no event tells of it any more; if it was an open, the open has failed.
    /// The kernel tells this only for the first event of a read, so this function reads one event at a time.
    pub fn next_event(&self) -> OsResult<Option<OpenEvent<'_>>> {
        let mut event = MaybeUninit::<Metadata>::uninit();
        loop {
            // SAFETY: the kernel writes at most one whole event into memory that is large enough and aligned for it.
            let read = || unsafe { libc::read(self.0.as_raw_fd(), event.as_mut_ptr().cast(), size_of::<Metadata>()) };
            let length = sys::raw("fanotify_read", read);
            if length > 0 {
                break;
            }
            let error = OsError::last("read", "a watch of opens");
            match error.errno {
                _ if length == 0 => return Ok(None),
                Errno::AGAIN => return Ok(None),
                Errno::INTR => {}
                _ => return Err(error),
            }
        }
        // SAFETY: the kernel has written this event. An event of this watch consists only of this structure.
        let event = unsafe { event.assume_init() };
        if event.fd < 0 {
            return Err(OsError::new("read", "a watch of opens", Errno::OVERFLOW));
        }
        // SAFETY: the kernel has opened the descriptor for this event, and the reader of the event must close it.
        let file = unsafe { OwnedFd::from_raw_fd(event.fd) };
        let closed = event.mask & libc::FAN_OPEN_PERM == 0;
        Ok(Some(OpenEvent { watch: self, file, pid: event.pid, closed }))
    }
}

impl AsFd for OpenWatch {
    /// The descriptor is readable while an event waits to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::until;
    use std::collections::{HashMap, HashSet};

    /// Makes a folder with `count` files, and opens these files for writing.
    fn opened(name: &str, count: usize) -> (std::path::PathBuf, Vec<std::fs::File>) {
        let folder = std::env::temp_dir().join(format!("crossdock-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let files = (0..count).map(|n| std::fs::File::create(folder.join(n.to_string())).unwrap()).collect();
        (folder, files)
    }

    #[test]
    fn each_call_gives_one_event_of_a_long_queue_and_needs_one_descriptor() {
        let Ok(watch) = OpenWatch::new() else { return crate::testing::skip("known-writers") };
        let (folder, files) = opened("queue", 300);
        watch.add(&folder).unwrap();
        drop(files);
        // Another test may have forked just now. Its child has copies of the descriptors until the child execs.
        until("all closes wait", || watch.waiting() == 300);
        let mut inodes = HashSet::new();
        for left in (0..300).rev() {
            let event = watch.next_event().unwrap().unwrap();
            assert!(event.closed);
            assert_eq!(watch.waiting(), left);
            inodes.insert(event.inode().unwrap());
        }
        assert!(watch.next_event().unwrap().is_none());
        assert_eq!(inodes.len(), 300);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn each_open_is_answered_once_although_several_processes_open_files_all_the_time() {
        let Ok(watch) = OpenWatch::new() else { return crate::testing::skip("known-writers") };
        let (folder, files) = opened("openers", 1);
        drop(files);
        watch.add(&folder).unwrap();
        let script = "i=0; while [ $i -lt 1000 ]; do : < 0; i=$((i+1)); done";
        let open = || std::process::Command::new("sh").args(["-c", script]).current_dir(&folder).spawn().unwrap();
        let mut openers: Vec<_> = (0..4).map(|_| open()).collect();
        let mut opens: HashMap<i32, usize> = HashMap::new();
        while openers.iter_mut().any(|opener| opener.try_wait().unwrap().is_none()) {
            while let Some(event) = watch.next_event().unwrap() {
                *opens.entry(event.pid).or_default() += usize::from(!event.closed);
            }
        }
        for mut opener in openers {
            assert!(opener.wait().unwrap().success());
            assert_eq!(opens[&(opener.id() as i32)], 1000);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
