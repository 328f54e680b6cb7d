//! Ordinary files: space that is reserved in advance, locks that end with their holder, and folders that only one user
//! may enter.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Reserves `more` bytes of disk space from the offset `from` on, and extends the file with zeros to the length `from +
/// more`. A later write to this range cannot fail for lack of space.
pub fn extend(file: impl AsFd, from: u64, more: u64) -> OsResult<()> {
    loop {
        match sys::fs::fallocate(&file, FallocateFlags::empty(), from, more) {
            Err(Errno::INTR) => {}
            other => return other.context("fallocate", || format!("{more} bytes at {from} of a file")),
        }
    }
}

/// Locks a file. Gives `false` if another open file description holds the lock. The lock ends when the last copy of
/// this descriptor is closed, also if the kernel closes it because a process ended.
pub fn try_lock(file: impl AsFd) -> OsResult<bool> {
    try_flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Takes a shared lock on a file. Gives `false` if another open file description holds the exclusive lock.
pub fn try_lock_shared(file: impl AsFd) -> OsResult<bool> {
    try_flock(file, FlockOperation::NonBlockingLockShared)
}

fn try_flock(file: impl AsFd, how: FlockOperation) -> OsResult<bool> {
    match sys::fs::flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(OsError::new("flock", "a lock file", errno)),
    }
}

/// Gives another descriptor of the same open file description.
pub fn duplicate(file: impl AsFd) -> OsResult<OwnedFd> {
    duplicate_from(file, 3)
}

/// Renames a file or folder to a name that must be free. If the file system cannot check this and rename in one step,
/// an existing file may be replaced.
pub fn rename_to_free_name(from: &Path, to: &Path) -> OsResult<()> {
    let named = || format!("{} to {}", from.display(), to.display());
    match sys::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL) => sys::fs::rename(from, to).context("rename", named),
        done => done.context("renameat2", named),
    }
}

/// Tells whether this process may create files in the folder.
pub fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Opens the same file once more, for reading only.
pub fn reopen_read_only(file: impl AsFd) -> OsResult<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    sys::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context("open", || path)
}

/// Copies a descriptor. The copy gets the first free number that is at least `lowest`.
pub fn duplicate_from(fd: impl AsFd, lowest: i32) -> OsResult<OwnedFd> {
    sys::io::fcntl_dupfd_cloexec(fd, lowest).context("F_DUPFD_CLOEXEC", || format!("a descriptor from {lowest} on"))
}

/// Opens an existing file for reading only.
pub fn open_read_only(path: &Path) -> OsResult<OwnedFd> {
    sys::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context("open", || path.display().to_string())
}

/// Opens the folder `rest` below the folder `top` with `O_PATH`. The descriptor only serves as the starting folder of
/// other calls. If a part of `rest` is a symbolic link, even one that is made during this call, the error is ENOTDIR.
pub fn folder_below(top: &Path, rest: &Path) -> OsResult<OwnedFd> {
    let named = || top.join(rest).display().to_string();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = sys::fs::open(top, flags, Mode::empty()).context("open", named)?;
    for part in rest.components() {
        let Component::Normal(part) = part else { return Err(OsError::new("open", named(), Errno::INVAL)) };
        folder = sys::fs::openat(&folder, part, flags, Mode::empty()).context("open", named)?;
    }
    Ok(folder)
}

