//! Forks child processes that go on in this program's code, and reaps them.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// The process ended by itself, with this exit code.
    Code(i32),
    /// A signal with this number ended the process.
    Signal(i32),
}

/// The number of threads of this process; `None` if it cannot be found out, for example without `/proc`.
pub fn threads() -> Option<usize> {
    threads_in("/proc/self/task")
}

fn threads_in(folder: &str) -> Option<usize> {
    Some(std::fs::read_dir(folder).ok()?.count()).filter(|count| *count > 0)
}

/// Forks a child that runs `body`. The child exits with the code that `body` returns, and does not run the parent's
/// exit handlers.
///
/// The call fails if this process has other threads, or if their number is not known, because the child would inherit
/// their locks but not the threads.
pub fn fork(body: impl FnOnce() -> i32) -> OsResult<i32> {
    match threads() {
        Some(1) => {}
        Some(_) => return Err(OsError::new("fork", "a process with several threads", Errno::BUSY)),
        None => return Err(OsError::new("fork", "a process whose threads cannot be counted: no /proc", Errno::BUSY)),
    }
    fork_beside_threads(body)
}

/// Forks a child as [`fork`] does, but this process may have other threads. `body` must not take a lock that another
/// thread may hold. Only the locks of the C library, also those of its allocator, can always be taken in the child.
pub fn fork_beside_threads(body: impl FnOnce() -> i32) -> OsResult<i32> {
    // SAFETY: the child runs only `body`, on its only thread, and leaves by _exit. If `body` waits for a lock that
    // another thread of the parent held, the lock is never released. This is a deadlock and no undefined behaviour.
    let pid = sys::raw("fork", || unsafe { libc::fork() });
    if pid < 0 {
        return Err(OsError::last("fork", "this process"));
    }
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: the call ends the child process at once.
        unsafe { libc::_exit(code) }
    }
    Ok(pid)
}

/// Reaps the child `pid` if it has ended. Gives `None` while it runs. If `wait` is true, waits for its end.
pub fn ended(pid: i32, wait: bool) -> OsResult<Option<ExitStatus>> {
    let options = if wait { WaitOptions::empty() } else { WaitOptions::NOHANG };
    loop {
        match rustix::process::waitpid(Pid::from_raw(pid), options) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(OsError::new("waitpid", format!("process {pid}"), errno)),
            Ok(None) => return Ok(None),
            Ok(Some((_, status))) => {
                let code = status.exit_status().map(ExitStatus::Code);
                return Ok(code.or_else(|| status.terminating_signal().map(ExitStatus::Signal)));
            }
        }
    }
}

/// Tells whether the child `pid` has ended, without reaping it.
///
/// # Errors
/// This process has no such child, for example because another part of the program has reaped it.
pub fn has_ended(pid: i32) -> OsResult<bool> {
    let named = || format!("process {pid}");
    let id = Pid::from_raw(pid).ok_or(Errno::CHILD).context("waitid", named)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(id), options).map(|status| status.is_some()).context("waitid", named)
}

/// Sends a signal to a child that has not been reaped yet. Until the child is reaped, no other process can have its
/// process id, so the signal cannot reach another process.
pub fn signal(pid: i32, signal: Signal) -> OsResult<()> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(()) };
    match rustix::process::kill_process(id, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(OsError::new("kill", format!("process {pid}"), errno)),
    }
}

/// Sends a signal to a process group. It is no error if the group no longer exists.
pub fn signal_group(group: i32, signal: Signal) -> OsResult<()> {
    let Some(id) = Pid::from_raw(group) else { return Ok(()) };
    match rustix::process::kill_process_group(id, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(OsError::new("killpg", format!("process group {group}"), errno)),
    }
}

/// From now on, a descendant of this process whose parent ends becomes a child of this process. This also works in a
/// process that has no PID namespace of its own.
pub fn adopt_orphans() -> OsResult<()> {
    rustix::process::set_child_subreaper(Pid::from_raw(1)).context("PR_SET_CHILD_SUBREAPER", || "this process".into())
}

/// From now on, the kernel keeps the status of each child that ends until this process has waited for the child. A
/// process that was started with SIGCHLD ignored needs this call before it can learn how a child ended.
pub fn keep_ended_children() {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Those of `signals` that this process does not ignore, and SIGTERM in any case. A program such as `nohup` starts
/// another program with a signal ignored, so that the signal does not end it.
pub fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let ignored = |signal: i32| {
        let mut present = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: without a new action, the call only writes the present action, and zeros are a valid one too.
        unsafe {
            libc::sigaction(signal, std::ptr::null(), present.as_mut_ptr()) == 0
                && present.assume_init().sa_sigaction == libc::SIG_IGN
        }
    };
    signals.iter().copied().filter(|signal| *signal == libc::SIGTERM || !ignored(*signal)).collect()
}

/// Reaps all children that have ended.
pub fn reap_all() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// Leaves the terminal's process group and session, so that the terminal's signals do not reach this process.
pub fn leave_session() {
    // The call fails if this process leads a process group. The failure is ignored, and the process stays in its
    // session.
    let _ = rustix::process::setsid();
}

