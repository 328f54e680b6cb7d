//! Shims for functions that start programs with a given environment. They add the library's variables to this
//! environment, so that the programs wait for files too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crossdock_core::files::Deed;

use crate::missing_file::{AT_FDCWD, start, why_refused};
use crate::real_functions::{EROFS, RealFunction};

type Text = *const c_char;
type Texts = *const Text;

/// An environment for a program that this process starts: the environment that the caller gave, and those variables of
/// this library that the given environment lacked. `_own` keeps the strings of the added variables.
struct Environment {
    list: Vec<Text>,
    _own: Vec<CString>,
}

/// Returns an environment that has all variables of this library. Returns `None` if the environment `given` has them
/// already, or if this program waits for no files.
///
/// # Safety
/// `given` is null or a list of terminated strings that ends with a null.
unsafe fn complete(given: Texts) -> Option<Environment> {
    let wanted = &start().variables;
    // With fewer than two variables, either LD_PRELOAD or the managed directories are missing. The program that is
    // started then has no use for the variables.
    if wanted.len() < 2 {
        return None;
    }
    let mut list = Vec::new();
    let mut at = given;
    // SAFETY: the caller guarantees a list that ends with a null, and the loop ends at this null.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: the element at `at` is not the final null, so it is a valid pointer, and another element follows it.
        unsafe {
            list.push(*at);
            at = at.add(1);
        }
    }
    let has = |name: &str| {
        list.iter().any(|text| {
            // SAFETY: the caller guarantees that each element is a terminated string.
            let text = unsafe { CStr::from_ptr(*text) }.to_bytes();
            text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        })
    };
    let missing: Vec<CString> = wanted
        .iter()
        .filter(|(name, _)| !has(name))
        .filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok())
        .collect();
    if missing.is_empty() {
        return None;
    }
    list.extend(missing.iter().map(|text| text.as_ptr()));
    list.push(std::ptr::null());
    Some(Environment { list, _own: missing })
}

/// Declares shims for functions that start a program and have the environment as their last argument.
macro_rules! starters {
    ($(fn $name:ident($($argument:ident: $type:ty),*; $environment:ident), $real:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` that keeps the door.")]
        ///
        /// # Safety
        /// The same rules as for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* $environment: Texts) -> c_int {
            static REAL: RealFunction = RealFunction::new();
            let real = REAL.find(const {
                match CStr::from_bytes_with_nul(concat!(stringify!($real), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name holds a zero byte"),
                }
            });
            if real.is_null() {
                return -1;
            }
            // SAFETY: the C library's function of this name has this signature.
            let real: unsafe extern "C" fn($($type,)* Texts) -> c_int = unsafe { std::mem::transmute(real) };
            // SAFETY: the caller follows the rules of the real function. So the environment is null or a list of
            // terminated strings that ends with a null.
            let complete = unsafe { complete($environment) };
            let environment = complete.as_ref().map_or($environment, |c| c.list.as_ptr());
            // SAFETY: the caller follows the rules of the real function. The completed list lives until after the call.
            unsafe { real($($argument,)* environment) }
        }
    )*};
}

type Any = *mut c_void;

starters! {
    fn execve(path: Text, arguments: Texts; environment), execve;
    fn execvpe(file: Text, arguments: Texts; environment), execvpe;
    fn fexecve(file: c_int, arguments: Texts; environment), fexecve;
    fn posix_spawn(pid: Any, path: Text, actions: Any, attributes: Any, arguments: Texts; environment), posix_spawn;
    fn posix_spawnp(pid: Any, file: Text, actions: Any, attributes: Any, arguments: Texts; environment), posix_spawnp;
}

unsafe extern "C" {
    static environ: Texts;
}

/// `execv` that keeps the library's variables, also when the program has cleared its own environment.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: Text, arguments: Texts) -> c_int {
    // SAFETY: the caller follows the rules of `execv`, and the environment is the program's own.
    unsafe { execve(path, arguments, environ) }
}

/// `execvp` that keeps the library's variables, also when the program has cleared its own environment.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: Text, arguments: Texts) -> c_int {
    // SAFETY: the caller follows the rules of `execvp`, and the environment is the program's own.
    unsafe { execvpe(file, arguments, environ) }
}

/// `posix_spawn_file_actions_addopen` that waits for the file before it adds the action, because the child opens the
/// file without calling a shim.
///
/// # Safety
/// The same rules as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: Any,
    descriptor: c_int,
    path: Text,
    flags: c_int,
    mode: u32,
) -> c_int {
    static REAL: RealFunction = RealFunction::new();
    let real = REAL.find(c"posix_spawn_file_actions_addopen");
    if real.is_null() {
        return crate::real_functions::ENOSYS;
    }
    // SAFETY: the C library's function of this name has this signature.
    let real: unsafe extern "C" fn(Any, c_int, Text, c_int, u32) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller follows the rules of the real function, and the shims only read the path.
    unsafe {
        if crossdock_os::calls::only_reads(flags as u64) {
            crate::shims::access(path, 0);
        } else if !path.is_null()
            && (crossdock_os::calls::creates(flags as u64) || crossdock_os::file::exists(CStr::from_ptr(path)))
        {
            // The child opens the file without a shim. If this open will fail because of a managed directory, the
            // reason is written to the log here.
            why_refused(Deed::Write, EROFS, AT_FDCWD, path);
        }
        real(actions, descriptor, path, flags, mode)
    }
}
