//! The roll: a file without contents on which each living member holds one lock. While the kernel shows the lock, the
//! member is alive.
//!
//! **The calls.** A lock is set with `F_OFD_SETLK`. The lock belongs to the open file *description*, not to a process
//! or a descriptor. For each member the daemon opens the roll anew, takes a read lock on the byte whose offset is the
//! member's number, and sends the descriptor to the member. The member maps a page of the roll through this descriptor
//! (`PROT_NONE`, `MAP_SHARED`, `MADV_DONTFORK`) and closes the descriptor. The mapping keeps the open file description,
//! so the lock lives exactly as long as the member's process image. `_exit`, any signal that ends the process, and
//! `execve` end the lock. `close`, `closefrom` and a full descriptor table do not end it, and a forked child does not
//! prolong it. (If the member forks after it has received the descriptor and before it has mapped the page, the child
//! has a copy of the descriptor until it execs or ends. Then the proof of the member's death may come late, but never
//! too early. A `vfork` child shares the process image, so the lock rightly lasts as long as either of the two runs.)
//!
//! **The question.** To ask whether a member is alive, a process calls `F_OFD_GETLK` for a write lock on the member's
//! byte, through another open file description than the member's. The call takes 0.4 µs. The answer "free" proves the
//! death for ever, because only the daemon gives out numbers, and it gives out each number only once.
//!
//! **The self-check.** With each question about a member, the asking process also asks, through the same descriptor,
//! about its own byte, which is locked. If that byte seems free, either the descriptor was closed and its number now
//! belongs to another file, or the file system does not keep a lock while the file is only mapped. (overlayfs maps
//! another file than the one that was opened; NFS may do so too.) Then the member's death is not proved.
//!
//! All locks are read locks, and the descriptors allow only reading. So no holder can write the file or keep other
//! members from locking. A lock on another member's byte can delay a proof of death, but cannot cause a false proof.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use crate::{OwnFile, file, fork};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::mount::OpenTreeFlags;
use std::path::Path;
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// Identifies the file of a roll, because the same path may belong to another file later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileIdentity {
    /// The device number of the file.
    pub device: u64,
    /// The inode number of the file.
    pub inode: u64,
    /// When the file was made, in nanoseconds since 1970; 0 if the file system does not say.
    pub born: u64,
}

/// The roll as the daemon uses it: the daemon opens the roll's file, and locks one byte of the file for each member.
#[derive(Debug)]
pub struct Roll {
    /// The file of the roll. If this process may make mounts, the file is opened through a mount that no process can
    /// write through.
    anchor: OwnedFd,
    identity: FileIdentity,
}

impl Roll {
    /// Opens the roll at `path`. Makes the file if it does not exist.
    pub fn open(path: &Path) -> OsResult<Self> {
        let named = || path.display().to_string();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = sys::fs::open(path, flags, Mode::RUSR | Mode::WUSR).context("open", named)?;
        let identity = identity(&file)?;
        let anchor = match read_only_mount(path).filter(|door| self::identity(door) == Ok(identity)) {
            Some(door) => door,
            None => file::reopen_read_only(&file)?,
        };
        Ok(Self { anchor, identity })
    }

    /// The identity of the roll's file.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Opens the roll anew and locks the byte `number`. The lock ends with the last copy or mapping of the descriptor.
    pub fn enter(&self, number: u64) -> OsResult<OwnedFd> {
        let Some(mut lock) = byte_lock(libc::F_RDLCK, number) else {
            return Err(OsError::new("F_OFD_SETLK", format!("number {number} of the roll"), Errno::INVAL));
        };
        let fd = file::reopen_read_only(&self.anchor)?;
        fcntl_lock(fd.as_fd(), libc::F_OFD_SETLK, &mut lock)?;
        Ok(fd)
    }

    /// Opens the roll anew for a [`RollReader`], without a lock. Each reader gets an open file description of its own, so
    /// that a lock which its process sets through it ends with this process.
    pub fn reader(&self) -> OsResult<OwnedFd> {
        file::reopen_read_only(&self.anchor)
    }
}

/// A member's lock on the roll. It lasts until the value is dropped or the process image ends.
#[derive(Debug)]
pub struct RollLock {
    page: NonNull<u8>,
    process: fork::ProcessToken,
}

// SAFETY: no code reads or writes the address range, and any thread may unmap it.
unsafe impl Send for RollLock {}
// SAFETY: no code reads or writes the address range, so threads may share it.
unsafe impl Sync for RollLock {}

