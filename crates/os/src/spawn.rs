//! Starts child processes with settings that the standard library does not offer, and reaps whichever child has ended.

use crate::child::ExitStatus;
use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Lets the kernel kill the program when the thread that starts it ends.
///
/// The kernel looks at the thread and not at the process. So the program must be started by a thread that lives at
/// least as long as the program.
pub fn die_with_parent(command: &mut Command) {
    signal_with_parent(command, Signal::KILL);
}

/// Lets the kernel send SIGUSR2 to the program when the thread that starts it ends. `srun` passes this signal on to the
/// processes that it started on all hosts.
pub fn tell_at_parents_end(command: &mut Command) {
    signal_with_parent(command, Signal::USR2);
}

fn signal_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes two plain system calls between fork and exec. It allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            // If the parent died before the call, the kernel sends no signal. In that case the program is not started.
            if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
        });
    }
}

/// Starts the program as [`Command::spawn`] does. Tests can make this function fail.
///
/// # Errors
/// The errors of `fork`, `pipe2` and `execve`.
pub fn start(command: &mut Command) -> std::io::Result<Child> {
    sys::plan("spawn")?;
    crate::child::restore_descriptor_limit(command);
    crate::orphans::noting(|| command.spawn())
}

/// Starts the program as the leader of a new session without a terminal. No signal of a terminal reaches the program,
/// and no terminal stops the program or its descendants.
pub fn own_session(command: &mut Command) {
    // SAFETY: the closure makes one plain system call between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
}

/// Passes a descriptor to the program, which inherits it as descriptor `number`.
pub fn inherit(command: &mut Command, descriptor: OwnedFd, number: i32) {
    // SAFETY: the closure makes only plain system calls between fork and exec. It owns the descriptor, so the
    // descriptor is still open when the closure runs.
    unsafe {
        command.pre_exec(move || {
            let from = descriptor.as_raw_fd();
            let done = if from == number {
                rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).is_ok()
            } else {
                libc::dup2(from, number) == number
            };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

/// Copies a descriptor that this process inherited from its parent. The number comes from an environment variable and
/// may be wrong.
pub fn inherited(number: i32) -> OsResult<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF).context("fcntl", || format!("descriptor {number}"));
    }
    // SAFETY: the borrowed descriptor is used for one call only. If the number is no open descriptor, this call fails
    // with EBADF.
    let theirs = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    sys::io::fcntl_dupfd_cloexec(theirs, 3).context("fcntl", || format!("descriptor {number}"))
}

/// Starts the program with no signal blocked and with the default action for each signal, as after a login.
pub fn default_signals(command: &mut Command) {
    // SAFETY: the closure makes only plain system calls between fork and exec, on memory that no other code uses.
    unsafe {
        command.pre_exec(|| {
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            for signal in 1..32 {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Makes this process the leader of a new process group, so that signals to its former group do not reach it.
pub fn lead_group() -> OsResult<()> {
    rustix::process::setpgid(None, None).context("setpgid", || "this process".into())
}

/// The result of [`reap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This child has ended.
    Child(i32, ExitStatus),
    /// This process has children, but none of them has ended.
    Running,
    /// This process has no child.
    None,
}

/// Reaps one child that has ended. It does not wait.
pub fn reap() -> OsResult<Reaped> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let code = status.exit_status().map(ExitStatus::Code);
                let Some(ended) = code.or_else(|| status.terminating_signal().map(ExitStatus::Signal)) else {
                    continue;
                };
                return Ok(Reaped::Child(pid.as_raw_nonzero().get(), ended));
            }
            Ok(None) => return Ok(Reaped::Running),
            Err(Errno::CHILD) => return Ok(Reaped::None),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(OsError::new("waitpid", "any child", errno)),
        }
    }
}

/// Sends a signal, given by its number, to one process. Gives `true` if the kernel has sent it, and `false` if there is
/// no such process or this process may not send it a signal.
pub fn signal_process(pid: i32, signal: i32) -> bool {
    // SAFETY: this is a plain system call, and a wrong number is an error of the call. A number below 2 would mean a
    // process group or init, so no signal is sent to such a number.
    pid > 1 && unsafe { libc::kill(pid, signal) } == 0
}

