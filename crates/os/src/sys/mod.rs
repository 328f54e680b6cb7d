//! Each system call of this crate that can fail for lack of something, by its place in `rustix`, or by [`raw`].
//!
//! In an ordinary build these are the calls themselves. With the feature `faults` each one first asks [`faults`] whether it
//! is to fail, so that tests make any call fail that the kernel makes fail when descriptors, memory or space run out, when a
//! signal comes, or when a peer is behind. `scripts/check-layers` finds calls of this crate that go round it.
//!
//! [`faults`]: crate::faults

#[cfg(feature = "faults")]
mod failing;

#[cfg(feature = "faults")]
pub(crate) use failing::{event, fs, io, mm, mount, net, pipe, process, raw, read_text, strips, time};

#[cfg(not(feature = "faults"))]
pub(crate) use rustix::{event, fs, io, mm, mount, net, pipe, process, time};

/// A call that `rustix` has not: `call` is the C library's, which answers -1 and sets `errno`.
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

/// Does the message that is received now lose its descriptors, as if this process had no room for them?
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn strips() -> bool {
    false
}
