//! Tells whether a forked child of this process still has the mappings that it inherited.
//!
//! A [`ForkWatch`] is a System V segment of shared memory, attached to this process. Every child that gets a copy of
//! the address space gets the attachment too, whichever call made the child. A child loses the attachment when the
//! child ends or runs another program. The kernel counts the attachments, and one system call gives the count. A child
//! that shares the address space (`vfork`) is not counted. Such a child needs no count, because it has no copy of the
//! mappings. The segment has no name and no memory, and the kernel removes it with its last attachment. If a process is
//! killed while it makes the segment, between `shmget` and `IPC_RMID`, the empty segment stays until its IPC namespace
//! ends.
//!
//! Where the kernel gives no segment, the watch is a pipe. Children inherit the pipe's writing end. A pipe tells less
//! than a segment: before the watch is closed, it cannot tell whether a child has the watch, and a child that closes
//! the writing end counts as gone.

use crate::OwnFile;
use crate::error::{OsError, OsResult};
use crate::fork::ProcessToken;
use crate::{pipe, sys};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// The size of the segment in bytes. No process writes to the segment, so it takes no memory.
const LENGTH: usize = 4096;

/// A watch that tells whether forked children still have the mappings of this process. Children inherit the watch
/// together with these mappings.
#[derive(Debug)]
pub struct ForkWatch(Kind);

#[derive(Debug)]
enum Kind {
    Segment(Segment),
    /// The writing end is `None` when the watch is closed.
    Pipe {
        read: OwnFile,
        write: Option<OwnFile>,
    },
}

impl ForkWatch {
    /// Makes a watch. Children that are forked after this call inherit it.
    pub fn new() -> OsResult<Self> {
        match Segment::new() {
            Ok(segment) => Ok(Self(Kind::Segment(segment))),
            Err(_) => Self::with_pipe(),
        }
    }

    /// Makes a watch from a pipe, as [`Self::new`] does where the kernel gives no segment.
    pub fn with_pipe() -> OsResult<Self> {
        let (read, write) = pipe::pipe()?;
        Ok(Self(Kind::Pipe { read: read.into(), write: Some(write.into()) }))
    }

    /// For tests: gives the value that a forked child would inherit. As long as this value exists, the watch answers as
    /// if a forked child had inherited the watch.
    #[doc(hidden)]
    pub fn inherited(&self) -> OsResult<Self> {
        match &self.0 {
            Kind::Segment(segment) => Ok(Self(Kind::Segment(Segment::attach(segment.id, segment.creator)?))),
            Kind::Pipe { read, write } => {
                let copy = |end: &OwnFile| crate::file::duplicate(end).map(OwnFile::from);
                Ok(Self(Kind::Pipe { read: copy(read)?, write: write.as_ref().map(copy).transpose()? }))
            }
        }
    }

    /// Tells whether no child has this watch. If this is not known, the answer is `false`. The answer `true` holds for
    /// all children whose copy of the address space was begun before the call; later children inherit the watch.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        match &self.0 {
            Kind::Segment(segment) => segment.awaits_copy() && segment.is_only_here(),
            Kind::Pipe { .. } => false,
        }
    }

    /// Tells the same as [`Self::is_alone`], but the answer `true` holds only for the children whose copy of the address
    /// space was begun before this process last changed its mappings (`mmap`, `munmap` or `mremap`). This saves a system
    /// call.
    #[must_use]
    pub fn was_alone_at_last_mapping(&self) -> bool {
        match &self.0 {
            Kind::Segment(segment) => segment.is_only_here(),
            Kind::Pipe { .. } => false,
        }
    }

    /// Closes the watch: children that are forked from now on do not inherit it.
    pub fn close(&mut self) {
        match &mut self.0 {
            Kind::Segment(segment) => segment.close(),
            Kind::Pipe { write, .. } => *write = None,
        }
    }

    /// Tells whether no child has this watch any more. The caller must have closed the watch ([`Self::close`]). If the
    /// kernel does not tell whether a child has the watch, the answer is `false`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.0 {
            Kind::Segment(segment) => segment.is_only_here(),
            Kind::Pipe { read, .. } => matches!(read.proved().and_then(|read| pipe::read(read, &mut [0])), Ok(Some(0))),
        }
    }
}

#[derive(Debug)]
struct Segment {
    id: i32,
    start: NonNull<c_void>,
    /// The process that made the segment, and the process id of that process.
    process: ProcessToken,
    creator: u32,
    /// True if children that are forked now do not inherit the attachment.
    closed: bool,
}

// SAFETY: the segment is an address range that stays attached until drop. Any thread may drop it, and nothing reads or
// writes its memory.
unsafe impl Send for Segment {}
// SAFETY: the methods make system calls that any thread may make.
unsafe impl Sync for Segment {}

