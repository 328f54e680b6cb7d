//! Watches which processes open and close the files of folders. The kernel asks this process before each open, and
//! reports each close after writing. Only a process with the rights of root in the initial user namespace can do this.
//!
//! The kernel names a process by its process id, and the same id can belong to a new process after the first process
//! was reaped. But a process that waits for the answer to its open cannot end. So a pidfd that is made before the
//! answer surely belongs to the process that waits.

use crate::sys;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{OsError, OsResult};
use crate::process;

/// How many buffers of events one call of [`OpenWatch::read`] takes from the kernel at most. Each answer lets a program
/// go on, and the program can make the next event at once. Without this bound, a call would not end while programs open
/// files, and would keep a descriptor for each event.
const BATCHES: usize = 4;
/// How many events fit into one buffer. The kernel opens a descriptor for each of them.
const BUFFER: usize = 64;
type Metadata = libc::fanotify_event_metadata;

/// A set of watched folders and the events in them.
#[derive(Debug)]
pub struct OpenWatch(OwnedFd);

/// One open or one close of a file.
#[derive(Debug)]
pub struct OpenEvent {
    /// The file's inode number.
    pub inode: u64,
    /// A descriptor of the process that opens or closes the file; `None` if the process no longer exists. The events of
    /// a process that one call of [`OpenWatch::read`] gives share one descriptor.
    pub process: Option<Arc<OwnedFd>>,
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

    /// How many events wait to be read.
    pub fn waiting(&self) -> usize {
        let bytes = rustix::io::ioctl_fionread(&self.0).unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Metadata>()
    }

    /// Gives the oldest events that wait, and the number of events that it has taken from the kernel: a file can be
    /// unknown, so the number can be larger than that of the events given. One call takes at most 256 events. If more
    /// wait, the descriptor stays readable. If an event is an open, the function allows the open, so that the waiting
    /// process goes on.
    pub fn read(&self) -> (Vec<OpenEvent>, usize) {
        let (mut events, mut taken) = (Vec::new(), 0);
        let mut processes: HashMap<i32, Arc<OwnedFd>> = HashMap::new();
        let mut buffer = [MaybeUninit::<Metadata>::uninit(); BUFFER];
        for _ in 0..BATCHES {
            // SAFETY: the kernel writes whole events into memory that is large enough and aligned for them.
            let length = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(&buffer)) };
            let count = usize::try_from(length).unwrap_or(0) / size_of::<Metadata>();
            if count == 0 {
                break;
            }
            taken += count;
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
                // A process that waits for the answer to its open lives. So if the process of the descriptor is dead,
                // another process has its number now.
                if opens && processes.get(&event.pid).is_some_and(process::is_dead) {
                    processes.remove(&event.pid);
                }
                if !processes.contains_key(&event.pid) {
                    let opened = process::open_pidfd(event.pid).ok().flatten();
                    processes.extend(opened.map(|pidfd| (event.pid, Arc::new(pidfd))));
                }
                if opens {
                    let answer = libc::fanotify_response { fd: event.fd, response: libc::FAN_ALLOW };
                    // SAFETY: the call reads one whole `fanotify_response`. If the waiting process was killed, the
                    // call fails, which does no harm.
                    unsafe { libc::write(self.0.as_raw_fd(), (&raw const answer).cast(), size_of_val(&answer)) };
                }
                let Ok(stat) = rustix::fs::fstat(&file) else { continue };
                events.push(OpenEvent {
                    inode: stat.st_ino,
                    process: processes.get(&event.pid).cloned(),
                    pid: event.pid,
                    closed: !opens,
                });
            }
        }
        (events, taken)
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
    use std::collections::HashSet;

    /// Makes a folder with `count` files, and opens these files for writing.
    fn opened(name: &str, count: usize) -> (std::path::PathBuf, Vec<std::fs::File>) {
        let folder = std::env::temp_dir().join(format!("crossdock-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let files = (0..count).map(|n| std::fs::File::create(folder.join(n.to_string())).unwrap()).collect();
        (folder, files)
    }

    #[test]
    fn a_call_takes_a_part_of_a_long_queue_with_one_descriptor_for_each_process() {
        let Ok(watch) = OpenWatch::new() else { return crate::testing::skip("known-writers") };
        let (folder, files) = opened("queue", 300);
        watch.add(&folder).unwrap();
        drop(files);
        // Another test may have forked just now. Its child has copies of the descriptors until the child execs.
        until("all closes wait", || watch.waiting() == 300);
        let mut inodes = HashSet::new();
        for expected in [256, 44, 0] {
            let is_readable = crate::event::wait_readable(&watch, crate::Deadline::after(std::time::Duration::ZERO));
            assert_eq!(is_readable.unwrap(), expected > 0, "the descriptor is readable while events wait");
            let (events, taken) = watch.read();
            assert_eq!((events.len(), taken), (expected, expected));
            let pids: HashSet<_> = events.iter().map(|e| e.pid).collect();
            let pidfds: HashSet<_> = events.iter().filter_map(|e| e.process.as_ref()).map(Arc::as_ptr).collect();
            assert!(pidfds.len() <= pids.len(), "{} descriptors for {} processes", pidfds.len(), pids.len());
            inodes.extend(events.iter().map(|e| e.inode));
        }
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
            let (events, taken) = watch.read();
            assert!(taken <= BATCHES * BUFFER, "{taken} events in one call");
            for event in events.iter().filter(|e| !e.closed) {
                *opens.entry(event.pid).or_default() += 1;
            }
        }
        for mut opener in openers {
            assert!(opener.wait().unwrap().success());
            assert_eq!(opens[&(opener.id() as i32)], 1000);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
