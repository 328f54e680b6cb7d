//! Which raw system calls take a file's name, and where. For what stands between programs and the kernel.

/// The folder descriptor and the address of the name that this call looks up without creating it; `None` if it does neither.
/// `arguments` are the call's first three.
pub fn name_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<(i32, usize)> {
    let [a, b, c] = arguments;
    let at = |folder: libc::c_long, path: libc::c_long| Some((folder as i32, path as usize));
    let reads = |flags: libc::c_long| {
        let creates = libc::c_long::from(libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY));
        flags & libc::c_long::from(libc::O_ACCMODE) == 0 && flags & creates == 0
    };
    match number {
        libc::SYS_openat if reads(c) => at(a, b),
        // Its flags lie in memory that the kernel checks; a missing name is looked up by `at` alone.
        libc::SYS_openat2 => at(a, b),
        libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_faccessat | libc::SYS_faccessat2 => at(a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if reads(b) => at(libc::AT_FDCWD.into(), a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => at(libc::AT_FDCWD.into(), a),
        _ => None,
    }
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
