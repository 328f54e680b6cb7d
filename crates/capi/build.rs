//! Linker settings of libcrossdock.so.

use std::path::Path;

/// What programs that are linked against the library load. The number changes when the ABI breaks.
const SONAME: &str = "libcrossdock.so.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // Threads of a program may hold thread-local messages of ours: the library stays once it is loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    link_beside();
}

/// Programs that are linked against the library where cargo puts it look for the soname there.
fn link_beside() {
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    // OUT_DIR is PROFILE/build/PACKAGE-HASH/out.
    let Some(build) = Path::new(&out).ancestors().nth(2).filter(|p| p.ends_with("build")) else { return };
    let Some(profile) = build.parent() else { return };
    if std::fs::symlink_metadata(profile.join(SONAME)).is_err() {
        let made = std::os::unix::fs::symlink("libcrossdock.so", profile.join(SONAME));
        made.unwrap_or_else(|error| println!("cargo:warning={}/{SONAME}: {error}", profile.display()));
    }
}
