//! The door for dynamic programs: shims in front of the C library's functions that take a file's name.
//!
//! A shim calls the real function first, so an existing file costs nothing more. If the answer is ENOENT,
//! [`absent::ask`] finds out whether the name is awaited. The shim then tries again, or gives the errno that it was
//! told. No function of libc calls another one's public name, so each entry point has a shim of its own (`shims`).
//! Programs that are started with a cleared environment keep the door (`programs`).

// From Rust 1.99 on, `open` has to be variadic. Stable Rust cannot define a variadic function, and for these calls it need not:
// see `shims`. Older releases do not know the lint.
#![allow(unknown_lints, invalid_runtime_symbol_definitions)]

mod absent;
mod next;
mod programs;
mod shims;
