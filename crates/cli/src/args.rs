//! The arguments of the command line, and the texts that `--help` prints.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use crossdock_link::Choice;
use crossdock_node::CatalogAddress;

use crate::output::Output;
use crate::series::durations;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "crossdock",
    version,
    about = "Shared memory for containerised workflows",
    long_about = "Shared memory for containerised workflows.\n\n\
        Tasks run each in its own container and pass data as if they were threads of one process. \
        `crossdock run` starts a workflow; the other commands look at what goes on.",
    after_help = "Examples:\n  \
        crossdock run workflow.yaml              start a workflow, engine chosen by itself\n  \
        crossdock run --check workflow.yaml      only look for mistakes in the file\n  \
        crossdock ls                             what segments, members and workflows there are\n  \
        crossdock checkpoint field --every '10 s' --to checkpoints\n  \
        crossdock watch field                    attributes and statistics of a series, live\n  \
        crossdock audit                          which process can touch which segment, and how\n  \
        crossdock doctor                         what this machine allows, and what to change\n\n\
        Times: `90 s`, `500 ms`, `2 h`; a plain number is seconds. Sizes: `512 MiB`, `2 GB`; a plain number is bytes.\n\
        Help on one command: crossdock help COMMAND",
    disable_help_subcommand = false,
    arg_required_else_help = true
)]
pub struct Cli {
    /// The command that the user gave.
    #[command(subcommand)]
    pub command: Command,
}

/// The command line of a daemon, without the other commands.
#[derive(Debug, Parser)]
enum Daemon {
    Serve(Serve),
}

