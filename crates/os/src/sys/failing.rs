//! The system calls of [`super`] in a build with the feature `faults`.

use crate::faults::{self, Fault};
use rustix::io::Errno;

/// Declares functions that first ask the plan of failures (`crate::faults`) whether to fail. The functions for reads
/// and writes, which may also fail with `Fault::Short`, are written out below instead.
macro_rules! failing {
    ($($name:ident($($arg:ident: $of:ty),*) -> $answer:ty = $call:literal, $($real:ident)::+;)*) => {$(
        pub(crate) fn $name($($arg: $of),*) -> rustix::io::Result<$answer> {
            $crate::faults::check($call)?;
            $($real)::+($($arg),*)
        }
    )*};
}

/// Declares functions like those of `failing!`, for system calls on memory, which are unsafe.
macro_rules! failing_on_memory {
    ($($name:ident($($arg:ident: $of:ty),*) -> $answer:ty = $call:literal, $($real:ident)::+;)*) => {$(
        /// # Safety
        /// The caller must keep the conditions of the `rustix` function that this function calls.
        pub(crate) unsafe fn $name($($arg: $of),*) -> rustix::io::Result<$answer> {
            $crate::faults::check($call)?;
            // SAFETY: the caller keeps the conditions of the `rustix` function.
            unsafe { $($real)::+($($arg),*) }
        }
    )*};
}

pub(crate) mod fs {
    pub(crate) use rustix::fs::*;
    use rustix::{fd::AsFd, fd::OwnedFd, path::Arg};

    failing! {
        open(path: impl Arg, flags: OFlags, mode: Mode) -> OwnedFd = "open", rustix::fs::open;
        openat(folder: impl AsFd, path: impl Arg, flags: OFlags, mode: Mode) -> OwnedFd = "open", rustix::fs::openat;
        openat2(folder: impl AsFd, path: impl Arg, flags: OFlags, mode: Mode, how: ResolveFlags) -> OwnedFd = "open", rustix::fs::openat2;
        memfd_create(name: impl Arg, flags: MemfdFlags) -> OwnedFd = "memfd_create", rustix::fs::memfd_create;
        ftruncate(file: impl AsFd, size: u64) -> () = "ftruncate", rustix::fs::ftruncate;
        fallocate(file: impl AsFd, how: FallocateFlags, from: u64, size: u64) -> () = "fallocate", rustix::fs::fallocate;
        mkdir(path: impl Arg, mode: Mode) -> () = "mkdir", rustix::fs::mkdir;
        mkdirat(folder: impl AsFd, path: impl Arg, mode: Mode) -> () = "mkdir", rustix::fs::mkdirat;
        fsync(file: impl AsFd) -> () = "fsync", rustix::fs::fsync;
        fdatasync(file: impl AsFd) -> () = "fsync", rustix::fs::fdatasync;
        flock(file: impl AsFd, how: FlockOperation) -> () = "flock", rustix::fs::flock;
        statx(at: impl AsFd, path: impl Arg, flags: AtFlags, wanted: StatxFlags) -> Statx = "statx", rustix::fs::statx;
        rename(from: impl Arg, to: impl Arg) -> () = "rename", rustix::fs::rename;
        renameat(a: impl AsFd, from: impl Arg, b: impl AsFd, to: impl Arg) -> () = "rename", rustix::fs::renameat;
        renameat_with(a: impl AsFd, from: impl Arg, b: impl AsFd, to: impl Arg, flags: RenameFlags) -> () = "rename", rustix::fs::renameat_with;
    }

    pub(crate) mod inotify {
        pub(crate) use rustix::fs::inotify::*;
        use rustix::{fd::AsFd, fd::OwnedFd, path::Arg};

        failing! {
            init(flags: CreateFlags) -> OwnedFd = "inotify_init1", rustix::fs::inotify::init;
            add_watch(watch: impl AsFd, path: impl Arg, flags: WatchFlags) -> i32 = "inotify_add_watch", rustix::fs::inotify::add_watch;
        }
    }
}

pub(crate) mod mm {
    use rustix::fd::AsFd;
    pub(crate) use rustix::mm::munmap as munmap_whole;
    pub(crate) use rustix::mm::*;
    use std::ffi::c_void;

