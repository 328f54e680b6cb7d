//! A task with the key `mpi`: its ranks are one job of `crossdock mpirun` on this host. They share one container, which has
//! the task's mounts, environment and endpoint; so each rank may open what the task's grants name.

use crossdock_os::spawn;

use super::processes;
use crate::engine::{CommandLine, ENDPOINT_FOLDER, Engine, Request, Unavailable};
use crate::file::Files;
use crate::mpi;

/// How to start a task's ranks: one process, which ends when the launcher of the task's MPI has ended.
pub fn command(r: &Request<'_>, engine: &dyn Engine) -> Result<CommandLine, Unavailable> {
    let task = r.task;
    let refuse = |why: String, hint: &str| Unavailable::new(why, hint.to_owned());
    if !mpi::ENGINES.contains(&engine.name()) {
        return Err(refuse(
            format!("the engine {} cannot run the ranks of an MPI task", engine.name()),
            "choose another engine with --engine, as bubblewrap",
        ));
    }
    let own = std::env::current_exe()
        .map_err(|e| refuse(format!("cannot find this program: {e}"), "start crossdock by its path"))?;
    let mut words = vec![own.to_string_lossy().into_owned(), "mpirun".into()];
    let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
    // Not the hosts of a batch system's allocation: the endpoint is on this one.
    add(&["--hosts", &format!("{}:{}", spawn::host_name(), task.ranks), "--ranks", &task.ranks.to_string()]);
    add(&["--mpi", task.mpi.as_deref().unwrap_or("auto"), "--engine", engine.name(), "--no-home"]);
    let (command, environment, workdir) = if engine.in_container() {
        match &task.files {
            Files::Host => {}
            Files::Root(folder) => add(&["--root", &folder.to_string_lossy()]),
            Files::Image(image) => add(&["--image", image]),
        }
        let mut mount = |host: &str, inside: &str, write: bool| {
            add(&["--mount", &format!("{host}:{inside}{}", if write { "" } else { ":ro" })]);
        };
        mount(&r.endpoint.to_string_lossy(), ENDPOINT_FOLDER, false);
        for m in &task.mounts {
            mount(&m.host.to_string_lossy(), &m.task, m.write);
        }
        (task.command.clone(), r.environment.clone(), task.workdir.clone().unwrap_or_else(|| "/".into()))
    } else {
        let line = engine.command(r);
        let workdir = line.workdir.unwrap_or_else(|| task.folder.clone());
        (line.words, line.environment, workdir.to_string_lossy().into_owned())
    };
    add(&["--start-in", &workdir]);
    for (name, value) in environment.iter().filter(|(name, _)| name != "CROSSDOCK_RANK") {
        add(&["--env", &format!("{name}={value}")]);
    }
    add(&["--"]);
    words.extend(command);
    // The marks are for the job's helpers, too: what a killed run leaves is found by them.
    let environment = environment.into_iter().filter(|(name, _)| name == processes::MARK).collect();
    Ok(CommandLine { words, environment, limits_by_launcher: true, ends_its_own: true, ..CommandLine::default() })
}
