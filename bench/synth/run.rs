//! Runs the workflow by `crossdock run` and collects the reports of the tasks. `crossdock run` enforces the time limit
//! and cleans up.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::graph::Graph;
use crate::shared;

/// One trial of one task. All times are of the monotonic clock, which all tasks of a node share.
#[derive(Clone, Debug, Deserialize)]
pub struct Trial {
    pub begin: u64,
    pub end: u64,
    pub iterations: u64,
    /// The checksum as text, because a number in JSON cannot hold 64 bits exactly.
    pub checksum: String,
    /// With `--latency`: the time just before each send and just after each receive of a buffer, in their order.
    #[serde(default)]
    pub at: Vec<u64>,
    /// With `--latency`: the times at which each buffer had been read.
    #[serde(default)]
    pub read: Vec<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Said {
    pub task: usize,
    /// The counters of crossdock's ports: the number of messages that this task received, including the warm-up.
    #[serde(default)]
    pub messages: u64,
    #[serde(default)]
    pub sleeps: u64,
    #[serde(default)]
    pub wakes: u64,
    pub trials: Vec<Trial>,
}

/// The folder of one run. When it is dropped, the folder and the shared memory of the run are removed.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes a folder in the build folder. Before that, removes the folders of runs that were killed.
    pub fn make(build: &Path) -> Result<Self, String> {
        if let Ok(entries) = std::fs::read_dir(build) {
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let dead = |pid: &str| !Path::new("/proc").join(pid).exists();
                if name.strip_prefix("run-").is_some_and(dead) {
                    shared::remove(&name);
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
        }
        let folder = build.join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        std::path::absolute(&folder).map(Self).map_err(|e| format!("{}: {e}", folder.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        shared::remove(&id(&self.0));
        let _ = shared::remove_folder(&self.0);
    }
}

/// Writes all files of the run into the folder.
pub fn fill(folder: &Path, program: &Path, graph: &str, workflow: &str) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).map_err(|e| format!("{}: {e}", folder.join(name).display()))
    };
    write("graph.txt", graph)?;
    write("workflow.yaml", workflow)?;
    for name in ["program", crate::program::LIBRARY] {
        std::fs::copy(program.join(name), folder.join(name)).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// Runs the workflow. Gives the reports of the tasks in the order of the tasks, and the summary of `crossdock run`.
pub fn run(
    folder: &Path,
    engine: &str,
    deadline: u64,
    graph: &Graph,
) -> Result<(Vec<Said>, serde_json::Value), String> {
    let mut command = Command::new(crossdock());
    command.arg("run").arg(folder.join("workflow.yaml")).args(["--engine", engine, "--show", "quiet", "--json"]);
    command.args(["--daemon", "own", "--deadline", &deadline.to_string()]).arg("--logs").arg(folder.join("logs"));
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.map_err(|e| format!("cannot start `crossdock run`: {e}"))?;
    if output.status.code() == Some(i32::from(crossdock_launch::run::code::DEADLINE)) {
        return Err(format!("the workflow was not done after {deadline} s, and was stopped; --deadline gives it more"));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the workflow failed ({}):\n{}\n{}", output.status, said.trim_end(), ends_of_logs(folder)));
    }
    let summary = serde_json::from_slice(&output.stdout).map_err(|e| format!("the summary of the run: {e}"))?;
    let mut said = Vec::new();
    for text in logs(folder) {
        for line in text.lines().filter_map(|line| line.strip_prefix("SYNTH ")) {
            let one: Said = serde_json::from_str(line).map_err(|e| format!("a task said `{line}`: {e}"))?;
            said.push(one);
        }
    }
    said.sort_by_key(|s| s.task);
    let tasks: Vec<usize> = said.iter().map(|s| s.task).collect();
    if tasks != (0..graph.tasks.len()).collect::<Vec<_>>() {
        return Err(format!("of {} tasks these told their figures: {tasks:?}", graph.tasks.len()));
    }
    Ok((said, summary))
}

/// Gives the path of the crossdock command: the one that was built beside this program, or else the one in the PATH.
fn crossdock() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|me| me.with_file_name("crossdock"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| "crossdock".into())
}

/// Returns a text that is a part of all names in this run. No other run has it.
pub fn id(folder: &Path) -> String {
    folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

fn logs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("logs")).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect()
}

fn ends_of_logs(folder: &Path) -> String {
    let last = |text: String| text.lines().rev().take(8).map(str::to_owned).collect::<Vec<_>>();
    logs(folder).into_iter().flat_map(|text| last(text).into_iter().rev()).collect::<Vec<_>>().join("\n")
}
