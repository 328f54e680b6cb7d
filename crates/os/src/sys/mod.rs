//! The system calls of this crate that can fail because a resource is short. A call that `rustix` has is found here
//! under the same path; a call that `rustix` lacks goes through [`raw`].
//!
//! In an ordinary build, this module only re-exports the calls. With the feature `faults`, each call first asks
//! [`faults`] whether to fail. So tests can make any call fail that the kernel may refuse: when descriptors, memory or
//! space run out, when a signal comes, or when a peer is slow. `scripts/check-layers` finds calls of this crate that
//! bypass this module.
//!
//! [`faults`]: crate::faults

use std::io::Read;

#[cfg(feature = "faults")]
mod failing;

#[cfg(feature = "faults")]
pub(crate) use failing::{event, fs, io, mm, mount, net, pipe, plan, process, raw, strips, time};

#[cfg(not(feature = "faults"))]
pub(crate) use rustix::{event, fs, mount, net, pipe, process, time};

#[cfg(not(feature = "faults"))]
pub(crate) mod io {
    /// Writes into space of a file that is reserved already. This function has a name of its own because tests do not
    /// make it fail with ENOSPC, as they do with `pwrite`.
    pub(crate) use rustix::io::pwrite as pwrite_reserved;
    pub(crate) use rustix::io::*;
    /// Two functions that write to ordinary files. Tests can make them write only half of any buffer. Tests never make
    /// `write` and `pwrite` split a buffer of at most eight bytes, because an eventfd takes its eight bytes only as a
    /// whole.
    pub(crate) use rustix::io::{pwrite as pwrite_file, write as write_file};
}

#[cfg(not(feature = "faults"))]
pub(crate) mod mm {
    /// Removes a mapping as a whole, or a mapping that a failed call left behind. Tests never make this call fail.
    pub(crate) use rustix::mm::munmap as munmap_whole;
    pub(crate) use rustix::mm::*;
}

/// Makes a system call that `rustix` lacks. `call` calls the C library, which gives -1 and sets `errno` on failure.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn raw<N>(_: &'static str, call: impl FnOnce() -> N) -> N {
    call()
}

/// The code of this crate calls this function before some calls of the standard library. With the feature `faults`,
/// this function fails if the plan of failures says that the library's call must fail. In an ordinary build, it never
/// fails.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn plan(_: &'static str) -> std::io::Result<()> {
    Ok(())
}

/// Reads the whole of a small file in `/proc` or `/sys`.
///
/// The kernel tells no size of such a file, so `std::fs::read_to_string` would begin with many small reads. This
/// function usually reads twice: the text, and its end.
pub(crate) fn read_text(path: impl AsRef<std::path::Path>) -> std::io::Result<String> {
    plan("open")?;
    let mut text = String::with_capacity(4096);
    // `take` keeps the standard library from asking for the file's size first.
    std::fs::File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Tells whether the message that is being received must lose its descriptors, as if this process had no room for them.
/// In an ordinary build the answer is always `false`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn strips() -> bool {
    false
}
