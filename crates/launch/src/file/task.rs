//! Reads one task of the workflow file.

use std::path::Path;

use super::grants::{ITEM_RIGHTS, PORT_RIGHTS, REGION_RIGHTS, SERIES_RIGHTS, grants};
use super::keys::{DOORS, MOUNT, NETWORKS, PROCESS, TASK};
use super::placement::placing;
use super::reader::{Item, Section, clip};
use super::sections::good_name;
use super::workflow::{DoorKey, Files, Mount, Process, Processors, Task, User};

/// The most processors that a task may ask for. Numbers in a list of processors must be lower.
const PROCESSORS_MAX: u32 = 4096;

/// Paths in a task's file system that the workflow may not use for mounts and managed directories.
pub(super) const RESERVED: [&str; 6] = ["", "/proc", "/sys", "/dev", "/run", "/run/crossdock"];

/// Reads one task. Returns `None` if the task cannot be used at all.
pub(super) fn task(name: String, item: &Item<'_>, folder: &Path) -> Option<Task> {
    let mut good = good_name(item, &name);
    if name.contains('/') {
        item.wrong(format!("the task's name `{}` holds a slash", clip(&name)), "tasks have names of one part");
        good = false;
    }
    let s = item.section(TASK)?;
    let command = s.get("command").and_then(|i| command(&i)).unwrap_or_default();
    let is_here = item.notes.is_here(&name);
    let task = Task {
        position: item.position(),
        folder: folder.to_owned(),
        files: files(&s, folder, is_here),
        command,
        mounts: s.get("mounts").map(|i| mounts(&i, folder, is_here)).unwrap_or_default(),
        workdir: s.get("workdir").and_then(|i| absolute(&i)),
        environment: s.get("environment").map(|i| environment(&i)).unwrap_or_default(),
        ranks: s.get("ranks").and_then(|i| i.count(1, 1024)).unwrap_or(1),
        mpi: s.get("mpi").and_then(|i| mpi(&i)),
        processors: s.get("processors").and_then(|i| processors(&i)).unwrap_or(Processors::Any),
        memory: s.get("memory").and_then(|i| i.size()),
        user: s.get("user").and_then(|i| user(&i)).unwrap_or(User::Me),
        host_network: s.get("network").and_then(|i| i.word(NETWORKS)) == Some("host"),
        after: s.get("after").map(|i| names(&i)).unwrap_or_default(),
        regions: s.get("regions").map(|i| grants(&i, REGION_RIGHTS)).unwrap_or_default(),
        ports: s.get("ports").map(|i| grants(&i, PORT_RIGHTS)).unwrap_or_default(),
        series: s.get("series").map(|i| grants(&i, SERIES_RIGHTS)).unwrap_or_default(),
        items: s.get("items").map(|i| grants(&i, ITEM_RIGHTS)).unwrap_or_default(),
        placing: placing(&s),
        door: s.get("door").and_then(|i| i.word(DOORS)).map(DoorKey::of).unwrap_or_default(),
        process: s.get("process").map(|i| process(&i, folder, is_here)).unwrap_or_default(),
        name,
    };
    if let (Some(item), true) = (s.get("user"), task.mpi.is_some() && task.user != User::Me) {
        item.wrong("the ranks of an MPI run as the user who starts the run", "remove `user`, or `mpi`");
    }
    good.then_some(task)
}

fn files(s: &Section<'_>, folder: &Path, is_here: bool) -> Files {
    let image = s.get("image").and_then(|i| Some((i.text()?, i)));
    let root = s.get("root").and_then(|i| Some((i.text()?, i)));
    if let (Some((_, item)), Some(_)) = (&image, &root) {
        item.wrong("the task has an image and a root", "keep one of the two");
    }
    if let Some((text, item)) = root {
        let path = folder.join(&text);
        if is_here && !path.is_dir() {
            let what = if path.exists() { "is not a folder" } else { "is not there" };
            item.wrong(
                format!("the root folder {} {what}", path.display()),
                "build it first, or correct the path (relative paths count from the workflow file's folder)",
            );
        }
        // Links are resolved here, so that engines mount exactly what was checked.
        return Files::Root(path.canonicalize().unwrap_or(path));
    }
    if let Some((text, item)) = image {
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if text.is_empty() || text.starts_with('-') || text.contains(odd) {
            item.wrong(
                format!("`{}` is not an image's name", clip(&text)),
                "write `name:tag`, as `docker images` shows it",
            );
        }
        return Files::Image(text);
    }
    Files::Host
}

/// The words by which the workflow file may name an MPI. The path of an MPI's launcher is allowed too.
const MPIS: [&str; 5] = ["auto", "openmpi", "mpich", "intel", "mvapich"];

fn mpi(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if !text.starts_with('/') && !MPIS.contains(&text.as_str()) {
        let what = format!("`{}` is not an MPI", clip(&text));
        item.wrong(
            what,
            "choose auto, openmpi, mpich, intel, mvapich, or the path of its mpirun in the task's file system",
        );
        return None;
    }
    Some(text)
}

