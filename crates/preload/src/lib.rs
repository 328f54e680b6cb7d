//! The door for dynamic programs: shims in front of the C library's functions that take a file's name.
//!
//! A shim calls the real function first, so a file that is there costs nothing more. When the answer is ENOENT, [`absent::ask`]
//! finds out whether the name is awaited; the shim tries again, or gives the errno that it was told. No libc function calls
//! another one's public name, so each entry point has a shim of its own (`shims`). Programs started with a cleared
//! environment keep the door (`programs`).

mod absent;
mod next;
mod programs;
mod shims;
