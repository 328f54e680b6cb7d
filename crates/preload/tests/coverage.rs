//! Tests that every function of this machine's C library that takes a file's name has a shim, or a reason in
//! `not-covered.txt`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Headers that declare functions for files.
const HEADERS: &[&str] = &[
    "fcntl.h",
    "unistd.h",
    "stdio.h",
    "stdlib.h",
    "sys/stat.h",
    "dirent.h",
    "ftw.h",
    "glob.h",
    "spawn.h",
    "utime.h",
    "sys/time.h",
    "sys/statfs.h",
    "sys/statvfs.h",
    "sys/xattr.h",
    "sys/inotify.h",
    "sys/fanotify.h",
    "sys/mount.h",
    "sys/mman.h",
    "sys/swap.h",
    "fts.h",
    "wordexp.h",
    "dlfcn.h",
    "mntent.h",
    "nl_types.h",
    "utmp.h",
    "utmpx.h",
    "sys/ipc.h",
    "mqueue.h",
    "semaphore.h",
];

/// Functions that the test does not find in the headers. The headers name no argument of `fts_open` and `fts64_open`.
/// `open_by_handle_at` takes a handle instead of a name. Only old programs call `__xmknod` and `__xmknodat`.
const HIDDEN: &[&str] = &["fts_open", "fts64_open", "open_by_handle_at", "__xmknod", "__xmknodat"];

fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().unwrap();
    [folder, folder.parent().unwrap()].iter().map(|f| f.join("libcrossdock_preload.so")).find(|f| f.exists()).unwrap()
}

/// Lists the names that a shared library defines.
fn defined(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm of binutils");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|l| Some(l.split_whitespace().last()?.split('@').next()?.to_owned())).collect()
}

/// Lists the functions in the headers that have an argument for a file name. Such an argument is recognised by the
/// names that glibc uses for file names.
fn takes_a_name() -> BTreeSet<String> {
    let source: String = HEADERS.iter().map(|h| format!("#include <{h}>\n")).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers.c");
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc").args(["-E", "-P", "-D_GNU_SOURCE"]).arg(&file).output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).replace(['\n', '\t'], " ");
    let names = [
        "__file",
        "__path",
        "__filename",
        "__name",
        "__fname",
        "__from",
        "__old",
        "__oldpath",
        "__dir",
        "__special_file",
        "__command",
        "__template",
        "__pathname",
        "path",
        "pathname",
        "__pattern",
        "__words",
        "__cat_name",
        "__wtmp_file",
        "__wtmpx_file",
    ];
    let mut found = BTreeSet::new();
    for declaration in text.split(';').filter(|d| d.contains("extern")) {
        let Some((head, arguments)) = declaration.split_once('(') else { continue };
        let Some(name) = head.split(|c: char| !(c.is_alphanumeric() || c == '_')).rfind(|w| !w.is_empty()) else {
            continue;
        };
        let of_file = arguments.split(',').any(|a| {
            let last = a.split(|c: char| !(c.is_alphanumeric() || c == '_')).rfind(|w| !w.is_empty());
            a.contains("char") && a.contains('*') && last.is_some_and(|l| names.contains(&l))
        });
        if of_file {
            found.insert(name.to_owned());
        }
    }
    found
}

/// Removes what distinguishes the variants of a function's name: `__open64_2` and `open` are variants of one function.
fn plain(name: &str) -> &str {
    let mut name = ["_IO_", "__"].iter().find_map(|begin| name.strip_prefix(begin)).unwrap_or(name);
    while let Some(rest) = ["_chk", "_2", "64"].iter().find_map(|end| name.strip_suffix(end)) {
        name = rest;
    }
    name
}

#[test]
fn each_file_function_of_the_c_library_has_a_shim_or_a_reason() {
    let shims = defined(&library());
    let reasons: BTreeSet<String> = include_str!("../not-covered.txt")
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| {
            let (name, reason) = l.split_once(' ').expect("a name and a reason");
            assert!(!reason.trim().is_empty(), "{name} has no reason");
            name.to_owned()
        })
        .collect();
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    let libc = defined(Path::new(libc.iter().find(|p| Path::new(p).exists()).expect("glibc")));
    let mut wanted = takes_a_name();
    wanted.extend(HIDDEN.iter().map(|name| (*name).to_owned()));
    assert!(
        wanted.len() > 60 && wanted.contains("open") && wanted.contains("fopen"),
        "the headers were misread: {wanted:?}"
    );
    // These functions of the same headers have a text argument that is no file name.
    let other = [
        "perror",
        "getenv",
        "setenv",
        "unsetenv",
        "secure_getenv",
        "getlogin_r",
        "setlogin",
        "gethostname",
        "sethostname",
        "getdomainname",
        "setdomainname",
        "ctermid",
        "cuserid",
        "crypt",
        "ttyname_r",
        "ptsname_r",
        "memfd_create",
        "getpass",
        "confstr",
        "putenv",
        "ptsname",
        "glob_pattern_p",
        "fgetxattr",
        "fsetxattr",
        "dlsym",
        "dlvsym",
    ];
    // The C library's table of symbols has variants that no header declares.
    let known: BTreeSet<String> = wanted.iter().chain(&shims).chain(&reasons).map(|n| plain(n).to_owned()).collect();
    let is_other = |name: &str| other.contains(&name) || other.contains(&plain(name));
    wanted.extend(libc.iter().filter(|name| known.contains(plain(name))).cloned());
    let missing: Vec<_> = wanted
        .iter()
        .filter(|n| libc.contains(*n) && !shims.contains(*n) && !reasons.contains(*n) && !is_other(n))
        .collect();
    assert!(missing.is_empty(), "neither a shim nor a reason: {missing:?}");
    let both: Vec<_> = reasons.iter().filter(|n| shims.contains(*n)).collect();
    assert!(both.is_empty(), "a shim and a reason: {both:?}");
    for checked in ["__open_2", "__open64_2", "__openat_2", "__openat64_2", "__xstat", "__fxstatat64", "_IO_fopen"] {
        assert!(shims.contains(checked), "{checked}");
    }
}