/// Parses the command line of this process. If the command line is wrong or asks for help, this function prints an
/// error or the help, and ends the process.
///
/// For `crossdock serve`, the arguments of all other commands are not declared to clap. Declaring them would take a
/// tenth of the daemon's start time, and the daemon would keep their memory until its end.
pub fn parse() -> Command {
    let daemon = std::env::args_os().nth(1).is_some_and(|word| word == "serve");
    match daemon.then(Daemon::try_parse) {
        Some(Ok(Daemon::Serve(options))) => Command::Serve(options),
        _ => Cli::parse().command,
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the tasks of a workflow file, each in its container, and wait for them
    #[command(after_long_help = RUN_HELP)]
    Run(Run),
    /// Run an MPI program in containers on several hosts, with the MPI of the image
    #[command(after_long_help = crate::mpirun::HELP)]
    Mpirun(Box<crate::mpirun::Mpirun>),
    /// Run the node daemon (stop with SIGTERM or Ctrl-C)
    #[command(after_long_help = SERVE_HELP)]
    Serve(Serve),
    /// List the runs of `crossdock run` and their tasks
    #[command(
        after_long_help = "PID is the process that the launcher started, which is the engine's in a container. CPU and MEMORY are those of all of the task's processes; SHARED is shared memory that they have touched, which counts for each of them.\n\nExamples:\n  crossdock ps\n  crossdock ps waves -o wide            with the logs' places\n  crossdock ps -w                       again every two seconds\n  crossdock ps -o json | jq '.runs[].tasks[] | select(.state == \"failed\")'"
    )]
    Ps(Ps),
    /// Print what the tasks of a run write
    #[command(
        after_long_help = "A run is named by its id, the beginning of one, or its workflow, as `crossdock ps` prints them. The logs of a run that has ended stay in the folder that its summary names.\n\nExamples:\n  crossdock logs waves                  all tasks, each line with the task's name\n  crossdock logs waves solve.0 -n 20    the last lines of one rank\n  crossdock logs -f waves               until the run ends"
    )]
    Logs(Logs),
    /// Stop runs: ask their tasks to end, and kill them after a deadline
    #[command(
        after_long_help = "The tasks get SIGTERM; after the workflow file's `grace` they are killed. If the run has not ended by --deadline they are killed at once, and 20 s later the run itself is; nothing of it is left in any case.\n\nExamples:\n  crossdock stop waves\n  crossdock stop waves-1b2c3d4e --deadline '5 s'"
    )]
    Stop(StopRun),
    /// Start a command whose environment names the daemon and the workflow of a run
    #[command(
        after_long_help = "The command gets CROSSDOCK_SOCKET and CROSSDOCK_WORKFLOW; it may do in the run what its owner may do, which is everything. In Python `crossdock.connect(run=\"waves\")` does the same.\n\nExamples:\n  crossdock attach waves -- python      then: crossdock.connect()\n  crossdock attach waves -- ./observer field\n  crossdock attach waves                a shell"
    )]
    Attach(Attach),
    /// Show rates, memory and waits of everything that is shared, live
    #[command(
        after_long_help = "Rates are those since the print before. WAITING: tasks that wait at the port now; GONE: ends whose task is dead or has left.\n\nExamples:\n  crossdock top\n  crossdock top --times 1               once\n  crossdock top -o json | jq .daemons[].ports[].rate"
    )]
    Top(Top),
    /// Serve a page for the browser that shows what goes on, and /metrics for Prometheus
    #[command(after_long_help = WEB_HELP)]
    Web(WebPage),
    /// List workflows, members, regions, ports, series and items
    #[command(
        after_long_help = "Examples:\n  crossdock ls\n  crossdock ls --json | jq '.daemons[].segments[].name'\n  crossdock ls -o wide                  with ids, users and pools\n  crossdock ls -w                       again every two seconds\n  crossdock ls --files                  files of managed directories, and who waits for which\n  crossdock ls --nodes                  the nodes of the daemon's site\n  crossdock ls --socket /run/crossdock/endpoint.sock"
    )]
    Ls(Ls),
    /// Look into a region or a port
    #[command(
        after_long_help = "Examples:\n  crossdock inspect frames              an object of any workflow that has it\n  crossdock inspect melt/frames         the region `frames` of the workflow `melt`\n  crossdock inspect melt/positions      a port: options, counters, who is at its ends and who waits\n  crossdock inspect melt/positions -w   again every two seconds"
    )]
    Inspect(Inspect),
    /// Remove regions, ports, series or items by name
    #[command(
        after_long_help = "The name is free at once; the memory goes when the last process that has it open lets go. What a member has open is refused, and the member is named; --force removes it all the same, and the member keeps what it has open.\n\nExamples:\n  crossdock rm waves/wave               as `crossdock ls` prints it\n  crossdock rm frames --kind region     if a port has the same name\n  crossdock rm field/0 field/1 --force"
    )]
    Rm(Remove),
    /// Copy or move a region of another node of the site to this node
    #[command(
        subcommand,
        after_long_help = "Run it on the node that gets the region. A region is copied or moved while no task has it open.\n\nExamples:\n  crossdock region copy melt/frames frames-copy\n  crossdock region move melt/frames --timeout '5 min'"
    )]
    Region(RegionCommand),
    /// Say by which door (mechanism) a program waits for files, and which of its calls would bypass the door
    #[command(
        after_long_help = "Looks at the program's file only: how it is linked, Go, setuid, io_uring, system calls of its own. The exit code is 0 when a door serves it, 1 when none does.\n\nExamples:\n  crossdock check python3\n  crossdock check ./solver --root roots/solver\n  crossdock check /usr/bin/rsync --json | jq -r .door"
    )]
    Check(Check),
    /// Show which processes can touch which segment, and how, as the kernel sees it
    #[command(after_long_help = AUDIT_HELP)]
    Audit(Audit),
    /// Write versions of a series to disk, as HDF5 files to restart from
    #[command(after_long_help = CHECKPOINT_HELP)]
    Checkpoint(Checkpoint),
    /// Print attributes and statistics of a series' versions as they are published
    #[command(
        after_long_help = "Inside a task the series is looked for at the task's endpoint; outside, in every daemon of yours.\n\nExamples:\n  crossdock watch field/0\n  crossdock watch field/0 --json | jq .variables[0].statistics.mean\n  crossdock watch field/0 --versions 1 --wait '2 min'"
    )]
    Watch(Watch),
    /// Write one version of a series as HDF5 or .npz
    #[command(
        after_long_help = "Examples:\n  crossdock export field/0 now.npz        then: numpy.load('now.npz')['u']\n  crossdock export field --ranks 4 now.h5  one group a rank: h5py.File('now.h5')['field/3/u']\n  crossdock export field/0 then.h5 --sequence 17"
    )]
    Export(Export),
    /// Say what this node's kernel, limits and container engines allow, and what to change
    #[command(
        after_long_help = "Every line that is not ok says what to do. The exit code is 0 when workflows can run at all, 1 when not.\n\nExamples:\n  crossdock doctor\n  crossdock doctor --json | jq '.checks[] | select(.standing != \"ok\")'"
    )]
    Doctor(Doctor),
    /// Make the certificates of a site's nodes
    #[command(
        after_long_help = "Makes FOLDER/NODE for each node, with authority.pem, node.pem and node.key. Copy each to its node, for `crossdock serve --certificates`. The authority's own key is kept nowhere: certificates for more nodes mean a new set for all.\n\nExamples:\n  crossdock certificates site n1 n2 n3\n  crossdock certificates site n1 n2 --days 7"
    )]
    Certificates(CertificateOptions),
    /// Write a completion script for a shell
    #[command(
        after_long_help = "Examples:\n  crossdock completions bash > ~/.local/share/bash-completion/completions/crossdock\n  crossdock completions zsh > ~/.zfunc/_crossdock\n  crossdock completions fish > ~/.config/fish/completions/crossdock.fish"
    )]
    Completions {
        /// The shell that reads the script
        shell: Shell,
    },
    /// Print the names that a command takes, for completion
    #[command(hide = true)]
    Names {
        /// The kind of names to print
        kind: Names,
    },
    /// Write the reference of this command from the same source as its help: man pages, or one page for the site
    #[command(hide = true)]
    Pages {
        /// The form of the reference
        kind: Pages,
        /// The folder for the pages
        folder: PathBuf,
    },
    /// The supervisor of `run`; `run` starts it
    #[command(name = SUPERVISE, hide = true)]
    Supervise,
    /// The process that keeps the container of an MPI job on one host; `mpirun` starts it
    #[command(name = crossdock_launch::mpi::KEEPER, hide = true)]
    MpiKeeper {
        /// The folder of the job
        folder: PathBuf,
    },
    /// The process on another host that connects an MPI job with the keeper there; `mpirun` starts it through ssh
    #[command(name = crossdock_launch::mpi::STARTER, hide = true)]
    MpiStarter,
    /// The part of a run on another host; `run` starts it
    #[command(name = crossdock_launch::run::hosts::PART, hide = true)]
    RunPart,
    /// The supervisor of the part of a run on another host; the part starts it
    #[command(name = crossdock_launch::run::hosts::PART_SUPERVISOR, hide = true)]
    SupervisePart,
    /// One task of a Slurm step; `mpirun --launcher srun` starts one for each rank
    #[command(name = crossdock_launch::mpi::TASK, hide = true)]
    MpiTask,
}

