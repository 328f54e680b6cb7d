//! The command lines of MPI launchers. All settings of launchers are in this file.

use crossdock_shim::detect::{MpiInstallation, MpiKind};
use crossdock_shim::rank::RANKS_VARIABLE;

use super::hosts::Host;
use super::job::Job;
use crate::engine;

/// What an MPI launcher must start, and how: the input of [`words`].
pub struct Plan<'a> {
    /// The path at which the container sees the folder of the job's keeper.
    pub place: &'a str,
    /// The hosts with their numbers of ranks.
    pub hosts: &'a [Host],
    /// The number of ranks of the job.
    pub ranks: u32,
    /// The folder in which ranks start.
    pub workdir: &'a str,
    /// How each rank is bound to CPUs: the value of `--bind`.
    pub bind: &'a str,
    /// Files that the shell of each rank reads before it starts the program.
    pub sources: &'a [String],
    /// Additional arguments that the user gives to the launcher itself.
    pub arguments: &'a [String],
    /// True if the user is root.
    pub root: bool,
    /// The program and its arguments.
    pub command: &'a [String],
}

/// The name, in the keeper's folder, of the file that lists the hosts.
pub const HOSTS_FILE: &str = "hosts";

/// Writes the file of hosts in the form that Hydra and mpirun_rsh read.
pub fn hosts_file(hosts: &[Host]) -> String {
    hosts.iter().map(|h| format!("{}:{}\n", h.name, h.slots)).collect()
}

