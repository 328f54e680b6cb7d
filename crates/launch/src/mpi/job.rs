//! The description of one MPI job: the same text on every host.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A folder or file of the host that is mounted in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The path on the host.
    pub host: PathBuf,
    /// The path in the container.
    pub inside: String,
    /// True if the job may write to the mounted folder or file.
    pub write: bool,
}

/// The description of one MPI job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The unique id of the job. It is part of the names of folders and containers.
    pub id: String,
    /// The name of the container engine.
    pub engine: String,
    /// The root folder. If there is neither root nor image, the container gets the host's system folders.
    pub root: Option<PathBuf>,
    /// An image that the engine has on each host.
    pub image: Option<String>,
    /// The mounts of this job. The mounts that every container of a job gets are not in this list.
    pub mounts: Vec<Bind>,
    /// Folders of which each may contain the job's `endpoint.sock`. Each host uses the first folder whose socket is
    /// served by a daemon of the host.
    pub endpoints: Vec<PathBuf>,
    /// Mounts whose `host` is the name of a link in the endpoint folder. The folder or file to which the link points is
    /// mounted.
    #[serde(default)]
    pub endpoint_mounts: Vec<Bind>,
    /// The environment variables that the container gets.
    pub environment: Vec<(String, String)>,
    /// The folder in which the job's commands start, as the container sees it.
    pub workdir: String,
    /// The size of `/dev/shm` in bytes. `None` gives the kernel's default, half of the memory.
    pub shm: Option<u64>,
    /// The number of ranks on all hosts together.
    pub ranks: u32,
    /// The MPI that the user asked for and the program of the job, as `MPI:PROGRAM`. The shim's `detect` reads this
    /// text.
    pub mpi: String,
    /// The MPI of the first host, once it is known. All other hosts must have the same MPI.
    pub expected: Option<String>,
    /// The ssh program, with its options, by which one host of the job reaches another.
    pub ssh: Vec<String>,
    /// The path of `crossdock` on the other hosts.
    pub starter: String,
    /// How long a container or a connection may take to start, in seconds.
    pub patience_s: u64,
}

impl Job {
    /// Reads a job's description; `None` if the text is not a valid description. The id becomes part of paths, and
    /// `ssh` is a command, so both are checked.
    pub fn read(text: &str) -> Option<Self> {
        let job: Self = serde_json::from_str(text).ok()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (!job.id.is_empty() && job.id.len() <= 64 && job.id.chars().all(is_plain) && !job.ssh.is_empty()).then_some(job)
    }

    /// Gives the container's name on this host, for engines that give containers names.
    pub fn container(&self) -> String {
        let host: String =
            crossdock_os::spawn::host_name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("crossdock-mpi-{}-{host}", self.id)
    }

    /// Gives the command line that ssh runs on another host to start crossdock's hidden command for this job.
    pub fn starter_command(&self) -> String {
        // The quoting must work for any shell, because a login shell may be csh.
        format!("exec '{}' {}", self.starter.replace('\'', r"'\''"), super::STARTER)
    }
}
