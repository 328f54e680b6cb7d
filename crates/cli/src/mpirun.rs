//! `crossdock mpirun`: runs an MPI program in containers.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use crossdock_launch::mpi::{self, Options};

use crate::series::durations;

pub const HELP: &str = "\
The containers need no ssh daemon: the launcher of the image's MPI is given an ssh of crossdock's own, which reaches other hosts
through the host's real ssh and starts the command in the job's container there. All ranks of a host share one container, so
shared memory between them works with no MPI setting. crossdock must be on every host under the same path (or --starter), and
the root folder or image, too.

The job has the current folder and the home folder (both writable, under their own names), the host's network, its
InfiniBand and GPU devices, and /dev/shm of half the memory (--shm-size). Of the caller's variables it has HOME, USER, LANG, LC_*,
TZ, TERM and those of OpenMP, BLAS, MPI and network libraries; --env adds others.

With --launcher srun, in an allocation of Slurm, srun starts the ranks instead, with PMI2 or PMIx; no ssh is used.

Without --hosts and --hostfile the hosts are those of the allocation of Slurm, PBS or LSF, else this one.

Exit codes: the launcher's own · 2 the command line is wrong · 69 a host, an engine, an image or an MPI is missing, or the job did
not start · 71 the system refused something · 128 + N ended by signal N. A failure is told in one error with host, rank, command
and a hint; nothing of the job is left on any host, however it ends.

Examples:
  crossdock mpirun --root ./image-root --hosts n1:2,n2:2 -- ./solver in.dat
  crossdock mpirun --image solver:3 --engine podman --hosts n1:8,n2:8 --bind core --show-binding -- solver in.dat
  crossdock mpirun --root ./image-root -- ./solver in.dat            in an allocation of Slurm, or on this host only
  salloc -N 2 --ntasks-per-node 4 crossdock mpirun --launcher srun --root ./image-root -- ./solver
  crossdock mpirun --root ./root --mpi mpich --env 'MY_*' --env DEBUG=1 --mount /scratch --hosts n1,n2 -- ./solver

How it works, and what to ask an administrator for: docs/clusters.md";

