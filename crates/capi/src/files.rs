//! The C function that waits for a file of a managed directory.

use std::ffi::c_char;

use crate::arguments::text;
use crate::error::call;

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_file_await(path: *const c_char) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires a zero-terminated text.
        let path = unsafe { text(path, "path")? };
        crossdock_client::await_file(path)
    })
}