/// A kind of names that shells can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Names {
    Runs,
    Objects,
    Regions,
    Series,
}

/// The form of the reference that `pages` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// `crossdock.1`, and a page for each command
    Man,
    /// One page for the site, `command-line.md`
    Markdown,
}

/// The name of the hidden command by which `run` starts its supervisor.
pub const SUPERVISE: &str = "supervise-run";

const RUN_HELP: &str = "\
Each task gets its own files, IPC, process ids and network where the engine can, and nothing of the host but its endpoint \
folder at /run/crossdock and the mounts that the file declares. However the run ends, nothing of it is left but its logs.

Ctrl-C stops the tasks (SIGTERM, then SIGKILL after the file's `grace`); a second Ctrl-C kills at once. If a task fails, the \
others are stopped and the reason is shown with the task's last lines.

On several hosts (--hosts, --hostfile, or in an allocation of Slurm with several nodes) each host gets a part of the run, with a \
daemon of its own. `node`, `with` and `spread` in the file say which task runs where. crossdock, root folders and mounts are to be \
on every host under the same path. If a host is lost, the run ends.

Exit codes:
  0      all tasks ended well
  N      the exit code of the task that failed first (128 + N if signal N killed it)
  2      the command line is wrong
  65     the workflow file has problems (all of them are printed)
  69     no engine can run it, there is no daemon, or a host cannot be reached or was lost
  71     the system refused something (a folder, a process)
  124    stopped by --deadline
  129 130 143   stopped by hang-up, Ctrl-C, SIGTERM

Environment:
  CROSSDOCK_SOCKET   the daemon to use
  CROSSDOCK_RUNS     where runs keep sockets and other small things [default: $XDG_RUNTIME_DIR if it is yours, else crossdock-UID in $TMPDIR or /tmp]
  DOCKER_HOST        where docker listens

Examples:
  crossdock run workflow.yaml
  crossdock run workflow.yaml --engine podman --logs /tmp/logs
  crossdock run workflow.yaml --json > summary.json      the tasks' lines go to standard error
  crossdock run --check workflow.yaml                    only look for mistakes

The file: docs/workflow-file.md. For completion in editors, put this into its first line:
  # yaml-language-server: $schema=docs/workflow.schema.json";

const WEB_HELP: &str = "\
The page shows your runs and daemons: the flow of data with rates, waits and deaths, arrays of series as pictures or curves \
with a slider, owners of items, logs. It only looks, listens at 127.0.0.1 alone, and gives nothing without the token, which \
is the part of the address behind `#`. It needs nothing from the internet. `crossdock run --web` and `crossdock serve --web` \
serve it for their own time.

From another machine: ssh -L 8642:127.0.0.1:8642 HOST, then open the address there.

/metrics is for Prometheus, which sends the token from a file (`authorization: {credentials_file: …}`), docs/metrics.md.

Examples:
  crossdock web
  crossdock web --web-port 9000 --web-token ~/.crossdock-token
  curl -H \"Authorization: Bearer $(cat ~/.crossdock-token)\" http://127.0.0.1:9000/metrics";

const SERVE_HELP: &str = "\
Seldom needed: `crossdock run` and the library start a daemon of their own when they find none. One for the whole node is \
for workflows that start apart and meet there.

The socket is --socket, else /run/crossdock/endpoint.sock for root, else $XDG_RUNTIME_DIR/crossdock/endpoint.sock if \
that runtime folder is yours, else /tmp/crossdock-UID/endpoint.sock.

Examples:
  crossdock serve
  crossdock serve --socket /tmp/mine/endpoint.sock --memory '4 GiB'
  CROSSDOCK_SOCKET=/tmp/mine/endpoint.sock python3 program.py
  crossdock serve --site hall --node n1 --catalog keep:127.0.0.1:7700       the first node of a site
  crossdock serve --site hall --node n2 --catalog embedded:127.0.0.1:7700   another one";

const AUDIT_HELP: &str = "\
Reads /proc/*/maps and /proc/*/fd: every mapping and every open descriptor of a segment, in every process. That is the \
kernel's own account, not the daemon's. Processes of other users are seen by root only; how many could not be looked into \
is said.

Access: `map rw` can read and write now, `map r` can read; `fd rw` and `fd r` could map it so.

Examples:
  crossdock audit
  crossdock audit melt                  segments of one workflow
  crossdock audit frames                one segment
  crossdock audit --json | jq '.processes[] | {pid, task, access}'";

const CHECKPOINT_HELP: &str = "\
One file a checkpoint, NAME-00000012.h5, with all ranks in it: each series is a group, each variable a dataset. A file is \
there whole or not at all (written aside, synced, renamed), and has checksums that are checked before it is used. h5dump and \
h5py read it. The publisher is never held up; if its folder is full or gone, that is said, and the next version is tried.

When the publisher ends or dies, its last version is saved, too. When this program dies, the next one goes on with its \
numbers. A publisher that died is waited for (--wait).

Exit codes: 0 the publisher ended and all is saved · 69 no publisher came · 71 the last checkpoint could not be written · \
128 + N ended by signal N, after saving the last version.

Examples:
  crossdock checkpoint field/0 --every '10 s' --to checkpoints
  crossdock checkpoint field --ranks 4 --every 100 --keep 3 --to checkpoints
  h5dump -H checkpoints/field-00000001.h5

To restart: crossdock.restart(\"checkpoints\") and its like in every language, docs/checkpoints.md";

/// The options of `checkpoint`.
#[derive(Args, Debug)]
pub struct Checkpoint {
    /// The names of the series: one, or those of all ranks
    #[arg(required = true)]
    pub series: Vec<String>,
    /// Observe the series NAME/0 … NAME/N-1, and take versions with the same number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// How often to save: a plain number counts versions, `10 s` is a time
    #[arg(long, value_name = "N|TIME", value_parser = durations::every)]
    pub every: durations::Every,
    /// How many checkpoints to keep
    #[arg(long, value_name = "K", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// The folder for the checkpoints; it is made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// The beginning of the checkpoint files' names [default: the series' name]
    #[arg(long)]
    pub name: Option<String>,
    /// Take the latest series of this name, even if its run has ended
    #[arg(long)]
    pub former: bool,
    /// How long to wait for the series, or for the successor of a publisher that died
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = durations::time)]
    pub wait: Duration,
    /// The daemon's socket [default: the task's endpoint; outside a task, all your daemons]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The options of `watch`.
#[derive(Args, Debug)]
pub struct Watch {
    /// The name of the series
    pub series: String,
    /// The least time between two lines
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = durations::time)]
    pub pause: Duration,
    /// End after this many versions [default: when the publisher ends]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub versions: Option<u64>,
    /// Take the latest series of this name, even if its run has ended
    #[arg(long)]
    pub former: bool,
    /// How long to wait for the series
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = durations::time)]
    pub wait: Duration,
    /// Print one JSON object for each version
    #[arg(long)]
    pub json: bool,
    /// The daemon's socket [default: the task's endpoint; outside a task, all your daemons]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The options of `export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The name of the series
    pub series: String,
    /// The file to write; its ending, .h5 or .npz, gives the format
    pub file: PathBuf,
    /// The number of the version [default: the latest]
    #[arg(long, value_name = "N")]
    pub sequence: Option<u64>,
    /// Write the series NAME/0 … NAME/N-1, in versions with the same number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Take the latest series of this name, even if its run has ended
    #[arg(long)]
    pub former: bool,
    /// How long to wait for the series
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = durations::time)]
    pub wait: Duration,
    /// The daemon's socket [default: the task's endpoint; outside a task, all your daemons]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The options of `run`.
