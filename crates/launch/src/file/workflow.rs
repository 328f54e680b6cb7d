//! A workflow as the file describes it, with the positions that later messages need.

use crossdock_layout::queue::Pattern;
use std::path::PathBuf;

pub use super::directories::{Directory, KeepKey};
use super::grants::TaskGrant;
pub use super::placement::Placing;
use super::problem::Position;

/// A checked workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// The file; relative paths in it count from its folder.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// Quota in bytes; `None` = the node's.
    pub memory: Option<u64>,
    /// The engine that the file asks for.
    pub engine: Option<&'static str>,
    /// Seconds between SIGTERM and SIGKILL.
    pub grace_s: u32,
    /// Tasks in the order of the file.
    pub tasks: Vec<Task>,
    /// Every port that a task or the file names.
    pub ports: Vec<Port>,
    /// Every region that the file gives settings for.
    pub regions: Vec<Region>,
    /// Managed directories.
    pub directories: Vec<Directory>,
}

/// A task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// The position in the file where it begins.
    pub position: Position,
    /// The workflow file's folder.
    pub folder: PathBuf,
    /// Where its file system comes from.
    pub files: Files,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Extra folders.
    pub mounts: Vec<Mount>,
    /// Start folder in the task's file system.
    pub workdir: Option<String>,
    /// Environment, in the order of the file.
    pub environment: Vec<(String, String)>,
    /// Copies.
    pub ranks: u32,
    /// The copies of the task are ranks of this MPI: `auto`, a name, or the path of its launcher.
    pub mpi: Option<String>,
    /// Processors.
    pub processors: Processors,
    /// Private memory of one rank, in bytes.
    pub memory: Option<u64>,
    /// The user that it runs as.
    pub user: User,
    /// Sees the host's network.
    pub host_network: bool,
    /// The task starts after these have ended with success.
    pub after: Vec<String>,
    /// Rights on regions.
    pub regions: Vec<TaskGrant>,
    /// Ends of ports.
    pub ports: Vec<TaskGrant>,
    /// Rights on series.
    pub series: Vec<TaskGrant>,
    /// Rights on items.
    pub items: Vec<TaskGrant>,
    /// The host on which its ranks run, if the run has several hosts.
    pub placing: Placing,
    /// How it waits for files that it consumes.
    pub door: DoorKey,
    /// What is different without a container.
    pub process: Process,
}

/// How a task waits for files of managed directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorKey {
    /// By the kind of the task's program.
    #[default]
    Auto,
    /// By the preload library.
    Preload,
    /// By stopped calls.
    Notification,
    /// By a file system of its own.
    View,
    /// The task does not wait: it sees what is published.
    None,
}

impl DoorKey {
    /// One of the words of `keys::DOORS`.
    pub(super) fn of(word: &str) -> Self {
        match word {
            "preload" => Self::Preload,
            "notification" => Self::Notification,
            "view" => Self::View,
            "none" => Self::None,
            _ => Self::Auto,
        }
    }
}

/// Where a task's file system comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// The host's, read-only.
    Host,
    /// A folder (absolute).
    Root(PathBuf),
    /// An image of a container engine.
    Image(String),
}

/// A folder of the host that a task sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// On the host, absolute.
    pub host: PathBuf,
    /// In the task, absolute.
    pub task: String,
    /// May be written.
    pub write: bool,
    /// The folder of a managed directory's producers: a task that root starts must not write to published files there.
    pub managed: bool,
}

/// Which processors a task gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processors {
    /// All.
    Any,
    /// This many, chosen by the launcher.
    Count(u32),
    /// These.
    List(Vec<u32>),
}

/// Who a task runs as in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The user who started the run.
    Me,
    /// These numbers.
    Ids(u32, u32),
}

/// What is different with the process engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Replaces the command.
    pub command: Option<Vec<String>>,
    /// Replaces the workdir.
    pub workdir: Option<PathBuf>,
    /// Added to the environment.
    pub environment: Vec<(String, String)>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// One of `keys::PATTERNS`.
    pub pattern: Pattern,
    /// Messages in flight at most.
    pub capacity: u32,
    /// The position of its entry under `ports:`, if it has one.
    pub declared: Option<Position>,
}

/// A region's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Capacity in bytes.
    pub size: Option<u64>,
    /// For messages.
    pub position: Position,
}

impl Task {
    /// A task with this command and nothing else.
    pub fn example(command: Vec<String>) -> Self {
        Self {
            name: "example".into(),
            position: Position::default(),
            folder: PathBuf::from("/"),
            files: Files::Host,
            command,
            mounts: Vec::new(),
            workdir: None,
            environment: Vec::new(),
            ranks: 1,
            mpi: None,
            processors: Processors::Any,
            memory: None,
            user: User::Me,
            host_network: false,
            after: Vec::new(),
            regions: Vec::new(),
            ports: Vec::new(),
            series: Vec::new(),
            items: Vec::new(),
            placing: Placing::default(),
            door: DoorKey::Auto,
            process: Process::default(),
        }
    }

    /// The number of processes that `crossdock run` starts and watches. Ranks of an MPI are started by its launcher.
    pub fn processes(&self) -> u32 {
        if self.mpi.is_some() { 1 } else { self.ranks }
    }

    /// Are its ranks one MPI job on all hosts of the run?
    pub fn is_over_hosts(&self) -> bool {
        self.mpi.is_some() && self.placing.spread.is_some()
    }

    /// Names of the task's processes: `simulate`, or `simulate.3` when it has several.
    pub fn rank_name(&self, rank: u32) -> String {
        if self.processes() == 1 { self.name.clone() } else { format!("{}.{rank}", self.name) }
    }
}