fn command(item: &Item<'_>) -> Option<Vec<String>> {
    if !item.is_list() {
        let text = item.text()?;
        if text.trim().is_empty() {
            item.wrong("the command is empty", "write the program and its arguments: `[program, argument]`");
            return None;
        }
        return Some(vec!["/bin/sh".into(), "-c".into(), text]);
    }
    let items = item.list();
    let words: Vec<String> = items.iter().filter_map(|i| i.text()).collect();
    match words.first() {
        Some(program) if !program.is_empty() => {}
        _ if items.is_empty() || words.len() == items.len() => {
            item.wrong("the command is empty", "write the program and its arguments: `[program, argument]`");
            return None;
        }
        _ => return None,
    }
    (words.len() == items.len()).then_some(words)
}

pub(super) fn absolute(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if !text.starts_with('/') || text.split('/').any(|p| p == "..") {
        item.wrong(
            format!("`{}` is not an absolute path without `..`", clip(&text)),
            "begin with `/`: it is a place in the task's file system",
        );
        return None;
    }
    Some(text)
}

fn mounts(item: &Item<'_>, folder: &Path, is_here: bool) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    for item in item.list() {
        let Some(s) = item.section(MOUNT) else { continue };
        let write = s.get("write").and_then(|i| i.flag()).unwrap_or(false);
        let host = s.get("host").and_then(|i| {
            let path = folder.join(i.text()?);
            if is_here && !path.exists() {
                i.wrong(
                    format!("{} is not there", path.display()),
                    "make it first, or correct the path (relative paths count from the workflow file's folder)",
                );
            }
            Some(path.canonicalize().unwrap_or(path))
        });
        let task = s.get("task").and_then(|i| {
            let text = absolute(&i)?.trim_end_matches('/').to_owned();
            if RESERVED.contains(&text.as_str()) {
                i.wrong(
                    format!("the task cannot have something else at `{text}/`"),
                    "choose another place, such as `/data`",
                );
                return None;
            }
            if mounts.iter().any(|m| m.task == text) {
                i.wrong(format!("two mounts at `{text}`"), "give each its own place");
            }
            Some(text)
        });
        if let (Some(host), Some(task)) = (host, task) {
            mounts.push(Mount { host, task, write, link: None });
        }
    }
    mounts
}

fn environment(item: &Item<'_>) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (name, item) in item.entries() {
        if name.is_empty() || name.contains(['=', '\0']) {
            item.wrong(format!("`{}` is not a variable's name", clip(&name)), "use letters, digits and `_`");
        } else if name.starts_with("CROSSDOCK_") {
            item.wrong(
                format!("`{}` is the launcher's to set", clip(&name)),
                "remove it; CROSSDOCK_… variables tell the task who it is",
            );
        } else if let Some(text) = item.text() {
            list.push((name, text));
        }
    }
    list
}

fn processors(item: &Item<'_>) -> Option<Processors> {
    if !item.is_list() {
        return item.count(1, PROCESSORS_MAX).map(Processors::Count);
    }
    let items = item.list();
    let numbers: Vec<u32> = items.iter().filter_map(|i| i.count(0, PROCESSORS_MAX - 1)).collect();
    if items.is_empty() {
        item.wrong("the list is empty", "name processors, as in `[0, 1]`, or leave the key out");
        return None;
    }
    Some(Processors::List(numbers))
}

fn user(item: &Item<'_>) -> Option<User> {
    let text = item.text()?;
    let ids = match text.split_once(':') {
        Some((uid, gid)) => uid.parse().ok().zip(gid.parse().ok()),
        None => text.parse().ok().map(|uid: u32| (uid, uid)),
    };
    match (text.as_str(), ids) {
        ("me", _) => Some(User::Me),
        ("root", _) => Some(User::Ids(0, 0)),
        (_, Some((uid, gid))) => Some(User::Ids(uid, gid)),
        _ => {
            item.wrong(
                format!("`{}` is not a user", clip(&text)),
                "write `me`, `root`, `uid` or `uid:gid` with numbers",
            );
            None
        }
    }
}

pub(super) fn names(item: &Item<'_>) -> Vec<String> {
    if item.is_list() {
        item.list().iter().filter_map(|i| i.text()).collect()
    } else {
        item.text().into_iter().collect()
    }
}

fn process(item: &Item<'_>, folder: &Path, is_here: bool) -> Process {
    let Some(s) = item.section(PROCESS) else { return Process::default() };
    Process {
        command: s.get("command").and_then(|i| command(&i)),
        workdir: s.get("workdir").and_then(|i| {
            let path = folder.join(i.text()?);
            if is_here && !path.is_dir() {
                i.wrong(format!("the folder {} is not there", path.display()), "make it first, or correct the path");
            }
            Some(path)
        }),
        environment: s.get("environment").map(|i| environment(&i)).unwrap_or_default(),
    }
}
