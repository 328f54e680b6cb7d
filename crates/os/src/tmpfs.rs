//! Segments that are files of a tmpfs, for what memfds cannot give: leases ([`crate::lease`]), huge pages whatever the
//! machine's setting for shared memory is, and descriptors that nobody can reopen for writing.
//!
//! The daemon mounts a tmpfs of its own that is attached nowhere: its only way in is a descriptor of its root, so no other
//! process sees it, and the kernel takes it away with the last descriptor. A second, read-only mount of the same tmpfs
//! opens readers' descriptors: reopening one through `/proc/self/fd` answers EROFS, even to a container's root.
//! An ordinary user mounts it in a user namespace of a short-lived helper that hands the descriptors out. Where user
//! namespaces are forbidden, files without a name in `/dev/shm` keep the leases, but not the rest.

use std::path::Path;
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;

use crate::deadline::Deadline;
use crate::error::{Context, OsError, OsResult};
use crate::mapping::Access;
use crate::socket::{self, Received};

/// A place for files that are segments.
#[derive(Debug)]
pub struct Folder {
    writable: OwnedFd,
    /// The same tmpfs, mounted read-only; where there is none, files have no names either.
    read_only: Option<OwnedFd>,
}

impl Folder {
    /// A tmpfs of one's own, with huge pages where files are large enough, of at most `size` bytes.
    ///
    /// Needs the right to mount, or else the right to make a user namespace; the error is that of the second try.
    pub fn mount(size: u64) -> OsResult<Self> {
        mount_here(size).or_else(|_| mount_in_namespace(size))
    }

    /// Files without a name in `/dev/shm`: leases only.
    pub fn shared_memory() -> OsResult<Self> {
        let path = Path::new("/dev/shm");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let writable = rustix::fs::openat(CWD, path, flags, Mode::empty()).context("open", || "/dev/shm".into())?;
        Ok(Self { writable, read_only: None })
    }

    /// Can readers be given descriptors that nobody can reopen for writing?
    pub fn has_read_only_door(&self) -> bool {
        self.read_only.is_some()
    }

    /// A new file of `size` bytes, opened for reading and writing. Its name, where files have one, must be new and is
    /// a plain word.
    pub fn create(&self, name: &str, size: u64) -> OsResult<OwnedFd> {
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = if self.read_only.is_some() {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat(&self.writable, name, flags, mode)
        } else {
            rustix::fs::openat(&self.writable, ".", OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode)
        };
        let file = opened.context("openat", || format!("new segment file {name}"))?;
        if let Err(errno) = rustix::fs::ftruncate(&file, size) {
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
        rustix::fs::openat(folder, name, flags, Mode::empty())
            .context("openat", || format!("segment file {name} for reading"))
    }

    /// A new open file description of a file, for reading and writing: what a new owner gets, and leases count.
    pub fn open_writer(&self, name: &str) -> OsResult<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.writable, name, flags, Mode::empty())
            .context("openat", || format!("segment file {name} for writing"))
    }

    /// The names of all files; none where files have no names.
    pub fn names(&self) -> OsResult<Vec<String>> {
        if self.read_only.is_none() {
            return Ok(Vec::new());
        }
        let named = || "the segment files' folder".to_string();
        // A mount's descriptor can be passed through only; reading takes one of the folder itself.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.writable, ".", flags, Mode::empty()).context("openat", named)?;
        let entries = rustix::fs::Dir::new(folder).context("readdir", named)?;
        let names =
            entries.map(|entry| entry.context("readdir", named).map(|e| e.file_name().to_string_lossy().into()));
        let names: OsResult<Vec<String>> = names.collect();
        Ok(names?.into_iter().filter(|name| name != "." && name != "..").collect())
    }

    /// Takes a file's name away; its memory goes with the last descriptor and mapping.
    pub fn remove(&self, name: &str) -> OsResult<()> {
        if self.read_only.is_none() {
            return Ok(());
        }
        rustix::fs::unlinkat(&self.writable, name, AtFlags::empty())
            .context("unlinkat", || format!("segment file {name}"))
    }
}

/// A new open file description of the file behind a descriptor, with its own access: what leases count.
pub fn open_anew(file: impl AsFd, access: Access) -> OsResult<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    rustix::fs::openat(CWD, path.as_str(), flags | OFlags::CLOEXEC, Mode::empty()).context("open", || path.clone())
}