impl RollLock {
    /// Maps a descriptor that [`Roll::enter`] gave, and closes the descriptor. The mapping keeps the lock.
    pub fn hold(fd: OwnedFd) -> OsResult<Self> {
        let named = || "a page of the roll".to_owned();
        // SAFETY: the call makes a new mapping at an address that the kernel chooses. The mapping can be neither read
        // nor written.
        let start = unsafe { sys::mm::mmap(std::ptr::null_mut(), PAGE, ProtFlags::empty(), MapFlags::SHARED, &fd, 0) }
            .context("mmap", named)?;
        let page = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never returns address 0");
        let entry = Self { page, process: fork::ProcessToken::current() };
        // SAFETY: the range is the mapping made above, which no code reads or writes.
        unsafe { sys::mm::madvise(start, PAGE, Advice::LinuxDontFork) }.context("madvise", named)?;
        Ok(entry)
    }
}

impl Drop for RollLock {
    fn drop(&mut self) {
        // A forked child does not inherit the page. If the child has another mapping at this address, that mapping must
        // stay.
        if self.process.is_current() {
            // SAFETY: the call unmaps exactly the range that `hold` mapped, and no reference leads into the range.
            let _ = unsafe { sys::mm::munmap_whole(self.page.as_ptr().cast(), PAGE) };
        }
    }
}

/// Asks the kernel which members have left the roll.
#[derive(Debug)]
pub struct RollReader {
    fd: OwnFile,
    /// The number of this reader's process. Its byte is locked, through another open file description, by this process
    /// or by a process that lives at least as long as this process.
    own: u64,
}

impl RollReader {
    /// Makes a reader of the roll. `fd` comes from [`Roll::reader`]. `own` is the number of this process. A
    /// [`RollLock`] must keep the byte of this number locked as long as the reader is used.
    #[must_use]
    pub fn new(fd: OwnedFd, own: u64) -> Self {
        Self { fd: fd.into(), own }
    }

    /// Tells whether it is proved that the holder of this number is dead. `false` means that the holder is alive, or
    /// that nothing is proved.
    ///
    /// The caller must know that the number was given out to a member, because a number that was never given out is
    /// also free.
    #[must_use]
    pub fn has_left(&self, number: u64) -> bool {
        number != self.own && is_proof(is_free(self.fd.as_fd(), number), || is_free(self.fd.as_fd(), self.own))
    }

    /// Tells whether the kernel shows this process's own lock through the reader's descriptor. If not, the descriptor
    /// cannot prove a member's death.
    #[must_use]
    pub fn sees_own_lock(&self) -> bool {
        is_free(self.fd.as_fd(), self.own) == Some(false)
    }
}

/// Tells whether two answers through one descriptor prove a member's death: the member's byte must be free, and the
/// asking process's own byte must be locked.
#[must_use]
pub fn is_proof(free: Option<bool>, own_free: impl FnOnce() -> Option<bool>) -> bool {
    free == Some(true) && own_free() == Some(false)
}

/// Tells whether there is no lock on this byte; `None` if the kernel does not answer.
fn is_free(fd: BorrowedFd<'_>, number: u64) -> Option<bool> {
    let mut lock = byte_lock(libc::F_WRLCK, number)?;
    fcntl_lock(fd, libc::F_OFD_GETLK, &mut lock).ok()?;
    Some(i32::from(lock.l_type) == libc::F_UNLCK)
}

/// Makes the kernel's description of a lock on one byte of the roll; `None` for a number that is no file offset.
fn byte_lock(kind: i32, number: u64) -> Option<libc::flock> {
    let start = i64::try_from(number).ok().filter(|start| *start < i64::MAX)?;
    Some(libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: 1, l_pid: 0 })
}

fn fcntl_lock(fd: BorrowedFd<'_>, command: i32, lock: &mut libc::flock) -> OsResult<()> {
    let call = if command == libc::F_OFD_SETLK { "F_OFD_SETLK" } else { "F_OFD_GETLK" };
    loop {
        // SAFETY: the kernel reads and writes one `flock`, which lives through the call.
        if sys::raw(call, || unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut *lock) }) == 0 {
            return Ok(());
        }
        let error = OsError::last(call, format!("number {} of the roll", lock.l_start));
        if error.errno != Errno::INTR {
            return Err(error);
        }
    }
}

/// Opens the roll's file through a new mount that no process can write through, not even a container's root that opens
/// the file anew. `None` if this process may not make a mount.
fn read_only_mount(path: &Path) -> Option<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let mount = sys::mount::open_tree(rustix::fs::CWD, path, flags).ok()?;
    crate::tmpfs::mount::set_attributes(&mount, libc::MOUNT_ATTR_RDONLY, 0, 0).ok()?;
    file::reopen_read_only(&mount).ok()
}

