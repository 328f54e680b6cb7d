//! A seccomp filter that denies a process some system calls: userfaultfd, as docker's default filter does, or
//! PAGEMAP_SCAN, which older kernels lack.
#![allow(dead_code)] // each test binary uses a part

const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// The system calls that a filter denies.
#[derive(Clone, Copy)]
pub enum Refuse {
    /// Denies no call.
    Nothing,
    /// Denies `userfaultfd` with the error "not permitted".
    Userfaultfd,
    /// Denies `PAGEMAP_SCAN`, which kernels before Linux 6.7 lack, and `userfaultfd`.
    PagemapScan,
}

/// From now on, denies this process the system calls of `what`. This cannot be undone.
pub fn take_away(what: Refuse) {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let userfaultfd = libc::SYS_userfaultfd as u32;
    // `LOAD` with the offset 0 loads the number of the system call. With the offset 24 it loads the lower half of the
    // call's second argument.
    let filter = match what {
        Refuse::Nothing => return,
        Refuse::Userfaultfd => vec![
            step(LOAD, 0, 0, 0),
            step(JUMP_IF_EQUAL, 0, 1, userfaultfd),
            step(RETURN, 0, 0, ERRNO | libc::EPERM as u32),
            step(RETURN, 0, 0, ALLOW),
        ],
        Refuse::PagemapScan => vec![
            step(LOAD, 0, 0, 0),
            step(JUMP_IF_EQUAL, 4, 0, userfaultfd),
            step(JUMP_IF_EQUAL, 0, 2, libc::SYS_ioctl as u32),
            step(LOAD, 0, 0, 24),
            step(JUMP_IF_EQUAL, 2, 0, PAGEMAP_SCAN),
            step(RETURN, 0, 0, ALLOW),
            step(RETURN, 0, 0, ERRNO | libc::ENOSYS as u32),
            step(RETURN, 0, 0, ERRNO | libc::ENOTTY as u32),
        ],
    };
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the calls change settings of this process. The filter lives through the call that copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set, "no filter to be had: {}", std::io::Error::last_os_error());
}
