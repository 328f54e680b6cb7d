//! `crossdock check`: says by which door (preload library or seccomp notification) a program waits for files, and which
//! of its calls would bypass the door.

use std::path::Path;

use crossdock_launch::engine::PATH;
use crossdock_launch::run::code;
use crossdock_shim::program::{self, Door, Linkage, ProgramInfo};
use serde_json::json;

use crate::args::Check;
use crate::table::{complain, say};

/// The exit code if no door works for the program.
const NOT_SERVED: u8 = 1;

pub fn check(options: &Check) -> u8 {
    let root = options.root.as_deref().unwrap_or(Path::new("/"));
    let path = std::env::var("PATH").ok().filter(|_| options.root.is_none()).unwrap_or_else(|| PATH.into());
    let folder = std::env::current_dir().unwrap_or_default();
    let folder = if options.root.is_some() { "/".into() } else { folder.to_string_lossy().into_owned() };
    let seen = match program::look(root, &folder, &path, &options.program) {
        Ok(seen) => seen,
        Err(why) => {
            complain(&format!("{why}; name the program as the task's command does, and its root folder with --root"));
            return code::NO_PROGRAM;
        }
    };
    let (made, door, remarks) = (made(&seen), word(seen.door()), remarks(&seen));
    if options.json {
        crate::table::json(&json!({
            "program": seen.path, "scripts": seen.scripts, "made": made, "door": door, "setuid": seen.is_setuid, "go": seen.is_go,
            "io_uring": seen.names_io_uring, "own_calls": seen.own_calls, "remarks": remarks,
        }));
    } else {
        let mut lines: Vec<String> = seen.scripts.iter().map(|s| format!("{}: a script of", s.display())).collect();
        lines.push(format!("{}: {made}", seen.path.display()));
        lines.push(format!("door: {door}"));
        lines.extend(remarks.iter().map(|remark| format!("- {remark}")));
        say(&lines.join("\n"));
    }
    if seen.door().is_some() { code::OK } else { NOT_SERVED }
}

fn word(door: Option<Door>) -> &'static str {
    match door {
        Some(Door::Preload) => "preload",
        Some(Door::Notification) => "notification",
        None => "none",
    }
}

fn made(seen: &ProgramInfo) -> String {
    let go = if seen.is_go { "a Go program, " } else { "" };
    match &seen.kind {
        Linkage::Dynamic { loader, .. } => format!("{go}dynamic, started by {loader}"),
        Linkage::Static => format!("{go}static"),
        Linkage::Foreign(why) => format!("not served: {why}"),
        Linkage::Unknown => "no ELF program, and no script".into(),
    }
}

/// Lists the reasons why calls of the program would bypass the door, as far as the program's file shows such reasons.
fn remarks(seen: &ProgramInfo) -> Vec<String> {
    let mut remarks: Vec<&str> = Vec::new();
    let own;
    match seen.door() {
        Some(Door::Preload) => {
            if seen.own_calls > 0 {
                own = format!(
                    "up to {} system calls in its own code go past the library (data that looks like one counts); if it opens \
                     files so, write `door: notification`",
                    seen.own_calls
                );
                remarks.push(&own);
            }
            if seen.names_io_uring {
                remarks.push(
                    "it names io_uring: files that it opens through a ring are not awaited; write `door: notification`",
                );
            }
            if seen.is_setuid {
                remarks.push("it is setuid: outside of containers the loader ignores the library; in a task it gains no rights, and waits");
            }
            remarks.push("static programs that it starts do not wait; write `door: notification` if it starts some");
        }
        Some(Door::Notification) => {
            if seen.is_musl() {
                remarks.push("musl's loader does not start a program with the preload library");
            }
            if seen.has_address_sanitizer() {
                remarks.push(
                    "it is built with AddressSanitizer, which ends a program that starts with the preload library",
                );
            }
            if seen.names_io_uring {
                remarks.push("it names io_uring: io_uring_setup fails with ENOSYS behind this door");
            }
            if seen.is_setuid {
                remarks.push("it is setuid: behind this door it gains no rights");
            }
            if !crossdock_os::seccomp::is_supported() {
                remarks.push("this kernel has no seccomp notification (Linux 5.5): the program would not wait here");
            }
        }
        None => remarks.push("it sees each published file whole, and gets ENOENT for one that is not there yet"),
    }
    remarks.into_iter().map(str::to_owned).collect()
}
