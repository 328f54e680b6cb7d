//! The managed directories of a run: their services, and what each task needs to produce or consume files.
//!
//! A producer gets the folder `stage` of the directory's store as a writable mount. A consumer gets the folder
//! `published` of the store as a read-only mount at the same path. The consumer's endpoint folder gets the notice,
//! whose path is in the consumer's environment, and the files that the consumer's door needs (`door.rs`). A consumer
//! that sees the directory through a view (`views.rs`) gets only the view, as its mount.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_core::files::{VARIABLE, Views, WATCHED, Watched};
use crossdock_files::{Exchange, GuardedDirectory, Keep, MovedFiles, Publish, Refusals, Service, View};
use crossdock_layout::files::Phase;
use crossdock_layout::refusal;
use crossdock_os::{fs, mount};
use serde::{Deserialize, Serialize};

use super::door::{self, DoorSetup};
use super::folder::RunFolder;
use super::host_exchange::OtherHosts;
use super::summary::FilesLine;
use super::views::MountedViews;
use crate::engine::{ENDPOINT_FOLDER, Unavailable};
use crate::file::{Count, Directory, KeepKey, Mount, Task, Workflow};

/// The file in a run's folder that lists the run's stores, for a cleanup after the run. A store has one line, its path,
/// before its folder is made, and a second line after this.
const STORES: &str = "stores";

/// How the second line of a store begins. The folder's inode number and its path follow.
const INODE: &str = "inode ";

/// The file in a run's folder that lists the paths on this host at which the run has mounted views, for a cleanup after
/// the run.
const VIEWS: &str = "views";

/// The file in a run's folder that describes the run's managed directories, for `crossdock ls --files`.
const DIRECTORIES_FILE: &str = "files.json";

/// A managed directory of a living run, as the file `files.json` in the run's folder describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunningDirectory {
    /// The name of the directory.
    pub name: String,
    /// The path at which the tasks see the directory.
    pub path: String,
    /// The names of the tasks that write files.
    pub produce: Vec<String>,
    /// The names of the tasks that read files.
    pub consume: Vec<String>,
    /// When a file counts as finished: the word of the key `publish` in the workflow file.
    pub publish: String,
    /// How long a published file stays, in words for the user.
    pub keep: String,
    /// The most bytes of memory that the files may take.
    pub quota: Option<u64>,
    /// The path of the store's folder.
    pub store: PathBuf,
    /// The path of the directory's notice.
    pub notice: PathBuf,
}

