//! Makes segments that are files of a tmpfs. They have three things that memfds lack: leases ([`crate::lease`]), huge
//! pages whatever the machine's setting for shared memory is, and descriptors that no process can reopen for writing.
//!
//! The daemon mounts a tmpfs of its own that is attached nowhere. The only way into it is a descriptor of its root. So
//! no other process sees it, and the kernel removes it with the last descriptor. Readers get descriptors that were
//! opened through a second, read-only mount of the same tmpfs: reopening such a descriptor through `/proc/self/fd`
//! fails with EROFS, even for a container's root. Where the kernel allows it, each party has a mount of its own, which
//! the daemon shuts before the file goes to another owner ([`door`]). For an ordinary user, a short-lived helper mounts
//! the tmpfs in a user namespace and passes the descriptors out. Where user namespaces are forbidden, the segments are
//! files without a name in `/dev/shm`; they have leases, but not the rest.

pub mod door;
pub(crate) mod mount;

use crate::sys;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, OsError, OsResult};
use crate::mapping::Access;
use door::Gate;

/// A folder of a tmpfs, whose files are segments.
#[derive(Debug)]
pub struct Folder {
    writable: OwnedFd,
    /// The root of a read-only mount of the same tmpfs. It is `None` for a folder in `/dev/shm`, whose files have no
    /// names.
    read_only: Option<OwnedFd>,
    gate: Option<Gate>,
}

impl Folder {
    /// Mounts a new tmpfs of at most `size` bytes. It uses huge pages for files that are large enough.
    ///
    /// The call fails if this process has neither the right to mount nor the right to make a user namespace. The error
    /// is that of the attempt in the user namespace.
    pub fn mount(size: u64) -> OsResult<Self> {
        let mut folder = mount::mount_here(size).or_else(|_| mount::mount_in_namespace(size))?;
        // Without the gate there are no doors, but everything else works. `crossdock doctor` tells why the gate cannot
        // be made.
        let _ = door::gate_of(&mut folder);
        Ok(folder)
    }

    /// Makes a folder whose files have no names and lie in `/dev/shm`. They have leases, but no read-only descriptors
    /// and no doors.
    pub fn shared_memory() -> OsResult<Self> {
        let path = Path::new("/dev/shm");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let writable = sys::fs::openat(CWD, path, flags, Mode::empty()).context("open", || "/dev/shm".into())?;
        Ok(Self { writable, read_only: None, gate: None })
    }

    /// Tells whether readers can get descriptors that no process can reopen for writing.
    pub fn has_read_only_door(&self) -> bool {
        self.read_only.is_some()
    }

    /// Creates a file of `size` bytes, opened for reading and writing. If the files of this folder have names, `name`
    /// must be free and must not contain a slash.
    pub fn create(&self, name: &str, size: u64) -> OsResult<OwnedFd> {
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = if self.read_only.is_some() {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            sys::fs::openat(&self.writable, name, flags, mode)
        } else {
            sys::fs::openat(&self.writable, ".", OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode)
        };
        let file = opened.context("openat", || format!("new segment file {name}"))?;
        if let Err(errno) = sys::fs::ftruncate(&file, size) {
            let _ = self.remove(name);
            return Err(OsError::new("ftruncate", format!("segment file {name} to {size} bytes"), errno));
        }
        Ok(file)
    }

    /// A descriptor of a file for a reader, opened through the read-only mount.
    pub fn open_reader(&self, name: &str) -> OsResult<OwnedFd> {
        let folder = self
            .read_only
            .as_ref()
            .ok_or(Errno::OPNOTSUPP)
            .context("openat", || format!("segment file {name} for reading"))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        sys::fs::openat(folder, name, flags, Mode::empty())
            .context("openat", || format!("segment file {name} for reading"))
    }

