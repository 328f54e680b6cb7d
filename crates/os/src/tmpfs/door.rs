//! Doors: mounts of the daemon's tmpfs. Each party opens a file through its own door. Before the file goes to another
//! owner, the daemon shuts the door.
//!
//! A lease counts open files. It does not count a path descriptor (`O_PATH`), by which a former user may open the file
//! anew later, or truncate it. But such a descriptor leads to the file through the mount by which it was opened. So
//! each party gets a mount of its own, which is attached nowhere. Such a mount is called a *door*. Before the daemon
//! asks for the lease, it shuts the door in two steps:
//!
//! 1. The mount becomes read-only. The kernel refuses this while any process writes through the mount. Afterwards no
//!    process can open a file for writing through the mount, truncate it or change its mode or owner.
//! 2. The *gate* is shut. From then on the kernel asks the daemon before it opens anything through this mount (a
//!    fanotify permission event), and the daemon refuses.
//!
//! The gate also refuses each read by a system call, whether the door is open or shut: read, splice, sendfile,
//! copy_file_range, and the same operations of an io_uring. The reason is that a splice or sendfile puts references to
//! the file's pages into a pipe or socket. Such references outlive the descriptor and every mapping, so the former user
//! would read through them what the next owner writes. The kernel asks the daemon before it makes these references. The
//! kernel does not ask about accesses through a mapping, so the owner works at full speed.
//!
//! There is no gap, because of the order of steps in the kernel's open. The kernel first counts the open file, and the
//! lease uses this count. Only then does the kernel check whether the mount is read-only, and ask the gate. Take an
//! open that began before the door was shut: either the kernel has already counted it and therefore refuses the lease,
//! or the open finds the door shut. A process cannot use another task's door, because a path descriptor is no mount,
//! and the mount cannot be cloned (it is unbindable).
//!
//! Two other methods would leave gaps. The first is *modes and owners* on mounts with mapped ids: a container's root
//! with CAP_CHOWN may change the owner of a file from an unmapped id to a mapped one. Also, the kernel checks
//! permissions long before it counts the open file, so a reader that is preempted in between could get the file after
//! the proof. The second method is the *mount's count of references* (`MNT_EXPIRE`): the kernel adds up one number for
//! each CPU, and the sum may miss a reference that moves from one CPU to another.
//!
//! A door needs the rights of root in the initial user namespace. The daemon of an ordinary user has no doors.

use crate::sys;
use std::mem::MaybeUninit;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Folder;
use super::mount::{clone_mount, set_attributes};
use crate::error::{Context, OsError, OsResult};
use crate::mapping::Access;

/// The check of all opens through shut doors: the kernel asks the daemon through this descriptor. Doors stay shut as
/// long as any process has the descriptor open. A process that opens a file through a shut door waits until
/// [`Gate::refuse_waiting`] refuses it.
#[derive(Debug)]
pub struct Gate(OwnedFd);

/// An access that the gate refused, with the id of the process that tried it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedAccess {
    /// The process with this id tried to open a file through a door that is shut.
    Open(i32),
    /// The process with this id tried to read a file by a system call (read, splice, sendfile) and not through a
    /// mapping.
    Read(i32),
}

/// The largest number of batches of requests that one call refuses, so that processes that keep trying do not delay the
/// caller.
const BATCHES: usize = 4;

/// A mount through which one party opens a file.
#[derive(Debug)]
pub struct Door {
    mount: OwnedFd,
    writable: bool,
}