#[derive(Args, Debug)]
pub struct Run {
    /// The workflow file
    pub file: PathBuf,
    /// The container engine to use instead of the one in the workflow file
    #[arg(short, long, value_parser = PossibleValuesParser::new(crossdock_launch::file::ENGINES))]
    pub engine: Option<String>,
    /// Folder for the tasks' logs [default: crossdock-logs/WORKFLOW]
    #[arg(short, long, value_name = "FOLDER")]
    pub logs: Option<PathBuf>,
    /// The most bytes that one log may take on disk; the oldest lines are dropped
    #[arg(long, value_name = "SIZE", default_value = "64 MiB", value_parser = size)]
    pub log_limit: u64,
    /// What to show while the workflow runs
    #[arg(short, long, value_enum, default_value_t = Show::Auto)]
    pub show: Show,
    /// Print the summary as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// The socket of a daemon to use instead of the run's own, or `own` [default: CROSSDOCK_SOCKET, else own]
    #[arg(long, value_name = "SOCKET")]
    pub daemon: Option<String>,
    #[command(flatten)]
    pub hosts: RunHosts,
    /// Stop the run after this time, such as `90 s` or `2 h`; a plain number is seconds
    #[arg(long, value_name = "TIME", value_parser = durations::at_least_a_second)]
    pub deadline: Option<Duration>,
    /// Serve a page that shows the run while it lives; its address is printed
    #[arg(long)]
    pub web: bool,
    #[command(flatten)]
    pub page: Page,
    /// Only check the workflow file
    #[arg(long)]
    pub check: bool,
    /// Only check the file and draw it: tasks, ports, series, regions, items, as .svg or .dot
    #[arg(long, value_name = "PICTURE")]
    pub graph: Option<PathBuf>,
}

