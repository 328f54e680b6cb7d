//! A memory file system of a limited size at a path, and how full a file system is.

use std::ffi::CString;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::error::{Context, OsError, OsResult};

/// Mounts an empty memory file system of so many bytes on a folder. It needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel refused; for an ordinary user this is a lack of rights ([`is_refused`]).
pub fn memory_at(folder: &Path, bytes: u64) -> OsResult<()> {
    let named = || folder.display().to_string();
    let how = CString::new(format!("size={bytes},mode=711"))
        .map_err(|_| OsError::new("mount", named(), rustix::io::Errno::INVAL))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("crossdock-files", folder, "tmpfs", flags, Some(how.as_c_str())).context("mount", named)
}

/// Removes a mount. Processes that have files of it open keep them. A folder without a mount is no error.
pub fn unmount(folder: &Path) {
    let _ = rustix::mount::unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}

/// Did the kernel refuse a mount for lack of rights?
pub fn is_refused(error: &OsError) -> bool {
    matches!(error.errno, rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)
}

/// Is the file system of this folder full: would the next page fail with ENOSPC?
pub fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|found| found.f_blocks > 0 && found.f_bavail == 0)
}

/// How many bytes of the file system of this folder are in use; 0 if it does not say.
pub fn used(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |found| (found.f_blocks - found.f_bfree) * found.f_frsize)
}
