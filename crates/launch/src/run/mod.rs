//! Starting a workflow, watching it, cleaning up. See README.md beside this file.

mod across;
mod caller;
mod daemon;
mod door;
mod environment;
mod far;
pub mod files;
mod folder;
mod front;
pub mod hosts;
mod log;
mod part;
mod place;
mod processes;
mod rank;
mod ranked;
mod remote;
mod site;
pub mod state;
mod stopping;
mod summary;
mod supervisor;
pub mod usage;
mod view;
mod views;
mod words;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crossdock_client::runs::{LivingRun, base as runs_base, find, living};
pub use folder::clean_dead;
pub use front::front;
pub use remote::{part, part_supervisor};
pub use stopping::{Stopped, stop};
pub use summary::{PortLine, RegionLine, Summary, TaskLine};
pub use supervisor::supervisor;

/// Exit codes that are the launcher's own; a failed task's code is passed on instead.
pub mod code {
    /// All tasks ended well.
    pub const OK: u8 = 0;
    /// The command line is wrong (clap's own code).
    pub const USAGE: u8 = 2;
    /// The workflow file has problems.
    pub const FILE: u8 = 65;
    /// No engine, no daemon, or a host that cannot be reached or was lost.
    pub const UNAVAILABLE: u8 = 69;
    /// The system refused something: a folder, a process, memory.
    pub const SYSTEM: u8 = 71;
    /// The run was stopped by its `--deadline`.
    pub const DEADLINE: u8 = 124;
    /// A task's program was not found or may not be executed.
    pub const NO_PROGRAM: u8 = 127;
}

/// How much is shown while the workflow runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// `Live` on a terminal, else `Lines`.
    #[default]
    Auto,
    /// One line a task, renewed in place.
    Live,
    /// What the tasks write, line by line, with the task's name before it.
    Lines,
    /// Only what goes wrong.
    Quiet,
}

/// What to run, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// The workflow file.
    pub file: PathBuf,
    /// The engine, instead of the file's.
    pub engine: Option<String>,
    /// Where logs go, instead of `crossdock-logs/WORKFLOW` in the current folder.
    pub logs: Option<PathBuf>,
    /// Most bytes of one rank's log.
    pub log_limit: u64,
    /// What to show.
    pub show: Show,
    /// The summary as JSON on standard output.
    pub json: bool,
    /// A daemon's socket, or `own`; else CROSSDOCK_SOCKET, else the run's own.
    pub daemon: Option<String>,
    /// The hosts of a run on several.
    pub hosts: Option<hosts::Hosts>,
    /// Stop the run after so many seconds.
    pub deadline_s: Option<u64>,
}

/// What the front tells the supervisor first, as one line of JSON on its standard input. Later lines are `signal N`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    /// The front's process.
    front: u32,
    options: RunOptions,
    /// Bytes of the workflow file's text, which follows the line: what the front read and checked.
    text_bytes: usize,
}
