//! Container engines: how a task becomes a command line.

mod apptainer;
mod bubblewrap;
mod charliecloud;
mod choose;
mod container;
mod docker;
mod podman;
mod process;
mod skeleton;
pub(crate) mod tool;

use std::path::{Path, PathBuf};

pub(crate) use choose::command;
pub use choose::{ChosenEngine, EngineTrial, all, by_name, choose, no_container, trial};
pub use skeleton::Skeleton;

use crate::file::{Processors, Task};

/// The path of the endpoint folder in every container.
pub const ENDPOINT_FOLDER: &str = "/run/crossdock";
/// The folders in which programs are searched for, unless the task gives a PATH.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why an engine cannot be used, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Why the engine cannot be used, as a sentence.
    pub why: String,
    /// What the user can do, as a sentence.
    pub hint: String,
}

impl Unavailable {
    /// Makes the value from two sentences: why the engine cannot be used, and what the user can do.
    pub fn new(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { why: why.into(), hint: hint.into() }
    }
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (hint: {})", self.why, self.hint)
    }
}

/// What a task does not share with other tasks when it runs under an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// True if the task has its own file system.
    pub files: bool,
    /// True if the task has its own IPC namespace and its own `/dev/shm`.
    pub ipc: bool,
    /// True if the task has its own process ids.
    pub pid: bool,
    /// True if the task has its own network.
    pub network: bool,
}

impl Isolation {
    /// The task shares nothing.
    pub const FULL: Self = Self { files: true, ipc: true, pid: true, network: true };
    /// The task has no namespace of its own, so it shares everything with the host.
    pub const NONE: Self = Self { files: false, ipc: false, pid: false, network: false };

    /// Names what tasks share with the host; `None` if they share nothing.
    pub fn shared(&self) -> Option<String> {
        let parts = [
            (self.files, "files"),
            (self.ipc, "IPC and /dev/shm"),
            (self.pid, "process ids"),
            (self.network, "network"),
        ];
        let shared: Vec<&str> = parts.iter().filter(|(own, _)| !own).map(|(_, name)| *name).collect();
        (!shared.is_empty()).then(|| shared.join(", "))
    }
}

/// What engines must know of a run.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The run's id, unique on this node. It is part of the names of containers and images.
    pub id: String,
    /// The run's own folder.
    pub folder: PathBuf,
    /// The id of the user who started the run.
    pub uid: u32,
    /// The group id of the user who started the run.
    pub gid: u32,
}

/// What is left of a run's containers and images after [`Engine::clean`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// No container and no image is left.
    NothingLeft,
    /// The engine answered with an error when it was asked for containers.
    Refused,
    /// The engine gave no answer, or did not remove everything.
    MayBeLeft,
}

/// What an engine prepared for a task and all of its ranks.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The small folder over which the folders of the task's root are mounted; `None` if an image provides the root.
    pub skeleton: Option<Skeleton>,
    /// The name of the image that the engine runs, if it runs one.
    pub image: Option<String>,
}

/// A request to start one rank of a task.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What the engine must know of the task's run.
    pub run: &'a RunContext,
    /// The task of the rank.
    pub task: &'a Task,
    /// The number of the rank in its task.
    pub rank: u32,
    /// The folder on the host that has the task's `endpoint.sock`.
    pub endpoint: &'a Path,
    /// The processors that were chosen for the rank; `None` stands for all processors.
    pub processors: Option<&'a [u32]>,
    /// What [`Engine::prepare`] returned for the task.
    pub prepared: &'a Prepared,
    /// The task's whole environment, including the variables `CROSSDOCK_…`.
    pub environment: Vec<(String, String)>,
}

impl Request<'_> {
    /// Gives the container's name, for engines that give containers names.
    pub fn container(&self) -> String {
        // Names of tasks may contain `+`, which engines do not accept in a container's name, so `+` is replaced.
        let task: String = self.task.name.chars().map(|c| if c == '+' { '_' } else { c }).collect();
        let task: String = task.chars().take(64).collect();
        format!("crossdock-{}-{task}-{}", self.run.id, self.rank)
    }
}

/// The command to execute for one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Variables for the program that is started. For a task in a container, that program is the engine's.
    pub environment: Vec<(String, String)>,
    /// True if the started program gets no variable of the launcher's own environment.
    pub clean_environment: bool,
    /// The folder in which the program starts.
    pub workdir: Option<PathBuf>,
    /// The container's name, if the engine gives containers names.
    pub container: Option<String>,
    /// True if the launcher sets processors and memory limit on the started process, whose children inherit them.
    pub limits_by_launcher: bool,
    /// True if the started program ends all of its descendants when the program is asked to end and when it is killed.
    pub ends_its_own: bool,
}

/// A container engine.
pub trait Engine: Send + Sync {
    /// The engine's name in the workflow file and on the command line.
    fn name(&self) -> &'static str;

    /// Tells what tasks do not share with each other under this engine.
    fn isolation(&self) -> Isolation;

    /// Tells whether tasks run in containers, with a file system of their own.
    fn in_container(&self) -> bool {
        self.isolation().files
    }

    /// Gives the number of levels from the started program down to the task in the process tree. SIGTERM is sent only
    /// to the processes at this level, because the started program would die of the signal and take the task with it.
    /// `None` means that SIGTERM is sent to the process group of the started program.
    fn task_depth(&self) -> Option<u32> {
        None
    }

    /// Gives the engine's version if its program exists and the engine's service, if it has one, answers. Makes nothing.
    /// Whether the engine works is found out by [`trial`].
    fn version(&self) -> Result<String, Unavailable>;

    /// Tells whether the engine can run this task at all.
    fn accepts(&self, task: &Task) -> Result<(), Unavailable>;

    /// Prepares what all ranks of the task share.
    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable>;

    /// Gives the command line that starts one rank.
    fn command(&self, request: &Request<'_>) -> CommandLine;

    /// Gives the process id, on the host, of a container's first process. If that process does not catch SIGTERM, the
    /// launcher kills the container instead of asking it to end.
    fn first_process(&self, _container: &str) -> Option<u32> {
        None
    }

    /// Kills the container with this name. An engine that gives containers no names does nothing.
    fn kill(&self, _container: &str) {}

    /// Removes all containers and images of a run, if there are any.
    fn clean(&self, _run: &str) -> Cleanup {
        Cleanup::NothingLeft
    }

    /// Gives a hint for a trial whose error output ended with `words`.
    fn hint(&self, _words: &str) -> String {
        format!("run `crossdock doctor`, and see that `{}` works by itself", self.name())
    }
}

/// Writes a list of processors as engines read it: `0,2`.
pub(crate) fn processor_list(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Tells whether the workflow file restricts the task's processors.
pub fn wants_processors(task: &Task) -> bool {
    task.processors != Processors::Any
}
