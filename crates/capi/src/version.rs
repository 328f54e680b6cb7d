//! The C functions that give the version of this build.

use std::ffi::{CStr, c_char};

const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version holds no zero byte"),
};

const fn number(text: &str) -> u32 {
    let mut value = 0;
    let mut i = 0;
    while i < text.len() {
        value = value * 10 + (text.as_bytes()[i] - b'0') as u32;
        i += 1;
    }
    value
}

/// Returns `major * 1000000 + minor * 1000 + patch`.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_version() -> u32 {
    const {
        number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
            + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
            + number(env!("CARGO_PKG_VERSION_PATCH"))
    }
}

/// Returns the version as text, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_version_string() -> *const c_char {
    TEXT.as_ptr()
}