/// Reads the managed directories of the run whose folder is `run`.
pub fn running_directories(run: &Path) -> Vec<RunningDirectory> {
    let text = fs::read(run.join(DIRECTORIES_FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// The managed directories of a run.
pub struct ManagedDirectories {
    /// The path of the preload library; `None` if the run has no managed directories.
    library: Option<PathBuf>,
    /// The exchange with other hosts, if there is one. The exchange sends requests to the services, so it is dropped
    /// before the services.
    exchange: Option<Exchange>,
    /// For each directory, its views. A view reports to the services which files were read, so the views are dropped
    /// before the services.
    shown: Vec<MountedViews>,
    directories: Vec<(Directory, Service)>,
    /// For each directory, and in it for each consumer: the range of the numbers of the consumer's readers.
    readers: Vec<Vec<Range<usize>>>,
    /// For each directory, the names of the producers that have ranks which run or have not started yet.
    busy: Vec<BTreeSet<String>>,
    failed: Vec<bool>,
    /// For each directory, how many of its problems are already in the producers' logs.
    troubles_shown: Vec<usize>,
    /// Records the refusals that tasks report; `None` if the run has no managed directories.
    refusals: Option<Refusals>,
}

impl ManagedDirectories {
    /// Makes the stores and starts a service for each directory. `counts` says for each task how many of its processes
    /// and ranks are on this host.
    pub fn make(
        workflow: &Workflow,
        counts: &[Count],
        folder: &RunFolder,
        neighbours: Option<&OtherHosts>,
    ) -> Result<Self, String> {
        let mut managed = Self {
            library: None,
            exchange: None,
            shown: Vec::new(),
            directories: Vec::new(),
            readers: Vec::new(),
            busy: Vec::new(),
            failed: Vec::new(),
            troubles_shown: Vec::new(),
            refusals: None,
        };
        if !workflow.directories.is_empty() {
            managed.library = Some(library().map_err(|e| format!("{}; {}", e.why, e.hint))?);
        }
        let (mut running, mut guarded) = (Vec::new(), Vec::new());
        for (index, directory) in workflow.directories.iter().enumerate() {
            let store = store(directory, folder, index)?;
            let producers = neighbours.and_then(|neighbours| neighbours.producers(&directory.name));
            let producers = producers.map_or_else(|| directory.produce.join(", "), str::to_owned);
            if let Some(bytes) = directory.quota {
                limit(directory, &store, bytes)?;
            }
            let reads = reads(directory, workflow, counts);
            let readers = numbered(&reads);
            let keep = keep(directory, reads);
            let notice = notice(folder, directory.number);
            let service = Service::start(&store, &notice, &producers, how(directory), keep);
            let named = |e: std::io::Error| format!("managed directory `{}`: {e}", directory.name);
            let mut service = service.map_err(named)?;
            if directory.quota.is_some() {
                service.limited();
            }
            let moved = match (&directory.spill, directory.quota) {
                (Some(disk), Some(quota)) => {
                    let disk = place(directory, disk, folder, index)?;
                    service.spill_to(&disk, quota).map_err(named)?
                }
                _ => MovedFiles::default(),
            };
            if let Some(host) = &directory.host {
                note_view(&folder.path.join(VIEWS), host).map_err(named)?;
            }
            let shown = MountedViews::mount(directory, workflow, &readers, &store, &notice, &service, &moved)?;
            managed.shown.push(shown);
            managed.readers.push(readers);
            guarded.push(GuardedDirectory {
                path: directory.path.clone(),
                file: service.layout().refusals(),
                producers: directory.produce.clone(),
            });
            running.push(RunningDirectory {
                name: directory.name.clone(),
                path: directory.path.clone(),
                produce: directory.produce.clone(),
                consume: directory.consume.clone(),
                publish: directory.publish.to_owned(),
                keep: directory.keep.to_string(),
                quota: directory.quota,
                store,
                notice,
            });
            managed.directories.push((directory.clone(), service));
            let is_here = |name: &&String| workflow.tasks.iter().any(|task| task.name == **name);
            managed.busy.push(directory.produce.iter().filter(is_here).cloned().collect());
            managed.failed.push(false);
            managed.troubles_shown.push(0);
        }
        if let Some(neighbours) = neighbours.filter(|_| !managed.directories.is_empty()) {
            managed.exchange = Some(neighbours.exchange(&managed.directories)?);
        }
        if !guarded.is_empty() {
            managed.refusals = Some(Refusals::start(guarded).map_err(|e| format!("the list of refusals: {e}"))?);
        }
        if !running.is_empty() {
            let text = serde_json::to_vec(&running).map_err(|e| e.to_string())?;
            fs::write(folder.path.join(DIRECTORIES_FILE), text)
                .map_err(|e| format!("{DIRECTORIES_FILE} in the run's folder: {e}"))?;
        }
        Ok(managed)
    }

    /// Ends the exchange with other hosts. The catalog must still answer at that time, because the exchange removes its
    /// own entries from the catalog.
    pub fn leave(&mut self) {
        self.exchange = None;
    }

    /// The ids of the processes that remove the mounts of views if this process is killed.
    pub fn guards(&self) -> impl Iterator<Item = i32> {
        self.shown.iter().flat_map(MountedViews::guards)
    }

    /// Removes the mounts of all views. No task may run any more.
    pub fn unmount(&mut self) {
        self.shown.clear();
    }

    /// Gives the mounts through which a process of a task sees the task's directories. The processes of a task on this
    /// host are counted from 0.
    pub fn mounts(&self, task: &Task, process: usize) -> Vec<Mount> {
        let mounts = self.directories.iter().enumerate().filter_map(|(index, (directory, service))| {
            let layout = service.layout();
            let consumer = directory.consume.iter().position(|name| *name == task.name);
            let (host, write) = match consumer {
                Some(number) => {
                    let readers = self.readers[index][number].clone();
                    let reader = readers.clone().nth(process).unwrap_or(readers.start);
                    let view = self.shown[index].of_reader(reader);
                    (view.unwrap_or(layout.for_consumer(reader)).to_owned(), false)
                }
                None if directory.produce.contains(&task.name) => (layout.stage, true),
                None => return None,
            };
            let link = task.is_over_hosts().then(|| format!("folder.{}", directory.number));
            Some(Mount { host, task: directory.path.clone(), write, link })
        });
        mounts.collect()
    }

    /// Copies the files that a task needs into the folder of its endpoint. Returns the task's environment variables and
    /// the door by which it waits, or by which it learns why it cannot write.
    pub fn door(&self, task: &Task, endpoint: &Path) -> Result<DoorSetup, Unavailable> {
        let (mut waits, mut watched, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let socket = Path::new(ENDPOINT_FOLDER).join(refusal::SOCKET);
        for (index, (directory, _)) in self.directories.iter().enumerate() {
            let consumer = directory.consume.iter().position(|name| *name == task.name);
            match consumer {
                Some(number) if self.shown[index].of_reader(self.readers[index][number].start).is_none() => {
                    waits.push(directory);
                }
                Some(_) => {
                    let producers = directory.produce.join(", ");
                    watched.push(Watched::line(&directory.path, &socket, Some(&producers)));
                }
                None if directory.produce.contains(&task.name) => {
                    watched.push(Watched::line(&directory.path, &socket, None));
                }
                None => continue,
            }
            own.push(index);
        }
        let Some(library) = self.library.as_ref().filter(|_| !own.is_empty()) else { return Ok(DoorSetup::default()) };
        if let Some(refusals) = &self.refusals {
            let made = refusals.listen(&task.name, &own, endpoint);
            made.map_err(|e| Unavailable::new(e.to_string(), "make room in the folder of runs"))?;
        }
        let mut way = match waits.is_empty() {
            true => door::watch(task, library, endpoint)?,
            false => door::open(task, library, endpoint)?,
        };
        let mut lines = Vec::new();
        for directory in &waits {
            let name = format!("files.{}", directory.number);
            let (from, to) = (endpoint.join(&name), endpoint.join("../..").join(&name));
            if !from.exists() {
                fs::hard_link(&to, &from).map_err(|e| {
                    Unavailable::new(format!("{}: {e}", from.display()), "make room in the folder of runs")
                })?;
            }
            let wait = Duration::from_secs(directory.wait_s.into());
            lines.push(Views::line(&directory.path, &format!("{ENDPOINT_FOLDER}/{name}"), wait, &directory.awaits));
        }
        let variables = [(VARIABLE, lines), (WATCHED, watched)];
        let variables = variables.into_iter().filter(|(_, lines)| !lines.is_empty());
        way.environment.extend(variables.map(|(name, lines)| (name.to_owned(), lines.join("\n"))));
        Ok(way)
    }

    /// Notes that a rank of this task starts.
    pub fn started(&self, task: &str) {
        for (directory, service) in &self.directories {
            if directory.produce.iter().any(|p| p == task) {
                service.producers(Phase::Producing);
            }
        }
    }

    /// Notes that all ranks of this task have ended. `well` is false if any rank failed.
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

    /// Gives the problems that arose since the last call, each with the tasks into whose logs it is written. If files
    /// come from other hosts, these tasks include the consumers.
    pub fn news(&mut self) -> Vec<(Vec<String>, String)> {
        let mut news = Vec::new();
        for (index, (directory, service)) in self.directories.iter().enumerate() {
            let consumers = self.exchange.iter().flat_map(|_| &directory.consume);
            let hear: Vec<String> = directory.produce.iter().chain(consumers).cloned().collect();
            for line in service.report().troubles.into_iter().skip(self.troubles_shown[index]) {
                self.troubles_shown[index] += 1;
                news.push((hear.clone(), format!("{}: {line}", directory.path)));
            }
            for (consumer, line) in self.shown[index].stories() {
                let hear = match consumer.and_then(|number| directory.consume.get(number)) {
                    Some(task) => vec![task.clone()],
                    // A program of the host has no log in this run, so the producers' logs get the message.
                    None => directory.produce.clone(),
                };
                news.push((hear, line));
            }
        }
        news
    }

    /// Reports the figures of all directories.
    pub fn report(&self) -> Vec<FilesLine> {
        let line = |(directory, service): &(Directory, Service)| {
            let report = service.report();
            FilesLine {
                directory: directory.name.clone(),
                published: report.published,
                bytes: report.bytes,
                torn: report.torn,
                cut: report.cut,
                dropped: report.dropped,
                spilled: report.spilled,
                fetched: report.fetched,
                bytes_fetched: report.bytes_fetched,
                troubles: report.troubles,
            }
        };
        self.directories.iter().map(line).collect()
    }
}

/// Mounts a tmpfs at the folder of a directory's store, for this store only, so that the kernel enforces the quota.
fn limit(directory: &Directory, store: &Path, bytes: u64) -> Result<(), String> {
    let name = &directory.name;
    fs::create_dir_all(store).map_err(|e| format!("managed directory `{name}`: {}: {e}", store.display()))?;
    mount::memory_at(store, bytes).map_err(|e| {
        let hint = if mount::is_refused(&e) {
            "; hint: only root may limit memory so; start the run as root, or remove `quota`"
        } else {
            ""
        };
        format!("managed directory `{name}`: its quota cannot be set: {e}{hint}")
    })
}

/// For each consumer, and for each of its readers on this host: how often the reader reads a file. With `keep:
/// consumed`, each rank is a reader with a folder of its own, because the kernel reports several reads through one
/// folder as one. In two cases the ranks of a consumer together are one reader: without `keep: consumed`, and for an
/// MPI task, whose ranks on this host share one container. Ranks on other hosts are not counted here, because they read
/// the copies on their own hosts.
fn reads(directory: &Directory, workflow: &Workflow, counts: &[Count]) -> Vec<Vec<u32>> {
    let of_consumer = |name: &String| {
        let found = workflow.tasks.iter().zip(counts).find(|(task, _)| task.name == *name);
        match found {
            Some((task, count)) if directory.keep == KeepKey::Consumed && task.mpi.is_none() => {
                vec![1; count.processes as usize]
            }
            Some((_, count)) => vec![count.ranks],
            None => Vec::new(),
        }
    };
    directory.consume.iter().map(of_consumer).collect()
}

/// Numbers the readers of all consumers, and gives the numbers of each consumer's readers.
fn numbered(reads: &[Vec<u32>]) -> Vec<Range<usize>> {
    let mut next = 0;
    let number = |of_consumer: &Vec<u32>| {
        let first = next;
        next += of_consumer.len();
        first..next
    };
    reads.iter().map(number).collect()
}

fn keep(directory: &Directory, reads: Vec<Vec<u32>>) -> Keep {
    match directory.keep {
        KeepKey::All => Keep::All,
        KeepKey::Newest(files) => Keep::Newest(files as usize),
        KeepKey::Consumed => Keep::Consumed { readers: reads.concat() },
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

/// Gives the path of a directory's notice. Notices lie in the run's folder, so that they can be linked into the folders
/// of endpoints.
fn notice(folder: &RunFolder, number: usize) -> PathBuf {
    folder.path.join(format!("files.{number}"))
}

/// Makes the folder of a directory's store: in memory, or on the disk that the workflow file names. Before the folder
/// is made, its path is written to the list that a cleanup reads.
fn store(directory: &Directory, folder: &RunFolder, index: usize) -> Result<PathBuf, String> {
    let base = directory.store.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    place(directory, &base, folder, index)
}

/// Makes a folder for one directory of the run in the folder `base`.
fn place(directory: &Directory, base: &Path, folder: &RunFolder, index: usize) -> Result<PathBuf, String> {
    let store = base.join(format!("crossdock-files-{}", folder.id));
    let trouble = |e: std::io::Error| format!("managed directory `{}`: {}: {e}", directory.name, store.display());
    make_store(&folder.path.join(STORES), &store).map_err(trouble)?;
    Ok(store.join(index.to_string()))
}

/// Makes the folder of a store and notes it in the list that a cleanup reads, unless the list already contains it.
pub(super) fn make_store(list: &Path, store: &Path) -> std::io::Result<()> {
    if !note_store(list, store)? {
        return Ok(());
    }
    fs::make_folder(fs::DirBuilder::new().mode(0o700), store)?;
    let inode = fs::open_folder(store)?.metadata()?.ino();
    fs::append(list, &format!("{INODE}{inode} {}\n", store.display()))
}

/// Adds a store to the list that a cleanup reads. Gives false if the list already contains the store. If writing fails,
/// the list keeps all of its lines; without them a cleanup would not find the other stores.
fn note_store(list: &Path, store: &Path) -> std::io::Result<bool> {
    let known = match fs::read_to_string(list) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        known => known?,
    };
    if known.lines().any(|line| Path::new(line) == store) {
        return Ok(false);
    }
    fs::append(list, &format!("{}\n", store.display())).map(|()| true)
}

/// Adds a line to the list of views: the folder of the host, and whether the view makes this folder.
fn note_view(list: &Path, host: &Path) -> std::io::Result<()> {
    let word = if fs::symlink_metadata(host).is_ok() { FOUND } else { MADE };
    fs::append(list, &format!("{word}{}\n", host.display()))
}

/// How a line of the list of views begins, if the view makes its folder (`MADE`) or if the folder existed before
/// (`FOUND`).
const MADE: &str = "made ";
const FOUND: &str = "found ";

/// Removes the mounts of views that a killed run has left, and the folders that were made for them.
fn unmount_views(run: &Path) {
    for line in fs::read_to_string(run.join(VIEWS)).unwrap_or_default().lines() {
        let made = line.strip_prefix(MADE);
        let Some(host) = made.or(line.strip_prefix(FOUND)).map(Path::new) else { continue };
        View::unmount_dead(host);
        if made.is_some() {
            // A folder that is not empty stays, because this call removes only empty folders.
            let _ = fs::remove_dir(host);
        }
    }
}

/// The stores that a run has made, with the inode number of each. The number is `None` if the run was killed before it
/// noted the number. Such a store is empty.
fn stores(run: &Path) -> std::io::Result<Vec<(PathBuf, Option<u64>)>> {
    let list = match fs::read_to_string(run.join(STORES)) {
        // Without a list the run has made no store.
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        list => list?,
    };
    let noted = |line: &str| {
        let (inode, path) = line.strip_prefix(INODE)?.split_once(' ')?;
        Some((PathBuf::from(path), inode.parse().ok()?))
    };
    let inodes: BTreeMap<PathBuf, u64> = list.lines().filter_map(noted).collect();
    let paths = list.lines().filter(|line| !line.starts_with(INODE)).map(PathBuf::from);
    // The list of stores could hold a wrong path, so only folders with the name of a run's store are removed.
    let paths = paths.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("crossdock-files-")));
    Ok(paths.map(|path| (path.clone(), inodes.get(&path).copied())).collect())
}

/// Says which stores of a run are no longer where the run made them.
pub fn missing(run: &Path) -> Vec<String> {
    let is_missing = |path: &Path| fs::symlink_metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    let missing = stores(run).unwrap_or_default().into_iter().filter(|(path, _)| is_missing(path));
    let line = |path: &Path| format!("{} was moved or removed; its files may still take memory", path.display());
    missing.map(|(path, _)| line(&path)).collect()
}

/// Removes the views and stores of a run that has ended or died. Gives a line for each store that stays.
pub fn clean(run: &Path) -> Vec<String> {
    unmount_views(run);
    match stores(run) {
        Ok(stores) => stores.iter().filter_map(|(path, inode)| remove_store(path, *inode).err()).collect(),
        // A later cleanup reads the list.
        Err(error) => vec![format!("the list {} cannot be read: {error}", run.join(STORES).display())],
    }
}

/// Removes a store, or says why it stays. A service that was just killed may take a moment to end, and until its end
/// its view or its memory can prevent the removal. So the removal is tried several times.
fn remove_store(store: &Path, inode: Option<u64>) -> Result<(), String> {
    let path = store.display();
    let mut attempts_left = 20;
    loop {
        attempts_left -= 1;
        match try_to_remove_store(store, inode) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                return Err(format!("{path} stays, because it is not the folder that the run made; remove it by hand"));
            }
            Err(error) if attempts_left == 0 => {
                return Err(format!("{path} cannot be removed: {error}; the next run tries again"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Removes the store with this inode number. Gives false if something else has the store's name. A task may be able to
/// rename the store and to put a link or another folder in its place, so the store is used only through a descriptor.
fn try_to_remove_store(store: &Path, inode: Option<u64>) -> std::io::Result<bool> {
    let folder = match fs::open_folder(store) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(false),
        folder => folder?,
    };
    if let Some(inode) = inode {
        if folder.metadata()?.ino() != inode {
            return Ok(false);
        }
        // A view, and the memory of a store with a quota, are mounts, which must be unmounted first.
        for entry in fs::read_dir(fs::path_of(&folder)).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_name_of_mount) {
                mount::unmount(&entry.path());
            }
        }
        fs::remove_content(&folder)?;
    }
    // This call removes only an empty folder.
    match fs::remove_dir(store) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && inode.is_none() => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Tells whether a run mounts the memory of a directory (`0`) or a view (`0.view.1`) under this name in a store.
fn is_name_of_mount(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    name.split_once(".view.").map_or(is_number(name), |(index, reader)| is_number(index) && is_number(reader))
}

/// Finds the preload library: beside this program, in the `lib` folder of the installation, or at the path in
/// CROSSDOCK_PRELOAD.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::parse_on;

    #[test]
    fn a_cleanup_removes_the_folders_that_views_made_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let list = at(VIEWS);
        std::fs::create_dir(at("found")).unwrap();
        for name in ["found", "made", "used"] {
            note_view(&list, &at(name)).unwrap();
        }
        std::fs::create_dir(at("made")).unwrap();
        std::fs::create_dir(at("used")).unwrap();
        std::fs::write(at("used/file"), "x").unwrap();
        assert_eq!(clean(folder.path()), Vec::<String>::new());
        assert!(at("found").exists() && at("used/file").exists() && !at("made").exists());
    }

    /// The environment variable that is set in the process that has mounts of its own.
    const WITH_MOUNTS: &str = "CROSSDOCK_TEST_WITH_MOUNTS";

    #[test]
    fn a_cleanup_unmounts_and_removes_nothing_but_what_the_run_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (run, outside) = (at("run"), at("outside"));
        std::fs::create_dir(&run).unwrap();
        std::fs::create_dir_all(outside.join("0")).unwrap();
        std::fs::write(outside.join("file"), "x").unwrap();
        let has_mounts = std::env::var_os(WITH_MOUNTS).is_some();
        if has_mounts {
            mount::memory_at(&outside.join("0"), 1 << 20).unwrap();
        } else if crossdock_os::child::user() == 0 {
            let mut command = std::process::Command::new("unshare");
            command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
            command
                .args(["--exact", "run::files::tests::a_cleanup_unmounts_and_removes_nothing_but_what_the_run_made"]);
            assert!(command.env(WITH_MOUNTS, "1").status().unwrap().success());
        }
        let is_mounted = |path: &Path| {
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
            mounts.contains(&format!(" {} ", path.display()))
        };
        let [kept, replaced, linked, moved, not_noted, begun] =
            [1, 2, 3, 4, 5, 6].map(|n| at(&format!("crossdock-files-{n}")));
        for store in [&kept, &replaced, &linked, &moved] {
            make_store(&run.join(STORES), store).unwrap();
            std::fs::create_dir_all(store.join("0/sub")).unwrap();
            std::fs::write(store.join("0/sub/file"), "x").unwrap();
        }
        for store in [&not_noted, &begun] {
            note_store(&run.join(STORES), store).unwrap();
            std::fs::create_dir(store).unwrap();
        }
        std::fs::write(not_noted.join("file"), "x").unwrap();
        std::fs::rename(&replaced, at("moved")).unwrap();
        std::fs::create_dir(&replaced).unwrap();
        std::fs::write(replaced.join("file"), "x").unwrap();
        std::fs::rename(&linked, at("moved too")).unwrap();
        std::fs::rename(&moved, at("moved as well")).unwrap();
        std::os::unix::fs::symlink(&outside, &linked).unwrap();
        if has_mounts {
            std::fs::create_dir(kept.join("other")).unwrap();
            for name in ["0", "other"] {
                mount::memory_at(&kept.join(name), 1 << 20).unwrap();
                std::fs::write(kept.join(name).join("file"), "x").unwrap();
            }
        }
        let missing = missing(&run);
        assert!(missing.len() == 1 && missing[0].contains(&moved.display().to_string()), "{missing:?}");
        let left = clean(&run);
        assert!(outside.join("file").exists() && replaced.join("file").exists(), "{left:?}");
        assert!(std::fs::symlink_metadata(&linked).unwrap().is_symlink());
        assert!(not_noted.join("file").exists() && !begun.exists(), "{left:?}");
        for store in [&replaced, &linked, &not_noted] {
            assert!(left.iter().any(|line| line.contains(&store.display().to_string())), "{left:?}");
        }
        if has_mounts {
            assert!(is_mounted(&outside.join("0")) && kept.join("other/file").exists());
            assert!(!is_mounted(&kept.join("0")) && !kept.join("0").exists());
            mount::unmount(&outside.join("0"));
            mount::unmount(&kept.join("other"));
            clean(&run);
        }
        assert!(!kept.exists());
    }

    #[test]
    fn each_rank_that_consumes_files_is_a_reader_of_its_own_and_the_ranks_of_an_mpi_task_are_one() {
        let text = "workflow: w\nfiles:\n  f: {path: /f, produce: p, consume: [a, b, c], keep: KEEP}\ntasks:\n  \
                    p: {command: x}\n  a: {command: x, ranks: 3}\n  b: {command: x, ranks: 4, mpi: auto}\n  \
                    c: {command: x, ranks: 2}\n";
        let readers = |keep: &str| {
            let text = text.replace("KEEP", keep);
            let (workflow, places) = parse_on(Path::new("w.yaml"), &text, &["n1".to_owned()], None).unwrap();
            let counts = places.counts(&workflow, 0);
            let reads = reads(&workflow.directories[0], &workflow, &counts);
            (numbered(&reads), reads.concat())
        };
        assert_eq!(readers("consumed"), (vec![0..3, 3..4, 4..6], vec![1, 1, 1, 4, 1, 1]));
        assert_eq!(readers("all").0, [0..1, 1..2, 2..3]);
    }
}

#[cfg(all(test, feature = "faults"))]
mod failing_calls {
    use super::*;
    use crossdock_os::faults;

    #[test]
    fn the_list_of_stores_keeps_its_lines_whatever_call_fails() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join(STORES);
        let seen = faults::each_call_fails(|attempt| {
            std::fs::write(&list, "/x/crossdock-files-1\n").unwrap();
            attempt.arm();
            let noted = note_store(&list, Path::new("/y/crossdock-files-1"));
            let hit = attempt.disarm();
            let text = std::fs::read_to_string(&list).unwrap();
            let added = if noted.is_ok() { "/y/crossdock-files-1\n" } else { "" };
            assert_eq!(text, format!("/x/crossdock-files-1\n{added}"), "{hit:?}");
        });
        assert!(["open", "read_file", "write_file"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}
