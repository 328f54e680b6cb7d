//! Mounts memory file systems of a limited size and file systems that a process serves (FUSE), and tells how full a
//! file system is.

use std::ffi::CString;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags};

use crate::error::{Context, OsError, OsResult};
use crate::{fs, sys};

/// Mounts an empty memory file system of `bytes` bytes on a folder. The calling process needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel refused the mount. For an ordinary user the reason is a lack of rights ([`is_refused`]).
pub fn memory_at(folder: &Path, bytes: u64) -> OsResult<()> {
    let named = || folder.display().to_string();
    let how = CString::new(format!("size={bytes},mode=711"))
        .map_err(|_| OsError::new("mount", named(), rustix::io::Errno::INVAL))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("crossdock-files", folder, "tmpfs", flags, Some(how.as_c_str())).context("mount", named)
}

/// Removes a mount. A process that has a file of the mount open can go on using the file. It is no error if nothing is
/// mounted on the folder.
pub fn unmount(folder: &Path) {
    let _ = rustix::mount::unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}

/// The root folder of a mount, open for as long as this value lives. The methods act on this mount even if another
/// process has meanwhile put a folder or a link in its place. But if a process has mounted another file system on this
/// root, [`Self::unmount`] removes that mount.
#[derive(Debug)]
pub struct MountRoot(OwnedFd);

impl MountRoot {
    /// Opens the folder `at`. A symbolic link in its place is not followed.
    ///
    /// # Errors
    /// There is no such folder, or it cannot be reached.
    pub fn open(at: &Path) -> OsResult<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = sys::fs::openat(CWD, at, flags, Mode::empty());
        opened.map(Self).context("open", || at.display().to_string())
    }

    /// Opens the folder again that is open as `folder`.
    ///
    /// # Errors
    /// This process has no free descriptors.
    pub fn of(folder: impl AsFd) -> OsResult<Self> {
        sys::io::fcntl_dupfd_cloexec(folder, 0).context("fcntl", || "a folder".into()).map(Self)
    }

    /// Mounts this file system, which is mounted nowhere yet, on an open folder.
    ///
    /// # Errors
    /// The kernel refused the mount.
    pub fn attach(&self, folder: impl AsFd) -> OsResult<()> {
        let by_descriptors = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        let moved = rustix::mount::move_mount(self, "", folder, "", by_descriptors);
        moved.context("move_mount", || "a new file system".into())
    }

    /// Tells whether the server of the mounted file system is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        rustix::fs::fstat(&self.0).is_err_and(|errno| errno == Errno::NOTCONN)
    }

    /// The type and the source of the file system in which the folder is, for example `tmpfs` and `crossdock-files`.
    #[must_use]
    pub fn file_system(&self) -> Option<(String, String)> {
        let info = sys::read_text(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd())).ok()?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
        let mounts = sys::read_text("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
        let (kind, rest) = line.split_once(" - ")?.1.split_once(' ')?;
        Some((kind.to_owned(), rest.split(' ').next()?.to_owned()))
    }

    /// Removes the mount as [`unmount`] does.
    pub fn unmount(&self) {
        // The last part of this path is a link of the kernel to the open folder, so it must be followed.
        let _ = rustix::mount::unmount(fs::path_of(&self.0), UnmountFlags::DETACH);
    }
}

