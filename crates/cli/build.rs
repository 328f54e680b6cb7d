//! Links the command with the unwinder in `libgcc_eh.a` in place of the shared library `libgcc_s.so`. To load the library
//! takes 0.12 ms of each start of the command: when it is loaded, it asks the CPU for its instructions, and a virtual CPU
//! takes long to answer.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name| std::env::var(name).unwrap_or_default();
    // The releases are built with the linker of zig, which has its own unwinder. So a chosen linker keeps its defaults.
    let is_native = variable("TARGET") == variable("HOST") && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let is_native = is_native && variable("RUSTC_LINKER").is_empty();
    if !is_native || !has_unwinder() {
        return;
    }
    // The linker finds this script under the library's name before it finds the library.
    let folder = PathBuf::from(variable("OUT_DIR"));
    std::fs::write(folder.join("libgcc_s.so"), "GROUP ( -lgcc_eh -lgcc )\n").expect("OUT_DIR can be written");
    println!("cargo:rustc-link-search=native={}", folder.display());
}

/// Tells whether the C compiler, which links the command, has the unwinder as an archive.
fn has_unwinder() -> bool {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let answer = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
    answer.is_ok_and(|answer| Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_file())
}