impl Gate {
    pub(super) fn new() -> OsResult<Self> {
        let kind = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        let limits = libc::FAN_UNLIMITED_MARKS | libc::FAN_UNLIMITED_QUEUE;
        let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
        // SAFETY: the call takes only numbers, and no pointers.
        let fd = sys::raw("fanotify_init", || unsafe { libc::fanotify_init(kind | limits, files as libc::c_uint) });
        if fd < 0 {
            return Err(OsError::last("fanotify_init", "a gate"));
        }
        // SAFETY: the kernel has made the descriptor `fd` just now, and no other value owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn mark(&self, mount: &OwnedFd, how: libc::c_uint, what: u64) -> OsResult<()> {
        let flags = how | libc::FAN_MARK_MOUNT;
        // SAFETY: the path is a terminated string.
        let mark = || unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, what, mount.as_raw_fd(), c".".as_ptr()) };
        let answer = sys::raw("fanotify_mark", mark);
        if answer == 0 { Ok(()) } else { Err(OsError::last("fanotify_mark", "a door")) }
    }

    /// Refuses the requests that wait at the gate now, and gives what the processes tried. If more requests wait, the
    /// gate stays readable.
    pub fn refuse_waiting(&self) -> Vec<RefusedAccess> {
        let mut tried = Vec::new();
        let mut buffer = [MaybeUninit::<libc::fanotify_event_metadata>::uninit(); 64];
        for _ in 0..BATCHES {
            // SAFETY: the kernel writes whole events into `buffer`, which is large enough and aligned for them.
            let length = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(&buffer)) };
            let count = usize::try_from(length).unwrap_or(0) / size_of::<libc::fanotify_event_metadata>();
            if count == 0 {
                break;
            }
            for event in &buffer[..count] {
                // SAFETY: the kernel has written this event. An event of a gate consists only of this structure.
                let event = unsafe { event.assume_init_ref() };
                let opens = event.mask & libc::FAN_OPEN_PERM != 0;
                tried.push(if opens { RefusedAccess::Open(event.pid) } else { RefusedAccess::Read(event.pid) });
                if event.fd < 0 {
                    continue;
                }
                // SAFETY: the kernel has opened the descriptor for this event, and the reader of the event must close
                // it.
                let file = unsafe { OwnedFd::from_raw_fd(event.fd) };
                let answer = libc::fanotify_response { fd: event.fd, response: libc::FAN_DENY };
                // SAFETY: the call reads one whole `fanotify_response`. If the waiting process was killed, the call
                // fails, which does no harm.
                unsafe { libc::write(self.0.as_raw_fd(), (&raw const answer).cast(), size_of_val(&answer)) };
                drop(file);
            }
        }
        tried
    }
}

impl AsFd for Gate {
    /// The gate's descriptor is readable while a process waits at a shut door.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Folder {
    /// The gate of this folder's doors; `None` if the folder has no doors.
    pub fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// Makes a new door, which is shut. A door for a reader never allows writing.
    pub fn new_door(&self, access: Access) -> OsResult<Door> {
        let gate = self.gate.as_ref().ok_or(Errno::OPNOTSUPP).context("open_tree", || "a door".into())?;
        let mount = clone_mount(&self.writable)?;
        // Access times are off. Otherwise a reader would update them, and would count as a writer for a moment.
        let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOATIME;
        set_attributes(&mount, attributes, libc::MOUNT_ATTR__ATIME, libc::MS_UNBINDABLE)?;
        gate.mark(&mount, libc::FAN_MARK_ADD, libc::FAN_OPEN_PERM | libc::FAN_ACCESS_PERM)?;
        Ok(Door { mount, writable: access == Access::ReadWrite })
    }
}

impl Door {
    /// Takes over a door that another process of this daemon has made.
    pub fn inherited(mount: OwnedFd) -> Self {
        Self { mount, writable: true }
    }

    /// Opens the door, so that the party to which the door belongs can open files through it.
    pub fn open(&self, gate: &Gate) -> OsResult<()> {
        if self.writable {
            set_attributes(&self.mount, 0, libc::MOUNT_ATTR_RDONLY, 0)?;
        }
        let passing = libc::FAN_MARK_IGNORED_MASK | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        gate.mark(&self.mount, libc::FAN_MARK_ADD | passing, libc::FAN_OPEN_PERM)
    }