/// Sends a signal, given by its number, to a process group. Gives `true` if the kernel has sent it to a process of the
/// group.
pub fn signal_group(leader: i32, signal: i32) -> bool {
    // SAFETY: this is a plain system call, and a wrong number is an error of the call.
    leader > 1 && unsafe { libc::kill(-leader, signal) } == 0
}

/// Ends this process by `signal`, so that its parent sees the same end as if the signal had come from outside. No core
/// dump is written.
pub fn end_by_signal(signal: i32) -> ! {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // SAFETY: the calls are plain system calls on memory of this function alone.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
        // The process comes here only if the signal did not end it.
        libc::_exit(128 + signal)
    }
}

/// The CPUs that this thread may use, in ascending order.
pub fn allowed_cpus() -> Vec<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// Binds this thread, and what it starts later, to these CPUs.
pub fn use_cpus(cpus: &[u32]) -> OsResult<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        if (*cpu as usize) < rustix::thread::CpuSet::MAX_CPU {
            set.set(*cpu as usize);
        }
    }
    rustix::thread::sched_setaffinity(None, &set).context("sched_setaffinity", || format!("CPUs {cpus:?}"))
}

/// Restricts the memory of this thread, and of what it starts, to these NUMA nodes.
pub fn use_memory_of(nodes: &[u32]) -> OsResult<()> {
    const MPOL_BIND: i64 = 2;
    let mut mask = [0u64; 16];
    for node in nodes {
        if let Some(word) = mask.get_mut(*node as usize / 64) {
            *word |= 1 << (node % 64);
        }
    }
    // SAFETY: the kernel reads the mask, whose length in bits is given.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, mask.as_ptr(), 64 * mask.len()) };
    if answer == 0 { Ok(()) } else { Err(OsError::last("set_mempolicy", format!("nodes {nodes:?}"))) }
}

/// Raises this process's limits of locked memory and of descriptors to their hard limits.
pub fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for resource in [Resource::Memlock, Resource::Nofile] {
        let most = getrlimit(resource).maximum;
        let _ = setrlimit(resource, Rlimit { current: most, maximum: most });
    }
}

/// The hard limits of this process for locked memory, descriptors and processes; `None` means no limit.
pub fn hard_limits() -> [(&'static str, Option<u64>); 3] {
    use rustix::process::{Resource, getrlimit};
    [("memlock", Resource::Memlock), ("nofile", Resource::Nofile), ("nproc", Resource::Nproc)]
        .map(|(name, resource)| (name, getrlimit(resource).maximum))
}

/// Locks a file for this open file description. Gives `false` if another description holds the lock. The lock ends when
/// the last copy of the descriptor is closed.
pub fn lock_file(file: impl AsFd) -> OsResult<bool> {
    match sys::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(OsError::new("flock", "a file", errno)),
    }
}

/// Makes a pipe and gives its reading end and its writing end.
pub fn pipe() -> OsResult<(OwnedFd, OwnedFd)> {
    sys::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("pipe2", || "a pipe".into())
}

/// The groups of this process, its own group first.
pub fn groups() -> Vec<u32> {
    let mut groups = vec![rustix::process::getegid().as_raw()];
    for group in rustix::process::getgroups().unwrap_or_default() {
        if !groups.contains(&group.as_raw()) {
            groups.push(group.as_raw());
        }
    }
    groups
}

/// The user id and the group id that this process acts with.
pub fn user_and_group() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Tells whether this process exists. A process that has ended and was not reaped also counts.
pub fn exists(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_program_finds_a_descriptor_under_the_number_that_it_was_given() {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo here > /proc/self/fd/42"]);
        inherit(&mut command, theirs, 42);
        assert!(command.status().unwrap().success());
        drop(command);
        let mut bytes = [0; 16];
        let length = rustix::io::read(ours.as_fd(), &mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"here\n");
    }

    #[test]
    fn a_program_dies_with_the_thread_that_started_it() {
        let child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            die_with_parent(&mut command);
            command.spawn().unwrap()
        });
        let mut child = child.join().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
    }

    #[test]
    fn this_thread_is_bound_to_the_cpus_that_it_chose() {
        std::thread::spawn(|| {
            let first = allowed_cpus()[0];
            use_cpus(&[first]).unwrap();
            assert_eq!(allowed_cpus(), [first]);
        })
        .join()
        .unwrap();
    }
}
