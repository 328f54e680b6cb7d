//! The description of one MPI job: the same text on every host.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A folder or file of the host that the container has, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// On the host.
    pub host: PathBuf,
    /// In the container.
    pub inside: String,
    /// May the job write?
    pub write: bool,
}

/// One MPI job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Unique; part of the names of folders and containers.
    pub id: String,
    /// The container engine.
    pub engine: String,
    /// The root folder. If there is no image either, the host's system folders serve.
    pub root: Option<PathBuf>,
    /// An image that the engine has on each host.
    pub image: Option<String>,
    /// Mounts besides the engine's own.
    pub mounts: Vec<Bind>,
    /// The folder with the job's `endpoint.sock` on each host: a host has the first of these that a daemon serves there.
    pub endpoints: Vec<PathBuf>,
    /// The container's variables.
    pub environment: Vec<(String, String)>,
    /// Where commands start.
    pub workdir: String,
    /// The size of `/dev/shm` in bytes. `None` gives the kernel's default, half of the memory.
    pub shm: Option<u64>,
    /// How many ranks.
    pub ranks: u32,
    /// The MPI that is asked for, and the program to look at, as `detect` reads it.
    pub mpi: String,
    /// The MPI of the first host, once it is known. The other hosts must have the same.
    pub expected: Option<String>,
    /// The ssh program of the hosts, and options.
    pub ssh: Vec<String>,
    /// `crossdock` on the other hosts.
    pub starter: String,
    /// How long a container or a connection may take to start, in seconds.
    pub patience_s: u64,
}

impl Job {
    /// The container's name on this host, for engines that have names.
    pub fn container(&self) -> String {
        let host: String =
            crossdock_os::spawn::host_name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("crossdock-mpi-{}-{host}", self.id)
    }

    /// The command line of the other hosts' starter, for ssh.
    pub fn starter_command(&self) -> String {
        // It is quoted so that any shell accepts it: a login shell may be csh.
        format!("exec '{}' {}", self.starter.replace('\'', r"'\''"), super::STARTER)
    }
}
