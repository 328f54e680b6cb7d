//! Sets the linker options of `libcrossdock.so`.

use std::path::Path;

/// Programs that are linked against the library load it by this file name. The number at its end changes with each
/// incompatible change of the ABI.
const SONAME: &str = "libcrossdock.so.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // The library is never unloaded, because threads of the program may still have thread-local error messages, whose
    // destructors are code of the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    link_beside();
}

/// Makes a link named `SONAME` beside the library. Programs that are linked against the library in cargo's folder load
/// it by this name.
fn link_beside() {
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    // The build folder is the second parent of OUT_DIR, because OUT_DIR is PROFILE/build/PACKAGE-HASH/out.
    let Some(build) = Path::new(&out).ancestors().nth(2).filter(|p| p.ends_with("build")) else { return };
    let Some(profile) = build.parent() else { return };
    if std::fs::symlink_metadata(profile.join(SONAME)).is_err() {
        let made = std::os::unix::fs::symlink("libcrossdock.so", profile.join(SONAME));
        made.unwrap_or_else(|error| println!("cargo:warning={}/{SONAME}: {error}", profile.display()));
    }
}