    failing_on_memory! {
        mmap(at: *mut c_void, size: usize, protection: ProtFlags, flags: MapFlags, file: impl AsFd, from: u64) -> *mut c_void = "mmap", rustix::mm::mmap;
        mmap_anonymous(at: *mut c_void, size: usize, protection: ProtFlags, flags: MapFlags) -> *mut c_void = "mmap", rustix::mm::mmap_anonymous;
        mremap(at: *mut c_void, old: usize, new: usize, flags: MremapFlags) -> *mut c_void = "mremap", rustix::mm::mremap;
        mremap_fixed(at: *mut c_void, old: usize, new: usize, flags: MremapFlags, to: *mut c_void) -> *mut c_void = "mremap", rustix::mm::mremap_fixed;
        munmap(at: *mut c_void, size: usize) -> () = "munmap", rustix::mm::munmap;
        mprotect(at: *mut c_void, size: usize, flags: MprotectFlags) -> () = "mprotect", rustix::mm::mprotect;
        madvise(at: *mut c_void, size: usize, advice: Advice) -> () = "madvise", rustix::mm::madvise;
    }
}

pub(crate) mod io {
    use super::{Errno, Fault, faults};
    use rustix::fd::{AsFd, OwnedFd};
    pub(crate) use rustix::io::*;

    failing! {
        fcntl_dupfd_cloexec(file: impl AsFd, lowest: i32) -> OwnedFd = "F_DUPFD_CLOEXEC", rustix::io::fcntl_dupfd_cloexec;
    }

    /// Gives how many of the `of` bytes the call reads or writes: half of them if the plan of failures says
    /// [`Fault::Short`]. The eight bytes of an eventfd or timer are never split.
    fn length(call: &'static str, of: usize) -> Result<usize> {
        if of <= 8 && call != "write_file" {
            return Ok(of);
        }
        match faults::next(call) {
            None => Ok(of),
            Some(Fault::Short) => Ok(of.div_ceil(2)),
            Some(Fault::Error(errno)) => Err(errno),
            Some(Fault::Stripped) => Err(Errno::INTR),
        }
    }

    pub(crate) fn read(file: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
        let length = length("read", buffer.len())?;
        rustix::io::read(file, &mut buffer[..length])
    }

    pub(crate) fn write(file: impl AsFd, bytes: &[u8]) -> Result<usize> {
        let length = length("write", bytes.len())?;
        rustix::io::write(file, &bytes[..length])
    }

    pub(crate) fn pread(file: impl AsFd, buffer: &mut [u8], from: u64) -> Result<usize> {
        let length = length("pread", buffer.len())?;
        rustix::io::pread(file, &mut buffer[..length], from)
    }

    pub(crate) fn pwrite(file: impl AsFd, bytes: &[u8], from: u64) -> Result<usize> {
        let length = length("pwrite", bytes.len())?;
        rustix::io::pwrite(file, &bytes[..length], from)
    }

    pub(crate) fn write_file(file: impl AsFd, bytes: &[u8]) -> Result<usize> {
        let length = length("write_file", bytes.len())?;
        rustix::io::write(file, &bytes[..length])
    }

    pub(crate) fn pwrite_file(file: impl AsFd, bytes: &[u8], from: u64) -> Result<usize> {
        let length = length("write_file", bytes.len())?;
        rustix::io::pwrite(file, &bytes[..length], from)
    }

    pub(crate) fn pwrite_reserved(file: impl AsFd, bytes: &[u8], from: u64) -> Result<usize> {
        let length = length("pwrite_reserved", bytes.len())?;
        rustix::io::pwrite(file, &bytes[..length], from)
    }
}

pub(crate) mod event {
    pub(crate) use rustix::event::*;
    use rustix::fd::OwnedFd;

    failing! {
        eventfd(value: u32, flags: EventfdFlags) -> OwnedFd = "eventfd", rustix::event::eventfd;
        poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> usize = "poll", rustix::event::poll;
    }

    pub(crate) mod epoll {
        use rustix::event::Timespec;
        pub(crate) use rustix::event::epoll::*;
        use rustix::fd::{AsFd, OwnedFd};
        use std::mem::MaybeUninit;

        failing! {
            create(flags: CreateFlags) -> OwnedFd = "epoll_create1", rustix::event::epoll::create;
            add(set: impl AsFd, file: impl AsFd, data: EventData, flags: EventFlags) -> () = "epoll_ctl", rustix::event::epoll::add;
        }

