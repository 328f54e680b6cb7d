//! Sets the variables that a task finds in its environment.

use super::daemon::HostedWorkflow;
use super::processes;
use crate::engine::{self, Engine};
use crate::file::Task;

/// Gives all variables of the task's environment.
pub(super) fn of(
    workflow: &str,
    task: &Task,
    rank: u32,
    hosted: Option<&HostedWorkflow>,
    engine: &dyn Engine,
    run: &str,
) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    if engine.in_container() {
        all.extend([("PATH", engine::PATH), ("HOME", "/tmp")].map(|(n, v)| (n.to_owned(), v.to_owned())));
        if let Ok(lang) = std::env::var("LANG") {
            all.push(("LANG".into(), lang));
        }
    }
    for (name, value) in &task.environment {
        all.retain(|(n, _)| n != name);
        all.push((name.clone(), value.clone()));
    }
    if hosted.is_some() {
        all.push(("CROSSDOCK_SOCKET".into(), format!("{}/endpoint.sock", engine::ENDPOINT_FOLDER)));
    }
    all.push((processes::MARK.into(), run.to_owned()));
    all.push(("CROSSDOCK_WORKFLOW".into(), workflow.to_owned()));
    all.push(("CROSSDOCK_TASK".into(), task.name.clone()));
    all.push(("CROSSDOCK_RANK".into(), rank.to_string()));
    all.push(("CROSSDOCK_RANKS".into(), task.ranks.to_string()));
    all
}
