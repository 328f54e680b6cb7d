//! The state of a living run: the file `state.json` in its folder, which is replaced as a whole at each change.
//! `crossdock ps`, `logs`, `stop` and the web page read it.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crossdock_os::fs;
use crossdock_os::process::start_time;
use serde::{Deserialize, Serialize};

use super::processes;
use crate::file::{Task, TaskGrant};
use crate::graph::{Access, NodeKind, flows};

const FILE: &str = "state.json";

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The id of the run.
    pub id: String,
    /// The name of the workflow.
    pub workflow: String,
    /// The path of the workflow file.
    pub file: PathBuf,
    /// The name of the engine.
    pub engine: String,
    /// The engine's version.
    pub engine_version: String,
    /// When the run began, in milliseconds since 1970.
    pub since_ms: u64,
    /// The folder that contains the logs of the run's ranks.
    pub logs: PathBuf,
    /// The seconds between SIGTERM and SIGKILL when the run is stopped.
    pub grace_s: u32,
    /// Why the run is being stopped; `None` if it is not.
    pub stopping: Option<String>,
    /// The process that the user started.
    pub front: Process,
    /// The supervisor's process, which has the tasks as children.
    pub supervisor: Process,
    /// One entry for each rank.
    pub ranks: Vec<RankState>,
    /// For each task, what it may do with which object.
    pub links: Vec<Link>,
}

/// A process. The start time distinguishes the process from a later process with the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The start time as the kernel counts it; see `proc_pid_stat(5)`.
    pub start: u64,
}

/// One rank of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankState {
    /// The name of the rank as `ps` prints it: `simulate`, or `simulate.3`.
    pub name: String,
    /// The name of the task.
    pub task: String,
    /// The number of the rank in its task, from 0.
    pub rank: u32,
    /// The rank's host, in a run on several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path of the rank's log.
    pub log: PathBuf,
    /// What the rank does now.
    #[serde(flatten)]
    pub phase: Phase,
}

/// The state of a rank: waiting, running or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Phase {
    /// The rank waits for a task that must end first.
    Waits,
    /// The process of the rank lives.
    Runs {
        /// The id of the process that the supervisor started for the rank.
        pid: u32,
        /// When the rank began, in milliseconds since 1970.
        since_ms: u64,
    },
    /// The rank has ended, or will never begin.
    Ended {
        /// When the rank began, in milliseconds since 1970.
        since_ms: Option<u64>,
        /// When the rank ended, in milliseconds since 1970.
        ended_ms: u64,
        /// The exit code of the rank; 128 + N after signal N.
        code: u8,
        /// How the rank ended, in words.
        how: String,
    },
}

impl Phase {
    /// The word that `ps` prints for this state.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Runs { .. } => "runs",
            Self::Ended { code: 0, .. } => "ended",
            Self::Ended { .. } => "failed",
        }
    }

    /// Gives the time when the rank began, in milliseconds since 1970; `None` if the rank has not begun.
    pub fn since_ms(&self) -> Option<u64> {
        match self {
            Self::Waits => None,
            Self::Runs { since_ms, .. } => Some(*since_ms),
            Self::Ended { since_ms, .. } => *since_ms,
        }
    }
}

/// What a task may do with one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The name of the task.
    pub task: String,
    /// The object's kind: `port`, `series`, `region` or `item`.
    pub kind: String,
    /// The object's name, or the beginning of names followed by `*`.
    pub name: String,
    /// True if data goes from the task to the object.
    pub gives: bool,
    /// True if data goes from the object to the task.
    pub takes: bool,
}

impl Link {
    /// Gives the direction in which data goes between the task and the object.
    #[must_use]
    pub fn way(&self) -> Access {
        match (self.gives, self.takes) {
            (true, true) => Access::Both,
            (true, false) => Access::Out,
            (false, _) => Access::In,
        }
    }

    /// Gives the object's kind as the kind of its node in the graph of tasks and objects.
    pub fn kind(&self) -> NodeKind {
        let kinds = [NodeKind::Port, NodeKind::Series, NodeKind::Region, NodeKind::Item];
        kinds.into_iter().find(|k| k.word() == self.kind).unwrap_or(NodeKind::Files)
    }
}

/// Gives, for each grant of a task, what the task may do with the objects that the grant names.
pub fn links(task: &Task) -> Vec<Link> {
    let all: [(NodeKind, &Vec<TaskGrant>); 4] = [
        (NodeKind::Port, &task.ports),
        (NodeKind::Series, &task.series),
        (NodeKind::Region, &task.regions),
        (NodeKind::Item, &task.items),
    ];
    let link = |kind: NodeKind, grant: &TaskGrant| {
        let (gives, takes) = flows(grant.rights);
        Link { task: task.name.clone(), kind: kind.word().to_owned(), name: grant.name.clone(), gives, takes }
    };
    all.into_iter().flat_map(|(kind, grants)| grants.iter().map(move |grant| link(kind, grant))).collect()
}

/// The present time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

impl Process {
    /// Describes the process that has this id now.
    pub fn living(pid: u32) -> Self {
        Self { pid, start: start_time(pid as i32).unwrap_or(0) }
    }

    /// Tells whether the process still lives. A zombie does not count as living.
    pub fn lives(&self) -> bool {
        let is_zombie = |pid| processes::stat(pid).is_some_and(|stat| stat.state == 'Z');
        self.pid != 0 && start_time(self.pid as i32) == Some(self.start) && !is_zombie(self.pid as i32)
    }
}

impl State {
    /// Replaces the file `state.json` by a file with this state. If the disk is full, the run goes on, and the file
    /// keeps an earlier state.
    pub fn write(&self, folder: &Path) {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from);
        let _ = text.and_then(|text| fs::replace(&folder.join(FILE), &text));
    }

    /// Reads the state of the run in this folder. Gives `None` before the run has written its first state, and after
    /// the run has ended.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
    }
}
