//! A workflow as its file describes it. The values keep their positions in the file, so that later messages can show
//! the positions.

use crossdock_layout::queue::Pattern;
use std::path::PathBuf;

pub use super::directories::{Directory, KeepKey};
use super::grants::TaskGrant;
pub use super::placement::Placing;
use super::problem::Position;

/// A checked workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// The path of the workflow file. Relative paths in the workflow file count from its folder.
    pub file: PathBuf,
    /// The name of the workflow.
    pub name: String,
    /// The quota of the workflow in bytes; `None` takes the node's default.
    pub memory: Option<u64>,
    /// The engine that the workflow file asks for; `None` if the file names no engine.
    pub engine: Option<&'static str>,
    /// The seconds between SIGTERM and SIGKILL when tasks are stopped.
    pub grace_s: u32,
    /// Tasks in the order of the file.
    pub tasks: Vec<Task>,
    /// Every port that a task names or that has settings in the file.
    pub ports: Vec<Port>,
    /// Every region that the file gives settings for.
    pub regions: Vec<Region>,
    /// The managed directories of the workflow.
    pub directories: Vec<Directory>,
}

/// A task of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The name of the task.
    pub name: String,
    /// The position in the file at which this entry begins.
    pub position: Position,
    /// The workflow file's folder.
    pub folder: PathBuf,
    /// Where the task's file system comes from.
    pub files: Files,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Folders of the host that the task sees.
    pub mounts: Vec<Mount>,
    /// The folder in the task's file system in which the task starts.
    pub workdir: Option<String>,
    /// Environment variables, in the order of the file.
    pub environment: Vec<(String, String)>,
    /// The number of ranks of the task.
    pub ranks: u32,
    /// If given, the ranks of the task are those of one MPI job. The value is `auto`, the name of an MPI, or the path
    /// of its launcher.
    pub mpi: Option<String>,
    /// The CPUs of each rank.
    pub processors: Processors,
    /// The limit for the private memory of one rank, in bytes.
    pub memory: Option<u64>,
    /// The user as which the task runs in its container.
    pub user: User,
    /// True if the task sees the host's network.
    pub host_network: bool,
    /// The names of tasks that must end with success before this task starts.
    pub after: Vec<String>,
    /// The task's rights on regions.
    pub regions: Vec<TaskGrant>,
    /// The task's rights on ports: of which ports it may be a producer or a consumer.
    pub ports: Vec<TaskGrant>,
    /// The task's rights on series.
    pub series: Vec<TaskGrant>,
    /// The task's rights on items.
    pub items: Vec<TaskGrant>,
    /// What the file says about the hosts of the task's ranks, for a run on several hosts.
    pub placing: Placing,
    /// How the task waits for files that it consumes.
    pub door: DoorKey,
    /// Settings that count only when the task runs without a container.
    pub process: Process,
}

/// How a task waits for files of managed directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorKey {
    /// The launcher chooses how the task waits. The choice depends on the kind of the task's program.
    #[default]
    Auto,
    /// The preloaded library waits inside the task's calls of `open`.
    Preload,
    /// Seccomp notification makes opens wait: the kernel stops the task's system calls.
    Notification,
    /// A view, which is a file system of its own, makes opens wait.
    View,
    /// The task does not wait: it sees only the files that are already published.
    None,
}

impl DoorKey {
    /// Gives the door for one of the words of `keys::DOORS`.
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
    /// The host's system folders, read-only.
    Host,
    /// A folder of the host, with its absolute path.
    Root(PathBuf),
    /// An image of a container engine.
    Image(String),
}

/// A folder of the host that a task sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The absolute path on the host.
    pub host: PathBuf,
    /// The absolute path in the task's file system.
    pub task: String,
    /// True if the task may write to the folder.
    pub write: bool,
    /// The name of a link in the task's endpoint folder that leads to `host`. Only an MPI task with ranks on several
    /// hosts has such links, for its managed directories: the folder of a directory has another path on each host, but
    /// the link to the folder has the same name on all hosts.
    pub link: Option<String>,
}

/// The processors that a task gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processors {
    /// All processors of the machine.
    Any,
    /// This many processors, chosen by the launcher.
    Count(u32),
    /// The processors with these numbers.
    List(Vec<u32>),
}

/// The user as which a task runs in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The same user as on the host: the one who started the run.
    Me,
    /// This user id and this group id.
    Ids(u32, u32),
}

/// What is different when a task runs without a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The command to run instead of the task's command.
    pub command: Option<Vec<String>>,
    /// The folder in which the command starts; it replaces the task's workdir.
    pub workdir: Option<PathBuf>,
    /// Variables that are added to the environment.
    pub environment: Vec<(String, String)>,
}

/// A port of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name of the port.
    pub name: String,
    /// How the port distributes its messages: one of `keys::PATTERNS`.
    pub pattern: Pattern,
    /// The most messages that may be in flight in the port.
    pub capacity: u32,
    /// The position of the port's entry under `ports:`, if it has one.
    pub declared: Option<Position>,
}

/// The settings of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The name of the region.
    pub name: String,
    /// The region's capacity in bytes.
    pub size: Option<u64>,
    /// The position of the region in the file, for messages.
    pub position: Position,
}

impl Task {
    /// Makes a task with this command and default settings.
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

    /// Gives the number of the task's processes that `crossdock run` starts and watches. For an MPI task this is 1: the
    /// launcher, which starts the ranks.
    pub fn processes(&self) -> u32 {
        if self.mpi.is_some() { 1 } else { self.ranks }
    }

    /// Tells whether the task's ranks are one MPI job with ranks on several hosts.
    pub fn is_over_hosts(&self) -> bool {
        self.mpi.is_some() && self.placing.spread.is_some()
    }

    /// Gives the name of one of the task's processes: `simulate`, or `simulate.3` if the task has several processes.
    pub fn rank_name(&self, rank: u32) -> String {
        if self.processes() == 1 { self.name.clone() } else { format!("{}.{rank}", self.name) }
    }
}
