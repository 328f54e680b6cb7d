//! A task with the key `mpi`: its ranks are one job of `crossdock mpirun`, on this host or, with `spread`, on all hosts
//! of the run. The ranks of a host share one container. This container has the task's mounts and environment, and the
//! task's endpoint on that host, so each rank may open what the task's grants name.

use std::path::PathBuf;

use crossdock_os::spawn;
use serde::{Deserialize, Serialize};

use super::hosts::Hosts;
use super::processes;
use crate::engine::{CommandLine, ENDPOINT_FOLDER, Engine, Request, Unavailable};
use crate::file::{Files, share};
use crate::mpi;

/// The hosts of an MPI job that has ranks on several hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHosts {
    /// The hosts' names and numbers of ranks, in the form of `crossdock mpirun --hosts`.
    pub hosts: String,
    /// The folder of the task's endpoint on each host.
    pub endpoints: Vec<PathBuf>,
    /// The ssh command that reaches the hosts.
    pub ssh: String,
    /// The path of `crossdock` on the hosts.
    pub starter: String,
}

impl JobHosts {
    /// Divides the ranks among the hosts in blocks: the first host gets the first ranks, and so on. `found` has the name
    /// of each host and, for each host, the path of the folder of the task's endpoint.
    pub fn new(found: &[(&str, PathBuf)], ranks: u32, hosts: &Hosts) -> Self {
        let count = found.len().max(1) as u32;
        let share = |at: usize| share(ranks, count, at);
        let names: Vec<String> =
            found.iter().enumerate().map(|(at, (name, _))| format!("{name}:{}", share(at))).collect();
        Self {
            hosts: names.join(","),
            endpoints: found.iter().map(|(_, folder)| folder.clone()).collect(),
            ssh: hosts.ssh.join(" "),
            starter: hosts.starter.clone(),
        }
    }
}

/// Gives the command that starts all ranks of a task. The command is one process, which ends when the launcher of the
/// task's MPI has ended.
pub fn command(r: &Request<'_>, engine: &dyn Engine, job: Option<&JobHosts>) -> Result<CommandLine, Unavailable> {
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
    match job {
        None => add(&["--hosts", &format!("{}:{}", spawn::host_name(), task.ranks)]),
        Some(job) => {
            add(&["--hosts", &job.hosts, "--ssh", &job.ssh, "--starter", &job.starter]);
            for folder in &job.endpoints {
                add(&["--endpoint", &folder.to_string_lossy()]);
            }
        }
    }
    add(&["--ranks", &task.ranks.to_string()]);
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
        if job.is_none() {
            mount(&r.endpoint.to_string_lossy(), ENDPOINT_FOLDER, false);
        }
        for m in task.mounts.iter().filter(|m| job.is_none() || m.link.is_none()) {
            mount(&m.host.to_string_lossy(), &m.task, m.write);
        }
        for (m, link) in task.mounts.iter().filter_map(|m| Some((m, m.link.as_ref().filter(|_| job.is_some())?))) {
            add(&["--endpoint-mount", &format!("{link}:{}{}", m.task, if m.write { "" } else { ":ro" })]);
        }
        (task.command.clone(), r.environment.clone(), task.workdir.clone().unwrap_or_else(|| "/".into()))
    } else {
        let line = engine.command(r);
        let workdir = line.workdir.unwrap_or_else(|| task.folder.clone());
        (line.words, line.environment, workdir.to_string_lossy().into_owned())
    };
    add(&["--start-in", &workdir]);
    // Two variables are not passed on. CROSSDOCK_RANK is left out, because each rank gets its number from MPI. If the
    // job has ranks on several hosts and no containers, CROSSDOCK_SOCKET is left out, because the endpoint's path
    // differs from host to host and `crossdock mpirun` sets it.
    let is_mpiruns = |name: &str| name == "CROSSDOCK_SOCKET" && job.is_some() && !engine.in_container();
    for (name, value) in environment.iter().filter(|(name, _)| name != "CROSSDOCK_RANK" && !is_mpiruns(name)) {
        add(&["--env", &format!("{name}={value}")]);
    }
    add(&["--"]);
    words.extend(command);
    // The job's helper processes get the variable with the run's id too, because a cleanup finds the processes of a
    // killed run by this variable.
    let environment = environment.into_iter().filter(|(name, _)| name == processes::MARK).collect();
    Ok(CommandLine { words, environment, limits_by_launcher: true, ends_its_own: true, ..CommandLine::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::hosts::Launcher;

    #[test]
    fn ranks_are_divided_in_blocks_and_the_first_hosts_have_one_more() {
        let hosts = Hosts {
            names: Vec::new(),
            here: None,
            launcher: Launcher::Ssh,
            ssh: vec!["ssh".into(), "-q".into()],
            starter: "/opt/crossdock".into(),
            address: None,
            transport: crossdock_link::Choice::Auto,
            trusted_network: false,
        };
        let found = ["n1", "n2", "n3"].map(|name| (name, PathBuf::from(format!("/run/{name}"))));
        let job = JobHosts::new(&found, 8, &hosts);
        assert_eq!((job.hosts.as_str(), job.ssh.as_str()), ("n1:3,n2:3,n3:2", "ssh -q"));
        assert_eq!(job.endpoints[2], PathBuf::from("/run/n3"));
    }
}
