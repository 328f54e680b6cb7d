//! Tells which raw system calls take the name of a file, and in which argument. The preload library and the supervisor
//! of stopped calls need this, because they stand between a program and the kernel.

/// If this system call looks up a file's name and neither creates the file nor opens it for writing, gives the folder's
/// descriptor and the address of the name. Gives `None` for every other call. `arguments` are the first three arguments
/// of the call.
pub fn name_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<(i32, usize)> {
    let [a, b, c] = arguments;
    let at = |folder: libc::c_long, path: libc::c_long| Some((folder as i32, path as usize));
    let reads = |flags: libc::c_long| only_reads(flags as u64);
    match number {
        libc::SYS_openat if reads(c) => at(a, b),
        // The flags of `openat2` lie in the program's memory, and this function does not see them. The caller must look
        // at them too: `flags_of` gives their address.
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

/// If this system call creates a file or opens it for writing, and its flags are an argument of the call, gives the
/// folder's descriptor, the address of the name, and the flags.
pub fn written_name(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<(i32, usize, u64)> {
    let [a, b, c] = arguments;
    let writes = |flags: libc::c_long| !only_reads(flags as u64);
    match number {
        libc::SYS_openat if writes(c) => Some((a as i32, b as usize, c as u64)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if writes(b) => Some((libc::AT_FDCWD, a as usize, b as u64)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => Some((libc::AT_FDCWD, a as usize, (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64)),
        _ => None,
    }
}

/// Tells whether an open with these flags makes the file if there is none.
pub fn creates(flags: u64) -> bool {
    flags & libc::O_CREAT as u64 != 0
}

/// Tells whether an open with these flags fails with EEXIST if there is a file.
pub fn creates_only(flags: u64) -> bool {
    creates(flags) && flags & libc::O_EXCL as u64 != 0
}

/// Gives the address at which the flags of this call lie in the calling program's memory. `None` if the flags are an
/// argument of the call, or if the call has none.
pub fn flags_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<u64> {
    // The third argument points to a `struct open_how`, whose first field holds the flags.
    (number == libc::SYS_openat2).then_some(arguments[2] as u64)
}

/// Tells whether an open with these flags neither creates a file nor allows writing to it.
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
            assert_eq!(written_name(libc::SYS_openat, [7, 0x1000, flags.into()]), Some((7, 0x1000, flags as u64)));
        }
        assert_eq!(written_name(libc::SYS_openat, [7, 0x1000, libc::O_RDONLY.into()]), None);
        assert_eq!(name_of(libc::SYS_read, [0, 0, 0]), None);
    }
}
