//! The options of `crossdock mpirun`, and the job that they describe.

use std::env;
use std::fs;
use std::path::PathBuf;

use crossdock_os::{child, spawn};

use super::hosts::{self, Host};
use super::job::{Bind, Job};
use super::job_folder::JobFolder;
use super::report::Failure;
use crate::engine;
use crate::run::code;

/// The caller's variables that a job gets without `--env`, because programs and MPI libraries read them.
const ALLOWED: [&str; 33] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "OMP_*",
    "KMP_*",
    "GOMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "BLIS_*",
    "OMPI_MCA_*",
    "PRTE_MCA_*",
    "PMIX_MCA_*",
    "OPAL_*",
    "MPICH_*",
    "MPIR_CVAR_*",
    "MPIEXEC_*",
    "MV2_*",
    "I_MPI_*",
    "UCX_*",
    "FI_*",
    "PSM2_*",
    "PSM3_*",
    "NCCL_*",
    "CUDA_*",
    "ROCR_*",
    "HDF5_*",
    "PYTHONPATH",
    "CROSSDOCK_FAULT*",
];

/// The options of the command line of `crossdock mpirun`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The root folder of the containers.
    pub root: Option<PathBuf>,
    /// The image of the containers.
    pub image: Option<String>,
    /// The name of the engine, or `auto`.
    pub engine: String,
    /// The hosts, each with its number of ranks, in the form `n1:2,n2:2`.
    pub hosts: Option<String>,
    /// The path of a file that lists the hosts.
    pub hosts_file: Option<PathBuf>,
    /// The number of ranks. The default is the number of slots of all hosts.
    pub ranks: Option<u32>,
    /// The MPI to use, or `auto`.
    pub mpi: String,
    /// How ranks are bound to CPUs.
    pub bind: String,
    /// True if the job prints the table that shows which rank runs on which CPUs.
    pub show_binding: bool,
    /// Variables for the ranks: NAME, NAME*, or NAME=VALUE.
    pub environment: Vec<String>,
    /// The values of `--mount`, in the form HOST[:INSIDE][:ro].
    pub mounts: Vec<String>,
    /// Folders with the job's `endpoint.sock`, one for each host.
    pub endpoints: Vec<PathBuf>,
    /// Mounts in the form LINK:INSIDE[:ro]. On each host, LINK is a link in the endpoint folder, and the folder or file
    /// to which it points is mounted at INSIDE.
    pub endpoint_mounts: Vec<String>,
    /// True if the home folder is not to be mounted.
    pub no_home: bool,
    /// The size of /dev/shm in bytes.
    pub shm: Option<u64>,
    /// Files that the shell of each rank reads before it starts the program.
    pub sources: Vec<String>,
    /// The folder on the host that is mounted in the container, and in which ranks start.
    pub workdir: Option<PathBuf>,
    /// The folder in the container where ranks start. If it is given, the current folder is not mounted.
    pub start_in: Option<String>,
    /// The ssh program of this host with its options, in one string.
    pub ssh: String,
    /// The path of `crossdock` on the other hosts.
    pub starter: Option<String>,
    /// The value of `--launcher`: with `ssh`, the image's own mpirun starts the ranks, and uses crossdock's shim as its
    /// ssh; with `srun`, Slurm starts the ranks.
    pub launcher: String,
    /// The PMI that srun offers to ranks: `auto`, `pmi2` or `pmix`.
    pub pmi: String,
    /// Additional arguments that the user gives to the launcher itself: the values of `--launcher-arg`.
    pub arguments: Vec<String>,
    /// How long a container or a connection may take to start, in seconds.
    pub patience_s: u64,
    /// How long all ranks together may take to start, in seconds.
    pub start_s: u64,
    /// True if the launcher may continue after a rank has failed.
    pub keep_going: bool,
    /// How long the job may take, in seconds.
    pub deadline_s: Option<u64>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// An error that names no host and no rank.
pub(super) fn failure(what: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure { host: String::new(), rank: None, command: String::new(), what: what.into(), hint: hint.into() }
}

/// An error of the command line, with its exit code.
pub(super) fn usage(what: impl Into<String>, hint: impl Into<String>) -> (u8, Failure) {
    (2, failure(what, hint))
}

/// Gives the hosts of the job.
pub(super) fn find_hosts(options: &Options) -> Result<Vec<Host>, (u8, Failure)> {
    let hint = "write --hosts NAME:RANKS,…, as in --hosts n1:2,n2:2";
    if let Some(text) = &options.hosts {
        return hosts::parse(text).map_err(|what| usage(format!("--hosts {text}: {what}"), hint));
    }
    if let Some(path) = &options.hosts_file {
        let text = fs::read_to_string(path)
            .map_err(|e| usage(format!("cannot read {}: {e}", path.display()), "give a file with one host a line"))?;
        return hosts::parse(&text).map_err(|what| usage(format!("{}: {what}", path.display()), hint));
    }
    if let Some(found) = hosts::allocated() {
        return found.map_err(|what| usage(format!("the batch system's hosts cannot be read: {what}"), hint));
    }
    // No host was given and no batch system has allocated any, so the job runs on this host.
    let slots = options.ranks.unwrap_or_else(|| spawn::allowed_cpus().len() as u32).max(1);
    Ok(vec![Host { name: spawn::host_name(), slots }])
}

