//! The hosts of a run, and the commands that start its parts on them.

use std::env;
use std::process::Command;

use crossdock_link::{Choice, bad_node_name};
use crossdock_os::spawn::host_name;
use crossdock_shim::arguments::Arguments;
use serde::{Deserialize, Serialize};

use crate::mpi::{hosts, is_here};
use crate::ssh;

/// The hidden command that runs a run's part on another host.
pub const PART: &str = "run-part";
/// The hidden command of the part's second process, which has the tasks as children.
pub const PART_SUPERVISOR: &str = "supervise-part";

/// The program that starts a part on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launcher {
    /// The host's ssh program starts the part.
    Ssh,
    /// Slurm starts the part as a job step.
    Srun,
}

/// The options that say which hosts a run gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// The value of the option `--hosts`.
    pub hosts: Option<String>,
    /// The value of the option `--hostfile`.
    pub hostfile: Option<String>,
    /// The value of `--launcher`. Without it, srun is used if the hosts come from an allocation of Slurm, and ssh
    /// otherwise.
    pub launcher: Option<Launcher>,
    /// The words of `--ssh`.
    pub ssh: Vec<String>,
    /// The path of `crossdock` on the other hosts, given with `--starter`.
    pub starter: Option<String>,
    /// The address at which the other hosts reach this host, given with `--address`.
    pub address: Option<String>,
    /// The value of `--transport`.
    pub transport: Choice,
    /// True with `--trusted-network`: the hosts use plain text between each other.
    pub trusted_network: bool,
}

/// The hosts of a run on several hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// The names of the hosts, without duplicates.
    pub names: Vec<String>,
    /// The number of this host in the list of hosts; `None` if no task may run on this host.
    pub here: Option<usize>,
    /// The program that starts the parts.
    pub launcher: Launcher,
    /// The ssh program with its options.
    pub ssh: Vec<String>,
    /// The path of `crossdock` on the other hosts.
    pub starter: String,
    /// The address at which the other hosts reach this host. With `None` each other host takes the address from which
    /// its connection came.
    pub address: Option<String>,
    /// The choice of transports that carry bytes between the hosts.
    #[serde(with = "super::transport")]
    pub transport: Choice,
    /// True if the hosts use plain text between each other. In that case no certificates are made.
    pub trusted_network: bool,
}

