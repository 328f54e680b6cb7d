//! The C ABI: `libcrossdock.so`, `crossdock.h` and `crossdock.pc`.
//!
//! Each function here only checks its arguments, calls one function of `crossdock-client`, and writes the results. What
//! a call means, when it blocks and how it fails is described in `include/crossdock.h` alone.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("crossdock's references and offsets are 64 bits wide");

mod arguments;
mod checkpoint;
mod container;
mod error;
mod files;
mod guarded;
mod item;
mod object;
mod observer;
mod plain;
mod port;
mod publisher;
mod references;
mod region;
mod series_plain;
mod series_version;
mod session;
mod values;
mod version;
