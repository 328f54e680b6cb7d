//! Tells which raw system calls take the name of a file, and in which argument. The preload library, and the process
//! that answers stopped system calls, use this to find the file that a program's call is about.

/// Gives the folder's descriptor and the address of the name, if this system call looks up a file's name and neither
/// creates the file nor opens it for writing. Gives `None` for every other call. `arguments` are the first three
/// arguments of the call.
pub fn name_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<(i32, usize)> {
    let [a, b, c] = arguments;
    let at = |folder: libc::c_long, path: libc::c_long| Some((folder as i32, path as usize));
    let reads = |flags: libc::c_long| only_reads(flags as u64);
    match number {
        libc::SYS_openat if reads(c) => at(a, b),
        // The flags of `openat2` lie in the program's memory, which this function cannot read. So the caller must read
        // them, at the address that `flags_of` gives, before it decides whether the call only reads.
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

/// For a system call that creates a file or opens it for writing, and that gets its flags as an argument: gives the
/// folder's descriptor, the address of the name, and the flags. Gives `None` for every other call.
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

/// The change that a system call makes without opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The call sets the file's length.
    Cut,
    /// The call makes a file, a folder or a link.
    Make,
    /// The call removes a file or a folder.
    Remove,
    /// The call renames a file or a folder.
    Rename,
}

/// Gives the change that this system call makes to names or to the length of a file, and for each name the folder's
/// descriptor and the address of the name. Gives `None` for every other call.
pub fn changed_names(number: libc::c_long, arguments: [libc::c_long; 4]) -> Option<(Change, Vec<(i32, usize)>)> {
    let [a, b, c, d] = arguments;
    let here = libc::AT_FDCWD;
    let one = |change, folder: libc::c_long, path: libc::c_long| Some((change, vec![(folder as i32, path as usize)]));
    match number {
        libc::SYS_truncate => one(Change::Cut, here.into(), a),
        libc::SYS_unlinkat => one(Change::Remove, a, b),
        libc::SYS_mkdirat | libc::SYS_mknodat => one(Change::Make, a, b),
        libc::SYS_symlinkat => one(Change::Make, b, c),
        libc::SYS_linkat => one(Change::Make, c, d),
        libc::SYS_renameat2 => Some((Change::Rename, vec![(a as i32, b as usize), (c as i32, d as usize)])),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_renameat => Some((Change::Rename, vec![(a as i32, b as usize), (c as i32, d as usize)])),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => Some((Change::Rename, vec![(here, a as usize), (here, b as usize)])),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rmdir => one(Change::Remove, here.into(), a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir | libc::SYS_mknod => one(Change::Make, here.into(), a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink | libc::SYS_link => one(Change::Make, here.into(), b),
        _ => None,
    }
}

/// Tells whether an open with these flags makes the file if the file does not exist.
pub fn creates(flags: u64) -> bool {
    flags & libc::O_CREAT as u64 != 0
}

/// Tells whether an open with these flags fails with EEXIST if the file exists.
pub fn creates_only(flags: u64) -> bool {
    creates(flags) && flags & libc::O_EXCL as u64 != 0
}

/// Gives the address at which the flags of this call lie in the calling program's memory. `None` if the flags are an
/// argument of the call, or if the call has none.
pub fn flags_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<u64> {
    // The third argument points to a `struct open_how`, whose first field holds the flags.
    (number == libc::SYS_openat2).then_some(arguments[2] as u64)
}

/// Tells whether an open with these flags neither creates nor truncates a file, nor allows writing to it.
pub fn only_reads(flags: u64) -> bool {
    let changes = libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    flags & (libc::O_ACCMODE | changes) as u64 == 0
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

    #[test]
    fn a_change_has_its_names() {
        let here = libc::AT_FDCWD;
        for (number, wanted) in [
            (libc::SYS_truncate, (Change::Cut, vec![(here, 1)])),
            (libc::SYS_unlinkat, (Change::Remove, vec![(1, 2)])),
            (libc::SYS_mkdirat, (Change::Make, vec![(1, 2)])),
            (libc::SYS_symlinkat, (Change::Make, vec![(2, 3)])),
            (libc::SYS_linkat, (Change::Make, vec![(3, 4)])),
            (libc::SYS_renameat2, (Change::Rename, vec![(1, 2), (3, 4)])),
        ] {
            assert_eq!(changed_names(number, [1, 2, 3, 4]), Some(wanted), "call {number}");
        }
        assert_eq!(changed_names(libc::SYS_openat, [1, 2, 3, 4]), None);
    }
}