impl HostOptions {
    /// Finds the hosts of the run; `None` if this host is the only one.
    ///
    /// # Errors
    /// A list of hosts cannot be read, or the path of this program is unknown.
    pub fn find(&self) -> Result<Option<Hosts>, String> {
        let (found, allocated) = match (&self.hosts, &self.hostfile) {
            (Some(text), _) => (hosts::parse(text).map_err(|what| format!("--hosts {text}: {what}"))?, false),
            (None, Some(text)) => (hosts::parse(text).map_err(|what| format!("--hostfile: {what}"))?, false),
            (None, None) if hosts::in_slurm() => match hosts::allocated() {
                Some(found) => (found.map_err(|what| format!("the hosts of Slurm's allocation: {what}"))?, true),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let names: Vec<String> = found.into_iter().map(|host| host.name).collect();
        let mine = host_name();
        let slurms = env::var("SLURMD_NODENAME").ok();
        let here = names.iter().position(|name| Some(name) == slurms.as_ref() || is_here(name, &mine));
        if let ([_], Some(0)) = (&names[..], here) {
            return Ok(None);
        }
        let own = || env::current_exe().map(|path| path.to_string_lossy().into_owned());
        let starter = match &self.starter {
            Some(starter) => starter.clone(),
            None => own().map_err(|e| format!("cannot find this program in the file system: {e}; give --starter"))?,
        };
        let launcher = self.launcher.unwrap_or(if allocated { Launcher::Srun } else { Launcher::Ssh });
        let ssh = if self.ssh.is_empty() { vec!["ssh".to_owned()] } else { self.ssh.clone() };
        let (address, transport, trusted_network) = (self.address.clone(), self.transport, self.trusted_network);
        Ok(Some(Hosts { names, here, launcher, ssh, starter, address, transport, trusted_network }))
    }
}

impl Hosts {
    /// Gives the command that starts a part on the host with this number.
    pub fn command(&self, number: usize) -> Command {
        let host = &self.names[number];
        match self.launcher {
            Launcher::Ssh => {
                let mut command = Command::new(&self.ssh[0]);
                let to = Arguments { host: host.clone(), ..Arguments::default() };
                // The quoting must work for any shell, because a login shell may be csh.
                let there = format!("exec '{}' {PART}", self.starter.replace('\'', r"'\''"));
                let words = ssh::words(&to).expect("a command line without options of a launcher");
                command.args(&self.ssh[1..]).args(words).arg(there);
                command
            }
            Launcher::Srun => {
                let mut command = Command::new("srun");
                // The job step may use all CPUs and all memory that the job has on the node, even while other steps run
                // there.
                command.args(["--nodes=1", "--ntasks=1", "--overlap", "--mem=0", "--mpi=none", "--cpu-bind=none"]);
                command.arg(format!("--nodelist={host}"));
                if let Some(cpus) = cpus(number, env::var("SLURM_JOB_CPUS_PER_NODE").ok().as_deref()) {
                    command.arg(format!("--cpus-per-task={cpus}"));
                }
                command.arg(&self.starter).arg(PART);
                command
            }
        }
    }

    /// Gives the command that connects to other hosts, for messages: ssh with its options, or `srun`.
    pub fn called(&self) -> String {
        match self.launcher {
            Launcher::Ssh => self.ssh.join(" "),
            Launcher::Srun => "srun".into(),
        }
    }

    /// Gives the name, in the run's site, of the node on the host with this number.
    pub fn node(&self, number: usize) -> String {
        node_name(&self.names[number])
    }

    /// Gives the node name of this host.
    pub fn own_node(&self) -> String {
        match self.here {
            Some(number) => self.node(number),
            None => {
                let mut name = node_name(&host_name());
                while (0..self.names.len()).any(|number| self.node(number) == name) {
                    name.insert_str(0, "run-");
                }
                name
            }
        }
    }
}

/// Turns the name of a host into a name for its node. An address is not allowed as the name of a node, so it is
/// changed.
pub(super) fn node_name(host: &str) -> String {
    if bad_node_name(host).is_none() {
        return host.to_owned();
    }
    let name: String = host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(56).collect();
    format!("host-{}", name.trim_matches('-'))
}

/// Finds the number of CPUs that the job has on the host with this number, in a text of Slurm such as `2(x3),1`.
fn cpus(number: usize, text: Option<&str>) -> Option<u32> {
    hosts::counts(text?)?.get(number).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parts_are_started_by_ssh_or_srun() {
        let wanted = HostOptions { hosts: Some("n1.invalid,n2.invalid".into()), ..HostOptions::default() };
        let mut hosts = wanted.find().unwrap().unwrap();
        hosts.starter = "/opt/it's/crossdock".into();
        assert_eq!((hosts.here, hosts.launcher), (None, Launcher::Ssh));
        let text = words(&hosts.command(1));
        assert!(text.starts_with("ssh -T -o BatchMode=yes"), "{text}");
        assert!(text.ends_with(r"-- n2.invalid exec '/opt/it'\''s/crossdock' run-part"), "{text}");
        hosts.launcher = Launcher::Srun;
        let text = words(&hosts.command(0));
        assert!(text.starts_with("srun --nodes=1") && text.contains("--nodelist=n1.invalid"), "{text}");
        assert!(text.ends_with("crossdock run-part"), "{text}");
    }

    #[test]
    fn this_host_alone_is_a_run_on_one_host() {
        let wanted = HostOptions { hosts: Some("localhost".into()), ..HostOptions::default() };
        assert_eq!(wanted.find(), Ok(None));
        let two = HostOptions { hosts: Some("localhost,n2.invalid".into()), ..HostOptions::default() }
            .find()
            .unwrap()
            .unwrap();
        assert_eq!((two.here, two.own_node().as_str()), (Some(0), "localhost"));
    }

    #[test]
    fn addresses_become_names_of_nodes() {
        assert_eq!(node_name("n1.cluster"), "n1.cluster");
        assert_eq!(node_name("10.77.0.2"), "host-10-77-0-2");
        assert!(bad_node_name(&node_name("fe80::1")).is_none());
    }

    #[test]
    fn cpus_of_a_job_are_told_by_node() {
        assert_eq!(cpus(2, Some("2(x2),16")), Some(16));
        assert_eq!(cpus(3, Some("2(x2),16")), None);
        assert_eq!(cpus(0, None), None);
    }
}
