//! Stops those system calls of a program that look up a file's name, before the kernel does them. So another process
//! can make the program wait.
//!
//! The filter for consumers of files stops only calls that look up a name, open a file or change a name. All other
//! calls run as before, for example `close`, `fork` and `fstat`. `io_uring_setup` fails with ENOSYS, because no filter
//! sees the files that an `io_uring` opens. The filter for producers stops only calls that open a file for writing or
//! set its length. Calls of a program of another instruction set (32 bits) are not stopped by any filter.
//!
//! This is no security boundary. A program can change the name in its memory after the supervisor has read the name and
//! before the kernel reads it. So the supervisor never opens a file for the program. It only lets the call go on with
//! the program's own rights.

use std::mem::{MaybeUninit, zeroed};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

use crate::error::{OsError, OsResult};
use crate::socket;

/// A stopped call. The thread that made it sleeps until the supervisor answers, or until a signal interrupts or kills
/// the thread.
#[derive(Clone, Copy, Debug)]
pub struct StoppedCall {
    /// The id of the stopped call. The supervisor repeats this id in its answer.
    pub id: u64,
    /// The thread that made the call.
    pub thread: i32,
    /// The number of the system call.
    pub number: libc::c_long,
    /// The arguments of the system call.
    pub arguments: [u64; 6],
}

/// The descriptor through which the supervisor receives the stopped calls of a program and of all its descendants. When
/// it is closed, all stopped calls fail with ENOSYS.
#[derive(Debug)]
pub struct Listener(OwnedFd);

const RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const RET_NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const RET_NOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const NO_NAME: u32 = libc::AT_EMPTY_PATH as u32;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// The numbers of the calls that look up a name. The filter for consumers stops these calls. An entry may also have the
/// number of the argument with the flags, and a mask. The filter does not stop the call if one of the mask's bits is
/// set in the flags.
#[rustfmt::skip]
const CALLS: &[(libc::c_long, Option<(u32, u32)>)] = &[
    (libc::SYS_openat, None),
    (libc::SYS_openat2, None),
    (libc::SYS_newfstatat, Some((3, NO_NAME))),
    (libc::SYS_statx, Some((2, NO_NAME))),
    (libc::SYS_faccessat, None),
    (libc::SYS_faccessat2, Some((3, NO_NAME))),
    (libc::SYS_chdir, None),
    #[cfg(target_arch = "x86_64")] (libc::SYS_open, None),
    #[cfg(target_arch = "x86_64")] (libc::SYS_creat, None),
    #[cfg(target_arch = "x86_64")] (libc::SYS_stat, None),
    #[cfg(target_arch = "x86_64")] (libc::SYS_lstat, None),
    #[cfg(target_arch = "x86_64")] (libc::SYS_access, None),
];

/// An open with one of these flags writes, creates or truncates a file. (`O_TMPFILE` includes the bit of `O_DIRECTORY`,
/// which is removed here, because an open of a folder writes nothing.)
const WRITES: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// The numbers of the calls that change a file. An entry may also have the number of the argument with the flags, and
/// a mask: the filter stops the call only if one of the mask's bits is set in the flags.
#[rustfmt::skip]
const CHANGES: &[(libc::c_long, Option<(u32, u32)>)] = &[
    (libc::SYS_openat, Some((2, WRITES))),
    (libc::SYS_openat2, None),
    (libc::SYS_truncate, None),
    #[cfg(target_arch = "x86_64")] (libc::SYS_open, Some((1, WRITES))),
    #[cfg(target_arch = "x86_64")] (libc::SYS_creat, None),
];

/// The numbers of the calls that change names. The filter for consumers stops them, because consumers may not change
/// names in a managed directory.
#[rustfmt::skip]
const NAMES: &[libc::c_long] = &[
    libc::SYS_truncate, libc::SYS_unlinkat, libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_symlinkat,
    libc::SYS_linkat, libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")] libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")] libc::SYS_rename,
    #[cfg(target_arch = "x86_64")] libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")] libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_link,
];

/// Which calls of a program are stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stops {
    /// All calls that look up a name, or change a file or a name. The call `io_uring_setup` is not stopped: it fails,
    /// because no filter sees the files that an `io_uring` opens.
    All,
    /// The calls that open a file for writing or set its length.
    Writes,
}