/// Gives the variables for all commands of the job, on every host: where this MPI is installed, and how it reaches
/// other hosts.
pub fn environment(found: &MpiInstallation, place: &str, ranks: u32, path: &str) -> Vec<(String, String)> {
    let agent = format!("{place}/bin/ssh");
    let mut list: Vec<(String, String)> = vec![(RANKS_VARIABLE.into(), ranks.to_string())];
    let mut set = |name: &str, value: &str| list.push((name.into(), value.into()));
    let prefix = &found.prefix;
    let mut folders = vec![format!("{place}/bin")];
    if prefix != "/usr" && !prefix.is_empty() {
        // An MPI outside of the system's folders finds its programs by PATH and its libraries by LD_LIBRARY_PATH, so
        // both variables get its folders.
        folders.push(format!("{prefix}/bin"));
        set("LD_LIBRARY_PATH", &format!("{prefix}/lib:{prefix}/lib64"));
        match found.kind {
            MpiKind::OpenMpi5 => {
                for name in ["OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"] {
                    set(name, prefix);
                }
            }
            MpiKind::OpenMpi4 => set("OPAL_PREFIX", prefix),
            MpiKind::Intel => set("I_MPI_ROOT", prefix),
            _ => {}
        }
    }
    set("PATH", &format!("{}:{path}", folders.join(":")));
    // The variables for the launchers of all MPIs are set, because a script in the container may call any launcher.
    for (name, value) in [
        ("OMPI_MCA_plm_rsh_agent", agent.as_str()),
        ("PRTE_MCA_plm_ssh_agent", &agent),
        ("HYDRA_LAUNCHER", "ssh"),
        ("HYDRA_LAUNCHER_EXEC", &agent),
        ("HYDRA_LAUNCHER_AUTOFORK", "0"),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", &agent),
        ("I_MPI_PIN", "0"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ] {
        set(name, value);
    }
    list
}

/// Finds a reason why this MPI cannot run this program; `None` if the examined files show no such reason.
pub fn misfit(found: &MpiInstallation, command: &[String]) -> Option<String> {
    let program = command.first().map_or("", String::as_str);
    let needed = &found.needed;
    (!found.fits_program()).then(|| {
        format!("`{program}` was built for another MPI: it needs {needed}, and the container has {}", found.describe())
    })
}

/// Gives the variables of [`environment`] that the job does not set itself. PATH is always among them, and contains the
/// job's own PATH.
pub fn job_environment(found: &MpiInstallation, job: &Job, place: &str) -> Vec<(String, String)> {
    let own = |name: &str| job.environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let mut list = environment(found, place, job.ranks, own("PATH").unwrap_or(engine::PATH));
    list.retain(|(n, _)| n == "PATH" || own(n).is_none());
    list
}

/// Gives the words that stand before the program of each rank. They call the shim, which binds the rank and reports its
/// start and its end. `cpus` are the CPUs that a batch system has given to the rank.
pub fn rank_words(place: &str, cpus: Option<&str>, bind: &str, sources: &[String]) -> Vec<String> {
    let mut words = vec![format!("{place}/bin/{}", crossdock_shim::PROGRAM), "rank".to_owned()];
    words.extend(cpus.into_iter().flat_map(|list| ["--cpus".to_owned(), list.to_owned()]));
    if bind != "mpi" {
        words.extend(["--bind".to_owned(), bind.to_owned()]);
    }
    words.extend(sources.iter().flat_map(|s| ["--source".to_owned(), s.clone()]));
    words.push("--".into());
    words
}

/// Gives the whole command line of the MPI's launcher. Fails if the container has no launcher, and the error says so.
pub fn words(found: &MpiInstallation, plan: &Plan<'_>) -> Result<Vec<String>, String> {
    let mut words = vec![found.launcher.clone()];
    let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
    let ranks = plan.ranks.to_string();
    let file = format!("{}/{HOSTS_FILE}", plan.place);
    let list: Vec<String> = plan.hosts.iter().map(|h| format!("{}:{}", h.name, h.slots)).collect();
    match found.kind {
        MpiKind::OpenMpi4 | MpiKind::OpenMpi5 => {
            if plan.root {
                add(&["--allow-run-as-root"]);
            }
            // Unless `--bind` is `mpi`, crossdock's shim binds the ranks, in the same way for all MPIs. So the launcher
            // must not bind them.
            if plan.bind != "mpi" {
                add(&["--bind-to", "none"]);
            }
            add(&["-np", &ranks, "--host", &list.join(","), "-wdir", plan.workdir]);
        }
        MpiKind::Mpich | MpiKind::Intel => add(&["-f", &file, "-n", &ranks, "-wdir", plan.workdir]),
        MpiKind::Mvapich2 => add(&["-np", &ranks, "-hostfile", &file]),
        MpiKind::None => return Err("the container has no MPI that crossdock knows".into()),
    }
    words.extend(plan.arguments.iter().cloned());
    words.extend(rank_words(plan.place, None, plan.bind, plan.sources));
    words.extend(plan.command.iter().cloned());
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: MpiKind) -> String {
        let hosts = [Host { name: "n1".into(), slots: 2 }, Host { name: "n2".into(), slots: 1 }];
        let found = MpiInstallation {
            kind,
            launcher: "/usr/bin/mpirun".into(),
            prefix: "/usr".into(),
            ..MpiInstallation::default()
        };
        let command = ["./solver".to_owned(), "in.dat".to_owned()];
        let plan = Plan {
            place: "/run/crossdock-mpi",
            hosts: &hosts,
            ranks: 3,
            workdir: "/work",
            bind: "core",
            sources: &[],
            arguments: &[],
            root: false,
            command: &command,
        };
        words(&found, &plan).unwrap().join(" ")
    }

    #[test]
    fn each_launcher_gets_hosts_ranks_and_folder_in_its_own_words() {
        let rank = "/run/crossdock-mpi/bin/crossdock-shim rank --bind core -- ./solver in.dat";
        assert_eq!(
            line(MpiKind::OpenMpi4),
            format!("/usr/bin/mpirun --bind-to none -np 3 --host n1:2,n2:1 -wdir /work {rank}")
        );
        assert_eq!(
            line(MpiKind::Mpich),
            format!("/usr/bin/mpirun -f /run/crossdock-mpi/hosts -n 3 -wdir /work {rank}")
        );
    }

    #[test]
    fn an_mpi_of_its_own_folder_is_told_where_it_lies() {
        let found =
            MpiInstallation { kind: MpiKind::OpenMpi5, prefix: "/opt/ompi".into(), ..MpiInstallation::default() };
        let list = environment(&found, "/p", 4, "/usr/bin");
        let value = |name: &str| list.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(value("PATH"), Some("/p/bin:/opt/ompi/bin:/usr/bin"));
        assert_eq!(value("PMIX_PREFIX"), Some("/opt/ompi"));
        assert_eq!(value("PRTE_MCA_plm_ssh_agent"), Some("/p/bin/ssh"));
        assert_eq!(value("HYDRA_LAUNCHER_AUTOFORK"), Some("0"));
    }
}
