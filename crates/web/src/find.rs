//! Finds the daemons for a sample: the daemon to which the library connects by default, and the daemons of the user's
//! runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Session};
use crossdock_launch::run;

/// A daemon that answered.
pub struct FoundDaemon {
    /// The daemon's name: its socket, `the node's daemon`, or the run that it belongs to.
    pub place: String,
    /// The session with this daemon.
    pub session: Session,
    /// The run's folder, if the daemon belongs to a run.
    pub run: Option<PathBuf>,
}

fn options(socket: Option<PathBuf>) -> ConnectOptions {
    ConnectOptions {
        socket,
        timeout: Duration::from_secs(3),
        private_daemon: false,
        visitor: true,
        ..ConnectOptions::default()
    }
}

/// Finds every daemon that answers. If a socket is given, asks only the daemon at this socket. The error says why no
/// daemon was found.
pub fn daemons(socket: Option<&Path>) -> Result<Vec<FoundDaemon>, String> {
    if let Some(socket) = socket {
        let session = Session::connect(&options(Some(socket.to_owned()))).map_err(|e| e.to_string())?;
        return Ok(vec![FoundDaemon { place: socket.display().to_string(), session, run: None }]);
    }
    let mut found = Vec::new();
    if let Ok(session) = Session::connect(&options(None)) {
        found.push(FoundDaemon { place: "the node's daemon".into(), session, run: None });
    }
    for run::LivingRun { id, folder, .. } in run::living() {
        // A run that uses an existing daemon has no daemon of its own, and the daemon of a run that is about to end
        // does not answer any more. Both are skipped.
        if let Ok(session) = Session::connect(&options(Some(folder.join("daemon.sock")))) {
            found.push(FoundDaemon { place: format!("run {id}"), session, run: Some(folder) });
        }
    }
    Ok(found)
}

/// Maps each task and rank of a run to the progress that it reports: steps done, and the number of all steps.
pub fn progress(run: &run::LivingRun) -> BTreeMap<(String, u32), (u64, u64)> {
    let Some((socket, workflow)) = run.attach.clone() else { return BTreeMap::new() };
    let wanted = ConnectOptions { workflow: Some(workflow.clone()), ..options(Some(socket)) };
    let members = Session::connect(&wanted).and_then(|s| s.list()).map(|l| l.members).unwrap_or_default();
    let ours = members.into_iter().filter(|m| m.workflow == workflow);
    ours.filter_map(|m| Some(((m.task, m.rank), m.progress?))).collect()
}

impl FoundDaemon {
    /// Opens a session inside a workflow. The session may see everything in the workflow.
    pub fn inside(&self, workflow: &str, socket: Option<&Path>) -> Result<Session, String> {
        let mut wanted = options(socket.map(Path::to_owned));
        if let Some(folder) = &self.run {
            wanted.socket = Some(launcher_endpoint(folder).ok_or("the run has just ended")?);
        } else {
            wanted.workflow = Some(workflow.to_owned());
        }
        Session::connect(&wanted).map_err(|e| e.to_string())
    }
}

/// Finds the launcher's own endpoint in the folder of a run. It is the last of the run's endpoints.
fn launcher_endpoint(folder: &Path) -> Option<PathBuf> {
    let numbers =
        std::fs::read_dir(folder.join("e")).ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    Some(folder.join("e").join(numbers.max()?.to_string()).join("endpoint.sock"))
}