/// Mounts with the rights of this thread.
fn mount_here(size: u64) -> OsResult<Folder> {
    let named = || "a tmpfs".to_string();
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).context("fsopen", named)?;
    let set = |key: &str, value: &str| {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value).context("fsconfig", || format!("{key}={value}"))
    };
    set("size", &size.to_string())?;
    set("mode", "0700")?;
    // A kernel without transparent huge pages does not know the word; everything else works there too.
    let _ = set("huge", "within_size");
    rustix::mount::fsconfig_create(context.as_fd()).context("fsconfig", named)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let writable =
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).context("fsmount", named)?;
    let read_only = clone_read_only(&writable)?;
    Ok(Folder { writable, read_only: Some(read_only) })
}

/// A second mount of the same tmpfs that lets nobody write.
fn clone_read_only(mount: &OwnedFd) -> OsResult<OwnedFd> {
    let named = || "a read-only mount of the tmpfs".to_string();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let clone = rustix::mount::open_tree(mount, "", flags).context("open_tree", named)?;
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attr = MountAttr { set: libc::MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is a terminated empty string and the struct, whose size is given, lives through the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            clone.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if answer == 0 { Ok(clone) } else { Err(OsError::last("mount_setattr", named())) }
}

/// Mounts in a user namespace of a child, which passes the descriptors out and ends.
fn mount_in_namespace(size: u64) -> OsResult<Folder> {
    let (ours, theirs) = socket::pair()?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: the child makes system calls, allocates little, touches none of the parent's locks that another thread may
    // hold except the allocator's, which glibc makes usable after fork, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(OsError::last("fork", "the helper that mounts"));
    }
    if child == 0 {
        let code = i32::from(serve_mount(&theirs, size, uid.as_raw(), gid.as_raw()).is_err());
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code) }
    }
    drop(theirs);
    let answer = receive_folder(&ours);
    let mut status = 0;
    // SAFETY: waits for the child made above, and for no other; it ends by itself once it has answered.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    answer
}

/// The helper's whole life: namespace, mounts, answer.
fn serve_mount(to: &OwnedFd, size: u64, uid: u32, gid: u32) -> OsResult<()> {
    let folder = enter_namespace(uid, gid).and_then(|()| mount_here(size));
    match folder {
        Ok(Folder { writable, read_only: Some(read_only) }) => {
            socket::send(to, &[0], &[writable.as_fd(), read_only.as_fd()])?;
            Ok(())
        }
        Ok(_) => unreachable!("a mounted folder has a read-only door"),
        Err(error) => {
            socket::send(to, &error.errno.raw_os_error().to_le_bytes(), &[])?;
            Err(error)
        }
    }
}

fn enter_namespace(uid: u32, gid: u32) -> OsResult<()> {
    let named = || "a user and mount namespace".to_string();
    // SAFETY: this is a child of fork with one thread; what it loses is its own view of users and mounts.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }.context("unshare", named)?;
    let write = |path: &str, text: String| {
        std::fs::write(path, text).map_err(|error| {
            OsError::new("write", path, Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
        })
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

fn receive_folder(from: &OwnedFd) -> OsResult<Folder> {
    let failed = |errno| OsError::new("mount", "a tmpfs in a user namespace", errno);
    if !crate::event::wait_readable(from, Deadline::after(Duration::from_secs(5)))? {
        return Err(failed(Errno::TIMEDOUT));
    }
    let mut buffer = [0; 8];
    match socket::receive(from, &mut buffer)? {
        Some(Received::Message(1, descriptors)) => {
            let [writable, read_only] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| failed(Errno::PROTO))?;
            Ok(Folder { writable, read_only: Some(read_only) })
        }
        Some(Received::Message(4, _)) => {
            let raw = i32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            Err(failed(Errno::from_raw_os_error(raw)))
        }
        _ => Err(failed(Errno::PROTO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;

    fn check_folder(folder: &Folder) {
        let file = folder.create("one", 8 << 20).unwrap();
        assert_eq!(folder.create("one", 4096).unwrap_err().errno, Errno::EXIST);
        let mapping = Mapping::new(&file, 8 << 20, Access::ReadWrite).unwrap();
        // SAFETY: within a live mapping of this test alone.
        unsafe { mapping.start().as_ptr().write_volatile(7) };

        let reader = folder.open_reader("one").unwrap();
        let seen = Mapping::new(&reader, 4096, Access::Read).unwrap();
        // SAFETY: as above.
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
        match mount_in_namespace(64 << 20) {
            Ok(folder) => check_folder(&folder),
            // Some systems forbid user namespaces; the fallback is there for them.
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