/// The options that say on which hosts `run` starts tasks.
#[derive(Args, Debug)]
pub struct RunHosts {
    /// Run on these hosts: n1,n2 or node[1-8] [default: those of Slurm's allocation, else this one]
    #[arg(short = 'H', long, value_name = "HOSTS", conflicts_with = "daemon")]
    pub hosts: Option<String>,
    /// File with one host a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "daemon"])]
    pub hostfile: Option<PathBuf>,
    /// What starts crossdock on the other hosts [default: srun on the hosts of Slurm's allocation, else ssh]
    #[arg(long, value_enum)]
    pub launcher: Option<RunLauncher>,
    /// The hosts' ssh with its options [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// The path of crossdock on the other hosts [default: this program's path]
    #[arg(long, value_name = "PATH")]
    pub starter: Option<String>,
    /// The address at which other hosts reach this host [default: the one from which their connection came]
    #[arg(long, value_name = "HOST")]
    pub address: Option<String>,
    /// What carries bytes between the hosts: auto (the best that works for each pair of hosts), tcp, grpc, ucx (as auto, with pulls by UCX)
    #[arg(long, value_name = "TRANSPORT", default_value_t)]
    pub transport: Choice,
    /// Use plain text between the hosts instead of TLS: every program that reaches the network can read and change the data
    #[arg(long, conflicts_with = "daemon")]
    pub trusted_network: bool,
}