    /// Shuts the door, so that no process can open a file through it any more. Gives `false` if a process writes
    /// through it; then the door stays open. Processes that read already can go on reading.
    pub fn shut(&self, gate: &Gate) -> OsResult<bool> {
        if self.writable {
            match set_attributes(&self.mount, libc::MOUNT_ATTR_RDONLY, 0, 0) {
                Err(error) if error.errno == Errno::BUSY => return Ok(false),
                done => done?,
            }
        }
        gate.mark(&self.mount, libc::FAN_MARK_REMOVE | libc::FAN_MARK_IGNORED_MASK, libc::FAN_OPEN_PERM)?;
        Ok(true)
    }

    /// Opens a file through this door, as a new open file description. The door must be open.
    pub fn file(&self, name: &str) -> OsResult<OwnedFd> {
        let access = if self.writable { OFlags::RDWR } else { OFlags::RDONLY };
        sys::fs::openat(&self.mount, name, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
            .context("openat", || format!("segment file {name} through a door"))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// Makes the gate if this kernel, and the rights of this process, allow doors.
pub(super) fn gate_of(folder: &mut Folder) -> OsResult<()> {
    folder.gate = Some(Gate::new()?);
    let tried = folder.new_door(Access::ReadWrite).and_then(|door| {
        let gate = folder.gate.as_ref().expect("set above");
        door.open(gate)?;
        door.shut(gate)
    });
    if !matches!(tried, Ok(true)) {
        folder.gate = None;
    }
    tried.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Proof, prove};

    /// Shuts the door after the test has closed its file. Another test may have forked meanwhile, and its child has a
    /// copy of the file's descriptor until the child execs. So this function tries again until the door is shut.
    fn await_shut(door: &Door, gate: &Gate) {
        crate::testing::until("the door is shut", || door.shut(gate).unwrap());
    }

    /// Mounts a folder for the test; `None` if this user may not have doors.
    fn folder() -> Option<Folder> {
        let folder = Folder::mount(64 << 20).unwrap();
        let root = rustix::process::geteuid().is_root();
        assert!(!root || folder.gate().is_some(), "root has doors, on every kernel that we run on");
        folder.gate.is_some().then_some(folder)
    }

    /// Opens the file of a path descriptor anew. Another thread does this while the calling thread serves the gate.
    fn reopened(gate: &Gate, path: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
        let name = format!("/proc/self/fd/{}", path.as_raw_fd());
        std::thread::scope(|scope| {
            let tries = scope.spawn(|| rustix::fs::open(name, flags, Mode::empty()).map(drop));
            while !tries.is_finished() {
                gate.refuse_waiting();
                std::thread::yield_now();
            }
            tries.join().unwrap()
        })
    }

    #[test]
    fn a_shut_door_opens_truncates_and_changes_nothing_by_a_path_descriptor() {
        let Some(folder) = folder() else { return crate::testing::skip("doors") };
        let gate = folder.gate().unwrap();
        let kept = folder.create("one", 4096).unwrap();
        let door = folder.new_door(Access::ReadWrite).unwrap();
        assert_eq!(door.file("one").unwrap_err().errno, Errno::ROFS, "a door is made shut");
        door.open(gate).unwrap();
        let writer = door.file("one").unwrap();
        let path = rustix::fs::openat(&door.mount, "one", OFlags::PATH, Mode::empty()).unwrap();
        let name = format!("/proc/self/fd/{}", path.as_raw_fd());
        assert!(!door.shut(gate).unwrap(), "a process writes through it");
        rustix::fs::ftruncate(&writer, 8192).unwrap();
        drop(writer);
        assert_eq!(reopened(gate, &path, OFlags::RDWR), Ok(()), "the owner may");

        await_shut(&door, gate);
        assert!(prove(&kept, Proof::Alone).unwrap());
        for (flags, answer) in
            [(OFlags::RDWR, Errno::ROFS), (OFlags::WRONLY, Errno::ROFS), (OFlags::RDONLY, Errno::PERM)]
        {
            assert_eq!(reopened(gate, &path, flags), Err(answer), "{flags:?}");
        }
        assert_eq!(std::fs::File::options().write(true).open(&name).unwrap_err().raw_os_error(), Some(libc::EROFS));
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: the path is a terminated string that lives through the calls.
        unsafe {
            assert_eq!(libc::truncate(name.as_ptr(), 0), -1);
            assert_eq!(libc::chmod(name.as_ptr(), 0o666), -1);
            assert_eq!(libc::chown(name.as_ptr(), 1, 1), -1);
        }
        let clone = rustix::mount::OpenTreeFlags::OPEN_TREE_CLONE | rustix::mount::OpenTreeFlags::AT_EMPTY_PATH;
        assert!(rustix::mount::open_tree(&path, "", clone).is_err(), "no second door is made of one");

        let other = folder.new_door(Access::ReadWrite).unwrap();
        other.open(gate).unwrap();
        let next = other.file("one").unwrap();
        assert_eq!(rustix::fs::fstat(&next).unwrap().st_size, 8192);
        assert_eq!(reopened(gate, &path, OFlags::RDONLY), Err(Errno::PERM), "while the next one is in");
        drop(next);
        await_shut(&other, gate);
        door.open(gate).unwrap();
        assert_eq!(reopened(gate, &path, OFlags::RDWR), Ok(()), "it is the owner again");
    }

    #[test]
    fn a_reader_is_let_in_while_its_door_is_open() {
        let Some(folder) = folder() else { return crate::testing::skip("doors") };
        let gate = folder.gate().unwrap();
        let kept = folder.create("one", 4096).unwrap();
        let door = folder.new_door(Access::Read).unwrap();
        door.open(gate).unwrap();
        let reader = door.file("one").unwrap();
        assert_eq!(reopened(gate, &reader, OFlags::RDWR), Err(Errno::ROFS));
        assert_eq!(reopened(gate, &reader, OFlags::RDONLY), Ok(()));
        assert!(door.shut(gate).unwrap(), "who reads is not put out");
        assert!(!prove(&kept, Proof::Alone).unwrap(), "but seen");
        assert_eq!(reopened(gate, &reader, OFlags::RDONLY), Err(Errno::PERM));
    }

    #[test]
    fn an_open_door_gives_no_page_away_by_splice_or_sendfile_and_maps_all_the_same() {
        let Some(folder) = folder() else { return crate::testing::skip("doors") };
        let gate = folder.gate().unwrap();
        let kept = folder.create("one", 4096).unwrap();
        for access in [Access::ReadWrite, Access::Read] {
            let door = folder.new_door(access).unwrap();
            door.open(gate).unwrap();
            let file = door.file("one").unwrap();
            let mapping = crate::Mapping::new(&file, 4096, access).unwrap();
            if access == Access::ReadWrite {
                mapping.word64(0).unwrap().store(7, std::sync::atomic::Ordering::Relaxed);
            }
            assert_eq!(mapping.word64(0).unwrap().load(std::sync::atomic::Ordering::Relaxed), 7);
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            let (_peer, socket) = crate::socket::pair().unwrap();
            type Attempt<'a> = &'a (dyn Fn() -> Result<usize, Errno> + Sync);
            let flags = rustix::pipe::SpliceFlags::empty();
            let tries: [(&str, Attempt<'_>); 4] = [
                ("splice", &|| rustix::pipe::splice(&file, Some(&mut 0), &writer, None, 64, flags)),
                ("sendfile", &|| rustix::fs::sendfile(&writer, &file, Some(&mut 0), 64)),
                ("sendfile to a socket", &|| rustix::fs::sendfile(&socket, &file, Some(&mut 0), 64)),
                ("read", &|| rustix::io::pread(&file, &mut [0; 8], 0)),
            ];
            for (name, attempt) in tries {
                let answer = std::thread::scope(|scope| {
                    let tries = scope.spawn(attempt);
                    while !tries.is_finished() {
                        gate.refuse_waiting();
                        std::thread::yield_now();
                    }
                    tries.join().unwrap()
                });
                assert_eq!(answer, Err(Errno::PERM), "{name}, {access:?}");
            }
            assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), 0, "no page lies in the pipe");
            drop((mapping, file));
            await_shut(&door, gate);
        }
        crate::testing::until("no process has the file open", || prove(&kept, Proof::Alone).unwrap());
    }

    #[test]
    fn an_open_under_way_is_counted_before_it_waits_at_the_gate() {
        let Some(folder) = folder() else { return crate::testing::skip("doors") };
        let gate = folder.gate().unwrap();
        let kept = folder.create("one", 4096).unwrap();
        let door = folder.new_door(Access::Read).unwrap();
        door.open(gate).unwrap();
        let path = rustix::fs::openat(&door.mount, "one", OFlags::PATH, Mode::empty()).unwrap();
        let name = format!("/proc/self/fd/{}", path.as_raw_fd());
        assert!(door.shut(gate).unwrap());
        std::thread::scope(|scope| {
            let tries = scope.spawn(|| std::fs::File::open(name));
            assert!(
                crate::event::wait_readable(gate, crate::Deadline::after(std::time::Duration::from_secs(5))).unwrap()
            );
            assert!(!prove(&kept, Proof::Alone).unwrap());
            assert_eq!(gate.refuse_waiting(), [RefusedAccess::Open(std::process::id() as i32)]);
            assert!(tries.join().unwrap().is_err());
        });
        assert!(prove(&kept, Proof::Alone).unwrap());
    }

    #[test]
    fn an_open_that_races_with_the_shutting_is_seen_by_the_proof_or_stays_out() {
        use std::os::unix::fs::FileExt;
        use std::sync::atomic::{AtomicBool, Ordering};
        const SECRET: [u8; 8] = [0x5e; 8];
        let Some(folder) = folder() else { return crate::testing::skip("doors") };
        let gate = folder.gate().unwrap();
        let kept = std::fs::File::from(folder.create("one", 4096).unwrap());
        let door = folder.new_door(Access::ReadWrite).unwrap();
        let path = rustix::fs::openat(&door.mount, "one", OFlags::PATH, Mode::empty()).unwrap();
        let name = format!("/proc/self/fd/{}", path.as_raw_fd());
        let (ended, seen) = (AtomicBool::new(false), AtomicBool::new(false));
        let proofs = std::thread::scope(|scope| {
            let race = || {
                while !ended.load(Ordering::Relaxed) {
                    let Ok(file) = std::fs::File::open(&name) else {
                        // A process that waits at the gate counts as one that has the file open, so no proof succeeds
                        // meanwhile. Each racing thread pauses here, so that a proof can succeed during a pause.
                        std::thread::sleep(std::time::Duration::from_micros(200));
                        continue;
                    };
                    let mut word = [0; 8];
                    let _ = file.read_exact_at(&mut word, 0);
                    seen.fetch_or(word == SECRET, Ordering::Relaxed);
                }
            };
            let racers: Vec<_> = (0..3).map(|_| scope.spawn(race)).collect();
            let (began, mut proofs) = (std::time::Instant::now(), 0);
            while proofs < 300 && began.elapsed() < std::time::Duration::from_secs(5) {
                let _ = kept.write_all_at(&[0; 8], 0);
                let _ = door.open(gate);
                std::thread::yield_now();
                // A panic at this point would leave the racing threads running, so no result is unwrapped here.
                let shut = door.shut(gate).unwrap_or(false);
                let alone = || {
                    gate.refuse_waiting();
                    prove(&kept, Proof::Alone).unwrap_or(false)
                };
                if shut && (0..50).any(|_| alone()) {
                    proofs += 1;
                    let _ = kept.write_all_at(&SECRET, 0);
                    for _ in 0..4 {
                        std::thread::yield_now();
                        gate.refuse_waiting();
                    }
                }
            }
            ended.store(true, Ordering::Relaxed);
            let _ = kept.write_all_at(&[0; 8], 0);
            while !racers.iter().all(|racer| racer.is_finished()) {
                gate.refuse_waiting();
            }
            proofs
        });
        assert!(proofs > 0 && !seen.load(Ordering::Relaxed), "{proofs} proofs, seen: {seen:?}");
    }
}
