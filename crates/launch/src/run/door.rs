//! Prepares a task's door: the mechanism by which its opens wait for files. The door is the preload library, or seccomp
//! notification, by which the kernel stops the system calls of the task's program. A producer's opens do not wait; a
//! producer's door only explains why an open for writing fails. Unless the workflow file asks for the preload library,
//! a producer's door is seccomp notification, because the preload library does not work in programs of musl and in
//! programs with AddressSanitizer.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crossdock_os::fs;
use crossdock_shim::program::{self, Door, Linkage, ProgramInfo};

use crate::engine::{ENDPOINT_FOLDER, PATH, Unavailable};
use crate::file::{DoorKey, Files, Task};
use crate::mpi;

/// The names of the preload library (`PRELOAD`) and of the shim, a static program (`SHIM`), in the folder of an
/// endpoint.
const PRELOAD: &str = "preload.so";
const SHIM: &str = "shim";

/// What must be added to a task's environment and command for its door.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DoorSetup {
    /// Variables that are added to the task's environment.
    pub environment: Vec<(String, String)>,
    /// Words to put before the task's command.
    pub before: Vec<String>,
    /// A note for the user, if the door is not the preload library.
    pub note: Option<String>,
}

/// Copies the files that the task's door needs into the folder of its endpoint. `library` is the path of the preload
/// library.
///
/// # Errors
/// A file that the door needs is missing or cannot be copied.
pub fn open(task: &Task, library: &Path, endpoint: &Path) -> Result<DoorSetup, Unavailable> {
    match task.door {
        // Without a door the task's opens do not wait. With a view they wait, but the task itself needs nothing for
        // that.
        DoorKey::None | DoorKey::View => Ok(DoorSetup::default()),
        DoorKey::Preload => preload(task, library, endpoint),
        DoorKey::Notification => notification(endpoint, shim(task)?, None),
        DoorKey::Auto => match &task.files {
            // The program lies in the image, so the launcher cannot examine it. The shim, a static program, examines it
            // in the container and chooses the door.
            Files::Image(_) => match shim(task) {
                Ok(shim) => {
                    put(library, &endpoint.join(PRELOAD))?;
                    words(endpoint, &shim, "auto")
                }
                Err(_) => preload(task, library, endpoint),
            },
            files => {
                let root = if let Files::Root(root) = files { root.as_path() } else { Path::new("/") };
                match look(task, root) {
                    Some(seen) if seen.door() == Some(Door::Notification) => {
                        let what = match seen.kind {
                            Linkage::Static => "is static",
                            _ if seen.is_musl() => "is started by musl's loader",
                            _ if seen.has_address_sanitizer() => "is built with AddressSanitizer",
                            _ => "calls the kernel itself",
                        };
                        notification(endpoint, shim(task)?, Some(format!("{} {what}", seen.path.display())))
                    }
                    // If the program is not found, the engine reports that when it starts the task. The preload library
                    // is prepared, as for most programs.
                    _ => preload(task, library, endpoint),
                }
            }
        },
    }
}

/// Examines the task's program, which lies in its root or in one of its mounts.
fn look(task: &Task, root: &Path) -> Option<ProgramInfo> {
    let path = task.environment.iter().find(|(name, _)| name == "PATH").map_or(PATH, |(_, value)| value);
    let word = &task.command[0];
    let folders: Vec<&str> =
        if word.contains('/') { vec![task.workdir.as_deref().unwrap_or("/")] } else { path.split(':').collect() };
    folders.into_iter().find_map(|folder| {
        let place = Path::new(folder).join(word);
        let mounted = task.mounts.iter().filter_map(|m| Some((m, place.strip_prefix(&m.task).ok()?)));
        let seen = match mounted.max_by_key(|(m, _)| m.task.len()) {
            Some((mount, rest)) => program::look(Path::new("/"), "/", path, mount.host.join(rest).to_str()?),
            None => program::look(root, "/", path, place.to_str()?),
        };
        seen.ok()
    })
}

fn preload(task: &Task, library: &Path, endpoint: &Path) -> Result<DoorSetup, Unavailable> {
    put(library, &endpoint.join(PRELOAD))?;
    let own = task.environment.iter().find(|(name, _)| name == "LD_PRELOAD").map(|(_, value)| format!(":{value}"));
    let value = format!("{ENDPOINT_FOLDER}/{PRELOAD}{}", own.unwrap_or_default());
    Ok(DoorSetup { environment: vec![("LD_PRELOAD".into(), value)], ..DoorSetup::default() })
}

fn notification(endpoint: &Path, shim: PathBuf, why: Option<String>) -> Result<DoorSetup, Unavailable> {
    let way = words(endpoint, &shim, "notification")?;
    Ok(DoorSetup { note: why.map(|why| format!("waits for files by seccomp notification: {why}")), ..way })
}

fn words(endpoint: &Path, shim: &Path, which: &str) -> Result<DoorSetup, Unavailable> {
    put(shim, &endpoint.join(SHIM))?;
    let (shim, library) = (format!("{ENDPOINT_FOLDER}/{SHIM}"), format!("{ENDPOINT_FOLDER}/{PRELOAD}"));
    let before = [&shim, "door", which, &library, "--"].map(str::to_owned).to_vec();
    Ok(DoorSetup { before, ..DoorSetup::default() })
}

/// Finds the file of the shim. It must be linked statically, unless the task sees the host's file system with its
/// libraries.
fn shim(task: &Task) -> Result<PathBuf, Unavailable> {
    let hint = format!("install it beside crossdock, or write `door: none` for the task `{}`", task.name);
    let shim = mpi::shim().map_err(|why| Unavailable::new(why, hint.clone()))?;
    if task.files != Files::Host && !mpi::is_static(&shim) {
        let why = format!("{} is not linked statically; scripts/build-shim makes it", shim.display());
        return Err(Unavailable::new(why, hint));
    }
    Ok(shim)
}

/// Prepares the door of a task that waits for no file: the door only writes the reason to the task's log if an open for
/// writing fails in a managed directory. If no shim is found for the door, the task has no door, and its log lacks the
/// reason.
///
/// # Errors
/// There is no room for the files that the door needs.
pub fn watch(task: &Task, library: &Path, endpoint: &Path) -> Result<DoorSetup, Unavailable> {
    match task.door {
        DoorKey::None => Ok(DoorSetup::default()),
        DoorKey::Preload => preload(task, library, endpoint),
        DoorKey::Auto | DoorKey::View | DoorKey::Notification => match shim(task) {
            Ok(shim) => words(endpoint, &shim, "watch"),
            Err(_) => Ok(DoorSetup::default()),
        },
    }
}

fn put(from: &Path, to: &Path) -> Result<(), Unavailable> {
    if to.exists() {
        return Ok(());
    }
    let done = fs::copy(from, to).and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(0o755)));
    done.map_err(|e| {
        Unavailable::new(
            format!("cannot copy {} to {}: {e}", from.display(), to.display()),
            "make room in the folder of runs",
        )
    })
}