fn filter(stops: Stops) -> Vec<libc::sock_filter> {
    let load = |offset: usize| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset as u32);
    let equal = |value: u32, yes: u8, no: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let any_bit = |bits: u32, yes: u8, no: u8| step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, bits);
    let answer = |what: u32| step(libc::BPF_RET | libc::BPF_K, 0, 0, what);
    let number = std::mem::offset_of!(libc::seccomp_data, nr);
    let arguments = std::mem::offset_of!(libc::seccomp_data, args);
    let mut steps = vec![
        load(std::mem::offset_of!(libc::seccomp_data, arch)),
        equal(ARCHITECTURE, 1, 0),
        answer(RET_ALLOW),
        load(number),
    ];
    if stops == Stops::Writes {
        for (call, only_if) in CHANGES {
            match only_if {
                None => steps.extend([equal(*call as u32, 0, 1), answer(RET_NOTIFY)]),
                Some((argument, bits)) => steps.extend([
                    equal(*call as u32, 0, 4),
                    load(arguments + 8 * *argument as usize),
                    any_bit(*bits, 0, 1),
                    answer(RET_NOTIFY),
                    answer(RET_ALLOW),
                ]),
            }
        }
        steps.push(answer(RET_ALLOW));
        return steps;
    }
    steps.extend([equal(libc::SYS_io_uring_setup as u32, 0, 1), answer(RET_NOSYS)]);
    for call in NAMES {
        steps.extend([equal(*call as u32, 0, 1), answer(RET_NOTIFY)]);
    }
    for (call, unless) in CALLS {
        match unless {
            None => steps.extend([equal(*call as u32, 0, 1), answer(RET_NOTIFY)]),
            // Only the low half of the argument is tested, because all flags lie there. (Both instruction sets are
            // little-endian.)
            Some((argument, bits)) => steps.extend([
                equal(*call as u32, 0, 4),
                load(arguments + 8 * *argument as usize),
                any_bit(*bits, 0, 1),
                answer(RET_ALLOW),
                answer(RET_NOTIFY),
            ]),
        }
    }
    steps.push(answer(RET_ALLOW));
    steps
}

fn step(code: u32, yes: u8, no: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k }
}

/// Makes the command install the filter before it starts its program. The filter then stops the calls of the program
/// and of all its descendants. The listener arrives at the other end of `to`, which must be one end of a
/// [`socket::pair`]. The program can no longer gain rights by exec.
pub fn stop_calls(command: &mut Command, stops: Stops, to: OwnedFd) {
    let steps = filter(stops);
    // SAFETY: the closure runs between fork and exec. It makes only system calls, on memory that was made before the
    // fork, and it owns the socket.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let program = libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_ptr().cast_mut() };
            let listener = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            );
            if listener < 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The listener must stay open until it is sent. The kernel closes it at exec.
            let listener = OwnedFd::from_raw_fd(listener as i32);
            match socket::send(&to, b"listener", &[listener.as_fd()]) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::AGAIN.into()),
                Err(error) => Err(error.errno.into()),
            }
        });
    }
}