/// The values of `run --launcher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunLauncher {
    /// Start crossdock with the host's ssh
    Ssh,
    /// Start crossdock as a job step of Slurm
    Srun,
}

/// What `run` shows while the workflow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Show {
    /// `live` on a terminal, otherwise `lines`
    Auto,
    /// One line for each task, updated in place
    Live,
    /// The lines that the tasks write
    Lines,
    /// Only errors
    Quiet,
}

/// The options of `ps`.
#[derive(Args, Debug)]
pub struct Ps {
    /// Show only this run: its id, the beginning of its id, or its workflow
    pub run: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// The options of `top`.
#[derive(Args, Debug)]
pub struct Top {
    #[command(flatten)]
    pub output: Output,
    /// The daemon's socket [default: all your daemons that can be found]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The options for the page in the browser.
#[derive(Args, Clone, Debug)]
pub struct Page {
    /// The page's port on 127.0.0.1 [default: 8642, or any free port if that is taken]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub web_port: u16,
    /// A file with the page's token; it is written if it does not exist [default: a new token each time]
    #[arg(long, value_name = "FILE")]
    pub web_token: Option<PathBuf>,
}

/// The options of `web`.
#[derive(Args, Debug)]
pub struct WebPage {
    #[command(flatten)]
    pub page: Page,
    /// The daemon's socket [default: all your daemons and runs]
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// End when the process with this id ends
    #[arg(long, value_name = "PID", hide = true)]
    pub with: Option<u32>,
}

/// The options of `logs`.
#[derive(Args, Debug)]
pub struct Logs {
    /// The run: its id, the beginning of its id, or its workflow
    pub run: String,
    /// The task, or one rank of it such as `solve.0` [default: all]
    pub task: Option<String>,
    /// Continue until the run ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print only the last N lines that each task has written so far
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
}

/// The options of `stop`.
#[derive(Args, Debug)]
pub struct StopRun {
    /// The runs: their ids, the beginnings of their ids, or their workflows
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// How long the run may take to end after SIGTERM [default: the file's `grace` and 20 s]
    #[arg(long, value_name = "TIME", value_parser = durations::time)]
    pub deadline: Option<Duration>,
}

/// The options of `attach`.
#[derive(Args, Debug)]
pub struct Attach {
    /// The run: its id, the beginning of its id, or its workflow
    pub run: String,
    /// The command and its arguments, with or without `--` before them [default: a shell]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// The options of `serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// The socket to listen on; its folder is made if it does not exist
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// End when no member has been connected for a while
    #[arg(long)]
    pub private: bool,
    /// How long a private daemon without members waits before it ends; a plain number is seconds
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = durations::time)]
    pub idle: Duration,
    /// The most memory that all segments may take together [default: what the node has free]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Write one byte to standard output when the daemon listens
    #[arg(long)]
    pub ready: bool,
    /// Continue in the background, and return as soon as the daemon listens
    #[arg(long, conflicts_with = "ready")]
    pub detach: bool,
    /// Serve a page that shows what the daemon has; its address is printed on standard error
    #[arg(long, conflicts_with = "detach")]
    pub web: bool,
    #[command(flatten)]
    pub page: Page,
    /// Be a node of the site with this name
    #[arg(long, value_name = "NAME", requires = "catalog")]
    pub site: Option<String>,
    /// This node's name in the site [default: the host's name]
    #[arg(long, value_name = "NAME", requires = "site")]
    pub node: Option<String>,
    /// Where the site's catalog is: keep:HOST:PORT (this daemon keeps it), embedded:[NODE@]HOST:PORT (that node keeps
    /// it), etcd:URL,URL,URL
    #[arg(long, value_name = "WHERE", requires = "site", value_parser = catalog)]
    pub catalog: Option<CatalogAddress>,
    /// An inherited descriptor of a socket that listens at the catalog's address, for a daemon that keeps the catalog;
    /// only `crossdock run` uses this option
    #[arg(long, value_name = "NUMBER", requires = "catalog", hide = true)]
    pub catalog_socket: Option<i32>,
    /// The address where this node listens to the others [default: any port, at this host's address on the way to the
    /// catalog]
    #[arg(long, value_name = "HOST:PORT", requires = "site")]
    pub listen: Option<String>,
    /// A folder with authority.pem, node.pem and node.key: nodes connect to each other with mutual TLS
    #[arg(long, value_name = "FOLDER", requires = "site", conflicts_with = "trusted_network")]
    pub certificates: Option<PathBuf>,
    /// Allow plain text between nodes; without this and without certificates, only loopback addresses are used
    #[arg(long, requires = "site")]
    pub trusted_network: bool,
    /// What carries bytes between nodes: auto (the best that works for each pair of nodes), tcp, grpc, ucx (as auto, with pulls by UCX)
    #[arg(long, value_name = "TRANSPORT", default_value_t, requires = "site")]
    pub transport: Choice,
    /// How long this node keeps its names in the site when it does not reach the catalog
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = durations::time, requires = "site")]
    pub lease: Duration,
}

