//! The door for dynamic programs: a library with shims that stand before the C library's functions that take a file's
//! name.
//!
//! A shim calls the real function first, so no time is lost if the file exists. If the real function fails with ENOENT,
//! [`missing_file::ask`] finds out whether the program has to wait for this name. After the wait, the shim calls the
//! real function again, or gives the program the errno with which the wait ended. Inside libc, functions do not call
//! each other by their public names. So each public function that takes a file's name has a shim of its own (`shims`).
//! Programs that are started with a cleared environment keep the library (`programs`).

// From Rust 1.99 on, a lint wants `open` to be variadic. Stable Rust cannot define a variadic function, and the shims
// do not need one (see `shims`). Older releases do not know the lint.
#![allow(unknown_lints, invalid_runtime_symbol_definitions)]

mod missing_file;
mod programs;
mod real_functions;
mod shims;