/// Replaces a standard stream (0, 1 or 2) of the daemon by `/dev/null`. Otherwise a process that reads the stream to
/// its end would wait until the daemon ends.
pub fn leave_stream(number: i32) {
    if let Ok(nothing) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        use std::os::fd::AsRawFd;
        // SAFETY: the call replaces one of the three standard descriptors, which no value owns, by a copy of an open
        // descriptor.
        unsafe { libc::dup2(nothing.as_raw_fd(), number.clamp(0, 2)) };
    }
}

/// From now on, programs that this process starts do not inherit the descriptors that it has now, except the three
/// standard streams.
pub fn pass_no_descriptors() {
    // SAFETY: the call sets a flag of open descriptors. It closes none and uses no memory of this process.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked != 0 {
        mark_listed_descriptors();
    }
}

/// Does the same as [`pass_no_descriptors`] on kernels before 5.11.
fn mark_listed_descriptors() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: the call sets a flag of a descriptor. If the descriptor is closed meanwhile, the call fails.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// The process id of this process's parent.
pub fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get())
}

/// The effective user id of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The effective group id of this process.
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Raises this process's limit of open descriptors to its hard limit and gives the new limit.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let allowed = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    allowed.unwrap_or(1 << 20)
}

/// The limit of open descriptors that programs get which this process starts; 0 if they get this process's limit.
static LIMIT_FOR_PROGRAMS: AtomicU64 = AtomicU64::new(0);

/// Raises this process's limit of open descriptors like [`raise_descriptor_limit`]. Programs that
/// [`crate::spawn::start`] starts keep the limit that this process has now: a program that uses `select`, or closes
/// each possible descriptor, may not work with the raised limit.
pub fn raise_own_descriptor_limit() {
    let before = descriptor_limit();
    if raise_descriptor_limit() > before {
        LIMIT_FOR_PROGRAMS.store(before, Ordering::Relaxed);
    }
}

/// Lets the program start with the limit of open descriptors that [`raise_own_descriptor_limit`] has noted, if any.
pub(crate) fn restore_descriptor_limit(command: &mut Command) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = LIMIT_FOR_PROGRAMS.load(Ordering::Relaxed);
    if before == 0 {
        return;
    }
    // SAFETY: the closure makes only plain system calls between fork and exec, on memory that no other code uses.
    unsafe {
        command.pre_exec(move || {
            let maximum = getrlimit(Resource::Nofile).maximum;
            Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(before), maximum })?)
        });
    }
}

/// From now on, a system call fails with EFBIG when a file would grow beyond this process's limit (`ulimit -f`).
/// Without this call, the kernel would send a signal that ends the process. The function also raises the limit to its
/// hard limit.
pub fn survive_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = getrlimit(Resource::Fsize);
    let _ = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The limit of open descriptors of this process.
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Starts a thread that blocks all signals. Signals for the program then go to the program's own threads.
pub fn spawn_quiet(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the calls write both sets before the sets are read. Only this thread's signal mask changes, and it is
    // restored below.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let allowed = if sys::raw("clone", || 0) == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    let started = allowed.and_then(|()| std::thread::Builder::new().name(name.into()).stack_size(stack).spawn(body));
    // SAFETY: the earlier `pthread_sigmask` has written `before`, and this call only reads it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.map(drop)
}

/// Gets `N` random bytes from the kernel. No process can guess these bytes.
pub fn random<const N: usize>() -> OsResult<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Err(Errno::INTR) => {}
            got => filled += got.context("getrandom", || format!("{N} bytes"))?,
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_or_unknown_and_never_none_at_all() {
        assert!(threads().is_some_and(|count| count >= 1));
        assert_eq!(threads_in("/proc/self/there-is-no-such-folder"), None);
    }

    #[test]
    fn descriptors_that_are_listed_are_marked_one_by_one() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let marked = || rustix::io::fcntl_getfd(&read).unwrap().contains(rustix::io::FdFlags::CLOEXEC);
        assert!(!marked());
        mark_listed_descriptors();
        assert!(marked());
    }

    #[test]
    fn an_ignored_signal_is_left_out() {
        let of_two = || not_ignored(&[libc::SIGURG, libc::SIGWINCH]);
        assert_eq!(of_two(), [libc::SIGURG, libc::SIGWINCH]);
        // SAFETY: ignoring a signal runs no code of ours. No other test uses SIGURG.
        unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) };
        assert_eq!(of_two(), [libc::SIGWINCH]);
    }

    #[test]
    fn programs_keep_the_limit_of_descriptors_that_this_process_had() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        if limit.current == limit.maximum {
            let lower = Rlimit { current: limit.maximum.map(|most| most - 1), ..limit };
            setrlimit(Resource::Nofile, lower).unwrap();
        }
        let before = descriptor_limit();
        raise_own_descriptor_limit();
        assert!(descriptor_limit() > before);
        // A second call must not take the raised limit for the earlier one.
        raise_own_descriptor_limit();
        let mut shell = Command::new("sh");
        let shell = crate::spawn::start(shell.args(["-c", "ulimit -Sn"]).stdout(std::process::Stdio::piped())).unwrap();
        let told = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(told.trim(), before.to_string());
    }
}
