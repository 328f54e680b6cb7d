//! One shim for each function of the C library that takes a file's name. Where the C library's function is variadic,
//! the shim has the optional argument as an ordinary one: the calling conventions of x86-64 and AArch64 pass both kinds
//! of argument in the same way.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crossdock_core::files::Deed;
use crossdock_os::calls;

use crate::missing_file::{AT_FDCWD, not_renamed_to, refused, retry};
use crate::real_functions::RealFunction;

/// Only an open that neither creates nor writes may wait, because consumers can only read in a managed directory.
fn only_reads(flags: c_int) -> bool {
    calls::only_reads(flags as u64)
}

/// Tells whether a stream that `fopen` opens with this mode can only be read.
///
/// # Safety
/// `mode` is null or a terminated string.
unsafe fn reads(mode: *const c_char) -> bool {
    if mode.is_null() {
        return false;
    }
    // SAFETY: the mode is not null, and the caller guarantees that it is terminated.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    let letters = mode.split(|byte| *byte == b',').next().unwrap_or_default();
    letters.first() == Some(&b'r') && !letters.contains(&b'+')
}

/// Declares shims, each with its name, arguments and return type, the folder and the name that it looks up, the
/// condition for waiting, and the test for a failure.
macro_rules! shims {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, at $folder:expr, $path:ident, if $may:expr, fails $failed:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` that waits for an awaited name.")]
            ///
            /// # Safety
            /// The same rules as for the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
                static REAL: RealFunction = RealFunction::new();
                let failure: fn(&$answer) -> bool = $failed;
                let real = REAL.find(const {
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name holds a zero byte"),
                    }
                });
                if real.is_null() {
                    return failed_answer::<$answer>();
                }
                // SAFETY: the C library's function of this name has this signature. A variadic function takes its
                // optional argument in the same way as an ordinary argument.
                let real: unsafe extern "C" fn($($type),*) -> $answer = unsafe { std::mem::transmute(real) };
                #[allow(unused_unsafe, reason = "some conditions look at the caller's memory")]
                // SAFETY: the caller follows the rules of the real function, so the condition may read the memory
                // behind the arguments.
                let may_wait: bool = unsafe { $may };
                if !may_wait {
                    // SAFETY: the caller follows the rules of the real function, so the path is a terminated string.
                    unsafe {
                        let answer = real($($argument),*);
                        if failure(&answer) {
                            refused(Deed::Write, $folder, $path);
                        }
                        return answer;
                    }
                }
                // SAFETY: the caller follows the rules of the real function, so the path is a terminated string.
                unsafe { retry($folder, $path, failure, || real($($argument),*)) }
            }
        )*
        /// The names of the C library's functions for which this macro declares a shim.
        #[cfg(test)]
        const _NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

/// A return value that means failure: -1 or null.
trait Failed {
    const ANSWER: Self;
}
impl Failed for c_int {
    const ANSWER: Self = -1;
}
impl Failed for c_long {
    const ANSWER: Self = -1;
}
impl Failed for *mut c_void {
    const ANSWER: Self = std::ptr::null_mut();
}
impl Failed for *mut c_char {
    const ANSWER: Self = std::ptr::null_mut();
}

fn failed_answer<T: Failed>() -> T {
    T::ANSWER
}

fn minus(answer: &c_int) -> bool {
    *answer < 0
}

fn null<T>(answer: &*mut T) -> bool {
    answer.is_null()
}

type Text = *const c_char;
type Any = *mut c_void;

shims! {
    fn open(path: Text, flags: c_int, mode: c_uint) -> c_int, at AT_FDCWD, path, if only_reads(flags), fails minus;
    fn open64(path: Text, flags: c_int, mode: c_uint) -> c_int, at AT_FDCWD, path, if only_reads(flags), fails minus;
    fn __open(path: Text, flags: c_int, mode: c_uint) -> c_int, at AT_FDCWD, path, if only_reads(flags), fails minus;
    fn __open64(path: Text, flags: c_int, mode: c_uint) -> c_int, at AT_FDCWD, path, if only_reads(flags), fails minus;
    fn __open_2(path: Text, flags: c_int) -> c_int, at AT_FDCWD, path, if only_reads(flags), fails minus;
    fn __open64_2(path: Text, flags: c_int) -> c_int, at AT_FDCWD, path, if only_reads(flags), fails minus;
    fn openat(folder: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int, at folder, path, if only_reads(flags), fails minus;
    fn openat64(folder: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int, at folder, path, if only_reads(flags), fails minus;
    fn __openat_2(folder: c_int, path: Text, flags: c_int) -> c_int, at folder, path, if only_reads(flags), fails minus;
    fn __openat64_2(folder: c_int, path: Text, flags: c_int) -> c_int, at folder, path, if only_reads(flags), fails minus;
    fn creat(path: Text, mode: c_uint) -> c_int, at AT_FDCWD, path, if false, fails minus;
    fn creat64(path: Text, mode: c_uint) -> c_int, at AT_FDCWD, path, if false, fails minus;
    fn fopen(path: Text, mode: Text) -> Any, at AT_FDCWD, path, if reads(mode), fails null;
    fn fopen64(path: Text, mode: Text) -> Any, at AT_FDCWD, path, if reads(mode), fails null;
    fn _IO_fopen(path: Text, mode: Text) -> Any, at AT_FDCWD, path, if reads(mode), fails null;
    fn opendir(path: Text) -> Any, at AT_FDCWD, path, if true, fails null;
    fn scandir(path: Text, list: Any, filter: Any, order: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn scandir64(path: Text, list: Any, filter: Any, order: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn scandirat(folder: c_int, path: Text, list: Any, filter: Any, order: Any) -> c_int, at folder, path, if true, fails minus;
    fn scandirat64(folder: c_int, path: Text, list: Any, filter: Any, order: Any) -> c_int, at folder, path, if true, fails minus;
    fn stat(path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn stat64(path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn lstat(path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn lstat64(path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn fstatat(folder: c_int, path: Text, out: Any, flags: c_int) -> c_int, at folder, path, if true, fails minus;
    fn fstatat64(folder: c_int, path: Text, out: Any, flags: c_int) -> c_int, at folder, path, if true, fails minus;
    fn statx(folder: c_int, path: Text, flags: c_int, mask: c_uint, out: Any) -> c_int, at folder, path, if true, fails minus;
    fn __xstat(version: c_int, path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn __xstat64(version: c_int, path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn __lxstat(version: c_int, path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn __lxstat64(version: c_int, path: Text, out: Any) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn __fxstatat(version: c_int, folder: c_int, path: Text, out: Any, flags: c_int) -> c_int, at folder, path, if true, fails minus;
    fn __fxstatat64(version: c_int, folder: c_int, path: Text, out: Any, flags: c_int) -> c_int, at folder, path, if true, fails minus;
    fn access(path: Text, mode: c_int) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn faccessat(folder: c_int, path: Text, mode: c_int, flags: c_int) -> c_int, at folder, path, if true, fails minus;
    fn eaccess(path: Text, mode: c_int) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn euidaccess(path: Text, mode: c_int) -> c_int, at AT_FDCWD, path, if true, fails minus;
    fn realpath(path: Text, out: *mut c_char) -> *mut c_char, at AT_FDCWD, path, if true, fails null;
    fn __realpath_chk(path: Text, out: *mut c_char, room: usize) -> *mut c_char, at AT_FDCWD, path, if true, fails null;
    fn canonicalize_file_name(path: Text) -> *mut c_char, at AT_FDCWD, path, if true, fails null;
    fn chdir(path: Text) -> c_int, at AT_FDCWD, path, if true, fails minus;
}

/// `freopen` that waits for a file. The real function closes the stream when it fails, so this function waits before it
/// calls the real one.
///
/// # Safety
/// The same rules as for the C library's function.
unsafe fn freopen_with(name: &std::ffi::CStr, real: &RealFunction, path: Text, mode: Text, stream: Any) -> Any {
    let real = real.find(name);
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the C library's function of this name has this signature.
    let real: unsafe extern "C" fn(Text, Text, Any) -> Any = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller follows the rules of the real function. `access` is the shim in this module, which waits for
    // the file at `path`.
    unsafe {
        if !path.is_null() && reads(mode) {
            access(path, 0);
        }
        let answer = real(path, mode, stream);
        if answer.is_null() && !reads(mode) {
            refused(Deed::Write, AT_FDCWD, path);
        }
        answer
    }
}

/// `freopen` that waits for a file of a managed directory.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen(path: Text, mode: Text, stream: Any) -> Any {
    static REAL: RealFunction = RealFunction::new();
    // SAFETY: the caller follows the rules of the C library's `freopen`.
    unsafe { freopen_with(c"freopen", &REAL, path, mode, stream) }
}

/// `freopen64` that waits for a file of a managed directory.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(path: Text, mode: Text, stream: Any) -> Any {
    static REAL: RealFunction = RealFunction::new();
    // SAFETY: the caller follows the rules of the C library's `freopen64`.
    unsafe { freopen_with(c"freopen64", &REAL, path, mode, stream) }
}

/// `syscall` that waits for files. Some programs and runtimes call `syscall` instead of the C library's functions.
/// `openat2` can only be called in this way.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    static REAL: RealFunction = RealFunction::new();
    let real = REAL.find(c"syscall");
    if real.is_null() {
        return -1;
    }
    type Call = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
    // SAFETY: the C library's function takes the number of a system call and up to six machine words.
    let real: Call = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller follows the rules of the C library's `syscall`.
    let call = || unsafe { real(number, a, b, c, d, e, f) };
    // SAFETY: this argument of the system call is a file name, so the caller passes a terminated string.
    let explain = |deed, (folder, path): (c_int, usize)| unsafe { refused(deed, folder, path as Text) };
    let written = calls::written_name(number, [a, b, c]).map(|(folder, path, _)| (folder, path));
    // SAFETY: if the call is `openat2`, its third argument is the address of the structure `open_how`, and its fourth
    // argument is the size of this structure.
    let written = written.or_else(|| unsafe { written_by_openat2(number, a, b, c, d) });
    if let Some(name) = written {
        let answer = call();
        if answer < 0 {
            explain(Deed::Write, name);
        }
        return answer;
    }
    if let Some((change, names)) = calls::changed_names(number, [a, b, c, d]) {
        let answer = call();
        if answer < 0 {
            let deed = match change {
                calls::Change::Cut => Deed::Write,
                calls::Change::Make => Deed::Make,
                calls::Change::Remove => Deed::Remove,
                calls::Change::Rename => Deed::Rename,
            };
            let mut names = names.into_iter();
            // The old and the new name of a rename lie in the same managed directory, because the directory is a
            // mount. So the first name is enough to explain the failure.
            names.next().into_iter().for_each(|name| explain(deed, name));
            // SAFETY: this argument of the system call is a file name, so the caller passes a terminated string.
            names.for_each(|(folder, path)| unsafe { not_renamed_to(folder, path as Text) });
        }
        return answer;
    }
    match calls::name_of(number, [a, b, c]) {
        // SAFETY: this argument of the system call is a file name, so the caller passes a terminated string.
        Some((folder, path)) => unsafe { retry(folder, path as Text, |answer: &c_long| *answer < 0, call) },
        None => call(),
    }
}

/// Returns the name that this call opens for writing, if the call is `openat2`.
///
/// # Safety
/// If the call is `openat2`, `how` is null or the address of `size` bytes that can be read.
unsafe fn written_by_openat2(
    number: c_long,
    folder: c_long,
    path: c_long,
    how: c_long,
    size: c_long,
) -> Option<(c_int, usize)> {
    let flags = calls::flags_of(number, [folder, path, how])?;
    if flags == 0 || size < 8 {
        return None;
    }
    // SAFETY: the address is not null, and the caller guarantees that at least 8 bytes can be read at it.
    let flags = unsafe { (flags as *const u64).read_unaligned() };
    (!calls::only_reads(flags)).then_some((folder as c_int, path as usize))
}

/// Declares shims for functions that only change files or names. A declaration has the function's name, its arguments
/// and return type, what it does, the folder and the name that it changes, and for a rename also the new folder and
/// name. If the call fails in a directory that the program only reads, the shim writes the reason to the task's log.
macro_rules! changes {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $deed:ident at $folder:expr, $path:ident $(to $into:expr, $target:ident)?, fails $failed:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` that writes the reason of a refusal to the task's log.")]
        ///
        /// # Safety
        /// The same rules as for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            static REAL: RealFunction = RealFunction::new();
            let failure: fn(&$answer) -> bool = $failed;
            let real = REAL.find(const {
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name holds a zero byte"),
                }
            });
            if real.is_null() {
                return failed_answer::<$answer>();
            }
            // SAFETY: the C library's function of this name has this signature.
            let real: unsafe extern "C" fn($($type),*) -> $answer = unsafe { std::mem::transmute(real) };
            // SAFETY: the caller follows the rules of the real function, so the path is a terminated string.
            unsafe {
                let answer = real($($argument),*);
                if failure(&answer) {
                    refused(Deed::$deed, $folder, $path);
                    $(not_renamed_to($into, $target);)?
                }
                answer
            }
        }
    )*};
}

