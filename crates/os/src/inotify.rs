//! Events of folders: a file in the folder was closed after writing, renamed, made or removed.
//!
//! An event is only a hint. It can come late or twice, or the file may have changed again since. The caller looks at
//! the file itself before it acts. If events were lost, the caller gets [`NameChange::Overflow`] and looks at all files.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use crate::sys::fs::inotify;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::error::{Context, OsError, OsResult};

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

    /// Gives all events that have arrived, without waiting.
    pub fn read(&self) -> OsResult<Vec<FolderEvent>> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        loop {
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
                Err(Errno::INTR) => {}
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
}
