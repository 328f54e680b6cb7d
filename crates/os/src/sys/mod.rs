//! Each system call of this crate that can fail for lack of resources, at its path in `rustix`, or by [`raw`].
//!
//! In an ordinary build these are the calls themselves. With the feature `faults` each one first asks [`faults`]
//! whether to fail. So tests can make any call fail that the kernel may refuse when descriptors, memory or space run
//! out, when a signal comes, or when a peer is slow. `scripts/check-layers` finds calls of this crate that bypass it.
//!
//! [`faults`]: crate::faults

#[cfg(feature = "faults")]
mod failing;

#[cfg(feature = "faults")]
pub(crate) use failing::{event, fs, io, mm, mount, net, pipe, process, raw, read_text, strips, time};

#[cfg(not(feature = "faults"))]
pub(crate) use rustix::{event, fs, mount, net, pipe, process, time};

#[cfg(not(feature = "faults"))]
pub(crate) mod io {
    /// Into room that is reserved. Tests plan other failures for it.
    pub(crate) use rustix::io::pwrite as pwrite_reserved;
    pub(crate) use rustix::io::*;
}

#[cfg(not(feature = "faults"))]
pub(crate) mod mm {
    /// A whole mapping, or a failed call's leftovers. Tests do not make it fail.
    pub(crate) use rustix::mm::munmap as munmap_whole;
    pub(crate) use rustix::mm::*;
}

/// A call that `rustix` lacks. `call` calls the C library, which gives -1 and sets `errno`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn raw<N>(_: &'static str, call: impl FnOnce() -> N) -> N {
    call()
}

/// A small file of `/proc` or `/sys`, whole.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn read_text(path: impl AsRef<std::path::Path>) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// Does the message that is being received lose its descriptors, as if this process had no room for them?
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn strips() -> bool {
    false
}