/// Makes the folder `rest` below the folder `top`, and the folders above it that do not exist. The folders that are
/// made get this mode; existing folders stay as they are. If a part of `rest` is a symbolic link, the error is ENOTDIR.
pub fn make_folder_below(top: &Path, rest: &Path, mode: u32) -> OsResult<OwnedFd> {
    let named = || top.join(rest).display().to_string();
    let mode = Mode::from_raw_mode(mode);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = folder_below(top, Path::new(""))?;
    for part in rest.components() {
        let Component::Normal(part) = part else { return Err(OsError::new("mkdir", named(), Errno::INVAL)) };
        let is_made = match sys::fs::mkdirat(&folder, part, mode) {
            Err(Errno::EXIST) => false,
            made => made.context("mkdir", named).map(|()| true)?,
        };
        // The mode of a folder that is open with `O_PATH` cannot be set.
        let how = if is_made { OFlags::RDONLY } else { OFlags::PATH };
        folder = sys::fs::openat(&folder, part, flags | how, Mode::empty()).context("open", named)?;
        if is_made {
            rustix::fs::fchmod(&folder, mode).context("fchmod", named)?;
        }
    }
    Ok(folder)
}

/// Makes the empty file `rest` below the folder `top`, and the folders above it as [`make_folder_below`] does. If
/// something has this name already, also a symbolic link, it stays as it is.
pub fn make_file_below(top: &Path, rest: &Path, folder_mode: u32) -> OsResult<()> {
    let named = || top.join(rest).display().to_string();
    let Some(name) = rest.file_name() else { return Err(OsError::new("open", named(), Errno::INVAL)) };
    let folder = make_folder_below(top, rest.parent().unwrap_or(Path::new("")), folder_mode)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match sys::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::EXIST) => Ok(()),
        made => made.context("open", named).map(drop),
    }
}

/// Opens the ordinary file `rest` below the folder `top` for reading. Symbolic links lead to the same places as for a
/// process whose root folder is `top`. Gives `None` for a folder, a pipe or a device.
pub fn open_in_root(top: &Path, rest: &Path) -> OsResult<Option<OwnedFd>> {
    let named = || top.join(rest).display().to_string();
    let root = folder_below(top, Path::new(""))?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = sys::fs::openat2(&root, rest, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    ordinary(found.context("open", named)?, named)?.map(reopen_read_only).transpose()
}

/// Opens an ordinary file for reading. Gives `None` for a folder, a symbolic link, a pipe or a device.
pub fn open_ordinary(path: &Path) -> OsResult<Option<OwnedFd>> {
    let named = || path.display().to_string();
    // Without NONBLOCK, opening a pipe would wait for its writer, and opening a file with a lease would wait for the
    // lease's holder.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match sys::fs::open(path, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        other => other.context("open", named)?,
    };
    ordinary(file, named)
}

/// Gives the file if it is an ordinary file.
fn ordinary(file: OwnedFd, named: impl FnOnce() -> String) -> OsResult<Option<OwnedFd>> {
    let stat = rustix::fs::fstat(&file).context("fstat", named)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file().then_some(file))
}

/// The device and the inode of the file that this process has open as descriptor `number`.
pub fn identity(number: i32) -> OsResult<(u64, u64)> {
    // SAFETY: the descriptor is borrowed for one call only, which fails if nothing is open under this number.
    let file = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    let stat = rustix::fs::fstat(file).context("fstat", || format!("descriptor {number}"))?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Writes a text to standard error by one call, without the standard library's lock. A text that cannot be written is lost.
pub fn complain(text: &str) {
    // SAFETY: descriptor 2 is borrowed for one call only, which fails if nothing is open under this number.
    let errors = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = sys::io::write(errors, text.as_bytes());
}

/// The path of this process's working folder.
pub fn working_folder() -> OsResult<Vec<u8>> {
    let path = rustix::process::getcwd(Vec::new()).context("getcwd", || "the working folder".into())?;
    Ok(path.into_bytes())
}

/// The path of the folder that this process has open as descriptor `number`.
pub fn folder_of(number: i32) -> OsResult<Vec<u8>> {
    let link = format!("/proc/self/fd/{number}");
    let path = rustix::fs::readlink(&link, Vec::new()).context("readlink", || link)?;
    Ok(path.into_bytes())
}

/// Gives the path of a folder of another process: the folder that this other process has open as descriptor `number`,
/// or its working folder if `number` is `None`.
pub fn folder_of_process(thread: i32, number: Option<i32>) -> OsResult<Vec<u8>> {
    let link = match number {
        Some(number) => format!("/proc/{thread}/fd/{number}"),
        None => format!("/proc/{thread}/cwd"),
    };
    let path = rustix::fs::readlink(&link, Vec::new()).context("readlink", || link)?;
    Ok(path.into_bytes())
}

/// Tells whether this name exists. A symbolic link at the end is not followed. The call goes to the kernel directly,
/// and not through the C library.
pub fn exists(path: &std::ffi::CStr) -> bool {
    rustix::fs::lstat(path).is_ok()
}

/// What the kernel says about the file that has a certain name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// True for an ordinary file.
    pub is_ordinary: bool,
    /// True for a folder.
    pub is_folder: bool,
    /// The permission bits of the file, as in `chmod`.
    pub mode: u32,
    /// The number of names of the file.
    pub links: u64,
    /// When the file's permissions, names or contents changed last.
    pub changed: SystemTime,
}