    /// Opens a file for reading and writing, for the file's new owner. Leases count the new open file description.
    pub fn open_writer(&self, name: &str) -> OsResult<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        sys::fs::openat(&self.writable, name, flags, Mode::empty())
            .context("openat", || format!("segment file {name} for writing"))
    }

    /// The names of all files; empty if the files have no names.
    pub fn names(&self) -> OsResult<Vec<String>> {
        if self.read_only.is_none() {
            return Ok(Vec::new());
        }
        let named = || "the segment files' folder".to_string();
        // The descriptor of a mount cannot be read as a folder. So the folder itself is opened.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = sys::fs::openat(&self.writable, ".", flags, Mode::empty()).context("openat", named)?;
        let entries = rustix::fs::Dir::new(folder).context("readdir", named)?;
        let names =
            entries.map(|entry| entry.context("readdir", named).map(|e| e.file_name().to_string_lossy().into()));
        let names: OsResult<Vec<String>> = names.collect();
        Ok(names?.into_iter().filter(|name| name != "." && name != "..").collect())
    }

    /// Removes a file's name. The file's memory is freed with the last descriptor and mapping.
    pub fn remove(&self, name: &str) -> OsResult<()> {
        if self.read_only.is_none() {
            return Ok(());
        }
        rustix::fs::unlinkat(&self.writable, name, AtFlags::empty())
            .context("unlinkat", || format!("segment file {name}"))
    }
}

/// Opens the file behind a descriptor anew, with these access rights. The new open file description is counted by
/// leases.
pub fn open_anew(file: impl AsFd, access: Access) -> OsResult<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    sys::fs::openat(CWD, path.as_str(), flags | OFlags::CLOEXEC, Mode::empty()).context("open", || path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;

    fn check_folder(folder: &Folder) {
        let file = folder.create("one", 8 << 20).unwrap();
        assert_eq!(folder.create("one", 4096).unwrap_err().errno, Errno::EXIST);
        let mapping = Mapping::new(&file, 8 << 20, Access::ReadWrite).unwrap();
        // SAFETY: the address lies in a live mapping that only this test uses.
        unsafe { mapping.start().as_ptr().write_volatile(7) };

        let reader = folder.open_reader("one").unwrap();
        let seen = Mapping::new(&reader, 4096, Access::Read).unwrap();
        // SAFETY: the address lies in a live mapping that only this test uses.
        assert_eq!(unsafe { seen.start().as_ptr().read_volatile() }, 7);
        assert_eq!(open_anew(&reader, Access::ReadWrite).unwrap_err().errno, Errno::ROFS);
        assert!(Mapping::new(&reader, 4096, Access::ReadWrite).is_err());

        let again = folder.open_writer("one").unwrap();
        assert!(!crate::lease::prove(&file, crate::lease::Proof::Alone).unwrap(), "another description counts");
        drop((again, seen, reader, mapping));
        assert!(crate::lease::prove(&file, crate::lease::Proof::Alone).unwrap());
        assert_eq!(folder.names().unwrap(), ["one"]);
        folder.remove("one").unwrap();
        assert!(folder.open_reader("one").is_err());
        assert!(folder.names().unwrap().is_empty());
    }

    #[test]
    fn a_reader_cannot_reopen_for_writing() {
        check_folder(&Folder::mount(64 << 20).unwrap());
    }

    #[test]
    fn an_ordinary_user_gets_the_same_through_a_user_namespace() {
        match mount::mount_in_namespace(64 << 20) {
            Ok(folder) => check_folder(&folder),
            // Some systems forbid user namespaces. On these systems, the daemon uses `Folder::shared_memory`.
            Err(error) => assert!(matches!(error.errno, Errno::PERM | Errno::NOSPC | Errno::ACCESS), "{error}"),
        }
    }

    #[test]
    fn a_full_tmpfs_says_so() {
        let folder = Folder::mount(1 << 20).unwrap();
        let file = folder.create("large", 16 << 20).unwrap();
        assert_eq!(crate::memfd::reserve(&file, 0, 16 << 20).unwrap_err().errno, Errno::NOSPC);
    }
}