impl Listener {
    /// Makes a listener from the descriptor that [`stop_calls`] sent.
    ///
    /// # Errors
    /// The descriptor is not a listener for stopped calls.
    pub fn new(descriptor: OwnedFd) -> OsResult<Self> {
        // SAFETY: the kernel writes three numbers into the struct.
        let sizes = unsafe {
            let mut sizes: libc::seccomp_notif_sizes = zeroed();
            let asked = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes);
            (asked == 0).then_some(sizes)
        };
        let Some(sizes) = sizes else { return Err(OsError::last("SECCOMP_GET_NOTIF_SIZES", "this kernel")) };
        let (notice, answer) = (size_of::<RawNotification>(), size_of::<libc::seccomp_notif_resp>());
        if usize::from(sizes.seccomp_notif) > notice || usize::from(sizes.seccomp_notif_resp) > answer {
            return Err(OsError::new("SECCOMP_GET_NOTIF_SIZES", "notices of a newer kind", Errno::NOSYS));
        }
        // With this flag the answer wakes the program on the CPU of the thread that answers. Kernels before 6.6 do not
        // know the flag.
        const SYNC_WAKE_UP: libc::c_ulong = 1;
        // SAFETY: the call takes only a number, and no pointer.
        unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        Ok(Self(descriptor))
    }

    /// Sleeps until a call is stopped. Gives `None` if no process is left that could make a call.
    pub fn next(&self) -> OsResult<Option<StoppedCall>> {
        loop {
            // SAFETY: the struct has only numbers, for which zero is valid. The kernel requires that they are zero
            // before the call.
            let mut notice: RawNotification = unsafe { zeroed() };
            // SAFETY: the kernel writes at most the size of its own struct, and `new` has checked that `notice` is at
            // least as large.
            let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), RECV, &raw mut notice) };
            if answer == 0 {
                let RawNotification { of: libc::seccomp_notif { id, pid, data, .. }, .. } = notice;
                return Ok(Some(StoppedCall {
                    id,
                    thread: i32::try_from(pid).unwrap_or(0),
                    number: data.nr.into(),
                    arguments: data.args,
                }));
            }
            match OsError::last("SECCOMP_IOCTL_NOTIF_RECV", "stopped calls") {
                // This error has two causes: a signal interrupted the stopped call before this process read it, or no
                // process is left that could make a call.
                error if error.errno == Errno::NOENT => {
                    if self.is_deserted() {
                        return Ok(None);
                    }
                }
                error if error.errno == Errno::INTR => {}
                error => return Err(error),
            }
        }
    }

    fn is_deserted(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Tells whether the thread still waits for the answer. A thread that a signal has interrupted no longer waits.
    pub fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the kernel reads one number.
        unsafe { libc::ioctl(self.0.as_raw_fd(), ID_VALID, &raw const id) == 0 }
    }

    /// Lets the kernel do the call. It is no error if the calling thread no longer waits.
    pub fn let_go(&self, id: u64) {
        self.answer(libc::seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        });
    }

    /// Makes the call fail with this errno.
    pub fn refuse(&self, id: u64, errno: i32) {
        self.answer(libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 });
    }

    fn answer(&self, mut answer: libc::seccomp_notif_resp) {
        // SAFETY: the kernel reads one answer.
        unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw mut answer) };
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The kernel's message about a stopped call. The array is room for fields that later kernels may add.
#[repr(C)]
struct RawNotification {
    of: libc::seccomp_notif,
    _room: [u64; 8],
}

const RECV: libc::Ioctl = code(3, 0, size_of::<libc::seccomp_notif>());
const SEND: libc::Ioctl = code(3, 1, size_of::<libc::seccomp_notif_resp>());
const ID_VALID: libc::Ioctl = code(1, 2, size_of::<u64>());
const SET_FLAGS: libc::Ioctl = code(1, 4, size_of::<u64>());

/// Computes the request number of an ioctl, as `_IOC(direction, '!', number, size)` does.
const fn code(direction: u64, number: u64, size: usize) -> libc::Ioctl {
    (direction << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | number) as libc::Ioctl
}

/// Reads memory of other processes, for example the names in stopped calls.
#[derive(Debug, Default)]
pub struct MemoryReader {
    /// If true, memory is read through `/proc/PID/mem`, because this container forbids the faster system call.
    by_file: bool,
}

impl MemoryReader {
    /// Reads the text at this address, up to its final zero. `None` if it cannot be read or is longer than the kernel
    /// accepts for a path.
    pub fn text(&mut self, thread: i32, address: u64) -> Option<Vec<u8>> {
        const PAGE: u64 = 4096;
        let mut text = Vec::with_capacity(256);
        while text.len() < libc::PATH_MAX as usize {
            let at = address.checked_add(text.len() as u64)?;
            // A read never goes beyond the end of a page, because the next page may not exist.
            let room = (PAGE - at % PAGE).min(256) as usize;
            let begin = text.len();
            text.resize(begin + room, 0);
            let read = self.read(thread, at, &mut text[begin..])?;
            text.truncate(begin + read);
            if let Some(end) = text[begin..].iter().position(|byte| *byte == 0) {
                text.truncate(begin + end);
                return Some(text);
            }
            if read == 0 {
                return None;
            }
        }
        None
    }

    /// Reads the 64-bit number at this address.
    pub fn word(&mut self, thread: i32, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(thread, address, &mut bytes)? == bytes.len()).then(|| u64::from_ne_bytes(bytes))
    }

    fn read(&mut self, thread: i32, address: u64, into: &mut [u8]) -> Option<usize> {
        if !self.by_file {
            let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
            let remote = libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: into.len() };
            // SAFETY: the kernel writes into `into`. `remote` holds an address in the other process, which the kernel
            // checks.
            let read = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
            if let Ok(read) = usize::try_from(read) {
                return Some(read);
            }
            match OsError::last("process_vm_readv", "").errno {
                Errno::NOSYS | Errno::PERM => self.by_file = true,
                _ => return None,
            }
        }
        use std::os::unix::fs::FileExt;
        let memory = std::fs::File::open(format!("/proc/{thread}/mem")).ok()?;
        memory.read_at(into, address).ok()
    }
}