/// Makes the description of the job that these options ask for.
pub(super) fn describe(options: &Options, ranks: u32) -> Result<Job, (u8, Failure)> {
    let system = |what: String, hint: &str| (code::SYSTEM, failure(what, hint));
    let absolute = |path: &PathBuf| {
        fs::canonicalize(path)
            .map_err(|e| usage(format!("cannot find {}: {e}", path.display()), "give a folder that is there"))
    };
    let root = match options.root.as_ref().map(absolute).transpose()? {
        Some(root) if root == std::path::Path::new("/") => None,
        root => root,
    };
    let here =
        env::current_dir().map_err(|e| system(format!("the current folder is gone: {e}"), "change to another one"))?;
    let workdir = options.workdir.as_ref().map_or(Ok(here), absolute)?;
    let mut environment = variables(&options.environment);
    if !environment.iter().any(|(n, _)| n == "PATH") {
        let own = env::var("PATH").unwrap_or_default();
        let path =
            if root.is_none() && options.image.is_none() && !own.is_empty() { own } else { engine::PATH.to_owned() };
        environment.push(("PATH".into(), path));
    }
    let home = env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute() && h.is_dir() && !options.no_home);
    let mut mounts: Vec<Bind> = options.mounts.iter().map(|m| mount(m)).collect::<Result<_, _>>()?;
    let own = Some(workdir.clone()).filter(|_| options.start_in.is_none());
    for folder in [own, home].into_iter().flatten() {
        let inside = folder.to_string_lossy().into_owned();
        let system = ["/", "/usr", "/etc", "/bin", "/lib", "/proc", "/sys", "/dev", "/run", "/tmp"];
        if system.contains(&inside.as_str()) || mounts.iter().any(|m| m.inside == inside) {
            continue;
        }
        mounts.push(Bind { host: folder, inside, write: true });
    }
    let program = options.command.first().cloned().unwrap_or_default();
    let workdir = options.start_in.clone().map_or(workdir, PathBuf::from);
    let program = if program.contains('/') { workdir.join(&program).to_string_lossy().into_owned() } else { program };
    let own =
        env::current_exe().map_err(|e| system(format!("cannot find this program: {e}"), "start it by its path"))?;
    let random: [u8; 6] = child::random().map_err(|e| system(e.to_string(), "wait until the system has started"))?;
    let ssh: Vec<String> = options.ssh.split_whitespace().map(str::to_owned).collect();
    let (id, engine): (String, _) = (random.iter().map(|b| format!("{b:02x}")).collect(), chosen_engine(options));
    if engine == "process" && !options.endpoints.is_empty() {
        let socket = JobFolder::of(&id).endpoint().join("endpoint.sock");
        environment.push(("CROSSDOCK_SOCKET".into(), socket.to_string_lossy().into_owned()));
    }
    Ok(Job {
        id,
        engine,
        root,
        image: options.image.clone(),
        mounts,
        endpoints: options.endpoints.clone(),
        endpoint_mounts: options.endpoint_mounts.iter().map(|m| endpoint_mount(m)).collect::<Result<_, _>>()?,
        environment,
        workdir: workdir.to_string_lossy().into_owned(),
        shm: options.shm,
        ranks,
        mpi: format!("{}:{program}", options.mpi),
        expected: None,
        ssh: if ssh.is_empty() { vec!["ssh".into()] } else { ssh },
        starter: options.starter.clone().unwrap_or_else(|| own.to_string_lossy().into_owned()),
        patience_s: options.patience_s,
    })
}

/// Chooses the engine. For `auto` it is the first engine whose program exists and that supports the options.
fn chosen_engine(options: &Options) -> String {
    if options.engine != "auto" {
        return options.engine.clone();
    }
    let takes = |name: &str| options.image.is_none() || !matches!(name, "bubblewrap" | "charliecloud" | "process");
    let engines = engine::all();
    let works = engines
        .iter()
        .find(|e| takes(e.name()) && e.version().is_ok() && (e.name() != "process" || options.root.is_none()));
    works.map_or("bubblewrap", |e| e.name()).to_owned()
}

/// Collects the caller's variables that are allowed, and the variables that the options ask for.
fn variables(wanted: &[String]) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| {
        list.retain(|(n, _)| n != name);
        list.push((name.to_owned(), value.to_owned()));
    };
    let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    };
    let patterns: Vec<&str> = wanted.iter().map(String::as_str).filter(|w| !w.contains('=')).collect();
    for (name, value) in env::vars() {
        if ALLOWED.iter().chain(&patterns).any(|p| fits(p, &name)) {
            set(&name, &value);
        }
    }
    for word in wanted {
        if let Some((name, value)) = word.split_once('=') {
            set(name, value);
        }
    }
    list
}

/// Reads a mount in the form `HOST[:INSIDE][:ro]`.
fn mount(text: &str) -> Result<Bind, (u8, Failure)> {
    let (rest, write) = text.strip_suffix(":ro").map_or((text, true), |rest| (rest, false));
    let (host, inside) = rest.split_once(':').unwrap_or((rest, rest));
    if !host.starts_with('/') || !inside.starts_with('/') || inside.len() < 2 {
        return Err(usage(
            format!("--mount {text}: not HOST[:INSIDE][:ro] with absolute paths"),
            "as in --mount /scratch:/data:ro",
        ));
    }
    Ok(Bind { host: host.into(), inside: inside.trim_end_matches('/').into(), write })
}

fn endpoint_mount(text: &str) -> Result<Bind, (u8, Failure)> {
    let (rest, write) = text.strip_suffix(":ro").map_or((text, true), |rest| (rest, false));
    match rest.split_once(':') {
        Some((link, inside)) if !link.is_empty() && !link.contains('/') && inside.starts_with('/') => {
            Ok(Bind { host: link.into(), inside: inside.into(), write })
        }
        _ => Err(usage(format!("--endpoint-mount {text}: not LINK:INSIDE[:ro]"), "`crossdock run` sets this option")),
    }
}
