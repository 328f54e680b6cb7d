//! A run's managed directories: their services, and what each task needs to take part.
//!
//! A producer gets the directory's `stage` as a writable mount. A consumer gets `published` as a read-only mount at the same
//! path, and beside its endpoint the notice, which its environment names, and its door (`door.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_core::files::{VARIABLE, Views};
use crossdock_files::{Layout, Publish, Service};
use crossdock_layout::files::Phase;

use super::door::{self, Way};
use super::folder::RunFolder;
use super::summary::FilesLine;
use crate::engine::{ENDPOINT_FOLDER, Unavailable};
use crate::file::{Directory, Mount, Task, Workflow};

/// In a run's folder: where its stores are, for the one who cleans up after the run.
const STORES: &str = "stores";

/// The managed directories of a run.
pub struct Managed {
    /// The preload library; `None` without directories.
    library: Option<PathBuf>,
    directories: Vec<(Directory, Service)>,
    /// Tasks with ranks that run or are still to start, by directory.
    busy: Vec<BTreeSet<String>>,
    failed: Vec<bool>,
}

impl Managed {
    /// Makes the stores and starts a service for each directory.
    pub fn make(workflow: &Workflow, folder: &RunFolder) -> Result<Self, String> {
        let mut managed = Self { library: None, directories: Vec::new(), busy: Vec::new(), failed: Vec::new() };
        if !workflow.directories.is_empty() {
            managed.library = Some(library().map_err(|e| format!("{}; {}", e.why, e.hint))?);
        }
        for (index, directory) in workflow.directories.iter().enumerate() {
            let store = store(directory, folder, index)?;
            let producers = directory.produce.join(", ");
            let service = Service::start(
                &store,
                &notice(folder, index),
                &producers,
                how(directory),
                directory.keep.map(|n| n as usize),
            );
            let service = service.map_err(|e| format!("managed directory `{}`: {e}", directory.name))?;
            managed.directories.push((directory.clone(), service));
            managed.busy.push(directory.produce.iter().cloned().collect());
            managed.failed.push(false);
        }
        Ok(managed)
    }

    /// The mounts through which a task sees its directories.
    pub fn mounts(&self, task: &Task) -> Vec<Mount> {
        let mounts = self.directories.iter().filter_map(|(directory, service)| {
            let Layout { stage, published, .. } = service.layout();
            let write = directory.produce.contains(&task.name);
            let host = if write { stage } else { published };
            let takes_part = write || directory.consume.contains(&task.name);
            takes_part.then(|| Mount { host, task: directory.path.clone(), write })
        });
        mounts.collect()
    }

    /// Puts what a consumer needs beside its endpoint; its environment, and the door by which it waits.
    pub fn door(&self, task: &Task, endpoint: &Path) -> Result<Way, Unavailable> {
        let consumed: Vec<_> =
            self.directories.iter().enumerate().filter(|(_, (d, _))| d.consume.contains(&task.name)).collect();
        let Some(library) = self.library.as_ref().filter(|_| !consumed.is_empty()) else { return Ok(Way::default()) };
        let mut way = door::open(task, library, endpoint)?;
        let mut lines = Vec::new();
        for (index, (directory, _)) in consumed {
            let name = format!("files.{index}");
            let (from, to) = (endpoint.join(&name), endpoint.join("../..").join(&name));
            if !from.exists() {
                fs::hard_link(&to, &from).map_err(|e| {
                    Unavailable::new(format!("{}: {e}", from.display()), "make room in the folder of runs")
                })?;
            }
            let wait = Duration::from_secs(directory.wait_s.into());
            lines.push(Views::line(&directory.path, &format!("{ENDPOINT_FOLDER}/{name}"), wait, &directory.awaits));
        }
        way.environment.push((VARIABLE.into(), lines.join("\n")));
        Ok(way)
    }

    /// A rank of this task starts.
    pub fn started(&self, task: &str) {
        for (directory, service) in &self.directories {
            if directory.produce.iter().any(|p| p == task) {
                service.producers(Phase::Producing);
            }
        }
    }

    /// All ranks of this task have ended, well or not.
    pub fn ended(&mut self, task: &str, well: bool) {
        for (index, (_, service)) in self.directories.iter().enumerate() {
            if !self.busy[index].remove(task) {
                continue;
            }
            self.failed[index] |= !well;
            if self.busy[index].is_empty() {
                service.producers(if self.failed[index] { Phase::Failed } else { Phase::Ended });
            }
        }
    }

    /// What the directories came to.
    pub fn report(&self) -> Vec<FilesLine> {
        let line = |(directory, service): &(Directory, Service)| {
            let report = service.report();
            FilesLine {
                directory: directory.name.clone(),
                published: report.published,
                bytes: report.bytes,
                torn: report.torn,
                troubles: report.troubles,
            }
        };
        self.directories.iter().map(line).collect()
    }
}

fn how(directory: &Directory) -> Publish {
    match directory.publish {
        "rename" => Publish::Rename,
        "marker" => Publish::Marker(".done".into()),
        "end" => Publish::End,
        _ => Publish::Close,
    }
}

/// Notices lie in the run's folder, so that they can be linked beside endpoints.
fn notice(folder: &RunFolder, index: usize) -> PathBuf {
    folder.path.join(format!("files.{index}"))
}

/// The folder of a directory's store, in memory or on the disk that the file names; noted for the clean-up first.
fn store(directory: &Directory, folder: &RunFolder, index: usize) -> Result<PathBuf, String> {
    let base = directory.store.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let store = base.join(format!("crossdock-files-{}", folder.id));
    let trouble = |e: std::io::Error| format!("managed directory `{}`: {}: {e}", directory.name, store.display());
    let known = fs::read_to_string(folder.path.join(STORES)).unwrap_or_default();
    if !known.lines().any(|line| Path::new(line) == store) {
        fs::write(folder.path.join(STORES), format!("{known}{}\n", store.display())).map_err(trouble)?;
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(&store).map_err(trouble)?;
    }
    Ok(store.join(index.to_string()))
}

/// Removes the stores of a run, also of one that died.
pub fn clean(run: &Path) {
    for store in fs::read_to_string(run.join(STORES)).unwrap_or_default().lines() {
        let store = Path::new(store);
        // Only what a run made: the note lies in a folder of the user's own, but a path is worth a second look.
        if store.file_name().is_some_and(|n| n.to_string_lossy().starts_with("crossdock-files-")) {
            super::folder::remove(store);
        }
    }
}

/// The preload library: beside this program, in the `lib` folder that belongs to it, or where CROSSDOCK_PRELOAD says.
fn library() -> Result<PathBuf, Unavailable> {
    const NAMES: [&str; 2] = ["libcrossdock-preload.so", "libcrossdock_preload.so"];
    if let Some(path) = std::env::var_os("CROSSDOCK_PRELOAD").map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Unavailable::new(
                format!("CROSSDOCK_PRELOAD is {}, which is no file", path.display()),
                "correct it, or unset it to use the installed library",
            ))
        };
    }
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let folders = [beside.clone(), beside.join("deps"), beside.join("../lib"), beside.join("../lib/crossdock")];
    let found = folders.iter().flat_map(|f| NAMES.map(|n| f.join(n))).find(|p| p.is_file());
    found.ok_or_else(|| {
        Unavailable::new(
            format!("{} is not installed beside {}", NAMES[0], program.display()),
            "install it there, or set CROSSDOCK_PRELOAD to its path",
        )
    })
}