        pub(crate) fn wait<'a>(
            set: impl AsFd,
            events: &'a mut [MaybeUninit<Event>],
            timeout: Option<&Timespec>,
        ) -> rustix::io::Result<(&'a mut [Event], &'a mut [MaybeUninit<Event>])> {
            crate::faults::check("epoll_wait")?;
            rustix::event::epoll::wait(set, events, timeout)
        }
    }
}

pub(crate) mod time {
    use rustix::fd::OwnedFd;
    pub(crate) use rustix::time::*;

    failing! {
        timerfd_create(clock: TimerfdClockId, flags: TimerfdFlags) -> OwnedFd = "timerfd_create", rustix::time::timerfd_create;
    }
}

pub(crate) mod net {
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::net::addr::SocketAddrArg;
    pub(crate) use rustix::net::*;

    failing! {
        socket_with(domain: AddressFamily, kind: SocketType, flags: SocketFlags, protocol: Option<Protocol>) -> OwnedFd = "socket", rustix::net::socket_with;
        socketpair(domain: AddressFamily, kind: SocketType, flags: SocketFlags, protocol: Option<Protocol>) -> (OwnedFd, OwnedFd) = "socket", rustix::net::socketpair;
        accept_with(socket: impl AsFd, flags: SocketFlags) -> OwnedFd = "accept", rustix::net::accept_with;
        acceptfrom_with(socket: impl AsFd, flags: SocketFlags) -> (OwnedFd, Option<SocketAddrAny>) = "accept", rustix::net::acceptfrom_with;
        connect(socket: impl AsFd, address: &impl SocketAddrArg) -> () = "connect", rustix::net::connect;
        bind(socket: impl AsFd, address: &impl SocketAddrArg) -> () = "bind", rustix::net::bind;
    }

    pub(crate) fn sendmsg(
        socket: impl AsFd,
        parts: &[std::io::IoSlice<'_>],
        control: &mut SendAncillaryBuffer<'_, '_, '_>,
        flags: SendFlags,
    ) -> rustix::io::Result<usize> {
        crate::faults::check("sendmsg")?;
        rustix::net::sendmsg(socket, parts, control, flags)
    }

    pub(crate) fn recvmsg(
        socket: impl AsFd,
        parts: &mut [std::io::IoSliceMut<'_>],
        control: &mut RecvAncillaryBuffer<'_>,
        flags: RecvFlags,
    ) -> rustix::io::Result<RecvMsg> {
        crate::faults::check("recvmsg")?;
        rustix::net::recvmsg(socket, parts, control, flags)
    }
}

pub(crate) mod pipe {
    use rustix::fd::OwnedFd;
    pub(crate) use rustix::pipe::*;

    failing! {
        pipe_with(flags: PipeFlags) -> (OwnedFd, OwnedFd) = "pipe2", rustix::pipe::pipe_with;
    }
}

pub(crate) mod process {
    use rustix::fd::OwnedFd;
    pub(crate) use rustix::process::*;

    failing! {
        pidfd_open(pid: Pid, flags: PidfdFlags) -> OwnedFd = "pidfd_open", rustix::process::pidfd_open;
    }
}

pub(crate) mod mount {
    use rustix::fd::{AsFd, OwnedFd};
    pub(crate) use rustix::mount::*;
    use rustix::path::Arg;

    failing! {
        open_tree(at: impl AsFd, path: impl Arg, flags: OpenTreeFlags) -> OwnedFd = "open_tree", rustix::mount::open_tree;
        fsopen(kind: impl Arg, flags: FsOpenFlags) -> OwnedFd = "fsopen", rustix::mount::fsopen;
        fsmount(context: impl AsFd, flags: FsMountFlags, attributes: MountAttrFlags) -> OwnedFd = "fsmount", rustix::mount::fsmount;
    }
}

/// Makes the call, unless the plan makes it fail. A planned failure gives -1 and sets `errno`.
pub(crate) fn raw<N: From<i8>>(name: &'static str, call: impl FnOnce() -> N) -> N {
    match faults::check(name) {
        Ok(()) => call(),
        Err(errno) => {
            // SAFETY: the address that the C library gives for this thread's errno is valid.
            unsafe { *libc::__errno_location() = errno.raw_os_error() };
            N::from(-1)
        }
    }
}

pub(crate) fn plan(name: &'static str) -> std::io::Result<()> {
    Ok(faults::check(name)?)
}

pub(crate) fn strips() -> bool {
    faults::next("SCM_RIGHTS") == Some(Fault::Stripped)
}