/// Gives what the kernel says about the file of this name. It does not call the C library. A symbolic link at the end
/// is not followed.
pub fn look(path: &std::ffi::CStr) -> OsResult<Look> {
    let stat = rustix::fs::lstat(path).context("lstat", || path.to_string_lossy().into_owned())?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let since =
        Duration::new(u64::try_from(stat.st_ctime).unwrap_or(0), u32::try_from(stat.st_ctime_nsec).unwrap_or(0));
    Ok(Look {
        is_ordinary: kind.is_file(),
        is_folder: kind.is_dir(),
        mode: stat.st_mode & 0o7777,
        links: stat.st_nlink,
        changed: SystemTime::UNIX_EPOCH + since,
    })
}

/// Tells whether the kernel would let this process open the file for writing. If there is no file of this name, the
/// answer is `true`.
pub fn may_write(path: &std::ffi::CStr) -> bool {
    !matches!(
        rustix::fs::accessat(CWD, path, rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS),
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM)
    )
}

/// Opens the same file once more, for reading and writing. The new open file description belongs to this process alone.
pub fn reopen(file: impl AsFd) -> OsResult<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    sys::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context("open", || path)
}

/// Tells whether a descriptor is open for writing.
pub fn is_open_for_writing(fd: impl AsFd) -> OsResult<bool> {
    let flags = rustix::fs::fcntl_getfl(&fd).context("F_GETFL", || format!("descriptor {}", fd.as_fd().as_raw_fd()))?;
    Ok(flags & OFlags::ACCMODE != OFlags::RDONLY)
}

/// Copies bytes from one file to the same offset of another file, at most as many as fit into `buffer`. Gives the
/// number of bytes copied; 0 at the end of the file.
pub fn copy_part(from: impl AsFd, to: impl AsFd, offset: u64, buffer: &mut [u8]) -> OsResult<usize> {
    let named = || format!("bytes at {offset} of a file that is copied");
    let length = loop {
        match sys::io::pread(&from, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            other => break other.context("pread", named)?,
        }
    };
    let mut done = 0;
    while done < length {
        match sys::io::pwrite(&to, &buffer[done..length], offset + done as u64) {
            Err(Errno::INTR) => {}
            other => done += other.context("pwrite", named)?,
        }
    }
    Ok(length)
}

/// Opens a file for reading and writing. If it does not exist, creates an empty one with this mode.
pub fn open_or_make(path: &Path, mode: u32) -> OsResult<OwnedFd> {
    open_to_write(path, OFlags::CREATE, mode)
}

/// Creates a file for reading and writing. Its name must be free.
pub fn make(path: &Path, mode: u32) -> OsResult<OwnedFd> {
    open_to_write(path, OFlags::CREATE | OFlags::EXCL, mode)
}

