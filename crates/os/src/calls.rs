//! Which raw system calls take a file's name, and in which argument. For code that stands between programs and the
//! kernel.

/// The folder descriptor and the address of the name that this call looks up without creating it; `None` if it does neither.
/// `arguments` are the call's first three.
pub fn name_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<(i32, usize)> {
    let [a, b, c] = arguments;
    let at = |folder: libc::c_long, path: libc::c_long| Some((folder as i32, path as usize));
    let reads = |flags: libc::c_long| only_reads(flags as u64);
    match number {
        libc::SYS_openat if reads(c) => at(a, b),
        // The flags of openat2 lie in memory that the kernel checks. A missing name is looked up by `at` alone.
        libc::SYS_openat2 => at(a, b),
        libc::SYS_chdir => at(libc::AT_FDCWD.into(), a),
        libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_faccessat | libc::SYS_faccessat2 => at(a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if reads(b) => at(libc::AT_FDCWD.into(), a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => at(libc::AT_FDCWD.into(), a),
        _ => None,
    }
}

/// The address of this call's flags in its program's memory, if they lie there.
pub fn flags_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<u64> {
    // The first member of `struct open_how`.
    (number == libc::SYS_openat2).then_some(arguments[2] as u64)
}

/// Do these flags of an open neither create nor write?
pub fn only_reads(flags: u64) -> bool {
    let creates = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    flags & (libc::O_ACCMODE | creates) as u64 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_that_creates_or_writes_is_none_of_them() {
        let open = |flags: i32| name_of(libc::SYS_openat, [7, 0x1000, flags.into()]);
        assert_eq!(open(libc::O_RDONLY | libc::O_CLOEXEC), Some((7, 0x1000)));
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_CREAT] {
            assert_eq!(open(flags), None);
        }
        assert_eq!(name_of(libc::SYS_read, [0, 0, 0]), None);
    }
}