/// Tells whether this kernel lets a process stop system calls by a seccomp filter.
pub fn is_supported() -> bool {
    let action = MaybeUninit::new(RET_NOTIFY);
    // SAFETY: the kernel reads one number.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, action.as_ptr()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{changed_names, name_of, written_name};

    fn judge(number: libc::c_long, arguments: [u64; 6]) -> u32 {
        judge_by(Stops::All, number, arguments)
    }

    /// Computes the filter's answer to a call, as the kernel would.
    fn judge_by(stops: Stops, number: libc::c_long, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::from((number as u32).to_le_bytes());
        data.extend(ARCHITECTURE.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        arguments.iter().for_each(|a| data.extend(a.to_le_bytes()));
        let steps = filter(stops);
        let (mut at, mut a) = (0, 0u32);
        loop {
            let libc::sock_filter { code, jt, jf, k } = steps[at];
            at += 1;
            match u32::from(code) & 7 {
                libc::BPF_LD => a = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
                libc::BPF_JMP => {
                    let yes = if u32::from(code) & 0xf0 == libc::BPF_JSET { a & k != 0 } else { a == k };
                    at += usize::from(if yes { jt } else { jf });
                }
                _ => return k,
            }
        }
    }

    #[test]
    fn only_calls_that_look_a_name_up_are_stopped() {
        for flags in [libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY, libc::O_RDWR, libc::O_CREAT] {
            assert_eq!(judge(libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]), RET_NOTIFY);
        }
        assert_eq!(judge(libc::SYS_newfstatat, [3, 0, 0, libc::AT_EMPTY_PATH as u64, 0, 0]), RET_ALLOW);
        assert_eq!(judge(libc::SYS_newfstatat, [3, 0, 0, 0, 0, 0]), RET_NOTIFY);
        assert_eq!(judge(libc::SYS_io_uring_setup, [0; 6]), RET_NOSYS);
        for call in
            [libc::SYS_close, libc::SYS_clone, libc::SYS_read, libc::SYS_mmap, libc::SYS_execve, libc::SYS_fstat]
        {
            assert_eq!(judge(call, [0; 6]), RET_ALLOW);
        }
    }

    #[test]
    fn what_is_stopped_has_a_name_to_look_at() {
        for (call, _) in CALLS {
            assert!(name_of(*call, [0; 3]).is_some() || written_name(*call, [0; 3]).is_some(), "call {call}");
            assert_eq!(judge(*call, [0; 6]), RET_NOTIFY);
        }
        for call in NAMES {
            assert!(changed_names(*call, [0; 4]).is_some(), "call {call}");
            assert_eq!(judge(*call, [0; 6]), RET_NOTIFY);
        }
    }

    #[test]
    fn of_a_producer_only_opens_for_writing_are_stopped() {
        let open = |flags: i32| judge_by(Stops::Writes, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE | libc::O_RDWR] {
            assert_eq!(open(flags), RET_NOTIFY, "{flags:o}");
        }
        for flags in [libc::O_RDONLY, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY] {
            assert_eq!(open(flags), RET_ALLOW, "{flags:o}");
        }
        let others = [libc::SYS_newfstatat, libc::SYS_unlinkat, libc::SYS_io_uring_setup, libc::SYS_read];
        for call in others {
            assert_eq!(judge_by(Stops::Writes, call, [0; 6]), RET_ALLOW, "call {call}");
        }
        for call in [libc::SYS_openat2, libc::SYS_truncate] {
            assert_eq!(judge_by(Stops::Writes, call, [0; 6]), RET_NOTIFY, "call {call}");
        }
    }

    #[test]
    fn codes_are_the_kernels() {
        assert_eq!(RECV, 0xc050_2100u64 as libc::Ioctl);
        assert_eq!(SEND, 0xc018_2101u64 as libc::Ioctl);
        assert_eq!(ID_VALID, 0x4008_2102u64 as libc::Ioctl);
    }

    #[test]
    fn a_text_is_read_to_its_end_and_not_over_the_end_of_memory() {
        let own = std::process::id() as i32;
        let long = [vec![b'x'; 1000], vec![0, b'y']].concat();
        for by_file in [false, true] {
            let mut reader = MemoryReader { by_file };
            assert_eq!(reader.text(own, long.as_ptr() as u64).unwrap(), vec![b'x'; 1000]);
            assert_eq!(reader.text(own, 8), None);
        }
    }
}
