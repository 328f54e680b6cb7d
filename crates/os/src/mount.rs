//! Mounts memory file systems of a limited size, and tells how full a file system is.

use std::ffi::CString;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::error::{Context, OsError, OsResult};

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

/// Tells whether the kernel refused a mount because this process lacks the rights.
pub fn is_refused(error: &OsError) -> bool {
    matches!(error.errno, rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)
}

/// Tells whether the file system of this folder is full, so that a write that needs another page would fail with
/// ENOSPC.
pub fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|found| found.f_blocks > 0 && found.f_bavail == 0)
}

/// The number of bytes in use in the file system of this folder; 0 if the file system does not tell.
pub fn used(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |found| (found.f_blocks - found.f_bfree) * found.f_frsize)
}
