//! Mounts the tmpfs with the rights of this thread, or in a user namespace of a short-lived helper.

use crate::sys;
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;

use super::Folder;
use crate::deadline::Deadline;
use crate::error::{Context, OsError, OsResult};
use crate::socket::{self, Received};

/// Mounts the tmpfs with the rights of this thread.
pub(super) fn mount_here(size: u64) -> OsResult<Folder> {
    let named = || "a tmpfs".to_string();
    let context = sys::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).context("fsopen", named)?;
    let set = |key: &str, value: &str| {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value).context("fsconfig", || format!("{key}={value}"))
    };
    set("size", &size.to_string())?;
    set("mode", "0700")?;
    // A kernel without transparent huge pages does not know this option. Its error is ignored, because everything else
    // works with such a kernel too.
    let _ = set("huge", "within_size");
    rustix::mount::fsconfig_create(context.as_fd()).context("fsconfig", named)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let writable =
        sys::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).context("fsmount", named)?;
    // A second, read-only mount of the same tmpfs.
    let read_only = clone_mount(&writable)?;
    set_attributes(&read_only, libc::MOUNT_ATTR_RDONLY, 0, 0)?;
    Ok(Folder { writable, read_only: Some(read_only), gate: None })
}

/// Makes one more mount of the same tmpfs, attached nowhere.
pub(super) fn clone_mount(mount: &OwnedFd) -> OsResult<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    sys::mount::open_tree(mount, "", flags).context("open_tree", || "a mount of the tmpfs".into())
}

/// Changes what a mount allows. `mount` is a descriptor of its root.
pub(crate) fn set_attributes(mount: &OwnedFd, set: u64, clear: u64, propagation: u64) -> OsResult<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attr = MountAttr { set, clear, propagation, user_namespace: 0 };
    // SAFETY: the path is a terminated empty string and the struct, whose size is given, lives through the call.
    let change = || unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    let answer = sys::raw("mount_setattr", change);
    if answer == 0 { Ok(()) } else { Err(OsError::last("mount_setattr", "a mount of the tmpfs")) }
}

/// Mounts the tmpfs in a user namespace of a child. The child sends the descriptors back and ends.
pub(super) fn mount_in_namespace(size: u64) -> OsResult<Folder> {
    let (ours, theirs) = socket::pair()?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: the child makes system calls, allocates little, and leaves by _exit. Of the locks that another thread of
    // the parent may hold, it touches only the allocator's, which glibc makes usable after fork.
    let child = sys::raw("fork", || unsafe { libc::fork() });
    if child < 0 {
        return Err(OsError::last("fork", "the helper that mounts"));
    }
    if child == 0 {
        let code = i32::from(serve_mount(&theirs, size, uid.as_raw(), gid.as_raw()).is_err());
        // SAFETY: the call ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code) }
    }
    drop(theirs);
    let answer = receive_folder(&ours);
    let mut status = 0;
    // SAFETY: the call waits only for the child that was made above. This child ends by itself once it has answered.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    answer
}

/// Does the work of the helper: enters the namespace, mounts the tmpfs and sends the descriptors.
fn serve_mount(to: &OwnedFd, size: u64, uid: u32, gid: u32) -> OsResult<()> {
    let folder = enter_namespace(uid, gid).and_then(|()| mount_here(size));
    match folder {
        Ok(Folder { writable, read_only: Some(read_only), .. }) => {
            // A task with a user namespace of its own could clone the mount behind its descriptor and make the clone
            // writable. An unbindable mount cannot be cloned.
            for mount in [&writable, &read_only] {
                set_attributes(mount, 0, 0, libc::MS_UNBINDABLE)?;
            }
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
    // SAFETY: this process is a forked child with one thread. The call changes only what this child sees of users and
    // mounts.
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
            Ok(Folder { writable, read_only: Some(read_only), gate: None })
        }
        Some(Received::Message(4, _)) => {
            let raw = i32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            Err(failed(Errno::from_raw_os_error(raw)))
        }
        _ => Err(failed(Errno::PROTO)),
    }
}
