//! Starts a workflow, watches it, and cleans up after it. See README.md beside this file.

mod caller;
mod cpu_placement;
mod daemon;
pub mod directory_reports;
mod door;
mod environment;
pub mod files;
pub(crate) mod folder;
mod front;
mod host_exchange;
pub mod hosts;
mod log;
mod messages;
mod part;
mod processes;
mod rank;
mod ranked;
mod remote;
mod remote_part;
mod screen;
mod site;
pub mod state;
mod stopping;
mod summary;
mod supervisor;
mod transport;
pub mod usage;
mod view;
mod views;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crossdock_client::runs::{LivingRun, base as runs_base, find, living};
pub use folder::clean_dead;
pub use front::front;
pub use remote::{part, part_supervisor};
pub use stopping::{Stopped, stop};
pub use summary::{PortLine, RegionLine, Summary, TaskLine};
pub use supervisor::supervisor;

/// Gives the folder for the logs of a workflow's runs if the user names no folder. It lies in the current folder.
#[must_use]
pub fn default_logs(workflow: &str) -> PathBuf {
    PathBuf::from("crossdock-logs").join(workflow.replace('/', "-"))
}

/// Exit codes for the launcher's own failures. If a task failed, the launcher ends with the task's exit code instead.
pub mod code {
    /// All tasks have ended without an error.
    pub const OK: u8 = 0;
    /// The command line is wrong. The library clap, which reads the command line, ends the program with the same code.
    pub const USAGE: u8 = 2;
    /// The workflow file has problems.
    pub const FILE: u8 = 65;
    /// No engine works, no daemon starts, or a host cannot be reached or was lost.
    pub const UNAVAILABLE: u8 = 69;
    /// The operating system refused a folder, a process or memory.
    pub const SYSTEM: u8 = 71;
    /// The run was stopped by its `--deadline`.
    pub const DEADLINE: u8 = 124;
    /// A task's program was not found or may not be executed.
    pub const NO_PROGRAM: u8 = 127;
}

/// How much the user sees while the workflow runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// As `Live` if standard error is a terminal, otherwise as `Lines`.
    #[default]
    Auto,
    /// One line for each task, which is updated in place.
    Live,
    /// The lines that the tasks write, each after the task's name.
    Lines,
    /// Only errors are shown.
    Quiet,
}

/// The workflow of a run, and how to run it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// The path of the workflow file.
    pub file: PathBuf,
    /// The engine to use instead of the one in the workflow file.
    pub engine: Option<String>,
    /// The folder for logs, instead of `crossdock-logs/WORKFLOW` in the current folder.
    pub logs: Option<PathBuf>,
    /// The most bytes of one rank's log.
    pub log_limit: u64,
    /// How much to show while the workflow runs.
    pub show: Show,
    /// True if the summary is to be printed as JSON on standard output.
    pub json: bool,
    /// The socket of a daemon, or `own` for a new daemon. With `None`, CROSSDOCK_SOCKET names the daemon, and without
    /// that variable the run starts its own.
    pub daemon: Option<String>,
    /// The hosts of a run on several hosts; `None` for this host only.
    pub hosts: Option<hosts::Hosts>,
    /// The number of seconds after which the run is stopped.
    pub deadline_s: Option<u64>,
}

/// The first message of the front to the supervisor: a line of JSON on the supervisor's standard input. The workflow's
/// text follows. After the text come lines of the form `signal N`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    /// The process id of the front.
    front: u32,
    options: RunOptions,
    /// The number of bytes of the workflow file's text, which follows the line. The front has read and checked exactly
    /// this text.
    text_bytes: usize,
}