impl Segment {
    fn new() -> OsResult<Self> {
        // SAFETY: the call makes a new segment and touches no memory of this process.
        let id = sys::raw("shmget", || unsafe { libc::shmget(libc::IPC_PRIVATE, LENGTH, 0o600) });
        if id < 0 {
            return Err(OsError::last("shmget", "a watch for children"));
        }
        let attached = Self::attach(id, std::process::id());
        // From now on the segment exists as long as it is attached.
        // SAFETY: the call changes only the new segment.
        unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
        attached
    }

    fn attach(id: i32, creator: u32) -> OsResult<Self> {
        // SAFETY: the kernel chooses the address; no existing memory is touched.
        let start = sys::raw("shmat", || unsafe { libc::shmat(id, ptr::null(), libc::SHM_RDONLY) } as isize);
        if start == -1 {
            return Err(OsError::last("shmat", "a watch for children"));
        }
        let start = NonNull::new(start as *mut c_void).expect("shmat never returns address 0");
        Ok(Self { id, start, process: ProcessToken::current(), creator, closed: false })
    }

    /// If another thread is forking, waits until the kernel has copied the address space. Returns `false` if the kernel
    /// refuses.
    fn awaits_copy(&self) -> bool {
        // While another thread forks, the kernel copies one mapping after the other. This call changes nothing, but it
        // waits until such a copy is complete, as every change of a mapping does. So the count that is read afterwards
        // includes the child. SAFETY: the range is this value's own attachment, which children inherit already.
        unsafe { libc::madvise(self.start.as_ptr(), LENGTH, libc::MADV_DOFORK) == 0 }
    }

    fn close(&mut self) {
        self.closed = true;
        // If this call fails, later children inherit the segment too. Then they also count as children that have the
        // segment, although the watch is closed. SAFETY: the range is this value's own attachment, and nothing reads or
        // writes its memory.
        let _ = unsafe { libc::madvise(self.start.as_ptr(), LENGTH, libc::MADV_DONTFORK) };
    }

    /// Tells whether only this process has the segment attached. If the kernel does not tell, the answer is `false`.
    fn is_only_here(&self) -> bool {
        // SAFETY: all zeros are a valid value of this C structure.
        let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure, which lives during the call.
        let result = unsafe { libc::shmctl(self.id, libc::IPC_STAT, &raw mut status) };
        // If this process has entered another IPC namespace, the segment's id names another segment there, or no
        // segment. So the creator is compared too.
        result == 0 && status.shm_cpid as u32 == self.creator && status.shm_nattch == 1
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // A child that was forked after the watch was closed has a copy of this value, but did not inherit the
        // attachment. Another segment may be attached at the same address in the child. So such a child must not call
        // `shmdt` with this address.
        if !self.closed || self.process.is_current() {
            // SAFETY: the address is this process's own attachment, and nothing uses its memory.
            unsafe { libc::shmdt(self.start.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a child without the C library's `fork`. The child closes all its descriptors and waits for a signal.
    fn raw_child() -> i32 {
        // SAFETY: the child makes only system calls.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
        assert!(child >= 0);
        if child == 0 {
            loop {
                // SAFETY: these calls touch no memory.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                    libc::syscall(libc::SYS_kill, libc::getpid(), libc::SIGSTOP);
                }
            }
        }
        // SAFETY: the call waits until this process's own child has stopped, and touches no memory.
        assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), libc::WUNTRACED) }, child);
        child
    }

    fn end(child: i32) {
        // SAFETY: the calls end this process's own child and wait for it, and touch no memory.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, ptr::null_mut(), 0), child);
        }
    }

    // Children of other tests of this process inherit the watch as well, so the test runs in a child of its own.
    #[test]
    fn a_child_has_the_watch_until_it_ends_though_it_closes_all_descriptors() {
        let child = crate::child::fork_beside_threads(|| {
            let mut first = Segment::new().map(|segment| ForkWatch(Kind::Segment(segment))).unwrap();
            assert!(first.is_alone() && first.was_alone_at_last_mapping());
            let one = raw_child();
            assert!(!first.is_alone() && !first.was_alone_at_last_mapping());
            first.close();
            let second = ForkWatch::new().unwrap();
            let other = raw_child();
            assert!(!first.is_over() && !second.is_alone());
            end(one);
            assert!(first.is_over() && !second.is_alone());
            end(other);
            assert!(second.is_alone());
            0
        })
        .unwrap();
        assert!(matches!(crate::child::ended(child, true).unwrap(), Some(crate::child::ExitStatus::Code(0))));
    }

    #[test]
    fn a_pipe_tells_when_its_children_are_gone_after_it_was_closed() {
        let mut watch = ForkWatch::with_pipe().unwrap();
        assert!(!watch.is_alone());
        let of_child = watch.inherited().unwrap();
        watch.close();
        assert!(!watch.is_over());
        drop(of_child);
        let started = std::time::Instant::now();
        // A child of another test may have the pipe for a moment.
        while !watch.is_over() {
            assert!(started.elapsed().as_secs() < 30);
            std::thread::yield_now();
        }
    }
}
