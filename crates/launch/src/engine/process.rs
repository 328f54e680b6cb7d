//! No container: the task is an ordinary process of the host.

use super::{CommandLine, Engine, Isolation, Prepared, Request, RunContext, Unavailable};
use crate::file::{Files, Task};

pub struct Process;

impl Engine for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    fn version(&self) -> Result<String, Unavailable> {
        Ok(format!("Linux {}", crossdock_os::process::kernel_release()))
    }

    fn accepts(&self, task: &Task) -> Result<(), Unavailable> {
        // Without a container, a root folder has no effect. A task that has an image and no command for the host is
        // refused, because the image's command may be the name of another program on the host.
        if matches!(task.files, Files::Image(_)) && task.process.command.is_none() {
            return Err(Unavailable::new(
                "the engine process cannot run an image",
                "choose podman or docker, or give the task a `process: {command: …}` of the host",
            ));
        }
        Ok(())
    }

    fn prepare(&self, _run: &RunContext, _task: &Task) -> Result<Prepared, Unavailable> {
        Ok(Prepared::default())
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        let task = r.task;
        let mut environment = r.environment.clone();
        environment.extend(task.process.environment.iter().cloned());
        let socket = r.endpoint.join("endpoint.sock").to_string_lossy().into_owned();
        for (name, value) in &mut environment {
            if name == "CROSSDOCK_SOCKET" {
                value.clone_from(&socket);
            }
        }
        let workdir = task.process.workdir.clone().unwrap_or_else(|| workdir(task));
        let mut words = task.process.command.clone().unwrap_or_else(|| task.command.clone());
        if words[0].contains('/') {
            // A relative program path is relative to the task's folder, so it is made absolute.
            words[0] = workdir.join(&words[0]).to_string_lossy().into_owned();
        }
        CommandLine { words, environment, workdir: Some(workdir), limits_by_launcher: true, ..CommandLine::default() }
    }
}

/// Finds the folder on the host in which the task starts. If a mount contains the task's workdir, the result is the
/// host's path of this workdir. Otherwise the result is the workflow file's folder.
fn workdir(task: &Task) -> std::path::PathBuf {
    let Some(workdir) = &task.workdir else { return task.folder.clone() };
    let inside = |m: &crate::file::Mount| {
        let rest = workdir.strip_prefix(&m.task)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| m.host.join(rest.trim_start_matches('/')))
    };
    task.mounts.iter().find_map(inside).unwrap_or_else(|| task.folder.clone())
}