type Own = *mut c_char;

changes! {
    fn mkstemp(path: Own) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkstemp64(path: Own) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkstemps(path: Own, ending: c_int) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkstemps64(path: Own, ending: c_int) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkostemp(path: Own, flags: c_int) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkostemp64(path: Own, flags: c_int) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkostemps(path: Own, ending: c_int, flags: c_int) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkostemps64(path: Own, ending: c_int, flags: c_int) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkdtemp(path: Own) -> Own, Make at AT_FDCWD, path, fails null;
    fn mkdir(path: Text, mode: c_uint) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkdirat(folder: c_int, path: Text, mode: c_uint) -> c_int, Make at folder, path, fails minus;
    fn mkfifo(path: Text, mode: c_uint) -> c_int, Make at AT_FDCWD, path, fails minus;
    fn mkfifoat(folder: c_int, path: Text, mode: c_uint) -> c_int, Make at folder, path, fails minus;
    fn link(from: Text, to: Text) -> c_int, Make at AT_FDCWD, to, fails minus;
    fn linkat(a: c_int, from: Text, b: c_int, to: Text, flags: c_int) -> c_int, Make at b, to, fails minus;
    fn symlink(from: Text, to: Text) -> c_int, Make at AT_FDCWD, to, fails minus;
    fn symlinkat(from: Text, folder: c_int, to: Text) -> c_int, Make at folder, to, fails minus;
    fn rename(from: Text, to: Text) -> c_int, Rename at AT_FDCWD, from to AT_FDCWD, to, fails minus;
    fn renameat(a: c_int, from: Text, b: c_int, to: Text) -> c_int, Rename at a, from to b, to, fails minus;
    fn renameat2(a: c_int, from: Text, b: c_int, to: Text, flags: c_uint) -> c_int, Rename at a, from to b, to, fails minus;
    fn unlink(path: Text) -> c_int, Remove at AT_FDCWD, path, fails minus;
    fn unlinkat(folder: c_int, path: Text, flags: c_int) -> c_int, Remove at folder, path, fails minus;
    fn remove(path: Text) -> c_int, Remove at AT_FDCWD, path, fails minus;
    fn rmdir(path: Text) -> c_int, Remove at AT_FDCWD, path, fails minus;
    fn truncate(path: Text, length: c_long) -> c_int, Write at AT_FDCWD, path, fails minus;
    fn truncate64(path: Text, length: c_long) -> c_int, Write at AT_FDCWD, path, fails minus;
}