/// Opens a file for reading and writing. The file must exist.
pub fn open_to_change(path: &Path) -> OsResult<OwnedFd> {
    open_to_write(path, OFlags::empty(), 0)
}

fn open_to_write(path: &Path, how: OFlags, mode: u32) -> OsResult<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | how;
    sys::fs::open(path, flags, Mode::from_raw_mode(mode)).context("open", || path.display().to_string())
}

/// Renames a file. A file that already has the new name is replaced.
pub fn rename(from: &Path, to: &Path) -> OsResult<()> {
    sys::fs::rename(from, to).context("rename", || format!("{} to {}", from.display(), to.display()))
}

/// Fills `buffer` with the bytes from `offset` on. If the file is too short, the error is `EIO`.
pub fn read_all_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> OsResult<()> {
    let named = || format!("bytes at {offset} of a file");
    let mut done = 0;
    while done < buffer.len() {
        match sys::io::pread(&file, &mut buffer[done..], offset + done as u64) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(OsError::new("pread", named(), Errno::IO)),
            other => done += other.context("pread", named)?,
        }
    }
    Ok(())
}

/// Writes all of these bytes at `offset`. If the call fails, the file may contain only some of these bytes.
pub fn write_all_at(file: impl AsFd, bytes: &[u8], offset: u64) -> OsResult<()> {
    write_by(bytes, offset, |rest, at| sys::io::pwrite(&file, rest, at))
}

/// Writes like [`write_all_at`] into space that [`extend`] has reserved. The kernel needs no new space for it.
pub fn write_reserved_at(file: impl AsFd, bytes: &[u8], offset: u64) -> OsResult<()> {
    write_by(bytes, offset, |rest, at| sys::io::pwrite_reserved(&file, rest, at))
}

fn write_by(bytes: &[u8], offset: u64, write: impl Fn(&[u8], u64) -> rustix::io::Result<usize>) -> OsResult<()> {
    let named = || format!("{} bytes at {offset} of a file", bytes.len());
    let mut done = 0;
    while done < bytes.len() {
        match write(&bytes[done..], offset + done as u64) {
            Err(Errno::INTR) => {}
            // Without this error, the loop would never end for a file that accepts no bytes.
            Ok(0) => return Err(OsError::new("pwrite", named(), Errno::IO)),
            other => done += other.context("pwrite", named)?,
        }
    }
    Ok(())
}

/// Waits until the bytes of the file are on the disk.
pub fn sync(file: impl AsFd) -> OsResult<()> {
    loop {
        match sys::fs::fdatasync(&file) {
            Err(Errno::INTR) => {}
            other => return other.context("fdatasync", || "a file".into()),
        }
    }
}

/// Waits until the bytes and the metadata of the file are on the disk.
pub fn sync_whole(file: impl AsFd) -> OsResult<()> {
    loop {
        match sys::fs::fsync(&file) {
            Err(Errno::INTR) => {}
            other => return other.context("fsync", || "a file".into()),
        }
    }
}

/// Waits until the names in a folder are on the disk. Some file systems, such as CIFS, cannot sync folders. On such a
/// file system this function succeeds at once.
pub fn sync_folder(path: &Path) -> OsResult<()> {
    use std::io::ErrorKind::{InvalidInput, Unsupported};
    match sync_whole(open_read_only(path)?) {
        Err(error) if matches!(error.reason().kind(), InvalidInput | Unsupported) => Ok(()),
        synced => synced.map_err(|error| OsError { object: path.display().to_string(), ..error }),
    }
}

/// Sets the size of a file. Bytes beyond the new size are lost, and added bytes are zero.
pub fn set_size(file: impl AsFd, size: u64) -> OsResult<()> {
    sys::fs::ftruncate(file, size).context("ftruncate", || format!("a file to {size} bytes"))
}

