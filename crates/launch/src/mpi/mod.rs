//! MPI jobs in containers on several hosts, with no ssh daemon in any container.
//!
//! ```text
//! first host                                        another host
//! crossdock mpirun ── keeper ──────── ssh ───────── starter ── keeper
//!                       │ one container per host       │          │ one container per host
//!                     init ─ mpirun, ranks              (frames) init ─ orted, prted or proxy, ranks
//!                              └ ssh (shim) ─▶ keeper
//! ```
//!
//! On each host, a **keeper** makes the job's one container. The container's first process is the shim as **init**.
//! Clients of the keeper ask it for commands, and init starts them in the container. The MPI's launcher runs in the
//! container and calls the shim as if it were ssh. The shim asks the keeper. The keeper uses the host's real ssh to
//! start a **starter** on the other host, which is a client of the keeper there. When one end of any of these
//! connections is gone, for whatever reason, the other end stops what depends on the connection.
//!
//! With `--launcher srun`, Slurm's srun starts the ranks, and neither ssh nor the mpirun of the image is used. srun
//! starts one **task** for each rank. The task is a client of the keeper on its host, and runs its rank in the job's
//! container with the PMI that Slurm gave to the task.

mod container;
mod front;
mod fuzz;
pub mod hosts;
mod job;
mod job_folder;
mod keeper;
mod launcher;
mod marks;
mod options;
mod outline;
mod remote;
mod report;
mod session;
mod srun;
mod starter;
mod task;

pub use container::ENGINES;
pub use front::mpirun;
pub use fuzz::fuzz_mpi;
pub(crate) use job_folder::{is_static, shim};
pub(crate) use keeper::is_here;
pub use keeper::{fuzz_keeper, keeper};
pub use options::Options;
pub use starter::starter;
pub use task::task;

/// The hidden command that runs a job's starter on another host.
pub const STARTER: &str = "mpi-starter";
/// The hidden command that runs a job's keeper.
pub const KEEPER: &str = "mpi-keeper";
/// The hidden command of `crossdock` that `srun` starts for each rank.
pub const TASK: &str = "mpi-task";
/// The line that a starter writes before its first frame. It marks where the frames begin, because login shells may
/// write any text before it.
const GREETING: &[u8] = b"\ncrossdock-mpi 1\n";