/// The options of `mpirun`.
#[derive(Args, Debug)]
pub struct Mpirun {
    /// Root folder of the containers, the same on every host [default: the host's system folders]
    #[arg(long, value_name = "FOLDER", conflicts_with = "image")]
    pub root: Option<PathBuf>,
    /// Image of the containers (podman, docker, apptainer)
    #[arg(long)]
    pub image: Option<String>,
    /// The container engine, the same on every host
    #[arg(short, long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto"].into_iter().chain(mpi::ENGINES)))]
    pub engine: String,
    /// The hosts and their numbers of ranks: n1:2,n2:2 or node[1-8]:4
    #[arg(short = 'H', long, value_name = "HOSTS")]
    pub hosts: Option<String>,
    /// A file with one host on each line: n1:2 or n1 slots=2
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub hostfile: Option<PathBuf>,
    /// The number of ranks [default: as many as the hosts have slots]
    #[arg(short = 'n', long, visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Which MPI of the container: auto, openmpi, mpich, intel, mvapich, or the path of its mpirun
    #[arg(long, default_value = "auto", value_parser = mpi_choice)]
    pub mpi: String,
    /// Bind each rank: none, core, socket, a list of CPUs, or mpi (leave it to the launcher)
    #[arg(long, default_value = "none")]
    pub bind: String,
    /// Print on which CPUs each rank runs
    #[arg(long)]
    pub show_binding: bool,
    /// Variable for the job: NAME, NAME* or NAME=VALUE (repeat it)
    #[arg(long, value_name = "VARIABLE")]
    pub env: Vec<String>,
    /// Folder or file of the host for the job: HOST[:INSIDE][:ro] (repeat it)
    #[arg(long, value_name = "MOUNT")]
    pub mount: Vec<String>,
    /// Folder with the job's endpoint.sock; each host uses the first of these folders that a daemon of the host serves
    /// (for `crossdock run`)
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub endpoint: Vec<PathBuf>,
    /// A mount for the job, LINK:INSIDE[:ro]: the folder or file to which a link in the folder of `--endpoint` points
    /// (for `crossdock run`)
    #[arg(long, hide = true, value_name = "MOUNT")]
    pub endpoint_mount: Vec<String>,
    /// Do not mount the home folder
    #[arg(long)]
    pub no_home: bool,
    /// Size of /dev/shm [default: half of the memory]
    #[arg(long, value_name = "SIZE", value_parser = crate::args::size)]
    pub shm_size: Option<u64>,
    /// File that a shell reads before each rank starts, in the container (repeat it)
    #[arg(long, value_name = "FILE")]
    pub source: Vec<String>,
    /// The folder where ranks start [default: the current folder]
    #[arg(short, long, value_name = "FOLDER")]
    pub workdir: Option<PathBuf>,
    /// The folder in the container where ranks start. With this option, which only `crossdock run` uses, the current
    /// folder is not mounted
    #[arg(long, hide = true, value_name = "FOLDER", conflicts_with = "workdir")]
    pub start_in: Option<String>,
    /// The ssh program of the hosts, with its options
    #[arg(long, default_value = "ssh", value_name = "COMMAND")]
    pub ssh: String,
    /// The path of crossdock on the other hosts [default: this program's path]
    #[arg(long, value_name = "PATH")]
    pub starter: Option<String>,
    /// The launcher of the ranks: the image's mpirun over ssh, or Slurm's srun
    #[arg(long, default_value = "ssh", value_parser = PossibleValuesParser::new(["ssh", "srun"]))]
    pub launcher: String,
    /// The PMI that srun offers to the ranks [auto: pmix for Open MPI, pmi2 for MPICH and Intel MPI]
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "pmi2", "pmix"]))]
    pub pmi: String,
    /// One more argument for the launcher, which is the image's mpirun or srun (repeat it)
    #[arg(long = "launcher-arg", value_name = "WORD", allow_hyphen_values = true)]
    pub launcher_arg: Vec<String>,
    /// How long a container or a connection may take to start
    #[arg(long, default_value = "30 s", value_name = "TIME", value_parser = durations::at_least_a_second)]
    pub patience: Duration,
    /// How long it may take until all ranks have started
    #[arg(long, default_value = "60 s", value_name = "TIME", value_parser = durations::at_least_a_second)]
    pub start: Duration,
    /// Let the job continue after a rank has ended badly, instead of ending it 15 s later
    #[arg(long)]
    pub keep_going: bool,
    /// How long the job may take
    #[arg(long, value_name = "TIME", value_parser = durations::at_least_a_second)]
    pub deadline: Option<Duration>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

fn mpi_choice(text: &str) -> Result<String, String> {
    if text.starts_with('/') || ["auto", "openmpi", "mpich", "intel", "mvapich"].contains(&text) {
        return Ok(text.to_owned());
    }
    Err("choose auto, openmpi, mpich, intel, mvapich, or give the path of its mpirun in the container".into())
}

pub fn mpirun(o: Mpirun) -> u8 {
    let seconds = |time: Duration| time.as_secs_f64().ceil() as u64;
    mpi::mpirun(&Options {
        root: o.root,
        image: o.image,
        engine: o.engine,
        hosts: o.hosts,
        hosts_file: o.hostfile,
        ranks: o.ranks,
        mpi: o.mpi,
        bind: o.bind,
        show_binding: o.show_binding,
        environment: o.env,
        mounts: o.mount,
        endpoints: o.endpoint,
        endpoint_mounts: o.endpoint_mount,
        no_home: o.no_home,
        shm: o.shm_size,
        sources: o.source,
        workdir: o.workdir,
        start_in: o.start_in,
        ssh: o.ssh,
        starter: o.starter,
        launcher: o.launcher,
        pmi: o.pmi,
        arguments: o.launcher_arg,
        patience_s: seconds(o.patience),
        start_s: seconds(o.start),
        keep_going: o.keep_going,
        deadline_s: o.deadline.map(seconds),
        command: o.command,
    })
}