/// Lets the file's owner open it for reading and writing. If the mode does not allow this, the mode becomes 0600.
pub fn let_owner_open(file: impl AsFd) -> OsResult<()> {
    let named = || "the mode of a file".to_string();
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&file).context("fstat", named)?.st_mode);
    if mode.contains(Mode::RUSR | Mode::WUSR) {
        return Ok(());
    }
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).context("fchmod", named)
}

/// The size of a file, and the bytes of memory or disk that it occupies.
pub fn sizes(file: impl AsFd) -> OsResult<(u64, u64)> {
    let stat = rustix::fs::fstat(file).context("fstat", || "a file".into())?;
    Ok((u64::try_from(stat.st_size).unwrap_or(0), u64::try_from(stat.st_blocks).unwrap_or(0) * 512))
}

/// Tells whether a small file in memory has data in each page up to `size`. The file may have more behind. `false` does
/// not mean that something is missing: a page that has memory but was never written has no data, and in a file of more
/// than 64 KiB the search would take too long.
pub fn is_filled(file: impl AsFd, size: u64) -> bool {
    const SMALL: u64 = 64 << 10;
    // The end of a file counts as a hole. So this is the first hole of a file of this size, and of a longer file whose
    // next page has no data.
    size <= SMALL && rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)) == Ok(size)
}

/// Gives a file in memory this size, and drops the memory behind its end. The bytes of added pages are zero. Tells
/// whether the file has memory for each of its pages. To look is faster than to change, and few files need a change.
pub fn restore_size(file: impl AsFd, size: u64) -> OsResult<bool> {
    if sizes(&file)? == (size, size) && pages_from(&file, size) == Some(0) {
        return Ok(true);
    }
    // Memory behind the end of the file counts as taken, too, and could hide holes. The call drops it, even if the size
    // stays the same.
    set_size(&file, size)?;
    Ok(sizes(&file)?.1 >= size)
}

/// Gives a file in memory this size, and memory for each of its pages. The bytes of added pages are zero.
pub fn make_whole(file: impl AsFd, size: u64) -> OsResult<()> {
    if restore_size(&file, size)? { Ok(()) } else { crate::memfd::reserve(&file, 0, size) }
}

/// Counts the pages of memory that the kernel has for a file from this offset on, those in the swap space included.
/// `None` if this kernel does not count them.
fn pages_from(file: impl AsFd, offset: u64) -> Option<u64> {
    /// The number of the system call on all architectures that got it in Linux 6.5.
    const CACHESTAT: libc::c_long = 451;
    // The length 0 means: all that follows.
    let range = [offset.next_multiple_of(rustix::param::page_size() as u64), 0];
    // The kernel counts the pages in memory, the changed ones, those that are being written, those that are not in
    // memory, and those that have recently left it.
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads the two numbers of `range`, and writes the five numbers of `counts`.
    let done =
        unsafe { libc::syscall(CACHESTAT, file.as_fd().as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0_u32) };
    (done == 0).then_some(counts[0] + counts[3])
}

/// Opens `/dev/null` in order to reserve a descriptor. The process closes it when it needs a free descriptor and has
/// none.
pub fn spare() -> OsResult<OwnedFd> {
    sys::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context("open", || "/dev/null".into())
}

/// Makes a folder that only this user may enter. Gives `true` if it was made, and `false` if such a folder exists
/// already.
pub fn private_folder(path: &Path) -> OsResult<bool> {
    let named = || path.display().to_string();
    let made = match sys::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(OsError::new("mkdir", named(), errno)),
    };
    let folder = sys::fs::open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .context("open", named)?;
    let stat = rustix::fs::fstat(&folder).context("fstat", named)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(OsError::new(
            "check",
            format!("{} (must be yours and writable by you only)", named()),
            Errno::PERM,
        ));
    }
    Ok(made)
}

/// The user's runtime folder, which the variable XDG_RUNTIME_DIR names. Gives `None` if the folder does not exist or
/// belongs to another user: after `su` and `sudo`, the variable often still names the folder of the user who called
/// them.
pub fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| is_own_folder(folder))
}

