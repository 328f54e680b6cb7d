//! One shim for each entry point. A variadic function of the C library has its optional argument as an ordinary one
//! here, because the calling conventions of x86-64 and AArch64 pass both in the same way.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::absent::{AT_FDCWD, refused, retry};
use crate::next::Real;

/// Only an open that neither creates nor writes may wait, because consumers can only read in a managed directory. These
/// flags show what an open does.
const O_ACCMODE: c_int = 3;
const O_CREAT: c_int = 0o100;
const O_TMPFILE: c_int = 0o20_000_000;

fn only_reads(flags: c_int) -> bool {
    flags & O_ACCMODE == 0 && flags & (O_CREAT | O_TMPFILE) == 0
}

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
                static REAL: Real = Real::new();
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
                // SAFETY: the C library's function of this name has this signature. For variadic functions, the comment
                // at the top of this file gives the reason.
                let real: unsafe extern "C" fn($($type),*) -> $answer = unsafe { std::mem::transmute(real) };
                #[allow(unused_unsafe, reason = "some conditions look at the caller's memory")]
                // SAFETY: the caller gives what the real function takes.
                let may_wait: bool = unsafe { $may };
                if !may_wait {
                    // SAFETY: the caller gives what the real function takes, so the path is a terminated string.
                    unsafe {
                        let answer = real($($argument),*);
                        if failure(&answer) {
                            refused($folder, $path);
                        }
                        return answer;
                    }
                }
                // SAFETY: the caller gives what the real function takes, so the path is a terminated string.
                unsafe { retry($folder, $path, failure, || real($($argument),*)) }
            }
        )*
        /// The names of all functions that have a shim.
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
unsafe fn freopen_with(name: &std::ffi::CStr, real: &Real, path: Text, mode: Text, stream: Any) -> Any {
    let real = real.find(name);
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the C library's function of this name has this signature.
    let real: unsafe extern "C" fn(Text, Text, Any) -> Any = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller gives what the real function takes; `access` is the shim above, which waits.
    unsafe {
        if !path.is_null() && reads(mode) {
            access(path, 0);
        }
        let answer = real(path, mode, stream);
        if answer.is_null() && !reads(mode) {
            refused(AT_FDCWD, path);
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
    static REAL: Real = Real::new();
    // SAFETY: the caller gives what the C library's `freopen` takes.
    unsafe { freopen_with(c"freopen", &REAL, path, mode, stream) }
}

/// `freopen64` that waits for a file of a managed directory.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(path: Text, mode: Text, stream: Any) -> Any {
    static REAL: Real = Real::new();
    // SAFETY: the caller gives what the C library's `freopen64` takes.
    unsafe { freopen_with(c"freopen64", &REAL, path, mode, stream) }
}

/// `syscall` that waits for files. Some programs and runtimes use it instead of the C library's functions, and openat2
/// has no such function.
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
    static REAL: Real = Real::new();
    let real = REAL.find(c"syscall");
    if real.is_null() {
        return -1;
    }
    type Call = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
    // SAFETY: the C library's function takes a number and up to six words.
    let real: Call = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller gives what the C library's `syscall` takes.
    let call = || unsafe { real(number, a, b, c, d, e, f) };
    let (folder, path) = match crossdock_os::calls::name_of(number, [a, b, c]) {
        Some((folder, path)) => (folder, path as Text),
        None => {
            let answer = call();
            if let Some((folder, path, _)) = crossdock_os::calls::written_name(number, [a, b, c])
                && answer < 0
            {
                // SAFETY: a call that takes a name at this place takes a terminated string.
                unsafe { refused(folder, path as Text) };
            }
            return answer;
        }
    };
    // SAFETY: a call that takes a name at this place takes a terminated string.
    unsafe { retry(folder, path, |answer: &c_long| *answer < 0, call) }
}
