//! Tests that the C header and the library agree: symbols, status numbers and layouts, in C and in C++.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn header() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/crossdock.h")).unwrap()
}

/// The names of all functions that the header declares. Comments and inline functions do not count.
fn declared() -> BTreeSet<String> {
    let mut text = header();
    while let Some(start) = text.find("/*") {
        let end = start + text[start..].find("*/").expect("comments end") + 2;
        text.replace_range(start..end, "");
    }
    let text: String = text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    text.split(';')
        .filter(|declaration| !declaration.contains("static inline") && !declaration.contains("typedef"))
        .filter_map(|declaration| {
            let before = declaration.split('(').next()?;
            let name = before.rsplit([' ', '*', '\n']).next()?;
            (name.starts_with("crossdock_") && declaration.contains('(')).then(|| name.to_owned())
        })
        .collect()
}

/// Builds the library and gives its path. Cargo does not build it for the tests by itself, because the crate has no
/// Rust API.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile = exe.ancestors().nth(2).unwrap();
    let target = profile.parent().unwrap().to_str().unwrap();
    let mut arguments = vec!["build", "--quiet", "-p", "crossdock-capi", "--target-dir", target];
    if profile.ends_with("release") {
        arguments.push("--release");
    }
    run(env!("CARGO"), &arguments);
    profile.join("libcrossdock.so")
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {arguments:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let exported: BTreeSet<String> = run("nm", &["-D", "--defined-only", library().to_str().unwrap()])
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect();
    let declared = declared();
    assert!(declared.len() > 50, "the header was not understood: {declared:?}");
    assert_eq!(&declared - &exported, BTreeSet::new(), "declared but not exported");
    // rustc exports the standard library's personality routine from every cdylib, so this name is allowed.
    let extra: Vec<_> = (&exported - &declared).into_iter().filter(|name| name != "rust_eh_personality").collect();
    assert!(extra.is_empty(), "exported but not declared: {extra:?}");
}

#[test]
fn statuses_of_the_header_are_those_of_the_library() {
    for status in crossdock_layout::Status::ALL {
        let name = status.word().to_uppercase().replace(' ', "_");
        let line = format!("CROSSDOCK_{name} = {}", status as i32);
        assert!(header().contains(&format!("{line},")) || header().contains(&format!("{line} ")), "{line}");
    }
}

#[test]
fn the_header_is_strict_c99_and_cpp_and_its_layout_is_frozen() {
    let root = env!("CARGO_MANIFEST_DIR");
    let (include, layout) = (format!("-I{root}/include"), format!("{root}/tests/layout.c"));
    let common = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", &include];
    run("cc", &[&["-std=c11"], &common[..], &[&layout]].concat());
    run("cc", &[&["-std=c99", "-xc"], &common[..], &[&format!("{root}/include/crossdock.h")]].concat());
    run("c++", &[&["-std=c++20", "-xc++"], &common[..], &[&format!("{root}/include/crossdock.h")]].concat());
}

#[test]
fn version_of_the_header_is_the_crate_s() {
    for (part, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let line = format!("#define CROSSDOCK_VERSION_{part} {value}\n");
        assert!(header().contains(&line), "{line}");
    }
}
