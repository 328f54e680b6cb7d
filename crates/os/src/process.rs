//! Inspects other processes: whether a process id still belongs to the same process, and whether the process is alive.
//! Also reads the limits of this process.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, Resource};
use rustix::thread::CpuSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Opens a pidfd of the process `pid`; `None` if there is no such process.
pub fn open_pidfd(pid: i32) -> OsResult<Option<OwnedFd>> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(None) };
    match sys::process::pidfd_open(id, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(errno) => Err(OsError::new("pidfd_open", format!("process {pid}"), errno)),
    }
}

/// Tells whether the process of this pidfd is dead. A zombie counts as dead.
pub fn is_dead(pidfd: impl AsFd) -> bool {
    crate::event::wait_readable(pidfd, crate::Deadline::after(std::time::Duration::ZERO)).unwrap_or(false)
}

/// Tells whether a process still runs, and if not, how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessState {
    /// The process still runs.
    Running,
    /// A signal ended the process, or is ending it now.
    Killed,
    /// The process exited by itself, or is about to exit.
    Exited,
    /// The process is gone, and this kernel (before 6.15) does not keep its exit status.
    Unknown,
}

/// Tells whether a signal is pending for a thread that sleeps in a system call. Signals that the thread blocks or
/// ignores do not count. The answer is also `true` if the thread no longer exists.
pub fn has_signal(thread: i32) -> bool {
    let Ok(status) = sys::read_text(format!("/proc/{thread}/status")) else { return true };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

/// Tells how the process with this pidfd and process id ended. A process that is ending at this moment counts as exited
/// or killed already, although its parent cannot see its end yet. The caller needs the right to inspect the process.
///
/// If one thread of a process calls `exit`, the kernel ends the other threads by a signal, and the flag `SIGNALED` of
/// the first thread is set. So only the exit code tells whether the process was killed.
///
/// # Errors
/// A call failed, for example because descriptors are short. The same call may succeed later.
pub fn state(pidfd: impl AsFd, pid: i32) -> OsResult<ProcessState> {
    const EXITING: u64 = 0x4;
    const SIGNALED: u64 = 0x400;
    const SIGNAL: u64 = 0x7f;
    let text = match sys::read_text(format!("/proc/{pid}/stat")) {
        Ok(text) => Some(text),
        Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            Errno::NOENT | Errno::SRCH => None,
            errno => return Err(OsError::new("read", format!("/proc/{pid}/stat"), errno)),
        },
    };
    let found = text.and_then(|stat| {
        // The second field of `/proc/PID/stat` is the program's name in brackets and may contain any text. So the
        // fields are counted from the last bracket; the flags are field 9, and the exit code is field 52.
        let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
        Some((fields.nth(6)?.parse::<u64>().ok()?, fields.nth(42)?.parse::<u64>().ok()?))
    });
    let gone = crate::event::wait_readable(&pidfd, crate::Deadline::after(std::time::Duration::ZERO))?;
    Ok(match (found, gone) {
        (Some((flags, _)), false) if flags & (EXITING | SIGNALED) == 0 => ProcessState::Running,
        (Some((flags, code)), _) if flags & (EXITING | SIGNALED) != 0 => {
            if code & SIGNAL != 0 {
                ProcessState::Killed
            } else {
                ProcessState::Exited
            }
        }
        _ => match exit_code(pidfd) {
            Some(code) if code & 0x7f != 0 => ProcessState::Killed,
            Some(_) => ProcessState::Exited,
            None => ProcessState::Unknown,
        },
    })
}

/// The wait status of a process that was reaped; `None` if it was not reaped yet or if the kernel does not keep the
/// status.
fn exit_code(pidfd: impl AsFd) -> Option<i32> {
    const EXIT: u64 = 1 << 3;
    /// `struct pidfd_info` of the kernel's interface, version 0.
    #[repr(C)]
    #[derive(Default)]
    struct PidfdInfo {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const GET_INFO: libc::Ioctl = (3 << 30 | (size_of::<PidfdInfo>() as u32) << 16 | 0xff << 8 | 11) as libc::Ioctl;
    let mut info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
    use rustix::fd::AsRawFd;
    // SAFETY: the kernel writes at most as many bytes as the request number of the ioctl says, into a structure of that
    // size.
    let answer = unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), GET_INFO, &raw mut info) };
    (answer == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Sends a signal to the process of this pidfd, and never to another process. It is no error if the process is dead.
pub fn send_signal(pidfd: impl AsFd, signal: Signal) -> OsResult<()> {
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(OsError::new("pidfd_send_signal", format!("{signal:?}"), errno)),
    }
}

/// Kills this process at once with SIGKILL. The fault points of test builds use it.
pub fn kill_self() -> ! {
    loop {
        // A process can always send SIGKILL to itself, so the loop does not repeat. The loop is here because the
        // function must not return.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
}

/// Gives a number that no other process with the same process id has until the machine is started again; `None` if it
/// is not known. `pidfd` must be a pidfd of the process `pid`.
///
/// The number is the inode number of the pidfd. On kernels before 6.9, all pidfds have the same inode, and the number is
/// the time at which the process started, in clock ticks since boot.
pub fn birth(pid: i32, pidfd: impl AsFd) -> Option<u64> {
    const PIDFS: i64 = 0x5049_4446;
    match rustix::fs::fstatfs(&pidfd).ok()?.f_type as i64 {
        PIDFS => rustix::fs::fstat(&pidfd).ok().map(|status| status.st_ino),
        _ => start_time(pid),
    }
}

/// The time at which a process started, in clock ticks since boot. The process id and the start time together identify
/// a process for good.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = sys::read_text(format!("/proc/{pid}/stat")).ok()?;
    // The second field of `/proc/PID/stat` is the program's name in brackets and may contain any text. So the fields
    // are counted from the last bracket; the start time is field 22.
    let behind_name = &stat[stat.rfind(')')? + 1..];
    behind_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The inode number of this process's PID namespace; 0 if it is not known. A process id from another PID namespace does
/// not identify a process in this namespace.
pub fn number_space() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}

