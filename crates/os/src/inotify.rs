//! Events of folders: a file in the folder was closed after writing, renamed, made or removed.
//!
//! An event is only a hint. It can come late or twice, or the file may have changed again since. The caller looks at
//! the file itself before it acts. If events were lost, the caller gets [`NameChange::Overflow`] and looks at all files.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use crate::sys::{self, fs::inotify};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::error::{Context, OsError, OsResult};

/// The size of the buffer into which the kernel writes events, in bytes.
const BUFFER: usize = 16 << 10;
/// The largest size of one event, in bytes: 16 bytes and a name of at most 255 bytes, which is filled up.
const EVENT_MAX: usize = 16 + 256;

/// Watches folders. Each folder has a number, and each event carries the number of its folder.
#[derive(Debug)]
pub struct FolderWatch(OwnedFd);

/// What happened to one name in a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameChange {
    /// A file that was open for writing was closed.
    Closed,
    /// The name appeared by a rename.
    Arrived,
    /// The name disappeared by a rename.
    Left,
    /// A file or folder of this name was made.
    Made,
    /// The name was removed.
    Removed,
    /// A file that was open for reading only was closed. Only folders of [`FolderWatch::add_reads`] give this event.
    Read,
    /// Events were lost. The caller must look at all files.
    Overflow,
}

/// One event of a watched folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FolderEvent {
    /// The number of the folder, as [`FolderWatch::add`] returned it.
    pub folder: i32,
    /// What happened to the file.
    pub change: NameChange,
    /// The name of the file in the folder.
    pub name: OsString,
    /// True if the name belongs to a folder and not to a file.
    pub is_folder: bool,
}

impl FolderWatch {
    /// Makes a watch that watches no folder yet. Reading from it does not block.
    pub fn new() -> OsResult<Self> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .context("inotify_init1", || "a watch of folders".into())
            .map(Self)
    }

    /// Starts to watch a folder, but not the folders in it.
    pub fn add(&self, folder: &Path) -> OsResult<i32> {
        let events = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        inotify::add_watch(&self.0, folder, events).context("inotify_add_watch", || folder.display().to_string())
    }

    /// Starts to watch a folder only for files that are closed after reading.
    pub fn add_reads(&self, folder: &Path) -> OsResult<i32> {
        let events = WatchFlags::CLOSE_NOWRITE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        inotify::add_watch(&self.0, folder, events).context("inotify_add_watch", || folder.display().to_string())
    }

    /// Gives all events that had arrived before the call, without waiting. It can give some later events too. If more
    /// events arrive during the call, the descriptor stays readable, so that the call ends although programs go on
    /// changing the folder.
    ///
    /// # Errors
    /// The kernel cannot give the events, for example for lack of memory. The call may have taken events from the
    /// kernel's queue, so the caller must look at all files when a later call succeeds.
    pub fn read(&self) -> OsResult<Vec<FolderEvent>> {
        let waiting = rustix::io::ioctl_fionread(&self.0).context("FIONREAD", || "a watch of folders".into())?;
        self.read_waiting(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    /// Gives at least the events that are the next `waiting` bytes of the kernel's queue.
    fn read_waiting(&self, waiting: usize) -> OsResult<Vec<FolderEvent>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        // The kernel writes as many whole events as fit. So each buffer but the last one has at most `EVENT_MAX` bytes
        // left.
        let mut buffers = waiting.div_ceil(BUFFER - EVENT_MAX);
        loop {
            if reader.is_buffer_empty() {
                if buffers == 0 {
                    return Ok(events);
                }
                buffers -= 1;
                let planned = sys::plan("inotify_read");
                let errno = planned.err().map(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
                errno.map_or(Ok(()), |errno| Err(OsError::new("read", "a watch of folders", errno)))?;
            }
            match reader.next() {
                Ok(event) => {
                    let flags = event.events();
                    let change = match () {
                        () if flags.contains(ReadFlags::QUEUE_OVERFLOW) => NameChange::Overflow,
                        () if flags.contains(ReadFlags::CLOSE_WRITE) => NameChange::Closed,
                        () if flags.contains(ReadFlags::CLOSE_NOWRITE) => NameChange::Read,
                        () if flags.contains(ReadFlags::MOVED_TO) => NameChange::Arrived,
                        () if flags.contains(ReadFlags::MOVED_FROM) => NameChange::Left,
                        () if flags.contains(ReadFlags::CREATE) => NameChange::Made,
                        () if flags.contains(ReadFlags::DELETE) => NameChange::Removed,
                        () => continue,
                    };
                    let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                    events.push(FolderEvent {
                        folder: event.wd(),
                        change,
                        name: OsString::from_vec(name),
                        is_folder: flags.contains(ReadFlags::ISDIR),
                    });
                }
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => buffers += 1,
                Err(errno) => return Err(OsError::new("read", "a watch of folders", errno)),
            }
        }
    }
}

impl AsFd for FolderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_after_writing_and_a_rename_are_told_with_their_names() {
        let folder = std::env::temp_dir().join(format!("crossdock-watch-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let watch = FolderWatch::new().unwrap();
        let number = watch.add(&folder).unwrap();
        assert_eq!(watch.read().unwrap(), []);
        std::fs::write(folder.join("one"), "1").unwrap();
        std::fs::rename(folder.join("one"), folder.join("two")).unwrap();
        let events = watch.read().unwrap();
        let changes: Vec<_> = events.iter().map(|e| (e.change, e.name.to_str().unwrap())).collect();
        assert_eq!(
            changes,
            [
                (NameChange::Made, "one"),
                (NameChange::Closed, "one"),
                (NameChange::Left, "one"),
                (NameChange::Arrived, "two")
            ]
        );
        assert!(events.iter().all(|e| e.folder == number && !e.is_folder));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_call_gives_all_events_that_waited_and_ends_although_events_come() {
        let folder = std::env::temp_dir().join(format!("crossdock-many-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let watch = FolderWatch::new().unwrap();
        watch.add(&folder).unwrap();
        let long = "n".repeat(200);
        let make = |n: usize| std::fs::create_dir(folder.join(format!("{long}{n}"))).unwrap();
        (0..500).for_each(make);
        let waiting = usize::try_from(rustix::io::ioctl_fionread(&watch.0).unwrap()).unwrap();
        // These events arrive after the number of waiting bytes is known, as during a call.
        (500..1500).for_each(make);
        let first = watch.read_waiting(waiting).unwrap().len();
        assert!((500..700).contains(&first), "{first} events");
        assert_eq!(first + watch.read().unwrap().len(), 1500);
        assert_eq!(watch.read().unwrap(), []);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