fn is_own_folder(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    path.is_absolute() && std::fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_user_is_no_runtime_folder() {
        let path = std::env::temp_dir().join(format!("crossdock-runtime-{}", std::process::id()));
        assert!(!is_own_folder(&path));
        std::fs::create_dir(&path).unwrap();
        assert!(is_own_folder(&path));
        match rustix::process::geteuid().as_raw() {
            0 => {
                std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
                assert!(!is_own_folder(&path));
            }
            _ => assert!(!is_own_folder(Path::new("/usr"))),
        }
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn memory_behind_the_end_of_a_file_is_dropped_and_hides_no_hole() {
        use rustix::fs::{FallocateFlags, fallocate};
        const SIZE: u64 = 16 * 4096;
        let file = crate::tmpfs::Folder::shared_memory().unwrap().create("test", SIZE).unwrap();
        let is_whole = || restore_size(&file, SIZE).unwrap();
        let fill = || crate::memfd::reserve(&file, 0, SIZE).unwrap();
        let take_behind_the_end = || fallocate(&file, FallocateFlags::KEEP_SIZE, SIZE, 4096).unwrap();
        assert!(!is_whole(), "no page has memory");
        fill();
        assert!(is_whole());
        take_behind_the_end();
        assert!(is_whole(), "only the memory behind the end is too much");
        assert_eq!(sizes(&file).unwrap(), (SIZE, SIZE));
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 4096).unwrap();
        take_behind_the_end();
        assert_eq!(sizes(&file).unwrap(), (SIZE, SIZE));
        assert!(!is_whole(), "there is a hole, and memory behind the end");
        assert_eq!(sizes(&file).unwrap(), (SIZE, SIZE - 4096));
        fill();
        set_size(&file, SIZE - 1).unwrap();
        assert!(is_whole(), "the file was cut inside its last page, which still has memory");
        assert_eq!(sizes(&file).unwrap(), (SIZE, SIZE));
        set_size(&file, SIZE - 4096).unwrap();
        assert!(!is_whole(), "the file was cut");
        assert_eq!(sizes(&file).unwrap(), (SIZE, SIZE - 4096));
    }

    #[test]
    fn a_file_whose_size_was_changed_or_that_has_a_hole_is_made_whole() {
        use rustix::fs::{FallocateFlags, fallocate};
        const SIZE: u64 = 4 * 4096;
        let file = crate::tmpfs::Folder::shared_memory().unwrap().create("test", SIZE).unwrap();
        let punch = || fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 4096).unwrap();
        let harms: [(&str, &dyn Fn()); 5] = [
            ("its memory was never taken", &|| ()),
            ("it was cut", &|| set_size(&file, SIZE - 4096).unwrap()),
            ("it was made longer", &|| set_size(&file, SIZE + 4096).unwrap()),
            ("it has a hole", &punch),
            ("memory behind its end hides a hole", &|| {
                punch();
                fallocate(&file, FallocateFlags::KEEP_SIZE, SIZE, 4096).unwrap();
            }),
        ];
        for (number, (harm, does)) in harms.into_iter().enumerate() {
            does();
            make_whole(&file, SIZE).unwrap();
            assert_eq!(sizes(&file).unwrap(), (SIZE, SIZE), "{harm}");
            assert_ne!(pages_from(&file, SIZE), Some(1), "{harm}");
            let mut bytes = vec![7; SIZE as usize];
            read_all_at(&file, &mut bytes, 0).unwrap();
            let former = u8::try_from(number).unwrap();
            assert_eq!(bytes[0], former, "{harm}");
            assert!(bytes.iter().all(|byte| *byte == former || *byte == 0), "{harm}");
            write_all_at(&file, &[former + 1; SIZE as usize], 0).unwrap();
        }
    }

    #[test]
    fn a_small_file_is_filled_if_each_of_its_pages_has_data() {
        const SIZE: u64 = 4 * 4096;
        let make = |size: u64| crate::tmpfs::Folder::shared_memory().unwrap().create("test", size).unwrap();
        let file = make(SIZE);
        assert!(!is_filled(&file, SIZE), "no page has data");
        crate::memfd::reserve(&file, 0, SIZE).unwrap();
        write_all_at(&file, &[1; SIZE as usize - 4096], 0).unwrap();
        assert!(!is_filled(&file, SIZE), "the last page was not written");
        write_all_at(&file, &[1; 1], SIZE - 1).unwrap();
        assert!(is_filled(&file, SIZE));
        assert!(!is_filled(&file, SIZE + 4096), "it is shorter");
        let large = make(1 << 20);
        write_all_at(&large, &vec![1; 1 << 20], 0).unwrap();
        assert!(!is_filled(&large, 1 << 20), "the search would take too long");
    }

    #[test]
    fn a_lock_is_one_descriptions_only() {
        let path = std::env::temp_dir().join(format!("crossdock-lock-{}", std::process::id()));
        let (one, other) = (std::fs::File::create(&path).unwrap(), std::fs::File::create(&path).unwrap());
        assert!(try_lock(&one).unwrap());
        assert!(!try_lock(&other).unwrap());
        drop(one);
        // Another test of this process may have forked just now. Its child has a copy of the descriptor until the child
        // execs or ends. So this test tries several times to get the lock.
        assert!((0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            try_lock(&other).unwrap()
        }));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("crossdock-folder-{}", std::process::id()));
        assert!(private_folder(&path).unwrap());
        assert!(!private_folder(&path).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(private_folder(&path).unwrap_err().errno, Errno::PERM);
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn nothing_is_made_or_read_through_a_link_out_of_the_folder_and_no_mode_changes() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let base = std::env::temp_dir().join(format!("crossdock-below-{}", std::process::id()));
        let (top, outside) = (base.join("top"), base.join("outside"));
        std::fs::create_dir_all(top.join("own/etc")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        let closed = std::fs::Permissions::from_mode(0o700);
        for folder in [top.join("own"), outside.clone()] {
            std::fs::set_permissions(folder, closed.clone()).unwrap();
        }
        std::fs::write(outside.join("secret"), "secret").unwrap();
        std::fs::write(top.join("own/etc/users"), "users").unwrap();
        symlink(&outside, top.join("out")).unwrap();
        symlink("/own/etc", top.join("etc")).unwrap();
        symlink(outside.join("secret"), top.join("link")).unwrap();

        assert_eq!(make_folder_below(&top, Path::new("out/new"), 0o755).unwrap_err().errno, Errno::NOTDIR);
        assert_eq!(make_folder_below(&top, Path::new("out"), 0o755).unwrap_err().errno, Errno::NOTDIR);
        assert_eq!(make_folder_below(&top, Path::new("own/../x"), 0o755).unwrap_err().errno, Errno::INVAL);
        assert_eq!(make_file_below(&top, Path::new("out/new"), 0o755).unwrap_err().errno, Errno::NOTDIR);
        make_file_below(&top, Path::new("link"), 0o755).unwrap();
        make_file_below(&top, Path::new("own/a/b"), 0o751).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&top.join("own")), mode(&top.join("own/a")), mode(&outside)), (0o700, 0o751, 0o700));
        let names: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);

        let read = |rest: &str| open_in_root(&top, Path::new(rest));
        let users = std::fs::File::from(read("etc/users").unwrap().unwrap());
        assert_eq!(std::io::read_to_string(users).unwrap(), "users");
        assert!(read("own").unwrap().is_none());
        for rest in ["link", "out/secret", "../outside/secret"] {
            assert_eq!(read(rest).unwrap_err().errno, Errno::NOENT, "{rest}");
        }
        std::fs::remove_dir_all(&base).unwrap();
    }
}