/// The number of CPUs that this thread may run on.
pub fn processors() -> usize {
    // The number of CPUs; 0 until a thread has asked the kernel for it. This is an atomic and not a lock, because a
    // forked child could find a lock held.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let count = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize).max(1);
            COUNT.store(count, Ordering::Relaxed);
            count
        }
        known => known,
    }
}

/// The numbers of the CPUs that this thread may run on; empty if the kernel does not tell.
pub fn affinity() -> Vec<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|i| set.is_set(*i)).map(|i| i as u32).collect()
}

/// Restricts this thread, and all threads and processes that it starts later, to these CPUs.
pub fn set_affinity(processors: &[u32]) -> OsResult<()> {
    let mut set = CpuSet::new();
    processors.iter().filter(|p| (**p as usize) < CpuSet::MAX_CPU).for_each(|p| set.set(*p as usize));
    rustix::thread::sched_setaffinity(None, &set).context("sched_setaffinity", || format!("processors {processors:?}"))
}

/// The kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The resource that a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The limit of open descriptors of this process.
    Descriptors,
    /// The limit of processes of this process's user.
    Processes,
    /// The limit of bytes of address space of this process.
    AddressSpace,
}

/// A limit of this process: its present value, and the maximum to which the process may raise it. `None` means no
/// limit.
pub fn limit(of: Limit) -> (Option<u64>, Option<u64>) {
    let limit = rustix::process::getrlimit(match of {
        Limit::Descriptors => Resource::Nofile,
        Limit::Processes => Resource::Nproc,
        Limit::AddressSpace => Resource::As,
    });
    (limit.current, limit.maximum)
}

/// Lets the kernel send this process `signal` when its parent dies.
///
/// If the parent dies before the call, no signal is sent. So the caller must check afterwards that its parent's
/// process id is still the expected one.
pub fn set_parent_death_signal(signal: Signal) -> OsResult<()> {
    rustix::process::set_parent_process_death_signal(Some(signal)).context("PR_SET_PDEATHSIG", || format!("{signal:?}"))
}

/// The kernel's estimate of how many bytes of memory are available without swapping; 0 if it does not tell.
pub fn available_memory() -> u64 {
    memory("MemAvailable:")
}

/// The number of bytes of memory of the whole node; 0 if the kernel does not tell.
pub fn total_memory() -> u64 {
    memory("MemTotal:")
}

fn memory(what: &str) -> u64 {
    let info = sys::read_text("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfd_tells_the_death_of_its_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = open_pidfd(child.id() as i32).unwrap().unwrap();
        assert!(!is_dead(&pidfd));
        let (own, other) = (std::process::id() as i32, child.id() as i32);
        assert_eq!(birth(other, &pidfd), birth(other, open_pidfd(other).unwrap().unwrap()));
        assert_ne!(birth(other, &pidfd), birth(own, open_pidfd(own).unwrap().unwrap()));
        assert!(birth(other, &pidfd).unwrap() > 0);
        send_signal(&pidfd, Signal::KILL).unwrap();
        assert!(
            crate::event::wait_readable(&pidfd, crate::Deadline::after(std::time::Duration::from_secs(10))).unwrap()
        );
        assert!(is_dead(&pidfd));
        child.wait().unwrap();
        assert!(open_pidfd(child.id() as i32).unwrap().is_none());
    }

    #[test]
    fn a_killed_process_is_told_from_one_that_ended_before_and_after_it_was_reaped() {
        for (script, fate_then) in [("kill -9 $$", ProcessState::Killed), ("exit 3", ProcessState::Exited)] {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pid = child.id() as i32;
            let pidfd = open_pidfd(pid).unwrap().unwrap();
            let soon = crate::Deadline::after(std::time::Duration::from_secs(10));
            assert!(crate::event::wait_readable(&pidfd, soon).unwrap());
            assert_eq!(state(&pidfd, pid).unwrap(), fate_then, "{script}, not reaped yet");
            child.wait().unwrap();
            let later = state(&pidfd, pid).unwrap();
            assert!(later == fate_then || later == ProcessState::Unknown, "{script}, reaped: {later:?}");
        }
        // In the following processes, the first thread is asleep while another thread ends the process.
        for (end, fate_then) in
            [("os._exit(0)", ProcessState::Exited), ("os.kill(os.getpid(), 9)", ProcessState::Killed)]
        {
            let script =
                format!("import os, threading, time\nthreading.Thread(target=lambda: {end}).start()\ntime.sleep(60)");
            let mut child = std::process::Command::new("python3").args(["-c", &script]).spawn().unwrap();
            let pid = child.id() as i32;
            let pidfd = open_pidfd(pid).unwrap().unwrap();
            let soon = crate::Deadline::after(std::time::Duration::from_secs(50));
            assert!(crate::event::wait_readable(&pidfd, soon).unwrap());
            assert_eq!(state(&pidfd, pid).unwrap(), fate_then, "{end}");
            child.wait().unwrap();
        }
        let own = open_pidfd(std::process::id() as i32).unwrap().unwrap();
        assert_eq!(state(&own, std::process::id() as i32).unwrap(), ProcessState::Running);
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        assert!(processors() >= 1);
        assert!(available_memory() > 1 << 20);
    }
}
