//! The command line of the generator.

use std::path::PathBuf;

use clap::Parser;

use crate::graph::{Method, Mpi, Waiting};

const HELP: &str = "\
The graph is one of the paper's shapes, or the file of a description:
  simple           one task produces, one consumes
  pipeline         a chain of --tasks tasks
  scatter-gather   one task sends the same data to --tasks - 2 others, which send theirs to one
  FILE             lines like these; what they leave out comes from the options:
                     workflow iterations=1024 region=1GiB depth=2 method=crossdock
                     task simulate size=10MB period=10ms
                     task analyse size=1MB
                     port simulate -> analyse method=copyfrom

Every task reads all that comes in and writes all that goes out; checksums at the end tell whether all of it was right.

Methods, for the whole workflow or port by port:
  crossdock        the data lies in a region, its handle goes through a port
  copyinto         the producer copies its own data into the region first
  copyfrom         the consumer copies the data out of the region first
  copy             both
  mpi              the data in MPI messages                  (tasks are ranks of one MPI job)
  hybrid           the data in a region, its handle in an MPI message
  unix, tcp        through a stream socket
  threads          tasks are threads of one process; mutex and condition variables   (whole workflow only)
  boost            Boost.Interprocess: managed_shared_memory and message_queue       (whole workflow only)

Throughput is the size of all data that goes between tasks, divided by the time from when all have begun until the last
one ends; memory was touched before. A C++20 compiler is needed, and for mpi and hybrid an MPI.

Examples:
  synth simple --size 10MB
  synth pipeline --tasks 9 --size 10MB --method mpi --mpi openmpi
  synth scatter-gather --tasks 9 --size 8 --seconds 0.5 --trials 5 --json
  synth workflow.txt --engine bubblewrap
  synth simple --size 10MB --emit /tmp/simple      write everything, run nothing";

/// Generate a synthetic workflow, run it and say how fast it was
#[derive(Parser, Debug)]
#[command(name = "synth", version, after_long_help = HELP)]
pub struct Synth {
    /// The shape: simple, pipeline, scatter-gather, or the file of a description
    pub graph: String,
    /// The number of tasks in a pipeline or scatter-gather
    #[arg(long, default_value_t = 9)]
    pub tasks: usize,
    /// The number of bytes that a task sends each time
    #[arg(long, default_value = "10MB", value_parser = size)]
    pub size: u64,
    /// The time between two sends of a task, such as `1s` or `10ms` [default: as fast as possible]
    #[arg(long, default_value = "0s", value_parser = crate::describe::duration)]
    pub period: u64,
    /// The method that carries the data
    #[arg(short, long, value_enum, default_value_t = Method::Crossdock)]
    pub method: Method,
    /// The MPI library to use
    #[arg(long, value_enum, default_value_t = Mpi::Mpich)]
    pub mpi: Mpi,
    /// The number of iterations in a trial; with --seconds, the largest number
    #[arg(long, default_value_t = 1024)]
    pub iterations: u64,
    /// Make each trial take about this long, instead of a fixed number of iterations
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub seconds: f64,
    /// The number of trials
    #[arg(long, default_value_t = 1)]
    pub trials: u64,
    /// The number of warm-up iterations before the first trial [default: depth + 2]
    #[arg(long)]
    pub warmup: Option<u64>,
    /// The number of messages in flight on a port, and of buffers of a task; a power of two
    #[arg(long, default_value_t = 2)]
    pub depth: u32,
    /// The size of the region [default: what the buffers need]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub region: Option<u64>,
    /// Measure each hand-over on its own, from when the data is ready until the other task has it (simple only)
    #[arg(long)]
    pub latency: bool,
    /// How the ports of crossdock wait
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub waiting: Waiting,
    /// Send small data through the region, as large data is sent, and not inside the message
    #[arg(long)]
    pub no_inline: bool,
    /// The container engine; `process` for plain processes
    #[arg(short, long, default_value = "process")]
    pub engine: String,
    /// Stop the workflow after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub deadline: u64,
    /// The folder in which compiled programs are kept
    #[arg(long, value_name = "FOLDER", default_value = "build/synth")]
    pub build: PathBuf,
    /// Write the workflow file, the graph and the program into this folder, and run nothing
    #[arg(long, value_name = "FOLDER")]
    pub emit: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    crossdock_launch::file::units::size(text).map_err(|(what, hint)| format!("{what}; {hint}"))
}