/// Makes a file system that a process serves (FUSE). The file system is mounted on a folder only by
/// [`MountRoot::attach`]. It is read-only, and all users may read what the modes of its files allow.
///
/// Gives the descriptor from which the server reads the kernel's requests, and the file system's root. The file system
/// ends when the root is closed and the file system is mounted nowhere. The calling process needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel has no FUSE, or refused to make the file system.
pub fn served(source: &str, subtype: &str) -> OsResult<(OwnedFd, MountRoot)> {
    let device = "/dev/fuse";
    let requests = sys::fs::openat(CWD, device, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .context("open", || device.into())?;
    let made = || -> rustix::io::Result<OwnedFd> {
        let file_system = sys::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: String| rustix::mount::fsconfig_set_string(&file_system, key, value);
        set("source", source.to_owned())?;
        set("subtype", subtype.to_owned())?;
        set("fd", requests.as_raw_fd().to_string())?;
        set("rootmode", "40755".to_owned())?;
        set("user_id", rustix::process::getuid().as_raw().to_string())?;
        set("group_id", rustix::process::getgid().as_raw().to_string())?;
        for flag in ["ro", "default_permissions", "allow_other"] {
            rustix::mount::fsconfig_set_flag(&file_system, flag)?;
        }
        rustix::mount::fsconfig_create(&file_system)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        sys::mount::fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    let root = made().context("fsmount", || source.to_owned())?;
    Ok((requests, MountRoot(root)))
}

impl AsFd for MountRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells whether the kernel refused a mount because this process lacks the rights.
pub fn is_refused(error: &OsError) -> bool {
    matches!(error.errno, rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)
}

/// Tells whether the file system of this folder is full, so that a write that needs another page would fail with
/// ENOSPC.
pub fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|found| found.f_blocks > 0 && found.f_bavail == 0)
}

/// Tells whether the file system of this file has `bytes` bytes free. The answer is `true` if the file system does not
/// tell. Ask this before a large [`crate::file::extend`]: the kernel fills a file system in memory up to its last page
/// before it finds that the room does not suffice, and until then no other process gets a page.
pub fn has_room(file: impl AsFd, bytes: u64) -> bool {
    let found = rustix::fs::fstatvfs(file);
    found.map_or(true, |found| found.f_blocks == 0 || found.f_bfree.saturating_mul(found.f_frsize) >= bytes)
}

/// The number of bytes in use in the file system of this folder; 0 if the file system does not tell.
pub fn used(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |found| (found.f_blocks - found.f_bfree) * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment variable that is set in the process that has mounts of its own.
    const WITH_MOUNTS: &str = "CROSSDOCK_TEST_WITH_MOUNTS";

    /// Runs a test of this module in a process that has mounts of its own.
    fn with_mounts(name: &str, test: fn()) {
        if crate::child::user() != 0 {
            return crate::testing::skip("mounts, which only root can make");
        }
        if std::env::var_os(WITH_MOUNTS).is_some() {
            return test();
        }
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("mount::tests::{name}")]);
        assert!(command.env(WITH_MOUNTS, "1").status().unwrap().success());
    }

    #[test]
    fn a_mount_below_a_folder_stays_when_the_folder_is_removed() {
        with_mounts("a_mount_below_a_folder_stays_when_the_folder_is_removed", || {
            let above = tempfile::tempdir().unwrap();
            let (folder, at) = (above.path().join("folder"), above.path().join("folder/a/b"));
            std::fs::create_dir_all(&at).unwrap();
            memory_at(&at, 1 << 20).unwrap();
            std::fs::write(at.join("file"), "x").unwrap();
            let error = fs::remove_dir_all(&folder).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::XDEV));
            assert!(at.join("file").exists());
            unmount(&at);
            fs::remove_dir_all(&folder).unwrap();
        });
    }

    #[test]
    fn a_mount_is_told_and_removed_whatever_takes_its_place() {
        with_mounts("a_mount_is_told_and_removed_whatever_takes_its_place", replace_and_remove);
    }

    fn replace_and_remove() {
        let above = tempfile::tempdir().unwrap();
        let at = |name: &str| above.path().join(name);
        for name in ["a/at", "b/at"] {
            std::fs::create_dir_all(at(name)).unwrap();
            memory_at(&at(name), 1 << 20).unwrap();
            std::fs::write(at(name).join("file"), "x").unwrap();
        }
        let root = MountRoot::open(&at("a/at")).unwrap();
        assert_eq!(root.file_system(), Some(("tmpfs".into(), "crossdock-files".into())));
        assert!(!root.is_dead());
        std::fs::rename(at("a"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("b"), at("a")).unwrap();
        root.unmount();
        assert!(!at("moved/at/file").exists() && at("b/at/file").exists());
        std::os::unix::fs::symlink(at("b/at"), at("link")).unwrap();
        MountRoot::open(&at("link")).unwrap().unmount();
        MountRoot::open(&at("moved/at")).unwrap().unmount();
        assert!(at("b/at/file").exists());
        unmount(&at("b/at"));
    }
}