fn identity(file: impl AsFd) -> OsResult<FileIdentity> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = sys::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).context("statx", || "the roll".into())?;
    let born = found.stx_btime;
    let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let nanoseconds = u64::try_from(born.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::from(born.tv_nsec);
    Ok(FileIdentity {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        born: if known { nanoseconds } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPER: u64 = 1 << 62;

    struct Fixture {
        _folder: tempfile::TempDir,
        roll: Roll,
        reader: RollReader,
        _entry: RollLock,
    }

    fn setting() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let roll = Roll::open(&folder.path().join("roll")).unwrap();
        let entry = RollLock::hold(roll.enter(KEEPER).unwrap()).unwrap();
        let reader = RollReader::new(roll.reader().unwrap(), KEEPER);
        Fixture { _folder: folder, roll, reader, _entry: entry }
    }

    /// Waits until the condition holds. This may take a moment: other tests of this process fork, and a forked child
    /// keeps copies of descriptors until it execs or ends.
    fn soon(holds: impl Fn() -> bool) -> bool {
        (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            holds()
        })
    }

    #[test]
    fn a_lock_lasts_as_long_as_its_mapping_and_no_longer() {
        let s = setting();
        let fd = s.roll.enter(5).unwrap();
        assert!(!s.reader.has_left(5), "the descriptor holds it");
        let entry = RollLock::hold(fd).unwrap();
        assert!(!s.reader.has_left(5), "the mapping holds it");
        assert!(!s.reader.has_left(KEEPER));
        drop(entry);
        assert!(soon(|| s.reader.has_left(5)));
    }

    #[test]
    fn a_killed_process_has_left_although_its_child_lives() {
        let s = setting();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        // SAFETY: the child makes system calls only, and ends by a signal.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let held = s.roll.enter(6).and_then(RollLock::hold);
            // SAFETY: the grandchild only sleeps and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                std::thread::sleep(std::time::Duration::from_secs(4));
                // SAFETY: the call ends the grandchild without running the parent's exit handlers.
                unsafe { libc::_exit(0) };
            }
            rustix::io::write(&writer, &[u8::from(held.is_ok())]).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(20));
            // SAFETY: the call ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut byte = [0];
        rustix::io::read(&reader, &mut byte).unwrap();
        assert_eq!(byte, [1]);
        assert!(!s.reader.has_left(6));
        // SAFETY: the calls kill the child that this test made, and wait for it.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        assert!(soon(|| s.reader.has_left(6)), "its child does not keep it alive");
    }

    #[test]
    fn a_descriptor_that_does_not_show_the_readers_own_lock_proves_nothing() {
        let s = setting();
        let other = tempfile::tempfile().unwrap();
        let reader = RollReader::new(other.into(), KEEPER);
        assert!(!reader.sees_own_lock() && !reader.has_left(7));
        assert!(s.reader.sees_own_lock() && s.reader.has_left(7));
        assert!(!s.reader.has_left(u64::MAX), "no number of the roll");
    }

    #[test]
    fn no_holder_can_write_it_or_lock_others_out() {
        let s = setting();
        let fd = s.roll.enter(8).unwrap();
        assert!(rustix::io::write(&fd, b"x").is_err());
        assert!(rustix::fs::ftruncate(&fd, 1 << 20).is_err());
        let mut all = byte_lock(libc::F_WRLCK, 0).unwrap();
        all.l_len = 0;
        assert!(
            fcntl_lock(fd.as_fd(), libc::F_OFD_SETLK, &mut all).is_err(),
            "a write lock through a reading descriptor"
        );
        all.l_type = libc::F_RDLCK as i16;
        fcntl_lock(fd.as_fd(), libc::F_OFD_SETLK, &mut all).unwrap();
        s.roll.enter(9).expect("others' read locks do not conflict");
        assert!(!s.reader.has_left(10), "such a lock delays proofs");
        drop(fd);
        assert!(soon(|| s.reader.has_left(10)));
        if rustix::process::geteuid().is_root() {
            let again = format!("/proc/self/fd/{}", s.reader.fd.as_fd().as_raw_fd());
            let opened = rustix::fs::open(&again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
            assert!(opened.is_err() || read_only_mount(Path::new("/dev/null")).is_none());
        }
    }

    #[test]
    fn another_file_of_the_same_name_is_another_roll() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roll");
        let first = Roll::open(&path).unwrap().identity();
        assert_eq!(Roll::open(&path).unwrap().identity(), first);
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_ne!(Roll::open(&path).unwrap().identity(), first);
    }
}
