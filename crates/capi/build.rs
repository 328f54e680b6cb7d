//! Linker settings of libcrossdock.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A name of its own, so that programs that were linked by path still find it by name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcrossdock.so");
    // Threads of a program may hold thread-local messages of ours: the library stays once it is loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