fn catalog(text: &str) -> Result<CatalogAddress, String> {
    text.parse()
}

/// The options of `certificates`.
#[derive(Args, Debug)]
pub struct CertificateOptions {
    /// The folder for the certificates; it is made if it does not exist
    pub folder: PathBuf,
    /// The names of the nodes in the site
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<String>,
    /// The number of days for which the certificates are valid
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

/// The options of `ls`.
#[derive(Args, Debug)]
pub struct Ls {
    #[command(flatten)]
    pub output: Output,
    /// The daemon's socket [default: all your daemons that can be found]
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// List the files of the runs' managed directories: state, size, and which tasks write, read and await them
    #[arg(long, conflicts_with = "socket")]
    pub files: bool,
    /// List the nodes of the daemon's site
    #[arg(long, conflicts_with = "files")]
    pub nodes: bool,
}

/// The options of `inspect`.
#[derive(Args, Debug)]
pub struct Inspect {
    /// The object: NAME or WORKFLOW/NAME
    pub name: String,
    #[command(flatten)]
    pub output: Output,
    /// The daemon's socket [default: all your daemons that can be found]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The options of `rm`.
#[derive(Args, Debug)]
pub struct Remove {
    /// The objects: NAME or WORKFLOW/NAME
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Remove only an object of this kind
    #[arg(long, value_enum)]
    pub kind: Option<Kind>,
    /// Remove the object even if a member has it open
    #[arg(long)]
    pub force: bool,
    /// The daemon's socket [default: all your daemons that can be found]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The commands of `crossdock region`.
#[derive(Debug, Subcommand)]
pub enum RegionCommand {
    /// Copy a region of any node to this node, under another name
    #[command(
        after_long_help = "The copy has the bytes of one moment in which no task had the region open. Handles that were saved in the region work in the copy.\n\nExamples:\n  crossdock region copy melt/frames frames-copy\n  crossdock region copy melt/frames frames-copy --timeout '5 min'   waits until no task has it open"
    )]
    Copy {
        /// The region: WORKFLOW/NAME, or NAME in the default workflow
        region: String,
        /// The name of the copy, in the same workflow
        copy: String,
        #[command(flatten)]
        common: RegionOptions,
    },
    /// Move a region of another node to this node
    #[command(
        after_long_help = "The region keeps its name, and its handles stay valid. If the move fails, the region is where it was. A region that is on this node already stays as it is.\n\nExamples:\n  crossdock region move melt/frames\n  crossdock region move melt/frames --timeout '5 min'   waits until no task has it open"
    )]
    Move {
        /// The region: WORKFLOW/NAME, or NAME in the default workflow
        region: String,
        #[command(flatten)]
        common: RegionOptions,
    },
}

/// The options of `crossdock region copy` and `crossdock region move`.
#[derive(Args, Debug)]
pub struct RegionOptions {
    /// How long the whole command may take
    #[arg(long, value_name = "TIME", value_parser = durations::time, default_value = "60 s")]
    pub timeout: Duration,
    /// The socket of the daemon to which the region is copied or moved [default: your daemon that is in a site]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// The options of `crossdock check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The program, as the task's command names it
    pub program: String,
    /// The task's root folder [default: this machine's]
    #[arg(long)]
    pub root: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The kinds of objects that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Region,
    Port,
    Series,
    Item,
}

impl Kind {
    pub fn is(self, kind: crossdock_client::SegmentKind) -> bool {
        format!("{self:?}").eq_ignore_ascii_case(kind.word())
    }
}

/// The options of `audit`.
#[derive(Args, Debug)]
pub struct Audit {
    /// Show only this workflow, or this object: NAME or WORKFLOW/NAME
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn size(text: &str) -> Result<u64, String> {
    crossdock_launch::file::units::size(text).map_err(|(what, hint)| format!("{what}; {hint}"))
}
